"""The card and the README of an export, and the commands that serve it and ask it."""

import json
import shlex
from pathlib import Path
from types import SimpleNamespace

import pytest

from keras_transformer import Forecaster, LanguageModel, SequenceClassifier, Transformer
from keras_transformer.cli import main
from keras_transformer.commands import export
from keras_transformer.export.card import (
    ask_command,
    model_name,
    serve_command,
    without_folders,
    write_card,
)
from keras_transformer.training.card import read_card
from keras_transformer.version_directory import check_version

RUN = {
    "kind": "run",
    "path": "/home/anna/runs/en-de",
    "options": {"source": "/home/anna/secret/train.en", "dropout": 0.0, "plots": False},
    "texts": {"source": {"name": "/home/anna/secret/train.en", "size": 7, "sha256": "ab" * 32}},
    "precision": "bfloat16",
    "machine": {"processor": "EPYC", "cores": 2},
    "history": [{"epoch": 1, "val_bleu": 39.0}],
    "kept": {
        "epoch": 1,
        "metric": "bleu",
        "value": 39.0,
        "signature": "nrefs:1",
        "why": "best",
    },
    "unknown": ["time: the version that began it did not note it"],
}


@pytest.fixture(scope="module")
def version(tokenizer, tmp_path_factory):
    sizes = {"num_layers": 1, "d_model": 8, "num_heads": 2, "d_ff": 8}
    model = Transformer(**sizes, source_vocab_size=tokenizer.vocab_size)
    path = tmp_path_factory.mktemp("card") / "en | de" / "3"
    path.mkdir(parents=True)
    search = {"strategy": "Beam", "size": 4, "logits_processors": (print,)}
    write_card(path, path, model, tokenizer, run=RUN, search=search, limits={"max_length": 9})
    (path / "saved_model.pb").write_bytes(b"")
    return path


def test_a_card_holds_settings_versions_and_the_run_but_no_folders(version):
    card = read_card(version)
    assert card["search"] == {"strategy": "Beam", "size": 4, "logits_processors": ["print"]}
    assert card["model"]["d_model"] == 8 and card["tokenizer"]["vocab_size"]
    assert card["versions"]["tensorflow"] and card["made"] and card["unknown"] == []
    assert card["run"] == without_folders(RUN)
    assert card["run"]["options"] == {"source": "train.en", "dropout": 0.0, "plots": False}
    assert "anna" not in json.dumps(card)


def test_a_readme_is_a_model_card_with_what_is_known_and_what_is_to_do(version):
    text = (version / "README.md").read_text("utf-8")
    assert text.startswith("---\nlibrary_name: keras-transformer\npipeline_tag: translation\n")
    for part in (
        "# en-de\n",
        "| limits | max_length 9 |",
        f"| text: source | train.en, 7 bytes, SHA-256 {'ab' * 32} |",
        "| --dropout | 0.0 |",
        "epoch 1, BLEU 39.00 (best); nrefs:1",
        "Not known: time",
        "TODO: where the text comes from",
        serve_command(version, "./en | de"),
    ):
        assert part in text, part
    assert "anna" not in text and "{" not in text.replace('\'{"inputs": {"text"', "")


STACK = {"num_layers": 1, "d_model": 8, "num_heads": 2, "d_ff": 8}
READMES = {
    "forecaster": (
        lambda: Forecaster(
            **STACK, history_length=9, horizon=3, num_features=2, num_covariates=1, quantiles=[0.5]
        ),
        "time-series-forecasting",
        "| history_length | 9 |\n| horizon | 3 |\n| num_features | 2 |\n| num_covariates | 1 |\n"
        "| quantiles | 0.5 |\n| signatures | serving_default |\n",
        "MASE",
    ),
    "classifier": (
        lambda: SequenceClassifier(**STACK, num_classes=4, vocab_size=9, max_length=7),
        "text-classification",
        "| num_classes | 4 |\n| max_length | 7 |\n| signatures | serving_default |\n",
        "accuracy",
    ),
    "language_model": (
        lambda: LanguageModel(**STACK, vocab_size=9),
        "text-generation",
        "| signatures | serving_default |\n",
        "perplexity",
    ),
}


@pytest.mark.parametrize("name", READMES)
def test_a_readme_asks_and_says_what_a_client_of_such_a_model_needs(name, tmp_path):
    make, task, settings, score = READMES[name]
    write_card(tmp_path, tmp_path, make(), signatures=["serving_default"])
    text = (tmp_path / "README.md").read_text("utf-8")
    assert f"\npipeline_tag: {task}\n" in text and f"|---|---|\n{settings}\n" in text
    to_do = [line for line in text.splitlines() if line.startswith("TODO")]
    assert any(score in line for line in to_do)
    assert "from which language into which" not in text and "keras-transformer evaluate" not in text
    assert ("strings in" in text) == ("docker run" in text) == (name == "language_model")


def test_the_readme_of_another_model_asks_what_suits_any(tmp_path):
    class Mine(Forecaster):
        pass

    write_card(tmp_path, tmp_path, Mine(**STACK, history_length=9, horizon=3))
    text = (tmp_path / "README.md").read_text("utf-8")
    assert "pipeline_tag" not in text and "language into" not in text and "{" not in text


@pytest.mark.parametrize(
    "directory, name",
    [
        ("/x/en-de", "en-de"),
        ("/x/en-de/7", "en-de"),
        ("/x/my model (é)", "my-model"),
        ("/a: b/c'd", "c-d"),
        ("/x/日本", "model"),
    ],
)
def test_the_commands_name_the_directory_and_the_model_whatever_they_are_called(directory, name):
    assert model_name(directory) == name
    docker = shlex.split(serve_command(directory).replace("\\\n", " "))
    home = directory.removesuffix("/7")
    mounted = {f"{home}:/models/{name}:ro", f"type=bind,src={home},dst=/models/{name},ro"}
    assert len(mounted & set(docker)) == 1 and f"MODEL_NAME={name}" in docker
    curl = shlex.split(ask_command(directory, 'It\'s "x"').replace("\\\n", " "))
    assert curl[:2] == ["curl", "-d"] and json.loads(curl[2]) == {"inputs": {"text": ['It\'s "x"']}}
    assert curl[3] == f"http://localhost:8501/v1/models/{name}:predict"


def test_the_readme_mounts_the_folder_as_it_is_called():
    command = shlex.split(serve_command("/x/my model/1", "./my model").replace("\\\n", " "))
    assert "./my model:/models/my-model:ro" in command


def test_the_server_is_started_as_the_docs_say():
    page = (Path(__file__).parents[2] / "docs/serving.md").read_text("utf-8")
    documented = page.split("## Start\n\n```sh\n")[1].split("```")[0]
    command = serve_command("/exports/en-de").replace("/exports", '"$PWD/exports', 1)
    assert command.replace("en-de:ro ", 'en-de:ro" ') + "\n" == documented


def test_export_prints_its_path_and_then_how_to_serve_and_ask(monkeypatch, tmp_path, capsys):
    path = str(tmp_path / "en-de" / "1")
    loaded = SimpleNamespace(export=lambda directory, **options: path)
    monkeypatch.setattr(export, "load_translator", lambda *arguments, **options: loaded)
    run = Path(__file__).parents[1] / "inference" / "formats" / "3"
    assert main(["export", str(run), str(tmp_path / "en-de")]) == 0
    printed = capsys.readouterr()
    assert printed.out == f"{path}\n"
    assert serve_command(path) in printed.err and ask_command(path) in printed.err
    assert f"keras-transformer show {path}" in printed.err


def test_an_export_has_a_card_and_its_readme_may_be_completed(exported, served):
    translator, path = exported
    card = read_card(path)
    assert (
        card["search"]["strategy"] == "Beam" and card["search"]["size"] == translator.strategy.size
    )
    assert card["limits"]["max_source_length"] == translator.graph.max_source_length
    assert card["precision"] == "float32" and "align" in card["signatures"]
    assert "assets.extra/card.json" in card["files"] and card["damage"] == []
    assert card["unknown"] == ["run: it was exported from a model in memory"]
    readme = Path(path) / "README.md"
    with open(readme, "a") as file:
        file.write("Mine.\n")
    assert check_version(path)
    body = json.loads(shlex.split(ask_command(path, "a dog runs").replace("\\\n", " "))[2])
    assert served(**body["inputs"])["translation"].tolist() == [b"ein Hund rennt"]

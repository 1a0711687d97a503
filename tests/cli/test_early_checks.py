"""What is wrong with a command is said before Keras or TensorFlow is imported."""

import inspect
import json
import subprocess
import sys

import pytest

from keras_transformer import presets
from keras_transformer.commands.early_checks import check_backend, check_early
from keras_transformer.commands.options import MODEL, Option, dashed
from keras_transformer.commands.parser import build_parser
from keras_transformer.commands.path_checks import check_paths
from keras_transformer.commands.search import LONGEST, OF_BEAMS, search_options
from keras_transformer.commands.training_run.model_size import model_size
from keras_transformer.decoding.strategies import Beam, Greedy
from keras_transformer.inference.translator import Translator
from keras_transformer.layers.feed_forward import GATES
from keras_transformer.layers.norms import NORMS
from keras_transformer.layers.positional_embedding import POSITIONS
from keras_transformer.models.transformer import TIED_EMBEDDINGS

# Runs each command in one process, and says after each what is imported.
SCRIPT = """
import json, sys
from keras_transformer.cli import main

for arguments in json.load(sys.stdin):
    try:
        status = main(arguments)
    except SystemExit as end:
        status = end.code
    print(status, bool({"keras", "tensorflow"} & set(sys.modules)), flush=True)
"""


def test_nothing_slow_is_imported_before_a_mistake_is_found(tmp_path):
    text, half = tmp_path / "train.en", tmp_path / "half"
    text.write_text("a dog\n")
    half.mkdir()
    (half / "x").write_text("")
    run, converted = tmp_path / "of-train", tmp_path / "of-ctranslate2"
    for folder in (run, converted, tmp_path / "3"):
        folder.mkdir()
    (run / "manifest.json").write_text("{}")
    (converted / "model.bin").write_text("x")
    train, pair = ["train", "--out", str(tmp_path / "run")], ["--source", text, "--target", text]
    cases = [
        (["tran"], "did you mean train"),
        (["train", "--outt", "x"], "did you mean --out"),
        ([*train, "--source", tmp_path / "trian.en", "--target", text], f"did you mean {text}"),
        ([*train, "--source", text], "--target is missing"),
        ([*train, *pair, text], "need as many files, but have 1 and 2"),
        ([*train, *pair, "--tsv", text], "give one text"),
        ([*train, *pair, "--num-pairs", "9"], "--num-pairs is of --synthetic pairs"),
        ([*train, "--source", "", "--target", text], "--source must not be empty; give a path"),
        ([*train, *pair, "--valid-split", "9", "--valid-tsv", text], "exclude each other"),
        ([*train, *pair, "--d-model", "30"], "d_model must be a multiple of num_heads"),
        ([*train, *pair, "--tokenizer", text, "--vocab-size", "9"], "leave out --vocab-size"),
        ([*train, *pair, "--plots"], "--plots needs a sentence"),
        ([*train, *pair, "--strategy", "multi_worker"], "needs the variable TF_CONFIG"),
        ([*train, *pair, "--early-stopping", "2"], "add --valid-split N"),
        (["train", "--out", half, *pair], "holds other files"),
        (["train", "--out", text, *pair], "is a file"),
        (["train", "--out", "/proc/x", *pair], "could not be written"),
        (["translate", half], "is neither a run nor an export"),
        (["translate", half, "--shard", "3/2"], "must be I/N with I from 1 to N"),
        (["translate", converted], "is a model for CTranslate2"),
        (["translate", text.parent / "haf"], f"did you mean {half}"),
        (["evaluate", half, "--source", text, "--target", text], "is neither"),
        (["distil", half, "--source", text, "--out", tmp_path / "o"], "is no run"),
        (["export", half, tmp_path / "e"], "is no run"),
        (["average", half, tmp_path / "e", "--last", "1"], "is no run"),
        (["inspect", half, "a dog", "--out", tmp_path / "no" / "page.html"], "no"),
        (["tokenizer", "--text", half, "--out", tmp_path / "t"], "is a directory"),
        (["tokenizer", "--text", text, "--out", converted / "model.bin"], "exists; name another"),
        (["export", run, tmp_path / "3"], "3 exists; add --overwrite, or name"),
        (["export", run, tmp_path / "e", "--max-source-length", "1"], "must be at least 2"),
        (["export", run, run], "of-train is a run; name another directory to export to"),
        (["export", run, tmp_path / "e", "--quantization", "int7"], "(did you mean int8?)"),
        (
            ["translate", run, "--output", tmp_path / "o.gz"],
            "o.gz is written without compression; leave out .gz",
        ),
        (["evaluate", run, *pair, "--output", tmp_path / "o.gz"], "leave out .gz"),
        (["score", run, *pair, "--output", tmp_path / "o.gz"], "leave out .gz"),
        (["inspect", run, "--out", tmp_path / "page.html"], "The sentence is missing"),
        (["distil", run, "--source", half / "x", "--out", tmp_path / "o"], "x is empty; name a"),
        (["demo", "--out", text], "is a file"),
        (["--version"], None),
    ]
    words = [[str(word) for word in arguments] for arguments, _ in cases]
    command = [sys.executable, "-c", SCRIPT]
    result = subprocess.run(command, input=json.dumps(words), capture_output=True, text=True)
    answers = [line for line in result.stdout.splitlines() if not line.startswith("keras")]
    assert all(answer.endswith("False") for answer in answers) and len(answers) == len(cases)
    assert {answer.split()[0] for answer in answers[:-1]} == {"1", "2"}
    lines = result.stderr.splitlines()
    assert len(lines) == len(cases) - 1
    for line, (arguments, message) in zip(lines, cases[:-1], strict=True):
        assert message in line, (arguments, line)


def test_the_choices_are_those_of_the_layers():
    choices = {option.key: option.values for option in MODEL if isinstance(option, Option)}
    assert choices["norm"] == tuple(NORMS) and choices["position"] == POSITIONS
    assert choices["tie"] == TIED_EMBEDDINGS and set(GATES) < set(choices["activation"])
    assert {field for field in vars(Beam()) if field not in vars(Greedy())} - {
        "num_hypotheses"
    } == {"coverage_penalty", "size"}
    assert set(OF_BEAMS) == {"coverage_penalty", "beam_size"}


@pytest.mark.parametrize("name", ["length_penalty", "coverage_penalty"])
def test_zero_is_a_value_of_a_search(name):
    words = ["translate", "run", dashed([name]), "0"]
    assert search_options(build_parser().parse_args(words)) == {"strategy": Beam(**{name: 0})}


def test_penalties_end_where_those_of_a_search_end():
    for name in ("length_penalty", "coverage_penalty"):
        words = ["translate", "run", dashed([name]), "10"]
        assert search_options(build_parser().parse_args(words)) == {"strategy": Beam(**{name: 10})}
    assert LONGEST == inspect.signature(Translator).parameters["max_length"].default


def test_sizes_change_a_preset():
    def size(*arguments):
        return model_size(build_parser().parse_args(["train", "--out", "x", *arguments]))

    assert size() == presets.TINY and size("--preset", "big") == presets.BIG
    deep = size("--encoder-layers", "9")
    assert (deep["num_layers"], deep["num_decoder_layers"]) == (9, presets.TINY["num_layers"])
    changed = size("--norm-first", "--tie", "none", "--position", "rotary", "--dropout", "0")
    assert changed == presets.TINY | {
        "norm_first": True,
        "tied_embeddings": "none",
        "positions": "rotary",
        "dropout": 0.0,
    }


def test_a_missing_package_is_named_with_what_installs_it(tmp_path, monkeypatch):
    for module in ("matplotlib", "tensorflow_datasets", "ctranslate2"):
        monkeypatch.setitem(sys.modules, module, None)
    (tmp_path / "manifest.json").write_text("{}")
    for arguments, package in (
        (["train", "--synthetic", "--plots", "--out", str(tmp_path / "r")], "matplotlib"),
        (["train", "--tfds", "x", "--out", str(tmp_path / "r")], "tensorflow-datasets"),
        (["inspect", str(tmp_path), "a dog", "--out", str(tmp_path / "page")], "matplotlib"),
        (["export", str(tmp_path), str(tmp_path), "--format", "ctranslate2"], "ctranslate2"),
    ):
        with pytest.raises(ValueError, match=f"not installed: pip install {package}"):
            check_early(build_parser().parse_args(arguments))


def test_no_vocabulary_replaces_the_text_that_it_is_learnt_from(tmp_path):
    (tmp_path / "a").write_text("a dog\n")
    options = build_parser().parse_args(["tokenizer", "--text", "b", "a", "--out", "a"])
    options.text, options.out = [str(tmp_path / "b"), str(tmp_path / "a")], str(tmp_path / "a")
    (tmp_path / "b").touch()
    with pytest.raises(ValueError, match="--out .*a would replace what --text reads; name another"):
        check_early(options)


def test_only_some_paths_are_checked_if_they_are_named():
    options = build_parser().parse_args(["train", "--out", "x", "--source", "/no", "--tsv", "/no"])
    check_paths(options, ["out"])
    with pytest.raises(ValueError, match="--tsv /no does not exist"):
        check_paths(options, ["tsv"])


@pytest.mark.parametrize(
    ("backend", "words", "message"),
    [
        ("tensorflow", "--strategy data_parallel", "needs KERAS_BACKEND=jax"),
        ("tensorflow", "--strategy model_parallel=2", "needs KERAS_BACKEND=jax"),
        ("jax", "--strategy mirrored", "needs KERAS_BACKEND=tensorflow"),
        ("jax", "--strategy multi_worker", "needs KERAS_BACKEND=tensorflow"),
        ("jax", "--plots", "--plots needs KERAS_BACKEND=tensorflow"),
        ("jax", "--strategy model_parallel=2", "need --strategy data_parallel"),
    ],
)
def test_what_a_backend_or_several_processes_cannot_do_is_refused(
    monkeypatch, backend, words, message
):
    monkeypatch.setenv("KERAS_BACKEND", backend)
    monkeypatch.setenv("KERAS_DISTRIBUTION_NUM_PROCESSES", "2")
    options = build_parser().parse_args(["train", "--synthetic", "--out", "run", *words.split()])
    with pytest.raises(ValueError, match=message):
        check_backend(options)

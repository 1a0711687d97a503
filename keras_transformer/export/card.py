"""What an export says of itself: a card for programs, a README for people, how to serve and ask."""

import json
import re
import shlex
from pathlib import Path
from typing import NamedTuple

from keras_transformer.files import fingerprint, write_json
from keras_transformer.layers.arguments import OF_KERAS
from keras_transformer.training.card import kept_text, size_text
from keras_transformer.training.run_record import present_machine, present_time, present_versions
from keras_transformer.version_directory import EXPORT_CARD, README, model_directory

FORMAT = 1
IMAGE = "tensorflow/serving:2.20.0"
# One thread for an operation, several searches at a time; see docs/serving.md.
FLAGS = "--tensorflow_intra_op_parallelism=1 --tensorflow_inter_op_parallelism=2"
EXAMPLE = "A dog runs."
MODEL_CARD = """\
---
library_name: keras-transformer
{task}tags: [keras, tensorflow, savedmodel]
# language: [en, de]
# license: apache-2.0
---

# {name}

_Lines that begin with TODO are for you to complete; the rest is what the export knows._

{summary}

TODO: {about}; who made it, how to reach them.

## Use

TODO: what it is meant for, and what it should not be used for.

{use}
## Settings

{settings}

## Training

{training}

TODO: {data}.

## Evaluation

{evaluation}

TODO: {scores}.

## Limits

{limits}

TODO: known errors and biases.

## License

TODO

## Files

`assets.extra/manifest.json` has the size and the SHA-256 of every file but this one,
`assets.extra/card.json` all that this page is made of; `keras-transformer show` prints both.
"""


class Kind(NamedTuple):
    """What a README says and asks of a model of some class.

    `task` is a `pipeline_tag`, or None; `settings` are the arguments of the model that a client
    needs; the others are what is to do.
    """

    task: str | None = None
    about: str = "what it computes"
    data: str = "where the data come from, their licence, how they were filtered"
    scores: str = "scores on a test set"
    settings: tuple[str, ...] = ()
    reads_text: bool = False


TEXT = "where the text comes from, its licence, how it was filtered"
KINDS = {
    "Transformer": Kind(
        "translation",
        "from which language into which, for what kind of text",
        TEXT,
        "scores on a test set, `keras-transformer evaluate`, with their signatures",
        reads_text=True,
    ),
    "LanguageModel": Kind(
        "text-generation",
        "in which language, what kind of text",
        TEXT,
        "the perplexity of a test set, per byte",
        reads_text=True,
    ),
    "Forecaster": Kind(
        "time-series-forecasting",
        "which series, their units, the time from one step to the next; what the covariates are",
        "where the series come from, their licence, how gaps were filled",
        "MASE and pinball loss on origins after the training, beside those of a seasonal naive",
        ("history_length", "horizon", "num_features", "num_covariates", "quantiles"),
    ),
    "SequenceClassifier": Kind(
        "text-classification",
        "what each class is, from 0 on; in which language, what kind of text",
        TEXT,
        "the accuracy on a test set, and of the most frequent class",
        ("num_classes", "max_length"),
    ),
}


def write_card(version, directory, model, tokenizer=None, *, run=None, **parts) -> None:
    """Writes the card and the README of an export.

    Args:
        version: the directory that holds the SavedModel.
        directory: where it will be served from; its name is the model's.
        model: the Keras model.
        tokenizer: its `Tokenizer`, if there is one.
        run: the card of the run that the model comes from, or None if that is not known.
        **parts: what else the card has, as JSON values: "search", "limits", "precision", ...
    """
    card = {
        "format": FORMAT,
        "kind": "export",
        "made": present_time(),
        "versions": present_versions(),
        "machine": present_machine(),
        "model": _model(model),
        **({"tokenizer": _tokenizer(tokenizer)} if tokenizer is not None else {}),
        **plain(parts),
        "run": run and without_folders(run),
    }
    version = Path(version)
    (version / EXPORT_CARD).parent.mkdir(exist_ok=True)
    write_json(version / EXPORT_CARD, card)
    (version / README).write_text(_readme(card, directory), "utf-8")


def without_folders(value):
    """Returns a card with the names of files alone: others need not know where they lay."""
    if isinstance(value, dict):
        return {name: without_folders(part) for name, part in value.items()}
    if isinstance(value, list | tuple):
        return [without_folders(part) for part in value]
    is_path = isinstance(value, str) and value.startswith("/") and "\n" not in value
    return Path(value).name if is_path else value


def model_name(directory) -> str:
    """Returns the name under which an export is served: letters, digits, `.`, `-` and `_`."""
    name = re.sub(r"[^\w.-]+", "-", model_directory(directory).name, flags=re.ASCII)
    return name.strip("-") or "model"


def serve_command(directory, path: str | None = None) -> str:
    """Returns the command that serves the newest version of an export on this machine.

    `path` is the export's folder on the machine that serves it, by default its folder here.
    """
    name, path = model_name(directory), path or str(model_directory(directory))
    volume = f"-v {shlex.quote(f'{path}:/models/{name}:ro')}"
    if ":" in path:  # which ends a path for -v
        volume = f"--mount {shlex.quote(f'type=bind,src={path},dst=/models/{name},ro')}"
    return (
        f"docker run --rm -p 8500:8500 -p 8501:8501 \\\n"
        f"    {volume} -e MODEL_NAME={name} \\\n"
        f"    -e TF_ENABLE_ONEDNN_OPTS=1 {IMAGE} \\\n"
        f"    {FLAGS}"
    )


def ask_command(directory, text: str = EXAMPLE) -> str:
    """Returns the command that asks the server for one translation."""
    body = shlex.quote(json.dumps({"inputs": {"text": [text]}}, ensure_ascii=False))
    return f"curl -d {body} \\\n    http://localhost:8501/v1/models/{model_name(directory)}:predict"


def plain(value):
    """Returns a value as JSON can hold it: functions and objects by their names."""
    if isinstance(value, dict):
        return {name: plain(part) for name, part in value.items()}
    if isinstance(value, list | tuple):
        return [plain(part) for part in value]
    if isinstance(value, str | int | float | None):
        return value
    return getattr(value, "__name__", type(value).__name__)


def _model(model) -> dict:
    values = {name: x for name, x in model.get_config().items() if name not in OF_KERAS}
    arguments = plain(values)
    size = {"class": type(model).__name__, "parameters": model.count_params()}
    return size | arguments


def _tokenizer(tokenizer) -> dict:
    data = getattr(tokenizer, "model", None)  # a tokenizer of yours may have none
    known = fingerprint(data) if isinstance(data, bytes) else {}
    return known | {"vocab_size": int(tokenizer.vocab_size)}


def _readme(card, directory) -> str:
    model, run = card["model"], card["run"] or {}
    kind = KINDS.get(model["class"], Kind())
    settings = {name: model[name] for name in kind.settings}
    names = ("search", "limits", "precision", "signatures")
    settings |= {name: card[name] for name in names if name in card}
    return MODEL_CARD.format(
        name=model_name(directory),
        task=f"pipeline_tag: {kind.task}\n" if kind.task else "",
        summary=_summary(card, kind),
        about=kind.about,
        use=_use(directory) if kind.reads_text else "",
        settings=_table(settings),
        training=_training(run),
        data=kind.data,
        evaluation=_evaluation(run),
        scores=kind.scores,
        limits=_limits(card.get("limits", {})),
    )


def _summary(card, kind) -> str:
    model, versions = card["model"], card["versions"]
    return (
        f"A `{model['class']}` of {model['parameters']:,} parameters, exported on "
        f"{card['made'][:10]} by keras-transformer-layers {versions['keras-transformer-layers']} "
        f"and TensorFlow {versions['tensorflow']} as a SavedModel"
        + (", strings in and strings out." if kind.reads_text else ".")
    )


def _use(directory) -> str:
    command = serve_command(directory, f"./{model_directory(directory).name}")
    return (
        "With Docker, from the folder that holds the versions' own:\n\n"
        f"```sh\n{command}\n\n{ask_command(directory)}\n```\n"
    )


def _training(run) -> str:
    if not run:
        return "TODO: the export was made of a model in memory, and knows nothing of its training."
    known = {"epochs": len(run["history"]) or None, "began": run.get("began")}
    known |= {"ended": run.get("ended"), "computed in": run.get("precision")}
    known["machine"] = ", ".join(map(str, (run.get("machine") or {}).values()))
    options = {
        f"--{name.replace('_', '-')}": value
        for name, value in (run.get("options") or {}).items()
        if value is not None and value is not False
    }
    texts = {
        f"text: {name}": f"{text['name']}, {size_text(name, text)}, SHA-256 {text['sha256']}"
        for name, text in (run.get("texts") or {}).items()
    }
    unknown = "".join(f"\n\nNot known: {what}." for what in run.get("unknown", ()))
    return _table({k: v for k, v in known.items() if v} | texts | options) + unknown


def _evaluation(run) -> str:
    kept = kept_text(run)
    return f"On the validation text: {kept}." if kept else "No score is known."


def _limits(limits) -> str:
    lines = []
    if "max_source_length" in limits:
        lines.append(
            f"- A source is read up to token {limits['max_source_length']}, its end included; the "
            "output `source_cut` says if more was left out. Give one sentence per text."
        )
    if "max_length" in limits:
        lines.append(
            f"- An answer has at most {limits['max_length']} tokens; the output `ended` is false "
            "if it stopped at a limit."
        )
    return "\n".join(lines) or "TODO: what it cannot do."


def _table(values) -> str:
    """Makes a Markdown table of names and values."""
    rows = [f"| {name} | {_cell(value)} |" for name, value in values.items()]
    return "\n".join(["| | |", "|---|---|", *rows])


def _cell(value) -> str:
    if isinstance(value, dict):
        given = {name: part for name, part in value.items() if part not in (None, [])}
        return ", ".join(f"{name} {_cell(part)}" for name, part in given.items())
    if isinstance(value, list | tuple):
        return ", ".join(map(_cell, value))
    return str(value).replace("|", "\\|").replace("\n", " ")

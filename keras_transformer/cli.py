"""The command line: what each command takes, and how errors end it.

Nothing here imports TensorFlow or Keras; a command does so when it runs, so that help and
misspelt options are answered at once.
"""

import argparse
import os
import sys
from importlib import import_module

COMMANDS = {
    "demo": "train on generated sentences, export, and translate with the export",
    "train": "train a translator from parallel text",
    "translate": "translate standard input, line by line, to standard output",
    "evaluate": "score translations of a file against references",
    "export": "write a SavedModel for TensorFlow Serving",
}


def main(arguments=None) -> int:
    """Runs one command; returns its exit code: 0 done, 1 failed, 2 bad usage."""
    options = build_parser().parse_args(arguments)
    if not options.verbose:
        _silence_native_log()
    try:
        command = import_module(f"keras_transformer.commands.{options.command}")
        command.run(options)
        sys.stdout.flush()
        return 0
    except BrokenPipeError:
        # The reader has gone; keep the interpreter from flushing into the closed pipe.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except KeyboardInterrupt:
        return _fail("interrupted", options, KeyboardInterrupt)
    except Exception as error:
        return _fail(error, options, error)


def build_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="keras-transformer", description="Transformers for Keras 3: from text to a server."
    )
    subparsers = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    for name, help_text in COMMANDS.items():
        subparser = subparsers.add_parser(name, help=help_text, description=f"{help_text}.")
        _ADD_ARGUMENTS[name](subparser)
        subparser.add_argument("--debug", action="store_true", help="show tracebacks")
        subparser.add_argument("--verbose", action="store_true", help="show TensorFlow's log")
    return parser


def _silence_native_log() -> None:
    """Drops what C++ libraries write to stderr, whose messages no setting reaches in full.

    Python's own stderr, with progress and errors, stays.
    """
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    if sys.stderr is sys.__stderr__:
        sys.stderr = os.fdopen(os.dup(2), "w", buffering=1, encoding="utf-8", errors="replace")
        os.dup2(os.open(os.devnull, os.O_WRONLY), 2)


def _fail(message, options, error) -> int:
    if options.debug and isinstance(error, Exception):
        raise error
    text = " ".join(str(message).split()) or type(error).__name__
    print(f"keras-transformer {options.command}: {text}", file=sys.stderr)
    return 1


def _positive_int(text: str) -> int:
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError(f"must be at least 1, but is {value}")
    return value


def _positive_float(text: str) -> float:
    value = float(text)
    if not 0 < value < float("inf"):
        raise argparse.ArgumentTypeError(f"must be a positive number, but is {text}")
    return value


def _rate(text: str) -> float:
    value = float(text)
    if not 0 <= value < 1:
        raise argparse.ArgumentTypeError(f"must be in [0, 1), but is {text}")
    return value


def _penalty(text: str) -> float:
    value = float(text)
    if not 0 <= value < 100:
        raise argparse.ArgumentTypeError(f"must be in [0, 100), but is {text}")
    return value


def _add_train(parser) -> None:
    text = parser.add_argument_group("text (UTF-8, one sentence a line, .gz by suffix)")
    text.add_argument("--source", metavar="FILE", help="sentences to translate")
    text.add_argument("--target", metavar="FILE", help="their translations, line by line")
    text.add_argument("--tsv", metavar="FILE", help="source, tab, target on each line")
    text.add_argument("--tfds", metavar="NAME", help="a set of tensorflow-datasets")
    text.add_argument("--synthetic", action="store_true", help="generated sentences, en to de")
    text.add_argument(
        "--num-pairs",
        type=_positive_int,
        default=40_000,
        metavar="N",
        help="number of generated pairs (%(default)s)",
    )
    text.add_argument("--valid-source", metavar="FILE", help="sentences to validate on")
    text.add_argument("--valid-target", metavar="FILE", help="their translations")
    text.add_argument(
        "--errors",
        choices=("strict", "skip"),
        default="strict",
        help="at invalid UTF-8: stop, or skip the pair (%(default)s)",
    )
    model = parser.add_argument_group("model")
    model.add_argument(
        "--preset",
        choices=("tiny", "small", "base", "big"),
        default="tiny",
        help="its size (%(default)s)",
    )
    model.add_argument(
        "--vocab-size",
        type=_positive_int,
        default=8000,
        metavar="N",
        help="subwords of the shared vocabulary (%(default)s)",
    )
    model.add_argument("--dropout", type=_rate, metavar="RATE", help="the preset's by default")
    training = parser.add_argument_group("training")
    training.add_argument("--out", required=True, metavar="RUN", help="directory to write")
    training.add_argument("--force", action="store_true", help="overwrite a run in RUN")
    training.add_argument(
        "--epochs",
        type=_positive_int,
        default=20,
        metavar="N",
        help="passes over the text (%(default)s)",
    )
    training.add_argument(
        "--max-minutes",
        type=_positive_float,
        metavar="M",
        help="begin no epoch that would end after so many minutes of training",
    )
    training.add_argument(
        "--batch-tokens",
        type=_positive_int,
        default=4096,
        metavar="N",
        help="target tokens in a batch, padding included (%(default)s)",
    )
    training.add_argument(
        "--max-length",
        type=_positive_int,
        default=200,
        metavar="N",
        help="leave out longer pairs, in tokens (%(default)s)",
    )
    training.add_argument(
        "--warmup-steps",
        type=_positive_int,
        default=4000,
        metavar="N",
        help="steps to the largest learning rate (%(default)s)",
    )
    training.add_argument(
        "--learning-rate-scale",
        type=_positive_float,
        default=1.0,
        metavar="X",
        help="multiplies the paper's learning rate (%(default)s)",
    )
    training.add_argument(
        "--label-smoothing", type=_rate, default=0.1, metavar="E", help="(%(default)s)"
    )
    training.add_argument(
        "--strategy",
        choices=("none", "mirrored"),
        default="none",
        help="mirrored: all GPUs of the machine (%(default)s)",
    )
    training.add_argument(
        "--seed",
        type=int,
        default=0,
        metavar="N",
        help="of weights, order and dropout (%(default)s)",
    )
    training.add_argument("--quiet", action="store_true", help="no progress bar")


def _add_search(parser, default="beam") -> None:
    parser.add_argument(
        "--search", choices=("greedy", "beam"), help=f"({default}; an export has its own)"
    )
    parser.add_argument(
        "--beam-size", type=_positive_int, metavar="K", help="hypotheses of a beam search (4)"
    )
    parser.add_argument(
        "--length-penalty",
        type=_penalty,
        metavar="ALPHA",
        help="alpha of ((5 + n) / 6) ** alpha (0.6)",
    )


def _add_translate(parser) -> None:
    parser.add_argument("model", metavar="RUN_OR_EXPORT", help="what train or export wrote")
    _add_search(parser)


def _add_evaluate(parser) -> None:
    parser.add_argument("model", metavar="RUN_OR_EXPORT", help="what train or export wrote")
    parser.add_argument("--source", required=True, metavar="FILE", help="sentences to translate")
    parser.add_argument("--target", required=True, metavar="FILE", help="their references")
    parser.add_argument("--output", metavar="FILE", help="where to write the translations")
    _add_search(parser)


def _add_export(parser) -> None:
    parser.add_argument("run", metavar="RUN", help="what train wrote")
    parser.add_argument("directory", metavar="DIRECTORY", help="the next version is written here")
    _add_search(parser)


def _add_demo(parser) -> None:
    parser.add_argument(
        "--out", default="runs/demo", metavar="DIRECTORY", help="what the demo writes (%(default)s)"
    )
    parser.add_argument("--quiet", action="store_true", help="no progress bar")


_ADD_ARGUMENTS = {
    "demo": _add_demo,
    "train": _add_train,
    "translate": _add_translate,
    "evaluate": _add_evaluate,
    "export": _add_export,
}

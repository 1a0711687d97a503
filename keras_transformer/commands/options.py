"""The options of each command. Nothing here imports TensorFlow or Keras, so help is immediate."""

import argparse
import math
from typing import Any, NamedTuple

from keras_transformer.checks import check_local


def number_reader(kind, allowed: str, least, below=math.inf):
    """Makes a function that reads a number in [least, below), or says what is allowed."""

    def read(text):
        try:
            value = kind(text)
        except ValueError:
            value = math.nan
        if least <= value < below:
            return value
        raise argparse.ArgumentTypeError(f"must be {allowed}, but is {text}")

    return read


# Readers of the values of options, by metavar; every other value is text.
KINDS = {
    "N": number_reader(int, "an integer of at least 1", 1),
    "SEED": number_reader(int, "an integer in [0, 2**32)", 0, 2**32),
    "X": number_reader(float, "a positive number", math.ulp(0.0)),
    "SHARE": number_reader(float, "a number in [0, 1)", 0, 1),
    # The strategy or the model knows the largest.
    "WEIGHT": number_reader(float, "a number of at least 0", 0),
}
# The metavars of paths.
PATHS = {"FILE", "RUN", "RUN_OR_EXPORT", "DIRECTORY", "OUT"}
COMMANDS = {
    "demo": "train on generated sentences, export, and translate with the export",
    "train": "train a translator from parallel text",
    "translate": "translate standard input to standard output, line by line",
    "evaluate": "score translations of a file against references",
    "inspect": "show what a model does with a sentence: attention, search, masks",
    "average": "average the weights of several epochs of a run",
    "export": "write a SavedModel for TensorFlow Serving",
}


class Option(NamedTuple):
    """An option, or an argument if its name has no dashes. The help shows its default."""

    name: str
    help: str
    values: str | tuple[str, ...] | None = None  # a metavar, the choices, or None for a flag
    default: Any = None
    required: bool = False

    @property
    def key(self) -> str:
        """Its name in what the parser returns."""
        return self.name.removeprefix("--").replace("-", "_")

    def add_to(self, parser) -> None:
        settings = {"default": argparse.SUPPRESS, "help": self.help}
        if self.values is None:
            parser.add_argument(self.name, action="store_true", **settings)
            return
        if self.default is not None:
            settings["help"] += f" ({self.default})"
        is_choice = isinstance(self.values, tuple)
        settings["choices" if is_choice else "metavar"] = self.values
        settings["type"] = str if is_choice else KINDS.get(self.values, str)
        if self.name.startswith("-"):
            settings["required"] = self.required
        parser.add_argument(self.name, **settings)


class Parser(argparse.ArgumentParser):
    """A parser of commands. `typed` in what it returns holds the options that were typed."""

    def parse_args(self, args=None, namespace=None):
        options = super().parse_args(args, namespace)
        known = [option for option in OPTIONS[options.command] if isinstance(option, Option)]
        options.typed = frozenset(option.key for option in known if hasattr(options, option.key))
        for option in known:
            if option.key not in options.typed:
                is_flag = option.values is None
                setattr(options, option.key, False if is_flag else option.default)
        return options


def check_paths(options) -> None:
    """Raises a ValueError if an address such as gs://bucket/run was given for a path."""
    for option in OPTIONS[options.command]:
        is_path = isinstance(option, Option) and option.values in PATHS
        if is_path and (path := getattr(options, option.key)) is not None:
            check_local(option.name, path)


QUIET = Option("--quiet", "no progress bar")
BLEU_TOKENIZE = Option(
    "--bleu-tokenize",
    "sacreBLEU's tokenizer; none for text that is tokenized already",
    ("13a", "intl", "char", "zh", "ja-mecab", "ko-mecab", "none"),
    "13a",
)
TEXT = (
    "text (UTF-8, one sentence per line, .gz by suffix)",
    Option("--source", "sentences to translate", "FILE"),
    Option("--target", "their translations, line by line", "FILE"),
    Option("--tsv", "source, tab, target on each line", "FILE"),
    Option("--tfds", "a data set of tensorflow-datasets", "NAME"),
    Option("--synthetic", "generated pairs, English to German"),
    Option("--num-pairs", "number of generated pairs", "N", 40_000),
    Option("--valid-source", "sentences to validate on", "FILE"),
    Option("--valid-target", "their translations", "FILE"),
    Option("--errors", "at invalid UTF-8: stop, or skip the pair", ("strict", "skip"), "strict"),
)
MODEL = (
    "model",
    Option("--preset", "its size", ("tiny", "small", "base", "big"), "tiny"),
    Option("--vocab-size", "subwords of the shared vocabulary", "N", 8000),
    Option("--dropout", "its rate; the preset's by default", "SHARE"),
)
TRAINING = (
    "training",
    Option("--out", "directory to write", "RUN", required=True),
    Option("--force", "replace the run in RUN: train from the start"),
    Option("--resume", "continue the run in RUN, if there is one, with its options"),
    Option("--epochs", "passes over the text", "N", 20),
    Option("--max-minutes", "begin no epoch that would end after X minutes", "X"),
    Option("--early-stopping", "stop after N epochs without a better BLEU", "N"),
    Option("--batch-tokens", "target positions in a batch", "N", 4096),
    Option("--micro-batches", "split each batch into N parts, to save memory", "N", 1),
    Option("--max-length", "leave out pairs with more tokens", "N", 200),
    Option(
        "--precision",
        "of products and activations; auto: bfloat16 if it is at least 1.1 times as fast here",
        ("auto", "float32", "bfloat16", "float16"),
        "auto",
    ),
    Option("--strategy", "mirrored: all GPUs of the machine", ("none", "mirrored"), "none"),
    Option("--seed", "of weights, order and dropout", "SEED", 0),
)
OPTIMIZATION = (
    "optimization and regularization",
    Option("--warmup-steps", "steps to the largest learning rate", "N", 4000),
    Option("--learning-rate-scale", "factor of the paper's learning rate", "X", 1.0),
    Option("--cooldown", "last share of the steps, in which the rate falls to 0", "SHARE", 0.0),
    Option("--clip-norm", "largest norm of the gradient", "X"),
    Option("--label-smoothing", "probability spread over the vocabulary", "SHARE", 0.1),
    Option("--bpe-dropout", "split words at random; 0.1 is usual", "SHARE", 0.0),
    Option("--r-drop", "weight of R-Drop; 5 is usual", "WEIGHT", 0.0),
    Option("--r-drop-delay", "leave R-Drop out of the first N epochs", "N"),
    Option("--ema", "validate and keep a moving average of the weights", "SHARE"),
)
KEPT = (
    "what is kept and shown",
    Option("--keep", "keep the weights of the last N epochs and of the best N", "N", 10),
    Option("--average", "at the end, keep the mean of the last N epochs", "N"),
    BLEU_TOKENIZE,
    Option("--plots", "draw attention, the search and masks of a sentence after every epoch"),
    Option("--profile", "profile steps 10 to 15"),
    QUIET,
)
SEARCH = (
    Option("--search", "beam by default; an export has its own", ("greedy", "beam")),
    Option("--beam-size", "hypotheses of a beam search (4)", "N"),
    Option("--length-penalty", "divide scores by ((5 + tokens) / 6) ** WEIGHT (0.6)", "WEIGHT"),
    Option("--coverage-penalty", "of a beam, for source tokens without attention (0)", "WEIGHT"),
    Option("--min-length", "fewest tokens of a translation", "N"),
    Option("--no-repeat-ngram", "forbid N tokens in a row that occur twice", "N"),
    Option("--max-source-length", "most tokens read of a line, its end included (256)", "N"),
    Option("--max-length", "most tokens of a translation (256)", "N"),
)
RUN = Option("run", "what train wrote", "RUN")
RUN_OR_EXPORT = Option("model", "what train or export wrote", "RUN_OR_EXPORT")
# The options of each command; a string is the heading of the options after it.
OPTIONS = {
    "demo": (Option("--out", "what to write", "DIRECTORY", "runs/demo"), QUIET),
    "train": (*TEXT, *MODEL, *TRAINING, *OPTIMIZATION, *KEPT),
    "translate": (RUN_OR_EXPORT, *SEARCH),
    "evaluate": (
        RUN_OR_EXPORT,
        Option("--source", "sentences to translate", "FILE", required=True),
        Option("--target", "their references", "FILE", required=True),
        Option("--output", "where to write the translations", "FILE"),
        BLEU_TOKENIZE,
        *SEARCH,
    ),
    "inspect": (
        RUN,
        Option("sentence", "in one argument: quote it", "SENTENCE"),
        Option("--out", "page to write", "FILE", "inspect.html"),
        Option("--word", "the piece to look at on its own", "WORD"),
        *SEARCH,
    ),
    "average": (RUN, Option("out", "directory of the new run", "OUT")),
    "export": (
        RUN,
        Option("directory", "where to write the next version", "DIRECTORY"),
        *SEARCH,
        Option(
            "--format", "ctranslate2 needs its extra", ("savedmodel", "ctranslate2"), "savedmodel"
        ),
        Option(
            "--precision",
            "of a SavedModel's attention and feed-forward networks (float32)",
            ("float32", "bfloat16"),
        ),
        Option("--warmup", "texts, one per line, for a server's warm-up requests", "FILE"),
        Option("--quantization", "of ctranslate2: int8, bfloat16, ... (none)", "TYPE"),
        Option("--overwrite", "replace what is there"),
    ),
}


def build_parser() -> argparse.ArgumentParser:
    """Builds the parser of the whole command line."""
    parser = Parser(
        prog="keras-transformer", description="Transformers for Keras 3: from text to a server."
    )
    subparsers = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    for name, help_text in COMMANDS.items():
        subparser = subparsers.add_parser(name, help=help_text, description=f"{help_text}.")
        group = subparser
        for option in OPTIONS[name]:
            if isinstance(option, str):
                group = subparser.add_argument_group(option)
            else:
                option.add_to(group)
        if name == "average":
            which = subparser.add_mutually_exclusive_group(required=True)
            Option("--last", "the last N epochs", "N").add_to(which)
            Option("--best", "the N best by BLEU", "N").add_to(which)
            subparser.set_defaults(last=None, best=None)
        if name == "export":
            subparser.add_argument(
                "--signatures",
                nargs="*",
                metavar="NAME",
                help="besides serving_default: greedy, beam, nbest, translate, score, align (all)",
            )
        subparser.add_argument("--debug", action="store_true", help="show tracebacks")
        subparser.add_argument("--verbose", action="store_true", help="show TensorFlow's log")
    return parser

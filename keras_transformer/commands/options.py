"""What each command takes. Nothing here imports TensorFlow or Keras, so that help is immediate."""

import argparse

from keras_transformer.commands.values import penalty, positive_float, positive_int, seed, share

COMMANDS = {
    "demo": "train on generated sentences, export, and translate with the export",
    "train": "train a translator from parallel text",
    "translate": "translate standard input to standard output, line by line",
    "evaluate": "score translations of a file against references",
    "inspect": "show what a model does with a sentence: attention, search, masks",
    "average": "average the weights of several epochs of a run",
    "export": "write a SavedModel for TensorFlow Serving",
}


def build_parser() -> argparse.ArgumentParser:
    """The parser of the whole command line."""
    parser = argparse.ArgumentParser(
        prog="keras-transformer", description="Transformers for Keras 3: from text to a server."
    )
    subparsers = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    for name, help_text in COMMANDS.items():
        subparser = subparsers.add_parser(name, help=help_text, description=f"{help_text}.")
        _ADD_OPTIONS[name](subparser)
        subparser.add_argument("--debug", action="store_true", help="show tracebacks")
        subparser.add_argument("--verbose", action="store_true", help="show TensorFlow's log")
    return parser


def _number(group, name, kind, metavar, default, help_text) -> None:
    """An option of one number, its default shown in the help."""
    help_text = f"{help_text} (%(default)s)"
    group.add_argument(name, type=kind, metavar=metavar, default=default, help=help_text)


def _add_train(parser) -> None:
    _add_text(parser.add_argument_group("text (UTF-8, one sentence a line, .gz by suffix)"))
    _add_model(parser.add_argument_group("model"))
    _add_training(parser.add_argument_group("training"))
    _add_regularization(parser.add_argument_group("optimization and regularization"))
    _add_keeping(parser.add_argument_group("what is kept and shown"))


def _add_text(group) -> None:
    group.add_argument("--source", metavar="FILE", help="sentences to translate")
    group.add_argument("--target", metavar="FILE", help="their translations, line by line")
    group.add_argument("--tsv", metavar="FILE", help="source, tab, target on each line")
    group.add_argument("--tfds", metavar="NAME", help="a set of tensorflow-datasets")
    group.add_argument("--synthetic", action="store_true", help="generated, English to German")
    _number(group, "--num-pairs", positive_int, "N", 40_000, "number of generated pairs")
    group.add_argument("--valid-source", metavar="FILE", help="sentences to validate on")
    group.add_argument("--valid-target", metavar="FILE", help="their translations")
    group.add_argument(
        "--errors",
        choices=("strict", "skip"),
        default="strict",
        help="at invalid UTF-8: stop, or skip the pair (%(default)s)",
    )


def _add_model(group) -> None:
    group.add_argument(
        "--preset",
        choices=("tiny", "small", "base", "big"),
        default="tiny",
        help="its size (%(default)s)",
    )
    _number(group, "--vocab-size", positive_int, "N", 8000, "subwords of the shared vocabulary")
    group.add_argument("--dropout", type=share, metavar="RATE", help="the preset's by default")


def _add_training(group) -> None:
    group.add_argument("--out", required=True, metavar="RUN", help="directory to write")
    group.add_argument("--force", action="store_true", help="train a run in RUN anew")
    group.add_argument(
        "--resume",
        action="store_true",
        help="go on where the run in RUN has stopped, if it has begun; give the same options",
    )
    _number(group, "--epochs", positive_int, "N", 20, "passes over the text")
    group.add_argument(
        "--max-minutes",
        type=positive_float,
        metavar="M",
        help="begin no epoch that would end after so many minutes of training",
    )
    group.add_argument(
        "--early-stopping",
        type=positive_int,
        metavar="N",
        help="stop after so many epochs without a better BLEU",
    )
    _number(group, "--batch-tokens", positive_int, "N", 4096, "target positions in a batch")
    _number(group, "--micro-batches", positive_int, "K", 1, "parts of a batch, for less memory")
    _number(group, "--max-length", positive_int, "N", 200, "leave out pairs of more tokens")
    group.add_argument(
        "--precision",
        choices=("auto", "float32", "bfloat16", "float16"),
        default="auto",
        help="of products and activations; auto: bfloat16 where the machine is faster in it",
    )
    group.add_argument(
        "--strategy",
        choices=("none", "mirrored"),
        default="none",
        help="mirrored: all GPUs of the machine (%(default)s)",
    )
    _number(group, "--seed", seed, "N", 0, "of weights, order and dropout")


def _add_regularization(group) -> None:
    _number(group, "--warmup-steps", positive_int, "N", 4000, "steps to the largest learning rate")
    _number(group, "--learning-rate-scale", positive_float, "X", 1.0, "times the paper's rate")
    _number(
        group,
        "--cooldown",
        share,
        "SHARE",
        0.0,
        "last share of the steps: the rate falls to 0",
    )
    group.add_argument(
        "--clip-norm", type=positive_float, metavar="C", help="largest norm of the gradient"
    )
    _number(group, "--label-smoothing", share, "E", 0.1, "probability spread over the vocabulary")
    _number(group, "--bpe-dropout", share, "RATE", 0.0, "split words at random; 0.1 is usual")
    _number(group, "--r-drop", penalty, "ALPHA", 0.0, "weight of R-Drop; 5 is usual")
    group.add_argument(
        "--r-drop-delay",
        type=positive_int,
        metavar="N",
        help="leave R-Drop out of the first N epochs",
    )
    group.add_argument(
        "--ema", type=share, metavar="DECAY", help="judge and keep a moving average of the weights"
    )


def _add_keeping(group) -> None:
    _number(group, "--keep", positive_int, "N", 10, "last and best epochs whose weights are kept")
    group.add_argument(
        "--average",
        type=positive_int,
        metavar="N",
        help="at the end, keep the mean of the last N epochs instead of the best one",
    )
    _add_bleu_tokenize(group)
    group.add_argument(
        "--plots",
        action="store_true",
        help="draw attention, beam search and masks of a validation sentence after every epoch",
    )
    group.add_argument("--profile", action="store_true", help="profile steps 10 to 15")
    group.add_argument("--quiet", action="store_true", help="no progress bar")


def _add_bleu_tokenize(group) -> None:
    group.add_argument(
        "--bleu-tokenize",
        choices=("13a", "intl", "char", "zh", "ja-mecab", "ko-mecab", "none"),
        default="13a",
        help="sacreBLEU's tokenizer; none for text that is tokenized already (%(default)s)",
    )


def _add_search(parser) -> None:
    parser.add_argument(
        "--search", choices=("greedy", "beam"), help="beam by default; an export has its own"
    )
    parser.add_argument(
        "--beam-size", type=positive_int, metavar="K", help="hypotheses of a beam search (4)"
    )
    parser.add_argument(
        "--length-penalty",
        type=penalty,
        metavar="ALPHA",
        help="alpha of ((5 + n) / 6) ** alpha (0.6)",
    )
    parser.add_argument(
        "--coverage-penalty", type=penalty, metavar="BETA", help="of a beam search (0)"
    )
    parser.add_argument(
        "--min-length", type=positive_int, metavar="N", help="fewest tokens of a translation"
    )
    parser.add_argument(
        "--no-repeat-ngram", type=positive_int, metavar="N", help="no N tokens in a row twice"
    )
    parser.add_argument(
        "--max-source-length",
        type=positive_int,
        metavar="N",
        help="read no more tokens of a line, its end included (256)",
    )
    parser.add_argument(
        "--max-length", type=positive_int, metavar="N", help="write no more tokens (256)"
    )


def _add_translate(parser) -> None:
    parser.add_argument("model", metavar="RUN_OR_EXPORT", help="what train or export wrote")
    _add_search(parser)


def _add_evaluate(parser) -> None:
    parser.add_argument("model", metavar="RUN_OR_EXPORT", help="what train or export wrote")
    parser.add_argument("--source", required=True, metavar="FILE", help="sentences to translate")
    parser.add_argument("--target", required=True, metavar="FILE", help="their references")
    parser.add_argument("--output", metavar="FILE", help="where to write the translations")
    _add_bleu_tokenize(parser)
    _add_search(parser)


def _add_inspect(parser) -> None:
    parser.add_argument("run", metavar="RUN", help="what train wrote")
    parser.add_argument("sentence", metavar="SENTENCE", help="in one argument: quote it")
    parser.add_argument(
        "--out", default="inspect.html", metavar="FILE", help="page to write (%(default)s)"
    )
    parser.add_argument("--word", metavar="WORD", help="the piece to look at on its own")
    _add_search(parser)


def _add_average(parser) -> None:
    parser.add_argument("run", metavar="RUN", help="what train wrote")
    parser.add_argument("out", metavar="OUT", help="directory of the new run")
    which = parser.add_mutually_exclusive_group(required=True)
    which.add_argument("--last", type=positive_int, metavar="N", help="the last N epochs")
    which.add_argument("--best", type=positive_int, metavar="N", help="the N best by BLEU")


def _add_export(parser) -> None:
    parser.add_argument("run", metavar="RUN", help="what train wrote")
    parser.add_argument("directory", metavar="DIRECTORY", help="the next version is written here")
    _add_search(parser)
    parser.add_argument(
        "--format",
        choices=("savedmodel", "ctranslate2"),
        default="savedmodel",
        help="ctranslate2 needs the extra of that name (%(default)s)",
    )
    parser.add_argument(
        "--precision",
        choices=("float32", "bfloat16"),
        help="of a SavedModel's attention and feed-forward networks (float32)",
    )
    parser.add_argument(
        "--signatures",
        nargs="*",
        metavar="NAME",
        help="beside serving_default: greedy, beam, nbest, translate, score, align (all of them)",
    )
    parser.add_argument(
        "--warmup", metavar="FILE", help="texts, one a line, for a server's warm-up requests"
    )
    parser.add_argument(
        "--quantization", metavar="TYPE", help="of ctranslate2: int8, bfloat16, ... (none)"
    )
    parser.add_argument("--overwrite", action="store_true", help="replace what is there")


def _add_demo(parser) -> None:
    parser.add_argument(
        "--out", default="runs/demo", metavar="DIRECTORY", help="what to write (%(default)s)"
    )
    parser.add_argument("--quiet", action="store_true", help="no progress bar")


_ADD_OPTIONS = {
    "demo": _add_demo,
    "train": _add_train,
    "translate": _add_translate,
    "evaluate": _add_evaluate,
    "inspect": _add_inspect,
    "average": _add_average,
    "export": _add_export,
}

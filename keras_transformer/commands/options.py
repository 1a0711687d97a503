"""The options of each command. Nothing here imports TensorFlow or Keras, so help is immediate."""

from typing import Any, NamedTuple

from keras_transformer.commands.values import KINDS, choice_reader

COMMANDS = {
    "demo": "train on generated sentences, export, and translate with the export",
    "train": "train a translator from parallel text",
    "tokenizer": "learn a vocabulary of subwords from text",
    "prepare": "split parallel text of any size into subwords, once for all trainings",
    "translate": "translate a file or standard input, line by line",
    "pipeline": "translate files with Apache Beam, on this machine or a cluster",
    "distil": "write what teachers translate, the text to train a fast student on",
    "score": "print how probable given translations are",
    "evaluate": "score translations of a file against references",
    "show": "show what made a run or an export, or compare several",
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
    many: str | None = None  # "+" or "*", if it takes several values

    @property
    def key(self) -> str:
        """Its name in what the parser returns."""
        return self.name.removeprefix("--").replace("-", "_")

    @property
    def reader(self):
        """The function that reads a value."""
        if isinstance(self.values, tuple):
            return choice_reader(self.values)
        return KINDS.get(self.values, str)


QUIET = Option("--quiet", "no progress bar")
BLEU_TOKENIZE = Option(
    "--bleu-tokenize",
    "sacreBLEU's tokenizer; none for text that is tokenized already",
    ("13a", "intl", "char", "zh", "ja-mecab", "ko-mecab", "none"),
    "13a",
)
PAIRS = (
    "text (UTF-8, one sentence per line, .gz by suffix)",
    Option("--source", "sentences to translate; several files follow each other", "FILE", many="+"),
    Option("--target", "their translations, file by file, line by line", "FILE", many="+"),
    Option("--tsv", "source, tab, target on each line", "FILE", many="+"),
)
ERRORS = Option(
    "--errors", "at invalid UTF-8: stop, or skip the pair", ("strict", "skip"), "strict"
)
BY_SIZE = "; by the size of the text"
TOKENIZER_LINES = Option(
    "--tokenizer-lines", "learn the vocabulary from N lines, drawn by --seed", "N", 1_000_000
)
TEXT = (
    *PAIRS,
    Option("--store", "what prepare has written, with its vocabulary", "STORE"),
    Option("--tfds", "a data set of tensorflow-datasets", "NAME"),
    Option("--synthetic", "generated pairs, English to German"),
    Option("--num-pairs", "number of generated pairs", "N", 40_000),
    Option("--valid-source", "sentences to validate on", "FILE", many="+"),
    Option("--valid-target", "their translations", "FILE", many="+"),
    Option("--valid-tsv", "source, tab, target to validate on", "FILE", many="+"),
    Option("--valid-split", "validate on N pairs of the text, drawn by --seed", "N"),
    ERRORS,
)
MODEL = (
    "model",
    Option("--preset", "its size", ("tiny", "small", "base", "big"), "tiny"),
    Option("--tokenizer", "take this one, and learn none; see the command tokenizer", "FILE"),
    Option("--vocab-size", f"subwords of the shared vocabulary{BY_SIZE}", "N"),
    TOKENIZER_LINES,
    Option("--encoder-layers", "layers of the encoder (the preset's)", "N"),
    Option("--decoder-layers", "layers of the decoder (the preset's)", "N"),
    Option("--d-model", "width of the model (the preset's)", "N"),
    Option("--num-heads", "heads of each attention (the preset's)", "N"),
    Option("--d-ff", "width of the feed-forward networks (the preset's)", "N"),
    Option("--dropout", f"of sub-layers and embeddings{BY_SIZE}", "SHARE"),
    Option("--attention-dropout", "of the attention scores (0)", "SHARE"),
    Option("--norm", "of layers (layer_norm)", ("layer_norm", "rms_norm")),
    Option("--norm-first", f"normalize before each sub-layer{BY_SIZE}"),
    Option("--norm-last", f"normalize after each sub-layer, as the paper does{BY_SIZE}"),
    Option(
        "--activation",
        "of the feed-forward networks; those in *glu are gated (relu)",
        ("relu", "gelu", "silu", "reglu", "geglu", "swiglu"),
    ),
    Option("--position", "how positions are told (sinusoidal)", ("sinusoidal", "rotary")),
    Option(
        "--tie",
        "which embeddings are one matrix (all)",
        ("all", "source_target", "target_output", "none"),
    ),
)
TRAINING = (
    "training",
    Option("--out", "directory to write", "OUT", required=True),
    Option("--force", "replace the run in OUT: train from the start"),
    Option("--resume", "continue the run in OUT, if there is one, with its options"),
    Option("--epochs", f"passes over the text{BY_SIZE}", "N"),
    Option("--max-steps", "instead of --epochs: end after N steps", "N"),
    Option("--valid-steps", "validate and keep every N steps, as if these were an epoch", "N"),
    Option(
        "--max-minutes",
        "begin no epoch that would end after X minutes; without --epochs, train as many as fit",
        "X",
    ),
    Option(
        "--early-stopping",
        f"stop after N epochs without a better score, 0 for never{BY_SIZE}",
        "N_OR_0",
    ),
    Option("--batch-tokens", f"target positions in a batch{BY_SIZE}", "N"),
    Option("--num-buckets", "shapes of batches; fewer mix more lengths, and pad more", "N", 16),
    Option("--micro-batches", "split each batch into N parts, to save memory", "N", 1),
    Option("--max-length", "leave out pairs with more tokens", "N", 200),
    Option(
        "--precision",
        "of products and activations; auto: bfloat16 if it is at least 1.1 times as fast here",
        ("auto", "float32", "bfloat16", "float16"),
        "auto",
    ),
    Option(
        "--strategy",
        "mirrored: all GPUs of the machine; multi_worker: the processes that TF_CONFIG names; on "
        "JAX data_parallel: all devices, model_parallel=K: each model on K of them",
        "STRATEGY",
        "none",
    ),
    Option("--seed", "of weights, order and dropout", "SEED", 0),
)
OPTIMIZATION = (
    "optimization and regularization",
    Option("--warmup-steps", f"steps to the largest learning rate{BY_SIZE}", "N"),
    Option("--learning-rate-scale", f"factor of the paper's learning rate{BY_SIZE}", "X"),
    Option(
        "--cooldown", f"last share of the steps, in which the rate falls to 0{BY_SIZE}", "SHARE"
    ),
    Option("--clip-norm", "largest norm of the gradient", "X"),
    Option("--label-smoothing", "probability spread over the vocabulary", "SHARE", 0.1),
    Option("--bpe-dropout", "split words at random; 0.1 is usual", "SHARE", 0.0),
    Option("--r-drop", "weight of R-Drop; 5 is usual", "WEIGHT", 0.0),
    Option("--r-drop-delay", "leave R-Drop out of the first N epochs", "N"),
    Option("--ema", "keep a moving average of the weights, and score that", "SHARE"),
)
KEPT = (
    "what is kept and shown",
    Option(
        "--keep",
        "keep the weights of the last N epochs and of the best N (10; of large models fewer)",
        "N",
    ),
    Option("--save-minutes", "within an epoch, save a state every X minutes", "X", 10.0),
    Option("--metric", "tells the best epoch, for --early-stopping, too", ("bleu", "chrf"), "bleu"),
    Option(
        "--average",
        f"at the end, keep the mean of the last N epochs, 0 for none{BY_SIZE}",
        "N_OR_0",
    ),
    BLEU_TOKENIZE,
    Option("--plots", "draw attention, the search and masks of a sentence after every epoch"),
    Option("--profile", "profile steps 10 to 15"),
    QUIET,
)
LIMITS = (
    Option("--max-source-length", "most tokens read of a line, its end included (256)", "N"),
    Option("--max-length", "most tokens of a translation (256)", "N"),
)
SEARCH = (
    Option("--search", "beam by default; an export has its own", ("greedy", "beam")),
    Option("--beam-size", "hypotheses of a beam search (4)", "N"),
    Option("--length-penalty", "divide scores by ((5 + tokens) / 6) ** EXPONENT (0.6)", "EXPONENT"),
    Option("--coverage-penalty", "of a beam, for source tokens without attention (0)", "PENALTY"),
    Option("--min-length", "fewest tokens of a translation", "N"),
    Option("--no-repeat-ngram", "forbid N tokens in a row that occur twice", "N"),
    *LIMITS,
)
SAMPLING = (
    Option("--sample", "draw every token at random, instead of a search"),
    Option("--temperature", "of --sample: below 1 the likely are likelier (1)", "X"),
    Option("--top-k", "of --sample: draw among the N likeliest tokens", "N"),
    Option("--top-p", "of --sample: draw among the likeliest that have this share", "X"),
    Option("--seed", "of --sample (0)", "SEED"),
)
CTRANSLATE2_TYPES = ("int8", "int8_float32", "int8_float16", "int8_bfloat16")
CTRANSLATE2_TYPES += ("int16", "float16", "bfloat16", "float32")
BATCH_SIZE = Option("--batch-size", "sentences at a time on each core (128)", "N")
JSON = Option("--json", "write a JSON object for each line")
LAST = Option("--last", "the last N epochs", "N")
BEST = Option("--best", "the N best by the run's --metric", "N")
RUN = Option("run", "what train wrote", "RUN")
RUN_OR_EXPORT = Option("model", "what train or export wrote", "RUN_OR_EXPORT")
# The options of each command; a string is the heading of the options after it.
OPTIONS = {
    "demo": (Option("--out", "what to write", "DIRECTORY", "runs/demo"), QUIET),
    "train": (*TEXT, *MODEL, *TRAINING, *OPTIMIZATION, *KEPT),
    "tokenizer": (
        Option("--text", "text of all languages, one sentence per line", "FILE", None, True, "+"),
        Option("--out", "file to write, for train --tokenizer", "OUT_FILE", None, True),
        Option("--vocab-size", "number of subwords", "N", 8000),
        Option("--coverage", "share of the text's characters that are subwords", "PART", 0.9995),
        Option("--symbols", "words that stay whole, such as <en>", "WORD", many="+"),
        TOKENIZER_LINES,
        Option("--seed", "of the lines that are drawn", "SEED", 0),
        QUIET,
    ),
    "prepare": (
        *PAIRS,
        ERRORS,
        "vocabulary",
        Option("--tokenizer", "take this one, and learn none; see the command tokenizer", "FILE"),
        Option("--vocab-size", f"subwords of the shared vocabulary{BY_SIZE}", "N"),
        TOKENIZER_LINES,
        Option("--seed", "of the lines that are drawn", "SEED", 0),
        "work",
        Option("--out", "directory to write; a stopped command goes on there", "OUT", None, True),
        Option("--force", "replace a store of other text, or with other options"),
        Option("--processes", "processes that split the text (one on each core)", "N"),
        Option("--shard", "only part I of N of the lines, as a job of its own", "I/N"),
        Option("--join", "make the store of its shards in OUT"),
        QUIET,
    ),
    "translate": (
        RUN_OR_EXPORT,
        "input and output",
        Option("--input", "sentences, one per line; standard input by default", "FILE"),
        Option(
            "--output",
            "what to write, standard output by default; with --input, a stopped command goes on "
            "where it was",
            "OUT_FILE",
        ),
        Option("--prefix-file", "what each translation begins with, one per line", "FILE"),
        Option("--shard", "translate part I of N only; cat the outputs in order", "I/N"),
        Option("--nbest", "write the N best translations of each line", "N"),
        Option("--scores", "add log-probability over length penalty, after |||"),
        Option("--alignments", "add which words come from which, as 0-0 1-2, after |||"),
        JSON,
        BATCH_SIZE,
        QUIET,
        "search",
        *SEARCH,
        *SAMPLING,
    ),
    "pipeline": (
        Option("model", "what train or export wrote, on each worker", "MODEL"),
        Option("--input", "files, one sentence per line, such as 'in/*.gz'", "PATTERN", None, True),
        Option("--output", "file to write, with the lines of all files", "OUTPUT", None, True),
        Option("--scores", "add log-probability over length penalty, after |||"),
        JSON,
        Option("--batch-size", "sentences at a time (128)", "N"),
        Option("--threads", "batches at a time in each process", "N", 1),
        QUIET,
    ),
    "distil": (
        Option("model", "what train wrote; several are an ensemble", "RUN", many="+"),
        "text",
        Option("--source", "the training text's sentences, one per line", "FILE", required=True),
        Option("--target", "their translations by people, line by line", "FILE"),
        Option(
            "--out",
            "what to write, the student's --target; a stopped command goes on where it was",
            "OUT_FILE",
            required=True,
        ),
        Option("--nbest", "of the N best, take the one that is nearest to --target", "N"),
        Option("--by", "what is near, for --nbest (chrf)", ("chrf", "bleu")),
        Option("--shard", "translate part I of N only; cat the outputs in order", "I/N"),
        BATCH_SIZE,
        QUIET,
        "search",
        *SEARCH,
    ),
    "score": (
        RUN_OR_EXPORT,
        Option("--source", "sentences", "FILE", required=True),
        Option("--target", "their translations, line by line", "FILE", required=True),
        Option(
            "--output",
            "where to write a line for each pair; standard output by default",
            "OUT_FILE",
        ),
        JSON,
        BATCH_SIZE,
        QUIET,
        *LIMITS,
    ),
    "evaluate": (
        RUN_OR_EXPORT,
        Option("--source", "sentences to translate", "FILE", required=True),
        Option("--target", "their references", "FILE", required=True),
        Option("--output", "where to write the translations", "OUT_FILE"),
        BLEU_TOKENIZE._replace(help=f"{BLEU_TOKENIZE.help} (the run's, or 13a)", default=None),
        BATCH_SIZE,
        QUIET,
        *SEARCH,
        *SAMPLING,
    ),
    "show": (
        Option("models", f"{RUN_OR_EXPORT.help}; several are compared", "MODEL", many="+"),
        Option("--json", "the whole card, for a program"),
    ),
    "inspect": (
        RUN,
        Option("sentence", "to translate; not needed with --serve", "SENTENCE", many="*"),
        Option("--serve", "a page on this machine, where you type other sentences"),
        Option("--port", "of --serve", "N", 8765),
        Option("--out", "page to write", "OUT_FILE", "inspect.html"),
        Option("--word", "the piece to look at on its own", "WORD"),
        *SEARCH,
    ),
    "average": (RUN, Option("out", "directory of the new run", "OUT"), LAST, BEST),
    "export": (
        RUN,
        Option("directory", "where to write the next version", "DIRECTORY"),
        *SEARCH,
        *SAMPLING,
        Option(
            "--format", "ctranslate2 needs its extra", ("savedmodel", "ctranslate2"), "savedmodel"
        ),
        Option(
            "--precision",
            "of a SavedModel's products; auto: the fastest here (float32)",
            ("float32", "bfloat16", "int8", "auto"),
        ),
        Option("--warmup", "texts, one per line, for a server's warm-up requests", "FILE"),
        Option("--quantization", "of ctranslate2 (none)", CTRANSLATE2_TYPES),
        Option(
            "--signatures",
            "besides serving_default: greedy, beam, nbest, translate, score, align (all)",
            "NAME",
            many="*",
        ),
        Option("--overwrite", "replace what is there"),
    ),
}
# Give exactly one of these options to the command.
ONE_OF = {"average": (LAST, BEST)}
# What these commands take after `--` is for others; it is in `rest`.
TAKE_REST = {"pipeline": "OPTION_OF_BEAM"}
# The options of every command.
GENERAL = (
    Option("--debug", "show tracebacks"),
    Option("--verbose", "show TensorFlow's log"),
)


def given_options(options, names) -> dict:
    """Returns the values of those of the named options that have one; 0 is a value."""
    values = {name: getattr(options, name, None) for name in names}
    return {
        name: value for name, value in values.items() if value is not None and value is not False
    }


def dashed(names) -> str:
    """Returns the names of options as they are typed, such as `--beam-size`."""
    return ", ".join(f"--{name.replace('_', '-')}" for name in names)

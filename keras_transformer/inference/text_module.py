"""What `Translator` and `TextGenerator` have in common: checks of their parts, and the export."""

from collections.abc import Sequence
from dataclasses import replace

from keras_transformer.backend import check_tensorflow
from keras_transformer.checks import check_has, check_ints, check_tokenizer
from keras_transformer.models.ensemble import SEARCH_METHODS
from keras_transformer.type_hints import StrPath

# A vocabulary may have fewer ids than this more than the tokenizer, to be a multiple of 64 or 128.
VOCABULARY_PADDING = 128
# A translation may have this many tokens for each source token, plus some: far above any real
# sentence, far below what a model that repeats itself would fill.
TOKENS_PER_SOURCE_TOKEN, EXTRA_TOKENS = 3, 20
# The least value of each field of a graph that is an integer. A source has an end token; with room
# for that alone every text would be blank.
LEAST = {"max_source_length": 2, "max_length": 1, "batch_size": 1, "num_parallel_batches": 1}


class TextModule:
    """A graph from texts to texts, to be called from Python and exported.

    Args:
        graph: a `TranslationGraph` or a `GenerationGraph`.
        kind, sizes: as in `check_fit`.

    Raises:
        ValueError: if a number of the graph is out of range, or tokenizer and model do not fit.
        TypeError: if model or tokenizer is something else.
    """

    def __init__(self, graph, kind: str, sizes: tuple[str, ...]):
        check_fit(type(self).__name__, kind, graph.model, sizes, graph.tokenizer)
        numbers = {name: getattr(graph, name) for name in LEAST if hasattr(graph, name)}
        self.graph = graph = replace(graph, **check_ints(numbers, LEAST))
        if graph.strategy.min_length > graph.max_length:
            raise ValueError(
                f"min_length must be at most max_length={graph.max_length}, but is "
                f"{graph.strategy.min_length}."
            )
        self.model = graph.model
        self.tokenizer = graph.tokenizer
        self.strategy = graph.strategy
        self.run_card = None  # `load_translator` and `load_generator` know the run

    def export(
        self,
        directory: StrPath,
        *,
        precision: str = "float32",
        signatures: Sequence[str] | None = None,
        overwrite: bool = False,
        warmup: Sequence[str] | None = None,
    ) -> str:
        """Writes `directory/<version>/`, a SavedModel for TensorFlow Serving.

        `TranslationGraph` and `GenerationGraph` list the signatures. The export is loaded and
        tested before it appears in `directory`. It carries a card of its settings and of its run,
        which `keras-transformer show` prints, and a README for you to complete.

        Args:
            directory: the model's directory; versions count up from 1. If its name is a number,
                it is the version itself.
            precision: "float32"; "bfloat16", for attention and feed-forward networks; "int8", for
                weights and embeddings, where its products are faster; "auto" for the fastest of
                these on this machine.
            signatures: names of those that it has beside `serving_default`; all by default. With
                fewer it is smaller and loads faster.
            overwrite: whether a version that exists is replaced.
            warmup: texts for warm-up requests, which TensorFlow Serving sends to itself before it
                serves; needs the extra `[serving]`. None for no such file.

        Returns:
            The path of the new version.

        Raises:
            ValueError: if the version exists, or `precision` is another.
            TypeError: if `signatures` or `warmup` is not a list of strings.
            RuntimeError: if the exported model fails its self-test, or this TensorFlow has no
                products in int8.
        """
        from keras_transformer.export.saved_model import export_saved_model

        check_is_one_model(self.model)
        options = {"precision": precision, "overwrite": overwrite, "warmup": warmup}
        options |= {"names": signatures, "run": self.run_card}
        return export_saved_model(self.graph, directory, **options)


def check_is_one_model(model) -> None:
    """Raises a TypeError for what cannot be exported, such as an `Ensemble`."""
    remedy = "train a student on its translations (keras-transformer distil), and export that"
    check_has("model", "Transformer or LanguageModel", model, ("get_config", "weights"), remedy)


def check_fit(what: str, kind: str, model, sizes, tokenizer) -> None:
    """Checks that a search can use a model, and that the tokenizer is the model's.

    Args:
        what: the class that is made, for errors.
        kind: the class that `model` should be or be like, for errors.
        model: what was given for one.
        sizes: names of its vocabulary sizes.
        tokenizer: what was given for a tokenizer.

    Raises:
        TypeError: if one of the two is something else.
        ValueError: if the backend has no graphs, or a vocabulary size is not the tokenizer's.
    """
    check_tensorflow(what)
    check_has("model", kind, model, (*sizes, *SEARCH_METHODS))
    check_tokenizer(tokenizer, "vocab_size", "tokenize", "detokenize", "pieces")
    for name in sizes:
        size = getattr(model, name)
        if not 0 <= size - tokenizer.vocab_size < VOCABULARY_PADDING:
            raise ValueError(
                f"The model's {name} is {size}, but the tokenizer has {tokenizer.vocab_size} ids; "
                "use the tokenizer that the model was trained with."
            )

"""The layout of docs/architecture.md, kept by reading every file of the package."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import keras_transformer

PACKAGE = Path(keras_transformer.__file__).parent

# What each folder may import of the package, besides files of its own that it lists before.
ALLOWED = {
    "presets": set(),
    "checks": set(),
    "gather": set(),
    "data": {"checks"},
    "layers": {"checks", "gather"},
    "decoding": {"checks", "gather"},
    "evaluation": {"checks"},
    "models": {"checks", "gather", "data.special_tokens", "layers", "training"},
    "training": {"checks", "data.special_tokens", "layers"},
    "visualization": {"data.special_tokens", "layers"},
    "export": {
        "presets",
        "checks",
        "data",
        "layers",
        "models",
        "training",
        "decoding",
        "evaluation",
    },
    "commands": {
        "presets",
        "checks",
        "data",
        "models",
        "training",
        "evaluation",
        "visualization",
        "export",
    },
    "cli": {"commands.options"},
    "__main__": {"cli"},
    "__init__": set(),
}

# Inside a folder, a file may import those before it.
ORDER = {
    "data": [
        "special_tokens",
        "corpus",
        "tokenizer",
        "synthetic",
        "token_rows",
        "batching",
        "packing",
        "forecast_windows",
    ],
    "layers": [
        "extras",
        "linear",
        "layer_norm",
        "rms_norm",
        "dropout",
        "masks",
        "rotary",
        "pooling",
        "history_window",
        "instance_normalization",
        "heads",
        "attention_cache",
        "positional_embedding",
        "dot_product_attention",
        "attention_gradient",
        "multi_head_attention",
        "feed_forward",
        "residual",
        "encoder_layer",
        "decoder_layer",
    ],
    "decoding": [
        "search_result",
        "constraints",
        "length_penalty",
        "coverage_penalty",
        "top_k",
        "prefix",
        "rounds",
        "search_arguments",
        "greedy_search",
        "beam_state",
        "continuations",
        "beam_search",
        "beam_history",
        "sampling",
    ],
    "models": [
        "exportable",
        "encoder",
        "decoder",
        "decoding_weights",
        "search_cache",
        "attention_weights",
        "transformer",
        "language_model",
        "forecast_inputs",
        "forecaster",
        "sequence_classifier",
    ],
    "training": [
        "schedules",
        "precision",
        "streams",
        "distribution",
        "losses",
        "forecast_loss",
        "projected_crossentropy",
        "metrics",
        "gradients",
        "token_trainer",
        "checkpoints",
        "callbacks",
        "delay_r_drop",
        "tensorboard",
    ],
    "evaluation": ["scores", "perplexity", "forecast_scores", "seasonal_naive"],
    "visualization": [
        "figures",
        "attention",
        "positions",
        "schedule",
        "masks",
        "beam",
        "pages",
        "monitor",
    ],
    "export": [
        "row_batches",
        "search_settings",
        "search_graph",
        "translation_graph",
        "generation_graph",
        "signatures",
        "generation_signatures",
        "precision",
        "ctranslate2",
        "warmup",
        "version_directory",
        "saved_model",
        "strings",
        "encoder_models",
        "translator",
        "inspection",
        "text_generator",
        "run_directory",
    ],
    "commands": [
        "values",
        "options",
        "loading",
        "translate",
        "evaluate",
        "export",
        "training_text",
        "pictures",
        "training_callbacks",
        "average",
        "train",
        "demo",
        "inspect",
    ],
}

# Folders in which TensorFlow may be imported when a module is; elsewhere only inside functions.
TENSORFLOW_FOLDERS = {"data", "export", "commands"}

PUBLIC_NAMES = {
    "Decoder",
    "DecoderLayer",
    "Encoder",
    "EncoderLayer",
    "FeedForward",
    "ForecastLoss",
    "Forecaster",
    "LanguageModel",
    "MaskedAccuracy",
    "MaskedCrossentropy",
    "MultiHeadAttention",
    "Perplexity",
    "PositionalEmbedding",
    "SequenceClassifier",
    "TextGenerator",
    "Tokenizer",
    "Transformer",
    "TransformerSchedule",
    "Translator",
    "beam_search",
    "greedy_search",
    "presets",
}

FILES = sorted(path.relative_to(PACKAGE) for path in PACKAGE.rglob("*.py"))


def imports(tree):
    """Names of imported modules; of ours without the package's name."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "relative import"
            for alias in node.names:
                path = Path(*node.module.split(".")[1:], f"{alias.name}.py")
                is_file = node.module.startswith("keras_transformer") and path in FILES
                yield f"{node.module}.{alias.name}" if is_file else node.module


@pytest.mark.parametrize("file", FILES, ids=str)
def test_files_import_only_what_lies_below(file):
    folder, name = file.parts[0].removesuffix(".py"), file.stem
    for module in imports(ast.parse((PACKAGE / file).read_text("utf-8"))):
        if not module.startswith("keras_transformer."):
            continue
        target = module.removeprefix("keras_transformer.")
        if target.split(".")[0] == folder:
            order = ORDER[folder]
            assert order.index(target.split(".")[1]) < order.index(name), f"{file} -> {target}"
        else:
            allowed = any(target == a or target.startswith(f"{a}.") for a in ALLOWED[folder])
            assert allowed, f"{file} must not import {target}"


@pytest.mark.parametrize("file", FILES, ids=str)
def test_every_file_has_a_place_in_the_reading_order(file):
    assert file.parts[0].removesuffix(".py") in ALLOWED
    if len(file.parts) > 1 and file.stem != "__init__":
        assert file.stem in ORDER[file.parts[0]]


@pytest.mark.parametrize("file", FILES, ids=str)
def test_tensorflow_is_imported_only_where_it_must_be(file):
    if file.parts[0] in TENSORFLOW_FOLDERS:
        return
    top_level = ast.Module(ast.parse((PACKAGE / file).read_text("utf-8")).body, [])
    inside = [n for n in ast.walk(top_level) if isinstance(n, (ast.FunctionDef, ast.Lambda))]
    for node in inside:
        node.body = []
    names = {module.split(".")[0] for module in imports(top_level)}
    assert not names & {"tensorflow", "tensorflow_text"}


@pytest.mark.parametrize("file", FILES, ids=str)
def test_files_and_functions_stay_short(file):
    text = (PACKAGE / file).read_text("utf-8")
    assert text.count("\n") <= 300
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.FunctionDef):
            docstring = ast.get_docstring(node, clean=False) or ""
            lines = node.end_lineno - node.lineno - docstring.count("\n")
            assert lines <= 70, f"{node.name} has {lines} lines"


def test_public_names():
    assert set(keras_transformer.__all__) == PUBLIC_NAMES
    assert all(getattr(keras_transformer, name).__doc__ for name in PUBLIC_NAMES)


def test_unknown_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match="has no attribute 'Transformers'"):
        _ = keras_transformer.Transformers


def test_import_loads_neither_keras_nor_tensorflow():
    code = (
        "import sys, keras_transformer, keras_transformer.cli;"
        "print({'keras', 'tensorflow', 'numpy'} & set(sys.modules))"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert result.stdout.strip() == "set()", result.stderr

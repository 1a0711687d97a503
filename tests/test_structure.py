"""The layout of docs/architecture.md, kept by reading every file of the package."""

import ast
from pathlib import Path

import pytest

import keras_transformer

PACKAGE = Path(keras_transformer.__file__).parent

# What each folder may import of the package, besides files of its own that it lists before.
ALLOWED = {
    "presets": set(),
    "files": {"checks"},
    "version_directory": {"checks", "files"},
    "type_hints": set(),
    "checks": set(),
    "keras_names": set(),
    "pure_steps": set(),
    "event_file": set(),
    "backend": {"pure_steps"},
    "data": {"checks", "files"},
    "layers": {"checks", "backend", "keras_names"},
    "decoding": {"checks", "backend"},
    "evaluation": {"checks"},
    "models": {
        "checks",
        "pure_steps",
        "backend",
        "keras_names",
        "data.special_tokens",
        "layers",
        "training",
        "decoding",
    },
    "training": {
        "checks",
        "backend",
        "keras_names",
        "event_file",
        "files",
        "version_directory",
        "data.processes",
        "data.special_tokens",
        "layers",
    },
    "visualization": {"event_file", "data.special_tokens", "layers", "decoding.history"},
    "forecasting": {
        "checks",
        "backend",
        "files",
        "version_directory",
        "layers",
        "models",
        "training",
        "export",
    },
    "inference": {
        "checks",
        "pure_steps",
        "backend",
        "files",
        "version_directory",
        "data",
        "layers",
        "models",
        "training",
        "decoding",
        "evaluation",
        "export",
    },
    "export": {
        "presets",
        "checks",
        "backend",
        "files",
        "version_directory",
        "data",
        "layers",
        "decoding.result",
        "models",
        "training",
    },
    "commands": {
        "presets",
        "checks",
        "pure_steps",
        "backend",
        "data",
        "models",
        "training",
        "evaluation",
        "visualization",
        "decoding.strategies",
        "inference",
        "export",
        "files",
        "version_directory",
        "apache_beam",
    },
    "apache_beam": {
        "checks",
        "data.text_lines",
        "commands.lines.batches",
        "commands.loading",
        "commands.lines.reading",
        "commands.translate",
    },
    "cli": {"commands.early_checks", "commands.messages", "commands.parser", "commands.progress"},
    "__main__": {"cli"},
    "lazy": {"keras_names"},
    "saved_classes": set(),
    "__init__": {"lazy", "saved_classes"},
}

# Inside a folder, a file may import those before it; what lies in a room of its own has its name.
ORDER = {
    "data": [
        "special_tokens",
        "blank_text",
        "text_lines",
        "corpus",
        "tfds_corpus",
        "token_rows",
        "epochs",
        "shares",
        "pair_batches",
        "subwords",
        "bpe_dropout",
        "tokenizer",
        "processes",
        "store_files",
        "sampled_epochs",
        "token_store",
        "vocabulary",
        "prepare",
        "synthetic",
        "batching",
        "packing",
    ],
    "layers": [
        "arguments",
        "dense",
        "low_rank",
        "norms",
        "dropout",
        "masks",
        "rotary",
        "pooling",
        "positional_embedding",
        "attention",
        "attention_memory",
        "multi_head_attention",
        "feed_forward",
        "residual",
        "encoder_layer",
        "decoder_layer",
    ],
    "decoding": [
        "result",
        "beginning",
        "strategies",
        "row_options",
        "search_model",
        "top_k",
        "sampling",
        "processors",
        "compaction",
        "greedy",
        "beam",
        "history",
    ],
    "models": [
        "sequence_model",
        "stack",
        "encoder",
        "decoder",
        "search_cache",
        "generation",
        "token_model",
        "transformer",
        "ensemble",
        "language_model",
        "sequence_classifier",
    ],
    "training": [
        "schedules",
        "precision",
        "shards",
        "jax_devices",
        "worker_task",
        "workers",
        "distribution",
        "losses",
        "projected_crossentropy",
        "metrics",
        "step",
        "run_record",
        "card",
        "weights",
        "variables",
        "state_file",
        "checkpoints",
        "epoch_weights",
        "callbacks",
        "translation_monitor",
        "stopping",
        "tensorboard",
    ],
    "evaluation": ["scores", "perplexity"],
    "visualization": [
        "figures",
        "attention",
        "positions",
        "schedule",
        "masks",
        "beam",
        "pages",
        "samples",
        "monitor",
    ],
    "forecasting": [
        "windows",
        "inputs",
        "instance_normalization",
        "loss",
        "forecaster",
        "scores",
        "export",
    ],
    "inference": [
        "word_alignment",
        "answers",
        "run_files",
        "run_config",
        "run_directory",
        "text_module",
        "prefixes",
        "text_search",
        "training_translator",
        "translation_graph",
        "generation_graph",
        "translator",
        "inspection",
        "text_generator",
    ],
    "export": [
        "ctranslate2",
        "warmup",
        "int8",
        "products",
        "packed",
        "precision",
        "short_graph",
        "seal",
        "card",
        "tested_export",
        "saved_model",
        "classifier",
    ],
    "apache_beam": ["translation", "files"],
    "commands": [
        "values",
        "options",
        "parser",
        "messages",
        "progress",
        "training_run.model_size",
        "search",
        "vocabulary_size",
        "text_notes",
        "training_run.recipe",
        "training_run.resume",
        "lines.reading",
        "path_checks",
        "early_checks",
        "training_run.disk_space",
        "training_run.run_history",
        "training_run.progress",
        "tokenizer",
        "prepare",
        "loading",
        "lines.batches",
        "lines.journal",
        "lines.formats",
        "lines.jobs",
        "translate",
        "pipeline",
        "distil",
        "score",
        "evaluate",
        "export",
        "training_run.text",
        "training_run.data",
        "pictures",
        "training_run.workers",
        "training_run.time_plan",
        "training_run.monitors",
        "training_run.callbacks",
        "average",
        "train",
        "demo",
        "inspect_server",
        "inspect",
        "show",
    ],
}

# Folders in which TensorFlow may be imported when a module is; elsewhere only inside functions.
TENSORFLOW_FOLDERS = {"inference", "export", "commands"}
TENSORFLOW_FILES = {"data/packing.py", "forecasting/export.py"}

FILES = sorted(path.relative_to(PACKAGE) for path in PACKAGE.rglob("*.py"))


def is_for_type_checkers(node):
    return isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"


def imports(tree):
    """The names of imported modules, but those that only type checkers import."""
    nodes = [node for node in tree.body if not is_for_type_checkers(node)]
    for node in ast.walk(ast.Module(nodes, [])):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "relative import"
            for alias in node.names:
                path = Path(*node.module.split(".")[1:], f"{alias.name}.py")
                is_file = node.module.startswith("keras_transformer") and path in FILES
                yield f"{node.module}.{alias.name}" if is_file else node.module


def name_in_folder(file):
    """The name that a file has in `ORDER`."""
    return ".".join(file.with_suffix("").parts[1:])


@pytest.mark.parametrize("file", FILES, ids=str)
def test_files_import_only_what_lies_below(file):
    folder, name = file.parts[0].removesuffix(".py"), name_in_folder(file)
    for module in imports(ast.parse((PACKAGE / file).read_text("utf-8"))):
        if not module.startswith("keras_transformer."):
            continue
        target = module.removeprefix("keras_transformer.")
        if target.split(".")[0] == folder:
            order = ORDER[folder]
            name_of_target = target.removeprefix(f"{folder}.")
            assert order.index(name_of_target) < order.index(name), f"{file} -> {target}"
        else:
            names = {"type_hints", "lazy", *ALLOWED[folder]}
            allowed = any(target == a or target.startswith(f"{a}.") for a in names)
            assert allowed, f"{file} must not import {target}"


@pytest.mark.parametrize("file", FILES, ids=str)
def test_every_file_has_a_place_in_the_reading_order(file):
    assert file.parts[0].removesuffix(".py") in ALLOWED
    if len(file.parts) > 1 and file.stem != "__init__":
        assert name_in_folder(file) in ORDER[file.parts[0]]


@pytest.mark.parametrize("file", FILES, ids=str)
def test_tensorflow_is_imported_only_where_it_must_be(file):
    if file.parts[0] in TENSORFLOW_FOLDERS or file.as_posix() in TENSORFLOW_FILES:
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
    assert text.count("\n") <= 400
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.FunctionDef):
            docstring = ast.get_docstring(node, clean=False) or ""
            lines = node.end_lineno - node.lineno - docstring.count("\n")
            assert lines <= 70, f"{node.name} has {lines} lines"


@pytest.mark.parametrize("folder", ["layers", "models", "decoding"])
def test_only_the_backend_module_names_a_backend(folder):
    named = ("backend.backend()", "import tensorflow", "import jax")
    for path in (PACKAGE / folder).glob("*.py"):
        text = path.read_text("utf-8")
        assert not [name for name in named if name in text], path.name


@pytest.mark.parametrize("file", ["multi_head_attention", "encoder_layer", "decoder_layer"])
def test_a_call_of_a_layer_fits_on_a_screen(file):
    """At most 40 lines of code and 9 arguments."""
    text = (PACKAGE / "layers" / f"{file}.py").read_text("utf-8")
    functions = [n for n in ast.walk(ast.parse(text)) if isinstance(n, ast.FunctionDef)]
    (call,) = (n for n in functions if n.name == "call")
    arguments = [a.arg for a in (*call.args.args, *call.args.kwonlyargs) if a.arg != "self"]
    assert len(arguments) <= 9, arguments
    assert ast.get_docstring(call) is None  # the class has it
    lines = [line.strip() for line in text.splitlines()[call.lineno - 1 : call.end_lineno]]
    assert sum(line != "" and not line.startswith("#") for line in lines) <= 40

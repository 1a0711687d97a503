"""Says what is wrong with a command before Keras and TensorFlow are imported.

What a value must be is in `values.KINDS`. Here are the paths, by the metavars of their options,
and what options of a command must not or must only have together.
"""

import json
import os
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path

from keras_transformer.checks import check_directory, check_local, check_new_file
from keras_transformer.commands.lines.reading import is_file
from keras_transformer.commands.options import OPTIONS, Option, dashed, given_options
from keras_transformer.commands.search import (
    ALL_OPTIONS,
    check_search,
    export_signature,
    what_is_asked,
)
from keras_transformer.commands.training_run.model_size import model_size
from keras_transformer.files import naming
from keras_transformer.inference.run_files import TOKENIZER, is_run, read_files
from keras_transformer.training.worker_task import this_worker
from keras_transformer.version_directory import saved_model_path

SAVED_MODEL_ONLY = ("precision", "signatures", "warmup")


def check_early(options) -> None:
    """Raises a ValueError with one line for the first thing that is wrong."""
    for check in CHECKS.get(options.command, (check_paths,)):
        check(options)


def check_paths(options, names=None) -> None:
    """Checks each path of a command, or those of the options with the given keys."""
    paths = []
    for option in OPTIONS[options.command]:
        if isinstance(option, Option) and option.values in PATHS:
            if names is None or option.key in names:
                value = getattr(options, option.key)
                name = option.name if option.name.startswith("-") else option.values
                values = value if isinstance(value, list) else [value]
                paths += [(option.values, name, path) for path in values if path is not None]
    for _, name, path in paths:
        check_local(name, path)
    for kind, name, path in paths:
        PATHS[kind](name, path)


def check_readable(name: str, path: str) -> None:
    """Raises a ValueError if there is no file to read; a pipe is one, too."""
    if os.path.isdir(path):
        raise ValueError(f"{name} {path} is a directory; name a file in it.")
    if not os.path.exists(path):
        raise ValueError(f"{name} {path} does not exist{_like(path)}; check the path.")
    if not os.access(path, os.R_OK):
        raise ValueError(f"{name} {path} may not be read; check its permissions.")


def _like(path: str) -> str:
    """Returns a question with the name in the same directory that is most like a missing one."""
    from difflib import get_close_matches

    folder, name = os.path.split(path)
    try:
        found = get_close_matches(name, os.listdir(folder or "."), 1, 0.7)
    except OSError:
        found = []
    return f" (did you mean {os.path.join(folder, found[0])}?)" if found else ""


def check_out_file(name: str, path: str) -> None:
    """Raises a ValueError if no file can be written there."""
    check_new_file(name, path)
    if os.path.exists(path) and not os.path.isfile(path):
        return  # a pipe or a device
    _check_writable(path, Path(path).parent)


def check_out_directory(name: str, path: str) -> None:
    """Raises a ValueError if no directory can be made or filled there."""
    check_directory(name, path)
    folders = (Path(path), *Path(path).absolute().parents)
    _check_writable(path, next(folder for folder in folders if folder.is_dir()))


def _check_writable(path, folder: Path) -> None:
    import tempfile

    with naming(path), tempfile.TemporaryFile(dir=folder):
        pass  # more than os.access knows: also of a disk that is mounted for reading


def check_run(name: str, path: str) -> None:
    """Raises a ValueError if a path is not a directory that `train` has written."""
    if not is_run(path):
        what = "is no run" if os.path.exists(path) else f"does not exist{_like(path)}"
        raise ValueError(f"{path} {what}; name a directory that train has written.")


def check_run_or_export(name: str, path: str) -> None:
    """Raises a ValueError if a path is neither what `train` nor what `export` has written."""
    if not is_run(path) and saved_model_path(path) is None:
        found = os.path.exists(path)
        what = "is neither a run nor an export" if found else f"does not exist{_like(path)}"
        raise ValueError(f"{path} {what}; name a directory that train or export has written.")


def check_store(name: str, path: str) -> None:
    """Raises a ValueError if a path is not a directory that `prepare` has written."""
    from keras_transformer.data.store_files import is_store

    if not is_store(path):
        what = "is no store" if os.path.exists(path) else f"does not exist{_like(path)}"
        raise ValueError(f"{name} {path} {what}; name a directory that prepare has written.")


# The check of each metavar that stands for a path.
PATHS: dict[str, Callable[[str, str], None]] = {
    "FILE": check_readable,
    "OUT_FILE": check_out_file,
    "OUT": check_out_directory,
    "DIRECTORY": check_out_directory,
    "STORE": check_store,
    "RUN": check_run,
    "RUN_OR_EXPORT": check_run_or_export,
}


def need(module: str, package: str, what: str) -> None:
    """Raises a ValueError if a module that `what` needs is not installed."""
    if find_spec(module) is None:
        raise ValueError(f"{what} needs {package}, which is not installed: pip install {package}.")


def check_what_is_asked(options) -> None:
    """Refuses what a model cannot be asked for together, or an export not at all."""
    check_output_is_no_input(options)
    if options.command == "translate" and options.nbest and options.alignments:
        raise ValueError("--alignments are of the best translation; leave out --nbest.")
    if not is_run(options.model):
        export_signature(options, what_is_asked(options))


def check_output_is_no_input(options) -> None:
    """Refuses an output that would replace what is read."""
    (output,) = _of_kind(options, "OUT_FILE")
    written = getattr(options, output.key)
    if written is None or not os.path.exists(written):
        return
    for option in _of_kind(options, "FILE"):
        path = getattr(options, option.key)
        if path is not None and os.path.samefile(path, written):
            raise ValueError(
                f"{output.name} {written} would replace what {option.name} reads; name another "
                "file."
            )


def _of_kind(options, *metavars) -> list[Option]:
    """Returns the options of a command that take one of these metavars."""
    known = (option for option in OPTIONS[options.command] if isinstance(option, Option))
    return [option for option in known if option.values in metavars]


def check_shard(options) -> None:
    """Refuses a part of what is no file: only a file is known to the other parts, too."""
    if options.shard is None:
        return
    if options.command == "translate" and (options.input is None or options.output is None):
        raise ValueError("--shard needs --input and --output; name a file for each part.")
    for option in _of_kind(options, "FILE", "OUT_FILE"):
        path = getattr(options, option.key)
        if path is not None and not is_file(path):
            raise ValueError(f"--shard needs files, but {option.name} {path} is none; name one.")


def check_distillation(options) -> None:
    """Refuses teachers of several vocabularies, and a choice that nothing tells."""
    check_output_is_no_input(options)
    if options.out.endswith(".gz"):
        raise ValueError(f"--out {options.out} is written as plain text; leave out .gz.")
    if options.nbest and not options.target:
        raise ValueError(
            "--nbest takes what is nearest to --target; name it, or leave out --nbest."
        )
    if options.by and not options.nbest:
        raise ValueError(f"--by {options.by} chooses among the N best; add --nbest.")
    first, *others = options.model
    for other in others:
        if _tokenizer(other) != _tokenizer(first):
            raise ValueError(
                f"{other} has another tokenizer than {first}; teachers must have one, so train "
                f"them with --tokenizer {first}/{TOKENIZER}."
            )


def _tokenizer(run) -> bytes:
    return read_files(Path(run), (TOKENIZER,))[TOKENIZER]


def check_pipeline(options) -> None:
    """Refuses a pipeline without Beam, and local files that are not there or cannot be written."""
    need("apache_beam", '"keras-transformer-layers[beam]"', "pipeline")
    if "://" not in options.output:
        check_out_file("--output", options.output)
    if not any(word.partition("=")[0] == "--runner" for word in options.rest):  # this machine
        check_run_or_export("MODEL", options.model)


def check_export(options) -> None:
    """Refuses options that the format does not take, or a format that is not installed."""
    others = ("quantization",)
    if options.format == "ctranslate2":
        need("ctranslate2", "ctranslate2", "--format ctranslate2")
        others = (*SAVED_MODEL_ONLY, *ALL_OPTIONS)
    if options.warmup is not None:
        need("tensorflow_serving", "tensorflow-serving-api", "--warmup")
    if found := given_options(options, others):
        raise ValueError(f"--format {options.format} does not take {dashed(found)}; leave it out.")


def check_pictures(options) -> None:
    """Refuses pictures without the package that draws them."""
    need("matplotlib", "matplotlib", f"keras-transformer {options.command}")


def check_scores(options) -> None:
    """Refuses a --bleu-tokenize that needs a package which is not installed."""
    if options.bleu_tokenize.endswith("mecab"):
        from keras_transformer.evaluation.scores import check_bleu_tokenize

        check_bleu_tokenize(options.bleu_tokenize)


def check_training(options) -> None:
    """Refuses what cannot be trained together; a run to go on with gives its options before."""
    from keras_transformer.commands.training_run import resume

    if {"epochs", "max_steps"} <= set(getattr(options, "typed", ())):
        raise ValueError("--epochs and --max-steps exclude each other; give one of them.")
    if options.strategy == "multi_worker":
        this_worker()
    names = {option.key for option in OPTIONS["train"] if isinstance(option, Option)}
    check_paths(options, names - set(resume.TEXT_FILES))
    record = resume.record_to_go_on_with(options)
    if resume.is_done(record, options):
        return  # and no text is read
    check_text_options(options)
    check_paths(options, resume.TEXT_FILES)
    model_size(options)
    refuse_second_vocabulary(options)
    check_tokenizer(options)
    if options.tfds:
        need("tensorflow_datasets", "tensorflow-datasets", "--tfds")
    if options.plots:
        need("matplotlib", "matplotlib", "--plots")
    if options.norm_first and options.norm_last:
        raise ValueError("--norm-first and --norm-last exclude each other; give one of them.")
    if options.r_drop_delay is not None and not options.r_drop:
        raise ValueError("--r-drop-delay needs R-Drop; add --r-drop 5.")
    check_scores(options)
    check_backend(options)


def check_backend(options) -> None:
    """Refuses what the backend of Keras, or several processes, cannot do."""
    backend, strategy = keras_backend(), options.strategy
    of_tensorflow = dict.fromkeys(("mirrored", "multi_worker"), "tensorflow")
    needed = {"none": backend, **of_tensorflow}.get(strategy, "jax")
    if backend != needed:
        raise ValueError(
            f"--strategy {strategy} needs KERAS_BACKEND={needed}, but the backend is {backend}."
        )
    if options.plots and backend != "tensorflow":
        raise ValueError(
            f"--plots needs KERAS_BACKEND=tensorflow, but the backend is {backend}; leave it out, "
            "and draw with inspect after the training."
        )
    if os.environ.get("KERAS_DISTRIBUTION_NUM_PROCESSES", "1") == "1":
        return
    if strategy != "data_parallel":
        raise ValueError(
            "KERAS_DISTRIBUTION_NUM_PROCESSES names several processes, which need --strategy "
            f"data_parallel, not {strategy}."
        )


def keras_backend() -> str:
    """Returns the backend that Keras will have, by its environment variable or its file."""
    if name := os.environ.get("KERAS_BACKEND"):
        return name
    folder = os.environ.get("KERAS_HOME", "~/.keras")
    try:
        settings = json.loads(Path(folder, "keras.json").expanduser().read_text("utf-8"))
        return settings.get("backend", "tensorflow")
    except (OSError, ValueError):
        return "tensorflow"


def check_text_options(options) -> None:
    """Refuses a training text that is named twice or in half, and options that need another."""
    origins = [options.source or options.target, options.tsv, options.store, options.tfds]
    if sum(map(bool, [*origins, options.synthetic])) != 1:
        raise ValueError("give one of --source and --target, --tsv, --store, --tfds, --synthetic.")
    for prefix in ("", "valid_"):
        check_sides(options, prefix)
    origins = ("valid_source", "valid_tsv", "valid_split")
    if len(found := given_options(options, origins)) > 1:
        raise ValueError(f"{dashed(found)} exclude each other; give one of them.")
    if not (found or options.tfds or options.synthetic):
        refuse_without_validation(options)


def check_sides(options, prefix="") -> None:
    """Refuses a --source without its --target, or with another number of files."""
    sides = [f"{prefix}source", f"{prefix}target"]
    if len(found := given_options(options, sides)) == 1:
        missing = dashed(set(sides) - set(found))
        names = " and ".join(dashed([side]) for side in sides)
        raise ValueError(f"{names} go together; {missing} is missing.")
    sizes = [len(getattr(options, side) or ()) for side in sides]
    if sizes[0] != sizes[1]:
        raise ValueError(
            f"{' and '.join(dashed([side]) for side in sides)} need as many files, but have "
            f"{sizes[0]} and {sizes[1]}."
        )


def check_preparation(options) -> None:
    """Refuses a text that is named twice or not at all, and shards that cannot be joined."""
    check_sides(options)
    texts = bool(options.source) + bool(options.tsv)
    if options.join:
        if texts or options.shard:
            raise ValueError("--join takes what is in --out; leave out the text and --shard.")
        return
    if texts != 1:
        raise ValueError("give one of --source and --target, --tsv.")
    refuse_second_vocabulary(options)
    check_tokenizer(options)
    if options.shard and not options.tokenizer:
        raise ValueError(
            "--shard needs the vocabulary of all shards; add --tokenizer, which the command "
            "tokenizer writes."
        )
    for path in (*(options.source or ()), *(options.target or ()), *(options.tsv or ())):
        if options.shard and not os.path.isfile(path):
            raise ValueError(f"--shard reads files alone, but {path} is none; make it a file.")


def refuse_second_vocabulary(options) -> None:
    """Refuses options of a vocabulary that is not learnt."""
    typed = getattr(options, "typed", ())
    for name in ("tokenizer", "store"):
        names = ("vocab_size", "tokenizer_lines", *(("tokenizer",) if name == "store" else ()))
        found = [other for other in names if other in typed]
        if getattr(options, name, None) and found:
            raise ValueError(f"--{name} has a vocabulary; leave out {dashed(found)}.")


def check_tokenizer(options) -> None:
    """Refuses a --tokenizer that is none."""
    if options.tokenizer:
        from keras_transformer.data.subwords import check_model

        try:
            check_model(Path(options.tokenizer).read_bytes())
        except ValueError as error:
            raise ValueError(f"--tokenizer {options.tokenizer}: {error}") from error


def refuse_without_validation(options) -> None:
    """Refuses the options that need text to validate on."""
    for option, needed in (("early-stopping", "a score to watch"), ("plots", "a sentence to draw")):
        if getattr(options, option.replace("-", "_")):
            remedy = "name text with --valid-source and --valid-target, or add --valid-split 1000"
            raise ValueError(f"--{option} needs {needed}; {remedy}.")


# What is checked of a command, if it is more than its paths.
CHECKS = {
    "train": (check_training,),
    "prepare": (check_paths, check_preparation),
    "translate": (check_paths, check_search, check_what_is_asked, check_shard),
    "pipeline": (check_pipeline,),
    "distil": (check_paths, check_search, check_distillation, check_shard),
    "score": (check_paths, check_what_is_asked),
    "evaluate": (check_paths, check_search, check_what_is_asked, check_scores),
    "inspect": (check_paths, check_search, check_pictures),
    "export": (check_paths, check_search, check_export),
}

"""Says what is wrong with a command before Keras and TensorFlow are imported.

What a value must be is in `values.KINDS`, and what a path must be in `path_checks.PATHS`. This file
checks the options of a command against one another.
"""

import json
import os
from importlib.util import find_spec
from pathlib import Path

from keras_transformer.commands.lines.reading import is_stream
from keras_transformer.commands.options import OPTIONS, Option, dashed, given_options
from keras_transformer.commands.path_checks import (
    check_out_file,
    check_output_is_no_input,
    check_paths,
    check_run_or_export,
    options_of_kind,
)
from keras_transformer.commands.search import (
    ALL_OPTIONS,
    check_search,
    export_signature,
    what_is_asked,
)
from keras_transformer.commands.training_run.model_size import model_size
from keras_transformer.inference.run_files import TOKENIZER, is_run, read_files
from keras_transformer.training.worker_task import this_worker

SAVED_MODEL_ONLY = ("precision", "signatures", "warmup")


def check_early(options) -> None:
    """Raises a ValueError with one line for the first thing that is wrong."""
    for check in CHECKS.get(options.command, (check_paths,)):
        check(options)


def need(module: str, package: str, what: str) -> None:
    """Raises a ValueError if a module that `what` needs is not installed."""
    if find_spec(module) is None:
        raise ValueError(f"{what} needs {package}, which is not installed: pip install {package}.")


def check_vocabulary(options) -> None:
    """Refuses to replace a vocabulary, which the models that were trained with it need."""
    check_output_is_no_input(options)
    if os.path.isfile(options.out) and os.path.getsize(options.out):
        raise ValueError(f"--out {options.out} exists; name another file, or remove it first.")


def check_what_is_asked(options) -> None:
    """Refuses what a model cannot be asked for together, or an export not at all."""
    check_output_is_no_input(options)
    if options.command == "translate" and options.nbest and options.alignments:
        raise ValueError("--alignments are of the best translation; leave out --nbest.")
    if not is_run(options.model):
        export_signature(options, what_is_asked(options))


def check_shard(options) -> None:
    """Refuses `--shard` of what is not a regular file: other parts could not read the same."""
    if options.shard is None:
        return
    if options.command == "translate" and (options.input is None or options.output is None):
        raise ValueError("--shard needs --input and --output; name a file for each part.")
    for option in options_of_kind(options, "FILE", "OUT_FILE"):
        path = getattr(options, option.key)
        if path is not None and is_stream(path):
            raise ValueError(f"--shard needs files, but {option.name} {path} is none; name one.")


def check_distillation(options) -> None:
    """Refuses teachers of several vocabularies, and a choice that nothing tells."""
    check_output_is_no_input(options)
    if options.nbest and not options.target:
        raise ValueError(
            "--nbest takes what is nearest to --target; name it, or leave out --nbest."
        )
    if not is_stream(options.source) and not os.path.getsize(options.source):
        raise ValueError(f"--source {options.source} is empty; name a text.")
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
    directory = Path(options.directory)
    if is_run(directory):
        raise ValueError(f"DIRECTORY {directory} is a run; name another directory to export to.")
    if directory.name.isdecimal() and directory.exists() and not options.overwrite:
        raise ValueError(f"{directory} exists; add --overwrite, or name {directory.parent}.")


def check_pictures(options) -> None:
    """Refuses pictures without the package that draws them, or of no sentence."""
    need("matplotlib", "matplotlib", f"keras-transformer {options.command}")
    if not (options.sentence or options.serve):
        raise ValueError("The sentence is missing; give one, or --serve to type some in a browser.")


def check_scores(options) -> None:
    """Refuses a --bleu-tokenize that needs a package which is not installed."""
    if (options.bleu_tokenize or "").endswith("mecab"):
        from keras_transformer.evaluation.scores import check_bleu_tokenize

        check_bleu_tokenize(options.bleu_tokenize)


def check_training(options) -> None:
    """Refuses options that cannot be combined; a run that is resumed gives its options first."""
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
        raise ValueError(
            "give one text: --source with --target, --tsv, --store, --tfds or --synthetic."
        )
    typed = getattr(options, "typed", ())
    if "num_pairs" in typed and not options.synthetic:
        raise ValueError("--num-pairs is of --synthetic pairs; leave it out, or shorten the text.")
    if "errors" in typed and options.store:
        raise ValueError("--errors is of text, and --store has ids; give it to prepare instead.")
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
        raise ValueError("give one text: --source with --target, or --tsv.")
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
            remedy = "name text with --valid-source and --valid-target, or add --valid-split N"
            raise ValueError(f"--{option} needs {needed}; {remedy}.")


# What is checked of a command, if it is more than its paths.
CHECKS = {
    "train": (check_training,),
    "tokenizer": (check_paths, check_vocabulary),
    "prepare": (check_paths, check_preparation),
    "translate": (check_paths, check_search, check_what_is_asked, check_shard),
    "pipeline": (check_pipeline,),
    "distil": (check_paths, check_search, check_distillation, check_shard),
    "score": (check_paths, check_what_is_asked),
    "evaluate": (check_paths, check_search, check_what_is_asked, check_scores),
    "inspect": (check_paths, check_search, check_pictures),
    "export": (check_paths, check_search, check_export),
}

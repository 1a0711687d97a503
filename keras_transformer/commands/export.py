"""`keras-transformer export`: from a run to a SavedModel, or to CTranslate2."""

import shlex
import sys
from pathlib import Path

from keras_transformer.commands.messages import log
from keras_transformer.commands.options import given_options
from keras_transformer.commands.progress import stage
from keras_transformer.commands.search import search_options
from keras_transformer.data.text_lines import read_lines
from keras_transformer.export.card import ask_command, serve_command
from keras_transformer.files import read_json
from keras_transformer.inference.translator import load_translator
from keras_transformer.version_directory import EXPORT_CARD


def run(options) -> None:
    """Writes the next version and prints its path."""
    is_saved_model = options.format == "savedmodel"
    with stage(f"loading {options.run}"):
        settings = search_options(options) if is_saved_model else {}
        translator = load_translator(options.run, **settings)
    if is_saved_model:
        settings = given_options(options, ("precision", "signatures", "warmup"))
        if options.warmup is not None:
            settings["warmup"] = read_lines(options.warmup)
        export, what = translator.export, "timing products, writing and testing the graph"
    else:
        settings = given_options(options, ("quantization",))
        export, what = translator.export_ctranslate2, "writing for CTranslate2"
    with stage(what):
        path = export(options.directory, overwrite=options.overwrite, **settings)
    print(path, flush=True)
    if not is_saved_model:
        log(f"CTranslate2 loads it; its tokens are pieces of {path}/tokenizer.model")
        return
    if options.precision in ("auto", "int8"):
        log_precision(read_json(Path(path) / EXPORT_CARD))
    log(f"its card: keras-transformer show {shlex.quote(path)}; complete {path}/README.md")
    log("serve it:")
    print(serve_command(path), file=sys.stderr)
    log("ask it:")
    print(ask_command(path), file=sys.stderr)


def log_precision(card) -> None:
    """Says how fast `--precision auto` has found each precision, and what became integers."""
    if "seconds_per_step" in card:
        times = (
            f"{name} {' and '.join(f'{1000 * x:.1f}' for x in pair)}"
            for name, pair in card["seconds_per_step"].items()
        )
        log(f"ms a step of 1 and of 16 sentences: {', '.join(times)}; took {card['precision']}")
    if "int8_products" in card:
        log(f"products in 8-bit integers: {card['int8_products']}; the others are faster in floats")

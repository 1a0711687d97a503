"""`keras-transformer export`: from a run to a SavedModel, or to CTranslate2."""

from keras_transformer.commands.loading import dashed, given_options, search_options
from keras_transformer.data.corpus import read_lines
from keras_transformer.inference.run_directory import load_translator


def run(options) -> None:
    """Writes the next version and prints its path."""
    if options.format == "ctranslate2":
        own = {name: getattr(options, name) for name in ("precision", "signatures", "warmup")}
        _refuse(options, given_options(options) | own)
        kept = {"quantization": options.quantization, "overwrite": options.overwrite}
        path = load_translator(options.run).export_ctranslate2(options.directory, **kept)
    else:
        _refuse(options, {"quantization": options.quantization})
        warmup = None if options.warmup is None else list(read_lines(options.warmup))
        translator = load_translator(options.run, **search_options(options))
        path = translator.export(
            options.directory,
            precision=options.precision or "float32",
            signatures=options.signatures,
            overwrite=options.overwrite,
            warmup=warmup,
        )
    print(path)


def _refuse(options, values) -> None:
    """A ValueError that names the options which mean nothing in this format."""
    given = [name for name, value in values.items() if value is not None]
    if given:
        raise ValueError(f"--format {options.format} knows no {dashed(given)}; leave it out.")

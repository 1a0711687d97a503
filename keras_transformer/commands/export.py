"""`keras-transformer export`: from a run to a SavedModel, or to CTranslate2."""

from keras_transformer.commands.loading import search_options
from keras_transformer.data.corpus import read_lines
from keras_transformer.export.run_directory import load_translator


def run(options) -> None:
    """Writes the next version and prints its path."""
    search = search_options(options)
    if options.format == "ctranslate2":
        names = ("precision", "signatures", "warmup")
        _refuse(options, {**search, **{name: getattr(options, name) for name in names}})
        translator = load_translator(options.run)
        path = translator.export_ctranslate2(
            options.directory, quantization=options.quantization, overwrite=options.overwrite
        )
    else:
        _refuse(options, {"quantization": options.quantization})
        warmup = None if options.warmup is None else list(read_lines(options.warmup))
        translator = load_translator(options.run, **search)
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
    given = [f"--{name.replace('_', '-')}" for name, value in values.items() if value is not None]
    if given:
        raise ValueError(f"--format {options.format} knows no {', '.join(given)}; leave it out.")

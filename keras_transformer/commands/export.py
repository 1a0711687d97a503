"""`keras-transformer export`: from a run to a SavedModel."""

from keras_transformer.commands.loading import search_options
from keras_transformer.export.run_directory import load_translator


def run(options) -> None:
    """Writes the next version and prints its path."""
    translator = load_translator(options.run, **search_options(options))
    print(translator.export(options.directory))

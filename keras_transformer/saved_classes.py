"""Lets Keras load models of this library's classes before you use one.

Keras looks a saved class up by its registered name, in a table that `keras.saving` shows. A class
gets into it when its file is imported, which happens here on first use. So each name has an entry
that imports its file when Keras loads it, from the moment when both packages are imported.
"""

import importlib.util
import sys
from importlib import import_module

# Where the classes that Keras can save are; a test compares it with their decorators.
CLASSES = {
    "Decoder": "models.decoder",
    "DecoderLayer": "layers.decoder_layer",
    "Dense": "layers.dense",
    "Dropout": "layers.dropout",
    "Encoder": "models.encoder",
    "EncoderLayer": "layers.encoder_layer",
    "FeedForward": "layers.feed_forward",
    "ForecastLoss": "forecasting.loss",
    "Forecaster": "forecasting.forecaster",
    "LanguageModel": "models.language_model",
    "MaskedAccuracy": "training.metrics",
    "MaskedCrossentropy": "training.losses",
    "MultiHeadAttention": "layers.multi_head_attention",
    "Perplexity": "training.metrics",
    "PositionalEmbedding": "layers.positional_embedding",
    "Residual": "layers.residual",
    "SequenceClassifier": "models.sequence_classifier",
    "Transformer": "models.transformer",
    "TransformerSchedule": "training.schedules",
}


class ImportedLater:
    """Stands for a class in Keras's table until the file of the class is imported."""

    def __init__(self, module: str, name: str):
        self.module, self.name = module, name

    def from_config(self, config):
        """Makes an instance of the class."""
        return getattr(import_module(self.module), self.name).from_config(config)


class AfterKeras:
    """A finder of modules that finds Keras as the others do, and calls `register` after it."""

    def find_spec(self, name, path=None, target=None):
        if name != "keras":
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(name)
        if spec is not None:
            run = spec.loader.exec_module

            def run_and_register(module):
                run(module)
                register()

            spec.loader.exec_module = run_and_register
        return spec


def register() -> None:
    """Gives Keras, which is imported, an entry for each class that it does not know yet."""
    known = sys.modules["keras"].saving.get_custom_objects()
    for name, module in CLASSES.items():
        entry = ImportedLater(f"keras_transformer.{module}", name)
        known.setdefault(f"keras_transformer>{name}", entry)


def register_now_or_after_keras() -> None:
    """Calls `register`, now if Keras is imported, otherwise as soon as it is."""
    if "keras" in sys.modules:
        register()
    else:
        sys.meta_path.insert(0, AfterKeras())

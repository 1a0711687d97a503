"""Transformers for Keras 3, from text to a served translation.

The pipeline, a stage a line:

- `keras_transformer.data`: text in, batches out (`Tokenizer`).
- `keras_transformer.layers`: attention and what surrounds it (`MultiHeadAttention`, ...).
- `keras_transformer.models`: stacks and whole models (`Encoder`, `Decoder`, `Transformer`,
  `LanguageModel`, `Forecaster`, `SequenceClassifier`).
- `keras_transformer.training`: what `model.fit` needs (`TransformerSchedule`, ...).
- `keras_transformer.decoding`: search over any step function (`greedy_search`, `beam_search`).
- `keras_transformer.evaluation`: BLEU and chrF, perplexity; scores of forecasts.
- `keras_transformer.visualization`: attention, the beam, masks, positions (`attention_maps`, ...).
- `keras_transformer.export`: text to text, and the SavedModel (`Translator`, `TextGenerator`).

Names are imported on first use, so that neither the command line's help nor a JAX user waits for,
or needs, TensorFlow.
"""

from importlib import import_module

__version__ = "0.1.0"

_HOMES = {
    "beam_search": "decoding.beam_search",
    "Decoder": "models.decoder",
    "DecoderLayer": "layers.decoder_layer",
    "Encoder": "models.encoder",
    "EncoderLayer": "layers.encoder_layer",
    "FeedForward": "layers.feed_forward",
    "Forecaster": "models.forecaster",
    "ForecastLoss": "training.forecast_loss",
    "greedy_search": "decoding.greedy_search",
    "LanguageModel": "models.language_model",
    "MaskedAccuracy": "training.metrics",
    "MaskedCrossentropy": "training.losses",
    "MultiHeadAttention": "layers.multi_head_attention",
    "Perplexity": "training.metrics",
    "PositionalEmbedding": "layers.positional_embedding",
    "presets": "presets",
    "SequenceClassifier": "models.sequence_classifier",
    "TextGenerator": "export.text_generator",
    "Tokenizer": "data.tokenizer",
    "Transformer": "models.transformer",
    "TransformerSchedule": "training.schedules",
    "Translator": "export.translator",
}

__all__ = sorted(_HOMES)


def __getattr__(name):
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module = import_module(f"{__name__}.{_HOMES[name]}")
    value = module if name == "presets" else getattr(module, name)
    globals()[name] = value
    return value


def __dir__():
    return sorted({*globals(), *__all__})

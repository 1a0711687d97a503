"""Transformers for Keras 3, from text to a served translation.

The pipeline, one line per stage:

- text in, batches out: `read_files`, `Tokenizer`, `TokenBatches`, `PackedBatches`;
- layers, written like the paper: `MultiHeadAttention`, `FeedForward`, `EncoderLayer`, ...;
- models: `Transformer`, `LanguageModel`, `SequenceClassifier`, named sizes in `presets`;
- training with `model.fit`: `TransformerSchedule`, `MaskedCrossentropy`, callbacks, checkpoints;
- search over any step function: `greedy_search`, `beam_search`, by `Greedy`, `Beam` or `Sample`;
- text to text: `Translator`, `TextGenerator`, and runs on disk: `save_run`, `load_run`;
- export: `translator.export(...)` writes a SavedModel for TensorFlow Serving;
- scores: `score_translations`, `text_perplexity`;
- pictures of what a model does: `keras_transformer.visualization`;
- the encoder on series: `rolling_windows`, `Forecaster`, `ForecastLoss`, `mase`.

Every name is imported when you first use it, so the command line answers at once, and JAX users
need no TensorFlow.

Example:
    >>> import keras_transformer as kt
    >>> layer = kt.EncoderLayer(d_model=8, num_heads=2, d_ff=32)
    >>> ops.shape(layer(np.ones((1, 3, 8))))
    (1, 3, 8)
"""

from keras_transformer import lazy, saved_classes

__version__ = "0.2.0"

__getattr__, __dir__, __all__ = lazy.lazy_names(__name__)
saved_classes.register_now_or_after_keras()

"""The public names, for editors and type checkers; `__init__.py` imports them on first use."""

from keras_transformer import presets as presets
from keras_transformer import visualization as visualization
from keras_transformer.data.batching import TokenBatches as TokenBatches
from keras_transformer.data.corpus import Corpus as Corpus
from keras_transformer.data.corpus import read_files as read_files
from keras_transformer.data.corpus import read_tsv as read_tsv
from keras_transformer.data.packing import PackedBatches as PackedBatches
from keras_transformer.data.packing import SplitTexts as SplitTexts
from keras_transformer.data.packing import hold_out as hold_out
from keras_transformer.data.pair_batches import PairBatches as PairBatches
from keras_transformer.data.prepare import prepare_store as prepare_store
from keras_transformer.data.synthetic import synthetic_pairs as synthetic_pairs
from keras_transformer.data.text_lines import CorpusError as CorpusError
from keras_transformer.data.text_lines import read_lines as read_lines
from keras_transformer.data.tfds_corpus import read_tfds as read_tfds
from keras_transformer.data.token_store import TokenStore as TokenStore
from keras_transformer.data.tokenizer import Tokenizer as Tokenizer
from keras_transformer.data.vocabulary import Vocabulary as Vocabulary
from keras_transformer.decoding.beam import beam_search as beam_search
from keras_transformer.decoding.greedy import greedy_search as greedy_search
from keras_transformer.decoding.history import Hypothesis as Hypothesis
from keras_transformer.decoding.history import beam_history as beam_history
from keras_transformer.decoding.result import SearchResult as SearchResult
from keras_transformer.decoding.row_options import RowOptions as RowOptions
from keras_transformer.decoding.search_model import SearchModel as SearchModel
from keras_transformer.decoding.strategies import Beam as Beam
from keras_transformer.decoding.strategies import Greedy as Greedy
from keras_transformer.decoding.strategies import Sample as Sample
from keras_transformer.decoding.strategies import Strategy as Strategy
from keras_transformer.evaluation.perplexity import TextPerplexity as TextPerplexity
from keras_transformer.evaluation.perplexity import text_perplexity as text_perplexity
from keras_transformer.evaluation.scores import Scores as Scores
from keras_transformer.evaluation.scores import exact_match as exact_match
from keras_transformer.evaluation.scores import score_translations as score_translations
from keras_transformer.export.classifier import export_classifier as export_classifier
from keras_transformer.forecasting.export import export_forecaster as export_forecaster
from keras_transformer.forecasting.forecaster import Forecaster as Forecaster
from keras_transformer.forecasting.instance_normalization import (
    NormalizedWindows as NormalizedWindows,
)
from keras_transformer.forecasting.instance_normalization import (
    normalize_windows as normalize_windows,
)
from keras_transformer.forecasting.loss import ForecastLoss as ForecastLoss
from keras_transformer.forecasting.scores import interval_coverage as interval_coverage
from keras_transformer.forecasting.scores import mase as mase
from keras_transformer.forecasting.scores import naive_error as naive_error
from keras_transformer.forecasting.scores import scaled_pinball as scaled_pinball
from keras_transformer.forecasting.scores import seasonal_naive as seasonal_naive
from keras_transformer.forecasting.windows import ForecastWindows as ForecastWindows
from keras_transformer.forecasting.windows import rolling_origins as rolling_origins
from keras_transformer.forecasting.windows import rolling_windows as rolling_windows
from keras_transformer.forecasting.windows import windows_at as windows_at
from keras_transformer.inference.answers import Alignments as Alignments
from keras_transformer.inference.answers import TextScores as TextScores
from keras_transformer.inference.answers import Translations as Translations
from keras_transformer.inference.inspection import Inspection as Inspection
from keras_transformer.inference.inspection import inspect_translation as inspect_translation
from keras_transformer.inference.run_directory import RunError as RunError
from keras_transformer.inference.run_directory import load_run as load_run
from keras_transformer.inference.run_directory import save_run as save_run
from keras_transformer.inference.text_generator import Generations as Generations
from keras_transformer.inference.text_generator import TextGenerator as TextGenerator
from keras_transformer.inference.text_generator import load_generator as load_generator
from keras_transformer.inference.translator import Translator as Translator
from keras_transformer.inference.translator import load_translator as load_translator
from keras_transformer.layers.attention import attention_scores as attention_scores
from keras_transformer.layers.attention import dot_product_attention as dot_product_attention
from keras_transformer.layers.attention_memory import KVCache as KVCache
from keras_transformer.layers.attention_memory import Memory as Memory
from keras_transformer.layers.attention_memory import ScoreRecorder as ScoreRecorder
from keras_transformer.layers.decoder_layer import DecoderLayer as DecoderLayer
from keras_transformer.layers.encoder_layer import EncoderLayer as EncoderLayer
from keras_transformer.layers.feed_forward import FeedForward as FeedForward
from keras_transformer.layers.masks import causal_mask as causal_mask
from keras_transformer.layers.masks import combine_masks as combine_masks
from keras_transformer.layers.masks import padding_mask as padding_mask
from keras_transformer.layers.multi_head_attention import MultiHeadAttention as MultiHeadAttention
from keras_transformer.layers.pooling import masked_mean as masked_mean
from keras_transformer.layers.positional_embedding import PositionalEmbedding as PositionalEmbedding
from keras_transformer.layers.positional_embedding import (
    sinusoidal_positions as sinusoidal_positions,
)
from keras_transformer.models.decoder import Decoder as Decoder
from keras_transformer.models.encoder import Encoder as Encoder
from keras_transformer.models.ensemble import Ensemble as Ensemble
from keras_transformer.models.language_model import LanguageModel as LanguageModel
from keras_transformer.models.language_model import split_prompts as split_prompts
from keras_transformer.models.sequence_classifier import SequenceClassifier as SequenceClassifier
from keras_transformer.models.transformer import AttentionScores as AttentionScores
from keras_transformer.models.transformer import Transformer as Transformer
from keras_transformer.training.callbacks import DelayRDrop as DelayRDrop
from keras_transformer.training.callbacks import KeepBest as KeepBest
from keras_transformer.training.callbacks import TokenLogs as TokenLogs
from keras_transformer.training.callbacks import TokensPerSecond as TokensPerSecond
from keras_transformer.training.callbacks import UseAverage as UseAverage
from keras_transformer.training.checkpoints import CheckpointError as CheckpointError
from keras_transformer.training.checkpoints import TrainingCheckpoint as TrainingCheckpoint
from keras_transformer.training.distribution import strategy_scope as strategy_scope
from keras_transformer.training.epoch_weights import EpochWeights as EpochWeights
from keras_transformer.training.epoch_weights import average_weights as average_weights
from keras_transformer.training.losses import MaskedCrossentropy as MaskedCrossentropy
from keras_transformer.training.losses import smoothed_crossentropy as smoothed_crossentropy
from keras_transformer.training.metrics import MaskedAccuracy as MaskedAccuracy
from keras_transformer.training.metrics import Perplexity as Perplexity
from keras_transformer.training.precision import policy as policy
from keras_transformer.training.schedules import TransformerSchedule as TransformerSchedule
from keras_transformer.training.shards import (
    share_cores_between_shards as share_cores_between_shards,
)
from keras_transformer.training.stopping import StopEarly as StopEarly
from keras_transformer.training.stopping import StopOnNaN as StopOnNaN
from keras_transformer.training.stopping import TimeLimit as TimeLimit
from keras_transformer.training.tensorboard import AttentionMonitor as AttentionMonitor
from keras_transformer.training.tensorboard import TensorBoardMonitor as TensorBoardMonitor
from keras_transformer.training.tensorboard import read_curve as read_curve
from keras_transformer.training.tensorboard import write_projector as write_projector
from keras_transformer.training.translation_monitor import TranslationMonitor as TranslationMonitor

__version__: str

"""The public names, for editors and type checkers; `__init__.py` imports them on first use."""

from keras_transformer.visualization.attention import attention_maps as attention_maps
from keras_transformer.visualization.attention import word_attention as word_attention
from keras_transformer.visualization.beam import beam_tree as beam_tree
from keras_transformer.visualization.masks import mask_maps as mask_maps
from keras_transformer.visualization.monitor import FigureMonitor as FigureMonitor
from keras_transformer.visualization.pages import attention_page as attention_page
from keras_transformer.visualization.positions import position_map as position_map
from keras_transformer.visualization.positions import position_similarity as position_similarity
from keras_transformer.visualization.schedule import learning_rates as learning_rates

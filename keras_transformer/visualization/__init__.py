"""Pictures of attention, positions, the schedule, masks and the search.

Each function returns a matplotlib figure; `attention_page` returns a page of HTML.
Names are imported when you first use them.
"""

from keras_transformer import lazy

__getattr__, __dir__, __all__ = lazy.lazy_names(__name__)

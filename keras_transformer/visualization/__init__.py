"""Pictures of attention, positions, the schedule, masks and the search.

Each function returns a matplotlib figure; `attention_page` returns a page of HTML.
Names are imported when you first use them.
"""

from keras_transformer._lazy import lazy_names

__getattr__, __dir__, __all__ = lazy_names(__name__)

"""Pictures of attention, positions, the schedule, masks and the search.

Each function returns a matplotlib figure (extra `[plots]`), `attention_page` a page of HTML. Names
are imported on first use.
"""

from importlib import import_module

_HOMES = {
    "attention_maps": "attention",
    "attention_page": "pages",
    "beam_tree": "beam",
    "FigureMonitor": "monitor",
    "learning_rates": "schedule",
    "mask_maps": "masks",
    "position_map": "positions",
    "position_similarity": "positions",
    "word_attention": "attention",
}

__all__ = sorted(_HOMES)


def __getattr__(name):
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)


def __dir__():
    return sorted({*globals(), *__all__})

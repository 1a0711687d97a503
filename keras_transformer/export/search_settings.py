"""How a translator or a text generator searches."""

from typing import Any, NamedTuple

from keras_transformer.checks import check_choice, check_count, check_positive_int
from keras_transformer.decoding.coverage_penalty import check_coverage_penalty
from keras_transformer.decoding.length_penalty import check_length_penalty

SEARCHES = ("greedy", "beam", "sample")


class SearchSettings(NamedTuple):
    """The arguments of a `Translator`, or those of a `TextGenerator`, checked; see there."""

    search: str
    beam_size: int
    length_penalty: float
    min_length: int
    no_repeat_ngram: int
    sampler: Any
    max_length: int
    batch_size: int
    num_streams: int
    # The rest is a translator's alone.
    coverage_penalty: float = 0.0
    max_source_length: int = 1

    @property
    def longest(self) -> int:
        """The most tokens of a source or a translation."""
        return max(self.max_source_length, self.max_length)


def check_settings(settings: SearchSettings) -> SearchSettings:
    """The settings, if each is in range.

    Raises:
        ValueError: naming the first that is not.
    """
    check_choice("search", settings.search, SEARCHES)
    check_length_penalty(settings.length_penalty)
    check_coverage_penalty(settings.coverage_penalty)
    sizes = ("beam_size", "max_source_length", "max_length", "batch_size", "num_streams")
    checked = {name: check_positive_int(name, getattr(settings, name)) for name in sizes}
    for name in ("min_length", "no_repeat_ngram"):
        checked[name] = check_count(name, getattr(settings, name))
    settings = settings._replace(**checked)
    if settings.min_length > settings.max_length:
        raise ValueError(
            f"min_length must be at most max_length={settings.max_length}, but is "
            f"{settings.min_length}."
        )
    if (settings.sampler is None) == (settings.search == "sample"):
        raise ValueError(
            f'search="sample" and a sampler go together, but search is {settings.search!r} and '
            f"sampler is {settings.sampler!r}; pass sampler=sampler(seed=1), or neither."
        )
    if settings.sampler is not None and not callable(settings.sampler):
        raise ValueError(f"sampler must be what sampler() returns, but is {settings.sampler!r}.")
    return settings

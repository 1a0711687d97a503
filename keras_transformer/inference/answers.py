"""What a translator answers: texts with their scores, alignments, scores of given texts."""

from collections.abc import Sequence
from typing import NamedTuple

from keras_transformer.inference.word_alignment import pharaoh, word_pairs
from keras_transformer.type_hints import Floats


class Translations(NamedTuple("Translations", [("texts", list[str]), ("scores", list[float])])):
    """Translated texts, and the score of each: its log-probability over the length penalty.

    Attributes:
        texts: list of strings.
        scores: list of floats, at most 0; higher is better.
        source_cut: list of booleans, whether only the beginning of the source was read.
        ended: list of booleans, whether the translation reached its end and not a limit.

    Example:
        >>> texts, scores = Translations(["Ein Hund rennt."], [-0.5])
        >>> texts
        ['Ein Hund rennt.']
    """

    # Not among the two fields, so that those unpack as `texts, scores`.
    source_cut: list[bool]
    ended: list[bool]

    def __new__(
        cls,
        texts: list[str],
        scores: list[float],
        source_cut: Sequence[bool] = (),
        ended: Sequence[bool] = (),
    ):
        self = super().__new__(cls, texts, scores)
        self.source_cut, self.ended = list(map(bool, source_cut)), list(map(bool, ended))
        return self


class Alignments(NamedTuple):
    """Translated texts, and what each of their pieces looks at in the source.

    Attributes:
        texts: list of strings.
        scores: list of floats.
        source_pieces: for each text, the S subwords of its source and their end token.
        target_pieces: for each text, its T subwords and, if it has ended, their end token.
        attention: for each text, an array (T, S): the mean of all heads of the last decoder layer.

    Example:
        >>> pieces = ["▁a", "▁dog", "</s>"], ["▁ein", "▁Hund", "</s>"]
        >>> alignments = Alignments(["ein Hund"], [-0.1], [pieces[0]], [pieces[1]], [np.eye(3)])
        >>> alignments.words(), alignments.pharaoh()
        ([[(0, 0), (1, 1)]], ['0-0 1-1'])
    """

    texts: list[str]
    scores: list[float]
    source_pieces: list[list[str]]
    target_pieces: list[list[str]]
    attention: list[Floats]

    def words(self) -> list[list[tuple[int, int]]]:
        """For each text, pairs (source word, target word) of words that spaces separate."""
        rows = zip(self.attention, self.source_pieces, self.target_pieces, strict=True)
        return [word_pairs(*row) for row in rows]

    def pharaoh(self) -> list[str]:
        """For each text, its `words` in one string, such as "0-0 1-2 2-1"."""
        return [pharaoh(pairs) for pairs in self.words()]


class TextScores(NamedTuple):
    """The log-probability of each text, and of each of its tokens, the end token last.

    Example:
        >>> log_probs, token_log_probs = TextScores([-1.5], [[-1.0, -0.5]])
        >>> sum(token_log_probs[0]) == log_probs[0]
        True
    """

    log_probs: list[float]
    token_log_probs: list[list[float]]


def aligned_row(text, score, source_pieces, target_pieces, attention) -> tuple:
    """The fields of `Alignments` of one text, from a row of what the signature `align` answers."""
    source = [piece.decode() for piece in source_pieces if piece]
    target = [piece.decode() for piece in target_pieces if piece]
    return text.decode(), float(score), source, target, attention[: len(target), : len(source)]

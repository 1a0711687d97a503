"""How close translations are to references: sacreBLEU's scores, with their signatures."""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from sacrebleu.metrics import BLEU, CHRF

from keras_transformer.checks import check_aligned, check_choice


class Scores(NamedTuple):
    """Corpus scores from 0 to 100, and the signatures that make them comparable.

    Example:
        >>> score_translations(["A dog runs home ."], ["A dog runs home ."]).bleu_signature[:17]
        'nrefs:1|case:mixe'
    """

    bleu: float
    chrf: float
    bleu_signature: str
    chrf_signature: str


def check_bleu_tokenize(tokenize: str) -> str:
    """Returns `tokenize` if sacreBLEU has such a tokenizer; call it before you translate.

    Raises:
        ValueError: if it is unknown, or packages that it needs are not installed.
    """
    try:
        BLEU(tokenize=tokenize, force=True).corpus_score(["a"], [["a"]])
    except Exception as error:  # sacreBLEU raises RuntimeError, ValueError and its own
        reason = " ".join(str(error).split())
        raise ValueError(f"sacreBLEU's tokenizer {tokenize!r} cannot be used: {reason}") from error
    return tokenize


def score_translations(
    translations: Iterable[str], references: Iterable[str], tokenize: str = "13a"
) -> Scores:
    """Computes BLEU (cased) and chrF of detokenized text.

    Post (2018), "A Call for Clarity in Reporting BLEU Scores"; Popovic (2015), "chrF".

    Args:
        translations: strings.
        references: strings, one per translation.
        tokenize: sacreBLEU's tokenizer for BLEU; "none" for text that is tokenized already.

    Returns:
        `Scores`.

    Raises:
        ValueError: if the numbers differ or are 0.
        TypeError: if an element is not a string.

    Example:
        >>> score_translations(["A dog runs home ."], ["A dog runs home ."]).bleu
        100.0
    """
    translations, references = _aligned(translations, references)
    # `force` silences sacreBLEU's warning about tokenized text, which "none" is for.
    bleu, chrf = BLEU(tokenize=tokenize, force=tokenize == "none"), CHRF()
    bleu_score = bleu.corpus_score(translations, [references]).score
    chrf_score = chrf.corpus_score(translations, [references]).score
    signatures = str(bleu.get_signature()), str(chrf.get_signature())
    return Scores(round(bleu_score, 10), round(chrf_score, 10), *signatures)


def count_words(texts: Iterable[str], tokenize: str = "13a") -> list[int]:
    """Counts the words of each text, as a tokenizer of sacreBLEU's splits it.

    Args:
        texts: strings.
        tokenize: as for `score_translations`.

    Example:
        >>> count_words(["a dog runs.", "犬が走る"]), count_words(["犬が走る"], "char")
        ([4, 1], [4])
    """
    bleu = BLEU(tokenize=tokenize, force=True, effective_order=True)
    return [bleu.sentence_score(text, [text]).sys_len for text in texts]


def nearest(translations: Sequence[str], reference: str, by: str = "chrf") -> int:
    """Finds the translation of a sentence that is nearest to a reference.

    Args:
        translations: strings, at least one.
        reference: a string.
        by: "chrf", or "bleu" with the n-grams that a sentence has (sacreBLEU's effective order).

    Returns:
        The place of the nearest, of several the first.

    Raises:
        ValueError: if `by` is another.

    Example:
        >>> nearest(["ein Hund", "der Hund rennt"], "ein Hund rennt")
        1
    """
    check_choice("by", by, ("chrf", "bleu"))
    metric = CHRF() if by == "chrf" else BLEU(effective_order=True)
    scores = [metric.sentence_score(text, [reference]).score for text in translations]
    return scores.index(max(scores))


def exact_match(translations: Iterable[str], references: Iterable[str]) -> float:
    """Computes the percentage of translations that equal their reference, in every character.

    Args:
        translations: strings.
        references: strings, one per translation.

    Raises:
        ValueError: if the numbers differ or are 0.
        TypeError: if an element is not a string.

    Example:
        >>> exact_match(["ein Hund", "eine Katze"], ["ein Hund", "die Katze"])
        50.0
    """
    pairs = list(zip(*_aligned(translations, references), strict=True))
    return 100.0 * sum(translation == reference for translation, reference in pairs) / len(pairs)


def _aligned(translations, references):
    """Returns both as lists of strings, at least one each."""
    texts = check_aligned(translations=translations, references=references)
    if not texts[0]:
        raise ValueError("translations is empty, so there is nothing to score; give at least one.")
    return texts

"""How near translations are to references: sacreBLEU's numbers, with their signatures."""

from typing import NamedTuple

from sacrebleu.metrics import BLEU, CHRF

from keras_transformer.checks import check_texts


class Scores(NamedTuple):
    """Corpus scores from 0 to 100, and the signatures that make them comparable."""

    bleu: float
    chrf: float
    bleu_signature: str
    chrf_signature: str


def check_bleu_tokenize(tokenize: str) -> str:
    """`tokenize`, if it is a tokenizer of sacreBLEU whose own packages are installed.

    Raises:
        ValueError: if it is not; to be had before the work whose result is to be scored.
    """
    try:
        BLEU(tokenize=tokenize, force=True).corpus_score(["a"], [["a"]])
    except Exception as error:  # sacreBLEU raises RuntimeError, ValueError and its own
        reason = " ".join(str(error).split())
        raise ValueError(f"sacreBLEU's tokenizer {tokenize!r} cannot be used: {reason}") from error
    return tokenize


def score_translations(translations, references, tokenize="13a") -> Scores:
    """BLEU (cased) and chrF of detokenized text.

    Post (2018), "A Call for Clarity in Reporting BLEU Scores"; Popovic (2015), "chrF".

    Args:
        translations: list of strings.
        references: list of strings, one for each translation.
        tokenize: sacreBLEU's tokenizer for BLEU; "none" for text that is tokenized already.

    Returns:
        `Scores`.

    Raises:
        ValueError: if the lists differ in number or are empty.
        TypeError: if they hold something else than strings.

    Example:
        >>> score_translations(["A dog runs home ."], ["A dog runs home ."]).bleu
        100.0
    """
    translations, references = _aligned(translations, references)
    # `force` only keeps sacreBLEU from warning of tokens that are wanted.
    bleu, chrf = BLEU(tokenize=tokenize, force=tokenize == "none"), CHRF()
    bleu_score = bleu.corpus_score(translations, [references]).score
    chrf_score = chrf.corpus_score(translations, [references]).score
    signatures = str(bleu.get_signature()), str(chrf.get_signature())
    return Scores(round(bleu_score, 10), round(chrf_score, 10), *signatures)


def exact_match(translations, references) -> float:
    """The percentage of translations equal to their reference, character by character.

    Args:
        translations: list of strings.
        references: list of strings, one for each translation.

    Raises:
        ValueError: if the lists differ in number or are empty.
        TypeError: if they hold something else than strings.
    """
    pairs = list(zip(*_aligned(translations, references), strict=True))
    return 100.0 * sum(translation == reference for translation, reference in pairs) / len(pairs)


def _aligned(translations, references):
    """Both as lists of strings, if they can be scored."""
    translations = check_texts("translations", translations)
    references = check_texts("references", references)
    if len(translations) != len(references):
        raise ValueError(
            f"There are {len(translations)} translations but {len(references)} references; "
            "give one reference for each translation."
        )
    if not translations:
        raise ValueError("There is nothing to score: the list of translations is empty.")
    return translations, references

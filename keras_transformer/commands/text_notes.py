"""What looks like a mistake in text to train on, to validate on or to score by, as notes."""

import unicodedata
from collections import Counter
from collections.abc import Iterator
from operator import eq

from keras_transformer.commands.messages import counted
from keras_transformer.data.token_store import TokenStore
from keras_transformer.evaluation.scores import count_words

# How Unicode's names of letters begin, in the scripts that have no space between words.
UNSPACED = ("CJK", "IDEOGRAPHIC", "HIRAGANA", "KATAKANA", "HALFWIDTH KATAKANA")
UNSPACED += ("THAI", "LAO", "KHMER", "MYANMAR", "TIBETAN")
# The words of these languages are shorter on average, where a tool has put spaces between them.
LONG_WORDS = 6
# The tokenizers that need no spaces.
OF_UNSPACED = ("char", "zh", "ja-mecab", "ko-mecab")
# BLEU counts words in rows of up to so many.
LONGEST_ROW = 4


def notes_on(train, valid=None) -> Iterator[str]:
    """Yields what looks like a mistake in the text to train on, unless it is a store.

    Args:
        train: the `Corpus` or `TokenStore` to train on.
        valid: the `Corpus` to validate on, or None.
    """
    if isinstance(train, TokenStore):
        return
    pairs = len(train.sources)
    same = sum(map(eq, *train[:2]))
    if 2 * same > pairs:
        yield f"note: in {same:,} of {counted(pairs, 'pair')} source and target are the same text"
    known = set(zip(*train[:2], strict=True))
    again = pairs - len(known)
    if 2 * again > pairs:
        yield f"note: {again:,} of {counted(pairs, 'pair')} repeat another pair"
    if valid is None:
        return
    seen = sum(pair in known for pair in zip(*valid[:2], strict=True))
    if 10 * seen > len(valid.sources):
        yield (
            f"note: {seen:,} of {counted(len(valid.sources), 'pair')} to validate on are in the "
            "text to train on, too; their scores say nothing of other text"
        )


def bleu_note(references, tokenize) -> str | None:
    """Returns a note if BLEU says little, as references have few words, or None."""
    for_those = "for a language without spaces give char, zh, ja-mecab or ko-mecab"
    enough = sum(number >= LONGEST_ROW for number in count_words(references, tokenize))
    if 2 * enough < len(references):
        return (
            f"note: by --bleu-tokenize {tokenize} only {enough:,} of {len(references):,} "
            f"references have four words, so BLEU says little; {for_those}"
        )
    if tokenize in OF_UNSPACED or not is_unspaced(references):
        return None
    words = [word for text in references for word in text.split()]
    length = sum(map(len, words)) / len(words)
    if length <= LONG_WORDS:
        return None
    return (
        f"note: the references have a space after {length:.0f} characters on average, so BLEU with "
        f"--bleu-tokenize {tokenize} says little; {for_those}"
    )


def is_unspaced(texts) -> bool:
    """Returns whether most letters of texts are of scripts that have no space between words.

    >>> is_unspaced(["猫は魚を食べる。"]), is_unspaced(["고양이는 생선을 먹는다."])
    (True, False)
    """
    counts = Counter()
    for text in texts:
        counts.update(text)
    # Some of these scripts write vowels as marks.
    letters = {c: n for c, n in counts.items() if unicodedata.category(c)[0] in "LM"}
    unspaced = sum(n for c, n in letters.items() if unicodedata.name(c, "").startswith(UNSPACED))
    return 2 * unspaced > sum(letters.values())

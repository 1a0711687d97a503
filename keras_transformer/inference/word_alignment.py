"""Which word of a translation comes from which word of its source, by the model's attention."""

import numpy as np

END, SPACE = "</s>", "\u2581"


def word_pairs(attention, source_pieces, target_pieces) -> list[tuple[int, int]]:
    """Pairs each word of a translation with the source word that it attends to most.

    Words are what spaces separate. The attention of a word is that of all of its pieces; end tokens
    are left out.

    Args:
        attention: (T, S), of each target piece to each source piece.
        source_pieces: S strings, as SentencePiece writes them.
        target_pieces: T strings.

    Returns:
        Pairs (source word, target word), counted from 0, sorted.
    """
    source, target = one_hot(word_of_each(source_pieces)), one_hot(word_of_each(target_pieces))
    if not source.size:
        return []
    totals = target.T @ np.asarray(attention) @ source  # (target words, source words)
    return sorted((int(row.argmax()), word) for word, row in enumerate(totals))


def word_of_each(pieces) -> list[int]:
    """Returns which word each piece belongs to, counted from 0; -1 for spaces and end tokens."""
    words, count, inside = [], 0, False
    for piece in pieces:
        word = -1
        for char in "" if piece == END else piece:
            if char == SPACE:
                inside = False
                continue
            count += not inside
            word, inside = count - 1, True
        words.append(word)
    return words


def one_hot(words) -> np.ndarray:
    """Returns a matrix (pieces, words) with a 1 where a piece belongs to a word."""
    return (np.array(words, int)[:, None] == np.arange(max(words, default=-1) + 1)).astype(float)


def pharaoh(pairs) -> str:
    """Writes pairs of words as Pharaoh and its successors do, such as "0-0 1-2 2-1"."""
    return " ".join(f"{source}-{target}" for source, target in pairs)

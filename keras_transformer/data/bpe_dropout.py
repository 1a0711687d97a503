"""BPE-dropout: words split at random, in the same way in every process."""

import collections
import functools
import itertools
import re
from collections.abc import Iterable
from typing import NamedTuple

import numpy as np
import sentencepiece
from sentencepiece import sentencepiece_model_pb2

from keras_transformer.data.special_tokens import UNK_ID
from keras_transformer.data.token_rows import TokenRows, replaced, take

TEXTS_AT_ONCE = 10_000  # bounds the memory of `words`
CELLS = 2**16  # characters merged at once: few enough for the processor's cache
NOTHING = 0  # the number of no symbol: an unknown character, one merged into another, padding
NEVER = np.iinfo("int32").max


class Words(NamedTuple):
    """Texts cut into words that are split independently of each other.

    Attributes:
        offsets: the words of text i are `found[offsets[i]:offsets[i + 1]]`.
        found: which distinct word stands at each place, int32.
        characters: the symbol of each character of each distinct word.
        pairs: what each of these characters and the next one of its word become.
        plain: the ids of each distinct word without dropout.
        merges: how many merges lead to them.
    """

    offsets: np.ndarray
    found: np.ndarray
    characters: TokenRows
    pairs: np.ndarray
    plain: TokenRows
    merges: np.ndarray


class BpeDropout:
    """Splits texts as a SentencePiece BPE model does, but skips merges at random.

    SentencePiece mixes a number of the process into the seed of its own sampling. This class draws
    from a NumPy generator instead; the distribution is the same. Of all pairs of neighbours that
    form a piece, the one with the best score is next: it is dropped with probability `rate`, or
    merged. A dropped pair stays apart until a merge beside it makes another pair.

    Most words need no merging at all: the number of merges before the first drop is geometric, and
    if a word takes fewer, its ids are those without dropout. The others are merged side by side, in
    arrays.

    Args:
        model: the bytes of a SentencePiece model.

    Raises:
        ValueError: if the model is not of the type BPE.
    """

    def __init__(self, model: bytes):
        proto = sentencepiece_model_pb2.ModelProto.FromString(model)
        spec, types = proto.trainer_spec, sentencepiece_model_pb2.ModelProto.SentencePiece
        if spec.model_type != spec.BPE:
            raise ValueError(
                "BPE-dropout needs a SentencePiece model of the type BPE, but the tokenizer's is "
                f"of the type {spec.ModelType.Name(spec.model_type)}; train it with BPE, or do "
                "without BPE-dropout."
            )
        self.processor = sentencepiece.SentencePieceProcessor(model_proto=model)
        ids = {kind: {} for kind in types.Type.values()}
        for i, piece in enumerate(proto.pieces):
            ids[piece.type][piece.piece] = i
        self.whole = ids[types.USER_DEFINED]
        self.bytes = ids[types.BYTE] if spec.byte_fallback else None
        pieces = ids[types.NORMAL] | ids[types.UNUSED]
        characters = sorted(set(itertools.chain.from_iterable(pieces)))
        self.number = {text: i for i, text in enumerate(dict.fromkeys([*characters, *pieces]), 1)}
        self._list_pairs(pieces, [-proto.pieces[i].score for i in pieces.values()])
        self._list_neighbours(characters, pieces)
        ids_of = [[pieces[s]] if s in pieces else self._unknown(s) for s in self.number]
        self.ids = _rows([[], *ids_of])
        self.normal, self.has_unused = ids[types.NORMAL], bool(ids[types.UNUSED])
        if self.has_unused:
            self._take_apart(ids[types.UNUSED])

    def _list_pairs(self, pieces, costs):
        """Lists which symbols become which piece, and the order in which pieces are merged."""
        pairs = {}
        for piece in pieces:
            for i in range(1, len(piece)):
                left, right = self.number.get(piece[:i]), self.number.get(piece[i:])
                if left and right:
                    pairs[left << 32 | right] = self.number[piece]
        self.tables = _hash_tables(
            np.fromiter(pairs, "uint64"), np.fromiter(pairs.values(), "int32")
        )
        self.rank = np.full(len(self.number) + 1, NEVER, "int32")
        ranks = np.unique(np.array(costs), return_inverse=True)[1]
        self.rank[[self.number[piece] for piece in pieces]] = ranks

    def _list_neighbours(self, characters, pieces):
        """Lists the characters that stand side by side in a piece: words are cut between others."""
        points = [*map(ord, characters), 0]
        self.symbol = np.zeros(max(points) + 2, "int32")  # of each code point
        self.symbol[points[:-1]] = np.arange(1, len(points))
        self.are_neighbours = np.zeros(2**20, bool)
        for piece in pieces:
            symbols = self._symbols(piece)
            self.are_neighbours[_slot(symbols[:-1], symbols[1:])] = True

    def _symbols(self, text):
        points = np.frombuffer(text.encode("utf-32-le"), "uint32")
        return self.symbol[np.minimum(points, len(self.symbol) - 1)]

    def _unknown(self, character):
        """The ids of a character that is no piece."""
        if self.bytes is None:
            return [UNK_ID]
        return [self.bytes[f"<0x{byte:02X}>"] for byte in character.encode()]

    def _take_apart(self, unused):
        """Gives the pieces that must not be used the ids of the parts that they are made of."""
        unused = sorted((piece for piece in unused if len(piece) > 1), key=len)
        characters = _rows([self._symbols(piece) for piece in unused])
        last = characters.lengths - 2  # without its last merge, a piece is its two parts
        parts = self._split(characters, self._pairs(characters), np.arange(len(unused)), last)
        ids = dict(enumerate(np.split(self.ids.values, self.ids.offsets[1:-1])))
        for i, piece in enumerate(unused):
            own = parts.values[parts.offsets[i] : parts.offsets[i + 1]]
            ids[self.number[piece]] = np.concatenate([ids[part] for part in own])
        self.ids = _rows(list(ids.values()))

    def words(self, texts: Iterable[str]) -> Words:
        """Cuts texts into words, and splits each distinct word without dropout.

        No piece spans two words: a text is cut between two characters that stand side by side in
        no piece. So a "word" may also be a part of one.

        Args:
            texts: strings without lone surrogates.
        """
        texts = list(texts)
        index = collections.defaultdict(itertools.count().__next__)
        found, counts = [np.zeros(0, "int32")], [np.zeros(1, "int64")]
        for begin in range(0, len(texts), TEXTS_AT_ONCE):
            chunk = self.processor.normalize(texts[begin : begin + TEXTS_AT_ONCE])
            text, ends = "".join(chunk), np.cumsum([*map(len, chunk)])
            starts = np.flatnonzero(self._is_start(chunk, text, ends))
            counts.append(np.diff(np.searchsorted(starts, ends), prepend=0))
            words = [text[i:j] for i, j in itertools.pairwise([*starts.tolist(), len(text)])]
            found.append(np.fromiter(map(index.__getitem__, words), "int32", len(words)))
        return self._plain(list(index), np.concatenate(found), np.cumsum(np.concatenate(counts)))

    def _is_start(self, texts, joined, ends):
        """Whether a word begins at each character of the joined texts."""
        symbols = self._symbols(joined)
        is_start = np.ones(len(symbols), bool)
        left, right = symbols[:-1], symbols[1:]
        is_start[1:] = ~self.are_neighbours[_slot(left, right)] | (left == 0) | (right == 0)
        if self.whole:
            longest_first = sorted(self.whole, key=len, reverse=True)
            pattern = re.compile("|".join(map(re.escape, longest_first)))
            for text, end in zip(texts, ends.tolist(), strict=True):
                for match in pattern.finditer(text):
                    first, after = (end - len(text) + place for place in match.span())
                    is_start[first : after + 1] = True
                    is_start[first + 1 : after] = False
        is_start[ends[ends < len(symbols)]] = True
        return is_start

    def _plain(self, words, found, offsets):
        """Makes `Words` of the distinct words, the places of each, and the words of each text."""
        lengths = np.fromiter(map(len, words), "int64", len(words))
        characters = TokenRows(self._symbols("".join(words)), np.append(0, np.cumsum(lengths)))
        pairs = self._pairs(characters)
        is_unknown = characters.values[characters.offsets[:-1]] == NOTHING
        fixed = {i: self._unknown(words[i]) for i in np.flatnonzero(is_unknown)}
        if self.whole:
            fixed |= {i: [self.whole[w]] for i, w in enumerate(words) if w in self.whole}
        for i in fixed:
            pairs[characters.offsets[i] : characters.offsets[i + 1]] = NOTHING
        everything = np.arange(len(words))
        symbols = self._split(characters, pairs, everything, np.full(len(words), NEVER))
        plain, merges = self._spelled(symbols), lengths - symbols.lengths
        if fixed:
            merges[[*fixed]] = 0
            plain = replaced(plain, np.array([*fixed]), _rows([*fixed.values()]))
        return Words(offsets, found, characters, pairs, plain, merges)

    def sample(self, words: Words, rate: float, seed: int) -> TokenRows:
        """Draws a split of every text.

        Args:
            words: the texts, from `words`.
            rate: the probability that a merge is dropped, in [0, 1].
            seed: what is drawn depends on it and on all of the texts.

        Returns:
            The ids of each text, `TokenRows`.
        """
        rows, generator = words.plain.of(words.found), np.random.default_rng(seed)
        if rate:
            before_drop = _before_drop(generator, rate, len(words.found))
            dropped = np.flatnonzero(before_drop < words.merges[words.found])
            split = words.characters, words.pairs, words.found[dropped], before_drop[dropped]
            rows = replaced(rows, dropped, self._spelled(self._split(*split, rate, generator)))
        rows = TokenRows(rows.values, rows.offsets[words.offsets])
        return rows if self.bytes is not None else _unknown_once(rows)

    def sample_ids(self, rows: TokenRows, rate: float, seed: int) -> TokenRows:
        """Draws a split of every text that is known by its ids without dropout.

        It draws what `sample` draws. An unknown id stays as it is.

        Args:
            rows: the ids of each text.
            rate: the probability that a merge is dropped, in [0, 1].
            seed: what is drawn depends on it and on all of the texts.

        Raises:
            ValueError: if the vocabulary has pieces that must not be used: ids do not tell how they
                were merged.
        """
        if self.has_unused:
            raise ValueError(
                "BPE-dropout from ids needs a vocabulary without unused pieces; train from text, "
                "or do without BPE-dropout."
            )
        if not rate or not len(rows.values):
            return rows
        words = self._words_of_ids(rows)
        merges = np.add.reduceat(self.spelling.lengths[rows.values], words.offsets[:-1])
        merges -= words.lengths
        generator = np.random.default_rng(seed)
        before_drop = _before_drop(generator, rate, len(merges))
        dropped = np.flatnonzero(before_drop < merges)
        ids, places = words.of(dropped), np.arange(len(dropped))
        spelled = self.spelling.of(ids.values)
        characters = TokenRows(spelled.values, spelled.offsets[ids.offsets])
        split = characters, self._pairs(characters), places, before_drop[dropped]
        words_at = np.searchsorted(words.offsets, rows.offsets)
        words = replaced(words, dropped, self._spelled(self._split(*split, rate, generator)))
        return TokenRows(words.values, words.offsets[words_at])

    def _words_of_ids(self, rows):
        """Cuts rows of ids between the words that `words` finds in their texts."""
        spelling = self.spelling
        # The symbols at the ends of each id; NOTHING for one that is never split.
        symbols, is_split = np.append(spelling.values, NOTHING), spelling.lengths > 0
        first = np.where(is_split, symbols[spelling.offsets[:-1]], NOTHING)
        last = np.where(is_split, symbols[spelling.offsets[1:] - 1], NOTHING)
        left, right = last[rows.values[:-1]], first[rows.values[1:]]
        are_apart = ~self.are_neighbours[_slot(left, right)] | (left == 0) | (right == 0)
        is_start = np.append(True, are_apart & ~self.goes_on[rows.values[1:]])
        is_start[rows.offsets[:-1][rows.lengths > 0]] = True
        return TokenRows(rows.values, np.append(np.flatnonzero(is_start), len(rows.values)))

    @functools.cached_property
    def spelling(self) -> TokenRows:
        """The symbols of the characters of each id; none of one that is never split."""
        spelling = [[]] * self.processor.get_piece_size()
        for piece, i in self.normal.items():
            spelling[i] = self._symbols(piece)
        return _rows(spelling)

    @functools.cached_property
    def goes_on(self) -> np.ndarray:
        """Whether each id is a byte that goes on with a character."""
        bytes_after_the_first = [i for byte, i in (self.bytes or {}).items() if byte[3] in "89AB"]
        goes_on = np.zeros(self.processor.get_piece_size(), bool)
        goes_on[bytes_after_the_first] = True
        return goes_on

    def _pairs(self, characters):
        """What each character and the next one of its row become."""
        pairs = self._become(characters.values[:-1], characters.values[1:])
        pairs = np.append(pairs, np.int32(NOTHING))[: len(characters.values)]
        pairs[characters.offsets[1:][characters.lengths > 0] - 1] = NOTHING
        return pairs

    def _become(self, left, right):
        keys = left.astype("uint64") << np.uint64(32) | right.astype("uint64")
        becomes = np.full(len(keys), NOTHING, "int32")
        for known, values, *hashing in self.tables:
            slots = _hash(keys, *hashing)
            is_there = known[slots] == keys
            becomes[is_there] = values[slots[is_there]]
        return becomes

    def _spelled(self, symbols):
        """The ids of rows of symbols."""
        starts, lengths = self.ids.offsets[:-1], self.ids.lengths
        ids = take(self.ids.values, starts[symbols.values], lengths[symbols.values])
        return TokenRows(ids.values, ids.offsets[symbols.offsets])

    def _split(self, characters, pairs, words, before_drop, rate=0.0, generator=None):
        """Merges the characters of some words; returns the symbols that are left, `TokenRows`.

        The words are merged in groups of similar length, so that few cells are padding.
        """
        order = np.argsort(characters.lengths[words], kind="stable")
        lengths = characters.lengths[words[order]]
        values, counts, begin = [np.zeros(0, "int32")], [np.zeros(0, "int64")], 0
        while begin < len(order):
            most = max(CELLS // (lengths[begin] + 1), 1)
            end = min(begin + most, np.searchsorted(lengths, 1.5 * lengths[begin] + 2, "right"))
            group, width = order[begin:end], lengths[end - 1] + 1
            matrix = characters.padded(words[group], width)
            becomes = characters._replace(values=pairs).padded(words[group], width)
            self._merge(matrix, becomes, before_drop[group], rate, generator)
            values.append(matrix[matrix != NOTHING])
            counts.append((matrix != NOTHING).sum(axis=1))
            begin = end
        offsets = np.append(0, np.cumsum(np.concatenate(counts)))
        place = np.empty_like(order)
        place[order] = np.arange(len(order))
        return take(np.concatenate(values), offsets[:-1][place], np.diff(offsets)[place])

    def _merge(self, symbols, becomes, before_drop, rate, generator):
        """Merges the symbols of each row (R, L) in place; the last column is NOTHING.

        A merged pair stands at the place of its left symbol. Cells are numbered through all rows.
        """
        height, width = symbols.shape
        following = np.arange(1, symbols.size + 1)
        previous = np.arange(-1, symbols.size - 1)
        previous[::width] += width  # before the first symbol there is nothing, too
        rank = self.rank[becomes]
        cells, pair_at, rank_at = symbols.ravel(), becomes.ravel(), rank.ravel()
        rows, merges_left = np.arange(height), before_drop.copy()
        while len(rows):
            best = rank[rows].argmin(axis=1) + rows * width
            goes_on = rank_at[best] != NEVER
            rows, best = rows[goes_on], best[goes_on]
            is_dropped = merges_left[rows] == 0
            merges_left[rows] -= 1
            drops = best[is_dropped]
            rank_at[drops] = NEVER
            merges_left[rows[is_dropped]] = _before_drop(generator, rate, len(drops))
            at = best[~is_dropped]
            gone = following[at]
            after, before = following[gone], previous[at]
            cells[at], cells[gone], rank_at[gone] = pair_at[at], NOTHING, NEVER
            following[at], previous[after] = after, at
            for first, second in ((before, at), (at, after)):
                pair_at[first] = self._become(cells[first], cells[second])
                rank_at[first] = self.rank[pair_at[first]]


def _before_drop(generator, rate, size):
    """How many merges come before the next drop."""
    return generator.geometric(rate, size) - 1 if rate else NEVER


def _hash_tables(keys, values):
    """Tables of keys and values; each takes the keys that found no slot in the one before."""
    tables, generator = [], np.random.default_rng(0)
    while len(keys):
        bits = (8 * len(keys)).bit_length()
        hashing = (
            generator.integers(2**63, dtype="uint64") * np.uint64(2) + np.uint64(1),
            np.uint64(64 - bits),
        )
        slots = _hash(keys, *hashing)
        known, found = np.zeros(2**bits, "uint64"), np.zeros(2**bits, "int32")
        known[slots] = keys
        is_in = known[slots] == keys
        found[slots[is_in]] = values[is_in]
        tables.append((known, found, *hashing))
        keys, values = keys[~is_in], values[~is_in]
    return tables


def _hash(keys, multiplier, shift):
    return (keys * multiplier >> shift).astype("int64")


def _slot(left, right):
    """A place for two neighbours. Several may share one, which only makes words longer."""
    return (left.astype("int64") * 1021 + right) % 2**20


def _rows(lists):
    offsets = np.cumsum([0, *map(len, lists)])
    return TokenRows(np.fromiter(itertools.chain.from_iterable(lists), "int32"), offsets)


def _unknown_once(rows):
    """Leaves one of several unknown ids in a row, as SentencePiece does."""
    is_unknown = rows.values == UNK_ID
    is_kept = np.append(True, ~(is_unknown[1:] & is_unknown[:-1]))[: len(is_unknown)]
    is_kept[rows.offsets[:-1][rows.lengths > 0]] = True
    return TokenRows(rows.values[is_kept], np.append(0, np.cumsum(is_kept))[rows.offsets])

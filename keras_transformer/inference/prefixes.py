"""Prefixes of texts: their last word is not cut into pieces, since it may go on."""

import re
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import tensorflow as tf

from keras_transformer.data.special_tokens import NUM_SPECIAL_TOKENS, PAD_ID
from keras_transformer.decoding.beginning import Spelling

# The most bytes of a last word that are left open. Scripts without spaces have long ones.
MOST_BYTES = 32
SPACE = "\u2581".encode()
BYTE_PIECE = re.compile("<0x([0-9A-F]{2})>")


@dataclass(frozen=True, eq=False)
class Prefixes:
    """Prefixes as a search needs them, by the pieces of a tokenizer; see `decoding.beginning`."""

    tokenizer: Any

    def split(self, tokens, most_bytes=MOST_BYTES):
        """Splits each prefix into tokens and a last word, for which the search chooses the pieces.

        No piece of the tokenizer reaches across the space before a word, but for symbols of the
        user. So only the last word can still change its pieces.

        Args:
            tokens: ragged ids (B, None).
            most_bytes: the most bytes of the text.

        Returns:
            The tokens, int32 (B, P), padded with 0, and the texts, strings (B,).
        """
        ids = tokens.to_tensor(PAD_ID)  # (B, P)
        pieces = tf.gather(tf.constant(self.texts), ids)  # (B, P)
        size = tf.cumsum(tf.strings.length(pieces), axis=1, reverse=True)  # with those after it
        places = tf.range(tf.shape(ids)[1])  # (P,)
        is_start = tf.gather(tf.constant([text.startswith(SPACE) for text in self.texts]), ids)
        last_word = tf.reduce_max(tf.where(is_start, places, 0), axis=1, keepdims=True)  # (B, 1)
        is_open = (places >= last_word) & (size <= most_bytes)  # (B, P)
        texts = tf.strings.reduce_join(tf.where(is_open, pieces, ""), axis=1)  # (B,)
        return tf.where(is_open, PAD_ID, ids), texts

    def spans(self, texts):
        """The `prefix_text` of texts (B,): int32 (B, W, 2); W is 0 if all are empty."""
        characters = tf.strings.bytes_split(texts)  # (B, None)
        lengths = tf.cast(characters.row_lengths(), tf.int32)[:, None]  # (B, 1)
        characters = characters.to_tensor("\0")  # (B, S)
        width = tf.shape(characters)[1]
        data = tf.reshape(tf.io.decode_raw(characters, tf.uint8), tf.shape(characters))
        data = tf.cast(data, tf.int32)  # (B, S)
        starts = tf.range(width)[None]  # (1, S)
        is_text = starts < lengths  # (B, S)

        def read(i, nodes, alive):
            """Reads one more byte of what is left from each byte on."""
            byte = tf.roll(data, -i, axis=1)  # (B, S)
            children = self._children(nodes, byte)  # (B, S), 0 for none
            more = alive & (starts + i < lengths)
            alive = alive & ((children > 0) | ~more)
            return i + 1, tf.where(more & (children > 0), children, nodes), alive

        state = tf.constant(0), tf.zeros_like(data), is_text
        _, nodes, alive = tf.while_loop(lambda i, *_: i < width, read, state)
        ends = tf.where(alive, tf.gather(self.tree[1], nodes), nodes)  # (B, S)
        spans = tf.where(is_text[:, :, None], tf.stack([nodes, ends], axis=2), 0)  # (B, S, 2)
        return self._one_space(texts, spans, lengths)

    def _children(self, nodes, byte):
        """The node below each node by a byte, or 0."""
        _, _, edges, children = self.tree
        wanted = tf.reshape(nodes * 256 + byte, [-1])
        places = tf.minimum(tf.searchsorted(edges, wanted), len(edges) - 1)
        found = tf.where(tf.gather(edges, places) == wanted, tf.gather(children, places), 0)
        return tf.reshape(found, tf.shape(nodes))

    def _one_space(self, texts, spans, lengths):
        """Adds to `spans` that after a space at the end of a text no token begins with one."""
        nodes, ends, *_ = self.tree
        space = nodes.get(SPACE, 0)
        avoided = tf.constant([-space, int(ends[space])])  # (2,)
        has_space = tf.strings.regex_full_match(texts, ".*" + SPACE.decode())  # (B,)
        size = tf.shape(spans)
        spans = tf.pad(spans, [[0, 0], [0, tf.minimum(size[1], 1)], [0, 0]])  # (B, W, 2)
        here = (tf.range(tf.shape(spans)[1])[None] == lengths) & has_space[:, None]  # (B, W)
        return tf.where(here[:, :, None] & (space > 0), avoided, spans)

    @cached_property
    def texts(self) -> list[bytes]:
        """What each token spells: a piece of text, a byte, or nothing."""
        texts = []
        for i, piece in enumerate(self.tokenizer.pieces(range(self.tokenizer.vocab_size))):
            byte = BYTE_PIECE.fullmatch(piece)
            text = bytes([int(byte[1], 16)]) if byte else piece.encode()
            texts.append(b"" if i < NUM_SPECIAL_TOKENS else text)
        return texts

    @cached_property
    def tree(self):
        """The tree of all texts.

        Returns:
            The node of each beginning, a dict. For each node, the first that is not below it. The
            edges, sorted, each the node above times 256 plus a byte, and the nodes below: int32.
        """
        beginnings = {text[:i] for text in self.texts for i in range(len(text) + 1)}
        nodes = {text: i for i, text in enumerate(sorted(beginnings | {b""}))}
        sizes = np.ones(len(nodes), "int32")
        for text, node in reversed(nodes.items()):
            if text:
                sizes[nodes[text[:-1]]] += sizes[node]
        edges = {nodes[text[:-1]] * 256 + text[-1]: node for text, node in nodes.items() if text}
        edges = np.array(sorted(edges.items()), "int32")
        return nodes, np.arange(len(nodes), dtype="int32") + sizes, edges[:, 0], edges[:, 1]

    def spelling(self, vocab_size) -> Spelling:
        """What the tokens of a model spell, which may have more than the tokenizer."""
        nodes, ends, *_ = self.tree
        places = np.array([nodes[text] for text in self.texts], "int32")  # (V,)
        lengths = np.array([len(text) for text in self.texts], "int32")
        columns = places, np.where(places > 0, ends[places], 0), lengths
        missing = vocab_size - len(self.texts)
        return Spelling(*(np.pad(column, (0, missing)).astype("int32") for column in columns))

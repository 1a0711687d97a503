"""Sentence pairs to batches: tokenized once in memory, or with BPE-dropout in every epoch."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

import numpy as np

from keras_transformer import checks
from keras_transformer.data.pair_batches import PairBatches, check_batching
from keras_transformer.data.token_rows import TokenPairs, limited, tokenize_rows

if TYPE_CHECKING:
    from keras_transformer.data.tokenizer import Tokenizer


class TokenBatches(PairBatches):
    """Batches of sentence pairs of similar length, for `model.fit`.

    A batch holds about `batch_tokens` target positions, so a step costs the same for long and for
    short sentences. Pairs are grouped by length into `num_buckets` fixed shapes, which keeps
    padding and the number of compiled graphs low. Pairs that do not fill a batch join the next
    longer bucket. Empty rows fill the last batch; neither loss nor metrics count them. The order
    depends only on the seed and the epoch.

    Args:
        sources: the source strings.
        targets: the target strings, aligned with `sources`.
        tokenizer: the tokenizer of both sides.
        batch_tokens: target positions per batch, including padding.
        num_buckets: the largest number of shapes.
        max_pair_length: leaves out pairs with a longer side, counted in tokens with the end token.
            `num_too_long` says how many.
        shuffle: whether every epoch has another order.
        seed: the seed of that order and of BPE-dropout.
        bpe_dropout: the rate of `Tokenizer.sample`, which splits the text again in every epoch;
            0 uses the one split that translation uses.

    Raises:
        ValueError: if the numbers of sources and targets differ, no pair is left, or a size is out
            of range.
        TypeError: if a text is not a string.

    Example:
        >>> tokenizer = Tokenizer.train_on_texts(["a dog runs"] * 9, vocab_size=300)
        >>> batches = TokenBatches(["a dog"] * 3, ["a dog runs"] * 3, tokenizer)
        >>> (source_ids, target_ids), labels = next(batches.epoch(0))
        >>> source_ids.shape == target_ids.shape == labels.shape
        True
    """

    def __init__(
        self,
        sources: Iterable[str],
        targets: Iterable[str],
        tokenizer: Tokenizer,
        *,
        batch_tokens: int = 4096,
        num_buckets: int = 16,
        max_pair_length: int = 200,
        shuffle: bool = True,
        seed: int = 0,
        bpe_dropout: float = 0.0,
    ):
        self.texts = checks.check_aligned(sources=sources, targets=targets)
        sizes = {"batch_tokens": batch_tokens, "num_buckets": num_buckets}
        check_batching(**sizes, max_pair_length=max_pair_length, seed=seed, bpe_dropout=bpe_dropout)
        self.tokenizer, self.bpe_dropout = tokenizer, bpe_dropout
        self.words = [tokenizer.words(texts) for texts in self.texts] if bpe_dropout else None
        super().__init__(
            TokenPairs(*(tokenize_rows(texts, tokenizer) for texts in self.texts)),
            **sizes,
            max_pair_length=max_pair_length,
            shuffle=shuffle,
            seed=seed,
            sample=self._sample if bpe_dropout else None,
        )

    def _sample(self, epoch, attempt, longest):
        """Returns the token ids of an epoch; a text that gets too long keeps its plain ids."""
        seeds = np.random.default_rng((self.seed, epoch, attempt)).integers(2**31, size=2)
        sides = []
        for words, plain, seed in zip(self.words, self.tokenized, seeds, strict=True):
            rows = self.tokenizer.bpe_dropout.sample(words, self.bpe_dropout, seed)
            sides.append(limited(rows, plain, longest))
        return TokenPairs(*sides)

"""A store: the token ids of a corpus of any size on disk, and the batches to train on."""

from __future__ import annotations

import copy

import numpy as np

from keras_transformer.data.pair_batches import PairBatches, check_batching
from keras_transformer.data.sampled_epochs import SampledEpochs
from keras_transformer.data.store_files import StoredPairs
from keras_transformer.data.token_rows import TokenPairs
from keras_transformer.type_hints import StrPath


class TokenStore(StoredPairs):
    r"""The token ids of a corpus of any size, on disk; `prepare_store` writes it.

    Its files are mapped into memory, so a batch reads only its own rows, and several processes
    share what was read. It needs no TensorFlow.

    Args:
        path: the directory.

    Attributes:
        pairs: the ids, `TokenPairs`.
        manifest: what `store.json` says, a dict.

    Raises:
        FileError: if it is no store, of a later format, or not what was written.

    Example:
        >>> import pathlib, tempfile
        >>> folder = tempfile.mkdtemp()
        >>> _ = pathlib.Path(folder, "text.tsv").write_text("a dog\tein Hund\n" * 9)
        >>> texts, vocabulary = [(f"{folder}/text.tsv",)], Vocabulary(size=300)
        >>> _ = prepare_store(f"{folder}/store", texts, vocabulary, processes=1)
        >>> batches = TokenStore(f"{folder}/store").batches(batch_tokens=64)
        >>> (source_ids, target_ids), labels = next(batches.epoch(0))
        >>> source_ids.shape == target_ids.shape == labels.shape
        True
    """

    left_out, num_alike = np.zeros(0, "int64"), 0

    @property
    def skipped(self) -> dict[str, int]:
        """How many pairs of the text were left out, by reason."""
        counts = {"with a source to validate on": self.num_alike} if self.num_alike else {}
        for corpus in self.manifest["corpora"]:
            for text in corpus["texts"]:
                for reason, number in text["skipped"].items():
                    counts[reason] = counts.get(reason, 0) + number
        return counts

    def split(self, number: int, seed: int) -> tuple[TokenStore, TokenPairs]:
        """Draws pairs to validate on.

        Args:
            number: how many.
            seed: of the draw.

        Returns:
            This store without the pairs that have a source in the draw, and the pairs drawn.

        Raises:
            ValueError: if nothing else would be left.
        """
        size = len(self)
        if number >= size:
            raise ValueError(f"{number} pairs to validate on leave nothing of {size}; draw fewer.")
        drawn = np.sort(np.random.default_rng(seed).permutation(size)[:number])
        rest = copy.copy(self)
        rest.left_out = self.pairs.sources.equal_to(drawn)
        rest.num_alike = len(rest.left_out) - number
        if len(rest.left_out) == size:
            raise ValueError(f"{number} pairs to validate on leave no other source; draw fewer.")
        return rest, TokenPairs(*(side.of(drawn) for side in self.pairs))

    def batches(
        self,
        *,
        batch_tokens: int = 4096,
        num_buckets: int = 16,
        max_pair_length: int = 200,
        shuffle: bool = True,
        seed: int = 0,
        bpe_dropout: float = 0.0,
        folder: StrPath | None = None,
    ) -> PairBatches:
        """Makes the batches that `TokenBatches` makes of the same text.

        With BPE-dropout what is drawn differs, since processes draw for many pairs each. It is a
        function of the store, the seed and the epoch, too.

        Args:
            batch_tokens, num_buckets, max_pair_length, shuffle, seed: as for `TokenBatches`.
            bpe_dropout: the rate; processes split the text of the next epoch while one is read.
            folder: where to write these epochs, to find them again; None for a temporary folder.

        Returns:
            `PairBatches`: `dataset()` for TensorFlow, `sequence()` for any backend.

        Raises:
            ValueError: if a size is out of range, or no pair is short enough.
        """
        sizes = {"batch_tokens": batch_tokens, "num_buckets": num_buckets}
        check_batching(**sizes, max_pair_length=max_pair_length, seed=seed, bpe_dropout=bpe_dropout)
        sample = None
        if bpe_dropout:
            sample = SampledEpochs(self, bpe_dropout, seed, folder)
        rest = {"max_pair_length": max_pair_length, "shuffle": shuffle, "seed": seed}
        rest |= {"leave_out": self.left_out, "sample": sample}
        return PairBatches(self.pairs, **sizes, **rest)

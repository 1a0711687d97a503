"""Reads the text that `keras-transformer train` is given."""

import hashlib
from collections import Counter
from typing import NamedTuple

import numpy as np

from keras_transformer.commands.messages import log
from keras_transformer.data.corpus import Corpus, CorpusError, read_files, read_tfds, read_tsv
from keras_transformer.training.run_record import TextRecord

NUM_SYNTHETIC_VALID = 500


class Texts(NamedTuple):
    """What a run trains on, and what it validates on, if anything."""

    train: Corpus
    valid: Corpus | None


def read_texts(options) -> Texts:
    """Reads the corpora that the options name."""
    valid, train = (read_both(options, prefix) for prefix in ("valid_", ""))
    if options.tfds:
        texts = tfds_texts(options.tfds, valid, options.errors, options.valid_split is None)
    elif options.synthetic:
        texts = synthetic_texts(options.num_pairs, options.seed, valid)
    else:
        texts = Texts(train, valid)
    if options.valid_split is None:
        return texts
    return split_texts(texts.train, options.valid_split, options.seed)


def read_both(options, prefix: str) -> Corpus | None:
    """Reads --source and --target, or --tsv, or those with a prefix; None if none is given."""
    errors = {"errors": options.errors}
    if files := getattr(options, prefix + "source"):
        pairs = zip(files, getattr(options, prefix + "target"), strict=True)
        return joined([read_files(*pair, **errors) for pair in pairs])
    if files := getattr(options, prefix + "tsv"):
        return joined([read_tsv(file, **errors) for file in files])
    return None


def joined(corpora) -> Corpus:
    """Joins the pairs of several files."""
    sources = [source for corpus in corpora for source in corpus.sources]
    targets = [target for corpus in corpora for target in corpus.targets]
    skipped = sum((Counter(corpus.skipped) for corpus in corpora), Counter())
    return Corpus(sources, targets, dict(skipped))


def split_texts(corpus: Corpus, number: int, seed: int) -> Texts:
    """Draws pairs to validate on; training sees none of their sources."""
    size = len(corpus.sources)
    if number >= size:
        raise ValueError(f"--valid-split {number} leaves nothing of {size} pairs; give fewer.")
    drawn = np.sort(np.random.default_rng(seed).permutation(size)[:number])
    valid = Corpus(*([column[i] for i in drawn] for column in corpus[:2]), {})
    held_out, places = set(valid.sources), set(drawn.tolist())
    rest = [i for i in range(size) if corpus.sources[i] not in held_out]
    if not rest:
        raise ValueError(f"--valid-split {number} leaves no other sentence; give fewer.")
    same = size - len(places) - len(rest)
    skipped = corpus.skipped | {"with a source to validate on": same}
    return Texts(Corpus(*([column[i] for i in rest] for column in corpus[:2]), skipped), valid)


def tfds_texts(name: str, valid: Corpus | None, errors: str, validates: bool = True) -> Texts:
    """Reads a data set of tensorflow-datasets, to validate on its own split where it has one."""
    train = read_tfds(name, errors=errors)
    if not validates:
        return Texts(train, None)
    try:
        return Texts(train, valid or read_tfds(name, split="validation", errors=errors))
    except CorpusError as error:
        log(f"no text to validate on ({error}); name some with --valid-source and --valid-target")
        return Texts(train, None)


def synthetic_texts(num_pairs: int, seed: int, valid: Corpus | None) -> Texts:
    """Generates pairs, and other pairs to validate on, unless there is text for that."""
    from keras_transformer.data.synthetic import synthetic_pairs

    texts = []
    for split, size in (("train", num_pairs), ("valid", NUM_SYNTHETIC_VALID)):
        pairs = synthetic_pairs(size, split=split, seed=seed)
        texts.append(Corpus(*map(list, zip(*pairs, strict=True)), {}))
    return Texts(texts[0], valid or texts[1])


def corpus_records(options, texts: Texts) -> dict[str, TextRecord]:
    """Describes the text that is in no file which an option names, by what was read of it."""
    name = options.tfds or options.synthetic and "synthetic"
    if not name:
        return {}
    records = {"tfds" if options.tfds else "synthetic": _corpus_record(name, texts.train)}
    if texts.valid is not None and not (options.valid_source or options.valid_tsv):
        records["validation"] = _corpus_record(name, texts.valid)
    return records


def _corpus_record(name: str, corpus: Corpus) -> TextRecord:
    digest = hashlib.sha256()
    for pair in zip(*corpus[:2], strict=True):
        digest.update("\t".join(pair).encode() + b"\n")
    return TextRecord(name, len(corpus.sources), digest.hexdigest())

"""Reads the text that `keras-transformer train` is given."""

import hashlib
import os
from collections import Counter
from pathlib import Path
from typing import NamedTuple

import numpy as np

from keras_transformer.backend import STEPS_ARE_PURE
from keras_transformer.commands.messages import counted, log
from keras_transformer.commands.prepare import shown, text_files
from keras_transformer.commands.progress import stage
from keras_transformer.commands.training_run.resume import STORE, tokenizer_path
from keras_transformer.commands.vocabulary_size import choose_vocab_size, vocab_size_of_files
from keras_transformer.data.corpus import Corpus, read_files, read_tsv
from keras_transformer.data.prepare import has_plan, prepare_planned, store_plan
from keras_transformer.data.subwords import join_ids_to_texts
from keras_transformer.data.text_lines import CorpusError
from keras_transformer.data.tfds_corpus import read_tfds
from keras_transformer.data.token_store import TokenStore
from keras_transformer.data.vocabulary import Vocabulary
from keras_transformer.training.jax_devices import leave_gpus_to_jax
from keras_transformer.training.run_record import TextRecord

NUM_SYNTHETIC_VALID = 500
# Of a text of this size, hundreds of thousands of pairs, a store is made beside the run.
LARGE_BYTES = 2**26


class Texts(NamedTuple):
    """What a run trains on, and what it validates on, if anything."""

    train: Corpus | TokenStore
    valid: Corpus | None


def training_store(options, files, record) -> TokenStore | None:
    """Opens the store to train on, made beside the run if the text is large; None if it is small.

    Args:
        options: of the command.
        files: the `TextRecord` of each file that the options name.
        record: of the run that is resumed, or None.
    """
    if options.store:
        store = TokenStore(options.store)
        if record is None:
            with stage("checking the store", quiet=options.quiet):
                store.check()
        return store
    is_older = record is not None and "tokenizer_lines" not in record.options
    if not is_large(options) or is_older:  # it began with all of the text in memory
        return None
    out, texts, known = Path(options.out) / STORE, text_files(options), {}
    for file in files.values():
        known[file.name] = {"size": file.size, "sha256": file.sha256}
    if options.tokenizer is not None:
        tokenizer = Path(options.tokenizer).read_bytes()
    else:
        with stage("counting the text", quiet=options.quiet):
            choose_vocab_size(options, lambda: vocab_size_of_files(texts))
        tokenizer = Vocabulary(options.vocab_size, options.tokenizer_lines, options.seed)
    plan = store_plan(texts, tokenizer, options.errors, known=known)
    if record is not None and not has_plan(out, plan):
        tokenizer = tokenizer_path(options.out).read_bytes()
        plan = store_plan(texts, tokenizer, options.errors, known=known)
    return prepare_planned(out, plan, texts, tokenizer, replace=True, show=shown(options))


def is_large(options) -> bool:
    """Returns whether the text to train on is too large to be read again at each start."""
    files = [*(options.source or ()), *(options.target or ()), *(options.tsv or ())]
    if not files or not all(map(os.path.isfile, files)):
        return False
    return sum(os.path.getsize(file) for file in files) >= LARGE_BYTES


def read_texts(options, store=None) -> Texts:
    """Reads the corpora that the options name; a store takes the place of the text to train on."""
    valid = read_both(options, "valid_")
    if store is not None:
        return split_store(store, options) if options.valid_split else Texts(store, valid)
    train = read_both(options, "")
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
        sources = counted(len(held_out), "different source")
        raise ValueError(
            f"--valid-split {number} leaves nothing to train on, as the text has only {sources}; "
            "give fewer, or name text with --valid-source and --valid-target."
        )
    same = size - len(places) - len(rest)
    skipped = corpus.skipped | {"with a source to validate on": same}
    return Texts(Corpus(*([column[i] for i in rest] for column in corpus[:2]), skipped), valid)


def split_store(store: TokenStore, options) -> Texts:
    """Draws pairs of a store to validate on, as `split_texts` does of its text."""
    try:
        rest, drawn = store.split(options.valid_split, options.seed)
    except ValueError as error:
        raise ValueError(f"--valid-split: {error}") from error
    model = store.tokenizer_model
    return Texts(rest, Corpus(*(join_ids_to_texts(model, side) for side in drawn), {}))


def tfds_texts(name: str, valid: Corpus | None, errors: str, validates: bool = True) -> Texts:
    """Reads a data set of tensorflow-datasets, to validate on its own split where it has one."""
    if STEPS_ARE_PURE:
        leave_gpus_to_jax()
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

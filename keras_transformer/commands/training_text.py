"""Reads the text that `keras-transformer train` is given."""

import hashlib
from typing import NamedTuple

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
    has_files = options.source or options.target  # `read_both` finds out if one is missing
    origins = [has_files, options.tsv, options.tfds, options.synthetic]
    if sum(map(bool, origins)) != 1:
        raise ValueError("give one of --source and --target, --tsv, --tfds, --synthetic.")
    valid, train = (read_both(options, prefix) for prefix in ("valid_", ""))
    if options.tsv:
        train = read_tsv(options.tsv, errors=options.errors)
    if options.tfds:
        return tfds_texts(options.tfds, valid, options.errors)
    if options.synthetic:
        return synthetic_texts(options.num_pairs, options.seed, valid)
    return Texts(train, valid)


def read_both(options, prefix: str) -> Corpus | None:
    """Reads --source and --target, or those with a prefix; None if neither is given."""
    files = [getattr(options, prefix + side) for side in ("source", "target")]
    if not any(files):
        return None
    if not all(files):
        names = [f"--{prefix}{side}".replace("_", "-") for side in ("source", "target")]
        missing = names[1] if files[0] else names[0]
        raise ValueError(f"{' and '.join(names)} go together; {missing} is missing.")
    return read_files(*files, errors=options.errors)


def refuse_without_validation(options) -> None:
    """Refuses the options that need text to validate on."""
    for option, need in (("early-stopping", "a BLEU to watch"), ("plots", "a sentence to draw")):
        if getattr(options, option.replace("-", "_")):
            remedy = "name text with --valid-source and --valid-target"
            raise ValueError(f"--{option} needs {need}; {remedy}.")


def tfds_texts(name: str, valid: Corpus | None, errors: str) -> Texts:
    """Reads a data set of tensorflow-datasets, to validate on its own split where it has one."""
    train = read_tfds(name, errors=errors)
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
    if texts.valid is not None and not options.valid_source:
        records["validation"] = _corpus_record(name, texts.valid)
    return records


def _corpus_record(name: str, corpus: Corpus) -> TextRecord:
    digest = hashlib.sha256()
    for pair in zip(*corpus[:2], strict=True):
        digest.update("\t".join(pair).encode() + b"\n")
    return TextRecord(name, len(corpus.sources), digest.hexdigest())

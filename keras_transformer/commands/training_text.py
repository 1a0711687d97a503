"""The text that `keras-transformer train` was told to read."""

import sys
from typing import NamedTuple

from keras_transformer.data.corpus import Corpus, CorpusError, read_files, read_tfds, read_tsv

NUM_SYNTHETIC_VALID = 500


class Texts(NamedTuple):
    """What a run trains and, if there is any, validates on."""

    train: Corpus
    valid: Corpus | None


def read_texts(options) -> Texts:
    """The corpora that the options name."""
    files = options.source is not None or options.target is not None
    given = [files, options.tsv is not None, options.tfds is not None, options.synthetic]
    if sum(given) != 1:
        raise ValueError("give one of --source and --target, --tsv, --tfds, --synthetic.")
    both_or_none("--source", options.source, "--target", options.target)
    both_or_none("--valid-source", options.valid_source, "--valid-target", options.valid_target)
    valid = None
    if options.valid_source is not None:
        valid = read_files(options.valid_source, options.valid_target, errors=options.errors)
    if files:
        return Texts(read_files(options.source, options.target, errors=options.errors), valid)
    if options.tsv is not None:
        return Texts(read_tsv(options.tsv, errors=options.errors), valid)
    if options.tfds is not None:
        return tfds_texts(options.tfds, valid, options.errors)
    return synthetic_texts(options.num_pairs, options.seed, valid)


def tfds_texts(name: str, valid: Corpus | None, errors: str) -> Texts:
    """A set of tensorflow-datasets, validated on its own split where it has one."""
    train = read_tfds(name, errors=errors)
    try:
        return Texts(train, valid or read_tfds(name, split="validation", errors=errors))
    except CorpusError as error:
        say(f"no text to validate on ({error}); name some with --valid-source and --valid-target")
        return Texts(train, None)


def synthetic_texts(num_pairs: int, seed: int, valid: Corpus | None) -> Texts:
    """Generated pairs, validated on others unless there is text for that."""
    from keras_transformer.data.synthetic import synthetic_pairs

    splits = []
    for split, size in (("train", num_pairs), ("valid", NUM_SYNTHETIC_VALID)):
        sources, targets = zip(*synthetic_pairs(size, split=split, seed=seed), strict=True)
        splits.append(Corpus(list(sources), list(targets), {}))
    return Texts(splits[0], valid or splits[1])


def both_or_none(first: str, first_value, second: str, second_value) -> None:
    if (first_value is None) != (second_value is None):
        missing = first if first_value is None else second
        raise ValueError(f"{first} and {second} go together; {missing} is missing.")


def say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)

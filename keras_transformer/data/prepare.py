"""From text files to a store, on all cores; what was done before a stop is not done again."""

import json
import os
import shutil
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import closing
from pathlib import Path
from typing import NamedTuple
from zipfile import BadZipFile

import numpy as np

from keras_transformer.checks import check_choice, check_positive_int, check_seed
from keras_transformer.data.corpus import raw_pairs, refuse_unusable, usable_pairs
from keras_transformer.data.processes import num_cores, work
from keras_transformer.data.store_files import (
    FILES,
    MANIFEST,
    TOKENIZER,
    id_type,
    is_store,
    write_store,
)
from keras_transformer.data.subwords import check_model, split_texts_into_ids
from keras_transformer.data.text_lines import stream_lines
from keras_transformer.data.token_rows import TokenPairs, TokenRows
from keras_transformer.data.token_store import TokenStore
from keras_transformer.data.vocabulary import Vocabulary, learn_from_files, silent
from keras_transformer.files import (
    FileError,
    fingerprint,
    make_directory,
    read_json,
    remove,
    replacing,
    write_json,
)
from keras_transformer.type_hints import StageShower, StrPath

# The parts of a store while it is made, and what is made.
PARTS, PLAN = "parts", "plan.json"
PART_BYTES = 2**22  # of text: a second or two of work
Names = tuple[str, ...]  # the paths of both sides, or the one of a file with tabs


def prepare_store(
    out: StrPath,
    texts: Iterable[Names],
    tokenizer: bytes | Vocabulary,
    *,
    errors: str = "strict",
    processes: int | None = None,
    replace: bool = False,
    show: StageShower = silent,
) -> TokenStore:
    r"""Writes the token ids of parallel text to a directory, once for all trainings.

    The text is never in memory as a whole. What is written does not depend on the number of
    processes. Called again after a stop, it goes on: parts that are done are kept. Called again
    with the same text and options, it returns the store.

    Processes import the main module, so guard a script's code by `if __name__ == "__main__":`.

    Args:
        out: the directory.
        texts: pairs of paths, (source, target), or one path, (tsv,); they follow each other.
        tokenizer: the bytes of a tokenizer's model, or the `Vocabulary` to learn.
        errors: as for `read_files`.
        processes: how many; None for one on each core.
        replace: whether to replace a store of other text, or with other options.
        show: makes what shows a stage, as `silent` does.

    Returns:
        The `TokenStore`.

    Raises:
        ValueError: for bad options, `CorpusError` for bad text, as `read_files`; if the directory
            holds a store of something else.

    Example:
        >>> import pathlib, tempfile
        >>> folder = tempfile.mkdtemp()
        >>> _ = pathlib.Path(folder, "text.tsv").write_text("a dog\tein Hund\n" * 9)
        >>> store = prepare_store(
        ...     f"{folder}/store", [(f"{folder}/text.tsv",)], Vocabulary(size=300), processes=1
        ... )
        >>> len(store)
        9
    """
    texts = [tuple(map(os.fspath, names)) for names in texts]
    plan = store_plan(texts, tokenizer, errors)
    return prepare_planned(
        out, plan, texts, tokenizer, processes=processes, replace=replace, show=show
    )


def store_plan(texts, tokenizer, errors="strict", shard=(1, 1), known=None) -> dict:
    """Describes all that the content of a store depends on.

    Args:
        texts, tokenizer, errors: as for `prepare_store`.
        shard: (i, n), for the i-th of n parts by line number, from 1; `join_stores` joins them.
        known: the `fingerprint` of files that were read already, by their absolute paths.
    """
    check_choice("errors", errors, ("strict", "skip"))
    index, count = shard
    if not 1 <= index <= count:
        raise ValueError(f"shard must be (i, n) with 1 <= i <= n, but is {shard}.")
    if isinstance(tokenizer, bytes):
        check_model(tokenizer)
        asked = fingerprint(tokenizer)
    else:
        check_positive_int("size", tokenizer.size)
        check_positive_int("lines", tokenizer.lines)
        check_seed(tokenizer.seed)
        asked = tokenizer._asdict()
    if count > 1 and not (isinstance(tokenizer, bytes) and all(map(_is_file, texts))):
        raise ValueError(
            "Shards need a tokenizer that is there before, and files that can be read twice; "
            "learn one with keras-transformer tokenizer."
        )

    def described(path):
        if not os.path.isfile(path):
            return None
        return (known or {}).get(os.path.abspath(path)) or fingerprint(path)

    files = [list(map(described, names)) for names in texts]
    return {"texts": files, "tokenizer": asked, "errors": errors, "shard": [index, count]}


def prepare_planned(
    out, plan: dict, texts, tokenizer, *, processes=None, replace=False, show=silent
) -> TokenStore:
    """Writes the store of a plan; `prepare_store` says what the arguments are."""
    processes = check_positive_int("processes", num_cores() if processes is None else processes)
    out, folder = Path(out), Path(out) / PARTS
    if has_plan(out, plan):
        return TokenStore(out)
    if is_store(out):
        if not replace:
            raise ValueError(
                f"{out} holds a store of other text or with other options; name another "
                "directory, or replace it (replace=True, --force)."
            )
    else:
        _refuse_other_files(out)
    if not _goes_on(folder, plan):
        _begin(folder, plan)
    remove(out / MANIFEST)
    sizes = [_number_of_lines(names) for names in texts]
    model = _model(folder, texts, tokenizer, sizes, show)
    lines = _range(sizes, plan["shard"])
    total = None if None in sizes else len(lines)
    with show("splitting the text into subwords", total, "pairs") as progress:
        jobs = _jobs(texts, lines, plan["errors"])
        number = _write_parts(folder, jobs, model, processes, progress)
    _join_parts(out, number, texts, model, plan)
    shutil.rmtree(folder)
    return TokenStore(out)


def join_stores(out, paths: Iterable) -> TokenStore:
    """Joins the shards of a text, in their order, to the store that the whole text would give.

    Args:
        out: the directory.
        paths: the stores of all shards.

    Raises:
        ValueError: if one is missing, they are shards of different texts, or the directory holds
            a store of other text.
    """
    stores = sorted((TokenStore(path) for path in paths), key=lambda s: s.manifest["plan"]["shard"])
    plans = [store.manifest["plan"] for store in stores]
    count = plans[0]["shard"][1] if plans else 1
    if [plan["shard"] for plan in plans] != [[i, count] for i in range(1, count + 1)]:
        found = ", ".join("{}/{}".format(*plan["shard"]) for plan in plans) or "none"
        raise ValueError(
            f"shards 1/N to N/N are needed, but there are {found}; prepare the others."
        )
    whole = plans[0] | {"shard": [1, 1]}
    if is_store(out) and TokenStore(out).manifest["plan"] != whole:
        raise ValueError(f"{out} holds a store of other text; name another directory.")
    for store, plan in zip(stores, plans, strict=True):
        if plan | {"shard": [1, 1]} != whole:
            raise ValueError(
                f"{store.path} was prepared from other text or with other options than "
                f"{stores[0].path}; prepare it again."
            )
        store.check()
    texts = stores[0].manifest["corpora"][0]["texts"]
    for store in stores[1:]:
        for text, more in zip(texts, store.manifest["corpora"][0]["texts"], strict=True):
            text["pairs"] += more["pairs"]
            text["skipped"] = dict(Counter(text["skipped"]) + Counter(more["skipped"]))
    _refuse_unusable(texts)
    make_directory(out)
    parts = (store.pairs for store in stores)
    write_store(out, parts, stores[0].tokenizer_model, _manifest(stores[0].manifest, texts, whole))
    return TokenStore(out)


def _is_file(names) -> bool:
    return all(map(os.path.isfile, names))


def _number_of_lines(names) -> int | None:
    """Counts the lines of a text; None if it can be read only once."""
    return sum(1 for _ in stream_lines(names[0])) if _is_file(names) else None


def has_plan(out, plan) -> bool:
    """Returns whether a directory holds the store of a plan."""
    return is_store(out) and TokenStore(out).manifest["plan"] == plan and _is_repeatable(plan)


def _refuse_other_files(out) -> None:
    """Raises a ValueError for a directory that holds more than what a stop has left."""
    ours = {PARTS, MANIFEST, *FILES} if (out / PARTS).is_dir() else set()
    found = {path.name.removeprefix(".new-") for path in out.glob("*")}
    if not found <= ours:
        raise ValueError(f"{out} holds other files; name a new or an empty directory.")


def _is_repeatable(plan) -> bool:
    """Returns whether all texts of a plan are files, which can be compared."""
    return all(known is not None for text in plan["texts"] for known in text)


def _goes_on(folder, plan) -> bool:
    try:
        return _is_repeatable(plan) and read_json(folder / PLAN) == _of_parts(plan)
    except FileError:
        return False


def _begin(folder, plan) -> None:
    shutil.rmtree(folder, ignore_errors=True)
    make_directory(folder)
    write_json(folder / PLAN, _of_parts(plan))


def _of_parts(plan) -> dict:
    return plan | {"part_bytes": PART_BYTES}


def _model(folder, texts, tokenizer, sizes, show) -> bytes:
    """Returns the tokenizer's model: the one given, learnt before a stop, or learnt now."""
    if isinstance(tokenizer, bytes):
        return tokenizer
    path = folder / TOKENIZER
    if not path.is_file():
        if None in sizes:
            raise ValueError(
                "A text that is no file is read only once, so no vocabulary can be learnt from it; "
                "give a tokenizer, or a file."
            )
        model = learn_from_files(texts, tokenizer, sum(sizes), show)
        with replacing(path) as new:
            new.write_bytes(model)
    return path.read_bytes()


def _range(sizes, shard) -> range:
    """The numbers of the lines of a shard, counted through all texts."""
    if None in sizes:
        return range(2**62)
    (index, count), total = shard, sum(sizes)
    return range(total * (index - 1) // count, total * index // count)


class Job(NamedTuple):
    """A part of a text for one process."""

    text: int
    names: Names
    first: int  # the number of its first line in its text, from 1
    pairs: list[tuple[bytes, bytes]]
    errors: str


def _jobs(texts, lines, errors) -> Iterator[Job]:
    """Cuts the text into parts, which depend on nothing but the text and the lines to read."""
    before = 0
    for text, names in enumerate(texts):
        first, part, size, read = max(lines.start - before, 0), [], 0, 0
        with closing(raw_pairs(names)) as pairs:
            for read, pair in enumerate(pairs, start=1):
                if before + read - 1 not in lines:
                    continue
                part.append(pair)
                size += len(pair[0]) + len(pair[1])
                if size >= PART_BYTES:
                    yield Job(text, names, first + 1, part, errors)
                    first, part, size = first + len(part), [], 0
        before += read
        if part:
            yield Job(text, names, first + 1, part, errors)


def _part_path(folder, number) -> Path:
    return folder / f"{number:06d}.npz"


def _write_parts(folder, jobs, model, processes, progress) -> int:
    """Writes the parts that are missing; returns the number of all."""
    number = 0

    def missing():
        nonlocal number
        for job in jobs:
            path, number = _part_path(folder, number), number + 1
            if path.is_file():
                progress.advance(len(job.pairs))
            else:
                yield path, job, model

    with closing(jobs), closing(missing()) as parts:
        for pairs in work(_write_part, parts, processes):
            progress.advance(pairs)
    return number


def _write_part(path, job, model) -> int:
    """Splits a part and writes it; returns its number of pairs. A worker process runs this."""
    corpus = usable_pairs(job.pairs, job.names, job.first, job.errors)
    kind = id_type(check_model(model))
    columns = {"text": job.text, "skipped": json.dumps(corpus.skipped)}
    for side in ("sources", "targets"):
        rows = split_texts_into_ids(model, getattr(corpus, side))
        columns[side] = rows.values.astype(kind)
        columns[f"{side}_offsets"] = rows.offsets
    with replacing(path) as new, open(new, "wb") as file:
        np.savez(file, **columns)
    return len(job.pairs)


def _join_parts(out, number, texts, model, plan) -> None:
    """Writes the store of its parts."""
    folder = out / PARTS
    found = [
        {"paths": list(map(os.path.abspath, names)), "files": files, "pairs": 0, "skipped": {}}
        for names, files in zip(texts, plan["texts"], strict=True)
    ]

    def parts():
        for i in range(number):
            part = _read_part(_part_path(folder, i))
            pairs = TokenPairs(
                *(TokenRows(part[side], part[f"{side}_offsets"]) for side in ("sources", "targets"))
            )
            text, skipped = found[int(part["text"])], json.loads(str(part["skipped"]))
            text["pairs"] += len(pairs.sources.offsets) - 1
            text["skipped"] = dict(Counter(text["skipped"]) + Counter(skipped))
            yield pairs
        if plan["shard"] == [1, 1]:
            _refuse_unusable(found)

    manifest = {"vocab_size": check_model(model)}
    write_store(out, parts(), model, _manifest(manifest, found, plan))


def _read_part(path) -> dict:
    try:
        with np.load(path) as part:
            return dict(part)
    except (BadZipFile, ValueError, EOFError, OSError) as error:
        remove(path)
        raise FileError(f"{path} was damaged and is removed ({error}); start again.") from error


def _manifest(known, texts, plan) -> dict:
    corpora = [{"weight": 1.0, "texts": texts}]  # several corpora can be mixed by their weights
    return {"vocab_size": known["vocab_size"], "corpora": corpora, "plan": plan}


def _refuse_unusable(texts) -> None:
    """Raises a `CorpusError` for a text without a usable pair."""
    for text in texts:
        if not text["pairs"]:
            refuse_unusable(text["paths"], text["skipped"])

"""Stores: the same ids and batches as in memory, the same bytes however they were made."""

import copy
import gzip
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from keras_transformer import CorpusError, TokenBatches, Tokenizer, read_files, synthetic_pairs
from keras_transformer.data import prepare, sampled_epochs
from keras_transformer.data.prepare import join_stores, prepare_planned, prepare_store, store_plan
from keras_transformer.data.store_files import id_type
from keras_transformer.data.subwords import join_ids_to_texts, split_texts_into_ids
from keras_transformer.data.token_store import TokenStore
from keras_transformer.data.vocabulary import Vocabulary, draw_sample
from keras_transformer.files import FileError

SIZES = {"batch_tokens": 200, "num_buckets": 4, "max_pair_length": 60}
SMALL = Vocabulary(size=400)


@pytest.fixture(scope="module")
def texts(tmp_path_factory):
    """Two files of 400 pairs, some of them of no use, and the pairs."""
    folder = tmp_path_factory.mktemp("texts")
    sources, targets = map(list, zip(*synthetic_pairs(400), strict=True))
    sources[7], targets[90], sources[200] = "", " ", "x" * 10_001
    paths = folder / "train.en.gz", folder / "train.de"
    paths[0].write_bytes(gzip.compress(("\n".join(sources) + "\n").encode()))
    paths[1].write_text("\n".join(targets) + "\n", "utf-8")
    return [tuple(map(str, paths))]


@pytest.fixture(scope="module")
def store(texts, tmp_path_factory):
    return prepare_store(tmp_path_factory.mktemp("store") / "s", texts, SMALL, processes=1)


@pytest.fixture
def small_parts(monkeypatch):
    monkeypatch.setattr(prepare, "PART_BYTES", 3000)


def files_of(store):
    return {path.name: path.read_bytes() for path in store.path.iterdir()}


def assert_equal_batches(found, expected):
    for a, b in zip(found, expected, strict=True):
        for x, y in zip([*a[0], a[1]], [*b[0], b[1]], strict=True):
            np.testing.assert_array_equal(x, y)


def test_a_store_gives_the_batches_of_its_text(store, texts):
    corpus = read_files(*texts[0])
    assert len(store) == len(corpus.sources) and store.skipped == corpus.skipped
    tokenizer = Tokenizer(store.tokenizer_model)
    both = TokenBatches(*corpus[:2], tokenizer, **SIZES, seed=3), store.batches(**SIZES, seed=3)
    for name in ("num_batches", "num_too_long", "num_target_tokens", "widths", "batch_sizes"):
        assert getattr(both[0], name) == getattr(both[1], name)
    for epoch in (0, 3):
        assert_equal_batches(both[1].epoch(epoch, 2), list(both[0].epoch(epoch))[2:])


def test_few_lines_give_the_vocabulary_of_the_whole_text(store, texts):
    corpus = read_files(*texts[0])
    lines = corpus.sources + corpus.targets
    assert Tokenizer.train_on_texts(lines, vocab_size=400).model == store.tokenizer_model


@pytest.mark.slow
@settings(derandomize=True, deadline=None, max_examples=60)
@given(st.lists(st.text(max_size=30) | st.text("ab \u2581\n.", max_size=30), max_size=5))
def test_processes_split_any_text_as_the_graph_does(tokenizer, texts):
    rows = split_texts_into_ids(tokenizer.model, texts)
    found = [
        rows.values[i:j].tolist() for i, j in zip(rows.offsets, rows.offsets[1:], strict=False)
    ]
    assert found == tokenizer.tokenize(texts).to_list()
    assert join_ids_to_texts(tokenizer.model, rows) == texts


@pytest.mark.parametrize("processes", [1, pytest.param(2, marks=pytest.mark.slow)])
def test_the_bytes_do_not_depend_on_parts_or_processes(
    store, texts, tmp_path, small_parts, processes
):
    made = prepare_store(tmp_path / "s", texts, SMALL, processes=processes)
    assert files_of(made) == files_of(store)


def test_what_is_done_before_a_stop_is_not_done_again(
    store, texts, tmp_path, small_parts, monkeypatch
):
    write, calls = prepare._write_part, []

    def write_some(path, job, model):
        if len(calls) == 4:
            raise KeyboardInterrupt
        calls.append(path)
        return write(path, job, model)

    monkeypatch.setattr(prepare, "_write_part", write_some)
    with pytest.raises(KeyboardInterrupt):
        prepare_store(tmp_path / "s", texts, SMALL, processes=1)
    with pytest.raises(FileError, match="is no store; name a directory that prepare has written"):
        TokenStore(tmp_path / "s")
    learn = prepare.learn_from_files
    monkeypatch.setattr(prepare, "learn_from_files", lambda *_: pytest.fail("learnt again"))
    monkeypatch.setattr(prepare, "_write_part", lambda *args: calls.append(args[0]) or write(*args))
    made = prepare_store(tmp_path / "s", texts, SMALL, processes=1)
    assert len(calls) == len(set(calls)) > 8
    assert files_of(made) == files_of(store)
    monkeypatch.setattr(prepare, "_write_part", lambda *_: pytest.fail("made again"))
    assert files_of(prepare_store(tmp_path / "s", texts, SMALL, processes=1)) == files_of(store)
    monkeypatch.setattr(prepare, "learn_from_files", learn)


def test_parts_of_other_text_are_not_taken(store, texts, tmp_path, small_parts, monkeypatch):
    other = tmp_path / "other.en", tmp_path / "other.de"
    for path in other:
        path.write_text("a dog runs\n" * 400, "utf-8")
    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(prepare, "_join_parts", interrupt)
        prepare_store(tmp_path / "s", [other], SMALL, processes=1)
    made = prepare_store(tmp_path / "s", texts, SMALL, processes=1)
    assert files_of(made) == files_of(store)


def interrupt(*_):
    raise KeyboardInterrupt


def test_a_shard_may_be_empty(store, tmp_path):
    path, model = tmp_path / "few.tsv", store.tokenizer_model
    path.write_text("a\tb\n\n \t \nc\td\n".replace("\n\n", "\n\t\n"))
    shards = []
    for i in range(1, 6):
        plan = store_plan([(path,)], model, shard=(i, 5))
        shards.append(prepare_planned(tmp_path / f"{i}", plan, [(str(path),)], model, processes=1))
    assert [len(shard) for shard in shards].count(0) == 3
    joined = join_stores(tmp_path / "j", [shard.path for shard in shards])
    assert len(joined) == 2 and joined.skipped == {"empty": 2}


def test_no_text_gets_longer_than_the_longest_that_is_read(store):
    lengths = store.pairs.lengths
    most = int(np.median(lengths))
    rest = copy.copy(store)
    rest.left_out = rest.pairs.sources.equal_to(np.flatnonzero(lengths > most))
    assert 0 < len(rest.left_out) < len(store)
    batches = rest.batches(**SIZES, bpe_dropout=0.3)
    lengths = batches.plan(1).pairs.lengths[batches.kept]
    assert batches.longest == most and lengths.max() <= most


@pytest.mark.parametrize("count", [2, 7])
def test_joined_shards_are_the_whole(store, texts, tmp_path, count):
    corpora = [*texts, *texts]  # lines are counted through all files
    model = store.tokenizer_model
    whole = prepare_store(tmp_path / "whole", corpora, model, processes=1)
    shards = []
    for i in range(1, count + 1):
        path, plan = tmp_path / f"{i}", store_plan(corpora, model, shard=(i, count))
        shards.append(prepare_planned(path, plan, corpora, model, processes=1).path)
    with pytest.raises(ValueError, match=r"shards 1/N to N/N are needed, but there are 2/"):
        join_stores(tmp_path / "j", shards[1:])
    joined = join_stores(tmp_path / "j", shards)
    assert files_of(joined) == files_of(whole)
    assert files_of(join_stores(tmp_path / "j", shards)) == files_of(whole)
    with pytest.raises(ValueError, match="holds a store of other text; name another directory"):
        join_stores(store.path, shards)


def test_a_file_with_tabs_is_the_same_text(store, texts, tmp_path):
    source = gzip.decompress(Path(texts[0][0]).read_bytes()).decode()
    sides = source.split("\n"), Path(texts[0][1]).read_text("utf-8").split("\n")
    path = tmp_path / "both.tsv"
    path.write_text("\n".join(map("\t".join, zip(*sides, strict=True))).strip("\t"), "utf-8")
    made = prepare_store(tmp_path / "s", [(str(path),)], SMALL, processes=1)
    expected, found = files_of(store), files_of(made)
    assert {k: v for k, v in found.items() if k != "store.json"}.items() <= expected.items()
    assert made.skipped == store.skipped


@pytest.mark.slow
def test_bad_text_is_an_error_with_its_line_also_from_a_process(texts, tmp_path, small_parts):
    bad = tmp_path / "bad.de"
    lines = Path(texts[0][1]).read_bytes().split(b"\n")
    lines[300] = b"\xff"
    bad.write_bytes(b"\n".join(lines))
    pair = [(texts[0][0], str(bad))]
    with pytest.raises(CorpusError, match=r"bad.de:301: invalid UTF-8; convert the file"):
        prepare_store(tmp_path / "s", pair, SMALL, processes=2)
    made = prepare_store(tmp_path / "s", pair, SMALL, errors="skip", processes=1)
    assert made.skipped["invalid UTF-8"] == 1
    with pytest.raises(CorpusError, match="has 400 lines, .* has 401"):
        bad.write_bytes(b"\n".join([*lines[:300], *lines[299:]]))
        prepare_store(tmp_path / "t", pair, SMALL, processes=1)


def test_a_text_without_a_usable_pair_is_refused(texts, tmp_path, small_parts):
    empty = tmp_path / "empty"
    empty.write_text("\n" * 400)
    model = prepare_store(tmp_path / "a", texts, SMALL, processes=1).tokenizer_model
    with pytest.raises(CorpusError, match=r"no usable pair \(empty: 400\)"):
        prepare_store(tmp_path / "s", [*texts, (str(empty), str(empty))], model, processes=1)


def test_a_directory_with_something_else_is_left_alone(store, texts, tmp_path):
    (tmp_path / "tokenizer.model").write_text("a run's")
    with pytest.raises(ValueError, match="holds other files; name a new or an empty directory"):
        prepare_store(tmp_path, texts, SMALL, processes=1)
    assert (tmp_path / "tokenizer.model").read_text() == "a run's"
    before = files_of(store)
    with pytest.raises(ValueError, match="holds a store of other text or with other options"):
        prepare_store(store.path, texts, Vocabulary(size=401), processes=1)
    assert files_of(store) == before


def test_a_store_is_replaced_if_asked(store, texts, tmp_path):
    prepare_store(tmp_path / "s", texts, Vocabulary(size=350), processes=1)
    made = prepare_store(tmp_path / "s", texts, SMALL, processes=1, replace=True)
    assert files_of(made) == files_of(store)


@pytest.mark.parametrize("name", ["source.offsets", "tokenizer.model", "store.json"])
def test_damage_is_found_when_a_store_is_opened(texts, tmp_path, store, name):
    damaged(store, tmp_path, name)
    with pytest.raises(FileError, match=rf"{name} (was altered or|is) damaged.*; restore it"):
        TokenStore(tmp_path)


def test_damaged_ids_are_found_when_they_are_checked(tmp_path, store):
    path = damaged(store, tmp_path, "target.ids")
    opened = TokenStore(tmp_path)
    with pytest.raises(FileError, match="target.ids was altered or damaged; restore it, or remove"):
        opened.check()
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(FileError, match="target.ids was altered or damaged"):
        TokenStore(tmp_path)
    path.unlink()
    with pytest.raises(FileError, match="target.ids is missing"):
        TokenStore(tmp_path)
    store.check()


def damaged(store, folder, name):
    """Copies a store with one bit turned in one file."""
    for file, data in files_of(store).items():
        (folder / file).write_bytes(data)
    data = bytearray(files_of(store)[name])
    data[len(data) // 2] ^= 1
    (folder / name).write_bytes(data)
    return folder / name


def test_ids_take_two_bytes_while_they_can():
    assert (id_type(2**16).itemsize, id_type(2**16 + 1).itemsize) == (2, 4)


def test_a_split_holds_out_all_pairs_with_the_sources_drawn(texts, tmp_path):
    corpus = read_files(*texts[0])
    path, rng = tmp_path / "few.tsv", np.random.default_rng(0)
    chosen = rng.integers(0, 30, 300).tolist()  # many sources are there several times
    lines = [f"{corpus.sources[i]}\t{corpus.targets[j]}\n" for j, i in enumerate(chosen)]
    path.write_text("".join(lines), "utf-8")
    store = prepare_store(tmp_path / "s", [(str(path),)], SMALL, processes=1)
    rest, drawn = store.split(4, seed=2)
    sources, targets = (join_ids_to_texts(store.tokenizer_model, side) for side in drawn)
    places = np.sort(np.random.default_rng(2).permutation(300)[:4])
    assert [f"{s}\t{t}\n" for s, t in zip(sources, targets, strict=True)] == [
        lines[i] for i in places
    ]
    kept = [i for i in range(300) if corpus.sources[chosen[i]] not in set(sources)]
    assert rest.batches(max_pair_length=200).kept.tolist() == kept
    assert rest.skipped == {"with a source to validate on": 296 - len(kept)}
    assert store.skipped == {} and len(store.batches(max_pair_length=200).kept) == 300
    with pytest.raises(ValueError, match="300 pairs to validate on leave nothing of 300; draw"):
        store.split(300, seed=0)
    with pytest.raises(ValueError, match="leave no other source; draw fewer"):
        store.split(299, seed=0)


# Samples of lines


def test_a_sample_is_fair_and_a_function_of_its_seed():
    counts = np.zeros(50, int)
    for seed in range(600):
        drawn = draw_sample(range(50), 10, seed)
        assert drawn == sorted(set(drawn)) and len(drawn) == 10
        counts[drawn] += 1
    assert drawn == draw_sample(range(50), 10, 599)
    assert abs(counts - 120).max() < 5 * np.sqrt(600 * 0.2 * 0.8)
    assert draw_sample(range(5), 10, 0) == list(range(5))
    assert len(draw_sample(iter(range(40_000)), 3, 1)) == 3


def test_the_seed_of_a_vocabulary_draws_its_lines(texts, tmp_path):
    models = [
        prepare_store(
            tmp_path / str(i), texts, Vocabulary(350, lines=40, seed=seed), processes=1
        ).tokenizer_model
        for i, seed in enumerate((0, 0, 1))
    ]
    assert models[0] == models[1] != models[2]


# BPE-dropout


@pytest.fixture
def small_chunks(monkeypatch):
    monkeypatch.setattr(sampled_epochs, "CHUNK", 100)
    monkeypatch.setattr(sampled_epochs, "num_cores", lambda: 1)
    in_turn = lambda function, jobs, processes: (function(*job) for job in jobs)  # noqa: E731
    monkeypatch.setattr(sampled_epochs, "work", in_turn)


def test_each_epoch_splits_a_store_anew(store, texts, tmp_path, small_chunks):
    options = {**SIZES, "seed": 5, "bpe_dropout": 0.2}
    batches = store.batches(**options, folder=tmp_path)
    tokenizer, corpus = Tokenizer(store.tokenizer_model), read_files(*texts[0])
    epochs = [list(batches.epoch(i)) for i in range(3)]
    for epoch in epochs:
        assert len(epoch) == batches.num_batches
        rows = [row[(row != 0) & (row != 3)] for _, ids in epoch for row in ids if row.any()]
        shown = tokenizer.detokenize(ragged(rows)).numpy().tolist()
        assert sorted(text.decode() for text in shown) == sorted(
            corpus.targets[i] for i in batches.kept
        )
    again = store.batches(**options)
    assert_equal_batches(again.epoch(2), epochs[2])
    assert_equal_batches(again.epoch(1), epochs[1])
    lengths = [sum(int((ids != 0).sum()) for _, ids in epoch) for epoch in epochs]
    assert len(set(lengths)) == 3 and min(lengths) > store.batches(**SIZES).num_target_tokens
    for each in (batches, again):
        each.sample.close()


def ragged(rows):
    import tensorflow as tf

    return tf.RaggedTensor.from_row_lengths(np.concatenate(rows), [len(row) for row in rows])


def test_an_epoch_that_was_split_is_found_again(store, tmp_path, small_chunks, monkeypatch):
    options = {**SIZES, "bpe_dropout": 0.2, "folder": tmp_path}
    batches = store.batches(**options)
    first = list(batches.epoch(4))
    batches.sample.close()
    monkeypatch.setattr(sampled_epochs, "work", lambda *_: pytest.fail("split again"))
    batches = store.batches(**options)
    batches.sample.end = 5
    assert_equal_batches(batches.epoch(4), first)
    assert {path.name for path in tmp_path.iterdir()} <= {f"epoch-0000{i}-0" for i in (0, 4, 5)}


@pytest.mark.slow
def test_processes_split_as_one_does_and_a_script_ends_that_reads_half_an_epoch(store, tmp_path):
    script = f"""
import sys
from keras_transformer.data import sampled_epochs
from keras_transformer.data.token_store import TokenStore
if __name__ == "__main__":
    store = TokenStore({str(store.path)!r})
    batches = store.batches(batch_tokens=200, bpe_dropout=0.2, seed=5, folder={str(tmp_path)!r})
    batches.sample.processes = int(sys.argv[1])
    first = next(batches.epoch(0))
    print(first[1].sum(), "tensorflow" in sys.modules, "keras" in sys.modules)
"""
    (tmp_path / "script.py").write_text(script)
    outputs = [
        subprocess.run(
            [sys.executable, tmp_path / "script.py", n], capture_output=True, text=True, timeout=200
        )
        for n in "12"
    ]
    assert outputs[0].stdout == outputs[1].stdout and "False False" in outputs[0].stdout
    assert [output.returncode for output in outputs] == [0, 0]

import gzip
import io
import os
import subprocess
import sys
import threading
import tracemalloc
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from keras_transformer.data import text_lines
from keras_transformer.data.corpus import Corpus, read_files, read_tsv
from keras_transformer.data.text_lines import CorpusError, read_lines
from keras_transformer.data.tfds_corpus import read_tfds

INVALID = b"gr\xfcn"  # Latin-1
NO_LINE_BREAKS = "a\u2028b\u2029c\x85d\x0be\x0cf\x1cg\x1dh\x1ei\rj"


@pytest.fixture
def write(tmp_path):
    def write_file(name, content):
        path = tmp_path / name
        data = content if isinstance(content, bytes) else content.encode()
        path.write_bytes(gzip.compress(data) if name.endswith(".gz") else data)
        return path

    return write_file


def error_of(function, *args, **kwargs):
    """The message of the CorpusError, which is one line as a command line prints it."""
    with pytest.raises(CorpusError) as caught:
        function(*args, **kwargs)
    message = str(caught.value)
    assert "\n" not in message
    return message


# Lines


@pytest.mark.parametrize("name", ["text.txt", "text.txt.gz"])
def test_every_line_is_one_string(write, name):
    content = "Guten Tag\n\n  zwei Räume \nTab\there\nletzte"
    assert read_lines(write(name, content)) == content.split("\n")


@given(
    texts=st.lists(
        st.text(st.characters(codec="utf-8", exclude_characters="\n\0")), min_size=1
    ).filter(lambda texts: not any(text.endswith("\r") for text in texts)),
    line_end=st.sampled_from(["\n", "\r\n"]),
    bom=st.sampled_from(["", "\ufeff"]),
    name=st.sampled_from(["plain.txt", "packed.txt.gz"]),
)
def test_what_is_written_is_read_back(tmp_path_factory, texts, line_end, bom, name):
    if not bom and texts[0].startswith("\ufeff"):
        texts = ["text", *texts]
    path = tmp_path_factory.getbasetemp() / name
    data = (bom + "".join(text + line_end for text in texts)).encode()
    path.write_bytes(gzip.compress(data) if name.endswith(".gz") else data)
    assert read_lines(path) == texts
    assert read_lines(str(path)) == texts


def test_only_a_line_feed_ends_a_line(write):
    assert read_lines(write("a.txt", f"{NO_LINE_BREAKS}\nzwei\n")) == [NO_LINE_BREAKS, "zwei"]


def test_one_carriage_return_at_the_end_of_a_line_is_dropped(write):
    assert read_lines(write("a.txt", "a\r\nb\r\r\n\rc\nd\r")) == ["a", "b\r", "\rc", "d"]


@pytest.mark.parametrize("name", ["a.txt", "a.txt.gz"])
def test_lines_that_end_with_a_carriage_return_alone_are_an_error(write, name):
    for content in ("eins\rzwei\rdrei", "eins\rzwei\rdrei\r", "eins\rzwei\r" * 9_000):
        path = write(name, content)
        remedy = r"convert it, as with tr '\r' '\n'."
        message = f"{path} ends its lines with CR alone; {remedy}"
        assert error_of(read_lines, path) == error_of(read_files, path, path) == message
    for content in ("ei\rns\rzwei\n", "eins\rzwei", "eins\nz\rw\rei"):
        assert read_lines(write(name, content)) == content.removesuffix("\n").split("\n")


def test_only_the_first_byte_order_mark_is_dropped(write):
    assert read_lines(write("a.txt", "\ufeff\ufeffa\n\ufeffb\n")) == ["\ufeffa", "\ufeffb"]


def test_a_last_line_without_a_line_feed_counts(write):
    assert read_lines(write("a.txt", "a\nb")) == read_lines(write("b.txt", "a\nb\n")) == ["a", "b"]


def test_a_stray_nul_is_text(write):
    assert read_lines(write("a.txt", "a stray\0 character\n")) == ["a stray\0 character"]


def test_a_very_long_line_is_one_line(write):
    assert read_lines(write("a.txt", "ä" * 1_000_000 + "\nb\n"))[1:] == ["b"]


def test_gzip_members_one_after_another_are_one_text(tmp_path):
    path = tmp_path / "a.gz"
    path.write_bytes(gzip.compress(b"a\n") + gzip.compress(b"b\n"))
    assert read_lines(path) == ["a", "b"]


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no named pipes here")
def test_a_pipe_is_read_like_a_file(tmp_path):
    path = tmp_path / "pipe"
    os.mkfifo(path)
    writer = threading.Thread(target=path.write_bytes, args=("\ufeffä\nb\n".encode(),))
    writer.start()
    assert read_lines(path) == ["ä", "b"]
    writer.join()


def test_invalid_utf8_names_the_line_and_the_remedy(write):
    path = write("a.txt", b"gut\n" + INVALID + b"\n")
    message = error_of(read_lines, path)
    assert (
        message
        == f"{path}:2: invalid UTF-8; convert the file, as with iconv, or pass errors='replace' "
        "in Python."
    )


def test_invalid_utf8_is_replaced_on_request_and_no_line_is_lost(write):
    path = write("a.txt", INVALID + b"\n\xff\nab\n")
    assert read_lines(path, errors="replace") == ["gr\ufffdn", "\ufffd", "ab"]


@pytest.mark.parametrize("raw", [b"\xed\xa0\x80", b"\xc0\xaf", b"\xf4\x90\x80\x80", b"\xe4\xbd"])
def test_surrogates_overlong_and_truncated_sequences_are_invalid(write, raw):
    assert ":1: invalid UTF-8" in error_of(read_lines, write("a.txt", raw + b"\n"))


# Files that are not text

readers = pytest.mark.parametrize(
    "read", [read_lines, read_tsv, lambda path: read_files(path, path)], ids=["lines", "tsv", "two"]
)


@readers
@pytest.mark.parametrize("name", ["a.txt", "a.txt.gz"])
def test_files_are_closed_while_the_error_is_kept(write, read, name, monkeypatch):
    opened = []

    def remember(*args):
        opened.append(open(*args))
        return opened[-1]

    monkeypatch.setattr(text_lines, "open", remember, raising=False)
    path = write(name, b"eins\tone\n" + INVALID + b"\tgreen\nzwei\ttwo\n")
    with pytest.raises(CorpusError) as error:
        read(path)
    assert opened
    assert all(file.closed for file in opened), error


@readers
@pytest.mark.parametrize("name", ["a.txt", "a.txt.gz"])
@pytest.mark.parametrize("content", ["", "\ufeff"])
def test_an_empty_file_is_an_error(write, read, name, content):
    path = write(name, content)
    assert f"{path}: the file is empty; give" in error_of(read, path)


def test_a_gz_file_of_no_bytes_is_empty(tmp_path):
    (tmp_path / "a.gz").touch()
    assert "the file is empty" in error_of(read_lines, tmp_path / "a.gz")


@readers
def test_a_missing_file_is_an_error(tmp_path, read):
    path = tmp_path / "missing.txt"
    message = error_of(read, path)
    assert message.startswith(f"{path}: cannot be read (No such file")
    assert "check the path" in message


def test_a_missing_target_file_is_named(write, tmp_path):
    missing = tmp_path / "missing.en"
    assert str(missing) in error_of(read_files, write("a.de", "a\n"), missing)


@readers
def test_a_directory_is_an_error(tmp_path, read):
    assert f"{tmp_path}: cannot be read" in error_of(read, tmp_path)


def test_a_file_without_permission_is_an_error(write):
    path = write("a.txt", "a\n")
    path.chmod(0)
    if os.access(path, os.R_OK):
        pytest.skip("this user may read everything")
    assert f"{path}: cannot be read" in error_of(read_lines, path)


@readers
@pytest.mark.parametrize("name", ["a.txt", "a.txt.gz"])
@pytest.mark.parametrize(
    "encoding", ["utf-16", "utf-16-le", "utf-16-be", "utf-32", "utf-32-le", "utf-32-be"]
)
def test_utf16_and_utf32_are_recognised_with_and_without_bom(write, read, name, encoding):
    path = write(name, "Guten Tag\tGood day\n".encode(encoding))
    assert f"{path}: UTF-16, UTF-32 or binary data; convert" in error_of(read, path)


def test_utf16_is_recognised_by_its_bom_where_it_has_no_zero_bytes(write):
    for bom, encoding in ((b"\xff\xfe", "utf-16-le"), (b"\xfe\xff", "utf-16-be")):
        path = write("a.txt", bom + "早上好".encode(encoding))
        assert "UTF-16" in error_of(read_lines, path, errors="replace")


def test_binary_data_is_an_error_even_where_errors_are_replaced(write):
    path = write("a.bin", b"\x7fELF\x02\x01\x01" + bytes(40))
    assert "binary data" in error_of(read_lines, path, errors="replace")


@readers
def test_gzip_data_under_another_name_is_an_error(write, read):
    path = write("a.txt", gzip.compress(b"a\n"))
    assert f"{path}: gzip data under another name; rename it to .gz" in error_of(read, path)


def test_text_compressed_twice_is_an_error(write):
    assert "gzip data under" in error_of(read_lines, write("a.gz", gzip.compress(b"a\n")))


@readers
def test_plain_text_named_gz_is_an_error(tmp_path, read):
    path = tmp_path / "a.gz"
    path.write_bytes(b"plain text\n")
    message = error_of(read, path)
    assert f"{path}: bad gzip data after line 0 (Not a gzipped file" in message
    assert "drop the suffix .gz" in message


def test_only_the_end_of_the_name_means_gzip(write):
    assert read_lines(write("a.gz.txt", "plain\n")) == ["plain"]


def test_gzip_data_broken_anywhere_is_an_error(tmp_path):
    path = tmp_path / "a.gz"
    data = gzip.compress(b"".join(b"line %d\n" % i for i in range(40)))
    for length in range(1, len(data)):
        path.write_bytes(data[:length])
        assert f"{path}: bad gzip data after line " in error_of(read_lines, path)


def test_gzip_data_with_a_flipped_bit_is_an_error(tmp_path):
    path = tmp_path / "a.gz"
    data = bytearray(gzip.compress(b"".join(b"line %d\n" % i for i in range(40))))
    for i in range(10, len(data)):  # past the header, whose time stamp means nothing here
        damaged = data.copy()
        damaged[i] ^= 0x10
        path.write_bytes(damaged)
        error_of(read_lines, path)


# Two files


def test_two_files_are_read_as_pairs(write):
    corpus = read_files(write("a.de", "eins\nzwei\n"), str(write("a.en.gz", "one\r\ntwo")))
    assert corpus == Corpus(["eins", "zwei"], ["one", "two"], {})


def test_text_reaches_the_corpus_as_a_translator_reads_it(write):
    corpus = read_files(
        write("a.de", f" a\tb \n{NO_LINE_BREAKS}\n"), write("a.en", "x\n\u00a0y \u2028\n")
    )
    assert corpus == Corpus(["a\tb", NO_LINE_BREAKS], ["x", "y"], {})


@pytest.mark.parametrize("counts", [(3, 2), (2, 3), (1, 500)])
def test_different_line_counts_are_an_error_with_both_counts(write, counts):
    source, target = write("a.de", "a\n" * counts[0]), write("a.en", "b\n" * counts[1])
    message = error_of(read_files, source, target)
    assert f"{source} has {counts[0]} lines, {target} has {counts[1]};" in message


def test_a_trailing_empty_line_counts(write):
    source, target = write("a.de", "a\n\n"), write("a.en", "b\n")
    assert f"{source} has 2 lines, {target} has 1;" in error_of(read_files, source, target)


@pytest.mark.parametrize(
    "blank",
    ["", " ", "\t", "\u00a0\u3000", "\u2028", "\x0b\x0c\r\r", "\u200b", "\ufeff\u00ad \u2060"],
)
def test_a_pair_with_a_blank_side_is_skipped_as_a_pair(write, blank):
    source = write("a.de", f"eins\n{blank}\ndrei\n{blank}\nfünf\n")
    target = write("a.en", f"one\ntwo\n{blank}\n{blank}\nfive\n")
    assert read_files(source, target) == Corpus(["eins", "fünf"], ["one", "five"], {"empty": 3})


def test_a_pair_with_a_long_side_is_skipped_as_a_pair(write):
    source, target = write("a.de", "äöü\näöüß\na\n"), write("a.en", "abc\nb\nabcd\n")
    assert read_files(source, target, max_chars=3) == Corpus(["äöü"], ["abc"], {"too long": 2})


def test_very_long_lines_are_skipped_by_default(write):
    source, target = write("a.de", "a" * 10_001 + "\n" + "b" * 10_000), write("a.en", "x\ny\n")
    assert read_files(source, target) == Corpus(["b" * 10_000], ["y"], {"too long": 1})


def test_an_invalid_side_is_an_error_that_names_its_file_and_line(write):
    good, bad = write("a.de", "a\nb\n"), write("a.en", b"x\n" + INVALID)
    assert error_of(read_files, good, bad).startswith(f"{bad}:2: invalid UTF-8; convert")
    assert error_of(read_files, bad, good).startswith(f"{bad}:2: invalid UTF-8; convert")


def test_a_pair_with_an_invalid_side_is_skipped_on_request(write):
    source = write("a.de", b"eins\n" + INVALID + b"\n\ndrei\n")
    target = write("a.en", b"one\ntwo\n\xff\nthree\n")
    corpus = read_files(source, target, errors="skip")
    assert corpus == Corpus(["eins", "drei"], ["one", "three"], {"invalid UTF-8": 2})


SIDES = st.sampled_from([b"one", b"two words", b"", b" ", b"far too long", INVALID])


@given(pairs=st.lists(st.tuples(SIDES, SIDES), min_size=1))
def test_every_pair_is_read_or_counted(tmp_path_factory, pairs):
    folder = tmp_path_factory.getbasetemp()
    for name, side in ("source", 0), ("target", 1):
        (folder / name).write_bytes(b"".join(pair[side] + b"\n" for pair in pairs))
    usable = [
        tuple(text.decode() for text in pair)
        for pair in pairs
        if all(text in (b"one", b"two words") for text in pair)
    ]
    arguments = (folder / "source", folder / "target")
    if usable:
        corpus = read_files(*arguments, errors="skip", max_chars=9)
        assert list(zip(corpus.sources, corpus.targets, strict=True)) == usable
        assert len(usable) + sum(corpus.skipped.values()) == len(pairs)
    else:
        assert "no usable pair" in error_of(read_files, *arguments, errors="skip", max_chars=9)


def test_nothing_left_is_an_error_with_the_counts(write):
    source = write("a.de", b"\n\n" + INVALID + b"\nlang\n")
    target = write("a.en", "a\nb\nc\nd\n")
    message = error_of(read_files, source, target, errors="skip", max_chars=3)
    assert message.startswith(
        f"{source} and {target}: no usable pair (empty: 2, invalid UTF-8: 1, too long: 1); "
        "give UTF-8 text on both sides, at most max_chars=3 long."
    )


def test_a_file_can_translate_itself(write):
    path = write("a.txt", "a\nb\n")
    assert read_files(path, path) == Corpus(["a", "b"], ["a", "b"], {})


# Lines that fill the memory


@pytest.fixture
def bomb(tmp_path):
    """Writes gzip data of a line of 16 MiB between two short ones; it has some KiB."""

    def write_bomb(name, before, after, letter=b"a"):
        path = tmp_path / name
        with gzip.open(path, "wb") as file:
            file.write(before)
            for _ in range(16):
                file.write(letter * (1 << 20))
            file.write(after)
        return path

    return write_bomb


@pytest.mark.parametrize("letter", [b"a", b" ", b"\xff"])
def test_a_line_that_would_fill_the_memory_is_too_long(bomb, write, letter):
    tracemalloc.start()
    path = bomb("a.gz", b"eins\n", b"\ndrei\n", letter)
    corpus = read_files(path, write("b.txt", "one\ntwo\nthree\n"))
    assert corpus == Corpus(["eins", "drei"], ["one", "three"], {"too long": 1})
    path = bomb("a.tsv.gz", b"eins\tone\nzwei\t", b"\ndrei\tthree", letter)
    assert read_tsv(path) == corpus
    assert tracemalloc.get_traced_memory()[1] < 1 << 22
    tracemalloc.stop()


def test_a_line_over_the_limit_is_cut_and_counted(bomb):
    path = bomb("a.gz", b"eins\n", b"\ndrei")
    with pytest.warns(UserWarning, match=f"{path}: 1 line is over 4,194,304 bytes long, and only"):
        lines = read_lines(path)
    assert lines == ["eins", "a" * (1 << 22), "drei"]


@pytest.mark.parametrize("size", [-2, -1, 0, 1, 2, 3, 70_000])
@pytest.mark.parametrize("end", ["\n", "\r\n", "", "\r", "\r\r\n"])
def test_a_line_is_cut_between_two_characters(write, size, end, monkeypatch):
    limit = 1000
    monkeypatch.setattr(text_lines, "MAX_LINE_BYTES", limit)
    for letter in "aä€😀":
        width = len(letter.encode())
        text = letter * ((limit + size) // width) + "b" * ((limit + size) % width)
        path = write("a.txt", f"{text}{end}")
        whole = text + end.removesuffix("\n").removesuffix("\r")
        if len(whole.encode()) <= limit:
            assert read_lines(path) == [whole]
            continue
        with pytest.warns(UserWarning, match="1 line is over 1,000 bytes"):
            (line,) = read_lines(path)
        assert whole.startswith(line) and limit - 4 < len(line.encode()) <= limit


@given(
    lines=st.lists(st.sampled_from([b"", b"a", b"ab", b"abc", b"abcd", b"abcdefgh", b"\r"])),
    most=st.integers(1, 5),
)
def test_lines_over_a_limit_keep_their_beginning(lines, most):
    data = b"\n".join(lines)
    whole = data.split(b"\n")[: None if data and data[-1:] != b"\n" else -1]
    expected = [line.removesuffix(b"\r")[: most + 1] for line in whole]
    assert list(text_lines._limited_lines(io.BytesIO(data), most, "x")) == expected


@pytest.mark.parametrize("scheme", ["gs", "s3", "hdfs", "https", "file"])
def test_an_address_is_no_path(scheme):
    path = f"{scheme}://bucket/text.txt"
    for read in (read_lines, read_tsv, lambda path: read_files(path, path)):
        with pytest.raises(ValueError, match=f"must be a path of this machine, but is {path}; "):
            read(path)


# TSV


@pytest.mark.parametrize("name", ["a.tsv", "a.tsv.gz"])
def test_tsv_is_read_as_pairs(write, name):
    path = write(name, '\ufeffeins\tone\r\n"zwei\ttwo"\n\tempty\nleer\t \nlang\ttoo long\nx\ty')
    assert read_tsv(path, max_chars=5) == Corpus(
        ["eins", '"zwei', "x"], ["one", 'two"', "y"], {"empty": 2, "too long": 1}
    )


@pytest.mark.parametrize(("line", "tabs"), [("no tab", 0), ("", 0), ("a\tb\tc", 2), ("a\t\tb", 2)])
def test_a_tsv_line_without_exactly_one_tab_is_an_error(write, line, tabs):
    path = write("a.tsv", f"eins\tone\n{line}\nzwei\ttwo\n")
    message = error_of(read_tsv, path)
    assert f"{path}:2: {tabs} tabs instead of the one" in message
    assert "keep two columns, as with cut -s -f1,2" in message


def test_invalid_utf8_in_tsv_is_an_error_or_skipped(write):
    path = write("a.tsv", b"eins\tone\n" + INVALID + b"\tgreen\n")
    assert error_of(read_tsv, path).startswith(f"{path}:2: invalid UTF-8; convert the")
    assert read_tsv(path, errors="skip") == Corpus(["eins"], ["one"], {"invalid UTF-8": 1})


def test_a_tsv_file_with_nothing_left_is_named_once(write):
    path = write("a.tsv", "\t\n")
    assert error_of(read_tsv, path).startswith(f"{path}: no usable pair (empty: 1); ")


# Options


@pytest.mark.parametrize("errors", ["ignore", "skip", None])
def test_lines_know_strict_and_replace(write, errors):
    with pytest.raises(ValueError, match="errors must be one of 'strict', 'replace', but is "):
        read_lines(write("a.txt", "a\n"), errors=errors)


@pytest.mark.parametrize("errors", ["ignore", "replace", None])
def test_pairs_know_strict_and_skip(write, errors):
    path = write("a.tsv", "a\tb\n")
    for read in (read_tsv, lambda path, **options: read_files(path, path, **options)):
        with pytest.raises(ValueError, match="errors must be one of 'strict', 'skip', but is "):
            read(path, errors=errors)


@pytest.mark.parametrize("max_chars", [0, -1, 1.5, True, None, "9"])
def test_max_chars_is_a_positive_integer(write, max_chars):
    with pytest.raises(ValueError, match="max_chars must be an integer of at least 1, but is "):
        read_tsv(write("a.tsv", "a\tb\n"), max_chars=max_chars)


def test_a_path_is_no_file_descriptor():
    with pytest.raises(TypeError, match="expected str, bytes or os.PathLike object, not int"):
        read_lines(0)


def test_corpus_errors_are_value_errors():
    assert issubclass(CorpusError, ValueError)


# tensorflow-datasets


class FakeText:
    """Stands for `tfds.features.Text`."""


class FakeBuilder:
    """A set of four pairs that has to be prepared before it is read."""

    columns = {"pt": [b"um", b"", b"tr\xeas", b"quatro"], "en": [b"one", b"two", b"three", b"four"]}

    def __init__(self):
        features = {"pt": FakeText(), "en": FakeText(), "id": object()}
        self.info = SimpleNamespace(features=features, supervised_keys=("pt", "en"))
        self.prepared = False
        self.failure = None

    def download_and_prepare(self):
        if self.failure:
            raise self.failure
        self.prepared = True

    def as_dataset(self, split):
        if not self.prepared:
            raise AssertionError("could not find data in\nthe folder")
        self.split = split
        return SimpleNamespace(batch=lambda size: SimpleNamespace(as_numpy_iterator=self.batches))

    def batches(self):
        for part in slice(0, 3), slice(3, 4):
            yield {
                key: np.array(column[part], dtype=object) for key, column in self.columns.items()
            }


@pytest.fixture
def builder(monkeypatch):
    builder = FakeBuilder()
    fake = SimpleNamespace(
        builder=lambda name, data_dir: builder, features=SimpleNamespace(Text=FakeText)
    )
    monkeypatch.setitem(sys.modules, "tensorflow_datasets", fake)
    return builder


def test_tfds_pairs_follow_the_direction_of_the_set(builder):
    corpus = read_tfds("ted/pt_to_en", split="test", errors="skip", max_chars=5)
    assert corpus == Corpus(["um"], ["one"], {"empty": 1, "invalid UTF-8": 1, "too long": 1})
    assert builder.split == "test"


def test_tfds_languages_turn_the_direction_around(builder):
    corpus = read_tfds("ted/pt_to_en", languages=("en", "pt"), errors="skip")
    assert corpus == Corpus(["one", "four"], ["um", "quatro"], {"empty": 1, "invalid UTF-8": 1})


def test_tfds_invalid_utf8_names_set_split_and_example(builder):
    message = error_of(read_tfds, "ted/pt_to_en")
    assert message.startswith("ted/pt_to_en[train]:3: invalid UTF-8;")


@pytest.mark.parametrize("languages", [("pt", "de"), ("pt",), ("pt", "id"), "pt"])
def test_tfds_languages_must_be_two_text_features(builder, languages):
    message = error_of(read_tfds, "ted/pt_to_en", languages=languages)
    fault = f"its direction cannot be {languages!r}, its text features are ['pt', 'en']"
    assert message == f"ted/pt_to_en: {fault}; pass two of them, languages=(source, target)."
    assert not builder.prepared


def test_a_tfds_set_without_direction_needs_languages(builder):
    builder.info.supervised_keys = None
    assert "pass two of them, languages=(source, target)" in error_of(read_tfds, "tatoeba")
    assert read_tfds("tatoeba", languages=("en", "pt"), errors="skip").sources == ["one", "four"]


@pytest.mark.parametrize(
    "failure", [OSError("Max retries\nexceeded"), AssertionError(), ValueError("x" * 5000)]
)
def test_tfds_data_that_cannot_be_had_is_one_short_line(builder, failure):
    builder.failure = failure
    message = error_of(read_tfds, "ted/pt_to_en")
    assert message.startswith(f"ted/pt_to_en[train]: cannot be loaded ({type(failure).__name__}(")
    assert "or pass the data_dir of a prepared copy" in message
    assert len(message) < 500


def test_tfds_without_download_reads_what_is_prepared(builder):
    assert "could not find data" in error_of(read_tfds, "ted/pt_to_en", download=False)
    builder.prepared = True
    builder.failure = OSError("no network")
    assert read_tfds("ted/pt_to_en", download=False, errors="skip").sources == ["um", "quatro"]


def test_missing_tensorflow_datasets_names_the_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "tensorflow_datasets", None)
    message = error_of(read_tfds, "ted_hrlr_translate/pt_to_en")
    assert "tensorflow-datasets is missing" in message
    assert "pip install tensorflow-datasets" in message


@pytest.mark.slow
def test_the_real_tensorflow_datasets_is_read(tmp_path):
    tfds = pytest.importorskip("tensorflow_datasets")
    name = "ted_hrlr_translate/pt_to_en"
    with tfds.testing.mock_data(num_examples=5):
        forth = read_tfds(name, data_dir=tmp_path)
        back = read_tfds(name, data_dir=tmp_path, languages=("en", "pt"))
    assert len(forth.sources) == len(forth.targets) == 5
    assert all(isinstance(text, str) and text for text in forth.sources + forth.targets)
    assert back == Corpus(forth.targets, forth.sources, {})
    assert "could not find data" in error_of(read_tfds, name, data_dir=tmp_path, download=False)


@pytest.mark.slow
def test_an_unknown_tfds_set_is_an_error(tmp_path):
    pytest.importorskip("tensorflow_datasets")
    message = error_of(read_tfds, "no_such_set", data_dir=tmp_path)
    assert "no_such_set[train]: cannot be loaded (" in message


def test_importing_the_module_imports_no_tensorflow():
    check = (
        "import runpy, sys; runpy.run_path(sys.argv[1]);"
        "assert not {'tensorflow', 'tensorflow_datasets'} & set(sys.modules)"
    )
    path = sys.modules[CorpusError.__module__].__file__
    subprocess.run([sys.executable, "-c", check, path], check=True)

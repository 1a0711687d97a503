"""The file of a state comes back as it was written, or says that it does not."""

import io
import json
import os
import resource
import warnings
import zipfile
from pathlib import Path

import numpy as np
import pytest

from keras_transformer.files import FileError
from keras_transformer.training.state_file import State, read_state, write_state

STATE = State(
    arrays=[
        np.arange(700, dtype="float32").reshape(7, 100),
        np.array(5, "int64"),
        np.zeros((0, 3), "float16"),
        np.array([True]),
    ],
    epoch=2,
    history=[{"loss": 2.0, "val_bleu": float("nan")}, {"loss": 1.5}],
    step=3,
    total_steps=2**40,
    seconds=1.5,
    metrics=[np.array(7.0, "float32"), np.arange(3)],
)


def is_same(state, other=STATE):
    pairs = zip(state.arrays + state.metrics, other.arrays + other.metrics, strict=True)
    for a, b in pairs:
        assert a.dtype == b.dtype and a.shape == b.shape
        np.testing.assert_array_equal(a, b)
    headers = [str({**vars(s), "arrays": None, "metrics": None}) for s in (state, other)]
    return headers[0] == headers[1]


def test_a_state_comes_back_and_numpy_reads_it(tmp_path):
    write_state(tmp_path / "state.npz", STATE)
    assert is_same(read_state(tmp_path / "state.npz"))
    with np.load(tmp_path / "state.npz") as arrays:
        np.testing.assert_array_equal(arrays["variable_0"], STATE.arrays[0])


def test_every_damage_is_found(tmp_path):
    path, random = tmp_path / "state.npz", np.random.default_rng(0)
    write_state(path, STATE)
    content = path.read_bytes()
    for i in range(2000):
        damaged, kind = bytearray(content), i % 4
        place = random.integers(len(content))
        if kind == 0:
            damaged[place] ^= 1 << random.integers(8)
        elif kind == 1:
            damaged = damaged[:place]
        elif kind == 2:
            damaged[place : place + 70] = random.bytes(len(damaged[place : place + 70]))
        else:
            damaged[place:place] = bytes(9)
        path.write_bytes(damaged)
        with pytest.raises(FileError, match=r"state\.npz: ") as caught:
            read_state(path)
        assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "content", [None, b"", b"x" * 64, b"PK" * 99, b"\x93NUMPY\x01\x00" + b" " * 99]
)
def test_what_is_no_state_is_named(tmp_path, content):
    if content is not None:
        (tmp_path / "state.npz").write_bytes(content)
    with pytest.raises(FileError, match=r"state\.npz: "):
        read_state(tmp_path / "state.npz")


def sealed(header, path):
    """A state with another header, sealed as if it had been written so."""
    write_state(path, STATE)
    write = json.dumps
    try:
        json.dumps = lambda _: write(header)
        write_state(path, STATE)
    finally:
        json.dumps = write


HEADER = {"format": 4, "epoch": 1, "history": [{"loss": 1.0}], "step": 0, "total_steps": 9}


@pytest.mark.parametrize(
    "changes, fault",
    [
        ({"format": 5}, "it has format 5; install the version that wrote it"),
        ({"epoch": 2}, "epoch is 2, but history has 1 epochs"),
        ({"epoch": -1}, "epoch must be an integer of at least 0"),
        ({"step": 1.5}, "step must be an integer"),
        ({"step": 5, "total_steps": 4}, "total_steps must be an integer of at least 5, but is 4"),
        ({"seconds": "a"}, "seconds must be a float, but is 'a'"),
        ({"history": [{"loss": "a"}]}, "history must hold numbers"),
        ({"history": [5]}, "state.npz: "),
        ({"more": 5}, "unexpected keyword argument 'more'"),
    ],
)
def test_the_header_keeps_to_its_schema(tmp_path, changes, fault):
    sealed({**HEADER, **changes}, tmp_path / "state.npz")
    with pytest.raises(FileError, match=fault):
        read_state(tmp_path / "state.npz")


@pytest.mark.parametrize("size", [0, 10, 1000, 3500])
def test_a_full_disk_leaves_the_state_before(tmp_path, size):
    path, limit = tmp_path / "state.npz", resource.getrlimit(resource.RLIMIT_FSIZE)
    write_state(path, STATE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, limit[1]))
    try:
        with warnings.catch_warnings(), pytest.raises(OSError, match=r"state\.npz could not be wr"):
            write_state(path, STATE)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limit)
    assert os.listdir(tmp_path) == ["state.npz"] and is_same(read_state(path))


def test_a_state_of_format_2_is_read(tmp_path):
    state = read_state(
        Path(__file__).parents[1]
        / "inference"
        / "formats"
        / "2"
        / "checkpoints"
        / "state-00001.npz"
    )
    assert (state.epoch, state.step, state.history) == (1, 0, [{"loss": 1.5}])
    file = io.BytesIO()
    np.savez(file, variable_0=STATE.arrays[0])
    (tmp_path / "state.npz").write_bytes(file.getvalue())
    assert zipfile.is_zipfile(tmp_path / "state.npz")
    with pytest.raises(FileError, match="it was altered or cut short"):
        read_state(tmp_path / "state.npz")

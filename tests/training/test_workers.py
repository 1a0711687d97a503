"""Several worker processes train as one, and end together."""

import json
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from keras_transformer import strategy_scope
from keras_transformer.training import workers
from keras_transformer.training.worker_task import VARIABLE, Worker, this_worker

ROOT = Path(__file__).parents[2]
HOSTS = ["host0:1", "host1:1", "host2:1"]
# Trains models on pairs of very unequal lengths, and writes their weights and logs.
SCRIPT = """
import json, sys
import keras, numpy as np
import keras_transformer as kt

name, strategy = sys.argv[1:]
kt.strategy_scope(strategy)  # before the first operation of TensorFlow
if strategy != "none":
    from keras_transformer.training import workers
    from keras_transformer.training.worker_task import this_worker
    mine = bytes(range(256)) * 9 + b"." if this_worker().rank == 0 else b""
    assert workers.broadcast_bytes(mine) == bytes(range(256)) * 9 + b"."
    assert workers.broadcast_json({"rank": this_worker().rank}) == {"rank": 0}
long = "a small dog runs home with two big cats and sleeps here today"
pairs = [("a dog", "ein Hund")] * 9 + [(long, long)] + [("the cat sleeps", "die Katze schläft")] * 7
sources, targets = map(list, zip(*pairs))
tokenizer = kt.Tokenizer.train_on_texts((sources + targets) * 9, vocab_size=300)
size = {"num_layers": 1, "d_model": 16, "num_heads": 2, "d_ff": 16, "dropout": 0.0}
everything = {}
for number, (clip, options) in enumerate([
    ({}, {}), ({"global_clipnorm": 0.7}, {"micro_batches": 2, "metrics": [kt.Perplexity()]})
]):
    batches = kt.TokenBatches(sources, targets, tokenizer, batch_tokens=200, num_buckets=2)
    keras.utils.set_random_seed(1)
    with kt.strategy_scope(strategy):
        model = kt.Transformer(**size, source_vocab_size=tokenizer.vocab_size)
        model.compile(keras.optimizers.SGD(0.5, **clip), kt.MaskedCrossentropy(), **options)
    data = {"validation_data": batches.dataset(), "callbacks": [kt.TokenLogs()]}
    steps = {"steps_per_epoch": batches.num_batches, "epochs": 2}
    logs = model.fit(batches.stream(), **steps, shuffle=False, verbose=0, **data).history
    everything |= {f"{number}_{i}": weight for i, weight in enumerate(model.get_weights())}
    everything |= {f"{number}_log_{key}": value for key, value in logs.items()}
np.savez(name, **everything)
"""
TRAIN = "train --synthetic --num-pairs 300 --valid-split 20 --vocab-size 400 --d-model 16".split()
TRAIN += "--num-heads 2 --d-ff 16 --encoder-layers 1 --decoder-layers 1 --batch-tokens 512".split()
TRAIN += "--precision float32 --strategy multi_worker --quiet".split()


def config(hosts, kind, index, **others):
    return json.dumps(
        {"cluster": {"worker": hosts, **others}, "task": {"type": kind, "index": index}}
    )


def test_a_process_knows_which_of_the_workers_it_is(monkeypatch):
    monkeypatch.setenv(VARIABLE, config(HOSTS, "worker", 2))
    assert this_worker() == Worker(rank=2, count=3)
    monkeypatch.setenv(VARIABLE, config(HOSTS, "worker", 1, chief=["host9:1"]))
    assert this_worker() == Worker(rank=2, count=4)
    monkeypatch.setenv(VARIABLE, config(HOSTS, "chief", 0, chief=["host9:1"]))
    assert this_worker() == Worker(rank=0, count=4)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "{}",
        config(HOSTS, "worker", 3),
        config(HOSTS, "evaluator", 0),
        config(HOSTS, "chief", 0),
    ],
)
def test_another_config_is_refused_by_name(monkeypatch, text):
    monkeypatch.setenv(VARIABLE, text)
    with pytest.raises(ValueError, match="TF_CONFIG must name the workers"):
        this_worker()


def test_several_workers_need_a_config(monkeypatch):
    monkeypatch.delenv(VARIABLE, raising=False)
    workers.strategy.cache_clear()
    with pytest.raises(ValueError, match='"multi_worker" needs the variable TF_CONFIG: {"cluster"'):
        strategy_scope("multi_worker")


def test_all_stop_where_the_first_one_does(monkeypatch):
    callback = workers.StopTogether()
    for first in (True, False):
        monkeypatch.setattr(workers, "broadcast_json", lambda mine, first=first: first)
        for mine in (True, False):
            callback.set_model(SimpleNamespace(stop_training=mine))
            callback.on_epoch_end(0)
            assert callback.model.stop_training is first


def test_workers_save_where_the_first_one_says_and_end_at_any_signal(monkeypatch):
    clock = SimpleNamespace(now=0.0, monotonic=lambda: clock.now)
    monkeypatch.setattr(workers, "time", clock)
    asked, others = [], [0, 0]
    save = workers.SaveTogether()

    def all_gather(mine):
        asked.append(mine[0])
        return np.array([mine, *([wanted, 7] for wanted in others)])

    monkeypatch.setattr(workers, "all_gather", all_gather)

    def steps(number, wanted):
        answers = []
        for _ in range(number):
            clock.now += 0.25
            answers.append(save(wanted, False))
        return answers

    assert steps(2, -1) == [-1, 0] and asked == [-1]  # they ask again after a second: 4 steps
    assert steps(4, 0) == [0] * 4 and asked == [-1, 0]
    others[1] = -1  # the clock of another worker is of no account
    assert steps(3, 0) == [0] * 3 and asked == [-1, 0, 0]
    others[1] = 15
    assert steps(4, -1) == [0, 0, 0, 15]
    assert save(0, at_once=True) == 15
    others[1] = 0
    assert save(15, at_once=True) == 15 and save(0, at_once=True) == 0


def test_the_loss_of_a_worker_says_what_to_do():
    import tensorflow as tf

    with pytest.raises(workers.WorkerLost, match="another worker has gone .* with --resume"):
        with workers.naming_lost_workers():
            raise tf.errors.UnavailableError(None, None, "Collective ops is aborted by ...")
    with pytest.raises(KeyError), workers.naming_lost_workers():
        raise KeyError("another error")


def start(arguments, folder, count=2):
    """Starts a process for each worker, all on this machine."""
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    hosts = [f"127.0.0.1:{x.getsockname()[1]}" for x in sockets]
    for x in sockets:
        x.close()
    path = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])
    processes = []
    for i in range(count):
        words = [str(word).replace("RANK", str(i)) for word in arguments]
        environment = {**os.environ, "PYTHONPATH": path, VARIABLE: config(hosts, "worker", i)}
        with open(folder / f"log-{i}", "wb") as log:
            command = [sys.executable, *words]
            options = {"stdout": log, "stderr": log, "cwd": folder, "env": environment}
            processes.append(subprocess.Popen(command, **options))
    return processes


def wait(processes, folder, seconds=500):
    """Waits for all processes; returns their exit codes and what they wrote."""
    try:
        codes = [process.wait(seconds) for process in processes]
    finally:
        for process in processes:
            process.kill()
    return codes, [(folder / f"log-{i}").read_text("utf-8") for i in range(len(processes))]


@pytest.mark.slow
def test_two_workers_train_as_one_process_does(tmp_path):
    """With unequal token counts, plain and with micro-batches, clipping and compiled metrics."""
    (tmp_path / "script.py").write_text(SCRIPT, "utf-8")
    codes, texts = wait(start(["script.py", "wRANK.npz", "multi_worker"], tmp_path), tmp_path)
    assert codes == [0, 0], texts
    codes, texts = wait(start(["script.py", "one.npz", "none"], tmp_path, 1), tmp_path)
    assert codes == [0], texts
    one, first, second = (np.load(tmp_path / f"{name}.npz") for name in ("one", "w0", "w1"))
    assert one.files == first.files == second.files
    for name in one.files:
        np.testing.assert_array_equal(first[name], second[name], err_msg=name)
        # Perplexity is exp of a loss, up to 400.
        scale = 1e3 if "perplexity" in name else 1
        np.testing.assert_allclose(first[name], one[name], atol=1e-6 * scale, err_msg=name)


@pytest.mark.slow
@pytest.mark.parametrize("victim", [0, 1])
def test_a_killed_worker_ends_all_and_all_go_on_to_the_same_end(tmp_path, victim):
    command = ["-m", "keras_transformer", *TRAIN, "--out"]
    codes, texts = wait(start([*command, "whole", "--epochs", "3"], tmp_path), tmp_path)
    assert codes == [0, 0], texts
    processes = start([*command, "killed", "--epochs", "3"], tmp_path)
    state = tmp_path / "killed/checkpoints/state-00001.npz"
    while not state.exists() and processes[0].poll() is None:
        time.sleep(0.1)
    processes[victim].send_signal(signal.SIGKILL)
    codes, texts = wait(processes, tmp_path)
    assert codes[1 - victim] == 1 and "another worker has gone" in texts[1 - victim], texts
    codes, texts = wait(start([*command, "killed", "--resume"], tmp_path), tmp_path)
    assert codes == [0, 0] and "going on after epoch" in texts[0], texts
    for name in ("model.weights.h5", "tokenizer.model", "config.json"):
        assert (tmp_path / "killed" / name).read_bytes() == (tmp_path / "whole" / name).read_bytes()
    states = [
        np.load(tmp_path / run / "checkpoints/state-00003.npz") for run in ("whole", "killed")
    ]
    for name in states[0].files:
        if name != "header":  # it has the tokens per second of each epoch
            np.testing.assert_array_equal(states[0][name], states[1][name], err_msg=name)


def assert_same_end(one, other, epoch):
    """Compares the last state of two runs but for its header, which has times."""
    paths = [run / f"checkpoints/state-{epoch:05d}.npz" for run in (one, other)]
    with np.load(paths[0]) as first, np.load(paths[1]) as second:
        assert first.files == second.files
        for name in first.files:
            if name != "header":
                np.testing.assert_array_equal(first[name], second[name], err_msg=name)
    logs = [(run / "history.jsonl").read_text("utf-8").splitlines() for run in (one, other)]
    for lines in zip(*logs, strict=True):
        known, found = map(json.loads, lines)
        for name in ("loss", "perplexity", "val_loss", "val_bleu"):
            assert known[name] == found[name], name


def in_epoch(run):
    """The states within an epoch."""
    return sorted((run / "checkpoints").glob("state-*-*.npz"))


# Two epochs, and a state after almost each of their steps.
WITHIN = ("--max-steps", "40", "--valid-steps", "20", "--save-minutes", "1e-4")


@pytest.mark.slow
def test_workers_stopped_within_an_epoch_go_on_bit_for_bit(tmp_path):
    """Killed, either of them, and ended by a SIGTERM that only one of them gets."""
    command, run = ["-m", "keras_transformer", *TRAIN, "--out"], tmp_path / "stopped"
    codes, texts = wait(start([*command, "whole", *WITHIN], tmp_path), tmp_path)
    assert codes == [0, 0], texts
    words = [*command, "stopped", *WITHIN]
    for victim, signum in ((0, signal.SIGKILL), (1, signal.SIGKILL), (1, signal.SIGTERM)):
        before, processes = in_epoch(run), start(words, tmp_path)
        while in_epoch(run) == before and processes[0].poll() is None:
            time.sleep(0.05)
        processes[victim].send_signal(signum)
        codes, texts = wait(processes, tmp_path)
        if signum == signal.SIGTERM:
            assert codes == [143, 143] and "stopped after step" in texts[0], texts
        else:
            assert codes[1 - victim] == 1 and "another worker has gone" in texts[1 - victim], texts
        words = [*command[:2], "train", "--resume", "--quiet", "--out", "stopped"]
    codes, texts = wait(start(words, tmp_path), tmp_path)
    assert codes == [0, 0] and "going on after step" in texts[0], texts
    assert_same_end(tmp_path / "whole", run, 2)


@pytest.mark.slow
def test_workers_with_other_options_are_refused(tmp_path):
    command = ["-m", "keras_transformer", *TRAIN, "--out", "run", "--epochs", "1", "--seed", "RANK"]
    codes, texts = wait(start(command, tmp_path), tmp_path)
    assert codes[1] == 1 and "worker 1 has another --seed" in texts[1]
    assert codes[0] == 1 and "another worker has gone" in texts[0]

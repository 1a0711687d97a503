"""`--max-minutes` and averages: the schedule is for the steps that fit, a mean has to be better."""

from types import SimpleNamespace

import keras
import numpy as np
import pytest

from keras_transformer.commands.parser import build_parser
from keras_transformer.commands.training_run import callbacks, recipe, time_plan
from keras_transformer.commands.training_run.callbacks import Callbacks
from keras_transformer.commands.training_run.recipe import Text
from keras_transformer.data.batching import TokenBatches
from keras_transformer.models.transformer import Transformer
from keras_transformer.training.losses import MaskedCrossentropy
from keras_transformer.training.variables import as_arrays, training_variables


@pytest.mark.parametrize(
    "seconds, compiling, num_valid, chosen",
    [
        (0.1, 0, 0, {"epochs": 30}),  # there is time for all that suit
        (0.4, 0, 0, {"epochs": 9, "average": 3, "early_stopping": 0}),
        (0.4, 100, 0, {"epochs": 8}),
        (0.4, 0, 154_000, {"epochs": 4}),  # the text to validate on is a third of the other
        (4.0, 0, 0, {"epochs": None, "max_steps": 240}),
        (40.0, 0, 0, {"epochs": None, "max_steps": 24, "warmup_steps": 6}),
        (40.0, 10_000, 0, {"epochs": None, "max_steps": 1}),
    ],
)
def test_as_many_epochs_are_trained_as_fit(
    seconds, compiling, num_valid, chosen, monkeypatch, capsys
):
    text = Text(29_000, 462_000)
    monkeypatch.setattr(time_plan, "seconds_of_a_step", lambda *_: [seconds, compiling])
    monkeypatch.setattr(time_plan, "text_size", lambda *_: text)
    options = build_parser().parse_args(["train", "--out", "x", "--max-minutes", "20", "--quiet"])
    recipe.choose(options, text, 8000)
    train = SimpleNamespace(num_batches=240, num_target_tokens=462_000)
    valid = SimpleNamespace(num_target_tokens=num_valid) if num_valid else None
    tokenizer = SimpleNamespace(vocab_size=8000)
    data = SimpleNamespace(train=train, valid=valid, texts=None, tokenizer=tokenizer)
    time_plan.fit_into_time(None, data, options)
    assert chosen.items() <= vars(options).items()
    steps = options.max_steps or options.epochs * train.num_batches
    assert options.warmup_steps == pytest.approx(max(1, steps / 4), rel=0.05)
    assert steps * seconds <= 20 * 60 and options.batch_tokens == 2048
    assert "--max-minutes 20 are " in capsys.readouterr().err


@pytest.mark.slow
def test_steps_that_are_timed_leave_no_trace(tokenizer, sentences):
    batches = TokenBatches(*sentences, tokenizer, batch_tokens=32)
    size = {"num_layers": 1, "d_model": 8, "num_heads": 2, "d_ff": 8, "dropout": 0.3}
    model = Transformer(**size, source_vocab_size=tokenizer.vocab_size)
    model.compile(keras.optimizers.Adam(0.1), loss=MaskedCrossentropy())
    before = as_arrays(training_variables(model))
    seconds, compiling = time_plan.seconds_of_a_step(model, batches)
    assert 0 < seconds < compiling
    for one, other in zip(before, as_arrays(training_variables(model)), strict=True):
        np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize(
    "chosen, best, is_kept",
    [
        (["average"], 21.0, False),
        (["average"], 20.4, True),
        (["average"], 19.0, True),
        ([], 21.0, True),
    ],
)
def test_a_mean_that_nobody_asked_for_is_kept_unless_an_epoch_is_clearly_better(
    chosen, best, is_kept, monkeypatch, capsys
):
    saved, loaded = [], []
    monkeypatch.setattr(callbacks, "save_run", lambda *_, **__: saved.append(1))
    monkeypatch.setattr(
        callbacks.epoch_weights, "average_weights", lambda _, paths: loaded.extend(paths)
    )
    options = SimpleNamespace(metric="bleu", bleu_tokenize="13a", average=3, chosen=chosen)
    monitor = SimpleNamespace(sources=["a"], references=["b"], translate=lambda texts: texts)
    monitor.score = lambda *_: {"bleu": 20.0}
    run = SimpleNamespace(model=None, tokenizer=None, out=None, options=options, mean=None)
    run.translations, run.best = monitor, SimpleNamespace(best=best, epoch=4)
    # If not the mean, the best epoch is saved again: an earlier start may have saved its mean.
    run.weights, run._shared = SimpleNamespace(path=lambda epoch: epoch), lambda paths: paths
    run._save = lambda: loaded.append("saved")
    run.checkpoint, run.on_kept = SimpleNamespace(epoch=5), lambda kept: None
    Callbacks._save_mean(run, 3)
    assert bool(saved) is is_kept and (run.mean is not None) is is_kept
    assert loaded == ([] if is_kept else [4, "saved"])
    assert ("less than the best epoch, which is kept" in capsys.readouterr().err) is not is_kept


def test_a_training_that_stops_says_why_and_how_to_go_on(capsys):
    options = SimpleNamespace(metric="bleu", max_minutes=3.0, strategy="none")
    early = SimpleNamespace(patience=5)
    run = SimpleNamespace(options=options, early=early, limit=object(), shown=None, out="r")
    run.checkpoint = SimpleNamespace(wait=lambda: None, total_steps=7)
    run.board = SimpleNamespace(close=lambda: None)
    for left, has_stopped, said in (
        (0, False, ""),
        (
            9,
            True,
            "stopped: no better BLEU for 5 epochs, --early-stopping; to go on, give --resume",
        ),
        (
            9,
            False,
            "no time for another epoch in --max-minutes 3; to go on, give --resume and more",
        ),
    ):
        run.steps_left, run.has_stopped = lambda n=left: n, lambda yes=has_stopped: yes
        Callbacks.report_stop(run)
        printed = capsys.readouterr().err
        assert said in printed and bool(said) is bool(printed)
    for error in (SystemExit(143), KeyboardInterrupt()):
        Callbacks._end(run, error)
        assert "go on with: keras-transformer train --out r --resume" in capsys.readouterr().err


@pytest.mark.parametrize(
    "chosen, epochs, missing, number",
    [(["average"], 3, 0, 0), (["average"], 9, 0, 3), ([], 9, 0, 8), ([], 9, 7, 2)],
)
def test_a_mean_is_of_fewer_epochs_where_fewer_were_trained_or_kept(
    chosen, epochs, missing, number, monkeypatch, tmp_path
):
    found = []
    monkeypatch.setattr(callbacks.tensorboard, "write_projector", lambda *_: None)
    monkeypatch.setattr(
        callbacks.epoch_weights, "average_weights", lambda _, paths: found.extend(paths)
    )
    options = SimpleNamespace(average=8, chosen=chosen, quiet=True)
    files = [tmp_path / str(epoch) for epoch in range(9)]
    for file in files[missing:]:
        file.touch()
    weights = SimpleNamespace(keep=10, last=lambda count: files[len(files) - count :])
    options.out, options.strategy = tmp_path, "none"
    model = SimpleNamespace(lm_head_kernel=lambda: None)
    run = SimpleNamespace(options=options, weights=weights, model=model, logs=None)
    run.tokenizer = SimpleNamespace(vocab_size=1, pieces=lambda ids: [])
    run.checkpoint, run._save_mean = SimpleNamespace(epoch=epochs), lambda count: None
    run._shared = lambda paths: Callbacks._shared(run, paths)
    Callbacks.finish(run)
    assert len(found) == number

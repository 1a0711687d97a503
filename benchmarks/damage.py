"""Random damages of the files of a run: each must be a one-line error, or change nothing.

    python benchmarks/damage.py --count 10000

A small model is saved with its states and the weights of its epochs. Again and again one of their
files is damaged, and what reads it is tried: `load_run`, the restoring of a state (which may take
the state before and warn), the averaging of weights. It ends with status 1 if a damage gives
another result, another exception, or more than a line.
"""

import argparse
import os
import signal
import sys
import tempfile
import warnings
from collections import Counter
from contextlib import suppress
from pathlib import Path

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import keras
import numpy as np
from arguments import positive

from keras_transformer import (
    CheckpointError,
    EpochWeights,
    LanguageModel,
    MaskedCrossentropy,
    RunError,
    Tokenizer,
    TrainingCheckpoint,
    average_weights,
    load_run,
    save_run,
)

SIZES = {"num_layers": 1, "d_model": 2, "num_heads": 1, "d_ff": 2, "max_length": 16}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--count", type=positive, default=1000, help="how many damages")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory:
        outcomes, faults = try_damages(Path(directory), options.count, options.seed)
    for (name, outcome), number in sorted(outcomes.items()):
        print(f"{number:6d}  {name}: {outcome}")
    print(*faults, sep="\n", file=sys.stderr)
    sys.exit(1 if faults else 0)


def try_damages(run: Path, count: int, seed: int):
    """Damages a file `count` times; returns the number of each outcome, and what was wrong."""
    random, model = np.random.default_rng(seed), make_run(run)
    files = sorted(path for path in run.rglob("*") if path.is_file())
    outcomes, faults = Counter(), []
    expected = {path: results(path, run, model) for path in files}
    for i in range(count):
        path = files[random.integers(len(files))]
        content = path.read_bytes()
        kind, damaged = damage(content, random)
        path.write_bytes(damaged)
        outcome = tried(path, run, model, expected[path])
        path.write_bytes(content)
        outcomes[path.relative_to(run).as_posix(), outcome] += 1
        if outcome not in ("refused in a line", "the state before, and a warning", "no difference"):
            faults.append(f"damage {i} ({kind}) of {path.name}: {outcome}")
    return outcomes, faults


def make_run(run: Path):
    """Saves a model, two states and the weights of two epochs; returns the model, compiled.

    The newer state is one within an epoch.
    """
    keras.utils.set_random_seed(1)
    tokenizer = Tokenizer.train_on_texts(["x y z"] * 9, vocab_size=268)
    model = LanguageModel(**SIZES, vocab_size=tokenizer.vocab_size)
    model.compile(keras.optimizers.Adam(), MaskedCrossentropy())
    save_run(model, tokenizer, run)
    weights, checkpoint = (kind(run / "checkpoints") for kind in (EpochWeights, TrainingCheckpoint))
    checkpoint.set_params({"steps": 9})
    for epoch in (0, 1):
        for callback in (weights, checkpoint):
            callback.set_model(model)
            model.set_weights([weight + 1 for weight in model.get_weights()])
            callback.on_epoch_end(epoch, {"loss": 2.0 - epoch})
    checkpoint.save_and_exit(signal.SIGTERM)
    with suppress(SystemExit):
        checkpoint.on_train_batch_end(0)
    return model


def damage(content: bytes, random):
    """Returns the name of a damage, and the content after it."""
    place, length = int(random.integers(len(content))), int(random.integers(1, 600))
    end = place + length
    return {
        0: ("a bit", changed(content, place, bytes([content[place] ^ 1 << random.integers(8)]))),
        1: ("a byte", changed(content, place, random.bytes(1))),
        2: ("noise", changed(content, place, random.bytes(len(content[place:end])))),
        3: ("zeros", changed(content, place, bytes(len(content[place:end])))),
        4: ("cut short", content[:place]),
        5: ("a part is missing", content[:place] + content[end:]),
        6: ("more at the end", content + random.bytes(length)),
        7: ("twice a part", content[:end] + content[place:]),
    }[int(random.integers(8))]


def changed(content, place, new):
    return content[:place] + new + content[place + len(new) :]


def results(path, run, model):
    """What is read of a file: a list of arrays."""
    if path.parent == run:
        model, tokenizer = load_run(run)
        ids = tokenizer.tokenize(["x yz"]).numpy().tolist()
        config = {name: model.get_config()[name] for name in SIZES}
        return [*model.get_weights(), np.array(ids), np.array(str(config))]
    if path.name.startswith("state"):
        checkpoint = TrainingCheckpoint(run / "checkpoints")
        checkpoint.restore(model)
        place = checkpoint.history, checkpoint.step, checkpoint.total_steps
        return [*model.get_weights(), np.array(str(place))]
    average_weights(model, sorted((run / "checkpoints").glob("epoch-*")))
    return model.get_weights()


def tried(path, run, model, expected) -> str:
    """Reads a damaged file; returns what came of it."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            found = results(path, run, model)
        except (RunError, CheckpointError) as error:
            is_line = "\n" not in str(error) and path.name in str(error)
            return "refused in a line" if is_line else f"not a line that names it: {error}"
        except Exception as error:
            return f"{type(error).__name__}: {error}"
    if any(f"since {path.name}" in str(warning.message) for warning in caught):
        return "the state before, and a warning"
    equal = all(np.array_equal(a, b) for a, b in zip(found, expected, strict=True))
    return "no difference" if equal else "ANOTHER RESULT"


if __name__ == "__main__":
    main()

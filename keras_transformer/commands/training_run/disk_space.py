"""What the epochs of a training take on the disk, and how many of them to keep."""

import math
import shutil

from keras_transformer.commands.messages import counted, log

MOST_EPOCHS, FEWEST_EPOCHS = 10, 2
# By default the weights of the last epochs take at most as much.
DEFAULT_BYTES = 2**31
NUM_STATES = 2
# Of a float32 number in weights, and in a state with Adam's two moments.
WEIGHT_BYTES, STATE_BYTES = 4, 12


def default_keep(num_parameters: int) -> int:
    """Returns how many epochs to keep: ten, and of large models what takes two gigabytes."""
    fitting = DEFAULT_BYTES // (WEIGHT_BYTES * num_parameters)
    return max(FEWEST_EPOCHS, min(MOST_EPOCHS, fitting))


def report_disk(out, num_parameters: int, keep: int, epochs: int, has_scores: bool) -> None:
    """Says how much a run will take, and warns if there is less."""
    num_kept = min(epochs, keep * (2 if has_scores else 1))
    weights = WEIGHT_BYTES * num_parameters
    # The best epoch is a model of its own, and a new file is written before an old one goes.
    needed = weights * (num_kept + 2) + STATE_BYTES * num_parameters * (NUM_STATES + 1)
    free = shutil.disk_usage(out).free
    epochs = counted(num_kept, "epoch")
    files = f"the weights of up to {epochs}, {NUM_STATES} states to resume from, the best"
    log(f"disk: at most {size(needed)} in {out} ({files}); {size(free)} are free")
    if needed > free:
        log(f"note: {out} has less room than that; give a smaller --keep or another --out")


def size(number: float) -> str:
    """Writes a number of bytes as people do.

    >>> size(3_400_000_000)
    '3.4 GB'
    """
    power = min(4, int(math.log10(max(number, 1)) / 3))
    return f"{number / 1000**power:.3g} {('bytes', 'kB', 'MB', 'GB', 'TB')[power]}"

"""Which of the worker processes of a training on TensorFlow this one is.

`TF_CONFIG` names them all, as `tf.distribute.MultiWorkerMirroredStrategy` reads it.
"""

import json
import os
from typing import NamedTuple

VARIABLE = "TF_CONFIG"
EXAMPLE = (
    '{"cluster": {"worker": ["host0:2222", "host1:2222"]}, "task": {"type": "worker", "index": 0}}'
)


class Worker(NamedTuple):
    """A worker process.

    Attributes:
        rank: its number, from 0; 0 decides.
        count: the number of workers.
    """

    rank: int
    count: int


def this_worker() -> Worker:
    """Reads `TF_CONFIG`.

    Raises:
        ValueError: if it is missing, or names no worker.
    """
    text = os.environ.get(VARIABLE)
    if text is None:
        raise ValueError(f'strategy="multi_worker" needs the variable {VARIABLE}: {EXAMPLE}.')
    try:
        config = json.loads(text)
        cluster, task = config["cluster"], config["task"]
        kinds = {kind: cluster.get(kind, []) for kind in ("chief", "worker")}
        name = kinds[task["type"]][int(task["index"])]
        names = [*kinds["chief"], *kinds["worker"]]
    except (ValueError, KeyError, TypeError, AttributeError, IndexError) as error:
        raise ValueError(
            f"{VARIABLE} must name the workers and which of them this is, such as {EXAMPLE}, but "
            f"is {text} ({error!r})."
        ) from error
    return Worker(names.index(name), len(names))

"""A model's weights as the bytes of an HDF5 file: the weights alone, finite, checked when read."""

import io
import math

import h5py
import keras
import numpy as np

# The group of an HDF5 file in which Keras keeps what an optimizer remembers.
OPTIMIZER = "optimizer"


class _MemoryFile(io.BytesIO):
    """A file in memory. Keras accepts it because its `str` ends in `.weights.h5`."""

    def __str__(self):
        return "memory.weights.h5"


def weights_as_bytes(model: keras.Model) -> bytes:
    """Returns what `model.save_weights` writes, but without the optimizer's moments.

    Raises:
        ValueError: if a weight is NaN or infinite.
    """
    check_finite(model)
    file = _MemoryFile()
    keras.saving.save_weights(model, file, objects_to_skip=_optimizers(model))
    return file.getvalue()


def load_weights(model: keras.Model, data: bytes) -> None:
    """Gives a model the weights in the bytes of an HDF5 file, which may hold an optimizer, too.

    Raises:
        ValueError: if they are damaged, another model's, or not finite.
    """
    found = sum(map(math.prod, declared_shapes(data).values()))
    # Keras loads the weights of a deeper model into a shallower one without a word.
    if found != (count := model.count_params()):
        raise ValueError(f"the weights are {found} numbers, but the model has {count}")
    try:
        keras.saving.load_weights(model, _MemoryFile(data), objects_to_skip=_optimizers(model))
    except Exception as error:  # Keras passes on what h5py raises for damaged files
        raise ValueError(" ".join(str(error).split())) from error
    check_finite(model)


def check_finite(model: keras.Model) -> None:
    """Raises a ValueError that names the first weight that holds NaN or infinity, if any does."""
    for weight in model.weights:
        if not np.isfinite(keras.ops.convert_to_numpy(weight)).all():
            raise ValueError(
                f"the weight {weight.path} holds NaN or infinity; take the weights of an epoch "
                "before, and train with StopOnNaN"
            )


def declared_shapes(data: bytes) -> dict[str, tuple[int, ...]]:
    """Returns the shapes of the weights in an HDF5 file, by path, without reading the weights.

    They are not larger than the file, so a model of these shapes is not either.

    Raises:
        ValueError: if it is no such file, refers to other files, or declares more than it holds.
    """
    try:
        with h5py.File(io.BytesIO(data), "r") as file:
            datasets = {item.name: item for item in _datasets(file)}
            if sum(item.nbytes for item in datasets.values()) > len(data):
                raise ValueError("it declares more numbers than it holds")
            weights = {k: v for k, v in datasets.items() if k.split("/")[1] != OPTIMIZER}
            for path, item in weights.items():
                if item.dtype.kind not in "fV":  # bfloat16 is two bytes of no kind
                    raise ValueError(f"{path} is of {item.dtype}, not of floating-point numbers")
            return {path: item.shape for path, item in weights.items()}
    except Exception as error:  # h5py has no list of what it raises for damaged files
        raise ValueError(f"not the weights of a model: {error}") from error


def _datasets(group):
    """Yields the datasets in a group and below it; raises if one is not in this file."""
    waiting, seen = [group], {group}
    while waiting:
        group = waiting.pop()
        for name in group:
            item = group[name] if isinstance(group.get(name, getlink=True), h5py.HardLink) else None
            if not isinstance(item, (h5py.Group, h5py.Dataset)) or item in seen:
                raise ValueError(f"{group.name}/{name} is a link, or no array")
            seen.add(item)
            if isinstance(item, h5py.Group):
                waiting.append(item)
                continue
            is_here = item.external is None and not item.is_virtual
            if not is_here or item.id.get_storage_size() < item.nbytes:
                raise ValueError(f"the numbers of {item.name} are not in the file")
            yield item


def _optimizers(model):
    return [model.optimizer] if getattr(model, "optimizer", None) is not None else []

"""All that training changes, as arrays: copied from a model between two steps, and given back."""

import keras
import numpy as np

from keras_transformer.backend import STEPS_ARE_PURE
from keras_transformer.training.distribution import scope_of


def training_variables(model: keras.Model) -> list[keras.Variable]:
    """Lists the weights, the seeds of dropout, and the variables of the optimizer."""
    if STEPS_ARE_PURE:  # Keras gives variables their values only at the end of an epoch
        model.jax_state_sync()
    # Some optimizers, such as float16's, make new variables each time they are built.
    if not model.optimizer.built:
        with scope_of(model):
            model.optimizer.build(model.trainable_variables)
    return [*model.variables, *model.optimizer.variables]


def metric_variables(model: keras.Model) -> list[keras.Variable]:
    """Lists the variables of a model's metrics; those of a `TokenModel` have its `StepMetrics`."""
    return list(model.metrics_variables)


def as_arrays(variables: list[keras.Variable]) -> list[np.ndarray]:
    """Copies variables to arrays for an `.npz` file, which cannot hold bfloat16."""
    arrays = (keras.ops.convert_to_numpy(variable) for variable in variables)
    return [
        array.astype("float32") if array.dtype.name == "bfloat16" else np.array(array)
        for array in arrays
    ]


def assign(variables: list[keras.Variable], arrays: list[np.ndarray]) -> bool:
    """Gives variables the values of arrays; returns False and gives none if a shape differs."""
    if [tuple(variable.shape) for variable in variables] != [array.shape for array in arrays]:
        return False
    for variable, array in zip(variables, arrays, strict=True):
        variable.assign(array)
    return True


def are_finite(arrays: list[np.ndarray]) -> bool:
    """Returns whether no array holds NaN or infinity."""
    return all(np.isfinite(array).all() for array in arrays)

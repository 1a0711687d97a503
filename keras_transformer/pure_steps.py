"""Steps of `fit` on JAX, which derives and compiles functions of values, not of variables.

`backend.py` calls what stands here; each function has the meaning of its namesake there.
"""

import keras
from keras import ops


def as_pure_step(step, groups):
    """Turns a step that changes variables into the one that Keras compiles on JAX.

    Args:
        step: function from the data of a batch to its logs, such as `train_step` on TensorFlow.
        groups: lists of all Keras variables that it reads or changes.

    Returns:
        Function from the values of the groups and the data to the logs and the new values.
    """

    def pure_step(state, data):
        variables, values = (sum(map(list, lists), []) for lists in (groups, state))
        pairs = list(zip(variables, values, strict=True))
        with keras.StatelessScope(pairs, collect_losses=True):
            logs = step(data)
            return logs, tuple(map(values_of, groups))

    return pure_step


def pure(function, variables):
    """Turns a function that changes variables, in a pure step, into a function of their values.

    It returns the result and the new values, and leaves the variables as they were: after JAX has
    traced it, their values in the trace mean nothing.
    """

    def pure_function(values, *args):
        before = values_of(variables)
        assign(variables, values)
        try:
            return function(*args), values_of(variables)
        finally:
            assign(variables, before)

    return pure_function


def value_and_gradients(function, variables, changed):
    """Calls a function and computes the gradients of its first value."""
    import jax

    def value(values, before):
        result, after = pure(function, [*variables, *changed])([*values, *before])
        return result[0], (result, after[len(values) :])

    derived = jax.value_and_grad(value, has_aux=True)
    (_, (result, after)), gradients = derived(values_of(variables), values_of(changed))
    assign(changed, after)
    return result, gradients


def sum_over_parts(function, tensors, zeros, parts, changed):
    """Computes `function(*tensors)`, but for rounding, in parts of a batch, one after another.

    Part i of k has the rows i, i + k, i + 2k, ...: so each device has rows of each part. A batch of
    few rows has fewer parts than `parts`.
    """
    import jax

    size = tensors[0].shape[0]
    rows = -(-size // parts)

    def split(x):
        """Reshapes (B, ...) to (k, rows, ...), with rows of zeros at the end."""
        padding = [(0, -size % rows)] + [(0, 0)] * (len(x.shape) - 1)
        return ops.swapaxes(ops.reshape(ops.pad(x, padding), (rows, -1, *x.shape[1:])), 0, 1)

    def add_part(carry, part):
        sums, before = carry
        (new, states), after = pure(function, changed)(before, *part)
        return ([a + b for a, b in zip(sums, new, strict=True)], after), states

    start = list(zeros), values_of(changed)
    (sums, after), states = jax.lax.scan(add_part, start, [split(x) for x in tensors])
    assign(changed, after)
    if states is not None:
        states = ops.swapaxes(states, 0, 1)  # (rows, k, ...)
        states = ops.reshape(states, (-1, *states.shape[2:]))[:size]
    return sums, states


def apply_gradients(optimizer, gradients, variables):
    """Lets a Keras optimizer change variables by their gradients."""
    # In this form the conditions of a `LossScaleOptimizer` assign nothing.
    state = values_of(optimizer.variables)
    new = optimizer.stateless_apply(state, gradients, values_of(variables))
    for group, values in zip((variables, optimizer.variables), new, strict=True):
        assign(group, values)


def showing_numbers(step, groups):
    """Makes a compiled step give callbacks the numbers that it has changed, such as metrics.

    Keras gives variables their new values at the end of an epoch. Here those of no axis get theirs
    after each step, without waiting for it.

    Args:
        step: function from the values of the groups and an iterator to logs and new values.
        groups: lists of all Keras variables that it changes.
    """
    places = [
        (i, j, variable)
        for i, group in enumerate(groups)
        for j, variable in enumerate(group)
        if variable.shape == ()
    ]

    def step_and_show(state, iterator):
        logs, state = step(state, iterator)
        for i, j, variable in places:
            variable.assign(state[i][j])
        return logs, state

    return step_and_show


def compiled(function, variables):
    """Compiles a function that reads variables, once for each shape of its arguments.

    Where each device has all of them, it runs on one device of this process.
    """
    import jax

    @jax.jit
    def pure_function(values, *args):
        with keras.StatelessScope(list(zip(variables, values, strict=True))):
            return function(*args)

    def call(*args):
        values = values_of(variables)
        if all(value.is_fully_replicated for value in values):
            values = [value.addressable_data(0) for value in values]
        return pure_function(values, *args)

    return call


def values_of(variables) -> list:
    """Returns the values of Keras variables."""
    return [variable.value for variable in variables]


def assign(variables, values) -> None:
    """Gives Keras variables their values."""
    for variable, value in zip(variables, values, strict=True):
        variable.assign(value)

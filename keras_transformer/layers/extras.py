"""What a layer returns besides its output, only where it is asked for."""


def as_tuple(outputs) -> tuple:
    """The output of a layer followed by its extras, also where there are none."""
    return outputs if isinstance(outputs, tuple) else (outputs,)

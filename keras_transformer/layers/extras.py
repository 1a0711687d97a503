"""What a layer returns besides its output, only where it is asked for."""

import keras


class WithExtras:
    """Mixed into a layer that may return extras, whose shapes Keras then finds by a trial call.

    `compute_output_shape` declares the output alone, which is enough, and sooner done, without.
    """

    def compute_output_spec(self, *args, **kwargs):
        asked = kwargs.get("return_attention_scores") or any(value is True for value in args)
        if asked or kwargs.get("cache") is not None:
            return keras.Operation.compute_output_spec(self, *args, **kwargs)
        return super().compute_output_spec(*args, **kwargs)


def as_tuple(outputs) -> tuple:
    """The output of a layer followed by its extras, also where there are none."""
    return outputs if isinstance(outputs, tuple) else (outputs,)

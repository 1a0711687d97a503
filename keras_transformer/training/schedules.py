"""The learning rate of the paper's section 5.3."""

import keras
from keras import ops

from keras_transformer.checks import check_number, check_positive_int


@keras.saving.register_keras_serializable(package="keras_transformer")
class TransformerSchedule(keras.optimizers.schedules.LearningRateSchedule):
    """Linear warm-up, then decay with the inverse square root of the step.

    `scale * d_model^-0.5 * min(step^-0.5, step * warmup_steps^-1.5)` ("Attention Is All You
    Need", equation 3, where `scale` is 1). Keras counts steps from 0, where the formula is not
    defined, so step 0 gets the rate of step 1.

    A short training gains from a cool-down: over the last `cooldown_steps` of `total_steps`, the
    rate is also multiplied by a line that falls from 1 to 0.

    Args:
        d_model: the width of the model.
        warmup_steps: the step at which the rate peaks.
        scale: multiplies the rate; small models on small data can take larger rates.
        cooldown_steps: the length of the cool-down; 0 leaves it out.
        total_steps: the step at which training ends; needed for a cool-down.

    Call arguments:
        step: the number of finished updates, an integer or an integer tensor.

    Returns:
        The learning rate, a float32 scalar.

    Raises:
        ValueError: if an argument is not positive, or the cool-down does not fit `total_steps`.

    Example:
        >>> schedule = TransformerSchedule(d_model=512, warmup_steps=4000)
        >>> round(float(schedule(4000)), 6)
        0.000699
    """

    def __init__(
        self,
        d_model: int,
        warmup_steps: int = 4000,
        scale: float = 1.0,
        *,
        cooldown_steps: int = 0,
        total_steps: int | None = None,
    ):
        super().__init__()
        self.d_model = check_positive_int("d_model", d_model)
        self.warmup_steps = check_positive_int("warmup_steps", warmup_steps)
        self.scale = check_number(
            "scale", scale, float, "a positive number", lambda x: 0 < x < float("inf")
        )
        if total_steps is not None:
            total_steps = check_positive_int("total_steps", total_steps)
        cooldown_steps = check_number(
            "cooldown_steps", cooldown_steps, int, "an integer", lambda x: True
        )
        if cooldown_steps and (total_steps is None or not 0 < cooldown_steps <= total_steps):
            raise ValueError(
                "cooldown_steps must be in [0, total_steps], but cooldown_steps="
                f"{cooldown_steps!r} and total_steps={total_steps!r}; give total_steps, the "
                "number of updates."
            )
        self.cooldown_steps = cooldown_steps
        self.total_steps = total_steps

    def __call__(self, step):
        step = ops.maximum(ops.cast(step, "float32"), 1.0)
        decay = ops.minimum(ops.rsqrt(step), step * self.warmup_steps**-1.5)
        rate = self.scale * self.d_model**-0.5 * decay
        if not self.cooldown_steps:
            return rate
        return rate * ops.clip((self.total_steps - step) / self.cooldown_steps, 0.0, 1.0)

    def get_config(self):
        names = ("d_model", "warmup_steps", "scale", "cooldown_steps", "total_steps")
        return {name: getattr(self, name) for name in names}

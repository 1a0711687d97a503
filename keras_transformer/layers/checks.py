"""Checks of constructor arguments: one error that names the field, the value and the remedy."""


def check_positive_int(name: str, value) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise ValueError(f"{name} must be an integer of at least 1, but is {value!r}.")
    return value


def check_count(name: str, value) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise ValueError(f"{name} must be an integer of at least 0, but is {value!r}.")
    return value


def check_rate(name: str, value) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 <= value < 1:
        raise ValueError(f"{name} must be a number in [0, 1), but is {value!r}.")
    return value


def check_heads(d_model: int, num_heads: int) -> None:
    check_positive_int("d_model", d_model)
    check_positive_int("num_heads", num_heads)
    if d_model % num_heads:
        raise ValueError(
            f"d_model must be a multiple of num_heads, but d_model={d_model} and "
            f"num_heads={num_heads}; choose num_heads among the divisors of {d_model}."
        )


def check_choice(name: str, value, choices) -> str:
    if value not in choices:
        allowed = ", ".join(repr(choice) for choice in choices)
        raise ValueError(f"{name} must be one of {allowed}, but is {value!r}.")
    return value


def check_quantiles(values) -> tuple[float, ...]:
    values = tuple(values) if hasattr(values, "__iter__") else (values,)
    numbers = all(isinstance(value, (int, float)) and 0 < value < 1 for value in values)
    if not numbers or any(low >= high for low, high in zip(values, values[1:], strict=False)):
        raise ValueError(
            f"quantiles must be rising numbers in (0, 1), such as (0.1, 0.5, 0.9), not {values!r}."
        )
    return values

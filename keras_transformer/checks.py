"""Checks of arguments: one error that names the field, the value and the remedy."""

import os
import re
from collections.abc import Mapping
from numbers import Integral, Real
from pathlib import Path

LARGEST_INT32, LARGEST_SEED = 2**31 - 1, 2**63 - 1
TRAINING_PRECISIONS = ("auto", "float32", "bfloat16", "float16")  # to train in


def check_number(name: str, value, kind: type, allowed: str, is_allowed, remedy: str = ""):
    """Returns a number of Python or NumPy as `kind`; raises if `is_allowed(value)` is false.

    `kind` is `int` or `float`. The error says that the value must be `allowed`, and the remedy.
    """
    numbers = Integral if kind is int else Real
    if isinstance(value, bool) or not isinstance(value, numbers) or not is_allowed(value):
        raise ValueError(f"{name} must be {allowed}, but is {value!r}{remedy and '; '}{remedy}.")
    return kind(value)


def check_int(name: str, value, least: int, most: int = LARGEST_INT32) -> int:
    """Returns an integer of Python or NumPy as an `int`; raises outside [least, most]."""
    check_number(name, value, int, f"an integer of at least {least}", lambda x: x >= least)
    return check_number(name, value, int, f"at most {most}", lambda x: x <= most)


def check_ints(values: dict, least: dict[str, int]) -> dict:
    """Returns `values`; checks those that `least` names as integers of at least that."""
    return {k: check_int(k, v, least[k]) if k in least else v for k, v in values.items()}


def check_counts(name: str, values) -> tuple[int, ...]:
    """Returns integers of at least 0 as a tuple; raises for others."""
    return tuple(check_count(name, value) for value in values)


def check_positive_int(name: str, value) -> int:
    """Returns an integer of at least 1; raises for another value."""
    return check_int(name, value, 1)


def check_count(name: str, value) -> int:
    """Returns an integer of at least 0; raises for another value."""
    return check_int(name, value, 0)


def check_seed(value) -> int:
    """Returns a seed that every random generator of the library takes; raises for others."""
    return check_int("seed", value, 0, LARGEST_SEED)


def check_texts(name: str, texts) -> list[str]:
    """Returns `texts` as a list of strings; raises a TypeError that names what is not one.

    A lone surrogate, which is no character and which UTF-8 cannot spell, becomes U+FFFD.
    """
    texts = texts.tolist() if hasattr(texts, "tolist") else texts  # NumPy or pandas
    if isinstance(texts, (str, bytes)):
        raise TypeError(f"{name} must be a list of strings, but is one: {texts!r}; make it a list.")
    if isinstance(texts, Mapping) or hasattr(texts, "columns") or not hasattr(texts, "__iter__"):
        remedy = 'pass a list, such as one column, table["text"]'
        raise TypeError(f"{name} must be a list of strings, but is {texts!r}; {remedy}.")
    texts = list(texts)
    for i, text in enumerate(texts):
        if not isinstance(text, str):
            raise TypeError(f"{name}[{i}] must be a string, but is {text!r}.")
    return [without_surrogates(text) for text in texts]


def without_surrogates(text: str) -> str:
    """Returns a string that UTF-8 can spell: with U+FFFD for each lone surrogate."""
    return text if text.isascii() else re.sub("[\ud800-\udfff]", "\ufffd", text)


def check_aligned(**named) -> list[list[str]]:
    """Returns two lists of strings, named in the plural; raises if their lengths differ."""
    texts = [check_texts(name, texts) for name, texts in named.items()]
    (first, second), sizes = named, [len(column) for column in texts]
    if sizes[0] != sizes[1]:
        raise ValueError(
            f"{first} and {second} must be aligned, but there are {sizes[0]} {first} and "
            f"{sizes[1]} {second}; give as many {second} as {first}."
        )
    return texts


def check_has(name: str, kind: str, value, attributes, remedy: str = "") -> None:
    """Raises a TypeError if `value`, which should be like a `kind`, lacks one of `attributes`."""
    missing = [attribute for attribute in attributes if not hasattr(value, attribute)]
    if missing:
        raise TypeError(
            f"{name} must be a {kind}, but is {value!r}, which has no {', '.join(missing)}"
            f"{remedy and '; '}{remedy}."
        )


def check_tokenizer(tokenizer, *needed: str) -> None:
    """Raises a TypeError for what is not like a `Tokenizer`, and says what is missing."""
    remedy = "make one with Tokenizer.train or Tokenizer.load, or work with your own ids: "
    remedy += "Transformer and LanguageModel learn from arrays, and translate and generate take ids"
    check_has("tokenizer", "Tokenizer", tokenizer, needed, remedy)
    if "vocab_size" in needed:
        check_int("tokenizer.vocab_size", tokenizer.vocab_size, 1)


def check_rate(name: str, value) -> float:
    """Returns a rate of dropout, in [0, 1); raises for another value."""
    return check_number(name, value, float, "a number in [0, 1)", lambda x: 0 <= x < 1)


def check_heads(d_model: int, num_heads: int) -> tuple[int, int]:
    """Returns a model's width and number of heads; raises if the heads do not divide the width."""
    d_model = check_positive_int("d_model", d_model)
    num_heads = check_positive_int("num_heads", num_heads)
    if d_model % num_heads:
        raise ValueError(
            f"d_model must be a multiple of num_heads, but d_model={d_model} and "
            f"num_heads={num_heads}; choose num_heads among the divisors of {d_model}."
        )
    return d_model, num_heads


def check_bool(name: str, value) -> bool:
    """Returns a boolean of Python or NumPy as a `bool`; raises for others."""
    if type(value).__name__ not in ("bool", "bool_"):
        raise ValueError(f"{name} must be True or False, but is {value!r}.")
    return bool(value)


def check_choice(name: str, value, choices) -> str:
    """Returns `value` if it is one of `choices`; raises if not."""
    if value not in tuple(choices):  # a dict would refuse a list with another error
        allowed = ", ".join(repr(choice) for choice in choices)
        raise ValueError(f"{name} must be one of {allowed}, but is {value!r}.")
    return value


def check_quantiles(values) -> tuple[float, ...]:
    """Returns the levels of quantiles as a tuple; raises if they do not rise within (0, 1)."""
    values = tuple(values) if hasattr(values, "__iter__") else (values,)
    numbers = all(isinstance(value, Real) and 0 < value < 1 for value in values)
    if not numbers or any(low >= high for low, high in zip(values, values[1:], strict=False)):
        raise ValueError(
            f"quantiles must be rising numbers in (0, 1), such as (0.1, 0.5, 0.9), not {values!r}."
        )
    return tuple(map(float, values))


def check_local(name: str, path) -> None:
    """Raises a ValueError for an address such as gs://bucket/run, which is no path here."""
    path = os.fspath(path)
    # A `Path` has dropped one of the slashes.
    if isinstance(path, str) and re.match(r"[A-Za-z][A-Za-z0-9+.-]+:/", path):
        raise ValueError(
            f"{name} must be a path of this machine, but is {path}; copy the files, or mount the "
            "storage and name the folder."
        )


def check_directory(name: str, path) -> None:
    """Raises a ValueError if `path` is an address, or it or a folder above it is a file."""
    check_local(name, path)
    for part in (Path(path), *Path(path).parents):
        if part.exists():
            if not part.is_dir():
                place = f"{name} {path}" + ("" if part == Path(path) else f": {part}")
                raise ValueError(f"{place} is a file; name another directory.")
            return


def check_new_file(name: str, path) -> None:
    """Raises a ValueError if no file can be made at `path`; call it before long work."""
    check_local(name, path)
    path = Path(path)
    if path.is_dir():
        raise ValueError(f"{name} {path} is a directory; name a file in it.")
    if not path.parent.is_dir():
        raise ValueError(f"{name} {path}: there is no directory {path.parent}; make it first.")

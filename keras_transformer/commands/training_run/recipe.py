"""How to train on a text of some size: the settings that `train` takes where none is given."""

import math
from argparse import Namespace
from typing import NamedTuple

import numpy as np

from keras_transformer.commands.messages import counted, log
from keras_transformer.commands.options import dashed, given_options
from keras_transformer.commands.training_run.model_size import model_size, num_parameters

# By the target tokens of a text: those of a batch, and passes over the text. What lies between two
# rows is interpolated, all on logarithmic scales. The rows are 200, 2,000 and 29,000 captions, and
# about the sizes of IWSLT and of WMT.
ROWS = (
    (3_000, 512, 200),
    (40_000, 1_024, 100),
    (450_000, 2_048, 30),
    (4_000_000, 4_096, 20),
    (130_000_000, 24_576, 10),
)
# By the target tokens for each parameter of the model: less text needs more dropout.
DROPOUT = ((0.6, 0.3), (2.0, 0.1))
# A norm before each sub-layer learns more from little text, one after it from much.
MOST_TOKENS_NORM_FIRST = 20_000_000
BATCH_MULTIPLE = 128
# Positions of a batch for each token, since sentences are padded.
PADDING = 1.1
COOLDOWN, LONGEST_WARMUP = 0.5, 4_000
# The largest learning rate, of a model of this width.
PEAK_RATE, PEAK_WIDTH, PEAK_POWER = 0.004, 128, -1.25
LONGEST_MEAN, LEAST_PATIENCE, FEW_EPOCHS = 10, 5, 5
# A model with more tokens for each of its parameters than this has no room for what they say.
MOST_TOKENS_PER_PARAMETER = 8
PRESETS = ("tiny", "small", "base", "big")
CHOSEN = ("batch_tokens", "epochs", "warmup_steps", "learning_rate_scale", "cooldown", "dropout")
CHOSEN += ("average", "early_stopping", "norm_first", "norm_last")


class Text(NamedTuple):
    """The size of a text to train on.

    Attributes:
        pairs: how many.
        target_tokens: of all targets, about.
        is_validated: whether there is text to validate on.
    """

    pairs: int
    target_tokens: int
    is_validated: bool = True


class Model(NamedTuple):
    """The size of a model: its parameters, and its width."""

    parameters: int
    d_model: int


def recipe(text: Text, model: Model, given: dict) -> dict:
    """Returns the settings that suit a text, by the names of the options.

    Args:
        text: its size.
        model: its size.
        given: values of options that are settled, which the others follow.

    Returns:
        The value of each of `CHOSEN` that is not given; those that do not apply are left out.
    """
    found, epochs, steps = _length(text, given)
    found["warmup_steps"] = min(max(1, steps // 4), LONGEST_WARMUP)
    warmup_steps = (found | given)["warmup_steps"]
    found["learning_rate_scale"] = _rate_scale(model.d_model, warmup_steps)
    found["cooldown"] = COOLDOWN
    tokens_per_parameter = text.target_tokens / model.parameters
    found["dropout"] = round(20 * _interpolated(tokens_per_parameter, DROPOUT)[0]) / 20
    # With --valid-steps these are counted as epochs.
    rounds = math.ceil(steps / given["valid_steps"]) if "valid_steps" in given else epochs
    found["average"] = epochs_of_mean(rounds)
    if text.is_validated:
        patience = max(LEAST_PATIENCE, rounds // 3)
        # Of few epochs each one counts.
        found["early_stopping"] = patience if rounds >= 2 * LEAST_PATIENCE else 0
    if not {"norm_first", "norm_last"} & given.keys():
        is_first = text.target_tokens <= MOST_TOKENS_NORM_FIRST
        found["norm_first" if is_first else "norm_last"] = True
    return {name: value for name, value in found.items() if name not in given}


def epochs_of_mean(epochs: int) -> int:
    """Returns how many of the last epochs to average."""
    return min(LONGEST_MEAN, epochs // 3) if epochs > FEW_EPOCHS else 0


def _length(text, given) -> tuple[dict, int, int]:
    """Returns the batches and epochs that suit, and what is trained: epochs and steps, about."""
    usual_batch, usual_epochs = _interpolated(text.target_tokens, ROWS)
    found = {"batch_tokens": max(1, round(usual_batch / BATCH_MULTIPLE)) * BATCH_MULTIPLE}
    batch_tokens = (found | given)["batch_tokens"]
    steps_in_epoch = math.ceil(PADDING * text.target_tokens / batch_tokens)
    if "max_steps" in given:
        return found, math.ceil(given["max_steps"] / steps_in_epoch), given["max_steps"]
    # With larger batches there are fewer steps, but each one learns more.
    ratio = batch_tokens / usual_batch if "batch_tokens" in given else 1
    found["epochs"] = max(1, round(usual_epochs * math.sqrt(ratio)))
    epochs = (found | given)["epochs"]
    return found, epochs, epochs * steps_in_epoch


def _interpolated(size: float, rows) -> list[float]:
    """Returns the other columns of a table at a size; beyond its ends they stay as they are."""
    sizes, *columns = zip(*rows, strict=True)
    logs = np.log(sizes)
    return [float(np.exp(np.interp(np.log(size), logs, np.log(column)))) for column in columns]


def _rate_scale(d_model: int, warmup_steps: int) -> float:
    """Returns the factor of the paper's rate with which it rises to the largest that suits."""
    of_paper = (LONGEST_WARMUP * d_model) ** -0.5
    peak = max(PEAK_RATE * (d_model / PEAK_WIDTH) ** PEAK_POWER, of_paper)
    return round(peak * math.sqrt(d_model * warmup_steps), 2)


def choose(options, text: Text, num_subwords: int, **settled) -> None:
    """Gives the options the settings that suit a text, where none is given, and says which.

    Args:
        options: those of `train`; `chosen` lists the names of those that were not given.
        text: its size.
        num_subwords: the size of the vocabulary.
        settled: values that are known since, such as the steps for which there is time.
    """
    before = [name for name in options.chosen if name in CHOSEN]
    for name in before:  # they are chosen again
        setattr(options, name, None)
    options.chosen = [name for name in options.chosen if name not in before]
    given = given_options(options, (*CHOSEN, "max_steps", "valid_steps"))
    size = model_size(options)
    model = Model(num_parameters(size, num_subwords), size["d_model"])
    found = settled | recipe(text, model, given | settled)
    for name in found.keys() - given.keys():
        setattr(options, name, found[name])
    options.chosen += [name for name in found if name not in given]
    if settled and options.chosen:
        log("so this follows instead:")
        log(f"  {as_typed({name: getattr(options, name) for name in options.chosen})}")
    elif options.chosen:
        report(options, text, model, num_subwords)


def report(options, text: Text, model: Model, num_subwords: int) -> None:
    """Says what was chosen and by what; and which preset suits, if the text is large for this."""
    log(
        f"{counted(text.pairs, 'pair')} with {short(text.target_tokens)} target tokens, "
        f"{text.target_tokens / model.parameters:.2g} for each parameter of the model; what was "
        "not given follows from that:"
    )
    log(f"  {as_typed({name: getattr(options, name) for name in options.chosen})}")
    preset = _preset(options, text.target_tokens, num_subwords)
    if preset != options.preset:
        log(
            f"note: --preset {options.preset} is small for so much text; --preset {preset} learns "
            "more from it, and takes longer"
        )


def _preset(options, target_tokens, num_subwords) -> str:
    """Returns the smallest preset from the given one on that has room for so many tokens."""
    preset = options.preset
    for preset in PRESETS[PRESETS.index(options.preset) :]:
        try:
            size = model_size(Namespace(**vars(options) | {"preset": preset}))
        except ValueError:  # the options change sizes so that this one is none
            return options.preset
        if target_tokens <= MOST_TOKENS_PER_PARAMETER * num_parameters(size, num_subwords):
            break
    return preset


def as_typed(values: dict) -> str:
    """Writes options as they would be typed.

    >>> as_typed({"batch_tokens": 2048, "norm_first": True, "dropout": 0.3})
    '--batch-tokens 2048 --norm-first --dropout 0.3'
    """
    words = []
    for name, value in values.items():
        number = f"{value:g}" if isinstance(value, float) else str(value)
        words.append(dashed([name]) if value is True else f"{dashed([name])} {number}")
    return " ".join(words)


def short(number: int) -> str:
    """Writes a large number in two or three digits.

    >>> short(462_043), short(26_100), short(130_100_000)
    ('0.46 million', '26,100', '130 million')
    """
    return f"{number:,}" if number < 100_000 else f"{float(f'{number / 1e6:.2g}'):,g} million"

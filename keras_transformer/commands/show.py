"""`keras-transformer show`: what made a run or an export, for a person or a program."""

import json
import shutil
import textwrap

from keras_transformer.commands.messages import spelled
from keras_transformer.commands.options import dashed
from keras_transformer.training.card import kept_text, read_card, size_text

# The columns of the epochs, by the names of the logs; others stand only in --json.
COLUMNS = {
    "epoch": ("epoch", "{:.0f}"),
    "step": ("step", "{:.0f}"),
    "loss": ("loss", "{:.3f}"),
    "val_loss": ("val. loss", "{:.3f}"),
    "perplexity": ("perplexity", "{:.2f}"),
    "val_perplexity": ("val. perpl.", "{:.2f}"),
    "val_bleu": ("BLEU", "{:.1f}"),
    "val_chrf": ("chrF", "{:.1f}"),
    "learning_rate": ("rate", "{:.2e}"),
    "seconds": ("seconds", "{:.0f}"),
    "tokens_per_second": ("tokens/s", "{:,.0f}"),
}
LABEL_WIDTH, NARROWEST, DIGITS_OF_HASH = 14, 16, 12
ABSENT = "-"  # an option that was not given


def run(options) -> None:
    """Prints the card of each run or export, or in what several differ."""
    cards = [read_card(path) for path in options.models]
    if options.json:
        # One object for one, a list for several.
        print(json.dumps(cards if len(cards) > 1 else cards[0], indent=2))
        return
    lines = comparison(cards) if len(cards) > 1 else description(cards[0])
    for line in lines:
        print(spelled(line.rstrip()))


def description(card) -> list[str]:
    """Returns the lines that describe one run or export."""
    if card["kind"] == "run":
        head = f"{card['path']}: a run{_progress(card)}"
    else:
        made = f", made {_time(card['made'])}" if "made" in card else ""
        head = f"{card['path']}: an export{made}"
    lines, own = [head, ""], facts(card)
    for label, value in own.items():
        lines += _paragraph(label, value)
    training = card if card["kind"] == "run" else card.get("run") or {}
    if training is not card and training:
        lines += ["", "the run that it was made from", ""]
        for label, value in facts(training).items():
            lines += _paragraph(label, value) if own.get(label) != value else []
    lines += _epochs(training)
    for name, what in (("unknown", "not known"), ("damage", "damaged")):
        for text in [*card[name], *(training.get(name, ()) if training is not card else ())]:
            lines += ["", *_paragraph(what, text)]
    return lines


def facts(card) -> dict[str, str]:
    """Returns what a person wants to know of a card first, a text for each label."""
    model = dict(card.get("model") or {})
    kind, parameters = model.pop("class", None), model.pop("parameters", None)
    size = f"{kind}, {parameters:,} parameters" if kind and parameters else ""
    found = {
        "model": size,
        "sizes": _pairs(model),
        "search": _pairs(card.get("search")),
        "limits": _pairs(card.get("limits")),
        "signatures": ", ".join(card.get("signatures", ())),
        "kept": kept_text(card),
        "precision": card.get("precision"),
        "text": _lines(card.get("texts")),
        "tokenizer": _text("", card.get("tokenizer")),
        "options": _options(card.get("options"), without=card.get("chosen") or ()),
        "chosen": _chosen(card),
        "versions": _pairs(card.get("versions")),
        "machine": _pairs(card.get("machine")),
        "began": _time(card.get("began")),
        "ended": _time(card.get("ended")),
        "files": _lines(card.get("files")),
    }
    return {label: value for label, value in found.items() if value}


def comparison(cards) -> list[str]:
    """Returns a table of all in which cards differ, a column for each."""
    tables = [_flat(card) for card in cards]
    labels = list(dict.fromkeys(label for table in tables for label in table))
    rows = [(label, [table.get(label, "?") for table in tables]) for label in labels]
    # What one does not know and no other was given is no difference.
    rows = [row for row in rows if len(set(row[1])) > 1 and set(row[1]) != {"?", ABSENT}]
    heads = ["", *(card["path"] for card in cards)]
    if not rows:
        return ["they differ in nothing that their cards know"]
    first = max(len(label) for label, _ in rows)
    width = (shutil.get_terminal_size((100, 24)).columns - first) // len(cards) - 2
    lines = _row(heads[0], heads[1:], first, max(width, NARROWEST))
    for label, values in rows:
        lines += _row(label, values, first, max(width, NARROWEST))
    return lines


def _row(label, values, first, width) -> list[str]:
    cells = [textwrap.wrap(value, width) or [""] for value in values]
    height = max(map(len, cells))
    cells = [cell + [""] * (height - len(cell)) for cell in cells]
    texts = [label, *[""] * (height - 1)]
    return [
        f"{text:{first}}  " + "  ".join(f"{part:{width}}" for part in parts)
        for text, *parts in zip(texts, *cells, strict=True)
    ]


def _flat(card) -> dict[str, str]:
    """Returns all of a card, a short text for each label."""
    training = card if card["kind"] == "run" else card.get("run") or {}
    found = {"kind": card["kind"], "precision": card.get("precision")}
    for part in ("model", "search", "limits"):
        found |= {f"{part}: {name}": value for name, value in (card.get(part) or {}).items()}
    found["kept"] = kept_text(training)
    history = training.get("history") or [{}]
    found["epochs"] = len(training.get("history") or ())
    found |= {f"last epoch: {COLUMNS[k][0]}": _number(k, history[-1]) for k in COLUMNS}
    options = training.get("options") or {}
    found |= {
        dashed([name]): ABSENT if value is None or value is False else _value(value)
        for name, value in options.items()
    }
    found |= {f"text: {name}": _text(name, x) for name, x in (training.get("texts") or {}).items()}
    found["tokenizer"] = _text("", card.get("tokenizer") or training.get("tokenizer"))
    for part in ("versions", "machine"):
        found |= {f"{part}: {name}": value for name, value in (card.get(part) or {}).items()}
    found |= {name: _time(training.get(name)) for name in ("began", "ended")}
    found |= {f"file: {name}": _text("", file) for name, file in card.get("files", {}).items()}
    return {name: _value(value) for name, value in found.items() if value not in (None, "")}


def _progress(card) -> str:
    history, options = card["history"], card.get("options") or {}
    if options.get("epochs") is None and options.get("max_steps") is None:
        return ""
    state = "finished" if card["is_finished"] else "not finished"
    step = history[-1].get("step", 0) if history else 0
    if options.get("max_steps"):
        return f", {state}: {step} of {options['max_steps']} steps"
    if options.get("valid_steps"):
        return f", {state}: {step} steps"
    return f", {state}: {len(history)} of {options['epochs']} epochs"


def _epochs(card) -> list[str]:
    """Returns a table of all epochs; a star marks the one that was kept."""
    history = card.get("history")
    if not history:
        return []
    names = [name for name in COLUMNS if any(name in epoch for epoch in history)]
    heads = [COLUMNS[name][0] for name in names]
    rows = [[_number(name, epoch) for name in names] for epoch in history]
    widths = [max(map(len, column)) for column in zip(heads, *rows, strict=True)]
    kept = (card.get("kept") or {}).get("epoch")
    lines = ["", "  ".join(f"{head:>{width}}" for head, width in zip(heads, widths, strict=True))]
    for epoch, row in zip(history, rows, strict=True):
        star = "  * kept" if kept is not None and epoch.get("epoch") == kept else ""
        cells = (f"{cell:>{width}}" for cell, width in zip(row, widths, strict=True))
        lines.append("  ".join(cells) + star)
    return lines


def _number(name, epoch) -> str:
    value = epoch.get(name)
    return COLUMNS[name][1].format(value) if isinstance(value, int | float) else ""


def _paragraph(label, value) -> list[str]:
    """Returns lines of a terminal's width, the label at the left of the first."""
    width, margin = shutil.get_terminal_size((100, 24)).columns, " " * LABEL_WIDTH
    fill = {"subsequent_indent": "  ", "break_on_hyphens": False}
    width = max(width - LABEL_WIDTH, 2 * NARROWEST)
    lines = [line for text in value.split("\n") for line in textwrap.wrap(text, width, **fill)]
    return [f"{label:{LABEL_WIDTH}}{lines[0]}", *(margin + line for line in lines[1:])]


def _pairs(values) -> str:
    shown = {name: value for name, value in (values or {}).items() if value not in (None, [])}
    return ", ".join(f"{name} {_value(value)}" for name, value in shown.items())


def _chosen(card) -> str:
    """Returns the options that were not given, but chosen by the size of the text."""
    options = card.get("options") or {}
    chosen = {name: options.get(name) for name in card.get("chosen") or ()}
    return f"by the size of the text: {_options(chosen)}" if chosen else ""


def _options(options, without=()) -> str:
    """Returns the options as they would be typed, those without a value left out."""
    given = {
        name: x
        for name, x in (options or {}).items()
        if x is not None and x is not False and name not in without
    }
    return " ".join(
        dashed([name]) if value is True else f"{dashed([name])} {_value(value)}"
        for name, value in given.items()
    )


def _text(label, record) -> str:
    """Returns the name, the size and the beginning of the hash of a file or a text."""
    if not record:
        return ""
    parts = [
        record.get("name"),
        size_text(label, record),
        f"{record['vocab_size']:,} subwords" if "vocab_size" in record else None,
        f"sha256 {record['sha256'][:DIGITS_OF_HASH]}" if record.get("sha256") else None,
    ]
    return ", ".join(part for part in parts if part)


def _lines(records) -> str:
    """Returns a line for each file or text."""
    return "\n".join(f"{name}: {_text(name, record)}" for name, record in (records or {}).items())


def _time(text) -> str:
    return (text or "").replace("T", " ").replace("+00:00", " UTC")


def _value(value) -> str:
    if isinstance(value, list | tuple):
        return " ".join(map(_value, value))
    return f"{value:g}" if isinstance(value, float) else str(value)

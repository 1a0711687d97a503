"""The card of a run or an export: what it is and what made it, read from its files alone."""

import json
import os
from dataclasses import asdict
from pathlib import Path
from zipfile import BadZipFile

from keras_transformer.files import (
    MAX_JSON_BYTES,
    SELF,
    FileError,
    fingerprint,
    parse_object,
    read_bytes,
    read_json,
)
from keras_transformer.training.run_record import RECORD, RunRecord
from keras_transformer.version_directory import EXPORT_CARD, MANIFEST, saved_model_path

CONFIG, RUN_MANIFEST, HISTORY = "config.json", "manifest.json", "history.jsonl"
DATA_SETS = ("synthetic", "tfds", "validation")
METRICS = {"bleu": "BLEU", "chrf": "chrF"}
STATES = "checkpoints/state-*.npz"
# What `unknown` says, by what a run or an export lacks.
NO_RECORD = (
    f"options, text, versions, machine and time: it has no {RECORD}; a version before 0.2.0, "
    "average or save_run wrote it"
)
NO_TIME = "time: the version that began it did not note it"
NO_HISTORY = f"epochs: it has neither {HISTORY} nor states of a training"
NO_KEPT = "the epoch that was kept: what wrote it did not note it"
NO_CARD = f"search, limits, precision and run: it has no {EXPORT_CARD}; export it again"
NO_RUN = "run: it was exported from a model in memory"


def read_card(path, *, compares: bool = True) -> dict:
    """Reads what a run or an export says of itself.

    Args:
        path: a run directory, an export's directory, or one version of an export.
        compares: whether to compare its files with their hashes.

    Returns:
        A dict of JSON values. "kind" is "run" or "export"; "unknown" lists what its files do not
        tell, "damage" what is not as it was written.

    Raises:
        ValueError: if `path` is neither.
    """
    path = Path(path)
    if any((path / name).is_file() for name in (RUN_MANIFEST, RECORD)):
        return _run_card(path, compares)
    version = saved_model_path(path)
    if version is None:
        what = "is neither a run nor an export" if path.exists() else "does not exist"
        raise ValueError(f"{path} {what}; name a directory that train or export has written.")
    return _export_card(version, compares)


def kept_text(card) -> str:
    """Says which epoch of a run was kept, or, if that is not known, which was the best; or ""."""
    if card.get("kept"):
        kept = card["kept"]
        name, value = METRICS.get(kept.get("metric"), kept.get("metric")), kept.get("value")
        score = f", {name} {value:.2f}" if isinstance(value, int | float) else ""
        signature = f"; {kept['signature']}" if kept.get("signature") else ""
        why = f" ({kept['why']})" if kept.get("why") else ""
        return f"epoch {kept.get('epoch')}{score}{why}{signature}"
    scored = [
        epoch for epoch in card.get("history") or () if isinstance(epoch.get("val_bleu"), float)
    ]
    if not scored:
        return ""
    best = max(scored, key=lambda epoch: (epoch["val_bleu"], epoch["epoch"]))
    return f"the best is epoch {best['epoch']}, BLEU {best['val_bleu']:.2f}"


def size_text(name, record) -> str:
    """Returns the size of a file, or of a data set by its name among the texts of a run."""
    unit = "pairs" if name in DATA_SETS else "bytes"
    return f"{record['size']:,} {unit}" if isinstance(record.get("size"), int) else ""


def _run_card(directory: Path, compares: bool) -> dict:
    card = {"kind": "run", "path": os.path.abspath(directory), "unknown": [], "damage": []}
    config = _read(card, directory / CONFIG) or {}
    size = {"class": config.get("class"), "parameters": config.get("parameters")}
    card["model"] = {**size, **_object(config.get("model"))}
    try:
        record = RunRecord.read(directory) if (directory / RECORD).exists() else None
    except FileError as error:
        card["damage"].append(str(error))
        record = None
    if record is not None:
        card |= asdict(record)
        card["unknown"] += [] if record.began else [NO_TIME]
    elif not card["damage"]:
        card["unknown"].append(NO_RECORD)
    card["history"] = _history(card, directory)
    if not card.setdefault("kept", None) and (card["history"] or record is None):
        card["unknown"].append(NO_KEPT)
    manifest = _object(_read(card, directory / RUN_MANIFEST))
    card["files"] = _files(card, directory, manifest.get("files", manifest), compares)
    return card


def _export_card(version: Path, compares: bool) -> dict:
    card = {"kind": "export", "path": os.path.abspath(version), "unknown": [], "damage": []}
    try:
        if (version / EXPORT_CARD).exists():
            card |= read_json(version / EXPORT_CARD)
        else:
            card["unknown"].append(NO_CARD)
        manifest = read_json(version / MANIFEST) if (version / MANIFEST).exists() else {}
    except FileError as error:
        card["damage"].append(str(error))
        manifest = {}
    if "search" in card and not card.get("run"):
        card["unknown"].append(NO_RUN)
    card["files"] = _files(card, version, manifest.get("files"), compares)
    return card


def _read(card, path) -> dict | None:
    """Reads a JSON file, with its own hash or without; notes a damage."""
    if not path.exists():
        return None
    try:
        return parse_object(read_bytes(path, MAX_JSON_BYTES), path)
    except FileError as error:
        card["damage"].append(str(error))
        return None


def _object(value) -> dict:
    return value if isinstance(value, dict) else {}


def _history(card, directory) -> list[dict]:
    """Returns the logs of all epochs: from the run's own file, or from its newest state."""
    if (directory / HISTORY).is_file():
        lines = (directory / HISTORY).read_bytes().splitlines()
        return [epoch for line in lines if (epoch := _epoch(card, line)) is not None]
    for path in sorted(directory.glob(STATES), reverse=True):
        if (history := _history_of_state(path)) is not None:
            return [{"epoch": i, **logs} for i, logs in enumerate(history, start=1)]
    if RECORD not in os.listdir(directory) or card.get("is_finished"):
        card["unknown"].append(NO_HISTORY)
    return []


def _epoch(card, line) -> dict | None:
    try:
        return parse_object(line, HISTORY)
    except FileError as error:
        card["damage"].append(str(error))
        return None


def _history_of_state(path) -> list | None:
    import numpy as np

    try:
        with np.load(path, allow_pickle=False) as state:
            if "history" in state:  # as versions before 0.2.0 wrote it
                return json.loads(bytes(state["history"]))
            return json.loads(bytes(state["header"]))["history"]
    except (OSError, ValueError, KeyError, TypeError, BadZipFile):
        return None


def _files(card, directory, known, compares) -> dict:
    """Returns what a manifest knows of each file; notes those that are something else now."""
    files = {}
    for name, entry in _object(known).items():
        entry = {"sha256": entry} if isinstance(entry, str) else _object(entry)
        if name == SELF or "sha256" not in entry:
            continue
        path, files[name] = directory / name, entry
        if not compares:
            continue
        if not path.is_file():
            card["damage"].append(f"{path} is missing")
        elif not entry.items() <= (found := fingerprint(path)).items():
            card["damage"].append(f"{path} is not the file that was written")
        else:
            files[name] = found
    return files

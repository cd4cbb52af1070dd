"""`--compare`: records of the same work in other libraries, put beside this engine's rates."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from bench.errors import UsageError
from bench.perf.measure import figure

SYNONYMS = {"cnn": "cnn_cifar"}  # peers' names of models -> ours
REQUIRED = ("peer", "model", "samples_per_s")
# The loop of a script without a library, which an engine for GPUs has to leave far behind.
PLAIN, OVER_PLAIN_ON_GPU = "plain", 20.0
AHEAD = 1.0  # of every peer


def read_peers(files: Sequence[str]) -> list[dict[str, Any]]:
    """The records among what peers printed, in order: every line that begins with `{`; they print progress, too.

    Raises:
        UsageError: a file cannot be read or has no record, or a record is damaged or lacks something.
    """
    return [record for file in files for record in _of_file(file)]


def _of_file(file: str) -> list[dict[str, Any]]:
    found = [_record(file, number, line) for number, line in _lines(file) if line.startswith("{")]
    if not found:
        raise UsageError(f"--compare {file}: no record; one is a line of JSON with {', '.join(REQUIRED)}")
    return found


def _lines(file: str) -> list[tuple[int, str]]:
    try:
        text = Path(file).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"--compare {file}: {getattr(error, 'strerror', None) or 'not a text file'}") from None
    return [(number, line.strip()) for number, line in enumerate(text.splitlines(), 1)]


def _record(file: str, number: int, line: str) -> dict[str, Any]:
    try:
        found: dict[str, Any] = json.loads(line)
    except ValueError:
        raise UsageError(f"--compare {file}, line {number}: not a JSON object: {line[:60]!r}") from None
    missing = [name for name in REQUIRED if name not in found]
    if missing:
        raise UsageError(f"--compare {file}, line {number}: no {missing[0]!r}; a record has {', '.join(REQUIRED)}")
    rate = found["samples_per_s"]
    if not isinstance(rate, int | float) or isinstance(rate, bool) or not 0 < rate < math.inf:
        raise UsageError(f"--compare {file}, line {number}: samples_per_s must be a finite number > 0, got {rate!r}")
    return found


def beside_peers(
    records: Sequence[Mapping[str, Any]], ours: Sequence[Mapping[str, Any]], device: str, threads: int
) -> list[dict[str, Any]]:
    """Each record beside each of our rates of the same model, without augmentation.

    Args:
        records: of `read_peers`.
        ours: entries with `model`, `backend`, `precision`, `pack` and `rate`.
        device: of ours.
        threads: of ours.

    Returns:
        The ratio of ours over theirs as a figure, with a target where the record was taken on the same device with the
        same threads, which `alike` tells: else a ratio says little. Its `ratio` is None where we have no such model.
    """
    here = {"device": device, "threads": threads}
    return [entry for record in records for entry in _beside(record, ours, here)]


def _beside(
    record: Mapping[str, Any], ours: Sequence[Mapping[str, Any]], here: Mapping[str, Any]
) -> list[dict[str, Any]]:
    model = SYNONYMS.get(record["model"], record["model"])
    theirs = record["samples_per_s"]
    alike = all(record.get(name, value) == value for name, value in here.items())
    said = {"peer": record["peer"], "model": model, "samples_per_s": theirs, "alike": alike}
    limit = OVER_PLAIN_ON_GPU if (record["peer"], here["device"]) == (PLAIN, "cuda") else AHEAD
    how = ("backend", "precision", "pack")
    found = [
        said
        | {name: own[name] for name in how}
        | {"ratio": figure([own["rate"]["median"] / theirs], "x", limit if alike else None, at_least=True)}
        for own in ours
        if own["model"] == model
    ]
    return found or [said | dict.fromkeys(how) | {"ratio": None}]


def our_rates(parts: Mapping[str, Any], precision: str) -> list[dict[str, Any]]:
    """The rates of a record's parts that peers' work may be put beside: FedAvg on CIFAR-10, not augmented.

    Args:
        parts: of the record.
        precision: of the part training.
    """
    part, engine = parts.get("throughput", {}), parts.get("training", {}).get("engine", {})
    plain = part.get("work", {}).get("augmentation") == "none"
    usual = {"dataset": "cifar10", "image_size": "own", "optimizer": "sgd", "batch_size": 64}
    rates = [
        entry
        for entry in part.get("rates", ())
        if plain and "rate" in entry and all(entry[name] == value for name, value in usual.items())
    ]
    known = {(entry["model"], entry["backend"], entry["precision"], entry["pack"]) for entry in rates}
    for model, found in engine.items():
        if "none" in found and (model, backend := found["none"]["backend"], precision, 1) not in known:
            how = {"model": model, "backend": backend, "precision": precision, "pack": 1}
            rates.append(how | {"rate": found["none"]["engine_rate"]})
    return rates

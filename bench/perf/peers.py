"""`--compare`: records of the same work in other libraries, put beside this engine's rates."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from bench.errors import UsageError

SYNONYMS = {"cnn": "cnn_cifar"}  # peers' names of models -> ours
REQUIRED = ("peer", "model", "samples_per_s")


def read_peers(files: Sequence[str]) -> list[dict[str, Any]]:
    """The records of JSON-lines files, in order; empty lines are passed over.

    Raises:
        UsageError: a file cannot be read, or a line is no record.
    """
    return [_record(file, number, line) for file in files for number, line in _lines(file)]


def _lines(file: str) -> list[tuple[int, str]]:
    try:
        text = Path(file).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"--compare {file}: {getattr(error, 'strerror', None) or 'not a text file'}") from None
    return [(number, line) for number, line in enumerate(text.splitlines(), 1) if line.strip()]


def _record(file: str, number: int, line: str) -> dict[str, Any]:
    try:
        found = json.loads(line)
    except ValueError:
        found = None
    if not isinstance(found, dict):
        raise UsageError(f"--compare {file}, line {number}: not a JSON object: {line[:60]!r}")
    missing = [name for name in REQUIRED if name not in found]
    if missing:
        raise UsageError(f"--compare {file}, line {number}: no {missing[0]!r}; a record has {', '.join(REQUIRED)}")
    rate = found["samples_per_s"]
    if not isinstance(rate, int | float) or isinstance(rate, bool) or not rate > 0:
        raise UsageError(f"--compare {file}, line {number}: samples_per_s must be a number > 0, got {rate!r}")
    return found


def beside_peers(
    records: Sequence[Mapping[str, Any]], training: Mapping[str, Any], threads: int
) -> list[dict[str, Any]]:
    """Each record with our rate over its own, without augmentation; None where the model was not measured.

    `alike` is False where the record was taken on another device or with other threads: such a ratio says little.
    """
    device = training["work"]["device"]
    return [_beside(record, training["engine"], {"device": device, "threads": threads}) for record in records]


def _beside(record: Mapping[str, Any], engine: Mapping[str, Any], ours: Mapping[str, Any]) -> dict[str, Any]:
    model = SYNONYMS.get(record["model"], record["model"])
    measured = engine.get(model, {}).get("none")
    rate = measured["engine_rate"]["median"] if measured else None
    return {
        "peer": record["peer"],
        "model": model,
        "samples_per_s": record["samples_per_s"],
        "ratio": rate / record["samples_per_s"] if rate else None,
        "alike": all(record.get(name, value) == value for name, value in ours.items()),
    }

"""`--compare`: records of the same work in other libraries, put beside this engine's rates."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from bench.errors import UsageError
from bench.perf.measure import Record, figure

SYNONYMS = {"cnn": "cnn_cifar"}  # peers' names of models -> ours
REQUIRED = ("peer", "model", "samples_per_s")
OVER_PLAIN_ON_GPU = 20.0  # target over `plain`, the loop of a script without a library
AHEAD = 1.0  # target over every other peer


def read_peers(files: Sequence[str]) -> list[Record]:
    """Read the records among what peers printed: every line that begins with `{`; they print progress, too.

    Raises UsageError if a file cannot be read or has no record, or a record is damaged or lacks something.
    """
    records = []
    for file in files:
        try:
            lines = Path(file).read_text(encoding="utf-8").splitlines()
        except (OSError, UnicodeDecodeError) as error:
            raise UsageError(f"--compare {file}: {getattr(error, 'strerror', None) or 'not a text file'}") from None
        numbered = [(number, line) for number, line in enumerate(lines, 1) if line.lstrip().startswith("{")]
        if not numbered:
            raise UsageError(f"--compare {file}: no record; one is a line of JSON with {', '.join(REQUIRED)}")
        records += [_record(line, f"--compare {file}, line {number}") for number, line in numbered]
    return records


def _record(line: str, where: str) -> Record:
    try:
        record: Record = json.loads(line)
    except ValueError:
        raise UsageError(f"{where}: not a JSON object: {line[:60]!r}") from None
    missing = [name for name in REQUIRED if name not in record]
    if missing:
        raise UsageError(f"{where}: no {missing[0]!r}; a record has {', '.join(REQUIRED)}")
    rate = record["samples_per_s"]
    if not isinstance(rate, int | float) or isinstance(rate, bool) or not 0 < rate < math.inf:
        raise UsageError(f"{where}: samples_per_s must be a finite number > 0, got {rate!r}")
    return record


def beside_peers(peers: Sequence[Record], ours: Sequence[Record], device: str, threads: int) -> list[Record]:
    """Put each peer's rate beside each of our rates (`our_rates`) of the same model, measured on `device` by `threads`.

    Returns entries with `name` and `ratio`, ours over theirs; it has a target if the peer was measured on the same
    device with the same threads. If we have no such model, `left_out`.
    """
    entries = []
    for peer in peers:
        model = SYNONYMS.get(peer["model"], peer["model"])
        alike = (peer.get("device", device), peer.get("threads", threads)) == (device, threads)
        target = OVER_PLAIN_ON_GPU if (peer["peer"], device) == ("plain", "cuda") else AHEAD
        matching = [own for own in ours if own["model"] == model]
        for own in matching:
            how = f"{own['backend']}, {own['precision']}, pack {own['pack']}"
            other = "" if alike else " (another device, or other threads)"
            ratio = figure(
                [own["rate"]["median"] / peer["samples_per_s"]], "x", target if alike else None, at_least=True
            )
            entries.append({"name": f"{model}, {how} over {peer['peer']}{other}", "ratio": ratio})
        if not matching:
            entries.append({"name": f"{model} over {peer['peer']}", "left_out": f"{model} was not measured"})
    return entries


def our_rates(parts: Mapping[str, Any], precision: str) -> list[Record]:
    """Return the rates of a record's parts that peers do the work of: FedAvg on CIFAR-10, not augmented.

    Returns entries with `model`, `backend`, `precision`, `pack` and `rate`; rates of the part throughput stand for
    those of the part training, whose precision is `precision`.
    """
    rates = [
        entry
        for entry in parts.get("throughput", {}).get("rates", ())
        if "rate" in entry and entry["augmentation"] == "none"
    ]
    present = {(entry["model"], entry["backend"], entry["precision"], entry["pack"]) for entry in rates}
    for model, augmentations in parts.get("training", {}).get("engine", {}).items():
        plain = augmentations.get("none")
        if plain and (model, plain["backend"], precision, 1) not in present:
            described = {"model": model, "backend": plain["backend"], "precision": precision, "pack": 1}
            rates.append(described | {"rate": plain["engine_rate"]})
    return rates

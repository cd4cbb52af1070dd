"""The record of a run of benchmarks, and the tables that are read of it."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bench import provenance
from bench.errors import UsageError
from bench.execution import cpu_count
from bench.terminal.words import counted
from bench.trial.results import now

if TYPE_CHECKING:
    from rich.console import Console

SCHEMA = 2
TABLES = ("algorithms", "partitions", "split")  # have tables of their own


def new_record(command: str, device: str, threads: int) -> dict[str, Any]:
    """What is known before anything is measured: machine, versions, command. The host's name stays out of it."""
    about = {**provenance.of_command([]), **provenance.of_process(device)}
    del about["host"]
    return {
        "schema": SCHEMA,
        **about,
        "command": command,
        "threads": threads,
        "cores": cpu_count(),
        "load": list(os.getloadavg()) if hasattr(os, "getloadavg") else None,
        "started": now().isoformat(timespec="seconds"),
        "parts": {},
        "failed": {},
    }


def figures(tree: Mapping[str, Any], path: tuple[str, ...] = ()) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Every figure in a tree of parts, by its path: `training engine cnn_cifar none ratio`."""
    for name, value in tree.items():
        if not isinstance(value, Mapping):
            continue
        if "median" in value:
            yield " ".join((*path, name)), value
        else:
            yield from figures(value, (*path, name))


def left_out(tree: Mapping[str, Any], path: tuple[str, ...] = ()) -> Iterator[tuple[str, str]]:
    """What has no figures in a tree of parts, by its path, and why."""
    for name, value in tree.items():
        if isinstance(value, Mapping):
            if "left_out" in value:
                yield " ".join((*path, name)), value["left_out"]
            else:
                yield from left_out(value, (*path, name))


def problems(record: Mapping[str, Any]) -> list[str]:
    """What failed, each with its error."""
    parts = record["parts"]
    models = parts.get("training", {}).get("algorithms", {})
    entries = [(f"{name} on {model}", entry) for model, found in models.items() for name, entry in found.items()]
    entries += [(case_name(entry), entry) for entry in parts.get("throughput", {}).get("rates", ())]
    entries += [(f"setting {entry['setting']}", entry) for entry in parts.get("settings", {}).get("runs", ())]
    lines = [f"{name}: {entry['error']}" for name, entry in entries if "error" in entry]
    return lines + [f"part {name}: {why}" for name, why in record.get("failed", {}).items()]


def case_name(entry: Mapping[str, Any]) -> str:
    """A row of the part throughput: `resnet8 on cifar10, stacked, bf16, pack 8`."""
    size = "" if entry["image_size"] == "own" else f" ({entry['image_size']})"
    how = f"{entry['backend']}, {entry['precision']}, pack {entry['pack']}"
    return f"{entry['model']} on {entry['dataset']}{size}, {how}"


def read_records(files: Sequence[str]) -> list[dict[str, Any]]:
    """Records that `--json` or `--out` wrote.

    Raises:
        UsageError: one cannot be read, or is none.
    """
    return [_record(file) for file in files]


def check_devices(records: Sequence[Mapping[str, Any]]) -> None:
    """Raise UsageError unless all were taken on one kind of device: only those make one estimate."""
    devices = dict.fromkeys(str(record["device"]) for record in records)
    if len(devices) > 1:
        raise UsageError(f"--from: rates of one kind of device make an estimate, got {' and '.join(devices)}")


def _record(file: str) -> dict[str, Any]:
    try:
        found = json.loads(Path(file).read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise UsageError(f"--from {file}: {getattr(error, 'strerror', None) or 'not a JSON record'}") from None
    if not isinstance(found, dict) or not {"parts", "device"} <= set(found):
        raise UsageError(f"--from {file}: not a record; python -m bench.perf --part throughput --json FILE writes one")
    return found


def print_record(record: Mapping[str, Any], out: Console) -> None:
    """The figures as tables."""
    from bench.perf import printed

    versions = [f"{name} {record['versions'].get(name) or 'not installed'}" for name in ("torch", "ray")]
    machine = [record["device"], record["cpu"], counted(record["cores"], "core"), counted(record["threads"], "thread")]
    out.print(", ".join([*machine, *versions]))
    parts = record["parts"]
    plain = {name: {k: v for k, v in part.items() if k not in TABLES} for name, part in parts.items()}
    for table in printed.tables(record, dict(figures(plain))):
        if table.row_count:
            out.print(table)
    for line in [*_left_out(parts), *printed.notes(record), *problems(record)]:
        out.print(line, markup=False, soft_wrap=True)


def _left_out(parts: Mapping[str, Any]) -> list[str]:
    """What was not measured, each with its reason."""
    lines = [f"{name}: {why}" for part in ("data", "cores") for name, why in left_out(parts.get(part, {}))]
    for entries in parts.get("training", {}).get("algorithms", {}).values():
        reasons: dict[str, list[str]] = {}
        for name, entry in entries.items():
            if "left_out" in entry:
                reasons.setdefault(entry["left_out"], []).append(name)
        lines += [f"{', '.join(names)}: {reason}" for reason, names in reasons.items()]
    for entry in parts.get("throughput", {}).get("rates", ()):
        if "left_out" in entry:
            lines.append(f"{case_name(entry)}: {entry['left_out']}")
    runs = parts.get("settings", {}).get("runs", ())
    return lines + [f"setting {entry['setting']}: {entry['left_out']}" for entry in runs if "left_out" in entry]

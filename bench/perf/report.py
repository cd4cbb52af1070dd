"""The record of a run of benchmarks, and the table that is read of it."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from bench import provenance
from bench.execution import cpu_count
from bench.results import now

if TYPE_CHECKING:
    from rich.console import Console

SCHEMA = 1
TABLES = ("algorithms", "partitions")  # have tables of their own


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
    """Algorithms that failed, each with its error."""
    models = record["parts"].get("training", {}).get("algorithms", {})
    entries = [(model, name, entry) for model, found in models.items() for name, entry in found.items()]
    return [f"{name} on {model}: {entry['error']}" for model, name, entry in entries if "error" in entry]


def print_record(record: Mapping[str, Any], out: Console) -> None:
    """The figures as tables."""
    from rich.table import Table

    out.print(
        f"{record['device']}, {record['cpu']}, {record['cores']} cores, {record['threads']} threads, "
        f"torch {record['versions'].get('torch')}, ray {record['versions'].get('ray')}"
    )
    parts = record["parts"]
    table = Table("figure", *_right("median", "quartiles", "target", "met"))
    plain = {name: {k: v for k, v in part.items() if k not in TABLES} for name, part in parts.items()}
    for name, found in figures(plain):
        table.add_row(name, *_cells(found))
    if table.row_count:
        out.print(table)
    for entries in parts.get("data", {}).get("partitions", {}).values():
        out.print(_partitions(entries))
    for name, reason in left_out(parts.get("data", {})):
        out.print(f"{name}: {reason}", markup=False, soft_wrap=True)
    training = parts.get("training", {})
    for model, entries in training.get("algorithms", {}).items():
        out.print(_algorithms(model, entries))
        for reason, names in _reasons(entries).items():
            out.print(f"{', '.join(names)}: {reason}")
    if training.get("peers"):
        out.print(_peers(training["peers"]))


def _right(*titles: str) -> list[Any]:
    from rich.table import Column

    return [Column(title, justify="right") for title in titles]


def _cells(found: Mapping[str, Any]) -> Sequence[str]:
    unit = found["unit"]
    spread = f"{_number(found['low'])} to {_number(found['high'])}" if found["n"] > 1 else ""
    target = f"{found['bound']} {found['limit']:g}" if "limit" in found else ""
    met = ("yes" if found["met"] else "no") if "met" in found else ""
    return f"{_number(found['median'])} {unit}", spread, target, met


def _algorithms(model: str, entries: Mapping[str, Mapping[str, Any]]) -> Any:
    from rich.table import Table

    titles = ("time of a round / FedAvg's", "quartiles", "arithmetic", "floor", "over floor", "met")
    table = Table(f"{model}: algorithm", *_right(*titles))
    for name, entry in entries.items():
        if "ratio" in entry:
            median, spread, *_ = _cells(entry["ratio"])
            over, _, _, met = _cells(entry["over_floor"])
            table.add_row(name, median, spread, f"{entry['arithmetic']:.2f} x", f"{entry['floor']:.2f} x", over, met)
        else:
            table.add_row(name, "left out" if "left_out" in entry else "failed")
    return table


def _partitions(entries: Mapping[str, Mapping[str, Any]]) -> Any:
    """The partitions of one number of samples."""
    from rich.table import Table

    samples = next(iter(entries.values()))["samples"]
    titles = ("clients", "alpha", "time", "quartiles", "processor time", "target", "met")
    table = Table(f"partition of {samples:,} samples", *_right(*titles))
    for name, entry in entries.items():
        asked = (f"{entry['num_clients']:,}", "–" if entry["alpha"] is None else f"{entry['alpha']:g}")
        if "seconds" in entry:
            median, spread, target, met = _cells(entry["seconds"])
            table.add_row(name, *asked, median, spread, _cells(entry["cpu_seconds"])[0], target, met)
        else:
            table.add_row(name, *asked, "left out")
    return table


def _reasons(entries: Mapping[str, Mapping[str, Any]]) -> dict[str, list[str]]:
    """Why algorithms have no figures, and which ones."""
    reasons: dict[str, list[str]] = {}
    for name, entry in entries.items():
        if "ratio" not in entry:
            reasons.setdefault(entry.get("left_out") or entry["error"], []).append(name)
    return reasons


def _peers(entries: Sequence[Mapping[str, Any]]) -> Any:
    from rich.table import Table

    table = Table("peer", "model", *_right("samples/s", "ours / theirs", "same device and threads"))
    for entry in entries:
        ratio = f"{entry['ratio']:.2f} x" if entry["ratio"] else "not measured"
        alike = "yes" if entry["alike"] else "no"
        table.add_row(str(entry["peer"]), entry["model"], _number(entry["samples_per_s"]), ratio, alike)
    return table


def _number(value: float) -> str:
    """Three digits, or the whole number."""
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"

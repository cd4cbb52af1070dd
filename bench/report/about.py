"""The section of what was run: when, from which commits and versions, on which machines."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from bench.report.runs import time_taken
from bench.stored.groups import Group
from bench.stored.results import Run
from bench.terminal.words import counted

_SHORT_COMMIT = 10


def states_of(runs: Sequence[Run]) -> str:
    """Print how many runs there are, by status: `54 runs: 1 failed, 53 finished`."""
    counts = Counter(run["status"] for run in runs)
    diverged = sum(bool(run["diverged"]) for run in runs)
    states = [f"{count:,} {status}" for status, count in sorted(counts.items())]
    states += [f"{diverged:,} of them DIVERGED"] * bool(diverged)
    return f"{counted(len(runs), 'run')}: {', '.join(states)}"


def facts(runs: Sequence[Run], groups: Sequence[Group], labels: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Give names and values of what is known of the runs. `labels`: every algorithm."""
    yield "algorithms", f"{len(labels)}: {', '.join(labels)}"
    yield "seeds", _some(sorted({run["seed"] for run in runs}), 12)
    records = [record for group in groups for cell in group.cells for record in cell.records]
    if chosen := sorted({str(record["chosen_on"]) for record in records if record.get("chosen_on")}):
        yield "chosen on", f"{', '.join(chosen)}, which is not shown"
    first, last = min(run["started"] for run in runs), max(run["finished"] for run in runs)
    training = time_taken(sum(run["seconds"] or 0.0 for run in runs))
    yield "run", f"{first:%Y-%m-%d %H:%M} to {last:%Y-%m-%d %H:%M} UTC, {training} of training in all"
    yield "commits", _some(_commits(runs), 4)
    versions: dict[str, set[str]] = {}
    for run in runs:
        for name, version in {"fedkd-bench": run["package_version"], **run["versions"]}.items():
            versions.setdefault(name, set()).add(version)
    yield "versions", _some((f"{name} {' / '.join(sorted(own))}" for name, own in versions.items()), 12)
    yield "machines", _some(_machines(runs), 4)
    yield "papers", _some(sorted({run["paper"] for run in runs if run["paper"]}), 8) or "none"


def _commits(runs: Sequence[Run]) -> Iterator[str]:
    counts = Counter((run["git_commit"], run["git_dirty"]) for run in runs)
    for (commit, dirty), count in counts.most_common():
        name = commit[:_SHORT_COMMIT] if commit else "no checkout"
        yield f"{name}{' with uncommitted changes' if dirty else ''} ({counted(count, 'run')})"


def _machines(runs: Sequence[Run]) -> Iterator[str]:
    counts = Counter((run["device"], run["cpu"], run["backend"], run["threads"]) for run in runs)
    for (device, cpu, backend, threads), count in counts.most_common():
        processor = cpu if device == "cpu" else f"{device}, {cpu}"
        yield f"{processor}, {backend} backend, {counted(threads, 'thread')} ({counted(count, 'run')})"


def _some(values: Iterable[Any], most: int) -> str:
    texts = [str(value) for value in values]
    return ", ".join(texts[:most]) + (f", and {len(texts) - most} more" if len(texts) > most else "")

"""The sections of runs: when, from which commits and on which machines all were made, and each with its command.

A single run has results, full configuration, provenance, error, and the command to run it again.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from bench.report.standings import SHOWN
from bench.stored.groups import Group
from bench.stored.results import Run
from bench.terminal.words import counted
from leaderboards.flags import flags_of_run
from leaderboards.rows.identity import canonical_json
from leaderboards.shell_text import shell_command

KEY_LENGTH = 16
_SHORT_COMMIT = 10
_ORIGIN = (
    "package_version",
    "algorithm_version",
    "git_commit",
    "git_dirty",
    "paper",
    "device",
    "cpu",
    "threads",
    "backend",
    "pack",
    "dataset_hash",
    "command",
)


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


def runs_section(runs: Sequence[Run]) -> dict[str, Any]:
    """Return `runs`, failed ones first, the `flags` they have, and the settings and origins that they `share`."""
    settings, origins, entries = _Anchors("setting"), _Anchors("origin"), []
    for run in sorted(runs, key=_order):
        origin = {name: run[name] for name in _ORIGIN} | {"versions": dict(run["versions"])}
        entries.append(
            {
                "run": run,
                "key": run["run_key"][:KEY_LENGTH],
                "hyperparameters": json.loads(run["hp_json"]),
                "flags": flags_of_run(run),
                "results": list(_results(run)),
                "commands": "\n".join(_commands(run)),
                "setting": settings.of(run["setting_json"]),
                "origin": origins.of(canonical_json(origin)),
            }
        )
    shared = [(anchor, "setting", json.loads(text)) for text, anchor in settings.names.items()]
    for text, anchor in origins.names.items():
        values = json.loads(text)
        versions = {f"{name} version": version for name, version in values.pop("versions").items()}
        shared.append((anchor, "origin", {name.replace("_", " "): value for name, value in values.items()} | versions))
    flags = sorted({key for run in runs for key, _ in flags_of_run(run)})
    return {"runs": entries, "flags": flags, "shared": shared}


class _Anchors:
    """Numbered anchors of texts: equal texts have one."""

    def __init__(self, word: str) -> None:
        self._word = word
        self.names: dict[str, str] = {}

    def of(self, text: str) -> str:
        return self.names.setdefault(text, f"{self._word}-{len(self.names) + 1}")


def _results(run: Run) -> Iterator[tuple[str, str]]:
    yield "run key", run["run_key"]
    for metric in SHOWN:
        if (value := run[metric.name]) is not None:
            at = run.get(metric.name.replace("accuracy", "round"))
            yield f"{metric.short} accuracy", f"{100 * value:.2f} %" + (f" in round {at}" if at is not None else "")
    if run["best_val_accuracy"] is not None:
        yield "best validation accuracy", f"{100 * run['best_val_accuracy']:.2f} %"
    if run["bytes_down"] is not None and run["bytes_up"] is not None:
        yield "traffic", f"{run['bytes_down'] / 1e6:,.2f} MB down, {run['bytes_up'] / 1e6:,.2f} MB up"
    if run["train_steps"] is not None:
        yield "local steps of a client", f"{run['train_steps']:,.0f}"
    if run["seconds"] is not None:
        yield "training", time_taken(run["seconds"])
    if run["partition_hash"]:
        yield "partition hash", run["partition_hash"][:KEY_LENGTH]
    yield "status", run["status"]
    yield "when", f"{run['started']:%Y-%m-%d %H:%M:%S} to {run['finished']:%Y-%m-%d %H:%M:%S} UTC"


def time_taken(seconds: float) -> str:
    """Print a duration: `12.5 s`, `3 h 20 min`."""
    if seconds < 60:
        return f"{seconds:.1f} s"
    hours, minutes = divmod(round(seconds / 60), 60)
    return f"{hours:,} h {minutes} min" if hours else f"{minutes} min"


def _commands(run: Run) -> Iterator[str]:
    if run["git_commit"]:
        dirty = "  # it had uncommitted changes, which are not stored" if run["git_dirty"] else ""
        yield f"git checkout {run['git_commit']}{dirty}"
    yield shell_command("bench.sweep", "reproduce", run["run_key"][:KEY_LENGTH], "--out", run["out"])


def _order(run: Run) -> tuple[Any, ...]:
    alpha = run["alpha"]
    place = (run["dataset"], run["model"], alpha is not None, alpha or 0.0, run["participation"])
    return run["status"] == "finished", *place, run["algorithm"], run["hp_json"], run["seed"], run["run_key"]

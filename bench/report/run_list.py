"""The sections about runs: times, commits and machines of all runs, and the list of runs.

Each run of the list has its results, full configuration, provenance, error, and the command to run
it again.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from itertools import chain
from math import inf
from typing import Any

from bench.planning.run_spec import trained_by
from bench.stored.groups import Group
from bench.stored.results import Run
from bench.terminal.words import KEY_SHOWN, counted, duration
from leaderboards.flags import flags_of_run
from leaderboards.numbers import NUMBERS, SECONDS, Curve, Number, metric_named, own_metrics
from leaderboards.problems import base_model
from leaderboards.rows.schema import canonical_json
from leaderboards.shell_text import shell_command
from leaderboards.tables.model import number_text

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
    """Count the runs by status: `54 runs: 1 failed, 53 finished`."""
    counts = Counter(run["status"] for run in runs)
    diverged = sum(bool(run["diverged"]) for run in runs)
    states = [f"{count:,} {status}" for status, count in sorted(counts.items())]
    if diverged:
        states.append(f"{diverged:,} of all DIVERGED")
    return f"{counted(len(runs), 'run')}: {', '.join(states)}"


def seed_spans(seeds: Collection[int]) -> str:
    """Write seeds, consecutive ones as a span: `0, 101–150`."""
    spans: list[list[int]] = []
    for seed in sorted(seeds):
        if spans and seed == spans[-1][1] + 1:
            spans[-1][1] = seed
        else:
            spans.append([seed, seed])
    return ", ".join(str(low) if low == high else f"{low}–{high}" for low, high in spans)


def facts(
    runs: Sequence[Run], groups: Sequence[Group], labels: Sequence[str]
) -> Iterator[tuple[str, str]]:
    """Yield names and values of the facts about the runs. `labels`: every algorithm."""
    yield "algorithms", f"{len(labels)}: {', '.join(labels)}"
    yield "seeds", seed_spans({run["seed"] for run in runs})
    records = chain.from_iterable(group.records for group in groups)
    chosen_on = {str(record["chosen_on"]) for record in records if record.get("chosen_on")}
    if chosen_on:
        yield "chosen on", f"{', '.join(sorted(chosen_on))}, which is not shown"
    first = min(run["started"] for run in runs)
    last = max(run["finished"] for run in runs)
    span = f"{first:%Y-%m-%d %H:%M} to {last:%Y-%m-%d %H:%M} UTC"
    training = duration(sum(run["seconds"] or 0.0 for run in runs))
    yield "run", f"{span}, {training} of training in all"
    yield "commits", ", ".join(_commits(runs))
    yield "versions", ", ".join(_versions(runs))
    yield "machines", ", ".join(_machines(runs))
    presets = {run["paper"] for run in runs if run["paper"]}
    yield "presets", ", ".join(sorted(presets)) or "none"


def _versions(runs: Sequence[Run]) -> Iterator[str]:
    releases: dict[str, set[str]] = {}
    for run in runs:
        releases.setdefault("fedkd-bench", set()).add(run["package_version"])
        for package, version in run["versions"].items():
            releases.setdefault(package, set()).add(version)
    for package, versions in releases.items():
        yield f"{package} {' / '.join(sorted(versions))}"


def _commits(runs: Sequence[Run]) -> Iterator[str]:
    counts = Counter((run["git_commit"], run["git_dirty"]) for run in runs)
    for (commit, dirty), count in counts.most_common():
        name = commit[:_SHORT_COMMIT] if commit else "no checkout"
        if dirty:
            name += " with uncommitted changes"
        yield f"{name} ({counted(count, 'run')})"


def _machines(runs: Sequence[Run]) -> Iterator[str]:
    counts = Counter((run["device"], run["cpu"], run["backend"], run["threads"]) for run in runs)
    for (device, cpu, backend, threads), count in counts.most_common():
        processor = cpu if device == "cpu" else f"{device}, {cpu}"
        machine = f"{processor}, {backend} backend, {counted(threads, 'thread')}"
        yield f"{machine} ({counted(count, 'run')})"


def runs_section(runs: Sequence[Run], curves: Mapping[str, Curve]) -> dict[str, Any]:
    """Return `runs`, `flags` and `shared` of the list of runs.

    Failed runs come first. Settings and origins are stored once for all runs that share them:
    `shared` has the anchor, the kind and the values of each.

    Args:
        runs: of the page.
        curves: by run key.
    """
    settings: dict[str, str] = {}  # as JSON -> anchor
    origins: dict[str, str] = {}
    entries = []
    flags: set[str] = set()
    for run in sorted(runs, key=_order):
        run_flags = flags_of_run(run)
        flags |= {key for key, _ in run_flags}
        facts_of_origin = {name: run[name] for name in _ORIGIN}
        origin = canonical_json(facts_of_origin | {"versions": dict(run["versions"])})
        entries.append(
            {
                "run": run,
                "key": run["run_key"][:KEY_SHOWN],
                "hyperparameters": json.loads(run["hp_json"]),
                "flags": run_flags,
                "results": list(_results(run, curves.get(run["run_key"], {}))),
                "commands": "\n".join(_commands(run)),
                "setting": settings.setdefault(run["setting_json"], f"setting-{len(settings) + 1}"),
                "origin": origins.setdefault(origin, f"origin-{len(origins) + 1}"),
            }
        )
    shared = [(anchor, "setting", json.loads(text)) for text, anchor in settings.items()]
    for text, anchor in origins.items():
        values = json.loads(text)
        versions = values.pop("versions")
        shown = {name.replace("_", " "): value for name, value in values.items()}
        shown |= {f"{package} version": version for package, version in versions.items()}
        shared.append((anchor, "origin", shown))
    return {"runs": entries, "flags": sorted(flags), "shared": shared}


def _results(run: Run, curve: Curve) -> Iterator[tuple[str, str]]:
    """Yield names and values: every number of the run, and its algorithm's own metrics."""
    yield "run key", run["run_key"]
    for name, metric in NUMBERS.items():
        if run[name] is not None:
            yield name.replace("_", " "), _text(run[name], metric)
    for name in own_metrics(curve):
        metric = metric_named(name)
        value = metric.value(curve)
        if value is not None:
            yield f"{metric.quantity}, last round", _text(value, metric)
    if run["partition_hash"]:
        yield "partition hash", run["partition_hash"][:KEY_SHOWN]
    yield "status", run["status"]
    yield "when", f"{run['started']:%Y-%m-%d %H:%M:%S} to {run['finished']:%Y-%m-%d %H:%M:%S} UTC"


def _text(value: float, metric: Number) -> str:
    if metric.unit == SECONDS:
        return duration(value)
    if metric.whole and metric.unit.scale == 1:
        return f"{value:,}"
    return f"{number_text(value, metric)} {metric.unit.shown}".strip()


def _commands(run: Run) -> Iterator[str]:
    if run["git_commit"]:
        dirty = "  # it had uncommitted changes, which are not stored" if run["git_dirty"] else ""
        yield f"git checkout {run['git_commit']}{dirty}"
    if run["status"] != "finished":  # there is no result to compare with
        yield run["command"]
        return
    setting = json.loads(run["setting_json"])
    client_models = setting.get("client_models", "").split("/")
    models = dict.fromkeys(base_model(name) for name in (run["model"], *client_models))
    public, _, _ = setting.get("public", "").rpartition(":")
    algorithm = trained_by(run["algorithm"], run["setting_json"])
    names = (algorithm, run["dataset"], *models, run["partition"], public)
    outside = [name for name in names if ":" in name]
    allowed = ["--import", *outside] if outside else []
    yield shell_command(
        "bench.sweep", "reproduce", run["run_key"][:KEY_SHOWN], *allowed, "--out", run["out"]
    )


def _order(run: Run) -> tuple[Any, ...]:
    alpha = -inf if run["alpha"] is None else run["alpha"]
    place = (run["dataset"], run["model"], alpha, run["participation"])
    return (
        run["status"] == "finished",
        *place,
        run["algorithm"],
        run["hp_json"],
        run["seed"],
        run["run_key"],
    )

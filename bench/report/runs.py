"""The section of single runs: results, full configuration, provenance, error, and the command to run it again."""

from __future__ import annotations

import json
from collections.abc import Hashable, Iterator, Mapping, Sequence
from typing import Any

from bench.report.flags import chips, flags_of_run
from bench.report.head import time_taken
from bench.report.html import Child, Html, join, tag
from bench.report.standings import SHOWN
from bench.stored.groups import Group, number
from bench.stored.results import Run
from leaderboards.commands import shell_command
from leaderboards.identity import canonical_json

KEY_LENGTH = 16
_ORIGIN: tuple[str, ...] = (
    "package_version",
    "algorithm_version",
    "git_commit",
    "git_dirty",
    "paper",
    "device",
    "cpu",
    "threads",
)
_ORIGIN += ("backend", "pack", "dataset_hash", "command")


def runs_section(runs: Sequence[Run], groups: Sequence[Group]) -> Html:
    """Every run, and the settings that they share.

    Args:
        runs: of the page.
        groups: of the page.
    """
    settings = _numbered("setting", [run["setting_json"] for run in runs])
    origins = _numbered("origin", [_origin(run) for run in runs])
    order = sorted(runs, key=_order)
    states = sorted({key for run in runs for key, _ in flags_of_run(run)})
    options = [tag("option", state, value=state) for state in states]
    filters = tag(
        "form",
        tag("label", "text", tag("input", type="search", id="find-run", placeholder="algorithm, key, α, ...")),
        tag("label", "flag", tag("select", tag("option", "any", value=""), *options, id="run-state")),
        class_="filters",
        hidden=True,
    )
    found = [_run(run, settings[run["setting_json"]], origins[_origin(run)]) for run in order]
    shared = [_setting(text, anchor) for text, anchor in settings.items()]
    shared += [_origin_block(json.loads(str(text)), anchor) for text, anchor in origins.items()]
    return join(
        filters,
        tag("div", *found, id="run-list"),
        tag("h3", "Settings of the tables"),
        *(_group(group) for group in groups),
        tag("h3", "Settings and origins of runs"),
        tag("p", "Opened runs show theirs.", class_="note"),
        *shared,
    )


def _run(run: Run, setting: str, origin: str) -> Html:
    key = run["run_key"][:KEY_LENGTH]
    place = f"{run['dataset']} · {run['model']} · α = {number(run['alpha'])}, C = {number(run['participation'])}"
    best = run["best_accuracy"]
    head = tag(
        "summary",
        tag("b", run["algorithm"]),
        " ",
        tag("span", _texts(json.loads(run["hp_json"])), class_="note"),
        f" {place} · seed {run['seed']} ",
        chips(flags_of_run(run)),
        None if best is None else tag("span", f"best {100 * best:.2f} %", class_="right"),
    )
    parts = [
        _error(run),
        _pairs("results", _results(run)),
        _pairs("hyper-parameters", json.loads(run["hp_json"]).items()),
        tag(
            "p",
            "Everything else: ",
            tag("a", "setting", href=f"#{setting}"),
            ", ",
            tag("a", "origin", href=f"#{origin}"),
        ),
        _command(run),
    ]
    state = " ".join(flag for flag, _ in flags_of_run(run))
    return tag(
        "details", head, tag("div", *parts, class_="body"), class_="run", id=f"run-{key}", data_state=state or None
    )


def _error(run: Run) -> Html | None:
    return tag("pre", run["error"], class_="error") if run["error"] else None


def _results(run: Run) -> Iterator[tuple[str, Child]]:
    yield "run key", tag("code", run["run_key"])
    for metric in SHOWN:
        value = run[metric.name]
        at = run.get(metric.name.replace("accuracy", "round"))
        if value is not None:
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
        yield "partition hash", tag("code", run["partition_hash"][:KEY_LENGTH])
    yield "status", run["status"]
    yield "when", f"{run['started']:%Y-%m-%d %H:%M:%S} to {run['finished']:%Y-%m-%d %H:%M:%S} UTC"


def _command(run: Run) -> Html:
    key, commit = run["run_key"][:KEY_LENGTH], run["git_commit"]
    dirty = "  # it had uncommitted changes, which are not stored" if run["git_dirty"] else ""
    lines = [f"git checkout {commit}{dirty}"] * bool(commit)
    lines.append(shell_command("bench.sweep", "reproduce", key, "--out", run["out"]))
    code = tag("pre", tag("code", "\n".join(lines)))
    return tag("div", code, tag("button", "Copy", type="button", class_="copy", hidden=True), class_="command")


def _setting(text: str, anchor: str) -> Html:
    return tag(
        "details",
        tag("summary", anchor.replace("-", " ")),
        _pairs("setting", json.loads(text).items()),
        id=anchor,
    )


def _origin_block(values: Mapping[str, Any], anchor: str) -> Html:
    own = {name.replace("_", " "): value for name, value in values.items() if name != "versions"}
    pairs = [*own.items(), *((f"{name} version", version) for name, version in values["versions"].items())]
    return tag("details", tag("summary", anchor.replace("-", " ")), _pairs("origin", pairs), id=anchor)


def _group(group: Group) -> Html:
    fields = [(name, value) for name, value in group.setting.items()]
    return tag("details", tag("summary", f"{group.key}: {group.title}"), _pairs("setting", fields), id=group.key)


def _pairs(title: str, pairs: Any) -> Html:
    items = [tag("div", tag("dt", name), tag("dd", _shown(value))) for name, value in pairs]
    return join(tag("h4", title), tag("dl", *items, class_="pairs")) if items else join()


def _shown(value: Any) -> Child:
    return value if isinstance(value, Html) else number(value)


def _texts(values: Mapping[str, Any]) -> str:
    return " ".join(f"{name}={number(value)}" for name, value in values.items())


def _origin(run: Run) -> str:
    return canonical_json({name: run[name] for name in _ORIGIN} | {"versions": dict(run["versions"])})


def _numbered(word: str, values: Sequence[Hashable]) -> dict[Any, str]:
    return {value: f"{word}-{position}" for position, value in enumerate(dict.fromkeys(values), start=1)}


def _order(run: Run) -> tuple[Any, ...]:
    alpha = run["alpha"]
    place = (run["dataset"], run["model"], alpha is not None, alpha or 0.0, run["participation"])
    return run["status"] == "finished", *place, run["algorithm"], run["hp_json"], run["seed"], run["run_key"]

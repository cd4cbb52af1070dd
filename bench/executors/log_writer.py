"""`--log`: writes a sweep's rows to tools while they grow, in a thread of the driver.

The stored curves stay the source. A run that goes on after an interruption gives its whole curve again; each tool skips
the rounds that it has, or writes all anew.
"""

from __future__ import annotations

import json
import math
import queue
import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bench.executors.events import Observer, Watched
from bench.executors.log_tools import Series, Writer, make_tools
from bench.planning.model import Plan
from bench.planning.run_spec import RunSpec, row_entry
from bench.terminal.console import say
from bench.terminal.words import counted
from leaderboards import Store
from leaderboards.rows.frames import records

if TYPE_CHECKING:
    from bench.engine.simulation import Point

CLOSE_SECONDS = 60.0  # a tool that hangs may not keep a finished sweep from ending
MESSAGE_LENGTH = 200
AGAIN = "the same command, given again, writes what is missing there"
WHOLE = ("finished", "stopped")  # statuses of rows with a curve


@dataclass
class _Curve:
    """A series under way: the last round that each tool had of it, and the accuracies that it has reached."""

    series: Series
    begins: dict[str, int] = field(default_factory=dict)
    best: float = math.nan
    final: float = math.nan


class LogWriter:
    """An observer that writes the rows of a sweep.

    A tool that fails is left out from then on, with one warning: no run is touched by it, and the next command with the
    same `--log` writes the missing part from the stored curves. `OUT/logs/NAME/.written` lists the rows that a tool has
    to their end. With `fresh`, the runs begin anew, and so do their logs.
    """

    needs_curves = True

    def __init__(self, tools: Mapping[str, Writer], out: Path, fresh: bool = False) -> None:
        self.tools, self._fresh = dict(tools), fresh
        self._files = {name: out / "logs" / name / ".written" for name in tools}
        self._written = {
            name: set(f.read_text().splitlines()) if f.exists() else set() for name, f in self._files.items()
        }
        self._curves: dict[str, _Curve] = {}
        self._jobs: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._work, name="logs", daemon=True)
        self._thread.start()

    def started(self, trial: Watched) -> None:
        """Do nothing: a series begins with its first values."""

    def reported(self, trial: Watched, report: Mapping[str, Any]) -> None:
        """Write the new points of a report."""
        self._jobs.put(partial(self._write, trial.units, report["curves"]))

    def ended(self, trial: Watched, report: Mapping[str, Any]) -> None:
        """Close the trial's series; a run that was still running ends as the trial did."""
        statuses = {key: status for key, status in report.get("statuses", {}).items() if status != "running"}
        for unit in trial.units:
            for key in unit.rows.values():
                self._jobs.put(partial(self._end, key, statuses.get(key, report["status"])))

    def catch_up(self, store: Store, keys: Iterable[str]) -> int:
        """Write the stored rows among `keys` that a tool lacks; returns their number. A row without its curve waits."""
        runs = store.runs()
        rows = records(runs[runs["run_key"].isin([*keys]) & runs["status"].isin(WHOLE)])
        missing = {row["run_key"]: row for row in rows if self._lacking(row)}
        curves = store.curves(missing).groupby("run_key")
        for key, points in curves[["round", "metric", "value"]]:
            named = list(points.itertuples(index=False, name=None))
            self._jobs.put(partial(self._write_stored, missing[key], named, self._lacking(missing[key])))
        return len(curves)

    def close(self) -> None:
        """End the open series as interrupted, and wait until all is written."""
        self._jobs.put(None)
        with suppress(KeyboardInterrupt):
            self._thread.join(CLOSE_SECONDS)
        if self._thread.is_alive():
            _warn(f"--log {','.join(self.tools)} has not finished and is left; {AGAIN}")

    def _work(self) -> None:
        while job := self._jobs.get():
            job()
        for key in list(self._curves):
            self._end(key, "interrupted")

    def _write(self, units: Sequence[RunSpec], curves: Mapping[str, Sequence[Point]]) -> None:
        for unit in units:
            for suffix, key in unit.rows.items():
                if curves.get(key):
                    if key not in self._curves:
                        identity = unit.identity(row_entry(unit.algorithm, suffix))
                        self._curves[key] = _Curve(_series(key, *identity, unit.paper))
                    self._add(self._curves[key], curves[key], list(self.tools))

    def _write_stored(self, row: Mapping[str, Any], points: Sequence[Point], tools: Sequence[str]) -> None:
        """Write the whole stored curve of a row to some tools."""
        names = ("run_key", "algorithm", "algorithm_version", "hp_json", "setting_json", "seed", "paper")
        key, algorithm, version, hp_json, setting_json, seed, paper = (row[name] for name in names)
        curve = _Curve(_series(key, algorithm, version, json.loads(hp_json), json.loads(setting_json), seed, paper))
        self._add(curve, points, tools)
        self._close(curve, row["status"])

    def _add(self, curve: _Curve, points: Iterable[Point], names: Sequence[str]) -> None:
        """Give new points to some tools, with `best_accuracy`."""
        values: dict[int, dict[str, float]] = {}
        for at, metric, value in points:
            values.setdefault(at, {})[metric] = value
        rounds = {at: values[at] for at in sorted(values)}
        for metrics in rounds.values():
            curve.final = metrics.get("accuracy", curve.final)
            curve.best = curve.best if curve.best >= curve.final else curve.final
            metrics["best_accuracy"] = curve.best

        def write(name: str) -> None:
            if name not in curve.begins:
                curve.begins[name] = self.tools[name].begin(curve.series, self._fresh)
            new = {at: metrics for at, metrics in rounds.items() if at > curve.begins[name]}
            if new:
                self.tools[name].write(curve.series, new)

        for name in names:
            self._guard(name, partial(write, name))

    def _end(self, key: str, status: str) -> None:
        curve = self._curves.pop(key, None)
        if curve:
            self._close(curve, status if status in (*WHOLE, "failed") else "interrupted")

    def _close(self, curve: _Curve, status: str) -> None:
        def end(name: str) -> None:
            self.tools[name].end(curve.series, status, {"best_accuracy": curve.best, "final_accuracy": curve.final})
            if status in WHOLE:
                self._files[name].parent.mkdir(parents=True, exist_ok=True)
                with self._files[name].open("a") as file:
                    file.write(self._line(name, curve.series.key, status) + "\n")

        for name in curve.begins:
            self._guard(name, partial(end, name))

    def _lacking(self, row: Mapping[str, Any]) -> list[str]:
        """The tools that do not have a row to its end."""
        key, status = row["run_key"], row["status"]
        return [name for name in self.tools if self._line(name, key, status) not in self._written[name]]

    def _line(self, name: str, key: str, status: str) -> str:
        return f"{key} {status} {self.tools[name].where}"

    def _guard(self, name: str, action: Callable[[], None]) -> None:
        """Do it; a tool that fails is not asked again."""
        if name not in self.tools:
            return
        try:
            action()
        except (Exception, SystemExit) as error:
            del self.tools[name]
            what = (str(error).strip().splitlines() or [type(error).__name__])[0][:MESSAGE_LENGTH]
            _warn(f"--log {name} failed and is left out, the runs go on: {what}; {AGAIN}")


def _series(
    key: str,
    algorithm: str,
    version: int,
    hyperparameters: Mapping[str, Any],
    setting: Mapping[str, Any],
    seed: int,
    paper: str | None,
) -> Series:
    named = {f"hp_{name}": value for name, value in hyperparameters.items()}
    about = {"seed": seed, "algorithm": algorithm, "algorithm_version": version, "paper": paper, "run_key": key}
    return Series(key, algorithm, {**named, **setting, **about})


@contextmanager
def logged(
    names: Sequence[str],
    plan: Plan,
    to_do: Sequence[RunSpec],
    store: Store,
    *,
    offline: bool,
    fresh: bool,
) -> Iterator[list[Observer]]:
    """Make the observers that `--log` asks for, write the stored rows that they lack, and close them at the end.

    `to_do` are the plan's runs that are not stored. Raises EnvironmentProblem if a tool is not installed or cannot be
    used.
    """
    writer = LogWriter(make_tools(names, store.out, offline), store.out, fresh)
    try:
        # Keys of the sweep's rows that are not about to be made; some may not be stored.
        coming = {unit.key for unit in to_do}
        keys = {key for unit in plan.units if unit.key not in coming for key in unit.rows.values()}
        if plan.searches:
            runs = store.runs(columns=("run_key", "algorithm", "setting_json"))
            searched = plan.of_searches(zip(runs.algorithm, runs.setting_json, strict=True))
            stored = zip(runs.run_key, runs.algorithm, runs.setting_json, strict=True)
            keys |= {key for key, *row in stored if tuple(row) in searched}
        if late := writer.catch_up(store, keys):
            say(f"curves of {counted(late, 'stored run')} are logged, too")
        yield [writer]
    finally:
        writer.close()
    say(*(f"curves: {tool.look}" for tool in writer.tools.values()))


def _warn(text: str) -> None:
    # A live display takes what goes to stderr and shows it above its bars.
    sys.stderr.write(f"warning: {text}\n")
    sys.stderr.flush()

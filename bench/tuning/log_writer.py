"""The driver's side of `--log`: watches a sweep and writes its rows to tools, in a thread of its own."""

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

from algorithms import entry
from bench.identity import identity_json
from bench.planning.plan import Plan
from bench.planning.unit import Unit
from bench.terminal.console import say
from bench.terminal.words import counted
from bench.tuning.events import Observer, Watched
from bench.tuning.logs import Log, Rounds, Series, Tool, make_series, series_of
from leaderboards import Store

if TYPE_CHECKING:
    from bench.engine.simulation import Point

CLOSE_SECONDS = 60.0  # a tool that hangs may not keep a finished sweep from ending
MESSAGE_LENGTH = 200
AGAIN = "the same command, given again, writes what is missing there"
WHOLE = ("finished", "stopped")  # statuses of rows with a curve


@dataclass
class _Book:
    """A series with its logs by tool, and what its curve has reached."""

    series: Series
    logs: dict[str, Log] = field(default_factory=dict)
    best: float = math.nan
    final: float = math.nan

    def rounds(self, points: Iterable[Point]) -> Rounds:
        """The points by round, with `best_accuracy`."""
        found: dict[int, dict[str, float]] = {}
        for at, metric, value in points:
            found.setdefault(at, {})[metric] = value
        for at in sorted(found):
            self.final = found[at].get("accuracy", self.final)
            self.best = self.best if self.best >= self.final else self.final
            found[at]["best_accuracy"] = self.best
        return {at: found[at] for at in sorted(found)}


class _Ledger:
    """The rows that a tool has to their end: `OUT/logs/NAME/.written`, gone with the folder that it tells about."""

    def __init__(self, path: Path, where: str) -> None:
        self._path, self._where = path, where
        self._lines = set(path.read_text().splitlines()) if path.exists() else set()

    def has(self, key: str, status: str) -> bool:
        """Whether the tool has all of a row."""
        return self._line(key, status) in self._lines

    def add(self, key: str, status: str) -> None:
        """It has."""
        self._path.parent.mkdir(parents=True, exist_ok=True)
        with self._path.open("a") as file:
            file.write(self._line(key, status) + "\n")

    def _line(self, key: str, status: str) -> str:
        return f"{key} {status} {self._where}"


class LogWriter:
    """An observer that writes the rows of a sweep.

    A tool that fails is left out from then on, with one warning: no run is touched by it, and the next command with the
    same `--log` writes what is missing from the stored curves.

    Args:
        tools: by name.
        out: results folder.
        fresh: the runs begin anew, and so do their logs.
    """

    needs_curves = True

    def __init__(self, tools: Mapping[str, Tool], out: Path, fresh: bool = False) -> None:
        self._tools, self._fresh = dict(tools), fresh
        self._ledgers = {name: _Ledger(out / "logs" / name / ".written", tool.where) for name, tool in tools.items()}
        self._books: dict[str, _Book] = {}
        self._jobs: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._work, name="logs", daemon=True)
        self._thread.start()

    @property
    def working(self) -> list[Tool]:
        """The tools that have not failed."""
        return list(self._tools.values())

    def started(self, trial: Watched) -> None:
        """Nothing: a series begins with its first values."""

    def reported(self, trial: Watched, report: Mapping[str, Any]) -> None:
        """Write what the report brings."""
        self._jobs.put(partial(self._write, trial.units, report["curves"]))

    def ended(self, trial: Watched, report: Mapping[str, Any]) -> None:
        """Close the trial's series; one that was still running ends as the trial did."""
        statuses = {key: status for key, status in report.get("statuses", {}).items() if status != "running"}
        for unit in trial.units:
            for key in unit.rows.values():
                self._jobs.put(partial(self._end, key, statuses.get(key, report["status"])))

    def catch_up(self, store: Store, keys: Iterable[str]) -> int:
        """Write those stored rows of `keys` that a tool does not have to their end; returns how many there are.

        One whose curve is missing is left until that is back.
        """
        wanted, runs = set(keys), store.runs()
        rows = [{str(name): value for name, value in row.items()} for row in runs.to_dict("records")]
        rows = [row for row in rows if row["run_key"] in wanted and row["status"] in WHOLE]
        missing = {row["run_key"]: row for row in rows if self._lacking(row)}
        points: dict[str, list[Point]] = {key: [] for key in missing}
        curves = store.curves(missing)
        for key, *point in zip(*(curves[name] for name in ("run_key", "round", "metric", "value")), strict=True):
            points[key].append((int(point[0]), str(point[1]), float(point[2])))
        there = {key: row for key, row in missing.items() if points[key]}
        for key, row in there.items():
            self._jobs.put(partial(self._write_stored, row, points[key], self._lacking(row)))
        return len(there)

    def close(self) -> None:
        """End what is open as interrupted, and wait until all is written."""
        self._jobs.put(self._end_all)
        self._jobs.put(None)
        with suppress(KeyboardInterrupt):
            self._thread.join(CLOSE_SECONDS)
        if self._thread.is_alive():
            _warn(f"--log {','.join(self._tools)} has not finished and is left; {AGAIN}")

    def _work(self) -> None:
        while job := self._jobs.get():
            job()

    def _write(self, units: Sequence[Unit], curves: Mapping[str, Sequence[Point]]) -> None:
        for unit in units:
            for key in unit.rows.values():
                if curves.get(key):
                    book = self._books.get(key) or _Book(series_of(unit, key))
                    self._books[key] = book
                    self._scalars(book, curves[key], list(self._tools))

    def _write_stored(self, row: Mapping[str, Any], points: Sequence[Point], names: Sequence[str]) -> None:
        """All of a row from its stored curve."""
        identity = json.loads(row["hp_json"]), json.loads(row["setting_json"]), int(row["seed"])
        paper = row["paper"] if isinstance(row["paper"], str) else None
        series = make_series(row["run_key"], row["algorithm"], int(row["algorithm_version"]), *identity, paper)
        book = _Book(series)
        self._scalars(book, points, names)
        self._close(book, row["status"])

    def _scalars(self, book: _Book, points: Sequence[Point], names: Sequence[str]) -> None:
        rounds = book.rounds(points)
        for name in names:
            self._guard(name, partial(self._give, book, name, rounds))

    def _give(self, book: _Book, name: str, rounds: Rounds) -> None:
        if name not in book.logs:
            book.logs[name] = self._tools[name].open(book.series, self._fresh)
        new = {at: values for at, values in rounds.items() if at > book.logs[name].begins}
        if new:
            book.logs[name].scalars(new)

    def _end(self, key: str, status: str) -> None:
        book = self._books.pop(key, None)
        if book:
            self._close(book, status if status in (*WHOLE, "failed") else "interrupted")

    def _end_all(self) -> None:
        for key in list(self._books):
            self._end(key, "interrupted")

    def _close(self, book: _Book, status: str) -> None:
        for name in list(book.logs):
            self._guard(name, partial(self._close_log, name, book, status))

    def _close_log(self, name: str, book: _Book, status: str) -> None:
        book.logs[name].end(status, {"best_accuracy": book.best, "final_accuracy": book.final})
        if status in WHOLE:
            self._ledgers[name].add(book.series.key, status)

    def _lacking(self, row: Mapping[str, Any]) -> list[str]:
        """The tools that do not have a row to its end."""
        return [name for name in self._tools if not self._ledgers[name].has(row["run_key"], row["status"])]

    def _guard(self, name: str, action: Callable[[], None]) -> None:
        """Do it; a tool that fails is not asked again."""
        if name not in self._tools:
            return
        try:
            action()
        except (Exception, SystemExit) as error:
            del self._tools[name]
            what = (str(error).strip().splitlines() or [type(error).__name__])[0][:MESSAGE_LENGTH]
            _warn(f"--log {name} failed and is left out, the runs go on: {what}; {AGAIN}")


@contextmanager
def logged(
    names: Sequence[str],
    plan: Plan,
    to_do: Sequence[Unit],
    store: Store,
    *,
    offline: bool,
    fresh: bool,
) -> Iterator[list[Observer]]:
    """The observers that `--log` asks for; what they lack of stored rows is written, and at the end all is closed.

    Args:
        names: of `bench.execution.LOGS`.
        plan: the sweep.
        to_do: its runs that are not stored.
        store: of the results.
        offline: never touch the network.
        fresh: runs begin anew.

    Raises:
        EnvironmentProblem: a tool is not installed or cannot be used.
    """
    if not names:
        yield []
        return
    from bench.tuning.log_tools import make_tools

    writer = LogWriter(make_tools(names, store.out, offline), store.out, fresh)
    try:
        late = writer.catch_up(store, _stored_keys(plan, to_do, store))
        if late:
            say(f"curves of {counted(late, 'stored run')} are logged, too")
        yield [writer]
    finally:
        writer.close()
    say(*(f"curves: {tool.look}" for tool in writer.working))


def _stored_keys(plan: Plan, to_do: Sequence[Unit], store: Store) -> set[str]:
    """Keys of the sweep's rows that are not about to be made. Some may not be stored."""
    coming = {unit.key for unit in to_do}
    keys = {key for unit in plan.units if unit.key not in coming for key in unit.rows.values()}
    cells = {(row, identity_json(s.setting)) for s in plan.searches for row in entry(s.algorithm).rows.values()}
    if cells:
        runs = store.runs(columns=("run_key", "algorithm", "setting_json"))
        stored = zip(runs.run_key, runs.algorithm, runs.setting_json, strict=True)
        keys |= {key for key, *cell in stored if tuple(cell) in cells}
    return keys


def _warn(text: str) -> None:
    # A live display takes what goes to stderr and shows it above its table.
    sys.stderr.write(f"warning: {text}\n")
    sys.stderr.flush()

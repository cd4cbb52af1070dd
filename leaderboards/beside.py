"""Our runs beside printed numbers: which runs stand for a cell, what they reached, and how far that is from print.

A run stands for a cell if its algorithm, hyper-parameters and setting are the cell's. One that is only shorter, has
less data or another model does where there is none better, and says so.
"""

from __future__ import annotations

import json
import math
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pandas as pd

from leaderboards.boards import current
from leaderboards.frames import by_run
from leaderboards.published import PrintedCell, PrintedMetric
from leaderboards.schema import SHORTENING

if TYPE_CHECKING:
    from leaderboards.folders import Results

Curve = Mapping[str, Mapping[int, float]]  # metric -> round -> value
Run = Mapping[str, Any]  # a row of `runs`, its setting read as `setting`


@dataclass(frozen=True)
class Asked:
    """A printed number with one configuration that may stand for it.

    Args:
        printed: the number.
        algorithm: whose rows hold it.
        hp_json: its hyper-parameters as our rows have them.
        setting: every field.
        label: the hyper-parameters that tell it from the cell's other configurations; empty where it is the only one.
        column: of our rows that holds the number; empty where the curve tells.
        reason: why it cannot be run here; empty where it can.
    """

    printed: PrintedCell
    algorithm: str
    hp_json: str
    setting: Mapping[str, Any]
    label: str
    column: str
    reason: str = ""


@dataclass(frozen=True)
class Beside:
    """What our runs reached of a printed number.

    Args:
        asked: the number and the configuration.
        state: `value`; `diverged` (some run did; the values are there, but mean little); `unreached` (some run never
            came to the target); `unmeasured`; `failed` or `stopped` (every run was); `missing`; `unavailable` (no run,
            and none possible here).
        values: one per seed that has one.
        n: finished seeds.
        incomplete: seeds that failed or were stopped, where others finished.
        shortened: what differs from the cell's setting, by field; empty for a run as printed.
    """

    asked: Asked
    state: str
    values: tuple[float, ...] = ()
    n: int = 0
    incomplete: int = 0
    shortened: Mapping[str, Any] = field(default_factory=dict)

    @property
    def mean(self) -> float | None:
        """Over seeds; None unless every finished one has a value: what fell short is not averaged away."""
        return math.fsum(self.values) / self.n if self.values and len(self.values) == self.n else None

    @property
    def std(self) -> float | None:
        """Over seeds, n - 1; None below two."""
        return statistics.stdev(self.values) if self.mean is not None and self.n > 1 else None

    @property
    def difference(self) -> float | None:
        """Ours less the printed value."""
        return None if self.mean is None else self.mean - self.asked.printed.value

    @property
    def overlap(self) -> bool | None:
        """Whether the intervals mean ± std meet, one without spread being a point; None if neither has any."""
        spreads = [spread for spread in (self.std, self.asked.printed.std) if spread is not None]
        if self.difference is None or not spreads:
            return None
        return abs(self.difference) <= math.fsum(spreads)


def shortened_by(asked: Mapping[str, Any], setting: Mapping[str, Any]) -> dict[str, Any] | None:
    """What a run's setting has less than the one asked for, or another model; None if it is another problem."""
    differing = {name: setting[name] for name in setting if name not in asked or setting[name] != asked[name]}
    if set(asked) - set(setting) or set(differing) - {*SHORTENING, "model", "model_version"}:
        return None
    return differing if all(setting[name] <= asked[name] for name in SHORTENING) else None


def value_of(metric: PrintedMetric, curve: Curve, read_to: int | None = None) -> float | None:
    """A printed quantity, read off a run's curve; None where it has no such thing, or never reached the target.

    Args:
        metric: what to read.
        curve: the run's.
        read_to: read it as if the run had ended after so many rounds.
    """
    known = {
        name: {at: value for at, value in points.items() if not read_to or at <= read_to}
        for name, points in curve.items()
    }
    at = _round_of(metric, known)
    if at is None:
        return None
    return float(at) if metric.quantity == "rounds" else known.get(metric.quantity, {}).get(at)


def _round_of(metric: PrintedMetric, curve: Curve) -> int | None:
    """The round that a metric is read at."""
    accuracy, validation = curve.get("accuracy", {}), curve.get("val_accuracy", {})
    if metric.rule == "at_round":
        return int(metric.argument or 0)
    if metric.rule == "to_target":
        return min((at for at, value in accuracy.items() if value >= (metric.argument or 0.0)), default=None)
    if metric.rule in ("best", "selected"):
        ranked = accuracy if metric.rule == "best" else validation
        return max(ranked, key=lambda at: (ranked[at], -at), default=None)
    return max(accuracy, default=None)


def beside(asked: Sequence[Asked], results: Results) -> list[Beside]:
    """For each printed number what stored runs reached of it."""
    runs = _runs_of(asked, results)
    cells = [one.setting for one in asked]
    chosen = [_chosen(one, runs.get((one.algorithm, one.hp_json), []), cells) for one in asked]
    needed = {run["run_key"] for one, (finished, *_) in zip(asked, chosen, strict=True) for run in finished}
    needed = needed if any(not one.column for one in asked) else set()
    curves = by_run(results.curves(needed)) if needed else {}
    return [_beside(one, *found, curves) for one, found in zip(asked, chosen, strict=True)]


def _runs_of(asked: Iterable[Asked], results: Results) -> dict[tuple[str, str], list[Run]]:
    """The runs by algorithm and hyper-parameters, as far as they are asked for."""
    wanted = pd.MultiIndex.from_tuples({(one.algorithm, one.hp_json) for one in asked})
    runs = current(results.runs())
    runs = runs[pd.MultiIndex.from_frame(runs[["algorithm", "hp_json"]]).isin(wanted)]
    found: dict[tuple[str, str], list[Run]] = {}
    for row in runs.to_dict("records"):
        run = {str(name): value for name, value in row.items()} | {"setting": json.loads(row["setting_json"])}
        found.setdefault((row["algorithm"], row["hp_json"]), []).append(run)
    return found


def _chosen(
    asked: Asked, runs: Iterable[Run], cells: Sequence[Mapping[str, Any]]
) -> tuple[list[Run], list[Run], dict[str, Any]]:
    """The runs that stand for a cell, those of them that did not finish, and what shortens both.

    Runs that are shortened alike belong together. Those nearest to the cell count, finished ones first. A whole run of
    another of the `cells`, where a table compares numbers of epochs, is no short one of this cell.
    """
    groups: dict[str, tuple[dict[str, Any], list[Run]]] = {}
    for run in runs:
        less = shortened_by(asked.setting, run["setting"])
        if less and any(shortened_by(cell, run["setting"]) == {} for cell in cells):
            continue
        if less is not None:
            groups.setdefault(run["setting_json"], (less, []))[1].append(run)
    if not groups:
        return [], [], {}
    less, members = max(groups.values(), key=lambda group: _nearness(asked, *group))
    last: dict[int, Run] = {}  # of two runs of one seed, a failed one perhaps, the later finished
    for run in sorted(members, key=lambda run: (run["status"] == "finished", run["finished"])):
        last[run["seed"]] = run
    finished = [run for run in last.values() if run["status"] == "finished"]
    return finished, [run for run in last.values() if run["status"] != "finished"], less


def _nearness(asked: Asked, less: Mapping[str, Any], runs: Sequence[Run]) -> tuple[bool, bool, tuple[float, ...]]:
    """Finished before not, the cell's model before another, then the larger share of rounds, epochs and data."""
    shares = tuple(float(less.get(name, asked.setting[name])) for name in SHORTENING)
    return any(run["status"] == "finished" for run in runs), "model" not in less, shares


def _beside(
    asked: Asked,
    finished: Sequence[Run],
    others: Sequence[Run],
    less: Mapping[str, Any],
    curves: Mapping[str, Curve],
) -> Beside:
    if not finished:
        states = {run["status"] for run in others}
        none = "unavailable" if asked.reason else "missing"
        return Beside(asked, next((state for state in ("failed", "stopped") if state in states), none), shortened=less)
    read = [_value(asked, run, curves.get(run["run_key"], {})) for run in finished]
    values = tuple(value for value in read if value is not None)
    state = "value"
    if any(run["diverged"] for run in finished):
        state = "diverged"
    elif len(values) < len(finished):
        state = "unreached" if asked.printed.rule == "to_target" else "unmeasured"
    return Beside(asked, state, values, len(finished), len(others), less)


def _value(asked: Asked, run: Run, curve: Curve) -> float | None:
    """The printed quantity of one run: its row's column, or read off the curve."""
    if not asked.column:
        return value_of(asked.printed.measured, curve, asked.printed.read_to)
    held = run[asked.column]
    if isinstance(held, Mapping):
        held = held.get(int(asked.printed.argument or 0))
    return None if pd.isna(held) else float(held)

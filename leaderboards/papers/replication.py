"""Our runs beside printed numbers: which runs stand for a number, what they reached, and how far that is from print.

A run stands for a printed number if its algorithm, hyper-parameters and setting are the number's. One that is only
shorter, has less data or another model does if there is none better, and says so.
"""

from __future__ import annotations

import json
import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pandas as pd

from leaderboards.board import current
from leaderboards.curve_metrics import Curve, value_of
from leaderboards.published import PrintedCell
from leaderboards.rows.frames import by_run
from leaderboards.rows.schema import SHORTENING

if TYPE_CHECKING:
    from leaderboards.rows.store import Results

Run = Mapping[str, Any]  # a row of `runs`, its setting read as `setting`


@dataclass(frozen=True)
class Candidate:
    """A printed number with one configuration that may stand for it.

    Args:
        printed: the number.
        algorithm: whose rows hold it.
        hp_json: its hyper-parameters as our rows have them.
        setting: every field.
        label: the hyper-parameters that tell it from the number's other candidates; empty if it is the only one.
        column: of our rows that holds the number; empty if the curve tells.
        reason: why it cannot be run here; empty if it can.
    """

    printed: PrintedCell
    algorithm: str
    hp_json: str
    setting: Mapping[str, Any]
    label: str
    column: str
    reason: str = ""


@dataclass(frozen=True)
class Replication:
    """Our result for a printed number.

    Args:
        candidate: the number and the configuration.
        state: `value`; `diverged` (some run did; the values are there, but mean little); `unreached` (some run never
            came to the target); `unmeasured`; `failed` or `stopped` (every run was); `missing`; `unavailable` (no run,
            and none possible here).
        values: one per seed that has one.
        n: finished seeds.
        incomplete: seeds that failed or were stopped, if others finished.
        shortened: the fields that differ from the number's setting, with our values; empty for a run as printed.
    """

    candidate: Candidate
    state: str
    values: tuple[float, ...] = ()
    n: int = 0
    incomplete: int = 0
    shortened: Mapping[str, Any] = field(default_factory=dict)

    @property
    def mean(self) -> float | None:
        """Over seeds; None unless every finished one has a value."""
        return math.fsum(self.values) / self.n if self.values and len(self.values) == self.n else None

    @property
    def std(self) -> float | None:
        """Over seeds, n - 1; None below two."""
        return statistics.stdev(self.values) if self.mean is not None and self.n > 1 else None

    @property
    def difference(self) -> float | None:
        """Ours less the printed value."""
        return None if self.mean is None else self.mean - self.candidate.printed.value

    @property
    def overlap(self) -> bool | None:
        """Whether the intervals mean ± std meet, one without spread being a point; None if neither has any."""
        spreads = [spread for spread in (self.std, self.candidate.printed.std) if spread is not None]
        if self.difference is None or not spreads:
            return None
        return abs(self.difference) <= math.fsum(spreads)


def replications(candidates: Sequence[Candidate], results: Results) -> list[Replication]:
    """Find for each candidate what stored runs reached."""
    wanted = pd.MultiIndex.from_tuples({(one.algorithm, one.hp_json) for one in candidates})
    frame = current(results.runs())
    frame = frame[pd.MultiIndex.from_frame(frame[["algorithm", "hp_json"]]).isin(wanted)]
    runs: dict[tuple[str, str], list[Run]] = {}
    for row in frame.to_dict("records"):
        run = {str(name): value for name, value in row.items()} | {"setting": json.loads(row["setting_json"])}
        runs.setdefault((row["algorithm"], row["hp_json"]), []).append(run)
    settings = [one.setting for one in candidates]
    chosen = [_chosen(one, runs.get((one.algorithm, one.hp_json), []), settings) for one in candidates]
    needed = {run["run_key"] for members, _ in chosen for run in members if run["status"] == "finished"}
    curves = by_run(results.curves(needed)) if needed and any(not one.column for one in candidates) else {}
    return [_replication(one, *own, curves) for one, own in zip(candidates, chosen, strict=True)]


def shortened_by(asked: Mapping[str, Any], setting: Mapping[str, Any]) -> dict[str, Any] | None:
    """Tell what a run's setting has less than the one asked for, or another model; None if it is another problem."""
    differing = {name: setting[name] for name in setting if name not in asked or setting[name] != asked[name]}
    if set(asked) - set(setting) or set(differing) - {*SHORTENING, "model", "model_version"}:
        return None
    return differing if all(setting[name] <= asked[name] for name in SHORTENING) else None


def _chosen(
    candidate: Candidate, runs: Sequence[Run], settings: Sequence[Mapping[str, Any]]
) -> tuple[list[Run], dict[str, Any]]:
    """Choose the runs that stand for a number, one for each seed, and say what shortens them.

    Runs that are shortened alike belong together. Those nearest to the number's setting count: finished ones first,
    then its model, then the largest share of rounds, epochs and data. A whole run of another of the `settings` (where a
    table compares numbers of epochs) is no short one of this number.
    """
    groups: dict[str, tuple[dict[str, Any], list[Run]]] = {}
    for run in runs:
        less = shortened_by(candidate.setting, run["setting"])
        if less is None or (less and any(shortened_by(other, run["setting"]) == {} for other in settings)):
            continue
        groups.setdefault(run["setting_json"], (less, []))[1].append(run)
    if not groups:
        return [], {}

    def nearness(group: tuple[Mapping[str, Any], Sequence[Run]]) -> tuple[bool, bool, tuple[float, ...]]:
        less, members = group
        shares = tuple(float(less.get(name, candidate.setting[name])) for name in SHORTENING)
        return any(run["status"] == "finished" for run in members), "model" not in less, shares

    less, members = max(groups.values(), key=nearness)
    # Of two runs of one seed, a failed one perhaps, the later finished.
    ordered = sorted(members, key=lambda run: (run["status"] == "finished", run["finished"]))
    return list({run["seed"]: run for run in ordered}.values()), less


def _replication(
    candidate: Candidate, runs: Sequence[Run], less: Mapping[str, Any], curves: Mapping[str, Curve]
) -> Replication:
    finished = [run for run in runs if run["status"] == "finished"]
    if not finished:
        states = {run["status"] for run in runs}
        none = "unavailable" if candidate.reason else "missing"
        state = next((state for state in ("failed", "stopped") if state in states), none)
        return Replication(candidate, state, shortened=less)
    read = [_value(candidate, run, curves.get(run["run_key"], {})) for run in finished]
    values = tuple(value for value in read if value is not None)
    state = "value"
    if any(run["diverged"] for run in finished):
        state = "diverged"
    elif len(values) < len(finished):
        state = "unreached" if candidate.printed.rule == "to_target" else "unmeasured"
    return Replication(candidate, state, values, len(finished), len(runs) - len(finished), less)


def _value(candidate: Candidate, run: Run, curve: Curve) -> float | None:
    """The printed quantity of one run: its row's column, or read off the curve."""
    if not candidate.column:
        return value_of(candidate.printed.measured, curve, candidate.printed.read_to)
    held = run[candidate.column]
    if isinstance(held, Mapping):
        held = held.get(int(candidate.printed.argument or 0))
    return None if pd.isna(held) else float(held)

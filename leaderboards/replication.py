"""Our runs beside printed numbers: which runs stand for a number, what they reached, and how far that is from print.

A run stands for a printed number if its algorithm, hyper-parameters and setting are the number's. One that is only
shorter, has less data or another model does if there is none better, and says so.
"""

from __future__ import annotations

import json
import math
import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pandas as pd

from leaderboards.board import current
from leaderboards.curve_metrics import Curve, value_of
from leaderboards.metrics import METRICS, Metric
from leaderboards.published import UNITS, Candidate, PrintedCell
from leaderboards.rows.frames import by_run
from leaderboards.rows.schema import SHORTENING, WHEN_DIVERGED
from leaderboards.tables.captions import SYMBOLS
from leaderboards.tables.model import Cell, Head, Row, Sheet, Table

if TYPE_CHECKING:
    from leaderboards.rows.store import Results

Run = Mapping[str, Any]  # a row of `runs`, its setting read as `setting`

_SHORTENED = "†"
_INCOMPLETE = "§"
# State -> what stands in place of our number, and the note below.
_STATES = {
    "missing": ("not run", ""),
    "unmeasured": ("not measured", "not measured: the runs have no such number"),
    "failed": ("failed", "failed: every run did"),
    "stopped": ("stopped", "stopped: every run was, early, by a search"),
    "diverged": ("DIVERGED", f"DIVERGED: {WHEN_DIVERGED}"),
    "unreached": ("", "reached k of n: only so many seeds came to the target, and no mean is taken"),
}
_PLACE = ("dataset", "alpha", "num_clients", "participation", "local_epochs", "metric")
# The three columns of a place. The metric's own scale is applied by the cells.
_COLUMNS = tuple(Metric(name, name, name, unit="", scale=1.0) for name in ("ours", "printed", "difference"))


@dataclass(frozen=True)
class Replication:
    """Our result for a printed number.

    Args:
        candidate: the number and the configuration.
        state: `value`; `diverged` (some run did; the values are there, but mean little); `unreached` (some run never
            came to the target); `unmeasured`; `failed` or `stopped` (every run was); `missing`.
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
        """Tell whether the intervals mean ± std meet; None for two numbers without spread, and for shortened runs."""
        spreads = [spread for spread in (self.std, self.candidate.printed.std) if spread is not None]
        if self.difference is None or self.shortened or not spreads:
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
        state = next((state for state in ("failed", "stopped") if state in states), "missing")
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


def replication_sheet(rows: Sequence[Replication], title: str) -> Sheet:
    """Make one table of a paper's numbers, in the order of print: ours, the printed value, and the difference.

    A row of print with several candidates has a row for each of them.
    """
    places = list(dict.fromkeys(_place(one.candidate.printed) for one in rows))
    varying = [i for i in range(len(_PLACE)) if len({place[i] for place in places}) > 1]
    heads = tuple(Head((i,), _label(place, varying), column) for i, place in enumerate(places) for column in _COLUMNS)
    remarks = dict.fromkeys(note for one in rows if (note := one.candidate.printed.note))
    numbers = {note: number for number, note in enumerate(remarks, start=1)}  # that mark the cells of a note
    lines: dict[tuple[str, str], dict[tuple[Any, ...], Replication]] = {}
    for one in rows:
        printed = one.candidate.printed
        lines.setdefault((printed.printed, one.candidate.label), {})[_place(printed)] = one
    body = tuple(
        Row(name, "", label, tuple(cell for place in places for cell in _cells(line.get(place), numbers)))
        for (name, label), line in lines.items()
    )
    above = tuple(_captions(rows, [i for i in range(len(_PLACE)) if i not in varying]))
    return Sheet(Table(title, above, heads, body, tuple(_notes(rows, numbers)), {}), tuple(_records(rows)))


def _records(rows: Sequence[Replication]) -> Iterator[dict[str, Any]]:
    """Give every number and candidate as a flat record, numbers as stored."""
    for one in rows:
        printed = one.candidate.printed
        yield {
            **{name: getattr(printed, name) for name in ("paper", "table", "dataset", "model", "heterogeneity")},
            **{name: getattr(printed, name) for name in _PLACE[1:-1]},
            "rounds": printed.rounds,
            "algorithm": printed.algorithm,
            "printed_as": printed.printed,
            "hyperparameters": one.candidate.hp_json,
            "metric": printed.metric,
            "unit": printed.unit,
            "state": one.state,
            "ours": one.mean,
            "ours_std": one.std,
            "n": one.n,
            "with_value": len(one.values),
            "printed": printed.value,
            "printed_std": printed.std,
            "difference": one.difference,
            "overlap": one.overlap,
            "shortened": ", ".join(f"{name}={value}" for name, value in one.shortened.items()),
            "note": printed.note or "",
        }


def _place(printed: PrintedCell) -> tuple[Any, ...]:
    return (*(getattr(printed, name) for name in _PLACE[:-1]), printed.measured)


def _label(place: Sequence[Any], varying: Sequence[int]) -> str:
    """Name what tells a place from the table's others; its metric, if nothing does."""
    parts = []
    for i in varying or [len(_PLACE) - 1]:
        name, value = _PLACE[i], place[i]
        if name == "metric":
            parts.append(value.short)
        elif value is not None:
            parts.append(f"{SYMBOLS[name]} = {value:g}" if name in SYMBOLS else str(value))
    return ", ".join(parts)


def _cells(one: Replication | None, remarks: Mapping[str, int]) -> list[Cell]:
    if one is None:
        return [Cell("missing", column, words="") for column in _COLUMNS]
    printed = one.candidate.printed
    metric = printed.measured
    theirs = _number(printed, printed.value, printed.std) + (f" [{remarks[printed.note]}]" if printed.note else "")
    difference = ""
    if one.difference is not None:
        verdict = {True: " overlap", False: " apart", None: ""}[one.overlap]
        difference = f"{one.difference * metric.scale:+.{metric.decimals}f}{verdict}"
    state = one.state if one.state in ("value", "diverged", "failed") else "missing"
    return [
        Cell(state, _COLUMNS[0], words=_ours(one)),
        Cell("value", _COLUMNS[1], words=theirs),
        Cell("value" if difference else "missing", _COLUMNS[2], words=difference),
    ]


def _ours(one: Replication) -> str:
    marks = _SHORTENED * bool(one.shortened) + _INCOMPLETE * bool(one.incomplete)
    if one.state == "unreached":
        return f"reached {len(one.values)} of {one.n}{marks}"
    if one.mean is None:
        return _STATES[one.state][0] + marks
    text = f"{_number(one.candidate.printed, one.mean, one.std)} ({one.n}){marks}"
    return f"DIVERGED {text}" if one.state == "diverged" else text


def _number(printed: PrintedCell, value: float, std: float | None) -> str:
    metric = printed.measured
    return " ± ".join(f"{part * metric.scale:.{metric.decimals}f}" for part in (value, std) if part is not None)


def _captions(rows: Sequence[Replication], common: Sequence[int]) -> Iterator[str]:
    """The lines above: what all places have in common, what is measured, how many numbers have runs."""
    place = _place(rows[0].candidate.printed)
    shared = [_label(place, [i]) for i in common if _PLACE[i] != "metric" and place[i] is not None]
    if shared:
        yield ", ".join(shared)
    yield "Ours: mean ± std (n seeds); printed: as in the paper; difference: ours less printed"
    units = {"fraction": ", in %", "fraction^2": f", {METRICS['fm'].unit}"}
    metrics = dict.fromkeys(one.candidate.printed.measured for one in rows)
    yield from dict.fromkeys(metric.meaning + units.get(UNITS[metric.quantity], "") for metric in metrics)
    cells = {one.candidate.printed for one in rows}
    run = {one.candidate.printed for one in rows if one.n}
    full = {one.candidate.printed for one in rows if one.n and not one.shortened}
    yield f"{len(run)} of {len(cells)} printed cells have runs, {len(full)} of them as printed"


def _notes(rows: Sequence[Replication], remarks: Mapping[str, int]) -> Iterator[str]:
    """The meaning of words and marks in the table, what is known of printed values."""
    if any(one.overlap is not None for one in rows):
        yield "overlap, apart: whether the intervals mean ± std meet"
    shortened = dict.fromkeys(
        ", ".join(f"{name} {value} for {one.candidate.setting[name]}" for name, value in one.shortened.items())
        for one in rows
        if one.shortened
    )
    if shortened:
        yield f"{_SHORTENED} not the printed setting: {' | '.join(shortened)}"
    if any(one.incomplete for one in rows):
        yield f"{_INCOMPLETE} some seeds failed or were stopped"
    states = {one.state for one in rows}
    yield from (note for state, (_, note) in _STATES.items() if state in states and note)
    yield from (f"[{number}] {note}" for note, number in remarks.items())

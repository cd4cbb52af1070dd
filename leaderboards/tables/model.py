"""Parts of a table: cells with numbers, states, ranks and marks, in rows under heads.

Nothing is rendered here.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from leaderboards.flags import FLAGS, STATES
from leaderboards.numbers import ANY, Number
from leaderboards.problems import BY, REFERENCES, Place, Record, base_model, label_of
from leaderboards.rows.schema import canonical_json
from leaderboards.stats.seeds import Interval

NOT_RUN = "–"  # in place of a hyper-parameter's value
EXCLUDED = "×"  # behind a number: its algorithm is excluded from being the best of the column
WHEN_EXCLUDED = (
    "excluded from being best: another algorithm is better (paired t tests over common seeds, "
    "Bonferroni, 5 % over the column)"
)
_SETTING_FIELDS = ("dataset", "model", "partition", "num_clients", "rounds", "local_epochs")
_RECORD_FIELDS = (
    *("n", "selected", "selected_on", "configurations", "configurations_diverged"),
    *("chosen_on", "validation_gap"),
    *("failed", "stopped", "shortened", "uncertified", "cell"),
    *("platforms", "platforms_mixed", "data_mixed"),
)


@dataclass(frozen=True)
class Head:
    """A column's heading: a metric at one place.

    Args:
        place: values of the fields that make columns.
        label: words that distinguish the place from the table's others; empty if it is the only
            one.
        metric: the number that is printed.
        at_defaults: whether the column shows the default hyper-parameters beside the chosen ones;
            it is then neither ranked nor compared.
    """

    place: Place
    label: str
    metric: Number
    at_defaults: bool = False

    @property
    def title(self) -> str:
        """The heading itself, without the place."""
        return "at defaults" if self.at_defaults else self.metric.short


@dataclass(frozen=True)
class TableCell:
    """The result of one algorithm, or of one of its configurations, in one column.

    Args:
        state: `value`; `diverged` (some run did: the numbers exist, but mean little); `failed`,
            `stopped` (all runs were); `unreached` (some seeds lack the value); `missing`.
        metric: of the column.
        record: row of the leaderboard; None if nothing was run.
        best: whether it has the column's best mean; of none if all means are equal.
        excluded: whether a test excludes it from being the best of the column.
        marks: keys of `flags.FLAGS` whose marks are printed.
        interval: whether the interval is printed instead of the standard deviation.
        words: text to print instead of the record's numbers.
    """

    state: str
    metric: Number
    record: Record | None = None
    best: bool = False
    excluded: bool = False
    marks: tuple[str, ...] = ()
    interval: bool = False
    words: str | None = None

    def statistic(self, part: str) -> float | None:
        """Return `mean`, `std`, `low` or `high` over seeds, or None.

        It is as stored: accuracies are fractions.
        """
        if self.record is None:
            return None
        value = self.record[f"{self.metric.name}_{part}"]
        return None if value is None else float(value)

    @property
    def n(self) -> int:
        """Number of seeds that finished."""
        return 0 if self.record is None else int(self.record["n"])

    @property
    def seeds(self) -> Mapping[int, float]:
        """Stored values by seed; empty unless the leaderboard was made `with_seeds`."""
        return self.values(self.metric)

    def values(self, metric: Number) -> Mapping[int, float]:
        """Return the stored values of any metric by seed, as `seeds` has those of its own."""
        by_metric = (self.record or {}).get("seeds") or {}
        return by_metric.get(metric.name) or {}

    @property
    def platforms_by_seed(self) -> Mapping[int, Collection[str]]:
        """Return the platforms of the finished runs of each seed.

        Empty unless the leaderboard was made `with_seeds`.
        """
        return (self.record or {}).get("platforms_by_seed") or {}

    @property
    def shortest(self) -> Mapping[str, float]:
        """Return the seconds of the shortest run in each environment, likewise."""
        return (self.record or {}).get("shortest") or {}

    @property
    def shares_runs(self) -> bool:
        """Return whether one of its runs yields a row of another algorithm, too, likewise."""
        return bool((self.record or {}).get("shares_runs"))

    def is_unlike(self, other: TableCell) -> bool:
        """Return whether two cells have runs of a common seed on unlike platforms."""
        theirs = other.platforms_by_seed
        for seed, platforms in self.platforms_by_seed.items():
            if seed in theirs and set(platforms) != set(theirs[seed]):
                return True
        return False

    @property
    def rank(self) -> int | None:
        """Return the rank among the cells of the column, as the leaderboard has it, or None."""
        return None if self.record is None else self.record[f"{self.metric.name}_rank"]

    @property
    def competes(self) -> bool:
        """Return whether the cell is ranked and compared.

        Of several configurations only the selected one is.
        """
        return self.state == "value" and self._is_selected

    @property
    def is_pooled(self) -> bool:
        """Return whether the cell counts in comparisons over cells.

        It does if it `competes`, and also if a run diverged.
        """
        return self.state in ("value", "diverged") and self._is_selected

    @property
    def _is_selected(self) -> bool:
        return self.record is not None and bool(self.record["selected"])

    def text(self) -> str:
        """Format the cell: `71.29 ± 0.31 (3)`, `DIVERGED 2/5`, or a word for the state."""
        if self.words is not None:
            return self.words
        marks = "".join(FLAGS[mark].mark for mark in self.marks)
        if self.record is None or self.state not in ("value", "unreached", "diverged"):
            return STATES[self.state][0] + marks
        n = self.record["n"]
        if self.state == "unreached":
            return f"{self.record[f'{self.metric.name}_count']} of {n}{marks}"
        if self.state == "diverged":
            return f"{STATES['diverged'][0]} {self.record['diverged_count']}/{n}{marks}"
        excluded = EXCLUDED if self.excluded else ""
        mean = number_text(self.statistic("mean"), self.metric)
        return f"{mean}{self._spread_text()} ({n}){excluded}{marks}"

    def _spread_text(self) -> str:
        """Format the interval or the standard deviation; empty if there is none."""
        if self.interval:
            ends = [number_text(self.statistic(end), self.metric) for end in ("low", "high")]
            return f" [{', '.join(ends)}]" if all(ends) else ""
        std = number_text(self.statistic("std"), self.metric)
        return f" ± {std}" if std else ""


@dataclass(frozen=True)
class Row:
    """A row of a table: an algorithm, its model, and hyper-parameters that are worth showing.

    `texts` has hyper-parameter -> its value in each place, as text, from left to right; `NOT_RUN`
    where nothing was run, and empty for a word that has no value.
    """

    algorithm: str
    model: str
    texts: Mapping[str, Sequence[str]]
    cells: tuple[TableCell, ...]

    def hyperparameters(self, places: Collection[int] | None = None) -> str:
        """Format hyper-parameters: `mu=0.1`, or `mu=0.1|–|1` if they differ by place.

        `places`: positions of the places, if not of all; what ran in none of them is left out.
        """
        parts = []
        for name, texts in self.texts.items():
            shown = list(texts)
            if places is not None:
                shown = [texts[place] for place in sorted(places)]
            distinct = set(shown) - {NOT_RUN}
            if distinct:
                value = "|".join(shown) if len(distinct) > 1 else distinct.pop()
                parts.append(f"{name}={value}" if value else name)
        return " ".join(parts)

    @property
    def label(self) -> str:
        """Algorithm and model variant, as `problems.label_of` writes them."""
        return label_of({"algorithm": self.algorithm, "model": self.model})

    @property
    def reference(self) -> bool:
        """Return whether the row is a bound to compare the others with, not a competitor."""
        return self.algorithm in REFERENCES

    @property
    def is_ranked(self) -> bool:
        """Return whether any cell of the row has a rank."""
        return any(cell.rank for cell in self.cells)


@dataclass(frozen=True)
class ResultTable:
    """Results that differ only in the algorithm and in the fields that make columns.

    Args:
        title: data set, model, partition and schedule.
        captions: lines above the table.
        heads: one per column, with the metrics of one place side by side.
        rows: best first, reference rows last.
        notes: lines below the table: the meaning of its marks and words.
        setting: all fields of the setting except those in `by`.
        by: the fields whose values make columns.
    """

    title: str
    captions: tuple[str, ...]
    heads: tuple[Head, ...]
    rows: tuple[Row, ...]
    notes: tuple[str, ...]
    setting: Mapping[str, Any]
    by: tuple[str, ...] = BY

    @property
    def metrics(self) -> tuple[Number, ...]:
        """The metrics of the columns, from left to right."""
        return tuple({head.metric.name: head.metric for head in self.heads}.values())

    @property
    def results(self) -> list[tuple[int, Head]]:
        """The columns of chosen configurations, with their positions."""
        columns = enumerate(self.heads)
        return [(column, head) for column, head in columns if not head.at_defaults]

    def results_of(self, metric: Number) -> list[tuple[int, Head]]:
        """The columns of chosen configurations that show a metric, with their positions."""
        return [(column, head) for column, head in self.results if head.metric.name == metric.name]

    @property
    def shows_hyperparameters(self) -> bool:
        """Return whether any row has hyper-parameters to show."""
        return any(row.texts for row in self.rows)

    def places_of(self, columns: Iterable[int]) -> set[int]:
        """Return the positions of the places that columns are of."""
        places = list(dict.fromkeys(head.place for head in self.heads))
        return {places.index(self.heads[column].place) for column in columns}

    def legend(self, best: str, blocks: Sequence[Sequence[int]] = ()) -> list[str]:
        """List the remarks below the table.

        Args:
            best: how a column's best mean is printed.
            blocks: the columns of each part, if the table is printed in parts.
        """
        lines = []
        if any(cell.best for cell in self._cells()):
            lines.append(f"{best} best mean")
        if any(cell.excluded for cell in self._cells()):
            lines.append(f"{EXCLUDED} {WHEN_EXCLUDED}")
        for columns in blocks or [range(len(self.heads))]:
            places = self.places_of(columns)
            if any("|" in row.hyperparameters(places) for row in self.rows):
                lines.append("a|b: the columns' values, in the order of the columns")
                break
        return [*lines, *self.notes]

    def _cells(self) -> Iterator[TableCell]:
        for row in self.rows:
            yield from row.cells


def flat(table: ResultTable) -> Iterator[dict[str, Any]]:
    """Yield every cell of a table as a flat record, for CSV, JSON and further computation.

    Numbers are as stored.
    """
    fields = dict.fromkeys([*_SETTING_FIELDS, *BY, *table.by])
    for row in table.rows:
        for head, cell in zip(table.heads, row.cells, strict=True):
            if head.at_defaults and cell.record is None:
                continue  # it did not run, or is the chosen one
            record: Record = cell.record or {}
            setting = {**table.setting, **dict(zip(table.by, head.place, strict=True))}
            chosen = record.get("chosen")
            yield {
                **{name: setting.get(name) for name in fields},
                "algorithm": row.algorithm,
                "variant": setting["model"] + row.model.removeprefix(base_model(row.model)),
                "hyperparameters": None if chosen is None else canonical_json(chosen),
                "metric": head.metric.name,
                "at_defaults": head.at_defaults,
                "state": cell.state,
                **{part: cell.statistic(part) for part in ("mean", "std", "low", "high")},
                "with_value": record.get(f"{head.metric.name}_count", record.get("n")),
                "rank": cell.rank,
                "excluded": cell.excluded,
                **{name: record.get(name) for name in _RECORD_FIELDS},
            }


@dataclass(frozen=True)
class Sheet:
    """A table whose cells are text.

    `records` are the numbers behind it, as stored: accuracies are fractions.
    """

    table: ResultTable
    records: tuple[Mapping[str, Any], ...]


def sheet(
    title: str,
    captions: Sequence[str],
    headings: Sequence[tuple[str, str]],
    rows: Mapping[str, Sequence[str]],
    notes: Sequence[str],
    records: Sequence[Mapping[str, Any]],
) -> Sheet:
    """Make a table of text.

    Args:
        title: of the table.
        captions: lines below the title.
        headings: (heading, group) of the columns after the algorithm, from left to right; the group
            stands once above neighbours that share it, and is empty for none.
        rows: algorithm -> texts of its cells; an empty text is a missing value.
        notes: lines at the end.
        records: see `Sheet`.
    """
    heads = []
    for name, group in headings:
        heads.append(Head((group,), group, Number(name, name, ANY)))
    lines = []
    for name, texts in rows.items():
        cells = []
        for text, head in zip(texts, heads, strict=True):
            state = "value" if text else "missing"
            cells.append(TableCell(state, head.metric, words=text or STATES["missing"][0]))
        lines.append(Row(name, model="", texts={}, cells=tuple(cells)))
    table = ResultTable(
        title, tuple(captions), tuple(heads), tuple(lines), tuple(notes), setting={}, by=("place",)
    )
    return Sheet(table, tuple(records))


def number_text(value: float | None, metric: Number, sign: bool = False) -> str:
    """Format a stored value with its metric's scale and decimals; None becomes an empty text."""
    if value is None:
        return ""
    decimals = metric.unit.decimals
    shown = round(value * metric.unit.scale, decimals) + 0.0  # no -0
    return f"{shown:+.{decimals}f}" if sign else f"{shown:.{decimals}f}"


def interval_text(interval: Interval | None, metric: Number) -> str:
    """Format the interval of a difference with a space before it; empty if there is none."""
    if interval is None:
        return ""
    low = number_text(interval.low, metric, sign=True)
    high = number_text(interval.high, metric, sign=True)
    return f" [{low}, {high}]"


def limits(interval: Interval | None, prefix: str = "") -> dict[str, float | None]:
    """Return an interval as fields `low` and `high` of a record, both None without an interval."""
    return {
        f"{prefix}low": interval.low if interval else None,
        f"{prefix}high": interval.high if interval else None,
    }

"""The section of the leaderboard: one row per configuration and cell, to sort and to filter."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from bench.report.flags import chips, flags_of
from bench.report.html import Html, join, tag
from bench.report.standings import SHOWN, standings
from bench.report.tuning import text_of
from bench.stored.groups import Cell, Group, hyperparameters, is_reference, label_of
from bench.stored.names import worth_saying
from bench.stored.results import Record
from bench.terminal.words import counted
from leaderboards.metrics import Metric
from leaderboards.problems import differing
from leaderboards.stats.paired import Ranked
from leaderboards.tables import Cell as Shown
from leaderboards.tables import state_of

Places = Mapping[str, Mapping[str, Ranked]]  # metric -> label -> place


def board_section(groups: Sequence[Group]) -> Html:
    """The filters and the table. `groups`: of the page."""
    records = [record for group in groups for cell in group.cells for record in cell.records]
    names = _worth_showing(records)
    rows = [row for group in groups for cell in group.cells for row in _rows(group, cell, names)]
    table = tag(
        "table",
        tag(
            "caption", f"Test accuracy of the global model: mean ± standard deviation (number of seeds){common(groups)}"
        ),
        tag("thead", tag("tr", *_heads(len(groups)))),
        tag("tbody", *rows),
        id="board",
        class_=" ".join(["sortable", *_constant(groups)]),
    )
    scroll = tag("div", table, class_="scroll tall", tabindex=0, role="region", aria_label="Leaderboard")
    return join(_filters(groups, records), scroll, _absent(groups))


def common(groups: Sequence[Group]) -> str:
    """What the columns left out would say in every row."""
    values = {name: {group.setting[name] for group in groups} for name in ("dataset", "model")}
    return "".join(f"; {' / '.join(found)}" for found in values.values() if len(found) == 1)


def _constant(groups: Sequence[Group]) -> Iterator[str]:
    """The classes that hide columns without news."""
    for name in ("dataset", "model"):
        if len({group.setting[name] for group in groups}) == 1:
            yield f"one-{name}"
    records = [record for group in groups for cell in group.cells for record in cell.records]
    if all(record[f"{metric.name}_low"] is None for record in records for metric in SHOWN):
        yield "no-intervals"


def _filters(groups: Sequence[Group], records: Sequence[Record]) -> Html:
    cells = [cell for group in groups for cell in group.cells]
    choices = {
        "data set": ("dataset", [group.setting["dataset"] for group in groups]),
        "model": ("model", [group.setting["model"] for group in groups]),
        "α": ("alpha", [cell.alpha_text for cell in sorted(cells, key=lambda cell: cell.alpha or 0.0)]),
        "participation": ("c", [cell.participation_text for cell in sorted(cells, key=lambda c: c.participation)]),
        "algorithm": ("algorithm", sorted({label_of(record) for record in records})),
    }
    if len(groups) > 1:
        choices["setting"] = ("set", [group.key for group in groups])
    selects = [_select(title, *choice) for title, choice in choices.items() if len(set(choice[1])) > 1]
    search = tag("label", "text", tag("input", type="search", id="find", placeholder="anything in a row"))
    every = tag("label", tag("input", type="checkbox", id="every"), " all configurations", class_="check")
    buttons = tag(
        "span",
        tag("button", "Clear filters", type="button", id="clear"),
        tag("button", "Save as CSV", type="button", id="csv"),
        class_="buttons",
    )
    count = tag("p", role="status", aria_live="polite", id="count", class_="note")
    return join(tag("form", *selects, search, every, buttons, id="filters", class_="filters", hidden=True), count)


def _select(title: str, field: str, values: Iterable[str]) -> Html:
    options = [tag("option", value, value=value) for value in dict.fromkeys(values)]
    return tag("label", title, tag("select", tag("option", "all", value=""), *options, data_field=field))


_COLUMNS = (  # title, what it says, class
    ("rank", "in its cell; shared by what cannot be told apart", "number"),
    ("algorithm", "", ""),
    ("configuration", "hyper-parameters that differ between rows, or from their defaults", ""),
    ("data set", "", "dataset"),
    ("model", "", "model"),
    ("α", "concentration of the Dirichlet partition", "number"),
    ("C", "participation: share of the clients that train in a round", "number"),
    ("accuracy, %", "mean ± standard deviation (seeds)", "number"),
    ("95 % interval", "of the mean, from three seeds on", "number interval"),
)
_BY_METRIC = ("rank", "accuracy, %", "95 % interval")


def _heads(groups: int) -> Iterator[Html]:
    for title, explained, kind in _COLUMNS:
        if title in _BY_METRIC:
            yield from (_head(title, explained, f"{kind} metric {metric.name}") for metric in SHOWN)
        else:
            yield _head(title, explained, kind)
    yield tag("th", "within its cell", scope="col")
    yield _head("flags", "", "")
    yield tag("th", "runs, by seed", scope="col")
    if groups > 1:
        yield _head("setting", "everything else, in full below", "")


def _head(title: str, explained: str, kind: str) -> Html:
    button = tag("button", title, type="button", title=explained or None)
    return tag("th", button, scope="col", class_=kind or None)


def _rows(group: Group, cell: Cell, names: Mapping[str, Sequence[str]]) -> Iterator[Html]:
    places = {metric.name: standings(cell, metric) for metric in SHOWN}
    contests: dict[tuple[str, str], list[Record]] = {}
    for record in cell.records:
        contests.setdefault((record["algorithm"], record["model"]), []).append(record)
    decided = {key for key, found in contests.items() if any(record["selected"] for record in found)}
    listed = sorted(cell.records, key=lambda record: _order(record, places))
    scale = _limits(cell)
    first = True
    for record in listed:
        shown = record["selected"] or (record["algorithm"], record["model"]) not in decided
        yield tag(
            "tr",
            *_cells(group, cell, record, places, names, scale),
            data_dataset=group.setting["dataset"],
            data_model=group.setting["model"],
            data_alpha=cell.alpha_text,
            data_c=cell.participation_text,
            data_algorithm=label_of(record),
            data_set=group.key,
            class_=("first" if first else None) if shown else "other",
        )
        first = first and not shown


def _cells(
    group: Group,
    cell: Cell,
    record: Record,
    places: Places,
    names: Mapping[str, Sequence[str]],
    scale: tuple[float, float],
) -> Iterator[Html]:
    for metric in SHOWN:
        yield _rank(record, places[metric.name], metric)
    yield tag("th", label_of(record), scope="row")
    yield tag("td", tag("code", text_of(record, names[record["algorithm"]]) or "defaults"), title=_choice(record))
    yield tag("td", group.setting["dataset"], class_="dataset")
    yield tag("td", record["model"], class_="model")
    yield tag("td", cell.alpha_text, class_="number", data_v=cell.alpha)
    yield tag("td", cell.participation_text, class_="number", data_v=cell.participation)
    for metric in SHOWN:
        kind = f"number metric {metric.name}"
        yield tag("td", value_text(record, metric), class_=kind, data_v=_stored(record, metric))
    for metric in SHOWN:
        kind = f"number interval metric {metric.name}"
        yield tag("td", interval_text(record, metric), class_=kind, data_v=_width(record, metric))
    yield tag("td", *(_whisker(record, metric, scale) for metric in SHOWN), class_="lies")
    found = flags_of(record)
    yield tag("td", chips(found), data_v=len(found))
    yield tag("td", *(_link(run) for run in record["runs"]), class_="runs")
    yield from [tag("td", tag("a", group.key, href=f"#{group.key}"))] if group.differing else []


def _choice(record: Record) -> str | None:
    """Of a confirmed configuration, how it was chosen, and what of its validation accuracy the test set bears out."""
    if not record.get("chosen_on"):
        return None
    gap = record["validation_gap"]
    less = "" if gap is None else f"; validation minus test accuracy {100 * gap:.2f} points"
    return f"one of {record['configurations']}, chosen on {record['chosen_on']}{less}"


def _rank(record: Record, places: Mapping[str, Ranked], metric: Metric) -> Html:
    place = places.get(label_of(record)) if record["selected"] else None
    attributes = {"class_": f"number metric {metric.name}"}
    if place is None:
        why = "not ranked: a reference to read the others against" if is_reference(record) else "not ranked"
        return tag("td", tag("span", "–", title=why), **attributes)
    shared = sum(one.rank == place.rank for one in places.values()) > 1
    text = f"({place.rank})" if place.untested else f"{'=' * shared}{place.rank}"
    best = place.rank == 1 and not place.untested
    return tag("td", tag("strong", text) if best else text, data_v=place.rank, **attributes)


def value_text(record: Record, metric: Metric) -> str:
    """`71.29 ± 0.31 (3)`, or a word where there is no number, as in tables; of diverged runs with their number."""
    state = state_of(record, metric)
    return Shown(state, metric, record).text() + f" ({record['n']})" * (state == "diverged")


def interval_text(record: Record, metric: Metric) -> str:
    """`70.52 – 72.06`, or a dash."""
    limits = [record[f"{metric.name}_{side}"] for side in ("low", "high")]
    if None in limits or record["diverged"]:
        return "–"
    return " – ".join(f"{limit * metric.scale:.{metric.decimals}f}" for limit in limits)


def _stored(record: Record, metric: Metric) -> float | None:
    mean = None if record["diverged"] else record[f"{metric.name}_mean"]
    return None if mean is None else round(mean, 6)


def _width(record: Record, metric: Metric) -> float | None:
    low, high = (record[f"{metric.name}_{side}"] for side in ("low", "high"))
    return None if low is None or record["diverged"] else round(high - low, 6)


def _limits(cell: Cell) -> tuple[float, float]:
    """What the small pictures of a cell lie between: what its selected configurations reach."""
    values = [
        record[f"{metric.name}_{part}"]
        for record in cell.selected
        for metric in SHOWN
        for part in ("mean", "low", "high")
        if not record["diverged"]
    ]
    known = [value for value in values if value is not None] or [0.0]
    return min(known), max(max(known), min(known) + 1e-9)


def _whisker(record: Record, metric: Metric, scale: tuple[float, float]) -> Html | None:
    """A dot for the mean and a line for the interval, by the page's style sheet."""
    mean, low, high = (record[f"{metric.name}_{part}"] for part in ("mean", "low", "high"))
    if mean is None or record["diverged"]:
        return None
    ends = (mean if limit is None else limit for limit in (low, high))
    shares = [(value - scale[0]) / (scale[1] - scale[0]) for value in (mean, *ends)]
    at = [round(100 * min(1.0, max(0.0, share))) for share in shares]
    style = f"--m:{at[0]};--l:{at[1]};--h:{at[2]}"
    return tag("i", class_=f"whisker metric {metric.name}", style=style, aria_hidden="true")


def _link(run: Mapping[str, object]) -> Html:
    status = "" if run["status"] == "finished" else f", {run['status']}"
    sign = "" if run["status"] == "finished" else "✗"
    where = f"#run-{str(run['run_key'])[:16]}"
    return tag("a", f"{run['seed']}{sign}", href=where, aria_label=f"run of seed {run['seed']}{status}")


def _order(record: Record, places: Places) -> tuple[bool, bool, int, float, str]:
    """Ranked ones first, references last, within a rank by mean."""
    first = SHOWN[0]
    place = places[first.name].get(label_of(record)) if record["selected"] else None
    mean = record[f"{first.name}_mean"]
    return (
        is_reference(record),
        place is None,
        place.rank if place else 0,
        -(mean or 0.0),
        label_of(record),
    )


def _worth_showing(records: Sequence[Record]) -> dict[str, list[str]]:
    """Algorithm -> hyper-parameters that have several values, or one unlike their default."""
    values = [(record["algorithm"], hyperparameters(record)) for record in records]
    several, first = differing(values), dict(reversed(values))
    return {name: [one for one in own if one in worth_saying(name, own, several)] for name, own in first.items()}


def _absent(groups: Sequence[Group]) -> Html | None:
    """Which algorithms were not run in some cells where others were."""
    lines = []
    for group in groups:
        labels = {label_of(record) for cell in group.cells for record in cell.records}
        for cell in group.cells:
            absent = sorted(labels - {label_of(record) for record in cell.records})
            if absent:
                lines.append(tag("li", f"{group.name}, {cell.label}: {', '.join(absent)}"))
    if not lines:
        return None
    return tag(
        "details",
        tag("summary", f"Not run: in {counted(len(lines), 'cell')} some algorithms are missing"),
        tag("ul", *lines),
    )

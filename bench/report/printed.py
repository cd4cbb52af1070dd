"""The section of print: the papers' numbers beside ours, where some cell of a table has runs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby

from bench.compare.published import candidates_of, title_of
from bench.planning.tables import Cell, cells_of
from bench.report.html import Html, join, tag
from bench.stored.results import Results
from leaderboards.papers.replication import Replication, replications
from leaderboards.papers.replication_table import replication_table
from leaderboards.published import printed_cells
from leaderboards.tables import Cell as Shown
from leaderboards.tables import Row, Table

_NOT_RUN = ("missing", "unavailable")


def printed_section(results: Results) -> Html:
    """Every printed table that has a run in some cell. `results`: of the page."""
    tables = list(_candidates(results))
    asked = [[one for cell in cells for one in candidates_of(cell)] for cells in tables]
    found = iter(replications([one for own in asked for one in own], results.source)) if tables else iter(())
    parts = []
    for cells, own in zip(tables, asked, strict=True):
        beside_ours = [next(found) for _ in own]
        if any(one.state not in _NOT_RUN for one in beside_ours):
            parts.append(_table(beside_ours, title_of(cells[0])))
    if not parts:
        return tag("p", "No run here is of a cell that one of the papers prints.")
    return join(*parts)


def _candidates(results: Results) -> Iterator[list[Cell]]:
    """The cells of the printed tables that may have runs, table by table."""
    run = {(one["dataset"], one["algorithm"]) for one in results.runs}
    wanted = {(cell.paper, cell.table) for cell in printed_cells() if (cell.dataset, cell.algorithm) in run}
    for paper, table in dict.fromkeys((cell.paper, cell.table) for cell in printed_cells()):
        if (paper, table) in wanted:
            yield cells_of(paper, table)


def _table(found: Sequence[Replication], title: str) -> Html:
    table = replication_table(found, title)
    head = tag("thead", _places(table), tag("tr", *_columns(table)))
    body = tag("tbody", *(_row(row, table) for row in table.rows))
    return tag(
        "details",
        tag("summary", title),
        tag("ul", *(tag("li", line) for line in table.captions), class_="note"),
        tag("div", tag("table", head, body), class_="scroll tall", tabindex=0, role="region", aria_label=title),
        tag("ul", *(tag("li", line) for line in table.notes), class_="note"),
        open=True,
        class_="printed",
    )


def _places(table: Table) -> Html:
    """The line of places above the columns, each over its three."""
    spans = [(label, len(list(heads))) for label, heads in groupby(table.heads, key=lambda head: head.label)]
    first = tag("td", colspan=1 + table.shows_hyperparameters)
    return tag("tr", first, *(tag("th", label, colspan=width, scope="colgroup") for label, width in spans))


def _columns(table: Table) -> Iterator[Html]:
    yield tag("th", "algorithm", scope="col")
    if table.shows_hyperparameters:
        yield tag("th", "configuration", scope="col")
    yield from (tag("th", head.metric.short, scope="col") for head in table.heads)


def _row(row: Row, table: Table) -> Html:
    configuration = [tag("td", tag("code", row.hyperparameters))] if table.shows_hyperparameters else []
    return tag("tr", tag("th", row.label, scope="row"), *configuration, *(_cell(cell) for cell in row.cells))


def _cell(cell: Shown) -> Html:
    return tag("td", cell.text(), class_="number" if cell.state == "value" else f"number {cell.state}")

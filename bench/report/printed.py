"""The section of print: the papers' numbers beside ours, if some cell of a table has runs."""

from __future__ import annotations

from itertools import groupby
from typing import Any

from bench.compare.published import candidates_of, title_of
from bench.planning.tables import cells_of
from bench.stored.results import Results
from leaderboards.papers.replication import replications
from leaderboards.papers.replication_table import replication_table
from leaderboards.published import printed_cells

_NOT_RUN = ("missing", "unavailable")


def printed_section(results: Results) -> list[dict[str, Any]]:
    """Return every printed table that has a run in some cell, and the `places` above its columns with their widths."""
    run = {(one["dataset"], one["algorithm"]) for one in results.runs}
    wanted = {(cell.paper, cell.table): None for cell in printed_cells() if (cell.dataset, cell.algorithm) in run}
    tables = [cells_of(paper, table) for paper, table in wanted]
    asked = [[one for cell in cells for one in candidates_of(cell)] for cells in tables]
    answers = iter(replications([one for own in asked for one in own], results.source)) if tables else iter(())
    sections = []
    for cells, own in zip(tables, asked, strict=True):
        beside_ours = [next(answers) for _ in own]
        if any(one.state not in _NOT_RUN for one in beside_ours):
            table = replication_table(beside_ours, title_of(cells[0]))
            places = [(label, len(list(heads))) for label, heads in groupby(table.heads, key=lambda head: head.label)]
            sections.append({"title": title_of(cells[0]), "table": table, "places": places})
    return sections

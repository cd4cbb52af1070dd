"""`python -m bench.compare --paper P --table T`: our runs beside what the paper prints."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TextIO

from bench.planning.request import Request
from bench.planning.table_plan import table_cells
from bench.planning.tables import Cell, name_in_print
from bench.terminal.formats import lines
from bench.terminal.render import note_superseded, render
from leaderboards import canonical_json
from leaderboards.papers.replication import Candidate, replications
from leaderboards.papers.replication_table import records, replication_table
from leaderboards.rows.store import Folders
from search_spaces import PAPERS


def print_replication(request: Request, folders: Sequence[Path], style: str, file: TextIO) -> None:
    """Print a paper's table, as the request narrows it, with what result folders have of it, in one of `render.STYLES`.

    Without runs every cell is shown as not run.

    Raises:
        UsageError: there is no such table, or nothing of it left.
        leaderboards.StoreError: a file of the folder is broken, foreign, or of a newer schema.
    """
    cells, _ = table_cells(request)
    candidates, results = [one for cell in cells for one in candidates_of(cell)], Folders(folders)
    runs = results.runs()
    wanted = {(one.algorithm, canonical_json(one.setting)) for one in candidates}
    if len(runs):  # a list without elements would choose columns
        note_superseded(runs[[pair in wanted for pair in zip(runs["algorithm"], runs["setting_json"], strict=True)]])
    rows, title = replications(candidates, results), title_of(cells[0])
    if style == "csv":
        file.write(lines(list(records(rows))))
    elif style == "json":
        document = {"title": title, "cells": list(records(rows))}
        file.write(json.dumps(document, indent=1, ensure_ascii=False) + "\n")
    else:
        render([replication_table(rows, title)], style, file)


def title_of(cell: Cell) -> str:
    """Name a cell's table as in print, and whose it is."""
    paper = PAPERS[cell.printed.paper]
    return f"{name_in_print(cell.printed.table)} · {paper.authors} {paper.year} ({paper.key}) · ours beside printed"


def candidates_of(cell: Cell) -> list[Candidate]:
    """List the configurations that may stand for a printed cell."""
    found = []
    for unit in cell.units:
        setting = unit.setting.as_dict()
        values = setting | dict(unit.hyperparameters)
        label = " ".join(f"{name}={values[name]}" for name in cell.tried)
        hp_json = canonical_json(unit.hyperparameters)
        found.append(Candidate(cell.printed, unit.algorithm, hp_json, setting, label, cell.column, cell.reason))
    return found

"""`python -m bench.compare --paper P --table T`: our runs beside what the paper prints."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

from bench.planning.request import Request
from bench.planning.table_plan import table_cells
from bench.planning.tables import Cell, name_in_print
from bench.planning.unit import Unit
from bench.terminal.formats import lines
from bench.terminal.render import note_superseded, render
from leaderboards import canonical_json
from leaderboards.beside import Asked, Beside, beside
from leaderboards.beside_tables import beside_table, records
from leaderboards.folders import Folders
from search_spaces import PAPERS

if TYPE_CHECKING:
    import pandas as pd


def print_beside(request: Request, folders: Sequence[Path], style: str, file: TextIO) -> None:
    """Print a paper's table with what result folders have of it.

    Args:
        request: `paper`, `table`, and what narrows it.
        folders: where results are; without runs every cell is shown as not run.
        style: one of `bench.terminal.render.STYLES`.
        file: where to.

    Raises:
        UsageError: there is no such table, or nothing of it left.
        leaderboards.StoreError: a file of the folder is broken, foreign, or of a newer schema.
    """
    cells, _ = table_cells(request)
    asked, results = [one for cell in cells for one in questions(cell)], Folders(folders)
    note_superseded(_of_cells(results.runs(), asked))
    found = beside(asked, results)
    title = title_of(cells[0])
    if style in ("csv", "json"):
        file.write(lines(list(records(found))) if style == "csv" else _as_json(found, title))
        return
    render([beside_table(found, title)], style, file)


def _of_cells(runs: pd.DataFrame, asked: Sequence[Asked]) -> pd.DataFrame:
    """The runs of an algorithm in a setting that some cell asks for."""
    wanted = {(one.algorithm, canonical_json(one.setting)) for one in asked}
    asked_for = [pair in wanted for pair in zip(runs["algorithm"], runs["setting_json"], strict=True)]
    return runs[asked_for] if asked_for else runs  # an empty list would choose columns


def title_of(cell: Cell) -> str:
    """The table's name in print, and whose it is."""
    paper = PAPERS[cell.printed.paper]
    return f"{name_in_print(cell.printed.table)} · {paper.authors} {paper.year} ({paper.key}) · ours beside printed"


def questions(cell: Cell) -> list[Asked]:
    """A cell as what is to be looked up: one for each configuration that may stand for it."""
    return [_asked(cell, unit) for unit in cell.units]


def _asked(cell: Cell, unit: Unit) -> Asked:
    values = unit.setting.as_dict() | dict(unit.hyperparameters)
    label = " ".join(f"{name}={values[name]}" for name in cell.tried)
    return Asked(
        printed=cell.printed,
        algorithm=unit.algorithm,
        hp_json=canonical_json(unit.hyperparameters),
        setting=unit.setting.as_dict(),
        label=label,
        column=cell.column,
        reason=cell.reason,
    )


def _as_json(found: list[Beside], title: str) -> str:
    return json.dumps({"title": title, "cells": list(records(found))}, indent=1, ensure_ascii=False) + "\n"

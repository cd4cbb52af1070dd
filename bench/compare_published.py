"""`python -m bench.compare --paper P --table T`: our runs beside what the paper prints."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path
from typing import TextIO

from bench.request import Request
from bench.table_plan import table_cells
from bench.tables import Cell, name_in_print
from bench.unit import Unit
from leaderboards import Store, canonical_json
from leaderboards.beside import Asked, Beside, beside
from leaderboards.beside_tables import beside_table, records
from search_spaces import PAPERS


def print_beside(request: Request, out: Path, style: str, file: TextIO) -> None:
    """Print a paper's table with what a result folder has of it.

    Args:
        request: `paper`, `table`, and what narrows it.
        out: the folder; one without runs shows every cell as not run.
        style: one of `bench.render.STYLES`.
        file: where to.

    Raises:
        UsageError: there is no such table, or nothing of it left.
        leaderboards.StoreError: a file of the folder is broken, foreign, or of a newer schema.
    """
    cells, _ = table_cells(request)
    found = beside([asked for cell in cells for asked in questions(cell)], Store(out))
    title = title_of(cells[0])
    if style in ("csv", "json"):
        file.write(_comma_separated(found) if style == "csv" else _as_json(found, title))
        return
    from bench.render import render

    render([beside_table(found, title)], style, file)


def title_of(cell: Cell) -> str:
    """The table's name in print, and whose it is."""
    paper = PAPERS[cell.printed.paper]
    return f"{name_in_print(cell.printed.table)} · {paper.authors} {paper.year} ({paper.key}) · ours beside printed"


def questions(cell: Cell) -> list[Asked]:
    """A cell as what is to be looked up: one for each configuration that may stand for it."""
    return [_asked(cell, unit) for unit in cell.units]


def _asked(cell: Cell, unit: Unit) -> Asked:
    label = " ".join(f"{name}={unit.hyperparameters[name]}" for name in cell.tried)
    return Asked(
        printed=cell.printed,
        algorithm=unit.algorithm,
        hp_json=canonical_json(unit.hyperparameters),
        setting=unit.setting.as_dict(),
        label=label,
        column=cell.column,
        reason=cell.reason,
    )


def _comma_separated(found: list[Beside]) -> str:
    rows = list(records(found))
    stream = io.StringIO()
    writer = csv.DictWriter(stream, list(rows[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return stream.getvalue()


def _as_json(found: list[Beside], title: str) -> str:
    return json.dumps({"title": title, "cells": list(records(found))}, indent=1, ensure_ascii=False) + "\n"

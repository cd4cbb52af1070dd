"""Printing leaderboards as text; the other formats are in `bench.terminal.formats`."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain, groupby
from typing import TYPE_CHECKING, Any

from algorithms import ALGORITHMS, entry
from bench.terminal.words import FOLDED_WIDTH, counted, folded
from leaderboards.problems import FINETUNED

if TYPE_CHECKING:
    import pandas as pd
    from rich.console import Console
    from rich.table import Table as Grid
    from rich.text import Text

    from leaderboards.tables import ResultTable, Sheet, TableCell

STYLES = ("table", "md", "latex", "csv", "json")
_BEST = "*"  # behind the best mean of a column, in text without styles
PLAIN_WIDTH = 124  # width of text that is not printed on a terminal


def defaults(names: Iterable[str] = ()) -> dict[str, dict[str, Any]]:
    """Return the default hyper-parameters of all rows of registered algorithms, and of `names`.

    Tables need not show them.
    """
    values = {name: entry(name).defaults() for name in (*ALGORITHMS, *names)}
    for algorithm in ALGORITHMS.values():
        for row in algorithm.rows.values():
            values.setdefault(row, algorithm.defaults())
    return values | {name + FINETUNED: own for name, own in values.items()}


def note_superseded(
    runs: pd.DataFrame, tuned: Sequence[str], shown: pd.DataFrame | None = None
) -> None:
    """Report on stderr which runs of other versions a leaderboard leaves out.

    Args:
        runs: of the leaderboard.
        tuned: fields of the setting that the leaderboard has tuned.
        shown: the runs of a sweep's own versions, if the leaderboard shows only these.
    """
    from leaderboards.board import current

    which = "this sweep's"
    if shown is None:
        which = "the one with the most seeds"
        shown = current(runs, tuned)
    algorithms = runs.drop(shown.index)["algorithm"]
    for algorithm, count in algorithms.value_counts(sort=False).items():
        left_out = f"{counted(int(count), 'run')} of another version left out"
        rule = f"of a setting's versions {which} is shown, all stay stored"
        sys.stderr.write(f"{algorithm}: {left_out}: {rule}\n")


def render(tables: Sequence[ResultTable], style: str) -> None:
    """Print `tables` in one of `STYLES`."""
    if style == "table":
        _print_text(tables)
        return
    from bench.terminal.formats import as_json, comma_separated, latex, markdown

    text = {"md": markdown, "latex": latex, "csv": comma_separated, "json": as_json}[style](tables)
    sys.stdout.write(text)


def render_sheets(sheets: Sequence[Sheet], style: str) -> None:
    """Print sheets as `render` prints tables; CSV and JSON contain their records."""
    if style not in ("csv", "json"):
        render([sheet.table for sheet in sheets], style)
        return
    from bench.terminal.formats import lines, sheets_as_json

    if style == "csv":
        sys.stdout.write(lines([*chain.from_iterable(sheet.records for sheet in sheets)]))
    else:
        sys.stdout.write(sheets_as_json(sheets))


def _print_text(tables: Sequence[ResultTable]) -> None:
    """Print with rich: on a terminal with styles, at its width; elsewhere with signs, as text."""
    from rich.console import Console

    console = Console(highlight=False, markup=False, emoji=False)
    if console.is_terminal:
        _print_through(console, tables)
        return
    columns = os.environ.get("COLUMNS", "")
    console.width = int(columns) if columns.isdecimal() and int(columns) else PLAIN_WIDTH
    with console.capture() as captured:
        _print_through(console, tables)
    for line in captured.get().splitlines():
        sys.stdout.write(f"{line.rstrip()}\n")


def _print_through(console: Console, tables: Sequence[ResultTable]) -> None:
    from rich.text import Text

    def say(text: str, style: str = "dim") -> None:
        console.print(Text(text, style))

    width = console.width
    best = "bold" if console.is_terminal else _BEST
    for number, table in enumerate(tables):
        say(f"\n{table.title}" if number else table.title, "bold")
        for line in table.captions:
            say(line)
        blocks = list(_column_chunks(table, console))
        for columns in blocks:
            grid = _grid(table, columns, console)
            # rich would squeeze a grid that is wider than the console; let a narrow terminal wrap
            # lines instead.
            console.width = max(width, _natural_width(grid, console))
            console.print("", grid, sep="\n")
            console.width = width
        below = table.legend(best, blocks)
        if below:
            console.print()
        for line in below:
            say(line)


def _column_chunks(table: ResultTable, console: Console) -> Iterator[list[int]]:
    """Split the columns of a table into chunks that fit the width; no number is ever cut."""

    def fits(columns: list[int]) -> bool:
        return _natural_width(_grid(table, columns, console), console) <= console.width

    chunk: list[int] = []
    places = groupby(range(len(table.heads)), lambda column: table.heads[column].place)
    for block in (list(columns) for _, columns in places):
        for part in [block] if fits(block) else [[column] for column in block]:
            if chunk and not fits(chunk + part):
                yield chunk
                chunk = []
            chunk = chunk + part
    yield chunk


def _natural_width(grid: Grid, console: Console) -> int:
    return console.measure(grid, options=console.options.update(width=sys.maxsize)).maximum


def _grid(table: ResultTable, columns: Sequence[int], console: Console) -> Grid:
    """Make the rich table of some columns, the label of a place above the first of its columns."""
    from rich import box
    from rich.table import Table as Grid
    from rich.text import Text

    grid = Grid(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False, header_style="")
    labels = [table.heads[column].label for column in columns]
    line = "\n" * any(labels)
    tuned = table.shows_hyperparameters
    places = table.places_of(columns)
    grid.add_column(line + "algorithm")
    if tuned:
        grid.add_column(line + "hyper-parameters", max_width=FOLDED_WIDTH, overflow="fold")
    for at, column in enumerate(columns):
        label = labels[at] if at == 0 or labels[at] != labels[at - 1] else ""
        header = Text.assemble((label, "bold"), line, table.heads[column].title)
        grid.add_column(header)
    texts_by_column = []
    for column in columns:
        cells = [row.cells[column] for row in table.rows]
        texts_by_column.append(_aligned(cells, console))
    for row, texts in zip(table.rows, zip(*texts_by_column, strict=True), strict=True):
        names = [row.label]
        if tuned:
            names.append("\n".join(folded(row.hyperparameters(places))))
        grid.add_row(*names, *texts)
    return grid


def _aligned(column: Sequence[TableCell], console: Console) -> list[Text]:
    """Format the cells of a column with aligned decimal points."""
    from rich.text import Text

    # Width of the first word, the number, of the cells that have one.
    width = max(len(_number(cell)) for cell in column)
    state_styles = {"missing": "dim", "failed": "red", "diverged": "red", "stopped": "dim"}
    aligned = []
    for cell in column:
        style = "bold" if cell.best else state_styles.get(cell.state, "")
        sign = _BEST if cell.best and not console.is_terminal else ""
        space = " " * (width - len(_number(cell))) if cell.state == "value" else ""
        aligned.append(Text.assemble(space, (cell.text() + sign, style)))
    return aligned


def _number(cell: TableCell) -> str:
    return cell.text().split()[0] if cell.state == "value" else ""

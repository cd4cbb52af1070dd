"""Tables of a leaderboard as text for the terminal, as Markdown, LaTeX, CSV or JSON."""

from __future__ import annotations

import csv
import io
import json
import os
import sys
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table as Grid
    from rich.text import Text

    from leaderboards.tables import Cell, Table

STYLES = ("table", "md", "latex", "csv", "json")
PLAIN_WIDTH = 120  # columns of text where there is no terminal to ask
_HYPERPARAMETER_WIDTH = 26
_ASCII = {"\N{EN DASH}": "-", "±": "+-", "×": "x", "·": "|", "α": "alpha", "†": "^", "‡": "~", "§": "!", "✓": "<"}
_LATEX = {
    **{character: "\\" + character for character in "&%$#_{}"},
    "\\": r"\textbackslash{}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "|": r"\textbar{}",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    "\N{EN DASH}": "--",
    "±": r"$\pm$",
    "×": r"$\times$",
    "·": r"$\cdot$",
    "α": r"$\alpha$",
    "†": r"$^\dagger$",
    "‡": r"$^\ddagger$",
    "§": r"$^\S$",
    "✓": r"$^\surd$",
}


def print_leaderboard(
    out: Path,
    *,
    where: Mapping[str, Collection[Any]] | None = None,
    metrics: Sequence[str] = ("best", "final"),
    style: str = "table",
    all_configurations: bool = False,
    file: TextIO | None = None,
) -> None:
    """Print the leaderboard of a result folder.

    Args:
        out: the folder.
        where: column of the leaderboard -> values to keep, for instance `{"dataset": ["cifar10"]}`.
        metrics: names or short names, shown side by side.
        style: one of `STYLES`.
        all_configurations: also show configurations that were not selected.
        file: where to; None is standard output.

    Raises:
        KeyError: there is no such metric.
        leaderboards.StoreError: a file of the folder is broken, foreign, or of a newer schema.
    """
    from leaderboards import Store, find_metric
    from leaderboards.boards import leaderboard, matching
    from leaderboards.tables import tables_of

    chosen = [find_metric(name) for name in metrics]
    board = matching(leaderboard(Store(out).runs()), where or {})
    render(tables_of(board, chosen, all_configurations), style, file or sys.stdout)


def render(tables: Sequence[Table], style: str, file: TextIO) -> None:
    """Write `tables` to `file` in one of `STYLES`; characters that its encoding lacks are replaced."""
    if style == "table":
        _terminal(tables, file)
        return
    text = {"md": markdown, "latex": latex, "csv": comma_separated, "json": as_json}[style](tables)
    file.write(_printable(text, file))


def markdown(tables: Sequence[Table]) -> str:
    """Tables as GitHub Markdown, the best of a column in bold, the second underlined."""
    return "\n".join(_markdown(table) for table in tables)


def _markdown(table: Table) -> str:
    tuned = _shows_hyperparameters(table)
    header = ["algorithm", *["hyper-parameters"] * tuned, *(f"{h.label} {h.metric.short}".strip() for h in table.heads)]
    lines = [f"### {table.title}", "", *(f"- {line}" for line in table.captions), ""]
    lines += [_bars(header), _bars(["---"] * (1 + tuned) + ["---:"] * len(table.heads))]
    for row in table.rows:
        code = [f"`{_markdown_text(row.hyperparameters)}`" if row.hyperparameters else ""] * tuned
        cells = [_emphasised(cell, "**{}**", "<u>{}</u>", _markdown_text) for cell in row.cells]
        lines.append(_bars([row.label, *code, *cells]))
    return "\n".join([*lines, "", "; ".join(_legend(table, "**bold** best, <u>underlined</u> second")), ""])


def _bars(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _markdown_text(text: str) -> str:
    return text.replace("|", "\\|")


def latex(tables: Sequence[Table]) -> str:
    """Tables as LaTeX with booktabs, the best of a column in bold, the second underlined."""
    return "\n".join(["% needs \\usepackage{booktabs}", *map(_latex, tables)])


def _latex(table: Table) -> str:
    tuned = _shows_hyperparameters(table)
    caption = f"{table.title}. {table.captions[0]}."
    header = ["algorithm", *["hyper-parameters"] * tuned, *(head.metric.short for head in table.heads)]
    body = [
        [
            _latex_text(row.label),
            *[_latex_text(row.hyperparameters)] * tuned,
            *(_emphasised(cell, r"\textbf{{}}", r"\underline{{}}", _latex_text) for cell in row.cells),
        ]
        for row in table.rows
    ]
    lines = [r"\begin{table}", r"\centering", rf"\caption{{{_latex_text(caption)}}}"]
    lines += [rf"\begin{{tabular}}{{{'l' * (1 + tuned)}{'r' * len(table.heads)}}}", r"\toprule"]
    lines += [*_latex_groups(table, 1 + tuned), " & ".join(header) + r" \\", r"\midrule"]
    lines += [" & ".join(cells) + r" \\" for cells in body]
    below = [*table.captions[1:], "; ".join(_legend(table, "bold best, underlined second"))]
    notes = ". ".join(_latex_text(line) for line in below if line)
    return "\n".join([*lines, r"\bottomrule", r"\end{tabular}", rf"\par\footnotesize {notes}", r"\end{table}", ""])


def _latex_groups(table: Table, before: int) -> list[str]:
    """The line above the heading that spans the columns of each place, and its rules; none for a single place."""
    labels = [(label, len(list(heads))) for label, heads in groupby(head.label for head in table.heads)]
    if not labels[0][0]:
        return []
    cells, rules, first = [""] * before, [], before + 1
    for label, width in labels:
        cells.append(rf"\multicolumn{{{width}}}{{c}}{{{_latex_text(label)}}}")
        rules.append(rf"\cmidrule(lr){{{first}-{first + width - 1}}}")
        first += width
    return [" & ".join(cells) + r" \\", " ".join(rules)]


def _latex_text(text: str) -> str:
    return "".join(_LATEX.get(character, character) for character in text)


def comma_separated(tables: Sequence[Table]) -> str:
    """Every cell of the tables as a line of CSV, numbers as stored (accuracies are fractions)."""
    from leaderboards.tables import flat

    records = [record for table in tables for record in flat(table)]
    stream = io.StringIO()
    writer = csv.DictWriter(stream, list(records[0]) if records else [], lineterminator="\n")
    writer.writeheader()
    writer.writerows(records)
    return stream.getvalue()


def as_json(tables: Sequence[Table]) -> str:
    """The tables as JSON: title, captions, notes, setting, and every cell with its numbers as stored."""
    from leaderboards.tables import flat

    documents = [
        {
            "title": table.title,
            "captions": table.captions,
            "notes": table.notes,
            "setting": table.setting,
            "cells": [
                record | {"hyperparameters": json.loads(record["hyperparameters"] or "null")} for record in flat(table)
            ],
        }
        for table in tables
    ]
    return json.dumps({"tables": documents}, indent=1, ensure_ascii=False) + "\n"


def _terminal(tables: Sequence[Table], file: TextIO) -> None:
    """Print through rich: styles, and the terminal's width; elsewhere plain text, with signs in place of styles."""
    from rich.console import Console

    console = Console(file=file, highlight=False, markup=False, emoji=False)
    if console.is_terminal:
        _print_through(console, tables)
        return
    console.width = int(os.environ.get("COLUMNS", PLAIN_WIDTH))
    with console.capture() as captured:
        _print_through(console, tables)
    file.write("".join(line.rstrip() + "\n" for line in captured.get().splitlines()))


def _print_through(console: Console, tables: Sequence[Table]) -> None:
    from rich.text import Text

    def say(text: str, style: str = "dim") -> None:
        console.print(Text(_printable(text, console.file), style))

    width = console.width
    legend = "bold best, underlined second" if console.is_terminal else "* best, + second"
    for number, table in enumerate(tables):
        say("\n" * bool(number) + table.title, "bold")
        for line in table.captions:
            say(line)
        for columns in _chunks(table, console):
            grid = _grid(table, columns, console)
            # rich would squeeze what is wider than the console; a narrow terminal shall wrap lines instead.
            console.width = max(width, _natural_width(grid, console))
            console.print("", grid, sep="\n", crop=False)
            console.width = width
        say("\n" + "; ".join(_legend(table, legend)))


def _chunks(table: Table, console: Console) -> Iterator[list[int]]:
    """The columns of a table in as many parts as the width asks for; no number is ever cut."""

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
    return console.measure(grid, options=console.options.update(width=10_000)).maximum


def _grid(table: Table, columns: Sequence[int], console: Console) -> Grid:
    """The rich table of some columns, the label of a place above the first of its columns."""
    from rich import box
    from rich.table import Table as Grid
    from rich.text import Text

    grid = Grid(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False, header_style="")
    labels = [_printable(table.heads[column].label, console.file) for column in columns]
    line = "\n" * any(labels)
    tuned = _shows_hyperparameters(table)
    grid.add_column(line + "algorithm", no_wrap=True)
    if tuned:
        grid.add_column(line + "hyper-parameters", max_width=_HYPERPARAMETER_WIDTH, overflow="fold")
    for at, column in enumerate(columns):
        label = labels[at] if at == 0 or labels[at] != labels[at - 1] else ""
        grid.add_column(Text.assemble((label, "bold"), line, table.heads[column].metric.short), no_wrap=True)
    cells = [_aligned([row.cells[column] for row in table.rows], console) for column in columns]
    for row, texts in zip(table.rows, zip(*cells, strict=True), strict=True):
        grid.add_row(row.label, *[row.hyperparameters] * tuned, *texts)
    return grid


def _aligned(column: Sequence[Cell], console: Console) -> list[Text]:
    """The texts of a column, their decimal points under each other."""
    from rich.text import Text

    texts = [_printable(cell.text(), console.file) for cell in column]
    width = max((len(t.split()[0]) for t, cell in zip(texts, column, strict=True) if cell.state == "value"), default=0)
    styles = {"missing": "dim", "failed": "red", "diverged": "red", "stopped": "dim"}
    aligned = []
    for text, cell in zip(texts, column, strict=True):
        style = {"best": "bold", "second": "underline"}.get(cell.emphasis, styles.get(cell.state, ""))
        sign = "" if console.is_terminal else {"best": "*", "second": "+"}.get(cell.emphasis, "")
        space = " " * (width - len(text.split()[0])) if cell.state == "value" else ""
        aligned.append(Text.assemble(space, (text + sign, style)))
    return aligned


def _emphasised(cell: Cell, best: str, second: str, escape: Callable[[str], str]) -> str:
    """The cell's text within the template (`**{}**`) of its emphasis."""
    return {"best": best, "second": second}.get(cell.emphasis, "{}").replace("{}", escape(cell.text()))


def _shows_hyperparameters(table: Table) -> bool:
    return any(row.hyperparameters for row in table.rows)


def _legend(table: Table, emphasis: str) -> list[str]:
    used = any(cell.emphasis for row in table.rows for cell in row.cells)
    return [emphasis] * used + list(table.notes)


def _printable(text: str, file: Any) -> str:
    """`text` with plain characters where the file's encoding lacks the right ones."""
    encoding = getattr(file, "encoding", None) or "utf-8"
    try:
        text.encode(encoding)
    except UnicodeEncodeError:
        text = "".join(_ASCII.get(character, character) for character in text)
        return text.encode(encoding, "replace").decode(encoding)
    return text

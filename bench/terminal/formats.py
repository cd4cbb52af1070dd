"""Tables of a leaderboard as Markdown, LaTeX, CSV or JSON."""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from itertools import chain, groupby
from typing import TYPE_CHECKING, Any

from bench.terminal.words import folded
from leaderboards.tables import flat

if TYPE_CHECKING:
    from leaderboards.tables import ResultTable, Sheet, TableCell

ONE_COLUMN = 3  # columns of values that fit in one column of a two-column page
_MINUS = re.compile(r"(?<![\w.)])-(?=\d)")  # of a number, not a hyphen or a range
_FORMULA = tuple("=+-@\t\r\n")  # characters that a spreadsheet's formula may begin with
_LATEX = {
    **{character: "\\" + character for character in "&%$#_{}"},
    "\\": r"\textbackslash{}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "|": r"\textbar{}",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    "–": "--",
    "\0": "-{}-",  # two hyphens, as of an option
    "±": r"$\pm$",
    "×": r"$\times$",
    "·": r"$\cdot$",
    "α": r"$\alpha$",
    "†": r"$^\dagger$",
    "‡": r"$^\ddagger$",
    "§": r"$^\S$",
    "¶": r"$^\P$",
    "‖": r"$^\|$",
    "°": r"$^\circ$",
    "−": r"$-$",
    "✓": r"$^\surd$",
}


def markdown(tables: Sequence[ResultTable]) -> str:
    """Format tables as GitHub Markdown, the best of a column in bold."""
    return "\n".join(_markdown(table) for table in tables)


def _markdown(table: ResultTable) -> str:
    tuned = table.shows_hyperparameters
    names = ["algorithm", "hyper-parameters"] if tuned else ["algorithm"]
    header = [*names, *(f"{head.label} {head.title}".strip() for head in table.heads)]
    table = replace(table, notes=tuple(map(_markdown_text, table.notes)))
    header = [_markdown_text(text) for text in header]
    captions = [f"- {_markdown_text(line)}" for line in table.captions]
    lines = [f"### {_markdown_text(table.title)}", "", *captions, ""]
    lines += [_bars(header), _bars(["---"] * len(names) + ["---:"] * len(table.heads))]
    for row in table.rows:
        cells = [_markdown_text(row.label)]
        if tuned:
            cells.append(_markdown_code(row.hyperparameters()))
        for cell in row.cells:
            cells.append(_emphasised(cell, "**{}**", _markdown_text))
        lines.append(_bars(cells))
    remarks = [f"- {line}" for line in table.legend("**bold**")]
    return "\n".join([*lines, "", *remarks, ""])


def _bars(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _markdown_text(text: str) -> str:
    """Escape what would end the cell or be HTML, a link or an image, which fetches its address."""
    escaped = text.replace("\\", "\\\\").replace("|", "\\|").replace("](", "]\\(")
    return escaped.replace("<", "&lt;").replace("\n", " ")


def _markdown_code(text: str) -> str:
    """Format text as code, in which HTML is text, unless a backtick ends it."""
    plain = text.replace("`", "'").replace("|", "\\|").replace("\n", " ")
    return f"`{plain}`" if plain else ""


def latex(tables: Sequence[ResultTable]) -> str:
    """Format tables as LaTeX with booktabs, the best of a column in bold.

    A table is shrunk to the available width, a wide one to the width of both columns of a page.
    """
    return "\n".join(["% needs \\usepackage{booktabs,graphicx}", *map(_latex, tables)])


def _latex(table: ResultTable) -> str:
    tuned = table.shows_hyperparameters
    caption = f"{table.title}. {table.captions[0]}."
    names = ["algorithm", "hyper-parameters"] if tuned else ["algorithm"]
    header = [*names, *(_latex_text(head.title) for head in table.heads)]
    kind = "table*" if len(header) > ONE_COLUMN + 1 else "table"
    lines = [rf"\begin{{{kind}}}", r"\centering", rf"\caption{{{_latex_text(caption)}}}"]
    shrunk = r"\resizebox{\ifdim\width>\linewidth\linewidth\else\width\fi}{!}{"
    columns = "l" * len(names) + "r" * len(table.heads)
    lines += [rf"{shrunk}\begin{{tabular}}{{{columns}}}", r"\toprule"]
    lines += [*_latex_groups(table, len(names)), " & ".join(header) + r" \\", r"\midrule"]
    for row in table.rows:
        cells = [_latex_text(row.label)]
        if tuned:
            cells.append(_stacked(folded(row.hyperparameters())))
        for cell in row.cells:
            cells.append(_emphasised(cell, r"\textbf{{}}", _latex_text))
        lines.append(" & ".join(cells) + r" \\")
    below = [*table.captions[1:], *table.legend("bold")]
    notes = r"\par ".join(map(_latex_text, below))
    lines += [
        r"\bottomrule",
        r"\end{tabular}}",
        rf"\par\smallskip\raggedright\footnotesize {notes}",
        rf"\end{{{kind}}}",
        "",
    ]
    return "\n".join(lines)


def _latex_groups(table: ResultTable, name_columns: int) -> list[str]:
    """Format the line above the header that spans each place's columns, and its rules.

    There is none for a single place.
    """
    if not table.heads[0].label:
        return []
    cells = [""] * name_columns
    rules = []
    first = name_columns + 1
    for label, heads in groupby(table.heads, lambda head: head.label):
        width = len(list(heads))
        cells.append(rf"\multicolumn{{{width}}}{{c}}{{{_latex_text(label)}}}")
        rules.append(rf"\cmidrule(lr){{{first}-{first + width - 1}}}")
        first += width
    return [" & ".join(cells) + r" \\", " ".join(rules)]


def _stacked(lines: Sequence[str]) -> str:
    """Stack lines in one cell, because a long line would shrink the whole table."""
    text = r" \\{} ".join(map(_latex_text, lines))  # a line may begin with [
    return text if len(lines) == 1 else rf"\begin{{tabular}}[t]{{@{{}}l@{{}}}}{text}\end{{tabular}}"


def _latex_text(text: str) -> str:
    text = _MINUS.sub("−", text.replace("--", "\0"))
    return "".join(_LATEX.get(character, character) for character in text)


def comma_separated(tables: Sequence[ResultTable]) -> str:
    """Format every cell of the tables as a line of CSV."""
    return lines(cell_records(tables))


def cell_records(tables: Sequence[ResultTable]) -> list[dict[str, Any]]:
    """List every cell of the tables, with the rest of its setting at the end.

    Numbers are as stored; accuracies are fractions.
    """
    records = []
    for table in tables:
        # Where a record and its setting have the same name, the record's place and value stay.
        records += [record | dict(table.setting) | record for record in flat(table)]
    return records


def lines(records: Sequence[Mapping[str, Any]]) -> str:
    """Format records as lines of CSV under the names of all their fields.

    Text that a spreadsheet would take for a formula begins with an apostrophe.
    """
    stream = io.StringIO()
    names = dict.fromkeys(chain.from_iterable(records))
    writer = csv.writer(stream, lineterminator="\n")
    writer.writerow(map(_csv_cell, names))
    for record in records:
        writer.writerow([_csv_cell(record.get(name, "")) for name in names])
    return stream.getvalue()


def _csv_cell(value: Any) -> Any:
    if not isinstance(value, str) or not value.startswith(_FORMULA):
        return value
    try:
        float(value)
    except ValueError:
        return f"'{value}"
    return value


def sheets_as_json(sheets: Sequence[Sheet]) -> str:
    """Format sheets as JSON: title, captions, notes, and their records with numbers as stored."""
    return _json([_document(sheet.table, list(sheet.records)) for sheet in sheets])


def as_json(tables: Sequence[ResultTable]) -> str:
    """Format tables as JSON: title, captions, notes, setting, and every cell.

    Numbers are as stored.
    """
    documents = []
    for table in tables:
        cells = []
        for record in flat(table):
            hyperparameters = json.loads(record["hyperparameters"] or "null")
            cells.append(record | {"hyperparameters": hyperparameters})
        documents.append(_document(table, cells, setting=table.setting))
    return _json(documents)


def _document(table: ResultTable, cells: Sequence[Any], **more: Any) -> dict[str, Any]:
    return {
        "title": table.title,
        "captions": table.captions,
        "notes": table.notes,
        **more,
        "cells": cells,
    }


def _json(documents: Sequence[Any]) -> str:
    return json.dumps({"tables": documents}, indent=1, ensure_ascii=False) + "\n"


def _emphasised(cell: TableCell, best: str, escape: Callable[[str], str]) -> str:
    """Escape the cell's text; that of the best goes into the template `best`, such as `**{}**`."""
    text = escape(cell.text())
    return best.replace("{}", text) if cell.best else text

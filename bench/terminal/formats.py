"""Tables of a leaderboard as Markdown, LaTeX, CSV or JSON."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from itertools import groupby
from typing import TYPE_CHECKING, Any

from bench.terminal.words import folded
from leaderboards.tables import flat

if TYPE_CHECKING:
    from leaderboards.tables import Cell, Sheet, Table

ONE_COLUMN = 3  # columns of values that fit in one column of a two-column page
_FORMULA = (
    "=",
    "+",
    "-",
    "@",
    "\t",
    "\r",
    "\n",
)  # characters that a spreadsheet's formula may begin with
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
    "✓": r"$^\surd$",
}


def markdown(tables: Sequence[Table]) -> str:
    """Format tables as GitHub Markdown, the best of a column in bold."""
    return "\n".join(_markdown(table) for table in tables)


def _markdown(table: Table) -> str:
    tuned = table.shows_hyperparameters
    header = [
        "algorithm",
        *["hyper-parameters"] * tuned,
        *(f"{h.label} {h.title}".strip() for h in table.heads),
    ]
    table = replace(table, notes=tuple(map(_markdown_text, table.notes)))
    header = [_markdown_text(text) for text in header]
    captions = [f"- {_markdown_text(line)}" for line in table.captions]
    lines = [f"### {_markdown_text(table.title)}", "", *captions, ""]
    lines += [_bars(header), _bars(["---"] * (1 + tuned) + ["---:"] * len(table.heads))]
    for row in table.rows:
        code = [_markdown_code(row.hyperparameters)] * tuned
        cells = [_emphasised(cell, "**{}**", _markdown_text) for cell in row.cells]
        lines.append(_bars([_markdown_text(row.label), *code, *cells]))
    remarks = [f"- {line}" for line in table.legend("**bold**")]
    return "\n".join([*lines, "", *remarks, ""])


def _bars(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _markdown_text(text: str) -> str:
    return text.replace("|", "\\|").replace("<", "&lt;").replace("\n", " ")


def _markdown_code(text: str) -> str:
    """Format text as code, in which HTML is text, unless a backtick ends it."""
    plain = text.replace("`", "'").replace("|", "\\|").replace("\n", " ")
    return f"`{plain}`" if plain else ""


def latex(tables: Sequence[Table]) -> str:
    """Format tables as LaTeX with booktabs, the best of a column in bold.

    A table is shrunk to the available width, a wide one to the width of both columns of a page.
    """
    return "\n".join(["% needs \\usepackage{booktabs,graphicx}", *map(_latex, tables)])


def _latex(table: Table) -> str:
    tuned = table.shows_hyperparameters
    caption = f"{table.title}. {table.captions[0]}."
    header = [
        "algorithm",
        *["hyper-parameters"] * tuned,
        *(_latex_text(head.title) for head in table.heads),
    ]
    body = [
        [
            _latex_text(row.label),
            *[_stacked(folded(row.hyperparameters))] * tuned,
            *(_emphasised(cell, r"\textbf{{}}", _latex_text) for cell in row.cells),
        ]
        for row in table.rows
    ]
    kind = "table*" if len(table.heads) + tuned > ONE_COLUMN else "table"
    lines = [rf"\begin{{{kind}}}", r"\centering", rf"\caption{{{_latex_text(caption)}}}"]
    shrunk = r"\resizebox{\ifdim\width>\linewidth\linewidth\else\width\fi}{!}{"
    lines += [
        rf"{shrunk}\begin{{tabular}}{{{'l' * (1 + tuned)}{'r' * len(table.heads)}}}",
        r"\toprule",
    ]
    lines += [*_latex_groups(table, 1 + tuned), " & ".join(header) + r" \\", r"\midrule"]
    lines += [" & ".join(cells) + r" \\" for cells in body]
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


def _latex_groups(table: Table, name_columns: int) -> list[str]:
    """Format the line above the header that spans each place's columns, and its rules; none for a single place."""
    labels = [
        (label, len(list(heads))) for label, heads in groupby(head.label for head in table.heads)
    ]
    if not labels[0][0]:
        return []
    cells, rules, first = [""] * name_columns, [], name_columns + 1
    for label, width in labels:
        cells.append(rf"\multicolumn{{{width}}}{{c}}{{{_latex_text(label)}}}")
        rules.append(rf"\cmidrule(lr){{{first}-{first + width - 1}}}")
        first += width
    return [" & ".join(cells) + r" \\", " ".join(rules)]


def _stacked(lines: Sequence[str]) -> str:
    """Stack lines in one cell, because a long line would shrink the whole table."""
    text = r" \\ ".join(map(_latex_text, lines))
    return text if len(lines) == 1 else rf"\begin{{tabular}}[t]{{@{{}}l@{{}}}}{text}\end{{tabular}}"


def _latex_text(text: str) -> str:
    return "".join(_LATEX.get(character, character) for character in text.replace("--", "\0"))


def comma_separated(tables: Sequence[Table]) -> str:
    """Format every cell of the tables as a line of CSV, numbers as stored, with the rest of its setting at the end.

    Accuracies are fractions.
    """
    cells = [(table.setting, record) for table in tables for record in flat(table)]
    return lines(
        [
            record | {name: setting[name] for name in setting if name not in record}
            for setting, record in cells
        ]
    )


def lines(records: Sequence[Mapping[str, Any]]) -> str:
    """Format records as lines of CSV under the names of all their fields.

    Text that a spreadsheet would take for a formula begins with an apostrophe.
    """
    stream = io.StringIO()
    names = dict.fromkeys(name for record in records for name in record)
    writer = csv.writer(stream, lineterminator="\n")
    writer.writerow(map(_csv_cell, names))
    writer.writerows([_csv_cell(record.get(name, "")) for name in names] for record in records)
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


def as_json(tables: Sequence[Table]) -> str:
    """Format tables as JSON: title, captions, notes, setting, and every cell with its numbers as stored."""
    documents = []
    for table in tables:
        cells = [
            record | {"hyperparameters": json.loads(record["hyperparameters"] or "null")}
            for record in flat(table)
        ]
        documents.append(_document(table, cells, setting=table.setting))
    return _json(documents)


def _document(table: Table, cells: Sequence[Any], **more: Any) -> dict[str, Any]:
    return {
        "title": table.title,
        "captions": table.captions,
        "notes": table.notes,
        **more,
        "cells": cells,
    }


def _json(documents: Sequence[Any]) -> str:
    return json.dumps({"tables": documents}, indent=1, ensure_ascii=False) + "\n"


def _emphasised(cell: Cell, best: str, escape: Callable[[str], str]) -> str:
    """Escape the cell's text; that of the best goes into the template `best`, such as `**{}**`."""
    text = escape(cell.text())
    return best.replace("{}", text) if cell.best else text

"""Tables as text, Markdown, LaTeX, CSV and JSON: each in whole."""

from __future__ import annotations

import csv
import io
import json
import sys
from dataclasses import replace
from typing import Any

import pandas as pd
import pytest
from rich.console import Console
from rows import make_row

from bench.terminal import formats, render
from bench.terminal.formats import as_json, cell_records, latex, lines, markdown, sheets_as_json
from bench.terminal.render import note_superseded, render_sheets
from leaderboards.numbers import NUMBERS
from leaderboards.tables import Head, ResultTable, Row, Sheet, TableCell

BEST = NUMBERS["best_accuracy"]
BY_COLUMN = "the columns' values, in the order of the columns"


def cell(words: str, best: bool = False, state: str = "value") -> TableCell:
    return TableCell(state, BEST, words=words, best=best)


def row(name: str, texts: dict[str, tuple[str, ...]], *cells: TableCell) -> Row:
    return Row(name, "mlp", texts, cells)


HEADS = tuple(Head((("alpha", at),), f"α = {at}", BEST) for at in (0.1, 1))
TUNED = ResultTable(
    "digits | mlp",
    ("seeds 0 to 2", "C = 0.5"),
    HEADS,
    (
        row("fedavg", {}, cell("9.5 ± 0.5"), cell("-80.00", best=True)),
        row(
            "fedprox",
            {"mu": ("0.1", "0.1"), "kind": ("a", "b")},
            cell("71.25", best=True),
            cell("failed", False, "failed"),
        ),
    ),
    ("a < b",),
    {"dataset": "digits"},
)
PLAIN = replace(
    TUNED,
    heads=(Head((), "", BEST),),
    rows=(row("fedavg", {}, cell("9.5")), row("local", {}, cell("not run", False, "missing"))),
    captions=("seeds 0 to 2",),
    notes=(),
)


def test_markdown_has_bars_and_remarks() -> None:
    title = BEST.short
    assert markdown([TUNED, PLAIN]) == "\n".join(
        [
            "### digits \\| mlp",
            "",
            "- seeds 0 to 2",
            "- C = 0.5",
            "",
            f"| algorithm | hyper-parameters | α = 0.1 {title} | α = 1 {title} |",
            "| --- | --- | ---: | ---: |",
            "| fedavg |  | 9.5 ± 0.5 | **-80.00** |",
            "| fedprox | `mu=0.1 kind=a\\|b` | **71.25** | failed |",
            "",
            "- **bold** best mean",
            f"- a|b: {BY_COLUMN}",
            "- a &lt; b",
            "",
            "### digits \\| mlp",
            "",
            "- seeds 0 to 2",
            "",
            f"| algorithm | {title} |",
            "| --- | ---: |",
            "| fedavg | 9.5 |",
            "| local | not run |",
            "",
            "",
        ]
    )


SHRUNK = r"\resizebox{\ifdim\width>\linewidth\linewidth\else\width\fi}{!}{"


def test_latex_groups_columns_by_place() -> None:
    title = BEST.short
    groups = r"\multicolumn{1}{c}{$\alpha$ = 0.1} & \multicolumn{1}{c}{$\alpha$ = 1} \\"
    joined = rf"a\textbar{{}}b: {BY_COLUMN}\par a \textless{{}} b"
    below = [rf"C = 0.5\par bold best mean\par {joined}"]
    assert latex([TUNED]).split("\n") == [
        r"% needs \usepackage{booktabs,graphicx}",
        r"\begin{table}",
        r"\centering",
        r"\caption{digits \textbar{} mlp. seeds 0 to 2.}",
        rf"{SHRUNK}\begin{{tabular}}{{llrr}}",
        r"\toprule",
        f" &  & {groups}",
        r"\cmidrule(lr){3-3} \cmidrule(lr){4-4}",
        rf"algorithm & hyper-parameters & {title} & {title} \\",
        r"\midrule",
        r"fedavg &  & 9.5 $\pm$ 0.5 & \textbf{$-$80.00} \\",
        r"fedprox & mu=0.1 kind=a\textbar{}b & \textbf{71.25} & failed \\",
        r"\bottomrule",
        r"\end{tabular}}",
        rf"\par\smallskip\raggedright\footnotesize {below[0]}",
        r"\end{table}",
        "",
    ]


def test_latex_of_one_place_has_no_groups() -> None:
    text = latex([PLAIN])
    assert "multicolumn" not in text
    assert rf"\begin{{tabular}}{{lr}}{chr(10)}\toprule{chr(10)}algorithm & " in text
    assert r"\footnotesize " + "\n" in text


@pytest.mark.parametrize(("columns", "kind"), [(3, "table"), (4, "table*")])
def test_wide_tables_take_both_columns(columns: int, kind: str) -> None:
    heads = tuple(Head((), "", BEST) for _ in range(columns))
    wide = replace(PLAIN, heads=heads, rows=())
    assert rf"\begin{{{kind}}}" in latex([wide])
    assert rf"\end{{{kind}}}" in latex([wide])


def test_a_place_spans_its_columns() -> None:
    heads = (HEADS[0], replace(HEADS[0], at_defaults=True), HEADS[1])
    groups = formats._latex_groups(replace(PLAIN, heads=heads), 1)
    assert groups == [
        r" & \multicolumn{2}{c}{$\alpha$ = 0.1} & \multicolumn{1}{c}{$\alpha$ = 1} \\",
        r"\cmidrule(lr){2-3} \cmidrule(lr){4-4}",
    ]


def test_long_hyperparameters_are_stacked() -> None:
    assert formats._stacked(["a_b=1"]) == r"a\_b=1"
    stacked = r"\begin{tabular}[t]{@{}l@{}}a=1 \\{} [b=2\end{tabular}"
    assert formats._stacked(["a=1", "[b=2"]) == stacked


@pytest.mark.parametrize(
    ("text", "written"),
    [
        ("-1 to 2-3", "$-$1 to 2-3"),
        ("a-1 (-2) .-3", "a-1 ($-$2) .-3"),
        ("--set x", "-{}-set x"),
        ("50 % ± 1 × 2", r"50 \% $\pm$ 1 $\times$ 2"),
    ],
)
def test_signs_are_written_for_latex(text: str, written: str) -> None:
    assert formats._latex_text(text) == written


def test_code_in_markdown_has_no_backtick() -> None:
    assert formats._markdown_code("a`b|c\nd") == "`a'b\\|c d`"
    assert formats._markdown_code("") == ""
    assert formats._markdown_text("a|b<c\nd") == "a\\|b&lt;c d"
    assert formats._markdown_text("![x](http://y)") == r"![x]\(http://y)"
    assert formats._markdown_text(r"a\|b") == r"a\\\|b"


# CSV and JSON


def test_fields_of_all_records_are_columns() -> None:
    records = [{"a": 1, "b": "=1+2"}, {"c": "-3", "a": "@x"}]
    assert lines(records) == "a,b,c\n1,'=1+2,\n'@x,,-3\n"
    rows = [{"=x": "+1e5", "b": "-inf", "c": "\tx", "d": "plain"}]
    assert lines(rows) == "'=x,b,c,d\n+1e5,-inf,'\tx,plain\n"


def full_record(**fields: Any) -> dict[str, Any]:
    """A record of a leaderboard with what every cell tells."""
    names = ("n", "selected", "selected_on", "configurations", "configurations_diverged")
    more = ("chosen_on", "validation_gap", "failed", "stopped", "shortened", "uncertified")
    last = ("cell", "platforms", "platforms_mixed", "data_mixed", "hp_json", "model")
    record: dict[str, Any] = dict.fromkeys((*names, *more, *last))
    numbers = {f"best_accuracy_{part}": None for part in ("mean", "std", "low", "high", "rank")}
    return record | numbers | {"chosen": {"mu": 0.1}, "model": "mlp"} | fields


@pytest.fixture
def counted() -> ResultTable:
    """A table of one number, whose setting has a field of the record's name."""
    known = TableCell("value", BEST, full_record(best_accuracy_mean=0.5, n=2), best=True)
    head = Head((), "", BEST)
    setting = {"dataset": "digits", "lr": 0.1, "model": "mlp", "n": 99}
    rows = (row("fedprox", {"mu": ("0.1",)}, known),)
    return replace(PLAIN, heads=(head,), rows=rows, setting=setting, notes=("a note",), by=())


def test_a_record_goes_over_its_setting(counted: ResultTable) -> None:
    (record,) = cell_records([counted])
    assert (record["model"], record["lr"], record["n"]) == ("mlp", 0.1, 2)
    assert list(record)[-1] == "lr"
    (parsed,) = csv.DictReader(io.StringIO(formats.comma_separated([counted])))
    assert (parsed["lr"], parsed["mean"], parsed["std"]) == ("0.1", "0.5", "")


def test_json_has_every_cell(counted: ResultTable) -> None:
    text = as_json([counted, counted])
    assert text.startswith('{\n "tables": [\n  {\n   "title": "digits | mlp"')
    assert text.endswith("}\n")
    first, second = json.loads(text)["tables"]
    assert first == second
    assert list(first) == ["title", "captions", "notes", "setting", "cells"]
    assert (first["notes"], first["captions"]) == (["a note"], ["seeds 0 to 2"])
    assert first["cells"][0]["hyperparameters"] == {"mu": 0.1}
    assert "α" in as_json([replace(counted, title="α")])


SHEET = Sheet(PLAIN, ({"a": 1}, {"b": 2}))


@pytest.mark.parametrize(
    ("style", "text"),
    [
        ("csv", "a,b\n1,\n,2\n1,\n,2\n"),
        ("json", sheets_as_json([SHEET, SHEET])),
        ("md", markdown([PLAIN, PLAIN])),
        ("latex", latex([PLAIN, PLAIN])),
    ],
)
def test_sheets_have_records_or_tables(
    style: str, text: str, capsys: pytest.CaptureFixture[str]
) -> None:
    render_sheets([SHEET, SHEET], style)
    assert capsys.readouterr().out == text
    document = json.loads(sheets_as_json([SHEET]))["tables"][0]
    assert document["cells"] == [{"a": 1}, {"b": 2}]
    assert "setting" not in document


# Text


def printed(capsys: pytest.CaptureFixture[str], *tables: ResultTable) -> list[str]:
    """The lines of tables in print."""
    render.render(tables, "table")
    return capsys.readouterr().out.split("\n")


def test_text_has_signs_and_aligned_points(capsys: pytest.CaptureFixture[str]) -> None:
    assert printed(capsys, TUNED, PLAIN) == [
        "digits | mlp",
        "seeds 0 to 2",
        "C = 0.5",
        "",
        "                               α = 0.1       α = 1",
        "algorithm   hyper-parameters   best          best",
        "────────────────────────────────────────────────────",
        "fedavg                           9.5 ± 0.5   -80.00*",
        "fedprox     mu=0.1 kind=a|b    71.25*        failed",
        "",
        "* best mean",
        f"a|b: {BY_COLUMN}",
        "a < b",
        "",
        "digits | mlp",
        "seeds 0 to 2",
        "",
        "algorithm   best",
        "───────────────────",
        "fedavg      9.5",
        "local       not run",
        "",
    ]


def test_a_wide_table_is_split_by_place(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """At the width at which both places fit, and one character below it."""
    width = next(len(line) for line in printed(capsys, TUNED) if "─" in line)
    for columns, times in ((width, 1), (width - 1, 2)):
        monkeypatch.setenv("COLUMNS", str(columns))
        lines = printed(capsys, TUNED)
        assert sum("algorithm" in line for line in lines) == times
        assert max(map(len, lines)) <= columns


def test_parts_show_values_of_their_own_columns(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    texts = {"mu": ("0.1", "0.1"), "kind": ("a", "b"), "late": ("–", "5")}
    fedprox = row("fedprox", texts, cell("71.25"), cell("failed", False, "failed"))
    monkeypatch.setenv("COLUMNS", "48")
    assert printed(capsys, replace(TUNED, rows=(fedprox,)))[3:] == [
        "",
        "                               α = 0.1",
        "algorithm   hyper-parameters   best",
        "─" * 38,
        "fedprox     mu=0.1 kind=a      71.25",
        "",
        "                                   α = 1",
        "algorithm   hyper-parameters       best",
        "─" * 41,
        "fedprox     mu=0.1 kind=b late=5   failed",
        "",
        "a < b",
        "",
    ]


@pytest.mark.parametrize(("columns", "width"), [("", 124), ("0", 124), ("x", 124), ("90", 90)])
def test_text_is_as_wide_as_asked(
    columns: str, width: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    widths: list[int] = []
    monkeypatch.setenv("COLUMNS", columns)

    def note(console: Console, tables: Any) -> None:
        widths.append(console.width)

    monkeypatch.setattr(render, "_print_through", note)
    render.render([PLAIN], "table")
    assert widths == [width]


def test_a_terminal_has_styles_not_signs(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True, raising=False)
    monkeypatch.setenv("COLUMNS", "100")
    render.render([TUNED], "table")
    text = capsys.readouterr().out
    assert "\x1b[1m71.25\x1b[0m" in text
    assert "\x1b[31mfailed\x1b[0m" in text
    assert "\x1b[1mdigits | mlp\x1b[0m" in text
    assert "71.25*" not in text
    assert "bold best mean" in text


# Other versions


def test_other_versions_are_noted(capsys: pytest.CaptureFixture[str]) -> None:
    rows = [make_row("fedprox", {"mu": 0.1}, seed=seed, version=1) for seed in range(3)]
    rows += [make_row("fedprox", {"mu": 0.1}, seed=seed, version=2) for seed in range(2)]
    runs = pd.DataFrame(rows)
    rule = "of a setting's versions {} is shown, all stay stored"
    note_superseded(runs, [])
    most = rule.format("the one with the most seeds")
    assert capsys.readouterr().err == f"fedprox: 2 runs of another version left out: {most}\n"
    note_superseded(runs, [], runs[runs["algorithm_version"] == 2].iloc[:1])
    own = rule.format("this sweep's")
    assert capsys.readouterr().err == f"fedprox: 4 runs of another version left out: {own}\n"
    note_superseded(runs[:1], [])
    assert capsys.readouterr().err == ""

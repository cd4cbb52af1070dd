"""`python -m bench.compare`: leaderboard tables of result folders.

They are for the terminal, or Markdown, LaTeX, CSV and JSON. Tables go to standard output,
everything else to standard error. Exit status: 0; 2 if the request is wrong or there is nothing to
show; 3 if a file cannot be read.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from dataclasses import replace
from itertools import chain
from pathlib import Path
from textwrap import fill
from typing import TYPE_CHECKING, Any

from bench.compare.boards import result_options, runs_named, with_board
from bench.compare.choice import note_untuned, selection, selection_options
from bench.compare.filters import filter_options, filtered, filters, layout, stated
from bench.errors import UsageError
from bench.terminal.console import Parser, exit_status, say
from bench.terminal.paths import folders_of
from bench.terminal.render import STYLES, defaults, note_superseded, render, render_sheets
from bench.terminal.values import nonempty_text, split_list
from bench.terminal.words import counted, flag
from leaderboards.numbers import FORMS, METRICS, NUMBERS, Number, number_named, unknown_metrics
from leaderboards.selection import SHOWN, SHOWN_ON_CLIENTS, Selection, shown_of
from leaderboards.shell_text import shell_command
from search_spaces.bounds import nearest

if TYPE_CHECKING:
    import pandas as pd

    from leaderboards.rows.store import Folders
    from leaderboards.tables import ResultTable, Sheet

_EPILOG = """\
examples:
  python -m bench.compare                                       every table of ./leaderboards
  python -m bench.compare --dataset cifar10 --alpha 0.1 0.5     some of it
  python -m bench.compare --metric final rounds@70 up@70        the cost of 70 % test accuracy
  python -m bench.compare --metric loss@30 val_accuracy@last    any metric of the curves
  python -m bench.compare --select-on clients                   by accuracy on clients' own tests
  python -m bench.compare --by local_epochs --where alpha=0.1   other fields side by side
  python -m bench.compare --reference fedavg                    tested differences by seed
  python -m bench.compare --reference best                      distances from each column's best
  python -m bench.compare --over-cells --out HERE THERE         two folders, pooled over all cells
  python -m bench.compare --confirmed --tuned lr                chosen on seed 0, other seeds shown
  python -m bench.compare --format csv > results.csv            numbers as stored, fractions
  python -m bench.compare --paper fedgkd --table 3              ours beside what a paper prints
  python -m bench.compare diff 3fa1 90bc                        all in which two runs differ

{numbers}
read off curves:
{forms}
"""


_DEFAULTS = f"{' '.join(SHOWN)}; {' '.join(SHOWN_ON_CLIENTS)} where runs are selected on clients"
_NOT_BESIDE_PRINT = (  # options that a paper's table does not read
    *("board", "where", "metric", "by", "intervals"),
    *("reference", "over_cells", "tuned", "confirmed", "select_on", "all_configurations"),
)


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command and return its exit status.

    `argv`: arguments, None for those of the process.
    """
    argv = list(sys.argv[1:] if argv is None else argv)
    if argv[:1] == ["diff"]:
        from bench.compare.diff import main as diff

        return diff(argv[1:])
    parser = make_parser()
    arguments = parser.parse_args(argv)
    return exit_status(lambda: _compare(with_board(parser, arguments, argv)))


def make_parser() -> Parser:
    """Build the parser of the command."""
    names = " ".join(number.short for number in NUMBERS.values())
    numbers = fill(f"numbers: {names}", 100, subsequent_indent="  ")
    forms = "\n".join(f"  {form}" for form in FORMS)
    parser = Parser(
        prog="python -m bench.compare",
        description="Print the leaderboard of result folders. There is one table per data set, "
        "model and setting,\nwith algorithms against alpha and participation. A cell is the mean ± "
        "std over seeds of an\nalgorithm's selected configuration.",
        epilog=_EPILOG.format(numbers=numbers, forms=forms),
    )
    filter_options(result_options(parser))
    add = parser.add_argument_group("what is shown").add_argument
    add("--metric", nargs="+", metavar="NAME", help=f"columns (default: {_DEFAULTS})")
    add(
        "--by",
        nargs="+",
        metavar="FIELD",
        help="fields side by side (default: alpha participation)",
    )
    add("--intervals", action="store_true", help="95 %% intervals instead of standard deviations")
    add(
        "--reference",
        type=nonempty_text,
        metavar="ALGO",
        help="add differences from this algorithm, by seed; `best` is the best of each column",
    )
    add(
        "--over-cells",
        action="store_true",
        help="add ranks, wins and normalised scores over all cells; with --reference, differences",
    )
    only = "default: table; with --reference or --over-cells, csv and json hold these alone"
    add("--format", choices=STYLES, default="table", help=only)
    add("--paper", metavar="NAME", help="with --table: a paper's table, ours beside printed")
    add("--table", metavar="T", help="of --paper, as printed (3, IV)")
    add(
        "--all-configurations",
        action="store_true",
        help="also show configurations that were not selected on validation",
    )
    selection_options(parser)
    return parser


def _compare(arguments: argparse.Namespace) -> None:
    tables, sheets = compared(arguments)
    if tables and (not sheets or arguments.format in ("table", "md", "latex")):
        render(tables, arguments.format)
    if sheets:
        if tables and arguments.format == "table":
            sys.stdout.write("\n")
        render_sheets(sheets, arguments.format)


def compared(arguments: argparse.Namespace) -> tuple[list[ResultTable], list[Sheet]]:
    """Make the tables that the arguments ask for, and the sheets beside them.

    Raises:
        UsageError: the request is wrong, or there is nothing to show.
        leaderboards.StoreError: a file cannot be read.
    """
    from leaderboards.board import leaderboard, with_seeds
    from leaderboards.problems import BY
    from leaderboards.rows.frames import records
    from leaderboards.tables import tables_of

    folders = folders_of(arguments.out)
    if arguments.paper or arguments.table:
        return [], [_paper_sheet(arguments, folders)]
    named = arguments.metric or arguments.board_metrics
    metrics = _metrics(named) if named else []
    by = layout(arguments.by) or BY
    selected = selection(arguments)
    tuned = selected.tuned
    where = filters(arguments)
    conflicts = sorted(set(by) & set(tuned))
    if conflicts:
        raise UsageError(
            f"{conflicts[0]} cannot be laid out by and selected over: "
            "leave it out of --by, or of --tuned"
        )
    source, runs = _runs(folders, selected)
    runs = filtered(runs, where, runs_named(folders, selected))
    note_superseded(runs, tuned)
    note_untuned(runs, (*tuned, *by))
    metrics = metrics or _metrics(shown_of(runs))
    extra = [metric for metric in metrics if metric.name not in NUMBERS]
    runs = _with_numbers(runs, extra, source)
    _check_measured(runs, metrics)
    board = leaderboard(runs, extra, tuned, selected.chosen_by)
    board = with_seeds(board, runs, metrics, tuned).assign(chosen_by=selected.chosen_by)
    tables = tables_of(
        records(stated(board, (*by, *tuned))),
        metrics,
        arguments.all_configurations,
        defaults(),
        by,
        arguments.intervals,
        tuned,
    )
    return tables, _sheets(arguments, tables, metrics)


def _sheets(
    arguments: argparse.Namespace, tables: Sequence[ResultTable], metrics: Sequence[Number]
) -> list[Sheet]:
    """List the further tables requested; raises UsageError if nothing can be compared or pooled."""
    from leaderboards.tables.over_cells import over_cells, pooled_against
    from leaderboards.tables.sheets import BEST, against, against_best

    reference = arguments.reference
    sheets: list[Sheet] = []
    is_csv = arguments.format == "csv"  # which has one kind of record
    if reference and not (arguments.over_cells and is_csv):
        for table in tables:
            compared = against_best(table) if reference == BEST else against(table, reference)
            if compared is not None:
                sheets.append(compared)
        if not sheets:
            raise UsageError(_nothing_to_compare(tables, reference))
    if not arguments.over_cells:
        return sheets
    if reference == BEST:
        reference = None  # it may be another algorithm in each cell
    if reference:
        sheets += filter(None, [pooled_against(tables, metric, reference) for metric in metrics])
    sheets += filter(None, [over_cells(tables, metric, reference) for metric in metrics])
    if not sheets:
        raise UsageError(
            "--over-cells takes two algorithms with results in two cells (settings) or more, "
            "of three seeds where others have three"
        )
    if reference and is_csv:
        say("csv has what is over cells alone; --format json has the cells' differences, too")
        return [_joined_records(sheets)]
    return sheets


def _joined_records(sheets: Sequence[Sheet]) -> Sheet:
    """Join the records of sheets that have one for each metric and algorithm."""
    joined: dict[tuple[str, str], dict[str, Any]] = {}
    for record in chain.from_iterable(sheet.records for sheet in sheets):
        row = joined.setdefault((record["metric"], record["algorithm"]), {})
        for name, value in record.items():
            if row.get(name) is None:  # the ranks lack a reference that is not ranked
                row[name] = value
    return replace(sheets[0], records=tuple(joined.values()))


def _nothing_to_compare(tables: Sequence[ResultTable], reference: str) -> str:
    competing: set[str] = set()
    for table in tables:
        for row in table.rows:
            if any(cell.competes for cell in row.cells):
                competing.add(row.algorithm)
    names = sorted(competing - {reference})
    choices = ", ".join(names) + nearest(reference, names) or "none"
    return f"no results to compare with {reference}; others with results: {choices}"


def _with_numbers(runs: pd.DataFrame, extra: Sequence[Number], source: Folders) -> pd.DataFrame:
    """Add a column for each number that is not a column of rows.

    It is empty for a run whose curve does not tell the number.

    Raises:
        UsageError: a number is of a metric that no curve here has.
        leaderboards.StoreError: a curve cannot be read.
    """
    import pandas as pd

    from leaderboards.rows.frames import by_run

    if not extra:
        return runs
    finished = runs.loc[runs["status"] == "finished", "run_key"]
    curves = by_run(source.curves(set(finished)))
    present = set[str]().union(*curves.values())
    problem = unknown_metrics(extra, present)
    if problem:
        raise UsageError(problem)
    for number in extra:
        values = [number.value(curves.get(key, {})) for key in runs["run_key"]]
        runs = runs.assign(**{number.name: pd.Series(values, runs.index, "float64")})
    return runs


def _check_measured(runs: pd.DataFrame, metrics: Sequence[Number]) -> None:
    """Raise UsageError if no finished run has one of these numbers, so that all cells are empty.

    A number that a user composes may be empty everywhere: `rounds@70` is, where nothing reaches 70.
    """
    finished = runs[runs["status"] == "finished"]
    names = [metric.name for metric in metrics]
    composed = set(names) - {*NUMBERS, *METRICS}
    has_values = finished.notna().any()
    if finished.empty or composed or has_values[names].any():
        return
    wanted = " or ".join(metric.short for metric in metrics)
    measured = [number.short for name, number in NUMBERS.items() if has_values[name]]
    raise UsageError(f"no run here has {wanted}; they have: {', '.join(measured)}")


def _metrics(names: Sequence[str]) -> list[Number]:
    try:
        metrics = [number_named(name) for name in split_list(names)]
    except KeyError as error:
        raise UsageError(error.args[0]) from error
    if not metrics:
        raise UsageError("--metric takes at least one name; --help lists them")
    return metrics


def _paper_sheet(arguments: argparse.Namespace, folders: Sequence[Path]) -> Sheet:
    """Make a paper's table, with our numbers beside the printed ones."""
    from bench.planning.options import SweepOptions
    from bench.planning.table_plan import table_places
    from bench.planning.tables import counterparts_of, needs_local_accuracy, title_of
    from leaderboards.replication import replication_sheet, replications
    from leaderboards.rows.store import Folders

    if not (arguments.paper and arguments.table):
        raise UsageError("--paper and --table go together: whose table, and which")
    unread = [name for name in _NOT_BESIDE_PRINT if getattr(arguments, name) not in (None, False)]
    if unread:
        typed = unread[:1] if arguments.board else unread  # a board brings options of its own
        names = ", ".join(map(flag, typed))
        raise UsageError(f"--table shows all that the paper prints, beside ours: leave out {names}")
    missing = [folder for folder in folders if arguments.out and not folder.exists()]
    if missing:
        say(f"nothing is in {_joined(missing)}, which does not exist")
    values = {
        "alpha": split_list(arguments.alpha),
        "participation": split_list(arguments.participation),
    }
    options = SweepOptions(
        algo=split_list(arguments.algo),
        dataset=",".join(split_list(arguments.dataset)),
        paper=arguments.paper,
        values={name: texts for name, texts in values.items() if texts},
        table=arguments.table,
    )
    places, _ = table_places(options)
    counterparts = list(chain.from_iterable(map(counterparts_of, places)))
    results = replications(counterparts, Folders(folders))
    if all(result.state == "missing" for result in results):
        words = ["--paper", arguments.paper, "--table", arguments.table]
        if needs_local_accuracy(places):
            words += ["--track", "local"]
        say(f"none of its runs is stored: `{shell_command('bench.sweep', *words)}` makes them")
    return replication_sheet(results, title_of(places[0]))


def _runs(folders: Sequence[Path], selected: Selection) -> tuple[Folders, pd.DataFrame]:
    from bench.stored.results import source_of

    source = source_of(folders, selected)
    runs = source.runs()
    counts = [f"{count} {status}" for status, count in runs["status"].value_counts().items()]
    kind = "run" if selected.confirmed_at is None else "confirming run"
    total = counted(len(runs), kind)
    sys.stderr.write(f"{total} in {_joined(folders)}: {', '.join(counts)}\n")
    return source, runs


def _joined(folders: Sequence[Path]) -> str:
    return ", ".join(map(str, folders))

"""`python -m bench.report`: result folders as one HTML page.

Exit status: 0; 2 if the request is wrong or there is nothing to show; 3 if a file cannot be read or
written, or a package is missing.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

from bench.charts.panels import renderer
from bench.compare.boards import board_name, result_options, runs_named, with_board
from bench.compare.choice import note_untuned, selection, selection_options
from bench.compare.filters import filter_options, filtered, filters
from bench.errors import UsageError
from bench.terminal.console import Parser, exit_status
from bench.terminal.paths import beside_results, folders_of
from bench.terminal.render import note_superseded
from bench.terminal.values import nonempty_path, plain_text
from bench.terminal.words import counted
from leaderboards.rows.files import typed_file

_EPILOG = """\
examples:
  python -m bench.report                                      ./leaderboards as ./report.html
  python -m bench.report --out runs/a runs/b --to page.html   several folders as one
  python -m bench.report --algo fedavg,fedcad --title "FedCAD on CIFAR-10"

The page needs no network and no other file. The command needs the package vl-convert-python:
pip install "fedkd-bench[report]"
"""


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command.

    `argv`: arguments; None for the arguments of the process. Returns the exit status.
    """
    parser = _parser()
    arguments = parser.parse_args(argv)
    return exit_status(lambda: _report(with_board(parser, arguments, argv)))


def _parser() -> Parser:
    parser = Parser(
        prog="python -m bench.report",
        description="Write result folders as one HTML page: leaderboard, winners, curves, costs,\n"
        "hyper-parameters, the papers' numbers beside ours, and every run.",
        epilog=_EPILOG,
    )
    filter_options(result_options(parser))
    add = parser.add_argument_group("the page").add_argument
    add(
        "--to",
        type=nonempty_path,
        default=Path("report.html"),
        metavar="FILE",
        help="the page (default: report.html)",
    )
    add("--title", metavar="T", type=plain_text, help="its heading")
    selection_options(parser)
    return parser


def _report(arguments: argparse.Namespace) -> None:
    from bench.report.page import TITLE, page
    from bench.stored.results import results_of, source_of

    target = beside_results(arguments.to, "--to")
    selected = selection(arguments)
    where = filters(arguments)
    if target.is_dir():
        raise UsageError(
            f"--to names a file, but {target} is a folder; try {target / 'report.html'}"
        )
    folder = next(parent for parent in target.absolute().parents if parent.exists())
    if not folder.is_dir():
        raise UsageError(f"--to {target}: {folder} is a file, not a folder")
    renderer()  # reports a missing package before any work is done
    folders = folders_of(arguments.out)
    source = source_of(folders, selected)
    runs = filtered(source.runs(), where, runs_named(folders, selected))
    results = results_of(source.only(runs), selected)
    note_superseded(runs, selected.tuned)
    note_untuned(runs, selected.tuned)
    heading = TITLE
    if arguments.board:
        heading += f": board {board_name(arguments.board)}"
    if where:
        heading += ", in part"
    text = page(results, arguments.title or heading, datetime.now(UTC), arguments.board_metrics)
    target.parent.mkdir(parents=True, exist_ok=True)
    with typed_file(target) as file:  # an old page stays until the new one is complete
        file.write(text.encode())
    sys.stderr.write(
        f"{counted(len(results.runs), 'run')} in {target}: {len(text.encode()) / 1e6:.1f} MB\n"
    )

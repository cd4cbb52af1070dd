"""`python -m bench.compare`: leaderboard tables of a result folder, for the terminal, Markdown, LaTeX, CSV or JSON.

Tables go to standard output, everything else to standard error. Exit status: 0; 2 where the request is wrong or there
is nothing to show; 3 where a file cannot be read.
"""

from __future__ import annotations

import argparse
import difflib
import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bench.errors import EXIT_ENVIRONMENT, EXIT_OK, EXIT_USAGE, UsageError
from bench.execution import default_out
from bench.render import STYLES, defaults, render

if TYPE_CHECKING:
    import pandas as pd

_EPILOG = """\
examples:
  python -m bench.compare                                        every table of ./leaderboards
  python -m bench.compare --dataset cifar10 --alpha 0.1 0.5      some of it
  python -m bench.compare --metric final ema --format latex      other columns, for a paper
  python -m bench.compare --format csv > results.csv             numbers as stored (accuracies are fractions)
  python -m bench.compare --paper fedgkd --table 3               ours beside what a paper prints
"""


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command. `argv`: arguments, None for those of the process. Returns the exit status."""
    arguments = _parser().parse_args(argv)
    from leaderboards import StoreError

    try:
        _compare(arguments)
    except UsageError as error:
        return _complain(error, EXIT_USAGE)
    except BrokenPipeError:  # whoever read our output had enough; nothing is left to say, at exit neither
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except (StoreError, OSError) as error:
        return _complain(error, EXIT_ENVIRONMENT)
    return EXIT_OK


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m bench.compare",
        description="Print the leaderboard of a result folder: one table per data set, model and setting, algorithms\n"
        "against alpha and participation, each with its selected configuration, mean ± std over seeds.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    add("--out", type=Path, default=None, metavar="DIR", help="result folder (default: $FEDKD_OUT, else leaderboards)")
    add("--dataset", nargs="+", metavar="NAME", help="only these data sets; lists take spaces or commas")
    add("--algo", nargs="+", metavar="NAME", help="only these algorithms")
    add("--alpha", nargs="+", metavar="A", help="only these concentrations; `none` is a partition without one")
    add("--participation", nargs="+", metavar="C", help="only these shares of clients a round")
    add("--metric", nargs="+", metavar="NAME", default=["best", "final"], help="columns (default: best final)")
    add("--format", choices=STYLES, default="table", help="default: table")
    add("--paper", metavar="NAME", help="with --table: a paper's table, ours beside printed")
    add("--table", metavar="T", help="of --paper, as printed (3, IV)")
    add("--all-configurations", action="store_true", help="also those that were not selected on validation")
    return parser


def _compare(arguments: argparse.Namespace) -> None:
    from leaderboards import find_metric

    out = arguments.out or default_out()
    if arguments.paper or arguments.table:
        _beside(arguments, out)
        return
    try:
        metrics = [find_metric(name) for name in _split(arguments.metric)]
    except KeyError as error:
        raise UsageError(error.args[0]) from error
    where = _filters(arguments)
    board = _chosen(_board(out), where, out)

    from leaderboards.tables import tables_of

    render(tables_of(board, metrics, arguments.all_configurations, defaults()), arguments.format, sys.stdout)


def _beside(arguments: argparse.Namespace, out: Path) -> None:
    """A paper's table, ours beside printed."""
    from bench.compare_published import print_beside
    from bench.request import Request

    if not (arguments.paper and arguments.table):
        raise UsageError("--paper and --table go together: whose table, and which")
    values = {"alpha": _split(arguments.alpha), "participation": _split(arguments.participation)}
    request = Request(
        algorithms=tuple(_split(arguments.algo)),
        dataset=",".join(_split(arguments.dataset)),
        paper=arguments.paper,
        values={name: tuple(texts) for name, texts in values.items() if texts},
        table=arguments.table,
    )
    print_beside(request, out, arguments.format, sys.stdout)


def _board(out: Path) -> pd.DataFrame:
    from leaderboards import Store
    from leaderboards.boards import leaderboard

    runs = Store(out).runs()
    if runs.empty:
        raise UsageError(
            f"no results in {out}: run `python -m bench.sweep --algo fedavg,fedprox --dataset digits --out {out}` "
            "first, or name another folder with --out"
        )
    counts = ", ".join(f"{count} {status}" for status, count in runs["status"].value_counts().items())
    sys.stderr.write(f"{len(runs)} runs in {out}: {counts}\n")
    return leaderboard(runs)


def _filters(arguments: argparse.Namespace) -> dict[str, list[Any]]:
    """Column of the leaderboard -> values asked for."""
    where: dict[str, list[Any]] = {
        "dataset": _split(arguments.dataset),
        "algorithm": _split(arguments.algo),
        "alpha": [None if text.lower() == "none" else _number("--alpha", text) for text in _split(arguments.alpha)],
        "participation": [_number("--participation", text) for text in _split(arguments.participation)],
    }
    return {column: values for column, values in where.items() if values}


def _chosen(board: pd.DataFrame, where: Mapping[str, Sequence[Any]], out: Path) -> pd.DataFrame:
    """The rows that are asked for.

    Raises:
        UsageError: a value occurs nowhere in the folder, or no row has all that is asked for.
    """
    from leaderboards.boards import matching

    for column, values in where.items():
        there = sorted({_show(value) for value in board[column]})
        for value in map(_show, values):
            if value not in there:
                near = difflib.get_close_matches(value, there, n=1)
                hint = f" (did you mean {near[0]}?)" if near else ""
                raise UsageError(f"no {column} {value} in {out}{hint}; there are: {', '.join(there)}")
    chosen = matching(board, where)
    if chosen.empty:
        asked = ", ".join(f"{column} {'/'.join(map(_show, values))}" for column, values in where.items())
        raise UsageError(f"no results in {out} with {asked} together: ask for fewer of these")
    return chosen


def _split(values: Sequence[str] | None) -> list[str]:
    return [part for value in values or [] for part in value.split(",") if part]


def _number(option: str, text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise UsageError(f"{option} takes numbers, got {text!r}") from None


def _show(value: Any) -> str:
    if value is None or value != value:  # NaN, an empty alpha, is unlike itself
        return "none"
    return f"{value:g}" if isinstance(value, float) else str(value)


def _complain(error: Exception, status: int) -> int:
    sys.stderr.write(f"error: {error}\n")
    return status


if __name__ == "__main__":
    sys.exit(main())

"""`python -m bench.figures`: draw figures from stored runs, as SVG and PNG.

The paths of pictures go to standard output, everything else to standard error. Exit status: 0; 2 if
the request is wrong, or the runs lack data that a figure needs; 3 if a file cannot be read or
written, or a package is missing.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING

from algorithms.entry_points import names_of_rows
from bench.charts.panels import drawn, renderer
from bench.compare.boards import board_name, result_options, with_board
from bench.compare.choice import selection, selection_options
from bench.compare.filters import filter_options, filters
from bench.errors import UsageError
from bench.execution import default_out
from bench.figures.catalogue import FIGURES, Figure
from bench.terminal.console import Parser, exit_status
from bench.terminal.paths import beside_results, folders_of
from bench.terminal.values import nonempty_path, some_of, split_list
from bench.terminal.words import IMPORT, counted
from leaderboards.rows.files import atomic_file

if TYPE_CHECKING:
    from bench.figures.stored_runs import Drawing

_EPILOG = """\
examples:
  python -m bench.figures                              list what ./leaderboards can draw
  python -m bench.figures fedgkd-4 fedcad-4            two figures, a picture for each setting
  python -m bench.figures --all --out A B --to out     whatever can be drawn from two folders
  python -m bench.figures fedgkd-2 --alpha 0.1 --algo fedavg,fedgkd --format svg

The command needs the package vl-convert-python: pip install "fedkd-bench[report]".
"""
_NAME = max(map(len, FIGURES)) + 2  # columns of a figure's name
_INDENT = " " * (2 + _NAME)
FORMATS = ("svg", "png")


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command.

    `argv`: arguments; None for the arguments of the process. Returns the exit status.
    """
    parser = _parser()
    arguments = parser.parse_args(argv)
    with names_of_rows(split_list(arguments.imports)):
        return exit_status(lambda: _figures(with_board(parser, arguments, argv)))


def _parser() -> Parser:
    parser = Parser(
        prog="python -m bench.figures",
        description="Draw figures of the papers, or of any board, from stored runs. Without a\n"
        "name, list the figures that these runs can draw, and commands for the missing runs.",
        epilog="\n".join(["figures:", *map(_line, FIGURES.values()), "", _EPILOG]),
    )
    parser.add_argument(
        "names", nargs="*", metavar="FIGURE", help="such as fedgkd-4; lists take spaces or commas"
    )
    results = result_options(parser)
    filter_options(results)
    results.add_argument("--import", dest="imports", nargs="+", metavar="NAME", help=IMPORT)
    add = parser.add_argument_group("what is drawn").add_argument
    add("--all", action="store_true", help="whatever can be drawn")
    add(
        "--to",
        type=nonempty_path,
        metavar="DIR",
        help="folder of the pictures (default: figures; with --board NAME, figures/NAME)",
    )
    add("--format", nargs="+", choices=FORMATS, default=FORMATS, help="default: both")
    add("--dry-run", action="store_true", help="only name the files")
    selection_options(parser)
    return parser


def _line(figure: Figure) -> str:
    return f"  {figure.name:<{_NAME}}{figure.shows}"


def _figures(arguments: argparse.Namespace) -> None:
    figures = _requested(arguments)
    where = filters(arguments)
    usual = Path("figures", board_name(arguments.board) if arguments.board else "")
    target = beside_results(arguments.to or usual, "--to")
    if target.exists() and not target.is_dir():
        raise UsageError(f"--to names a folder, but {target} is a file")
    drawing = bool(arguments.names or arguments.all)
    if drawing and not arguments.dry_run:
        renderer()  # reports a missing package before any work is done
    from bench.figures.stored_runs import read

    outs = folders_of(arguments.out)
    runs = read(outs, where, selection(arguments), arguments.board_metrics)
    drawable = {figure: figure.find(runs) for figure in figures}
    # A sweep writes neither into a board of the package nor into a file of rows.
    folders = [] if arguments.board else [out for out in outs if not out.is_file()]
    folder = folders[0] if folders else default_out()
    if not drawing:
        sys.stdout.write("\n".join(_listing(drawable, outs, folder)) + "\n")
        return
    lacking = [figure for figure, pictures in drawable.items() if not pictures]
    if lacking and (not arguments.all or len(lacking) == len(drawable)):
        lines = [f"cannot be drawn from {', '.join(map(str, outs))}:"]
        for figure in lacking:
            lines += _missing(figure, folder)
        raise UsageError("\n".join(lines))
    pictures = chain.from_iterable(pictures.items() for pictures in drawable.values())
    _draw(pictures, target, arguments.format, arguments.dry_run)


def _requested(arguments: argparse.Namespace) -> list[Figure]:
    """Return the requested figures, or all; raises UsageError."""
    names = some_of(arguments.names, FIGURES, "figure")
    if names and arguments.all:
        raise UsageError(f"{' '.join(names)} with --all: give one of the two")
    return [FIGURES[name] for name in names or FIGURES]


def _listing(
    drawable: Mapping[Figure, Mapping[str, Drawing]], outs: Sequence[Path], folder: Path
) -> Iterator[str]:
    ready = [figure for figure, pictures in drawable.items() if pictures]
    figures = f"{len(ready)} of {counted(len(drawable), 'figure')}"
    yield f"{figures} can be drawn from {', '.join(map(str, outs))}"
    for figure in ready:
        first, *others = drawable[figure]
        more = f" and {len(others)} more" if others else ""
        yield _line(figure)
        yield f"{_INDENT}{first}{more}"
    if len(ready) < len(drawable):
        yield "\nthe other figures lack runs, which these commands make:"
    for figure in drawable:
        if figure not in ready:
            yield from _missing(figure, folder)


def _missing(figure: Figure, folder: Path) -> Iterator[str]:
    """Yield what a figure lacks, and the command that makes its runs in a folder."""
    yield _line(figure)
    yield f"{_INDENT}{figure.lacking}"
    yield f"{_INDENT}{figure.command(folder)}"


def _draw(
    pictures: Iterable[tuple[str, Drawing]], target: Path, formats: Sequence[str], dry_run: bool
) -> None:
    """Draw one picture after another; each file appears whole or not at all."""
    for name, drawing in pictures:
        paths = [target / f"{name}.{form}" for form in formats]
        if not dry_run:
            target.mkdir(parents=True, exist_ok=True)
            spec = drawing()
            for path, form in zip(paths, formats, strict=True):
                content = drawn(spec, form)
                with atomic_file(path) as file:
                    file.write(content)
        sys.stdout.write("".join(f"{path}\n" for path in paths))
        sys.stdout.flush()

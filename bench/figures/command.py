"""`python -m bench.figures`: the papers' figures and two of any board, from stored runs, as SVG and PNG.

The paths of pictures go to standard output, everything else to standard error. Exit status: 0; 2 if
the request is wrong, or the runs lack data that a figure needs; 3 if a file cannot be read or
written, or a package is missing.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from algorithms.entry_points import names_of_rows
from bench.charts.panels import drawn, renderer
from bench.compare.filters import filter_options, filters, selection, selection_options, with_board
from bench.errors import UsageError
from bench.execution import default_out
from bench.figures.catalogue import FIGURES, Figure
from bench.terminal.console import Parser, exit_status
from bench.terminal.words import IMPORT, OUTS, counted, folders_of, some_of, split_list
from leaderboards.rows.files import atomic_file

if TYPE_CHECKING:
    from bench.figures.stored_runs import Found

_EPILOG = """\
examples:
  python -m bench.figures                              what the runs of ./leaderboards can draw, what others lack
  python -m bench.figures fedgkd-4 fedcad-4            two figures, a picture for each setting
  python -m bench.figures --all --out A B --to out     whatever can be drawn from two folders
  python -m bench.figures fedgkd-2 --alpha 0.1 --participation 0.2 --algo fedavg,fedprox,fedgkd --format svg

It needs the package vl-convert-python: pip install "fedkd-bench[report]".
"""
_INDENT = " " * 15
FORMATS = ("svg", "png")


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command.

    `argv`: arguments, None for those of the process. Returns the exit status.
    """
    parser = _parser()
    arguments = parser.parse_args(argv)
    with names_of_rows(split_list(arguments.imports)):
        return exit_status(lambda: _figures(with_board(parser, arguments, argv)))


def _parser() -> Parser:
    parser = Parser(
        prog="python -m bench.figures",
        description="Draw the papers' figures, or a board's, from stored runs of whatever settings. Without a figure,\n"
        "say what these runs can draw, and what makes the runs of the others.",
        epilog="\n".join(
            ["figures:", *(f"  {f.name:<13}{f.shows}" for f in FIGURES.values()), "", _EPILOG]
        ),
    )
    add = parser.add_argument
    add("names", nargs="*", metavar="FIGURE", help="such as fedgkd-4; lists take spaces or commas")
    add("--all", action="store_true", help="whatever can be drawn")
    add("--out", nargs="+", metavar="DIR", help=OUTS)
    add(
        "--to",
        type=Path,
        default=Path("figures"),
        metavar="DIR",
        help="folder of the pictures (default: figures)",
    )
    add("--format", nargs="+", choices=FORMATS, default=FORMATS, help="default: both")
    filter_options(parser)
    add("--import", dest="imports", nargs="+", metavar="NAME", help=IMPORT)
    selection_options(parser)
    add("--dry-run", action="store_true", help="only name the files")
    return parser


def _figures(arguments: argparse.Namespace) -> None:
    figures, where = _requested(arguments), filters(arguments)
    target: Path = arguments.to
    if target.exists() and not target.is_dir():
        raise UsageError(f"--to names a folder, {target} is a file")
    drawing = bool(arguments.names or arguments.all)
    if drawing and not arguments.dry_run:
        renderer()  # reports a missing package before any work is done
    from bench.figures.stored_runs import read

    outs = folders_of(arguments.out)
    runs = read(outs, where, *selection(arguments), stated=arguments.board_metrics)
    drawable = {figure: figure.find(runs) for figure in figures}
    if not drawing:
        sys.stdout.write("\n".join(_listing(drawable, outs)) + "\n")
        return
    lacking = [figure for figure, pictures in drawable.items() if not pictures.sketches]
    if lacking and (not arguments.all or len(lacking) == len(drawable)):
        lines = [line for figure in lacking for line in _missing(figure, drawable[figure], outs)]
        raise UsageError(f"cannot be drawn from {', '.join(map(str, outs))}:\n" + "\n".join(lines))
    _draw(drawable, target, arguments.format, arguments.dry_run)


def _requested(arguments: argparse.Namespace) -> list[Figure]:
    """Return the requested figures, or all; raises UsageError."""
    names = some_of(arguments.names, FIGURES, "figure")
    if names and arguments.all:
        raise UsageError(f"{' '.join(names)} with --all: give one of the two")
    return [FIGURES[name] for name in names or FIGURES]


def _listing(drawable: Mapping[Figure, Found], outs: Sequence[Path]) -> Iterator[str]:
    ready = [figure for figure, pictures in drawable.items() if pictures.sketches]
    yield f"{len(ready)} of {counted(len(drawable), 'figure')} can be drawn from {', '.join(map(str, outs))}"
    for figure in ready:
        names = [sketch.name for sketch in drawable[figure].sketches]
        yield f"  {figure.name:<13}{figure.shows}"
        yield f"{_INDENT}{names[0]}{f' and {len(names) - 1} more' if len(names) > 1 else ''}"
    if len(ready) < len(drawable):
        yield "\nthe others lack runs, which these commands make:"
    for figure in [figure for figure in drawable if figure not in ready]:
        yield from _missing(figure, drawable[figure], outs)


def _missing(figure: Figure, pictures: Found, outs: Sequence[Path]) -> Iterator[str]:
    yield f"  {figure.name:<13}{figure.shows}"
    yield f"{_INDENT}{pictures.lacking}"
    folder = next(
        (out for out in outs if not out.is_file()), default_out()
    )  # a sweep cannot write into a file of rows
    yield f"{_INDENT}{figure.command(folder)}"


def _draw(
    drawable: Mapping[Figure, Found], target: Path, formats: Sequence[str], dry_run: bool
) -> None:
    """Draw, one picture after another; each file appears whole or not at all."""
    for sketch in [sketch for pictures in drawable.values() for sketch in pictures.sketches]:
        paths = [target / f"{sketch.name}.{form}" for form in formats]
        if not dry_run:
            target.mkdir(parents=True, exist_ok=True)
            spec = sketch.spec()
            for path, form in zip(paths, formats, strict=True):
                content = drawn(spec, form)
                with atomic_file(path) as file:
                    file.write(content)
        sys.stdout.write("".join(f"{path}\n" for path in paths))
        sys.stdout.flush()

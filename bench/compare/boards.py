"""Result folders of a command: `--out`, or `--board` with the options of its board.toml."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

import leaderboards
from bench.compare.choice import selection, selection_options
from bench.errors import UsageError
from bench.terminal.paths import is_folder
from bench.terminal.toml import TOML_BYTES, toml_values
from bench.terminal.words import OUTS, flag, unknown
from leaderboards.rows.files import read_regular
from leaderboards.selection import Selection
from leaderboards.shell_text import typed

# The folder of the result folders that ship with the package.
BOARDS = Path(leaderboards.__file__).parent
BOARD_FILE = "board.toml"
ENTRIES = ("options", "metrics")  # of the file


def result_options(parser: argparse.ArgumentParser) -> argparse._ArgumentGroup:
    """Add `--out` and `--board`; return their group of `--help`."""
    group = parser.add_argument_group("which results")
    group.add_argument("--out", nargs="+", metavar="DIR", help=OUTS)
    group.add_argument(
        "--board",
        metavar="NAME",
        help="results that ship with this package, or a result folder with a board.toml, "
        "instead of --out, and their options",
    )
    return group


def with_board(
    parser: argparse.ArgumentParser, arguments: argparse.Namespace, argv: Sequence[str] | None
) -> argparse.Namespace:
    """Put a board's folder and options before those of the command line.

    The options are those that its `board.toml` lists.

    `board_metrics` of the result has the metrics that the board reports, the primary one first;
    None if it names none.
    """
    arguments.board_metrics = None
    if arguments.board is None:
        return arguments
    if arguments.out:
        raise UsageError("--board and --out both name result folders: leave one of them out")
    folder = _board_folder(arguments.board)
    facts = board_facts(folder)
    words = sys.argv[1:] if argv is None else argv
    # `--out=` comes last, so that a list of values ends before the words.
    parsed = parser.parse_args([*facts.get("options", []), f"--out={folder}", *words])
    parsed.board_metrics = facts.get("metrics")
    return parsed


def _board_folder(name: str) -> Path:
    """Find the folder of a board: one of the package's, or a result folder with a `board.toml`."""
    boards = {path.parent.name: path.parent for path in BOARDS.glob("*/runs")}
    if name in boards:
        return boards[name]
    if not name or not is_folder(name):
        raise unknown("board", name, boards)
    folder = Path(name)
    if not (folder / BOARD_FILE).exists():
        raise UsageError(
            f"--board {typed(name)}: {folder / BOARD_FILE} is missing; write it "
            "(docs/results.md#boards), or name the folder with --out"
        )
    return folder


def board_name(board: str) -> str:
    """Return the name of a board that `--board` names or whose folder it is."""
    return Path(board).resolve().name  # of `..`, too


def board_facts(folder: Path) -> dict[str, list[str]]:
    """Read a board's `board.toml`, which may be missing.

    `options`: of `selection_options`, as words of the command line. `metrics`: names, the primary
    one first.

    Raises:
        UsageError: it has something else.
        leaderboards.StoreError: it is no regular file.
    """
    file = folder / BOARD_FILE
    if not file.exists() and not file.is_symlink():
        return {}
    content = read_regular(file, TOML_BYTES)
    try:
        facts = toml_values(content)
    except ValueError as error:
        raise UsageError(f"{file} is no TOML file: {error}") from None
    for name, value in facts.items():
        if name not in ENTRIES:
            raise unknown(f"entry of {file}", name, ENTRIES)
        if not isinstance(value, list) or not all(isinstance(text, str) for text in value):
            raise UsageError(f"{file}: {name} is a list of texts, got {value!r}")
    metrics = facts.get("metrics", ["any"])
    if not metrics or len(set(metrics)) < len(metrics):
        raise UsageError(f"{file}: metrics lists names, at least one and each once, got {metrics}")
    try:
        chosen, others = _selection_parser().parse_known_args(facts.get("options", []))
    except argparse.ArgumentError as error:
        raise UsageError(f"{file}: {error}") from None
    if others:
        allowed = ", ".join(map(flag, vars(chosen)))
        raise UsageError(f"{file}: options are of {allowed}, got {others[0]!r}")
    return facts


def board_selection(folder: Path) -> Selection:
    """Read the options in a board's `board.toml`; raises as `board_facts` and `selection`."""
    options = board_facts(folder).get("options", [])
    return selection(_selection_parser().parse_args(options))


def _selection_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False, exit_on_error=False)
    selection_options(parser)
    return parser


def runs_named(folders: Sequence[Path], selected: Selection) -> str:
    """Name result folders, or what a selection leaves of their runs, for messages."""
    names = ", ".join(map(str, folders))
    return names if selected.confirmed_at is None else f"the confirming runs of {names}"

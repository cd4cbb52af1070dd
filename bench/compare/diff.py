"""`python -m bench.compare diff A B`: all differences of two results.

B may be the setting of a paper instead.

Imports neither torch nor ray.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from bench.compare.filters import run_of_key
from bench.terminal.console import Parser, console, exit_status
from bench.terminal.paths import folders_of
from bench.terminal.values import plain_text
from bench.terminal.words import KEY_SHOWN, unknown
from leaderboards.numbers import is_number
from leaderboards.shell_text import typed

if TYPE_CHECKING:
    from leaderboards.rows.store import Folders

_GROUPS = ("identity", "results", "cost", "state", "provenance")
_GROUPS_BELOW = ("hyper-parameters", "setting")  # the fields of two columns of JSON
_EPILOG = """\
examples:
  python -m bench.compare diff 3fa1 90bc               two runs, by the first digits of their keys
  python -m bench.compare diff 3fa1 fedcad/cifar10     a run and the setting of a paper
  python -m bench.compare diff 3fa1 90bc --out A B     out of two folders

exit status: 0 (also where they differ); 2 no such run or setting; 3 a file cannot be read"""

Fields = dict[str, dict[str, Any]]  # group -> field -> value


def main(argv: Sequence[str]) -> int:
    """Run the command; returns its exit status."""
    arguments = _parser().parse_args(argv)
    return exit_status(lambda: _diff(arguments))


def _parser() -> Parser:
    parser = Parser(
        prog="python -m bench.compare diff",
        description="Show every field in which two stored runs differ: who they are, what came "
        "out, where they ran.",
        epilog=_EPILOG,
    )
    parser.add_argument(
        "first",
        metavar="A",
        type=plain_text,
        help="a run key, or its first characters; or PAPER/DATASET",
    )
    parser.add_argument("second", metavar="B", type=plain_text, help="likewise")
    parser.add_argument(
        "--out", nargs="+", metavar="DIR", help="result folders (default as for compare)"
    )
    parser.add_argument("--json", action="store_true", help="machine-readable output")
    return parser


def _diff(arguments: argparse.Namespace) -> None:
    from leaderboards.rows.store import Folders

    source = Folders(folders_of(arguments.out))
    first = _fields_of(arguments.first, source)
    second = _fields_of(arguments.second, source)
    groups = [group for group in (*_GROUPS, *_GROUPS_BELOW) if group in first and group in second]
    differing = {}
    for group in groups:
        pairs = _differing_fields(first[group], second[group])
        if pairs:
            differing[group] = pairs
    if arguments.json:
        sys.stdout.write(json.dumps(differing, indent=1, ensure_ascii=False, default=str) + "\n")
        return
    names = [_short_name(name) for name in (arguments.first, arguments.second)]
    _print(differing, names, sorted(groups))


def _fields_of(name: str, source: Folders) -> Fields:
    return {"setting": _setting(name)} if "/" in name else _run(name, source)


def _short_name(name: str) -> str:
    return name if "/" in name else name[:KEY_SHOWN]


def _differing_fields(first: Mapping[str, Any], second: Mapping[str, Any]) -> dict[str, list[Any]]:
    """Return field -> the two values, of the fields that differ."""
    pairs = {}
    for name in dict.fromkeys([*first, *second]):
        if first.get(name) != second.get(name):
            pairs[name] = [first.get(name), second.get(name)]
    return pairs


def _setting(name: str) -> dict[str, Any]:
    from bench.planning.run_spec import setting_identity
    from search_spaces import SETTINGS

    paper, _, dataset = name.partition("/")
    if (paper, dataset) not in SETTINGS:
        raise unknown("setting", name, map("/".join, SETTINGS))
    return dict(setting_identity(SETTINGS[paper, dataset]))


def _run(start: str, source: Folders) -> Fields:
    from leaderboards import COLUMNS
    from leaderboards.rows.frames import records

    folders = [store.out for store in source.stores]
    (row,) = records(run_of_key(source.runs(), start, folders))
    setting = json.loads(row["setting_json"])
    shown_below = {"hp_json", "setting_json", *setting}
    fields: Fields = {group: {} for group in _GROUPS}
    for column in COLUMNS:
        repeated = column.group == "identity" and column.name in shown_below
        if column.name in row and not repeated:
            fields[column.group][column.name] = row[column.name]
    return fields | {"hyper-parameters": json.loads(row["hp_json"]), "setting": setting}


def _print(
    differing: Mapping[str, Mapping[str, list[Any]]], names: Sequence[str], groups: Sequence[str]
) -> None:
    from rich.table import Table

    screen = console()
    for group, pairs in differing.items():
        table = Table(title=group, title_justify="left")
        for name in ("field", *names, "difference"):
            table.add_column(name, overflow="fold")
        for name, (first, second) in pairs.items():
            difference = "" if name.endswith("version") else _difference(first, second)
            table.add_row(name, _text(first), _text(second), difference)
        screen.print(table)
    same = [group for group in groups if group not in differing]
    if same:
        screen.print(f"the same in both: {', '.join(same)}", soft_wrap=True)


def _difference(first: Any, second: Any) -> str:
    """Format the difference of two numbers; empty for other values."""
    if not (is_number(first) and is_number(second)):
        return ""
    difference = second - first
    return f"{difference:+d}" if isinstance(difference, int) else f"{difference:+.6g}"


def _text(value: Any) -> str:
    if value is None:
        return "–"
    if isinstance(value, Mapping):
        return ", ".join(f"{key} {_text(item)}" for key, item in value.items())
    if isinstance(value, float):
        return f"{value:.6g}"  # the column of differences shows finer ones
    return typed(value)

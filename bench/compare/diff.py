"""`python -m bench.compare diff A B`: everything in which two results, or a result and a paper's setting, differ.

Imports neither torch nor ray.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from bench.compare.filters import run_of_key
from bench.errors import UsageError
from bench.terminal.console import Parser, exit_status
from bench.terminal.render import PLAIN_WIDTH
from bench.terminal.values import folders_of
from bench.terminal.words import KEY_SHOWN
from leaderboards.commands import typed

if TYPE_CHECKING:
    from leaderboards.folders import Folders

_GROUPS = ("identity", "results", "cost", "state", "provenance")
_LEFT_OUT = frozenset({"hp_json", "setting_json"})  # shown field by field
_EPILOG = """\
examples:
  python -m bench.compare diff 3fa1 90bc                 two runs, by the first characters of their run keys
  python -m bench.compare diff 3fa1 fedcad/cifar10       a run and the setting of a paper
  python -m bench.compare diff 3fa1 90bc --out A B       out of two folders

exit status: 0 (also where they differ); 2 no such run or setting; 3 a file cannot be read"""

Fields = dict[str, dict[str, Any]]  # group -> field -> value


def main(argv: Sequence[str]) -> int:
    """Run the command; returns its exit status."""
    arguments = _parser().parse_args(argv)
    return exit_status(lambda: _diff(arguments))


def _parser() -> Parser:
    parser = Parser(
        prog="python -m bench.compare diff",
        description="Show every field in which two stored runs differ: who they are, what came out, where they ran.",
        epilog=_EPILOG,
    )
    parser.add_argument("first", metavar="A", help="a run key, or its first characters; or PAPER/DATASET")
    parser.add_argument("second", metavar="B", help="likewise")
    parser.add_argument("--out", nargs="+", metavar="DIR", help="result folders (default as for compare)")
    parser.add_argument("--json", action="store_true", help="machine-readable output")
    return parser


def _diff(arguments: argparse.Namespace) -> None:
    from leaderboards.folders import Folders

    source = Folders(folders_of(arguments.out))
    first, second = (_fields(name, source) for name in (arguments.first, arguments.second))
    found = differing(first, second)
    if arguments.json:
        sys.stdout.write(json.dumps(found, indent=1, ensure_ascii=False, default=str) + "\n")
        return
    one, other = (name if "/" in name else name[:KEY_SHOWN] for name in (arguments.first, arguments.second))
    _print(found, one, other, first, second)


def differing(first: Fields, second: Fields) -> dict[str, dict[str, list[Any]]]:
    """Group -> field -> the two values, of the fields that both sides know about and that differ.

    A setting knows nothing of results or machines, nor of hyper-parameters: these are then left out.
    """
    found: dict[str, dict[str, list[Any]]] = {}
    for group in [name for name in (*_GROUPS, "hyper-parameters", "setting") if name in first and name in second]:
        names = dict.fromkeys([*first[group], *second[group]])
        pairs = {name: [first[group].get(name), second[group].get(name)] for name in names}
        unlike = {name: pair for name, pair in pairs.items() if pair[0] != pair[1]}
        if unlike:
            found[group] = unlike
    return found


def _fields(name: str, source: Folders) -> Fields:
    """A run's fields, or those of a setting."""
    if "/" in name:
        return {"setting": _setting(name)}
    return _run(name, source)


def _setting(name: str) -> dict[str, Any]:
    from bench.identity import identity
    from search_spaces import SETTINGS

    paper, _, dataset = name.partition("/")
    if (paper, dataset) not in SETTINGS:
        known = ", ".join("/".join(key) for key in SETTINGS)
        raise UsageError(f"no setting {name!r}; there are: {known}")
    return dict(identity(SETTINGS[paper, dataset]))


def _run(start: str, source: Folders) -> Fields:
    from leaderboards import COLUMNS
    from leaderboards.frames import records

    (row,) = records(run_of_key(source.runs(), start, [store.out for store in source.stores]))
    fields: Fields = {
        group: {column.name: row[column.name] for column in COLUMNS if column.group == group and column.name in row}
        for group in _GROUPS
    }
    setting = json.loads(row["setting_json"])
    hyperparameters = json.loads(row["hp_json"])
    fields["identity"] = {
        name: value for name, value in fields["identity"].items() if name not in {*_LEFT_OUT, *setting}
    }
    return fields | {"hyper-parameters": hyperparameters, "setting": setting}


def _print(found: Mapping[str, Mapping[str, list[Any]]], one: str, other: str, first: Fields, second: Fields) -> None:
    from rich.console import Console
    from rich.table import Table

    console = Console(highlight=False, markup=False, emoji=False, soft_wrap=True)
    if not console.is_terminal:
        console.width = PLAIN_WIDTH
    known = sorted(set(first) & set(second))
    if not found:
        console.print(f"{one} and {other} do not differ in: {', '.join(known)}")
        return
    for group, pairs in found.items():
        table = Table(title=group, title_justify="left")
        for name in ("field", one, other, "difference"):
            table.add_column(name, overflow="fold")
        for name, (mine, its) in pairs.items():
            table.add_row(name, _text(mine), _text(its), "" if name.endswith("version") else _difference(mine, its))
        console.print(table, soft_wrap=False)
    same = [group for group in known if group not in found]
    if same:
        console.print(f"the same in both: {', '.join(same)}")


def _difference(mine: Any, its: Any) -> str:
    numbers = [value for value in (mine, its) if isinstance(value, int | float) and not isinstance(value, bool)]
    return f"{its - mine:+.6g}" if len(numbers) == 2 else ""


def _text(value: Any) -> str:
    if value is None:
        return "–"
    if isinstance(value, Mapping):
        return ", ".join(f"{key} {item}" for key, item in value.items())
    return typed(value)

"""Selection of rows: `--dataset`, `--algo`, `--alpha`, `--participation`, `--where`, or one run."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import leaderboards
from bench.errors import UsageError
from bench.stored.fields import value_in, worth_telling
from bench.terminal.paths import is_folder
from bench.terminal.toml import TOML_BYTES, toml_values
from bench.terminal.values import some_of, split_list
from bench.terminal.words import CHOSEN_BY, OUTS, SELECT_ON, flag, run_keys, unknown
from leaderboards.problems import base_model
from leaderboards.rows.files import read_regular
from leaderboards.rows.frames import by_text
from leaderboards.rows.schema import canonical_json
from leaderboards.selection import DEFAULT_RULE, PROTOCOLS, RULES, Selection
from leaderboards.shell_text import shell_command, typed
from search_spaces import setting_fields
from search_spaces.bounds import cast, nearest

if TYPE_CHECKING:
    import pandas as pd

TUNABLE = (
    "lr",
    "lr_decay",
    "momentum",
    "weight_decay",
    "clip_norm",
    "batch_size",
    "optimizer",
    "nesterov",
)
# The folder of the result folders that ship with the package.
BOARDS = Path(leaderboards.__file__).parent
BOARD_FILE = "board.toml"


def filters(arguments: argparse.Namespace) -> dict[str, list[Any]]:
    """Read the requested values of each field.

    Raises UsageError for a value of another type, or an unknown field.
    """
    shares = split_list(arguments.participation)
    where: dict[str, list[Any]] = {
        "dataset": list(split_list(arguments.dataset)),
        "algorithm": list(split_list(arguments.algo)),
        "alpha": [_value("alpha", text) for text in split_list(arguments.alpha)],
        "participation": [_value("participation", text) for text in shares],
    }
    options = {name for name, values in where.items() if values}
    for text in arguments.where or []:
        name, _, values = text.partition("=")
        requested = split_list([values])
        if not requested:
            raise UsageError(f"--where takes FIELD=VALUE[,VALUE], got {text!r}")
        if _field("--where", name) in options:
            raise UsageError(
                f"--{name} and --where {name}= are the same thing, and both are given: "
                "leave one out"
            )
        where.setdefault(name, []).extend(_value(name, value) for value in requested)
    return {name: values for name, values in where.items() if values}


def layout(texts: Sequence[str] | None) -> tuple[str, ...]:
    """Read the fields of `--by`; raises UsageError for a name that is no field of a setting."""
    return tuple(dict.fromkeys(_field("--by", name) for name in split_list(texts)))


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


def filter_options(group: argparse._ArgumentGroup) -> None:
    """Add the options that `filters` reads."""
    add = group.add_argument
    add(
        "--dataset",
        nargs="+",
        metavar="NAME",
        help="only these data sets; lists take spaces or commas",
    )
    add("--algo", nargs="+", metavar="NAME", help="only these algorithms")
    add(
        "--alpha",
        nargs="+",
        metavar="A",
        help="only these concentrations; `none` is a partition without one",
    )
    add("--participation", nargs="+", metavar="C", help="only these shares of clients a round")
    add(
        "--where",
        nargs="+",
        metavar="FIELD=V",
        help="only these values of any field of the setting",
    )


def selection_options(parser: argparse.ArgumentParser) -> None:
    """Add the options that `selection` reads.

    They say how configurations are selected, and what is reported of them.
    """
    add = parser.add_argument_group("how configurations are chosen").add_argument
    add(
        "--tuned",
        nargs="+",
        metavar="FIELD",
        help="setting fields selected over on validation, such as lr",
    )
    add(
        "--chosen-by",
        choices=tuple(RULES),
        default=DEFAULT_RULE,
        help=f"{CHOSEN_BY} ({DEFAULT_RULE})",
    )
    add("--select-on", choices=PROTOCOLS, help=SELECT_ON)
    add(
        "--confirmed",
        nargs="*",
        metavar="FIELD=V",
        help="select on seed 0 and show the other seeds (sweep --confirm); with participation=0.5, "
        "use the configurations tuned at 0.5 for all other participations as well",
    )


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
    some_of(list(facts), ("options", "metrics"), f"entry of {file}")
    for name, value in facts.items():
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


def selection(arguments: argparse.Namespace) -> Selection:
    """Read `--tuned`, `--confirmed`, `--chosen-by` and `--select-on`.

    Raises:
        UsageError: a name is no field of local training, or no field of a setting with a value.
    """
    tuned = some_of(arguments.tuned, TUNABLE, "field of local training for --tuned")
    if arguments.confirmed is None:
        return Selection(tuned, None, arguments.chosen_by, arguments.select_on)
    tuned_at: dict[str, Any] = {}
    for text in split_list(arguments.confirmed):
        name, _, value = text.partition("=")
        if not value or name in (*tuned_at, *tuned):
            raise UsageError(
                f"--confirmed takes FIELD=VALUE, each field once and none of --tuned, got {text!r}"
            )
        tuned_at[name] = _value(_field("--confirmed", name), value)
    return Selection(tuned, tuned_at, arguments.chosen_by, arguments.select_on)


def runs_named(folders: Sequence[Path], selected: Selection) -> str:
    """Name result folders, or what a selection leaves of their runs, for messages."""
    names = ", ".join(map(str, folders))
    return names if selected.confirmed_at is None else f"the confirming runs of {names}"


def filtered(runs: pd.DataFrame, where: Mapping[str, Sequence[Any]], source: str) -> pd.DataFrame:
    """Select the runs that `where` (of `filters`) asks for.

    `source` names their folders in messages.

    Raises:
        UsageError: a value occurs nowhere, or no run has all the values together.
    """
    mask = runs.index == runs.index
    settings = by_text(runs["setting_json"], json.loads)
    for name, values in where.items():
        column = runs[name] if name == "algorithm" else settings.map(partial(value_in, name))
        columns = [column.map(show)]
        if name == "model":  # `cnn` asks for `cnn+head`, too
            columns.append(column.map(base_model))
        present = sorted(set().union(*columns))
        wanted = [show(value) for value in values]
        for value in wanted:
            if value not in present:
                hint = nearest(value, present)
                raise UsageError(
                    f"no {name} {value} in {source}; there are: {', '.join(present)}{hint}"
                )
        matches = [texts.isin(wanted) for texts in columns]
        mask &= matches[0] | matches[-1]
    if not mask.any():
        texts = [f"{name} {'/'.join(map(show, values))}" for name, values in where.items()]
        request = ", ".join(texts)
        raise UsageError(f"no results in {source} with {request} together: ask for fewer of these")
    return runs[mask]


def stated(board: pd.DataFrame, by: Sequence[str]) -> pd.DataFrame:
    """Write the fields `by` into the settings of a leaderboard's rows.

    A stored setting leaves out a later field at its default. It stays out where the row's partition
    does not use it, and where the default is none.
    """
    texts = board["setting_json"]

    def with_fields(text: str) -> str:
        setting = json.loads(text)
        for name in by:
            value = worth_telling(name, setting)
            if value is not None:
                setting[name] = value
        return canonical_json(setting)

    return board.assign(setting_json=by_text(texts, with_fields).astype(texts.dtype))


def run_of_key(runs: pd.DataFrame, start: str, folders: Sequence[Path]) -> pd.DataFrame:
    """Find the row whose run key begins with `start`.

    Raises UsageError, which names `folders`, if no run key does, or several.
    """
    matches = runs[runs["run_key"].str.startswith(start)] if len(runs) else runs
    if len(matches) == 1:
        return matches
    source = ", ".join(map(str, folders))
    if matches.empty:
        outs = [out for out in folders if not out.is_file()]
        commands = [f"`{shell_command('bench.status', '--out', out)}`" for out in outs]
        advice = f"; the keys are in {' and '.join(commands)}" if commands else ""
        raise UsageError(f"no run begins with {start!r} in {source}{advice}")
    listed = run_keys(list(matches["run_key"]))
    raise UsageError(
        f"{len(matches)} runs begin with {start!r} in {source}, give more characters: {listed}"
    )


def show(value: Any) -> str:
    """Format a value of a field as it is typed; 1 and 1.0 are the same."""
    if value != value:  # NaN, an empty alpha, is not equal to itself
        return "none"
    if isinstance(value, float) and value.is_integer():
        return typed(int(value))
    return typed(value)


def _field(option: str, name: str) -> str:
    if name not in setting_fields():
        raise unknown(f"field of a setting for {option}", name, setting_fields())
    return name


def _value(name: str, text: str) -> Any:
    try:
        return cast(name, text, str(setting_fields()[name].type))
    except ValueError as error:
        raise UsageError(str(error)) from None

"""Rows that a command asks for: `--dataset`, `--algo`, `--alpha`, `--participation`, `--where`."""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bench.errors import UsageError
from bench.stored.fields import field_named, field_value, value_in, worth_telling
from bench.terminal.values import split_list
from bench.terminal.words import run_keys
from leaderboards.problems import base_model
from leaderboards.rows.frames import by_text
from leaderboards.rows.schema import canonical_json
from leaderboards.shell_text import shell_command, typed
from search_spaces.bounds import nearest

if TYPE_CHECKING:
    import pandas as pd


def filters(arguments: argparse.Namespace) -> dict[str, list[Any]]:
    """Read the requested values of each field.

    Raises UsageError for a value of another type, or an unknown field.
    """
    shares = split_list(arguments.participation)
    where: dict[str, list[Any]] = {
        "dataset": list(split_list(arguments.dataset)),
        "algorithm": list(split_list(arguments.algo)),
        "alpha": [field_value("alpha", text) for text in split_list(arguments.alpha)],
        "participation": [field_value("participation", text) for text in shares],
    }
    options = {name for name, values in where.items() if values}
    for text in arguments.where or []:
        name, _, values = text.partition("=")
        requested = split_list([values])
        if not requested:
            raise UsageError(f"--where takes FIELD=VALUE[,VALUE], got {text!r}")
        if field_named("--where", name) in options:
            raise UsageError(
                f"--{name} and --where {name}= are the same thing, and both are given: "
                "leave one out"
            )
        where.setdefault(name, []).extend(field_value(name, value) for value in requested)
    return {name: values for name, values in where.items() if values}


def layout(texts: Sequence[str] | None) -> tuple[str, ...]:
    """Read the fields of `--by`; raises UsageError for a name that is no field of a setting."""
    return tuple(dict.fromkeys(field_named("--by", name) for name in split_list(texts)))


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


def filtered(runs: pd.DataFrame, where: Mapping[str, Sequence[Any]], source: str) -> pd.DataFrame:
    """Select the runs that `where` (of `filters`) asks for.

    `source` names their folders in messages. Which runs yield rows of other algorithms, too, is
    noted before those are left out.

    Raises:
        UsageError: a value occurs nowhere, or no run has all the values together.
    """
    from leaderboards.board import with_sharing

    runs = with_sharing(runs)
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

"""Stored runs in words: the algorithm, where it ran, and what tells it from the others of its folder."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from algorithms import ALGORITHMS
from leaderboards.problems import differing, sortable
from leaderboards.rows.schema import own_name
from leaderboards.shell_text import printable, typed

_PLACE = ("dataset", "model")  # said by their values
_AXES = ("alpha", "participation")  # always said, where a run has them
_SAID = (*_PLACE, *_AXES)


@dataclass(frozen=True)
class Named:
    """A stored run.

    Args:
        row: its columns.
        name: such as `fedcad digits mlp alpha=0.1 participation=0.5 gamma=0.5 seed 0`.
        order: sorts runs as one reads them: by data set, model, algorithm, values, seed.
    """

    row: Mapping[str, Any]
    name: str
    order: tuple[Any, ...]


def named_runs(rows: Sequence[Mapping[str, Any]]) -> Iterator[Named]:
    """The runs of a folder, each under a name that no other has.

    Args:
        rows: with the columns `algorithm`, `setting_json`, `hp_json` and `seed`.
    """
    settings = {row["setting_json"]: json.loads(row["setting_json"]) for row in rows}
    values = {
        (row["algorithm"], row["hp_json"]): {
            own_name(row["algorithm"], name): value for name, value in json.loads(row["hp_json"]).items()
        }
        for row in rows
    }
    fields = differing((setting["dataset"], setting) for setting in settings.values())
    names = differing((algorithm, own) for (algorithm, _), own in values.items())
    for row in rows:
        setting, own = settings[row["setting_json"]], values[row["algorithm"], row["hp_json"]]
        worth = worth_saying(row["algorithm"], own, names)
        told = [(name, setting[name]) for name in _AXES if setting.get(name) is not None]
        told += [(name, setting[name]) for name in setting if name in fields[setting["dataset"]] and name not in _SAID]
        told += [(name, own[name]) for name in own if name in worth]
        place = [str(setting[name]) for name in _PLACE]
        words = [row["algorithm"], *place, *(f"{name}={typed(value)}" for name, value in told)]
        order = (*place, row["algorithm"], [sortable(value) for _, value in told], row["seed"])
        yield Named(row, printable(" ".join([*words, f"seed {row['seed']}"])), order)


def worth_saying(algorithm: str, own: Mapping[str, Any], differing: Mapping[str, Collection[str]]) -> set[str]:
    """Select the hyper-parameters, by `own_name`, in which an algorithm's runs differ or that are off their default."""
    known = ALGORITHMS.get(algorithm)
    defaults = {own_name(algorithm, name): value for name, value in known.defaults().items()} if known else {}
    return {*differing[algorithm], *(name for name, value in own.items() if defaults.get(name) != value)}

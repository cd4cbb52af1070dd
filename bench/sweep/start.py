"""`--start-from`: the stored model that runs begin with, found and checked before anything runs.

Imports neither torch nor ray.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from algorithms.entry_points import names_of_rows
from bench import data, tracked
from bench.errors import UsageError
from bench.identity import identity, setting_of
from bench.planning.plan import Plan, Search
from bench.planning.unit import Unit


def full_keys(starts: Iterable[str], out: Path) -> tuple[str, ...]:
    """The run keys that begin so, each of a run whose final model is kept.

    Args:
        starts: first characters of run keys, or all of them.
        out: results folder.

    Raises:
        UsageError: no run begins so, or several do, or it has no model, or one for each client.
    """
    return tuple(str(_row(start, out)["run_key"]) for start in starts)


def check_start(plan: Plan, out: Path) -> None:
    """Raise UsageError if a model that runs begin with is not of their architecture."""
    asked: list[Unit | Search] = [*plan.units, *plan.searches]
    rows = {key: _row(key, out) for key in {one.setting.start_from for one in asked} if key}
    for one in asked:
        if one.setting.start_from:
            row = rows[one.setting.start_from]
            wanted = _architecture(identity(one.setting))
            with names_of_rows((one.setting.dataset,), "--dataset"):
                there = _architecture(json.loads(row["setting_json"]))
            if there != wanted:
                raise UsageError(
                    f"--start-from {row['run_key'][:16]}: its model is {_words(there)}, and {one.algorithm} runs "
                    f"{_words(wanted)} here: name a run with that model, or other algorithms"
                )


def _row(start: str, out: Path) -> Mapping[str, Any]:
    from safetensors import safe_open

    from bench.compare.filters import run_of_key
    from leaderboards.folders import Folders

    row = {str(name): value for name, value in run_of_key(Folders([out]).runs(), start, [out]).iloc[0].items()}
    path = tracked.path_of(out, row["run_key"], "safetensors")
    if not path.exists():
        raise UsageError(
            f"--start-from {start}: no final model of that run is kept; its own command with --track models --force "
            "makes it"
        )
    with safe_open(path, "numpy") as file:
        if any("/" in name for name in file.keys()):  # noqa: SIM118 # it is no mapping
            raise UsageError(
                f"--start-from {start}: in that run of {row['algorithm']} each client has its own model; name a run "
                "with one model for all"
            )
    return row


def _architecture(setting: Mapping[str, Any]) -> tuple[Any, ...]:
    """What decides names and shapes of a model's tensors; of the fields of a row's setting."""
    known = setting_of(json.dumps(setting))
    info = data.info(known.dataset).sized(known.image_size)
    return known.model, setting.get("model_version"), info.input_shape, info.num_classes


def _words(architecture: tuple[Any, ...]) -> str:
    model, version, shape, classes = architecture
    told = f" (version {version})" if version is not None else ""
    return f"{model}{told} of inputs {'x'.join(map(str, shape))} and {classes} classes"

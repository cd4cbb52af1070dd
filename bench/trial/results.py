"""Result rows of a run, with the columns of `leaderboards.rows.schema`, and the data that `--track` keeps."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bench import artifacts
from bench.planning.run_spec import RunSpec, row_entry
from leaderboards import SCHEMA_VERSION, identity_columns
from leaderboards.numbers import curve_of, numbers_of
from leaderboards.problems import FINETUNED
from leaderboards.selection import CLIENTS, selected_on
from search_spaces import Setting

if TYPE_CHECKING:
    from algorithms.base import Params
    from bench.engine.simulation import Point, Progress, Simulation


def at_chance(accuracy: float, chance: float, samples: int) -> bool:
    """Return whether an accuracy is within three standard errors of `chance`, that of guessing, or below."""
    return accuracy <= chance + _margin(chance, samples)


def fell_below_chance(best: float, final: float, chance: float, samples: int) -> bool:
    """Return whether a run was better than guessing, and in the end is worse than guessing.

    Both by more than three standard errors. A run that never was better may have hardly begun:
    after one round 2 % of the sound runs of the reference board are below guessing by as much.
    """
    return not at_chance(best, chance, samples) and final < chance - _margin(chance, samples)


def _margin(chance: float, samples: int) -> float:
    """Compute three standard errors of guesses that are right with probability `chance`."""
    return 3 * math.sqrt(chance * (1 - chance) / samples)


def rows_of(
    unit: RunSpec,
    progress: Progress,
    facts: Mapping[str, Any],
    *,
    personal: Collection[str] = (),
    chance: float,
    test_samples: int,
) -> list[tuple[dict[str, Any], list[Point]]]:
    """Make the (row, curve) pairs of a finished or stopped run.

    `facts` are the columns that the engine does not know: provenance, cost, `status`. `personal`
    are the suffixes of the rows of clients' own models. `chance` is
    the accuracy of the best guess, one class for all samples, and with `test_samples` gives its
    standard error.
    """
    rows = []
    short = unit.shortened or (unit.paper is None and unit.setting.rounds < Setting.rounds)
    for suffix in unit.rows:
        curve = progress.curves[suffix]
        results = numbers_of(curve_of(curve))
        best, final = results["best_accuracy"], results["final_accuracy"]
        reference = row_entry(unit.algorithm, suffix).reference
        for_itself = suffix in personal and _judged_on_clients(unit, suffix)
        # Guessing is no sign of divergence in a run that was cut short and may have hardly begun,
        # nor in a client that has one class and nobody to learn from, or a model for it alone.
        if best is None or final is None or reference or for_itself:
            guesses = False
        elif short:
            guesses = fell_below_chance(best, final, chance, test_samples)
        else:
            guesses = at_chance(final, chance, test_samples)
        outcome = {"error": progress.complaint or None, "diverged": progress.diverged or guesses}
        outcome["personal"] = suffix in personal
        rows.append(({**_common(unit, suffix), **results, **facts, **outcome}, curve))
    return rows


def _judged_on_clients(unit: RunSpec, suffix: str) -> bool:
    """Return whether a personal row is meant for clients' own samples, not for the test set."""
    return suffix.endswith(FINETUNED) or selected_on(unit.setting.as_dict()) == CLIENTS


def failed_rows(unit: RunSpec, error: str, facts: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Make the rows of a run that failed, without results. `facts`: as of `rows_of`."""
    outcome = {"error": error, "diverged": False, "personal": None}
    return [{**_common(unit, suffix), **outcome, **facts} for suffix in unit.rows]


def _common(unit: RunSpec, suffix: str) -> dict[str, Any]:
    """Return the identity columns, and the columns that plan and schema decide."""
    return {
        **identity_columns(*unit.identity(row_entry(unit.algorithm, suffix))),
        "paper": unit.paper,
        "shortened": unit.shortened,
        "selected_on": selected_on(unit.setting.as_dict()),
        "schema_version": SCHEMA_VERSION,
    }


def write_tracked(
    simulation: Simulation, out: Path | str, rows: Mapping[str, str], names: Mapping[str, str]
) -> dict[str, list[str]]:
    """Write the tracked data of a finished run for each of its rows; `rows` and `names` are keys and names by suffix.

    Returns:
        Run key -> names of the row's files.

    Raises:
        OSError: the folder cannot be written, or the disk is full; nothing half-written is left.
    """
    what = simulation.tracker.what
    written: dict[str, list[str]] = {key: [] for key in rows.values()}
    for suffix, key in rows.items() if what else ():
        facts = {"run/key": key, "run/algorithm": names[suffix]}
        if "models" in what:
            of_setting = {
                name: getattr(simulation.setting, name)
                for name in ("dataset", "model", "precision")
            }
            metadata = {
                "run_key": key,
                "algorithm": names[suffix],
                "round": str(simulation.round),
                **of_setting,
            }
            written[key].append(
                artifacts.write_tensors(out, key, _tensors(simulation, suffix), metadata)
            )
        written[key].append(
            artifacts.write_arrays(out, key, {**simulation.tracker.arrays(suffix), **facts})
        )
    return written


def _tensors(simulation: Simulation, suffix: str) -> dict[str, Any]:
    """Return a row's tensors by name, and by `client/name` what a client adds to a personal row."""
    row: Params = {}
    if not suffix.endswith(FINETUNED):
        row = simulation.algorithm.evaluated(simulation.server)[suffix]
    tensors = {**simulation.net.constants, **row}
    personal = suffix in simulation.personal
    models = simulation.models_of(suffix)
    clients = simulation.fed.num_clients
    if suffix.endswith(FINETUNED):  # also of pooled data, which are those of one client
        clients = simulation.setting.training_clients
    for client in range(clients if personal else 0):
        (model,) = models([client])
        tensors |= {f"{client}/{name}": value for name, value in model.items() if name not in row}
    for name, listed in simulation.net.tied.items():  # under all names, as a module takes them
        keys = [key for key in tensors if key.rpartition("/")[2] == listed]
        tensors |= {key.removesuffix(listed) + name: tensors[key] for key in keys}
    return {name: value.detach().cpu().contiguous().numpy() for name, value in tensors.items()}

"""Result rows of a run (`leaderboards.rows.schema`), and the data that `--track` keeps."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bench import artifacts
from bench.planning.run_spec import RunSpec, row_entry
from leaderboards import SCHEMA_VERSION, identity_columns
from leaderboards.numbers import curve_of, numbers_of
from search_spaces import Setting

if TYPE_CHECKING:
    from algorithms.base import Params
    from bench.engine.simulation import Point, Progress, Simulation


def guesses(accuracy: float, chance: float, samples: int, shortened: bool) -> bool:
    """Return whether a run that ends with this accuracy has diverged.

    At full length it has if it is no better than guessing, within three standard errors of
    `chance`. A shortened run may have hardly begun, and has diverged if it is worse than guessing,
    by more than three standard errors.

    Args:
        accuracy: of the last round on the test set, in [0, 1].
        chance: accuracy of the best guess, one class for all samples.
        samples: number of test samples.
        shortened: whether the run has fewer rounds or less data than the preset.
    """
    margin = 3 * math.sqrt(chance * (1 - chance) / samples)
    if shortened:
        return accuracy < chance - margin
    return accuracy <= chance + margin


def rows_of(
    unit: RunSpec, progress: Progress, facts: Mapping[str, Any], *, chance: float, test_samples: int
) -> list[tuple[dict[str, Any], list[Point]]]:
    """Make the (row, curve) pairs of a finished or stopped run.

    `facts` are the columns that the engine does not know: provenance, cost, `status`. `chance` is
    the accuracy of the best guess, one class for all samples, and with `test_samples` gives its
    standard error.
    """
    rows = []
    short = unit.shortened or (unit.paper is None and unit.setting.rounds < Setting.rounds)
    for suffix in unit.rows:
        curve = progress.curves[suffix]
        results = numbers_of(curve_of(curve))
        final = results["final_accuracy"]
        diverged = progress.diverged
        # A client that has one class and nobody to learn from may guess without having diverged.
        if final is not None and not row_entry(unit.algorithm, suffix).reference:
            diverged = diverged or guesses(final, chance, test_samples, short)
        outcome = {"error": progress.complaint or None, "diverged": diverged}
        rows.append(({**_common(unit, suffix), **results, **facts, **outcome}, curve))
    return rows


def failed_rows(unit: RunSpec, error: str, facts: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Make the rows of a run that failed, without results. `facts`: as of `rows_of`."""
    outcome = {"error": error, "diverged": False}
    return [{**_common(unit, suffix), **outcome, **facts} for suffix in unit.rows]


def _common(unit: RunSpec, suffix: str) -> dict[str, Any]:
    """Return the identity columns, and the columns that plan and schema decide."""
    return {
        **identity_columns(*unit.identity(row_entry(unit.algorithm, suffix))),
        "paper": unit.paper,
        "shortened": unit.shortened,
        "selected_on": "validation" if unit.setting.validation_fraction else "none",
        "schema_version": SCHEMA_VERSION,
    }


def write_tracked(
    simulation: Simulation, out: Path | str, rows: Mapping[str, str], names: Mapping[str, str]
) -> dict[str, list[str]]:
    """Write the tracked data of a finished run for each of its rows.

    `rows` and `names` are keys and names by suffix.

    Returns:
        Run key -> names of the row's files.

    Raises:
        OSError: the folder cannot be written, or the disk is full; nothing half-written is left.
    """
    tracked = simulation.tracker.what
    written: dict[str, list[str]] = {key: [] for key in rows.values()}
    if not tracked:
        return written
    setting = simulation.setting
    for suffix, key in rows.items():
        if "models" in tracked:
            row = simulation.algorithm.evaluated(simulation.server)[suffix]
            metadata = {
                "run_key": key,
                "algorithm": names[suffix],
                "round": str(simulation.round),
                "dataset": setting.dataset,
                "model": setting.model,
                "precision": setting.precision,
            }
            tensors = _tensors(simulation, row)
            written[key].append(artifacts.write_tensors(out, key, tensors, metadata))
        arrays = dict(simulation.tracker.arrays(suffix))
        arrays |= {"run/key": key, "run/algorithm": names[suffix]}
        written[key].append(artifacts.write_arrays(out, key, arrays))
    return written


def _tensors(simulation: Simulation, row: Params) -> dict[str, Any]:
    """Return the row's tensors by name, and by `client/name` those of personal models."""
    tensors = {**simulation.net.constants, **row}
    personal = set(row) != set(simulation.net.names)
    for client in range(simulation.fed.num_clients if personal else 0):
        model = simulation.local_model(row, client)
        tensors |= {f"{client}/{name}": value for name, value in model.items() if name not in row}
    for name, listed in simulation.net.tied.items():  # under all names, as a module takes them
        keys = [key for key in tensors if key.rpartition("/")[2] == listed]
        tensors |= {key.removesuffix(listed) + name: tensors[key] for key in keys}
    return {name: value.detach().cpu().contiguous().numpy() for name, value in tensors.items()}

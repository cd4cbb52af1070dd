"""Result rows of a run, with the columns of `leaderboards.rows.schema`, and the data that `--track` keeps."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bench import artifacts
from bench.planning.run_spec import RunSpec, row_entry
from leaderboards import SCHEMA_VERSION, identity_columns
from leaderboards.rows.schema import COLUMNS
from search_spaces import Setting

if TYPE_CHECKING:
    from algorithms.base import Params
    from bench.engine.simulation import Point, Progress, Simulation

SMOOTHING = 0.6
MILESTONES = (1, 2, 5, 10, 20, 30, 50, 100, 200, 300, 500, 1000)
TARGETS = tuple(percent / 100 for percent in range(5, 100, 5))
RESULT_COLUMNS = tuple(
    column.name for column in COLUMNS if column.group == "results" and column.name != "partition_hash"
)


def series(curve: Sequence[Point], metric: str) -> dict[int, float]:
    """Return round -> value of one metric, in order of rounds."""
    return {at: value for at, name, value in curve if name == metric}


def summarise(curve: Sequence[Point]) -> dict[str, Any]:
    """Compute `RESULT_COLUMNS` of a curve with at least one `accuracy` and the counters; None for missing ones.

    `selected_*` is the test accuracy at the first round of the best validation accuracy; `ema_accuracy` is the last
    value of e <- 0.6 e + 0.4 a, as FedNTD's authors print; `fm`, `amp` and `wlp` are those of the last round.
    """
    accuracy, validation = series(curve, "accuracy"), series(curve, "val_accuracy")
    last = max(accuracy)
    best = max(accuracy, key=lambda at: (accuracy[at], -at))
    selected = max(validation, key=lambda at: (validation[at], -at)) if validation else None
    ordered = [accuracy[at] for at in sorted(accuracy)]
    recent, smooth = ordered[-10:], ordered[0]
    for value in ordered[1:]:
        smooth = SMOOTHING * smooth + (1 - SMOOTHING) * value
    reached = {target: next((at for at in sorted(accuracy) if accuracy[at] >= target), None) for target in TARGETS}
    final = {name: series(curve, name).get(last) for name in ("local_accuracy", "amp", "fm", "wlp")}
    return {
        "best_accuracy": accuracy[best],
        "best_round": best,
        "final_accuracy": accuracy[last],
        "selected_accuracy": None if selected is None else accuracy[selected],
        "selected_round": selected,
        "best_val_accuracy": None if selected is None else validation[selected],
        "mean_last10_accuracy": math.fsum(recent) / len(recent),
        "ema_accuracy": smooth,
        "accuracy_at": {at: accuracy[at] for at in MILESTONES if at in accuracy},
        "rounds_to": {target: at for target, at in reached.items() if at is not None},
        "local_accuracy_mean": final.pop("local_accuracy"),
        **final,
        "communications": int(series(curve, "communications")[last]),
        "bytes_down": int(series(curve, "bytes_down")[last]),
        "bytes_up": int(series(curve, "bytes_up")[last]),
        "train_steps": series(curve, "train_steps")[last],
    }


def at_chance(accuracy: float, chance: float, samples: int) -> bool:
    """Return whether an accuracy is within three standard errors of `chance`, that of guessing, or below."""
    return accuracy <= chance + 3 * math.sqrt(chance * (1 - chance) / samples)


def rows_of(
    unit: RunSpec, progress: Progress, facts: Mapping[str, Any], *, chance: float, test_samples: int
) -> list[tuple[dict[str, Any], list[Point]]]:
    """Make the (row, curve) pairs of a finished or stopped run.

    `facts` are the columns that the engine does not know: provenance, cost, `status`. `chance` is the accuracy of the
    best guess, one class for all samples, and with `test_samples` gives its standard error.
    """
    rows = []
    short = unit.shortened or (unit.paper is None and unit.setting.rounds < Setting.rounds)
    for suffix in unit.rows:
        curve = progress.curves[suffix]
        results = summarise(curve)
        # Guessing is no sign of divergence in a run that was cut short and may have hardly begun, nor in a client that
        # has one class and nobody to learn from.
        should_learn = not short and not row_entry(unit.algorithm, suffix).reference
        guesses = should_learn and at_chance(results["final_accuracy"], chance, test_samples)
        outcome = {"error": progress.complaint or None, "diverged": progress.diverged or guesses}
        rows.append(({**_common(unit, suffix), **results, **facts, **outcome}, curve))
    return rows


def failed_rows(unit: RunSpec, error: str, facts: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Make the rows of a run that failed, without results. `facts`: as of `rows_of`."""
    empty = {**dict.fromkeys(RESULT_COLUMNS), "error": error, "diverged": False}
    return [{**_common(unit, suffix), **empty, **facts} for suffix in unit.rows]


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
            row = simulation.algorithm.evaluated(simulation.server)[suffix]
            of_setting = {name: getattr(simulation.setting, name) for name in ("dataset", "model", "precision")}
            metadata = {"run_key": key, "algorithm": names[suffix], "round": str(simulation.round), **of_setting}
            written[key].append(artifacts.write_tensors(out, key, _tensors(simulation, row), metadata))
        written[key].append(artifacts.write_arrays(out, key, {**simulation.tracker.arrays(suffix), **facts}))
    return written


def _tensors(simulation: Simulation, row: Params) -> dict[str, Any]:
    """Return the row's tensors by name, and by `client/name` those that each client adds to a personal model."""
    tensors = dict(row)
    personal = set(row) != set(simulation.net.names)
    for client in range(simulation.fed.num_clients if personal else 0):
        model = simulation.local_model(row, client)
        tensors |= {f"{client}/{name}": value for name, value in model.items() if name not in row}
    for name, listed in simulation.net.tied.items():  # under all names, as a module takes them
        keys = [key for key in tensors if key.rpartition("/")[2] == listed]
        tensors |= {key.removesuffix(listed) + name: tensors[key] for key in keys}
    return {name: value.detach().cpu().contiguous().numpy() for name, value in tensors.items()}

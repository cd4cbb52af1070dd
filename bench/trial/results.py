"""From a run to its result rows: the columns that `leaderboards.rows.schema` defines."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from bench.planning.run_spec import RunSpec, row_entry
from leaderboards import SCHEMA_VERSION, identity_columns
from search_spaces import Setting

if TYPE_CHECKING:
    from bench.engine.simulation import Point, Progress

SMOOTHING = 0.6
MILESTONES = (1, 2, 5, 10, 20, 30, 50, 100, 200, 300, 500, 1000)
TARGETS = tuple(percent / 100 for percent in range(5, 100, 5))
RESULT_COLUMNS = (
    "best_accuracy",
    "best_round",
    "final_accuracy",
    "selected_accuracy",
    "selected_round",
    "best_val_accuracy",
    "mean_last10_accuracy",
    "ema_accuracy",
    "accuracy_at",
    "rounds_to",
    "local_accuracy_mean",
    "amp",
    "fm",
    "wlp",
    "communications",
    "bytes_down",
    "bytes_up",
    "train_steps",
)


def series(curve: Sequence[Point], metric: str) -> dict[int, float]:
    """Round -> value of one metric, in order of rounds."""
    return {at: value for at, name, value in curve if name == metric}


def summarise(curve: Sequence[Point]) -> dict[str, Any]:
    """Compute the result columns of one row.

    Args:
        curve: (round, metric, value) with at least one `accuracy` and the counters.

    Returns:
        The columns of `RESULT_COLUMNS`, `None` if the curve lacks them. `selected_*` is the test accuracy at
        the first round of the best validation accuracy; `ema_accuracy` is the last value of e <- 0.6 e + 0.4 a, as
        FedNTD's authors print; `fm`, `amp` and `wlp` are those of the last round.
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


def at_chance(accuracy: float, num_classes: int, samples: int) -> bool:
    """Whether an accuracy is within three standard errors of guessing, or below."""
    chance = 1 / num_classes
    return accuracy <= chance + 3 * math.sqrt(chance * (1 - chance) / samples)


def rows_of(
    unit: RunSpec, progress: Progress, facts: Mapping[str, Any], *, num_classes: int, test_samples: int
) -> list[tuple[dict[str, Any], list[Point]]]:
    """Make the (row, curve) pairs of a finished or stopped run.

    Args:
        unit: the run.
        progress: its curves and counters.
        facts: the columns that the engine does not know: provenance, cost, `status`.
        num_classes: C, which tells the accuracy of guessing.
        test_samples: size of the test set, which tells its standard error.
    """
    rows = []
    short = unit.shortened or (unit.paper is None and unit.setting.rounds < Setting.rounds)
    for suffix in unit.rows:
        curve = progress.curves[suffix]
        results = summarise(curve)
        # Not telling: a run that was cut short may have hardly begun, and a client that has one class and nobody to
        # learn from guesses by right.
        telling = not short and not row_entry(unit.algorithm, suffix).reference
        lost = telling and at_chance(results["final_accuracy"], num_classes, test_samples)
        ended = {"error": progress.complaint or None, "diverged": progress.diverged or lost}
        rows.append(({**_common(unit, suffix), **results, **facts, **ended}, curve))
    return rows


def failed_rows(unit: RunSpec, error: str, facts: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Make the rows of a run that failed, without results. `facts`: as of `rows_of`."""
    empty = {**dict.fromkeys(RESULT_COLUMNS), "error": error, "diverged": False}
    return [{**_common(unit, suffix), **empty, **facts} for suffix in unit.rows]


def _common(unit: RunSpec, suffix: str) -> dict[str, Any]:
    """Identity, and the columns that plan and schema decide."""
    return {
        **identity_columns(*unit.identity(row_entry(unit.algorithm, suffix))),
        "paper": unit.paper,
        "shortened": unit.shortened,
        "selected_on": "validation" if unit.setting.validation_fraction else "none",
        "schema_version": SCHEMA_VERSION,
    }


def now() -> datetime:
    """The time, in UTC, to the microsecond."""
    return datetime.now(UTC)

"""From a run to its result rows: the columns that `leaderboards.schema` defines."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from bench.planning.unit import Unit, row_entry
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
    """The result columns of one row.

    Args:
        curve: (round, metric, value) with at least one `accuracy` and the counters.

    Returns:
        The columns of `RESULT_COLUMNS`; `None` where the run has no such thing. `selected_*` is the test accuracy at
        the first round of the best validation accuracy; `ema_accuracy` is the last value of e <- 0.6 e + 0.4 a, as
        FedNTD's authors print; `fm`, `amp` and `wlp` are those of the last round.
    """
    accuracy, validation = series(curve, "accuracy"), series(curve, "val_accuracy")
    last = max(accuracy)
    best = max(accuracy, key=lambda at: (accuracy[at], -at))
    selected = max(validation, key=lambda at: (validation[at], -at)) if validation else None
    recent = [accuracy[at] for at in sorted(accuracy)][-10:]
    final = {name: series(curve, name).get(last) for name in ("local_accuracy", "amp", "fm", "wlp")}
    return {
        "best_accuracy": accuracy[best],
        "best_round": best,
        "final_accuracy": accuracy[last],
        "selected_accuracy": None if selected is None else accuracy[selected],
        "selected_round": selected,
        "best_val_accuracy": None if selected is None else validation[selected],
        "mean_last10_accuracy": math.fsum(recent) / len(recent),
        "ema_accuracy": _smoothed(accuracy),
        "accuracy_at": {at: accuracy[at] for at in MILESTONES if at in accuracy},
        "rounds_to": _rounds_to(accuracy),
        "local_accuracy_mean": final.pop("local_accuracy"),
        **final,
        "communications": int(series(curve, "communications")[last]),
        "bytes_down": int(series(curve, "bytes_down")[last]),
        "bytes_up": int(series(curve, "bytes_up")[last]),
        "train_steps": series(curve, "train_steps")[last],
    }


def _smoothed(accuracy: Mapping[int, float]) -> float:
    values = [accuracy[at] for at in sorted(accuracy)]
    smooth = values[0]
    for value in values[1:]:
        smooth = SMOOTHING * smooth + (1 - SMOOTHING) * value
    return smooth


def _rounds_to(accuracy: Mapping[int, float]) -> dict[float, int]:
    """Target -> first round that reached it, for the targets that were reached."""
    reached: dict[float, int] = {}
    for target in TARGETS:
        at = next((at for at in sorted(accuracy) if accuracy[at] >= target), None)
        if at is not None:
            reached[target] = at
    return reached


def at_chance(accuracy: float, num_classes: int, samples: int) -> bool:
    """Whether an accuracy is within three standard errors of guessing, or below."""
    chance = 1 / num_classes
    return accuracy <= chance + 3 * math.sqrt(chance * (1 - chance) / samples)


def _short(unit: Unit) -> bool:
    """Whether a run was cut short; where no paper says how long it should be, by the usual number of rounds."""
    return unit.shortened or (unit.paper is None and unit.setting.rounds < Setting.rounds)


def rows_of(
    unit: Unit, progress: Progress, facts: Mapping[str, Any], *, num_classes: int, test_samples: int
) -> list[tuple[dict[str, Any], list[Point]]]:
    """The (row, curve) pairs of a finished or stopped run.

    Args:
        unit: the run.
        progress: its curves and counters.
        facts: the columns that the engine does not know: provenance, cost, `status`.
        num_classes: C, for telling chance.
        test_samples: size of the test set, likewise.
    """
    made = []
    for suffix in unit.rows:
        curve = progress.curves[suffix]
        results = summarise(curve)
        # A run that was cut short may be at chance because it has hardly begun; a client that has one class and nobody
        # to learn from is there by right.
        telling = not _short(unit) and not row_entry(unit.algorithm, suffix).reference
        lost = telling and at_chance(results["final_accuracy"], num_classes, test_samples)
        diverged = progress.diverged or lost
        made.append(
            (
                {
                    **_common(unit, suffix),
                    **results,
                    **facts,
                    "error": progress.complaint or None,
                    "diverged": diverged,
                },
                curve,
            )
        )
    return made


def failed_rows(unit: Unit, error: str, facts: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The rows of a run that failed: who it was and why, no results. `facts`: as of `rows_of`."""
    empty = {**dict.fromkeys(RESULT_COLUMNS), "error": error, "diverged": False}
    return [{**_common(unit, suffix), **empty, **facts} for suffix in unit.rows]


def _common(unit: Unit, suffix: str) -> dict[str, Any]:
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


def from_seconds(since: float) -> datetime:
    """The time so many seconds after 1970 began, in UTC."""
    return datetime.fromtimestamp(since, UTC)

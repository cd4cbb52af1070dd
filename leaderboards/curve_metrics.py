"""Metrics that are read off curves on request: accuracy at a round, the cost of reaching a target.

`accuracy@50` is the test accuracy after round 50. `rounds@70` is the first round whose test accuracy is 70 % or more;
`comms@70`, `down@70`, `up@70` and `steps@70` are the exchanges, bytes and local steps until then. If clients keep
samples to test on, a curve has at its last round the accuracy on the samples of each, `client_accuracy/0` and so on
(FedKF, section 3); the row and every evaluated round have three statistics of these, `amp`, `fm` and `wlp`.
"""

from __future__ import annotations

import difflib
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import TYPE_CHECKING

from leaderboards.metrics import METRICS, Metric
from leaderboards.published import PrintedMetric
from leaderboards.rows.frames import by_run

if TYPE_CHECKING:
    import pandas as pd

    from leaderboards.rows.store import Folders

Curve = Mapping[str, Mapping[int, float]]  # metric -> round -> value

FORMS = ("accuracy@ROUND", "rounds@PERCENT", "comms@PERCENT", "down@PERCENT", "up@PERCENT", "steps@PERCENT")
_NAMED = METRICS | {metric.short: metric for metric in METRICS.values()}
_COSTS = {"comms": "communications", "down": "bytes_down", "up": "bytes_up", "steps": "train_steps"}


@dataclass(frozen=True)
class CurveMetric(Metric):
    """A metric with the rule by which it is read off a curve."""

    rule: PrintedMetric = field(kw_only=True)


def metric_named(name: str) -> Metric:
    """Find a metric of `METRICS` by its column or short name, or make one that is read off curves.

    Raises:
        KeyError: no metric has that name; the message lists all and the nearest.
    """
    if match := re.fullmatch(r"accuracy@(\d+)", name):
        rule = PrintedMetric(name, "accuracy", "at_round", float(match[1]))
        return CurveMetric(name, name, METRICS["final_accuracy"].quantity, f"round {int(match[1])}", rule=rule)
    if match := re.fullmatch(rf"(rounds|{'|'.join(_COSTS)})@(\d+(?:\.\d+)?)", name):
        if not 1 <= float(match[2]) <= 100:
            raise KeyError(f"{name}: a target is a test accuracy in percent, from 1 to 100")
        quantity, percent = _COSTS.get(match[1], "rounds"), Fraction(match[2])
        rule = PrintedMetric(name, quantity, "to_target", float(percent / 100))  # exact: 57.9 / 100 > 0.579 in floats
        base = METRICS.get(quantity, Metric("rounds", "rounds", "communication rounds", "", "", 1.0, 1, False))
        of = f"until {float(percent):g} % test accuracy"
        return CurveMetric(name, name, base.quantity, of, base.unit, base.scale, base.decimals, False, rule=rule)
    if name not in _NAMED:
        near = difflib.get_close_matches(name, _NAMED, n=1, cutoff=0.5)
        hint = f" (did you mean {near[0]}?)" if near else ""
        names = ", ".join(f"{metric.short} ({metric.name})" for metric in METRICS.values())
        raise KeyError(f"no metric {name!r}{hint}; known: {names}; read off curves: {', '.join(FORMS)}")
    return _NAMED[name]


def add_curve_metrics(runs: pd.DataFrame, metrics: Sequence[Metric], source: Folders) -> pd.DataFrame:
    """Add to `runs` a column for each curve metric among `metrics`; empty for a run without a value.

    Raises leaderboards.StoreError if a curve cannot be read.
    """
    curve_metrics = [metric for metric in metrics if isinstance(metric, CurveMetric)]
    if not curve_metrics:
        return runs
    curves = by_run(source.curves(set(runs.loc[runs["status"] == "finished", "run_key"])))

    def column(metric: CurveMetric) -> list[float]:
        values = (value_of(metric.rule, curves.get(key, {})) for key in runs["run_key"])
        return [math.nan if value is None else value for value in values]

    return runs.assign(**{metric.name: column(metric) for metric in curve_metrics})


def value_of(metric: PrintedMetric, curve: Curve, read_to: int | None = None) -> float | None:
    """Read a metric off a run's curve; None if the curve lacks it, or never reaches the target.

    With `read_to`, read it as if the run had ended after so many rounds.
    """
    series = {
        name: {at: value for at, value in points.items() if not read_to or at <= read_to}
        for name, points in curve.items()
    }
    accuracy = series.get("accuracy", {})
    if metric.rule == "at_round":
        at: int | None = int(metric.argument or 0)
    elif metric.rule == "to_target":
        at = min((at for at, value in accuracy.items() if value >= (metric.argument or 0.0)), default=None)
    elif metric.rule in ("best", "selected"):
        ranked = accuracy if metric.rule == "best" else series.get("val_accuracy", {})
        at = max(ranked, key=lambda at: (ranked[at], -at), default=None)
    else:
        at = max(accuracy, default=None)
    if at is None:
        return None
    return float(at) if metric.quantity == "rounds" else series.get(metric.quantity, {}).get(at)

"""Metrics that are read off curves when they are asked for: accuracy at a round, what it took to reach a target.

`accuracy@50` is the test accuracy after round 50. `rounds@70` is the first round whose test accuracy is 70 % or more;
`comms@70`, `down@70`, `up@70` and `steps@70` are the exchanges, bytes and local steps until then.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import TYPE_CHECKING

from leaderboards.beside import value_of
from leaderboards.frames import by_run
from leaderboards.metrics import METRICS, Metric, find_metric
from leaderboards.published import PrintedMetric

if TYPE_CHECKING:
    import pandas as pd

    from leaderboards.folders import Results

FORMS = ("accuracy@ROUND", "rounds@PERCENT", "comms@PERCENT", "down@PERCENT", "up@PERCENT", "steps@PERCENT")
_COSTS = {"comms": "communications", "down": "bytes_down", "up": "bytes_up", "steps": "train_steps"}


@dataclass(frozen=True)
class Derived(Metric):
    """A metric with the rule by which it is read off a curve."""

    rule: PrintedMetric = field(kw_only=True)

    @property
    def differs_by_seed(self) -> bool:
        """It does, also a cost: it is one until a target."""
        return True


def metric_named(name: str) -> Metric:
    """A metric of `METRICS`, by either of its names, or a derived one.

    Raises:
        KeyError: there is no such metric; the message lists what there is.
    """
    if match := re.fullmatch(r"accuracy@(\d+)", name):
        return _at_round(name, int(match[1]))
    if match := re.fullmatch(rf"(rounds|{'|'.join(_COSTS)})@(\d+(?:\.\d+)?)", name):
        if not 1 <= float(match[2]) <= 100:
            raise KeyError(f"{name}: a target is a test accuracy in percent, from 1 to 100")
        return _to_target(name, match[1], Fraction(match[2]))  # exact: 57.9 / 100 is above 0.579 in floats
    try:
        return find_metric(name)
    except KeyError as error:
        raise KeyError(f"{error.args[0]}; read off curves: {', '.join(FORMS)}") from None


def add_derived(runs: pd.DataFrame, metrics: Sequence[Metric], source: Results) -> pd.DataFrame:
    """`runs` with a column for each derived metric among `metrics`; empty where a run has no such value.

    Raises:
        leaderboards.StoreError: a curve cannot be read.
    """
    derived = [metric for metric in metrics if isinstance(metric, Derived)]
    if not derived:
        return runs
    curves = by_run(source.curves(set(runs.loc[runs["status"] == "finished", "run_key"])))
    columns = {
        metric.name: [value_of(metric.rule, curves.get(key, {})) for key in runs["run_key"]] for metric in derived
    }
    return runs.assign(**{name: _numbers(values) for name, values in columns.items()})


def _numbers(values: Sequence[float | None]) -> list[float]:
    return [float("nan") if value is None else value for value in values]


def _at_round(name: str, at: int) -> Metric:
    final = METRICS["final_accuracy"]
    rule = PrintedMetric(name, "accuracy", "at_round", float(at))
    return Derived(name, name, final.quantity, f"round {at}", rule=rule)


def _to_target(name: str, cost: str, percent: Fraction) -> Metric:
    quantity = _COSTS.get(cost, "rounds")
    like = METRICS.get(quantity, Metric("rounds", "rounds", "communication rounds", "", "", 1.0, 1, False))
    rule = PrintedMetric(name, quantity, "to_target", float(percent / 100))
    of = f"until {float(percent):g} % test accuracy"
    return Derived(name, name, like.quantity, of, like.unit, like.scale, like.decimals, False, rule=rule)

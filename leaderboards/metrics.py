"""The metrics of a leaderboard: the column of `runs` each is taken from, how it is printed, and which way is better."""

from __future__ import annotations

import difflib
from dataclasses import dataclass


@dataclass(frozen=True)
class Metric:
    """One metric.

    Args:
        name: column of `runs`; a leaderboard has `<name>_mean`, `_std`, `_low`, `_high` and `_rank`.
        short: heading of a table's column, also accepted on the command line.
        meaning: what is measured, for the caption.
        unit: as printed; empty for a plain number.
        scale: printed number = scale x stored number.
        decimals: digits after the point when printed.
        higher_is_better: whether rank 1 is the largest.
    """

    name: str
    short: str
    meaning: str
    unit: str = "%"
    scale: float = 100.0
    decimals: int = 2
    higher_is_better: bool = True


_GLOBAL = "accuracy of the global model on the test set"

METRICS: dict[str, Metric] = {
    metric.name: metric
    for metric in (
        Metric("best_accuracy", "best", f"{_GLOBAL}, best round"),
        Metric("final_accuracy", "final", f"{_GLOBAL}, last round"),
        Metric("selected_accuracy", "selected", f"{_GLOBAL}, at the round of the best validation accuracy"),
        Metric("best_val_accuracy", "validation", "accuracy of the global model on the validation split, best round"),
        Metric("mean_last10_accuracy", "last10", f"{_GLOBAL}, mean of the last 10 evaluations"),
        Metric("ema_accuracy", "ema", f"{_GLOBAL}, smoothed with 0.6, last round"),
        Metric("local_accuracy_mean", "local", "accuracy of the clients' own models, mean over clients"),
        Metric("amp", "amp", "accuracy over all clients' local test splits (AMP)"),
        Metric("fm", "fm", "variance of accuracy between clients (FM)", "x 1e-4", 1e4, 2, False),
        Metric("wlp", "wlp", "accuracy of the worst client (WLP)"),
        Metric("communications", "comms", "exchanges between server and clients", "", 1.0, 0, False),
        Metric("bytes_down", "down", "sent by the server", "MB", 1e-6, 2, False),
        Metric("bytes_up", "up", "sent by the clients", "MB", 1e-6, 2, False),
        Metric("train_steps", "steps", "optimiser steps of all clients", "", 1.0, 0, False),
        Metric("seconds", "time", "wall-clock time of a run", "s", 1.0, 1, False),
    )
}
_SHORT = {metric.short: metric for metric in METRICS.values()}


def find_metric(name: str) -> Metric:
    """The metric called `name`, by its column or its short name (`best` is `best_accuracy`).

    Raises:
        KeyError: no metric has that name; the message lists all and the nearest.
    """
    found = METRICS.get(name) or _SHORT.get(name)
    if found is None:
        known = [f"{metric.short} ({metric.name})" for metric in METRICS.values()]
        near = difflib.get_close_matches(name, [*METRICS, *_SHORT], n=1, cutoff=0.5)
        hint = f" (did you mean {near[0]}?)" if near else ""
        raise KeyError(f"no metric {name!r}{hint}; known: {', '.join(known)}")
    return found

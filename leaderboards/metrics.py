"""The metrics of a leaderboard: the column of `runs` each is taken from, how it is printed, and which way is better."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Metric:
    """A metric of a leaderboard.

    Args:
        name: column of `runs`; a leaderboard has `<name>_mean`, `_std`, `_low`, `_high` and `_rank`.
        short: heading of a table's column, also accepted on the command line.
        quantity: what is measured, for the caption.
        of: the round, model or party that it is of; empty if that is obvious.
        unit: printed unit; empty for a plain number.
        scale: printed number = scale x stored number.
        decimals: digits after the point when printed.
        higher_is_better: whether rank 1 is the largest.
        differs_by_seed: whether its values are compared over seeds; costs of whole runs are not.
    """

    name: str
    short: str
    quantity: str
    of: str = ""
    unit: str = "%"
    scale: float = 100.0
    decimals: int = 2
    higher_is_better: bool = True
    differs_by_seed: bool = True


CLIENT_ACCURACY = "client_accuracy/"  # and the client's number: a curve's metric, on the client's local test split
_TEST = "accuracy of the global model on the test set"
_VALIDATION = "accuracy of the global model on the validation split"

METRICS: dict[str, Metric] = {
    metric.name: metric
    for metric in (
        Metric("best_accuracy", "best", _TEST, "best round by the test set"),
        Metric("final_accuracy", "final", _TEST, "last round"),
        Metric("selected_accuracy", "selected", _TEST, "round of the best validation accuracy"),
        Metric("best_val_accuracy", "validation", _VALIDATION, "best round"),
        Metric("mean_last10_accuracy", "last10", _TEST, "mean of the last 10 evaluations"),
        Metric("ema_accuracy", "ema", _TEST, "smoothed with 0.6, last round"),
        Metric("local_accuracy_mean", "local", "accuracy of the clients' own models", "mean over clients"),
        Metric("amp", "amp", "accuracy on the clients' local test splits", "all examples pooled"),
        Metric("fm", "fm", "variance of accuracy between clients", "", "x 1e-3", 1e3, 3, False),
        Metric("wlp", "wlp", "accuracy on the clients' local test splits", "worst client"),
        Metric("communications", "comms", "exchanges between server and clients", "", "", 1.0, 0, False, False),
        Metric("bytes_down", "down", "traffic", "from the server", "MB", 1e-6, 2, False, False),
        Metric("bytes_up", "up", "traffic", "from the clients", "MB", 1e-6, 2, False, False),
        Metric("train_steps", "steps", "local steps of a client", "", "", 1.0, 0, False, False),
        Metric("seconds", "time", "wall-clock time of a run", "", "s", 1.0, 2, False, False),
    )
}

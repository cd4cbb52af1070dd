"""Execution of planned runs as trials, by Ray Tune or inline.

`trainable(name)` makes a `tune.Trainable` class for use in any `Tuner`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ray import tune


def trainable(algorithm: str, **defaults: Any) -> type[tune.Trainable]:
    """Make a `tune.Trainable` class that runs federated simulations of one algorithm.

    Args:
        algorithm: registry name.
        defaults: values for the trial's configuration, which it may override: hyper-parameters and setting fields by
            name (`setting`, a mapping, takes fields as well), `dataset`, `paper`, `seed`, `out`, `data_dir`, `offline`,
            `device`, `backend`, `track`, `rounds_per_report` (1).

    Returns:
        A class named after the algorithm. Each `step` trains `rounds_per_report` rounds, and further ones up to an
        evaluated round. It reports `round` and `training_iteration`, which are equal, `done`, `status`, `objective`
        (the mean validation accuracy of the last ten evaluations, less 1 of a run that diverged, -1 of one that
        failed), `best_accuracy` and the curve's metrics of that round, such as `accuracy`, `val_accuracy`, `loss`,
        `bytes_down` and `bytes_up`; a number that the run does not have is left out. The finished run's row goes to
        `out`. Schedulers that copy checkpoints between trials (`PopulationBasedTraining`, `PB2`) are not supported.

    Raises:
        UsageError: no such algorithm, or a default has an unknown name or a value that is not allowed.
    """
    from bench.executors.ray_trainable import make_trainable

    return make_trainable(algorithm, defaults)


__all__ = ["trainable"]

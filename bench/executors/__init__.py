"""Execution of planned runs as trials, by Ray Tune or inline.

`trainable(name)` makes a `tune.Trainable` class for use in any `Tuner`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

    from algorithms.base import Algorithm
    from bench.executors.ray_trainable import FederatedTrainable


def trainable(
    algorithm: str | type[Algorithm] | Callable[..., Algorithm], **defaults: Any
) -> type[FederatedTrainable]:
    """Make a `tune.Trainable` class that runs federated simulations of one algorithm.

    Args:
        algorithm: registry name, `module:name`, or the class itself, which extends
            `algorithms.base.Algorithm` or `Plugin` (or a function that makes such an algorithm). A
            class may be of a script or a notebook, and is then shipped to workers by value. Its
            rows are named `module:Class`, with a script's file for the module, and `__main__:Class`
            of a notebook; its run keys follow the source, unless it states a `version`.
        defaults: values for the trial's configuration, which it may override: hyper-parameters and
            setting fields by name (`setting`, a mapping, takes fields as well), `dataset`, `paper`,
            `seed`, `out`, `data_dir`, `offline`, `device`, `backend`, `track`, `rounds_per_report`
            (1).

    Returns:
        A class named after the algorithm. Each `step` trains `rounds_per_report` rounds, and
        further ones up to an evaluated round. It reports `round` and `training_iteration`, which
        are equal, `done`, `status`, `objective` (the mean validation accuracy of the last ten
        evaluations, less 1 of a run that diverged), `best_accuracy` and the curve's metrics of that
        round, such as `accuracy`, `val_accuracy`, `loss`, `bytes_down` and `bytes_up`; a number
        that the run does not have is left out, and a loss that is not finite is infinite. A run
        that fails raises RuntimeError, so that Tune may try it again. The run's row goes to `out`.
        Schedulers that copy checkpoints between trials (`PopulationBasedTraining`, `PB2`) are not
        supported.

    Raises:
        UsageError: no such algorithm, no source of a notebook's class, or a default has an unknown
            name or a value that is not allowed.
    """
    from bench.executors.ray_trainable import make_trainable

    return make_trainable(algorithm, defaults)


__all__ = ["trainable"]

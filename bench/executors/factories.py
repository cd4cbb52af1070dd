"""Samplers of Optuna and schedulers of Ray Tune, also a user's own, named by `module:factory`.

Imports neither torch nor ray.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TypeVar

from algorithms.entry_points import Kind
from bench.errors import UsageError, describe

if TYPE_CHECKING:
    from optuna.samplers import BaseSampler
    from ray.tune.schedulers import FIFOScheduler

Product = TypeVar("Product")
SAMPLER = Kind("sampler", "fedkd_bench.samplers", UsageError)
SCHEDULER = Kind("scheduler", "fedkd_bench.schedulers", UsageError)
# What schedulers compare: the validation accuracy of `chosen_by`, at equal rounds.
COMPARED: Mapping[str, Any] = {"time_attr": "round", "metric": "objective", "mode": "max"}


def make_sampler(path: str, seed: int) -> BaseSampler:
    """Make the sampler that proposes configurations.

    Args:
        path: `module:factory`, called as `factory(seed=seed)`, such as
            `optuna.samplers:QMCSampler`; empty for Optuna's TPE.
        seed: of the sampler.

    Raises:
        UsageError: it cannot be imported, the call fails, or its result is no sampler.
    """
    from optuna.samplers import BaseSampler, TPESampler

    if not path:
        return TPESampler(seed=seed)
    return _product_of(SAMPLER, path, BaseSampler, {"seed": seed})  # type: ignore[type-abstract]


def make_scheduler(path: str) -> FIFOScheduler:
    """Make a scheduler that compares the trials of one contest.

    Args:
        path: `module:factory`, called with the keywords of `COMPARED`, such as
            `ray.tune.schedulers:MedianStoppingRule`.

    Raises:
        UsageError: it cannot be imported, the call fails, or its result is no scheduler, or one
            that chooses which trial runs next, as HyperBand and population-based training do.
    """
    from ray.tune.schedulers import FIFOScheduler

    scheduler = _product_of(SCHEDULER, path, FIFOScheduler, COMPARED)
    if type(scheduler).choose_trial_to_run is not FIFOScheduler.choose_trial_to_run:
        kind = type(scheduler).__name__
        raise SCHEDULER.error(
            path,
            f"a {kind} chooses which trial runs next, and here each contest has a scheduler of its "
            "own: use one that only stops trials, such as ray.tune.schedulers:MedianStoppingRule",
        )
    return scheduler


@contextmanager
def naming(kind: Kind, path: str) -> Iterator[None]:
    """Raise an error of the context, which calls a user's sampler or scheduler, as its own.

    Raises:
        UsageError: it names the plug-in, the error and its line.
    """
    try:
        yield
    except Exception as error:
        advice = "stored runs stay; mend it and give the same command"
        raise kind.error(path, f"it raises {describe(error)}; {advice}") from error


def _product_of(
    kind: Kind, path: str, wanted: type[Product], keywords: Mapping[str, Any]
) -> Product:
    from optuna.exceptions import ExperimentalWarning

    factory = kind.load(path, path)
    call = ", ".join(f"{name}={value!r}" for name, value in keywords.items())
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ExperimentalWarning)  # the user asked for the sampler
            product = factory(**keywords)
    except Exception as error:
        raise kind.error(
            path, f"called with {call}, it raises {type(error).__name__}: {error}"
        ) from error
    if not isinstance(product, wanted):
        raise kind.error(
            path,
            f"called with {call}, it must return a {wanted.__module__}.{wanted.__name__}, got "
            f"{type(product).__name__}",
        )
    return product

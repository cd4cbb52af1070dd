"""ASHA among like: a sweep's trials run side by side, and each competes with those of its algorithm and setting."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ray.tune.experiment import Trial as TuneTrial
from ray.tune.schedulers import ASHAScheduler, FIFOScheduler

from bench.planning.unit import Unit


def asha(rounds: int) -> ASHAScheduler:
    """Tune's ASHA over the reports of trials of so many rounds."""
    return ASHAScheduler(
        time_attr="round", metric="objective", mode="max", max_t=rounds, grace_period=max(1, rounds // 10)
    )


def contest(units: Sequence[Unit]) -> Any:
    """What a trial shares with those that it competes with: at another alpha all may learn more slowly."""
    return units[0].algorithm, units[0].setting


class Contests(FIFOScheduler):
    """One ASHA for each contest; no trial waits for another contest to end.

    Args:
        trials: the units of each trial, whose configuration is its `index` here.
    """

    def __init__(self, trials: Sequence[Sequence[Unit]]) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        rules = {contest(units): asha(units[0].setting.rounds) for units in trials}
        self._rules: list[ASHAScheduler] = [rules[contest(units)] for units in trials]

    def on_trial_add(self, tune_controller: Any, trial: TuneTrial) -> None:
        """It enters its contest."""
        self._rule(trial).on_trial_add(tune_controller, trial)

    def on_trial_result(self, tune_controller: Any, trial: TuneTrial, result: Mapping[str, Any]) -> str:
        """Whether it goes on, as its contest stands."""
        return str(self._rule(trial).on_trial_result(tune_controller, trial, dict(result)))

    def on_trial_complete(self, tune_controller: Any, trial: TuneTrial, result: Mapping[str, Any]) -> None:
        """Its last result counts in its contest."""
        self._rule(trial).on_trial_complete(tune_controller, trial, dict(result))

    def on_trial_remove(self, tune_controller: Any, trial: TuneTrial) -> None:
        """It leaves its contest."""
        self._rule(trial).on_trial_remove(tune_controller, trial)

    def _rule(self, trial: TuneTrial) -> ASHAScheduler:
        index: int = trial.config["index"]
        return self._rules[index]

"""ASHA by groups: a sweep's trials run side by side, and each competes with those of its algorithm and setting."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ray.tune.experiment import Trial
from ray.tune.schedulers import ASHAScheduler, FIFOScheduler

from bench.executors.trials import contest
from bench.planning.run_spec import RunSpec
from bench.trial.halving import FACTOR, rungs_of
from search_spaces import Setting


def asha(setting: Setting) -> ASHAScheduler:
    """Tune's ASHA over the reports of trials of a setting.

    Its rungs are those of packs: evaluated rounds, because trials without a value could not be told apart.
    """
    first = next(iter(rungs_of(setting.rounds, setting.evaluate_every)), setting.rounds)
    return ASHAScheduler(
        time_attr="round",
        metric="objective",
        mode="max",
        max_t=setting.rounds,
        grace_period=first,
        reduction_factor=FACTOR,
    )


def contests_of(trials: Sequence[Sequence[RunSpec]]) -> Contests:
    """The contests of trials whose configuration is an `index` into these."""
    entered = [contest(units) for units in trials]
    rules = {one: asha(units[0].setting) for one, units in dict(zip(entered, trials, strict=True)).items()}
    return Contests("index", [rules[one] for one in entered])


class Contests(FIFOScheduler):
    """One ASHA for each contest; no trial waits for another contest to end.

    A trial's configuration has under `name` an index into `rules`, which are one object within a contest.
    """

    def __init__(self, name: str, rules: Sequence[ASHAScheduler]) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._name, self._rules = name, tuple(rules)

    def on_trial_add(self, tune_controller: Any, trial: Trial) -> None:
        """Add a trial to its contest."""
        self._rule(trial).on_trial_add(tune_controller, trial)

    def on_trial_result(self, tune_controller: Any, trial: Trial, result: Mapping[str, Any]) -> str:
        """Let the contest decide whether the trial goes on."""
        return str(self._rule(trial).on_trial_result(tune_controller, trial, dict(result)))

    def on_trial_complete(self, tune_controller: Any, trial: Trial, result: Mapping[str, Any]) -> None:
        """Count the trial's last result in its contest."""
        self._rule(trial).on_trial_complete(tune_controller, trial, dict(result))

    def on_trial_remove(self, tune_controller: Any, trial: Trial) -> None:
        """Remove a trial from its contest."""
        self._rule(trial).on_trial_remove(tune_controller, trial)

    def _rule(self, trial: Trial) -> ASHAScheduler:
        place: int = trial.config[self._name]
        return self._rules[place]

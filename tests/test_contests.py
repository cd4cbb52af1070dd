"""ASHA among like: trials that run side by side are compared with those of their own algorithm and setting alone."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from ray.tune.schedulers import TrialScheduler

from bench.planning.plan import make_plan
from bench.planning.request import Request
from bench.planning.unit import Unit
from bench.tuning.contests import Contests

GO_ON, STOP = TrialScheduler.CONTINUE, TrialScheduler.STOP


def trials_of(*algorithms: str, **values: tuple[str, ...]) -> list[list[Unit]]:
    """One trial for each configuration."""
    return [[unit] for unit in make_plan(Request(algorithms, values=values)).units]


class Field:
    """Trials under a scheduler, each known by its place."""

    def __init__(self, trials: list[list[Unit]]) -> None:
        self._scheduler = Contests(trials)
        self._trials: list[Any] = [
            SimpleNamespace(trial_id=str(index), config={"index": index}) for index in range(len(trials))
        ]
        for trial in self._trials:
            self._scheduler.on_trial_add(None, trial)

    def reports(self, index: int, round: int, objective: float) -> str:
        """What becomes of the trial that says so."""
        return self._scheduler.on_trial_result(None, self._trials[index], {"round": round, "objective": objective})

    def ends(self, index: int, round: int, objective: float) -> None:
        """The trial is done."""
        self._scheduler.on_trial_complete(None, self._trials[index], {"round": round, "objective": objective})

    def leaves(self, index: int) -> None:
        """The trial goes before it has begun."""
        self._scheduler.on_trial_remove(None, self._trials[index])


def test_a_trial_of_a_hard_cell_does_not_lose_to_those_of_an_easy_one() -> None:
    trials = trials_of("fedprox", mu=("0", "1"), alpha=("100", "0.05"), rounds=("40",))
    alphas = [unit.setting.alpha for (unit,) in trials]
    easy, hard = ([at for at, alpha in enumerate(alphas) if alpha == wanted] for wanted in (100.0, 0.05))
    field = Field(trials)
    assert [field.reports(at, 4, 0.9) for at in easy] == [GO_ON, GO_ON]
    assert field.reports(hard[0], 4, 0.2) == GO_ON
    assert field.reports(hard[1], 4, 0.1) == STOP, "the other one of its cell is better"
    assert field.reports(hard[0], 16, 0.3) == GO_ON


def test_algorithms_do_not_compete_either() -> None:
    field = Field(trials_of("fedavg", "fedprox", mu=("0.1",), rounds=("40",)))
    assert [field.reports(0, 4, 0.9), field.reports(1, 4, 0.1)] == [GO_ON, GO_ON]


@pytest.mark.parametrize(("rounds", "first_rung"), [("40", 4), ("200", 20), ("5", 1)])
def test_the_first_rung_is_a_tenth_of_a_contests_own_rounds(rounds: str, first_rung: int) -> None:
    trials = trials_of("fedprox", mu=("0", "1"), rounds=(rounds, "1000"))
    strong, weak = [at for at, (unit,) in enumerate(trials) if unit.setting.rounds == int(rounds)]
    field = Field(trials)
    if first_rung > 1:
        assert (field.reports(strong, first_rung - 1, 0.9), field.reports(weak, first_rung - 1, 0.1)) == (GO_ON, GO_ON)
    assert (field.reports(strong, first_rung, 0.9), field.reports(weak, first_rung, 0.1)) == (GO_ON, STOP)
    assert field.reports(strong, int(rounds), 0.9) == STOP, "its last round"


def test_what_ended_still_counts_and_what_never_began_does_not() -> None:
    field = Field(trials_of("fedprox", mu=("0", "1", "2"), rounds=("40",)))
    field.leaves(2)
    field.ends(0, 4, 0.9)
    assert field.reports(1, 4, 0.1) == STOP

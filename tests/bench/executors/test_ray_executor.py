"""Cells of a sweep side by side: each has an ASHA and a sampler of its own."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import pytest
from ray import tune
from ray.tune.schedulers import TrialScheduler
from ray.tune.search import Searcher

from bench.api import sweep, trainable
from bench.execution import Execution
from bench.executors import ray_executor
from bench.executors.optuna_search import PastTries, Proposer, decode, proposed_first
from bench.executors.ray_cluster import ClusterLost
from bench.executors.ray_executor import ProposerSearcher, by_contest, run_ray
from bench.executors.runner import RAY_ENVIRONMENT
from bench.executors.trials import by_configuration
from bench.planning.options import SweepOptions
from bench.planning.planner import make_plan
from bench.planning.run_spec import RunSpec

GO_ON, STOP = TrialScheduler.CONTINUE, TrialScheduler.STOP


def trials_of(*algorithms: str, **values: tuple[str, ...]) -> list[list[RunSpec]]:
    """One trial for each configuration."""
    return [[run_spec] for run_spec in make_plan(SweepOptions(algorithms, values=values)).run_specs]


class Field:
    """Trials under a scheduler, each known by its place."""

    def __init__(self, trials: list[list[RunSpec]]) -> None:
        self._scheduler = by_contest("asha", trials)
        self._trials: list[Any] = [
            SimpleNamespace(trial_id=str(index), config={"index": index})
            for index in range(len(trials))
        ]
        for trial in self._trials:
            self._scheduler.on_trial_add(None, trial)

    def reports(self, index: int, round: int, objective: float) -> str:
        """What becomes of the trial that says so."""
        return self._scheduler.on_trial_result(
            None, self._trials[index], {"round": round, "objective": objective}
        )


def test_a_trial_of_a_hard_cell_does_not_lose_to_those_of_an_easy_one() -> None:
    trials = trials_of("fedprox", mu=("0", "1"), alpha=("100", "0.05"), rounds=("40",))
    alphas = [run_spec.setting.alpha for (run_spec,) in trials]
    easy, hard = (
        [at for at, alpha in enumerate(alphas) if alpha == wanted] for wanted in (100.0, 0.05)
    )
    field = Field(trials)
    assert [field.reports(at, 4, 0.9) for at in easy] == [GO_ON, GO_ON]
    assert field.reports(hard[0], 4, 0.2) == GO_ON
    assert field.reports(hard[1], 4, 0.1) == STOP, "the other one of its cell is better"
    assert field.reports(hard[0], 16, 0.3) == GO_ON


@pytest.mark.parametrize(("rounds", "first_rung"), [("40", 4), ("200", 20), ("5", 1)])
def test_the_first_rung_is_a_tenth_of_a_contests_own_rounds(rounds: str, first_rung: int) -> None:
    trials = trials_of("fedprox", mu=("0", "1"), rounds=(rounds, "1000"))
    strong, weak = [
        at for at, (run_spec,) in enumerate(trials) if run_spec.setting.rounds == int(rounds)
    ]
    field = Field(trials)
    if first_rung > 1:
        assert (
            field.reports(strong, first_rung - 1, 0.9),
            field.reports(weak, first_rung - 1, 0.1),
        ) == (GO_ON, GO_ON)
    assert (field.reports(strong, first_rung, 0.9), field.reports(weak, first_rung, 0.1)) == (
        GO_ON,
        STOP,
    )
    assert field.reports(strong, int(rounds), 0.9) == STOP, "its last round"


@pytest.mark.parametrize(("every", "rung"), [("1", 4), ("10", 10), ("3", 6)])
def test_rungs_are_evaluated_rounds(every: str, rung: int) -> None:
    """No rung is before the first value, nor on a round that is not evaluated."""
    field = Field(trials_of("fedprox", mu=("0", "1"), rounds=("40",), evaluate_every=(every,)))
    for round in range(1, rung):
        known = math.nan if round < int(every) else 0.5
        assert [field.reports(at, round, known) for at in (0, 1)] == [GO_ON, GO_ON]
    assert (field.reports(0, rung, 0.9), field.reports(1, rung, 0.1)) == (GO_ON, STOP)


def test_under_asha_cells_are_run_one_after_another() -> None:
    trials = trials_of("fedavg", "fedprox", mu=("0", "1"), alpha=("100", "0.05"), rounds=("5",))
    mixed = trials[::2] + trials[1::2]
    found = by_configuration([run_spec for (run_spec,) in mixed])
    names = [(run_spec.algorithm, run_spec.setting.alpha) for (run_spec,) in found]
    changes = [names[0], *(name for before, name in pairwise(names) if name != before)]
    assert len(changes) == len(set(names)) == 4
    assert sorted(run_spec.key for (run_spec,) in found) == sorted(
        run_spec.key for (run_spec,) in mixed
    )


def proposer_of(*mu: str, samples: int = 10, known: Sequence[float] = ()) -> Proposer:
    """Proposals of one search over FedProx's mu, after stored values of it with 0.25 each."""
    plan = make_plan(
        SweepOptions(("fedprox",), values={"mu": mu}, search="optuna", num_samples=samples)
    )
    past = PastTries(plan.searches[0], known=[({"mu": value}, 0.25) for value in known])
    return Proposer(plan, past)


def test_each_search_proposes_what_it_lacks_and_hears_of_its_own_trials() -> None:
    first, second, stopping = proposer_of("0", "1"), proposer_of("0", "1", "2", samples=2), [False]
    searches = ProposerSearcher([first, second], lambda: stopping[0])
    proposed = [searches.suggest(f"t{number}") for number in range(5)]
    assert [one["search"] for one in proposed[:4]] == [0, 0, 1, 1]
    assert len({json.dumps(one) for one in proposed[:4]}) == 4
    assert proposed[4] == Searcher.FINISHED
    searches.on_trial_complete("t2", {"objective": 0.5})
    searches.on_trial_complete("t0", None, error=True)
    searches.on_trial_complete("t1", {"objective": math.nan, "status": "environment"})
    assert [trial.state.name for trial in first.study.trials] == ["FAIL", "FAIL"], (
        "a sampler takes no NaN"
    )
    told = second.study.trials[0]
    assert (told.state.name, told.value) == ("COMPLETE", 0.5)


def test_a_stopping_sweep_gets_no_more() -> None:
    assert (
        ProposerSearcher([proposer_of("0", "1")], lambda: True).suggest("t0") == Searcher.FINISHED
    )


def test_what_a_sampler_proposes_again_is_told_and_not_tried() -> None:
    proposer = proposer_of("0", "1", "2", "3", "4", "5", samples=3, known=[5.0])
    for mu in (5.0, 1.0, 1.0, 2.0):
        proposer.study.enqueue_trial({"mu": mu})
    assert [asked.params["mu"] for asked in (proposer.propose(), proposer.propose()) if asked] == [
        1.0,
        2.0,
    ]
    assert [(trial.state.name, trial.value) for trial in proposer.study.trials] == [
        ("COMPLETE", 0.25),
        ("COMPLETE", 0.25),
        ("RUNNING", None),
        ("FAIL", None),
        ("RUNNING", None),
    ], "5 is stored, the second 1 is being tried"
    assert proposer.propose() is None


@pytest.mark.parametrize("samples", [3, 5, 6])
def test_as_many_configurations_are_tried_as_are_wanted_each_once(samples: int) -> None:
    proposer = proposer_of("0", "0.1", "0.2", "0.5", "1", "2", samples=samples)
    found = []
    while asked := proposer.propose():
        found.append(asked.params["mu"])
        proposer.tell(asked, -1.0)
    assert len(found) == len(set(found)) == samples


def test_values_that_relations_bind_are_proposed_together() -> None:
    values = {"beta": ("0", "0.3"), "gamma": ("0.2", "0.5")}
    plan = make_plan(SweepOptions(("fedcad",), values=values, search="optuna", num_samples=9))
    (search,) = plan.searches
    found = [decode(search, chosen)[0] for chosen in proposed_first(PastTries(search), 9)]
    pairs = [(0.0, 0.2), (0.0, 0.5), (0.3, 0.5)]
    assert [(one["beta"], one["gamma"]) for one in found] == pairs
    known = [({"beta,gamma": json.dumps(pair)}, 0.5) for pair in pairs]
    assert proposed_first(PastTries(search, known), 9) == []


@pytest.mark.parametrize(
    ("result", "error", "told"),
    [
        ({"objective": 0.25}, False, 0.25),
        ({"objective": 0.25}, True, math.nan),
        (None, True, math.nan),
        (None, False, math.nan),
    ],
)
def test_only_results_without_error_are_told(
    result: dict[str, Any] | None, error: bool, told: float
) -> None:
    proposer = Mock()
    proposer.propose.return_value = SimpleNamespace(params={"mu": 0.1})
    without = Mock()
    without.propose.return_value = None
    searcher = ProposerSearcher([without, proposer], lambda: False)
    assert searcher.suggest("trial") == {"search": 1, "chosen": {"mu": 0.1}}
    searcher.on_trial_complete("trial", result, error)
    ((trial, value),) = [call.args for call in proposer.tell.call_args_list]
    assert trial is proposer.propose.return_value
    assert value == pytest.approx(told, nan_ok=True)


def test_a_stopping_sweep_proposes_nothing() -> None:
    searcher = ProposerSearcher([Mock()], lambda: True)
    assert searcher.suggest("trial") == ProposerSearcher.FINISHED


@pytest.mark.parametrize(("started", "ended"), [(True, ["give_up"]), (False, [])])
def test_a_lost_cluster_is_given_up_by_the_sweep_that_started_it(
    started: bool, ended: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[str] = []

    def lose(*_: object) -> None:
        raise ClusterLost("no node")

    monkeypatch.setattr(ray_executor, "start", lambda _: started)
    monkeypatch.setattr(ray_executor, "concurrent", lambda _: 1)
    monkeypatch.setattr(ray_executor, "_run_trials", lose)
    monkeypatch.setattr(ray_executor, "give_up", lambda: calls.append("give_up"))
    monkeypatch.setattr(ray_executor, "leave", lambda: calls.append("leave"))
    events = Mock()
    run_ray(Mock(searches=()), [[Mock()]], Execution(out=""), events)
    assert calls == ended
    (report,) = events.note.call_args.args
    assert report["error"].startswith("no node; runs that ended are stored")


@pytest.mark.slow
@pytest.mark.usefixtures("shared_ray")
def test_rays_variables_are_as_before_a_sweep(tmp_path: Path) -> None:
    """A Tuner of the user's afterwards would lose its results by them."""
    before = dict(os.environ)
    frame = sweep(
        algo="fedavg", dataset="digits", rounds=1, out=tmp_path / "out", executor="ray"
    ).runs
    assert [*frame["status"]] == ["finished"]
    assert {name: os.environ.get(name) for name in RAY_ENVIRONMENT} == {
        name: before.get(name) for name in RAY_ENVIRONMENT
    }
    tuner = tune.Tuner(
        trainable("fedavg", dataset="digits", rounds=1, out=str(tmp_path / "own")),
        run_config=tune.RunConfig(storage_path=str(tmp_path / "tune"), verbose=0),
    )
    assert tuner.fit().get_dataframe()["accuracy"].notna().all()

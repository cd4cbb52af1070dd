"""Cells of a sweep side by side: each has an ASHA and a sampler of its own."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from ray.tune.schedulers import TrialScheduler
from ray.tune.search import Searcher

from bench.execution import Execution
from bench.planning.plan import make_plan
from bench.planning.request import Request
from bench.planning.unit import Unit
from bench.tuning import cluster
from bench.tuning.contests import contests_of
from bench.tuning.runner import group
from bench.tuning.search import History, decode, proposed_first, varied
from bench.tuning.searches import Searches, sampler
from search_spaces import Range

GO_ON, STOP = TrialScheduler.CONTINUE, TrialScheduler.STOP


def trials_of(*algorithms: str, **values: tuple[str, ...]) -> list[list[Unit]]:
    """One trial for each configuration."""
    return [[unit] for unit in make_plan(Request(algorithms, values=values)).units]


class Field:
    """Trials under a scheduler, each known by its place."""

    def __init__(self, trials: list[list[Unit]]) -> None:
        self._scheduler = contests_of(trials)
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


@pytest.mark.parametrize(("every", "rung"), [("1", 4), ("10", 10), ("3", 6)])
def test_rungs_are_evaluated_rounds(every: str, rung: int) -> None:
    """Before there is a value nothing could be compared, and at rungs that were passed so nothing ever was."""
    field = Field(trials_of("fedprox", mu=("0", "1"), rounds=("40",), evaluate_every=(every,)))
    for round in range(1, rung):
        known = math.nan if round < int(every) else 0.5
        assert [field.reports(at, round, known) for at in (0, 1)] == [GO_ON, GO_ON]
    assert (field.reports(0, rung, 0.9), field.reports(1, rung, 0.1)) == (GO_ON, STOP)


def test_what_ended_still_counts_and_what_never_began_does_not() -> None:
    field = Field(trials_of("fedprox", mu=("0", "1", "2"), rounds=("40",)))
    field.leaves(2)
    field.ends(0, 4, 0.9)
    assert field.reports(1, 4, 0.1) == STOP


def test_under_asha_cells_are_run_one_after_another() -> None:
    trials = trials_of("fedavg", "fedprox", mu=("0", "1"), alpha=("100", "0.05"), rounds=("5",))
    mixed = trials[::2] + trials[1::2]
    found = group([unit for (unit,) in mixed], by_configuration=True)
    names = [(unit.algorithm, unit.setting.alpha) for (unit,) in found]
    changes = [names[0], *(name for before, name in pairwise(names) if name != before)]
    assert len(changes) == len(set(names)) == 4
    assert sorted(unit.key for (unit,) in found) == sorted(unit.key for (unit,) in mixed)


class Sampler(Searcher):
    """Proposes its name with one number after another, the last one for ever; keeps what it is told."""

    def __init__(self, name: str, *numbers: float) -> None:
        super().__init__(metric="objective", mode="max")
        self._name, self._numbers, self.told = name, list(numbers), list[Any]()

    def suggest(self, trial_id: str) -> dict[str, Any]:
        return {self._name: self._numbers.pop(0) if len(self._numbers) > 1 else self._numbers[0]}

    def on_trial_result(self, trial_id: str, result: dict[str, Any]) -> None:
        self.told.append(result["objective"])

    def on_trial_complete(self, trial_id: str, result: dict[str, Any] | None = None, error: bool = False) -> None:
        self.told.append(("ended", (result or {}).get("objective"), error))


def searches_of(wanted: dict[int, int], *samplers: Searcher, stopping: Callable[[], bool] = lambda: False) -> Searches:
    """The searches of samplers; nothing is stored of any."""
    return Searches(dict(enumerate(samplers)), dict.fromkeys(wanted, History()), wanted, stopping)


def test_each_search_proposes_what_it_lacks_and_hears_of_its_own_trials() -> None:
    samplers = Sampler("a", 1, 2), Sampler("b", 1), Sampler("c", 1)
    searches = searches_of({0: 2, 2: 1}, *samplers)
    proposed = [searches.suggest(name) for name in ("t0", "t1", "t2", "t3")]
    chosen = [{"search": 0, "chosen": {"a": 1}}, {"search": 0, "chosen": {"a": 2}}, {"search": 2, "chosen": {"c": 1}}]
    assert proposed == [*chosen, Searcher.FINISHED]
    searches.on_trial_result("t2", {"objective": 0.5})
    searches.on_trial_complete("t2", {"objective": 0.5})
    searches.on_trial_complete("t0", None, error=True)
    assert [one.told for one in samplers] == [[("ended", None, True)], [], [0.5, ("ended", 0.5, False)]]


def test_what_a_sampler_proposes_again_is_told_and_not_tried() -> None:
    repeating = Sampler("a", 7, 1, 1, 2, 1, 3)
    searches = Searches({0: repeating}, {0: History(known=[({"a": 7}, 0.25)])}, {0: 3}, lambda: False)
    assert searches.suggest("t0")["chosen"] == {"a": 1}, "7 is stored"
    assert searches.suggest("t1")["chosen"] == {"a": 2}, "1 is being tried"
    assert repeating.told == [("ended", 0.25, False), ("ended", None, True)]
    searches.on_trial_complete("t0", {"objective": 0.5})
    assert searches.suggest("t2")["chosen"] == {"a": 3}
    assert repeating.told[2:] == [("ended", 0.5, False), ("ended", 0.5, False)]


def test_a_trial_without_a_value_is_a_failed_one_to_its_sampler(caplog: pytest.LogCaptureFixture) -> None:
    (search,) = make_plan(Request(("fedprox",), values={"mu": ("0", "1", "2")}, search="optuna")).searches
    made = sampler(search, History(), [])
    searches = Searches({0: made}, {0: History()}, {0: 2}, lambda: False)
    for name, value in (("t0", math.nan), ("t1", 0.5)):
        searches.suggest(name)
        searches.on_trial_complete(name, {"objective": value, "status": "environment"})
    assert [trial.state.name for trial in made._ot_study.trials] == ["FAIL", "COMPLETE"]
    assert not caplog.records


def test_a_search_whose_sampler_has_nothing_new_leaves_the_others_theirs() -> None:
    searches = searches_of({0: 3, 1: 2}, Sampler("a", 1), Sampler("b", 1, 2))
    proposed = [searches.suggest(name) for name in ("t0", "t1", "t2", "t3")]
    chosen = [(0, {"a": 1}), (1, {"b": 1}), (1, {"b": 2})]
    assert proposed == [*({"search": index, "chosen": one} for index, one in chosen), Searcher.FINISHED]


def test_a_sampler_that_waits_loses_no_trial_and_a_stopping_sweep_gets_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    waiting, stopping = Sampler("a", 1, 2), [False]
    searches = searches_of({0: 2}, waiting, stopping=lambda: stopping[0])
    with monkeypatch.context() as patch:
        patch.setattr(waiting, "suggest", lambda _: None)
        assert searches.suggest("t0") is None
    assert searches.suggest("t0") == {"search": 0, "chosen": {"a": 1}}
    stopping[0] = True
    assert searches.suggest("t1") == Searcher.FINISHED


class Fits:
    """Stands for a sweep: a fit asks for all trials, which fail and leave no row."""

    def __init__(self, out: Path) -> None:
        stop = out / "stop"
        self.execution, self.resources = Execution(out=str(out), stop_file=str(stop)), SimpleNamespace(pack=1)
        self.chosen: list[str] = []

    def run(self, trainable: Any, space: Any, scheduler: Any, searcher: Any = None, samples: int = 1) -> None:
        while (asked := searcher.suggest(name := str(len(self.chosen)))) != Searcher.FINISHED:
            self.chosen.append(json.dumps(asked))
            searcher.on_trial_complete(name, {"objective": -1.0, "status": "failed", "training_iteration": 1})
        assert len(self.chosen) == samples


@pytest.mark.parametrize("force", [False, True])
def test_as_many_configurations_are_tried_as_are_wanted_each_once(force: bool, tmp_path: Path) -> None:
    """Also where all of them fail and leave no row. What is forced is not looked up: the sampler repeats itself."""
    values = {"mu": ("0", "0.1", "0.2", "0.5", "1", "2"), "alpha": ("100", "0.05")}
    request = Request(("fedprox",), values=values, search="optuna", num_samples=5, force=force)
    sweep: Any = Fits(tmp_path)
    cluster._search(make_plan(request), sweep)
    assert len(set(sweep.chosen)) == len(sweep.chosen) == 10


def test_a_sweep_that_is_stopping_begins_no_trials(tmp_path: Path) -> None:
    sweep: Any = Fits(tmp_path)
    (tmp_path / "stop").touch()
    cluster._run_trials(make_plan(Request(("fedavg",))), trials_of("fedavg"), sweep)
    cluster._search(make_plan(Request(("fedprox",), search="optuna", num_samples=2)), sweep)
    assert not sweep.chosen


def test_a_sampler_proposes_first_what_it_is_told() -> None:
    (search,) = make_plan(Request(("fedprox",), values={"mu": ("0", "1", "2", "3")}, search="optuna")).searches
    past = History(known=[({"mu": 0.0}, 0.5)])
    made = sampler(search, past, [{"mu": 3.0}, {"mu": 1.0}])
    assert [made.suggest(name)["mu"] for name in ("a", "b")] == [3.0, 1.0]


@pytest.mark.parametrize(("wanted", "first"), [(4, [3.0, 1.0]), (5, [3.0, 1.0, 2.0, 4.0]), (20, [3.0, 1.0, 2.0, 4.0])])
def test_all_that_is_left_is_proposed_where_all_is_wanted(wanted: int, first: list[float]) -> None:
    """A sampler would repeat itself; where some may be left out, which these are is its choice."""
    values = {"mu": ("0", "1", "2", "3", "4")}
    plan = make_plan(Request(("fedprox",), values=values, search="optuna", num_samples=wanted))
    past = History(known=[({"mu": 0.0}, 0.5)], begun=[{"mu": 3.0}], failed=[{"mu": 1.0}])
    assert [chosen["mu"] for chosen in proposed_first(plan, plan.searches[0], past)] == first


def test_values_that_relations_bind_are_proposed_together_and_intervals_are_left_to_the_sampler() -> None:
    values = {"beta": ("0", "0.3"), "gamma": ("0.2", "0.5")}
    plan = make_plan(Request(("fedcad",), values=values, search="optuna", num_samples=9))
    (search,) = plan.searches
    found = [decode(search, chosen) for chosen in proposed_first(plan, search, History())]
    pairs = [(0.0, 0.2), (0.0, 0.5), (0.3, 0.5)]
    assert [(one["beta"], one["gamma"]) for one in found] == pairs
    known = [({"beta,gamma": json.dumps(pair)}, 0.5) for pair in pairs]
    assert proposed_first(plan, search, History(known)) == []
    interval = replace(search, values={**search.values, "distillation_weight": Range(0.1, 1.0)})
    assert proposed_first(plan, interval, History()) == []


def test_names_of_searches_say_the_cell_where_there_are_several() -> None:
    values = {"mu": ("0", "1"), "alpha": ("100", "0.05")}
    searches = make_plan(Request(("fedprox",), values=values, search="optuna")).searches
    found = varied(searches)
    assert (found["fedprox"].fields, found["fedprox"].hyperparameters) == (("alpha",), ("mu",))
    assert varied(searches[:1])["fedprox"].fields == ()

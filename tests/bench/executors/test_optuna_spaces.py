"""Searches by Optuna: distributions, what is tried first, and which stored results count."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import optuna
import pytest
from optuna.distributions import CategoricalDistribution, FloatDistribution, IntDistribution
from rows import CURVE, failed_row, make_row

from algorithms import entry
from bench.executors import optuna_search
from bench.executors.optuna_search import (
    PastTries,
    Proposer,
    chosen_run_specs,
    decode,
    distributions,
    encode,
    past_tries,
    proposed_first,
    varied,
)
from bench.planning.options import SweepOptions
from bench.planning.plan import Plan
from bench.planning.planner import make_plan
from bench.planning.search import Search
from bench.planning.trial_names import Varied
from bench.state_files import STATE_VERSION
from leaderboards import Store, identity_columns
from search_spaces import Grid, Range


def plan_of(*algorithms: str, **options: Any) -> Plan:
    return make_plan(SweepOptions(algorithms, search="optuna", **options))


(FEDCAD,) = plan_of("fedcad", budget=4).searches
(FEDPROX,) = plan_of("fedprox", num_samples=4).searches
PAIRS = [(0.0, 0.3), (0.0, 0.5), (0.0, 0.7), (0.3, 0.3), (0.3, 0.5), (0.3, 0.7)]
PAIRS += [(0.5, 0.5), (0.5, 0.7)]
TEXTS = [json.dumps(pair) for pair in PAIRS]


def test_bound_names_are_one_distribution() -> None:
    assert distributions(FEDCAD) == {
        "beta,gamma": CategoricalDistribution(TEXTS),
        "setting.lr": FloatDistribution(0.01, 1.0, log=True),
    }
    assert PastTries(FEDCAD).size == math.inf
    assert PastTries(FEDCAD).possible(3) == 3
    grid = replace(FEDCAD, tuned={"lr": Grid(0.1, 0.2)})
    assert PastTries(grid).size == 16
    assert PastTries(grid).possible(99) == 16


RANGES = replace(
    FEDPROX,
    values={"mu": Range(0.1, 2.0, log=False), "n": Range(1, 8, whole=True), "one": Grid(7)},
)


def test_ranges_are_intervals() -> None:
    space = distributions(RANGES)
    assert space == {"mu": FloatDistribution(0.1, 2.0), "n": IntDistribution(1, 8, log=True)}
    assert list(space) == ["mu", "n"]


def test_known_configurations_are_not_tried_again() -> None:
    known = [({"mu": mu}, 0.5) for mu in (0.1, 0.2)]
    past = PastTries(FEDPROX, known=known)
    assert past.size == 3
    assert [past.remaining(wanted) for wanted in (1, 2, 3, 9)] == [0, 0, 1, 1]


# Values of Optuna


@pytest.mark.parametrize(("pair", "lr"), [((0.3, 0.5), 0.2), ((0.0, 0.7), 1.0)])
def test_chosen_values_are_a_configuration(pair: tuple[float, float], lr: float) -> None:
    chosen = {"beta,gamma": json.dumps(pair), "setting.lr": lr}
    values, setting = decode(FEDCAD, chosen)
    assert (values["beta"], values["gamma"], setting.lr) == (*pair, lr)
    assert values["temperature"] == 2.0
    assert setting == replace(FEDCAD.setting, lr=lr)
    runs = chosen_run_specs(FEDCAD, chosen, 2)
    assert [(run.seed, run.setting.lr) for run in runs] == [(0, lr), (1, lr)]
    assert encode(FEDCAD, distributions(FEDCAD), values, setting) == chosen


@pytest.mark.parametrize(
    ("values", "lr", "possible"),
    [
        ({}, 0.1, True),
        ({}, 0.01, True),
        ({}, 1.0, True),
        ({}, 0.0099, False),
        ({}, 1.01, False),
        ({"beta": 0.4}, 0.1, False),
        ({"temperature": 3.0}, 0.1, False),
    ],
)
def test_other_configurations_are_not_chosen(
    values: dict[str, float], lr: float, possible: bool
) -> None:
    configuration = entry("fedcad").resolve({"beta": 0.3, "gamma": 0.5} | values)
    setting = replace(FEDCAD.setting, lr=lr)
    chosen = encode(FEDCAD, distributions(FEDCAD), configuration, setting)
    assert (chosen is not None) == possible


def test_trials_are_named_by_what_is_tuned() -> None:
    both = plan_of("fedcad", "fedprox", budget=4, values={"alpha": ("0.1", "1")})
    assert varied(both.searches) == {
        "fedcad": Varied(("alpha", "lr"), ("beta", "gamma")),
        "fedprox": Varied(("alpha", "lr"), ("mu",)),
    }
    two = plan_of("fedprox", values={"mu": ("0.1", "1")})
    assert varied(two.searches) == {"fedprox": Varied((), ("mu",))}


# What is tried first


def first(search: Search, wanted: int, **past: Any) -> list[dict[str, Any]]:
    return proposed_first(PastTries(search, **past), wanted)


def test_begun_ones_come_before_the_rest() -> None:
    one, two, three = ({"mu": mu} for mu in (0.01, 0.1, 1.0))
    assert first(FEDPROX, 2) == []
    assert first(FEDPROX, 2, begun=[two]) == [two]
    assert first(FEDPROX, 3) == [one, two, three]
    assert first(FEDPROX, 3, begun=[two]) == [two, one, three]
    assert first(FEDPROX, 4, known=[(one, 0.5)], begun=[three]) == [three, two]


def test_the_settings_own_rate_is_tried() -> None:
    preset = {"setting.lr": 0.1}
    at_preset = {"beta,gamma": TEXTS[0], "setting.lr": 0.1}
    elsewhere = {"beta,gamma": TEXTS[0], "setting.lr": 0.2}
    assert first(FEDCAD, 4) == [preset]
    assert first(FEDCAD, 4, begun=[elsewhere]) == [elsewhere, preset]
    assert first(FEDCAD, 4, begun=[at_preset]) == [at_preset]
    assert first(FEDCAD, 4, known=[(at_preset, 0.5)]) == []
    given = replace(FEDCAD, tuned={"lr": Grid(0.2, 0.3)})
    assert first(given, 4) == []
    (fedavg,) = plan_of("fedavg", budget=4).searches
    assert first(fedavg, 4, begun=[preset]) == [preset], "it has nothing else to tune"


# Stored results


def store(out: Path, plan: Plan, mu: float, seed: int, **columns: Any) -> str:
    """Store a run of FedProx, failed if it says so; its key."""
    values = {"mu": (str(mu),)}
    run = make_plan(SweepOptions(("fedprox",), values=values)).run_specs[0]
    run = replace(run, setting=plan.searches[0].setting, seed=seed)
    identity = identity_columns(*run.identity(entry("fedprox")))
    row = failed_row() if columns.get("status") == "failed" else make_row()
    Store(out).write(row | identity | columns, CURVE)
    return run.key


def value(number: float) -> dict[str, float]:
    """The accuracy that selects."""
    return {"mean_last10_val_accuracy": number}


VALUES = {"mu": ("0.1", "0.2", "0.3", "0.4", "0.5")}


def test_whole_configurations_are_known(tmp_path: Path) -> None:
    """Those with all seeds; the mean is over them, and a failed one has begun."""
    plan = plan_of("fedprox", values=VALUES, seeds=2)
    for seed in (0, 1):
        store(tmp_path, plan, 0.1, seed, **value(0.5 + seed / 4))
        store(tmp_path, plan, 0.2, seed, status="stopped", **value(0.25))
        store(tmp_path, plan, 0.5, seed, diverged=seed == 1, **value(0.5))
    store(tmp_path, plan, 0.3, 0, **value(0.5))
    store(tmp_path, plan, 0.4, 1, status="failed")
    store(tmp_path, plan, 0.9, 0, **value(0.5))
    (past,) = past_tries(plan, str(tmp_path))
    assert past.known == [({"mu": 0.1}, 0.625), ({"mu": 0.5}, -0.5)]
    assert past.begun == [{"mu": 0.4}]
    asha = replace(plan, options=replace(plan.options, scheduler="asha"))
    (past,) = past_tries(asha, str(tmp_path))
    assert past.known == [({"mu": 0.1}, 0.625), ({"mu": 0.2}, 0.25), ({"mu": 0.5}, -0.5)]
    forced = replace(plan, options=replace(plan.options, force=True))
    assert past_tries(forced, str(tmp_path)) == [PastTries(*plan.searches)]


def state(out: Path, key: str, run: Any, version: int = STATE_VERSION) -> None:
    folder = out / "state" / key
    folder.mkdir(parents=True)
    manifest = {"version": version, "round": 1, "run": run}
    (folder / "manifest.json").write_text(json.dumps(manifest))


def test_saved_states_have_begun(tmp_path: Path) -> None:
    """But not those of other versions, other settings, other algorithms, or damaged ones."""
    plan = plan_of("fedprox", values=VALUES, seeds=1)
    runs = make_plan(SweepOptions(("fedprox",), values=VALUES)).run_specs
    others = (STATE_VERSION + 1, STATE_VERSION, STATE_VERSION, STATE_VERSION)
    state(tmp_path, runs[0].key, runs[0].named_by)
    elsewhere = replace(runs[2], setting=replace(runs[2].setting, alpha=7.0)).named_by
    named = [
        runs[1].named_by,
        elsewhere,
        {**runs[3].named_by, "algorithm": "fedavg"},
        {"algorithm": "fedprox"},
    ]
    for run, by, version in zip(runs[1:], named, others, strict=True):
        state(tmp_path, run.key, by, version)
    (past,) = past_tries(plan, str(tmp_path))
    assert past.begun == [{"mu": 0.1}]
    assert past.known == []


def test_a_finished_run_is_not_begun(tmp_path: Path) -> None:
    plan = plan_of("fedprox", values=VALUES, seeds=2)
    key = store(tmp_path, plan, 0.1, 0, **value(0.5))
    run = make_plan(SweepOptions(("fedprox",), values=VALUES)).run_specs[0]
    state(tmp_path, key, run.named_by)
    (past,) = past_tries(plan, str(tmp_path))
    assert (past.begun, past.known) == ([], [])


def test_equal_values_of_versions_count_once() -> None:
    past = PastTries(FEDPROX)
    setting = json.dumps(FEDPROX.setting.as_dict())
    old = json.dumps({"mu": 0.1})
    new = json.dumps({"mu": 0.1, "prox_reduction": "sum"})
    wrong = json.dumps({"nu": 0.1})
    texts = {(old, setting), (new, setting), (wrong, setting)}
    assert optuna_search._distinct(past, texts) == [{"mu": 0.1}]


# Proposals


def test_a_sampler_knows_what_is_stored(monkeypatch: pytest.MonkeyPatch) -> None:
    seeds: list[int] = []
    make = optuna_search.make_sampler

    def make_sampler(path: str, seed: int) -> Any:
        seeds.append(seed)
        return make(path, seed)

    monkeypatch.setattr(optuna_search, "make_sampler", make_sampler)
    optuna.logging.set_verbosity(optuna.logging.INFO)
    plan = plan_of("fedprox", values=VALUES, num_samples=4)
    known = [({"mu": 0.1}, 0.25), ({"mu": 0.2}, 0.5)]
    proposer = Proposer(plan, PastTries(plan.searches[0], known=known))
    assert seeds == [2]
    assert optuna.logging.get_verbosity() == optuna.logging.WARNING
    assert proposer.wanted == 2
    assert proposer.study.best_value == 0.5
    assert proposer.study.direction == optuna.study.StudyDirection.MAXIMIZE
    asked = [proposer.propose(), proposer.propose(), proposer.propose()]
    assert asked[2] is None
    values = {trial.params["mu"] for trial in asked if trial}
    assert len(values) == 2
    assert not values & {0.1, 0.2}


def test_patience_ends() -> None:
    """Twenty proposals for each that is wanted."""
    plan = plan_of("fedprox", values=VALUES, num_samples=3)
    proposer = Proposer(plan, PastTries(plan.searches[0], known=[({"mu": 0.1}, 0.5)] * 1))
    for _ in range(50):
        proposer.study.enqueue_trial({"mu": 0.1})
    assert proposer.wanted == 2
    assert proposer.propose() is None
    assert len(proposer.study.trials) - 1 - 10 <= 40 + 50
    repeated = [trial for trial in proposer.study.trials if trial.state.name == "COMPLETE"]
    assert len(repeated) == 1 + 40

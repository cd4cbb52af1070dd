"""Configurations that a search tries, and those of `--budget`: relations, bounds, equal numbers, tables over lr."""

from __future__ import annotations

import csv
import io
import json
from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from commands import ROOT
from rows import CURVE, make_row

from algorithms import ALGORITHMS, entry
from bench.compare.command import main as compare
from bench.errors import UsageError
from bench.executors.optuna_search import chosen_run_specs
from bench.planning.configurations import learning_rates
from bench.planning.options import TWO_STAGE, SweepOptions
from bench.planning.plan import Plan
from bench.planning.planner import make_plan
from bench.planning.run_spec import setting_identity
from bench.sweep.command import main as sweep
from leaderboards import Store, canonical_json
from search_spaces import SETTINGS, SPACES, Grid, Range

FURTHER = "beta != gamma"  # FedCAD's entry knows `beta <= gamma` alone


@pytest.fixture
def stricter(monkeypatch: pytest.MonkeyPatch) -> None:
    """FedCAD with a further relation: of the digits' pairs 6 keep both, 8 its own."""
    key = ("fedkd", "digits", "fedcad")
    assert SPACES[key].grid == {"beta": Grid(0.0, 0.3, 0.5), "gamma": Grid(0.3, 0.5, 0.7)}
    fedcad = entry("fedcad")
    relations = (*fedcad.where, FURTHER)
    monkeypatch.setitem(ALGORITHMS, "fedcad", replace(fedcad, where=relations))


def pairs_of(**options: object) -> list[tuple[object, object]]:
    run_specs = make_plan(SweepOptions(("fedcad",), **options)).run_specs
    return [
        (run_spec.hyperparameters["beta"], run_spec.hyperparameters["gamma"])
        for run_spec in run_specs
    ]


@pytest.mark.usefixtures("stricter")
@pytest.mark.parametrize("count", [3, 6])
def test_random_search_gives_what_is_asked_for_under_relations(count: int) -> None:
    drawn = pairs_of(search="random", num_samples=count)
    assert len(set(drawn)) == len(drawn) == count
    assert all(beta < gamma for beta, gamma in drawn)


@pytest.mark.usefixtures("stricter")
def test_every_search_keeps_all_relations() -> None:
    assert len(pairs_of(search="random", num_samples=50)) == len(pairs_of()) == 6, (
        "all that there are"
    )
    assert all(beta < gamma for beta, gamma in pairs_of(budget=10))


def test_an_algorithms_draws_are_what_they_were() -> None:
    """The same command asks for the same configurations, in later versions too."""
    values = {"beta": ("0", "0.2", "0.4", "0.6"), "gamma": ("0.1", "0.3", "0.5")}
    drawn = pairs_of(search="random", num_samples=4, values=values)
    assert drawn == [(0.0, 0.5), (0.4, 0.5), (0.2, 0.3), (0.0, 0.1)]
    assert pairs_of(budget=4, values=values) == [(0.0, 0.1), (0.2, 0.3), (0.0, 0.3), (0.4, 0.5)]


def test_a_budget_of_every_configuration_there_is_finds_them_all() -> None:
    values = {
        "buffer": tuple(map(str, range(1, 61))),
        "gamma": ("0.1", "0.2"),
        "lr": ("0.1", "0.1"),
    }
    run_specs = make_plan(SweepOptions(("fedgkd",), values=values, budget=120)).run_specs
    assert (
        len(
            {
                (run_spec.hyperparameters["buffer"], run_spec.hyperparameters["gamma"])
                for run_spec in run_specs
            }
        )
        == 120
    )
    with pytest.raises(UsageError, match="only 120 configurations"):
        make_plan(SweepOptions(("fedgkd",), values=values, budget=121))
    values = {
        "beta": tuple(f"0.{i}" for i in range(50, 70)),
        "gamma": tuple(f"0.{i}" for i in range(31, 51)),
    }
    assert pairs_of(values=values, budget=1) == [(0.5, 0.5)], (
        "the only pair that keeps beta <= gamma"
    )


SEARCHES: list[Mapping[str, object]] = [
    {},
    {"search": "random"},
    {"search": "optuna"},
    {"budget": 4},
]


@pytest.mark.parametrize("search", SEARCHES)
def test_values_out_of_range_come_before_those_that_keep_no_relation(
    search: Mapping[str, object],
) -> None:
    for beta in (("2",), ("0.3", "2"), ("nan",)):
        with pytest.raises(UsageError, match=rf"fedcad.beta .* {float(beta[-1])}"):
            pairs_of(values={"beta": beta}, **search)
    with pytest.raises(UsageError, match="beta <= gamma"):
        pairs_of(values={"beta": ("0.7",), "gamma": ("0.3",)}, **search)


# --budget

DIGITS = SETTINGS["fedkd", "digits"]


def plan(*algorithms: str, budget: int = 4, **options: Any) -> Plan:
    return make_plan(SweepOptions(algo=algorithms, budget=budget, **options))


def test_every_algorithm_gets_the_same_number_with_the_same_learning_rates() -> None:
    found: dict[str, list[tuple[float, str]]] = {}
    for run_spec in plan("fedavg", "fedprox", "fedcad", "fedgkd").run_specs:
        found.setdefault(run_spec.algorithm, []).append(
            (run_spec.setting.lr, str(dict(run_spec.hyperparameters)))
        )
    assert {name: len(made) for name, made in found.items()} == dict.fromkeys(found, 4)
    assert all(len(set(made)) == 4 for made in found.values())
    rates = {name: [lr for lr, _ in made] for name, made in found.items()}
    assert len(set(map(tuple, rates.values()))) == 1
    assert rates["fedavg"][0] == DIGITS.lr
    assert all(DIGITS.lr / 10 <= lr <= DIGITS.lr * 10 for lr in rates["fedavg"])
    assert plan("fedcad").run_specs == plan("fedcad").run_specs, (
        "the same command asks for the same runs"
    )


def test_learning_rates_spread_over_two_decades() -> None:
    drawn = learning_rates(replace(DIGITS, lr=1.0), (), 127)
    assert drawn[:3] == [1, 0.316, 3.16], "the setting's own, then half a decade to either side"
    assert sum(lr < 1 for lr in drawn) == sum(lr > 1 for lr in drawn) == 63
    assert 0.1 < min(drawn) < 0.11
    assert 9 < max(drawn) < 10


def test_hyperparameters_are_not_tried_again_before_all_were() -> None:
    values = [
        tuple(run_spec.hyperparameters[name] for name in ("beta", "gamma"))
        for run_spec in plan("fedcad", budget=6).run_specs
    ]
    grid = 6  # pairs of beta 0, 0.3, 0.5 and gamma 0.3, 0.5, 0.7 that keep beta <= gamma, less two that repeat
    assert len(set(values)) >= grid - 1


def test_given_learning_rates_are_taken_in_turn() -> None:
    run_specs = plan("fedprox", budget=5, values={"lr": ("0.01", "0.1")}).run_specs
    assert [run_spec.setting.lr for run_spec in run_specs] == [0.01, 0.1, 0.01, 0.1, 0.01]
    assert len({run_spec.key for run_spec in run_specs}) == 5


@pytest.mark.parametrize(
    "search", [{"budget": 4}, {"budget": 0, "search": "random", "num_samples": 2}]
)
def test_rows_that_come_with_another_algorithms_runs_are_no_further_tries(
    search: dict[str, Any],
) -> None:
    """Runs of `fedprox_t1` are runs of `fedprox` as well."""
    run_specs = plan(
        "fedprox_t1", "fedprox", **search, values={"mu": ("0.1", "0.2", "0.5", "1")}
    ).run_specs
    tried = Counter(name for run_spec in run_specs for name in run_spec.row_names.values())
    assert tried["fedprox"] == tried["fedprox_t1"] == (search["budget"] or 2)
    given = plan(
        "fedprox_t1", "fedprox", **search, values={"fedprox_t1.mu": ("0.5", "0.7")}
    ).run_specs
    assert {
        run_spec.hyperparameters["mu"] for run_spec in given if run_spec.algorithm == "fedprox_t1"
    } == {
        0.5,
        0.7,
    }


def test_a_form_with_one_value_draws_its_bases() -> None:
    """On the digits the space of `fedgkd_t1` has a single configuration."""
    made = plan("fedgkd", "fedgkd_t1", search="random", budget=0, num_samples=2, seeds=2)
    rows: Counter[str] = Counter()
    tried = set()
    for run_spec in made.run_specs:
        rows.update(run_spec.row_names.values())
        tried.add((run_spec.hyperparameters["gamma"], run_spec.hyperparameters["buffer"]))
    assert rows == {"fedgkd": 4, "fedgkd_t1": 4}
    assert len(tried) == 2


def test_values_of_a_form_are_all_tried() -> None:
    """Its base has fewer: one configuration, of which it is a try in any case."""
    values = {"t1_unvisited": ("skip", "w0")}
    made = plan("fedavg", "fedavg_t1", search="random", budget=0, num_samples=4, values=values)
    tried = [run_spec.hyperparameters["t1_unvisited"] for run_spec in made.run_specs]
    assert sorted(tried) == ["skip", "w0"]


@pytest.mark.parametrize(
    ("options", "more"),
    [
        ({"values": {"fedprox_t1.mu": ("0.5", "0.7")}, "budget": 2}, True),
        ({"values": {"fedprox_t1.mu": ("0.1",), "fedprox.mu": ("0.1",)}, "budget": 3}, False),
        ({"search": "optuna", "budget": 2}, True),
        ({"tuning": TWO_STAGE, "budget": 5, "values": {"lr": ("0.1", "0.2")}}, False),
        (
            {
                "tuning": TWO_STAGE,
                "budget": 3,
                "values": {"lr": ("0.1", "0.2"), "fedprox_t1.mu": ("0.5", "0.7")},
            },
            True,
        ),
        ({"budget": 2}, False),
        ({"search": "random", "num_samples": 2, "budget": 0}, False),
    ],
)
def test_more_tries_for_one_are_noted(options: dict[str, Any], more: bool) -> None:
    notes = plan("fedprox_t1", "fedprox", **options).notes
    assert any("fedprox gets more tries" in note for note in notes) == more


def test_optuna_chooses_the_learning_rate_of_a_budget_for_every_algorithm() -> None:
    """FedAvg, which has nothing else to tune, gets as many configurations as the others."""
    searches = plan("fedavg", "fedprox", search="optuna").searches
    lr = Range(DIGITS.lr / 10, DIGITS.lr * 10)
    assert [(search.algorithm, search.tuned) for search in searches] == [
        ("fedavg", {"lr": lr}),
        ("fedprox", {"lr": lr}),
    ]
    (search,) = plan(
        "feddkd", search="optuna", values={"lr": ("0.3", "0.2"), "feddkd.lr": ("0.05", "0.1")}
    ).searches
    (run_spec,) = chosen_run_specs(search, {"setting.lr": 0.2, "lr": 0.05}, 1)
    assert (run_spec.setting.lr, run_spec.hyperparameters["lr"]) == (0.2, 0.05), (
        "two that are both called lr"
    )
    assert search.covers(canonical_json(setting_identity(run_spec.setting)))
    assert not search.covers(canonical_json(setting_identity(replace(run_spec.setting, alpha=7))))


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"search": "random", "scheduler": "asha"}, "--search random and --scheduler"),
        ({"search": "optuna", "values": {"lr": ("0.1", "0.2")}}, "only 2 .* not 4"),
        ({"search": "optuna", "values": {"validation_fraction": ("0",)}}, "test set"),
        ({"paper": "fedgkd", "table": "3"}, "--search, --scheduler and --budget"),
        ({"values": {"validation_fraction": ("0",)}}, "test set"),
        ({"values": {"lr": ("0.1", "0.2")}}, "only 2 .* not 4"),
        ({"values": {"lr": ("fast",)}}, "--lr fast"),
        ({"values": {"lr": ("-1",)}}, "--lr -1"),
    ],
)
def test_what_does_not_go_together_is_refused(options: dict[str, Any], problem: str) -> None:
    with pytest.raises(UsageError, match=problem):
        plan("fedavg", **options)


#     lr     validation   test
#     0.01   70           60
#     0.1    60           65
#     1      65           90
def test_tables_over_tuned_fields_select_on_validation(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for lr, validation, test in ((0.01, 0.70, 0.60), (0.1, 0.60, 0.65), (1.0, 0.65, 0.90)):
        row = make_row("fedavg", {}, {"lr": lr}, best_val_accuracy=validation, best_accuracy=test)
        Store(tmp_path).write(row, CURVE)
    command = ["--out", str(tmp_path), "--metric", "best", "--format", "csv"]
    assert compare(command) == 0
    assert len(list(csv.DictReader(io.StringIO(capsys.readouterr().out)))) == 3, (
        "without it, a table of each"
    )
    assert compare([*command, "--tuned", "lr"]) == 0
    (row,) = csv.DictReader(io.StringIO(capsys.readouterr().out))
    assert (row["mean"], row["hyperparameters"], row["configurations"]) == (
        "0.6",
        '{"lr":0.01}',
        "3",
    )


def test_the_reference_board_has_every_run_that_its_command_plans(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """A hyper-parameter that joins an algorithm changes nothing that was drawn before."""
    board = ROOT / "leaderboards" / "reference"
    words = ["--config", str(ROOT / "docs" / "reference.toml"), "--out", str(board)]
    assert sweep([*words, "--dry-run", "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    planned = report["trials"]
    assert len(planned) == 396
    assert [trial["name"] for trial in planned if trial["to_do"]] == []

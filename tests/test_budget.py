"""`--budget N`: equal numbers of configurations, the learning rate tuned for each algorithm, and tables over it."""

from __future__ import annotations

import csv
import io
from dataclasses import replace

import pytest
from rows import CURVE, make_row

from algorithms import entry
from bench.compare import main as compare
from bench.errors import UsageError
from bench.planning.configurations import learning_rates, tries
from bench.planning.plan import Search, make_plan
from bench.planning.request import Request
from bench.sweep import main as sweep
from leaderboards import Store
from search_spaces import SETTINGS, SPACES, Grid

DIGITS = SETTINGS["fedkd", "digits"]


def plan(*algorithms: str, budget: int = 4, **options: object):
    return make_plan(Request(algorithms=algorithms, budget=budget, **options))


def test_every_algorithm_gets_the_same_number_with_the_same_learning_rates():
    found: dict[str, list[tuple[float, str]]] = {}
    for unit in plan("fedavg", "fedprox", "fedcad", "fedgkd").units:
        found.setdefault(unit.algorithm, []).append((unit.setting.lr, str(dict(unit.hyperparameters))))
    assert {name: len(made) for name, made in found.items()} == dict.fromkeys(found, 4)
    assert all(len(set(made)) == 4 for made in found.values())
    rates = {name: [lr for lr, _ in made] for name, made in found.items()}
    assert len(set(map(tuple, rates.values()))) == 1
    assert rates["fedavg"][0] == DIGITS.lr
    assert all(DIGITS.lr / 10 <= lr <= DIGITS.lr * 10 for lr in rates["fedavg"])
    assert plan("fedcad").units == plan("fedcad").units, "the same command asks for the same runs"


def test_learning_rates_spread_over_two_decades():
    drawn = learning_rates(replace(DIGITS, lr=1.0), (), 127)
    assert drawn[:3] == [1, 0.316, 3.16], "the setting's own, then half a decade to either side"
    assert sum(lr < 1 for lr in drawn) == sum(lr > 1 for lr in drawn) == 63
    assert 0.1 < min(drawn) < 0.11
    assert 9 < max(drawn) < 10


def test_hyperparameters_are_not_tried_again_before_all_were():
    values = [
        tuple(unit.hyperparameters[name] for name in ("beta", "gamma")) for unit in plan("fedcad", budget=6).units
    ]
    grid = 6  # pairs of beta 0, 0.3, 0.5 and gamma 0.3, 0.5, 0.7 that keep beta <= gamma, less two that repeat
    assert len(set(values)) >= grid - 1


@pytest.mark.parametrize("lr", [0.05, 0.1, 0.01])
def test_as_many_learning_rates_as_are_asked_for(lr):
    drawn = learning_rates(replace(DIGITS, lr=lr), (), 200)
    assert len(set(drawn)) == 200
    assert drawn[:5] == learning_rates(replace(DIGITS, lr=lr), (), 5), "a larger budget begins with the smaller one"


def test_given_learning_rates_are_taken_in_turn():
    units = plan("fedprox", budget=5, values={"lr": ("0.01", "0.1")}).units
    assert [unit.setting.lr for unit in units] == [0.01, 0.1, 0.01, 0.1, 0.01]
    assert len({unit.key for unit in units}) == 5


def test_relations_hold():
    space = {"beta": Grid(0.0, 0.5), "gamma": Grid(0.0, 0.5)}
    drawn = tries(entry("fedcad"), Search("fedcad", DIGITS, space, ("beta <= gamma",), None, False), (), 8)
    assert all(values["beta"] <= values["gamma"] for values, _ in drawn)


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"search": "random"}, "leave out --search$"),
        ({"scheduler": "asha"}, "leave out --scheduler$"),
        ({"search": "optuna", "scheduler": "asha"}, "leave out --search and --scheduler$"),
        ({"paper": "fedgkd", "table": "3"}, "leave out --budget, or --table"),
        ({"values": {"validation_fraction": ("0",)}}, "a choice on the test set is not offered"),
        ({"values": {"lr": ("0.1", "0.2")}}, "fedavg has only 2 configurations with these learning rates, not 4"),
        ({"values": {"lr": ("fast",)}}, "--lr fast: could not convert"),
        ({"values": {"lr": ("-1",)}}, "--lr -1: lr must be"),
    ],
)
def test_what_does_not_go_together_is_refused(options, problem):
    with pytest.raises(UsageError, match=problem):
        plan("fedavg", **options)


def test_a_sweep_selects_over_the_learning_rate(tmp_path, capsys):
    arguments = ["--algo", "fedavg", "--budget", "3", "--rounds", "1", "--local-epochs", "1", "--executor", "inline"]
    assert sweep([*arguments, "--out", str(tmp_path), "-q"]) == 0
    shown = capsys.readouterr()
    assert "Configurations tried: fedavg 3" in shown.out
    assert shown.out.count("Configurations tried") == 1, "one table"
    assert "lr=" in shown.out
    assert "python -m bench.compare --tuned lr" in shown.err


def test_a_sweep_selects_over_what_its_paper_tuned(tmp_path, capsys, monkeypatch):
    key = ("fedkd", "digits", "fedavg")
    monkeypatch.setitem(SPACES, key, replace(SPACES[key], tuned={"lr": Grid(1e-6, DIGITS.lr)}))
    arguments = ["--algo", "fedavg", "--rounds", "1", "--local-epochs", "1", "--executor", "inline", "-q"]
    assert sweep([*arguments, "--out", str(tmp_path)]) == 0
    shown = capsys.readouterr()
    assert "Configurations tried: fedavg 2" in shown.out
    assert shown.out.count("Configurations tried") == 1, "one table"
    assert f"lr={DIGITS.lr:g}" in shown.out
    assert "lr=1e-06" not in shown.out
    assert "python -m bench.compare --tuned lr" in shown.err


#     lr     validation   test
#     0.01   70           60
#     0.1    60           65
#     1      65           90
def test_tables_over_tuned_fields_select_on_validation(tmp_path, capsys):
    for lr, validation, test in ((0.01, 0.70, 0.60), (0.1, 0.60, 0.65), (1.0, 0.65, 0.90)):
        row = make_row("fedavg", {}, {"lr": lr}, best_val_accuracy=validation, best_accuracy=test)
        Store(tmp_path).write(row, CURVE)
    command = ["--out", str(tmp_path), "--metric", "best", "--format", "csv"]
    assert compare(command) == 0
    assert len(list(csv.DictReader(io.StringIO(capsys.readouterr().out)))) == 3, "without it, a table of each"
    assert compare([*command, "--tuned", "lr"]) == 0
    (row,) = csv.DictReader(io.StringIO(capsys.readouterr().out))
    assert (row["mean"], row["hyperparameters"], row["configurations"]) == ("0.6", '{"lr":0.01}', "3")
    assert compare([*command, "--tuned", "learning_rate"]) == 2
    assert "--tuned takes fields of a setting, got 'learning_rate'" in capsys.readouterr().err

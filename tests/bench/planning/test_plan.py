"""Plans: what a command runs, and under which names."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from bench.data import splits
from bench.errors import UsageError
from bench.planning.options import SweepOptions
from bench.planning.planner import make_plan
from bench.planning.run_spec import setting_identity
from bench.sweep.command import main
from leaderboards.rows.schema import canonical_json


def test_a_model_has_one_name_whatever_the_order_of_its_forms() -> None:
    plans = [
        make_plan(SweepOptions(("fedavg",), values={"model": (name,)}))
        for name in ("mlp+bn+head", "mlp+head+bn")
    ]
    assert plans[0].run_specs[0].key == plans[1].run_specs[0].key
    assert plans[0].run_specs[0].setting.model == "mlp+head+bn"


def test_a_paper_may_give_an_algorithm_a_model_of_its_own() -> None:
    def models_of(**values: tuple[str, ...]) -> dict[str, str]:
        plan = make_plan(
            SweepOptions(
                ("moon", "fedprox"), dataset="tiny_imagenet", paper="fedgkd", values=values
            )
        )
        return {run_spec.algorithm: run_spec.setting.model for run_spec in plan.run_specs}

    assert models_of() == {"moon": "resnet50+head+bn", "fedprox": "resnet50"}
    assert models_of(model=("resnet50",)) == {"moon": "resnet50+head", "fedprox": "resnet50"}


def test_a_setting_field_that_a_paper_tuned_is_tried_for_that_algorithm_alone() -> None:
    plan = make_plan(
        SweepOptions(("fedavg", "fedprox"), dataset="cifar10", paper="fedgkd", seeds=2)
    )
    tried = [
        (run_spec.algorithm, run_spec.setting.lr, run_spec.seed) for run_spec in plan.run_specs
    ]
    rates = [("fedavg", lr, seed) for lr in (0.1, 0.05, 0.01) for seed in (0, 1)]
    assert tried == [*rates, ("fedprox", 0.05, 0), ("fedprox", 0.05, 1)]
    assert plan.tuned == ("lr",)
    assert "{0.1, 0.05, 0.01}" in plan.notes[0]


def test_a_given_value_or_a_budget_goes_over_what_a_paper_tuned() -> None:
    plan = make_plan(
        SweepOptions(("fedavg",), dataset="cifar10", paper="fedgkd", values={"lr": ("0.05",)})
    )
    assert [run_spec.setting.lr for run_spec in plan.run_specs] == [0.05]
    assert (plan.tuned, plan.notes) == ((), ())
    drawn = make_plan(SweepOptions(("fedavg",), dataset="cifar10", paper="fedgkd", budget=4))
    assert len(drawn.run_specs) == 4
    assert drawn.tuned == ("lr",)


def test_an_empty_space_names_the_relation_and_what_it_relates() -> None:
    values = {
        "fedcad.beta": ("0.9",),
        "fedcad.gamma": ("0.1", "0.2"),
        "fedcad.temperature": ("2", "3"),
    }
    options = SweepOptions(("fedcad",), dataset="cifar10", values=values)
    with pytest.raises(UsageError) as refused:
        make_plan(options)
    assert str(refused.value) == (
        "fedcad: no combination keeps beta <= gamma; got beta in {0.9}, gamma in {0.1, 0.2}"
    )


def test_what_a_paper_tuned_is_not_selected_on_the_test_set() -> None:
    values = {"validation_fraction": ("0",)}
    with pytest.raises(UsageError, match=r"fedavg .* lr$"):
        make_plan(SweepOptions(("fedavg",), dataset="cifar10", paper="fedgkd", values=values))


def test_rows_that_another_run_yields_as_well_are_made_once() -> None:
    alone = make_plan(SweepOptions(("fedavg",)))
    plan = make_plan(SweepOptions(("fedavg", "fedavg_t1")))
    assert [run_spec.algorithm for run_spec in plan.run_specs] == ["fedavg_t1"]
    assert plan.run_specs[0].rows == {"": alone.run_specs[0].key, "_t1": plan.run_specs[0].key}
    assert "fedavg_t1" in plan.notes[0]
    several = make_plan(SweepOptions(("fedprox", "fedprox_t1"), values={"mu": ("0.1", "1")}))
    assert [run_spec.algorithm for run_spec in several.run_specs] == ["fedprox_t1"] * 2
    wider = make_plan(
        SweepOptions(
            ("fedprox", "fedprox_t1"),
            values={"fedprox.mu": ("0.1", "1"), "fedprox_t1.mu": ("0.1",)},
        )
    )
    assert [run_spec.algorithm for run_spec in wider.run_specs] == ["fedprox", "fedprox_t1"]


def test_a_dry_run_draws_each_partition_once(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[int] = []
    split = splits.split
    monkeypatch.setattr(splits, "split", lambda *given: asked.append(given[2]) or split(*given))
    grid = ["--algo", "fedavg", "--alpha", "0.703", "--lr", "0.1", "0.2", "--seeds", "3"]
    assert main([*grid, "--dry-run", "--json", "--out", str(tmp_path)]) == 0
    planned = json.loads(capsys.readouterr().out)
    assert planned["runs"] == 6
    assert all(trial["partition"] == "feasible" for trial in planned["trials"])
    assert asked == [0, 1, 2], "two learning rates, one partition a seed"
    many = ["--algo", "fedavg", "--alpha", "0.704", "--seeds", "150"]
    assert main([*many, "--dry-run", "--json", "--out", str(tmp_path)]) == 0
    (trial,) = json.loads(capsys.readouterr().out)["trials"]
    assert (asked[3:], trial["partition"]) == ([*range(100)], "feasible (first 100 of 150 seeds)")


def test_a_search_by_optuna_is_shown_before_it_runs(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    asked = [
        "--algo",
        "fedcad,fedavg",
        "--dataset",
        "digits",
        "--alpha",
        "0.1,1",
        "--seeds",
        "2",
        "--dry-run",
    ]
    asked += [
        "--search",
        "optuna",
        "--num-samples",
        "3",
        "--executor",
        "inline",
        "--out",
        str(tmp_path),
    ]
    assert main([*asked, "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert [(one["algorithm"], one["setting"]["alpha"]) for one in report["searches"]] == [
        ("fedcad", 0.1),
        ("fedcad", 1),
    ]
    first = report["searches"][0]
    assert first["space"] == {"beta": "{0, 0.3, 0.5}", "gamma": "{0.3, 0.5, 0.7}"}
    assert (first["configurations"], first["runs_at_most"], first["relations"]) == (
        3,
        6,
        ["beta <= gamma"],
    )
    assert main(asked) == 0
    assert "at most 12 that Optuna chooses" in capsys.readouterr().out
    assert main(["--algo", "fedprox", "--set", "mu=0.1,1", *asked[2:], "--json"]) == 0
    (of_two, _) = json.loads(capsys.readouterr().out)["searches"]
    assert of_two["space"] == {"mu": "{0.1, 1}"}


def test_what_cannot_run_here_is_noted() -> None:
    everything = make_plan(SweepOptions(("all",)))
    plan = make_plan(SweepOptions(("all",)), left_out={"fedbn": "more samples"})
    assert set(plan.notes) - set(everything.notes) == {"left out: fedbn needs more samples"}
    names = {run_spec.algorithm for run_spec in plan.run_specs}
    assert {run_spec.algorithm for run_spec in everything.run_specs} - names == {"fedbn"}


def test_rows_of_a_search_have_its_algorithm_and_setting() -> None:
    options = SweepOptions(("fedprox",), search="optuna", num_samples=2)
    fedprox = make_plan(SweepOptions(("fedprox",))).run_specs[0]
    setting = canonical_json(setting_identity(fedprox.setting))
    other = canonical_json(setting_identity(fedprox.setting) | {"rounds": 7})
    rows = [("fedprox", setting), ("fedprox", other), ("fedavg", setting), ("fedavg", other)]
    assert make_plan(options).of_searches(rows) == {("fedprox", setting)}

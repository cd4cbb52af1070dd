"""Tuning in two stages, replicates of a partition, and seeds to confirm: what is planned, run and resumed."""

from __future__ import annotations

import json
import math
from argparse import ArgumentTypeError
from dataclasses import replace
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import torch
from conftest import TINY, simulate, toy_dataset, trained
from rows import CURVE, make_row

from algorithms import entry
from bench.data.splits import split
from bench.errors import UsageError
from bench.planning.confirm import confirmation, stand_ins
from bench.planning.options import TWO_STAGE, SweepOptions
from bench.planning.plan import Plan
from bench.planning.planner import make_plan
from bench.planning.run_spec import RunSpec, row_entry, with_replicates
from bench.planning.two_stage import count_second_stage, rates_around, second_stage, waiting
from bench.sweep.command import main as sweep
from bench.terminal.values import seeds_to_confirm
from bench.terminal.words import seeds_in_words
from leaderboards import Store

RATES = ("0.05", "0.1", "0.2")


def plan_of(
    *algorithms: str,
    budget: int = 6,
    values: dict[str, tuple[str, ...]] | None = None,
    **options: Any,
) -> Plan:
    asked = {"lr": RATES, **(values or {})}
    return make_plan(
        SweepOptions(algorithms, tuning=TWO_STAGE, budget=budget, values=asked, **options)
    )


def stored(out: Path, plan: Plan, best: dict[str, float]) -> pd.DataFrame:
    """The rows of a plan as if trained: the rate given for an algorithm has the best validation accuracy."""
    for run_spec in plan.run_specs:
        for suffix, name in run_spec.row_names.items():
            own = row_entry(run_spec.algorithm, suffix)
            values = own.identifying(run_spec.hyperparameters)
            score = 0.9 if run_spec.setting.lr == best[name] else 0.5
            row = make_row(
                name,
                values,
                run_spec.setting.as_dict(),
                run_spec.seed,
                own.version,
                best_val_accuracy=score,
            )
            Store(out).write(row, CURVE)
    return Store(out).runs()


def tried(plan: Plan, name: str, field: str) -> list[tuple[float, Any]]:
    return [(u.setting.lr, u.hyperparameters[field]) for u in plan.run_specs if u.algorithm == name]


def test_rates_come_first_then_own_values(tmp_path: Path) -> None:
    plan = plan_of("fedprox", values={"mu": ("0.001", "0.01", "0.1", "1")})
    assert tried(plan, "fedprox", "mu") == [(0.05, 0.01), (0.1, 0.01), (0.2, 0.01)]
    second = second_stage(plan, stored(tmp_path, plan, {"fedprox": 0.2}))
    assert {lr for lr, _ in tried(second, "fedprox", "mu")} == {0.2}
    assert {mu for _, mu in tried(second, "fedprox", "mu")} == {0.001, 0.1, 1.0}


def test_lacking_own_values_give_rates(tmp_path: Path) -> None:
    plan = plan_of("fedavg", "fedprox", values={"mu": ("0.01", "0.1")})
    runs = stored(tmp_path, plan, {"fedavg": 0.1, "fedprox": 0.05})
    second = second_stage(plan, runs)
    assert [u.setting.lr for u in second.run_specs if u.algorithm == "fedavg"] == [
        0.0707,
        0.141,
        0.0841,
    ]
    assert tried(second, "fedprox", "mu") == [(0.05, 0.1), (0.0354, 0.01), (0.0707, 0.01)]
    assert len(second.run_specs) == 6


def test_the_first_stage_alone_decides(tmp_path: Path) -> None:
    plan = plan_of("fedprox", values={"mu": ("0.01", "0.1", "1", "2")})
    runs = stored(tmp_path, plan, {"fedprox": 0.1})
    second = second_stage(plan, runs)
    for (
        run_spec
    ) in second.run_specs:  # the second stage is better at another rate, but was not asked
        row = make_row(
            "fedprox",
            run_spec.hyperparameters,
            {**run_spec.setting.as_dict(), "lr": 0.2},
            best_val_accuracy=1.0,
        )
        Store(tmp_path).write(row, CURVE)
    again = second_stage(plan, Store(tmp_path).runs())
    assert [run_spec.key for run_spec in again.run_specs] == [
        run_spec.key for run_spec in second.run_specs
    ]


def test_a_failed_first_stage_waits(tmp_path: Path) -> None:
    """The best rate may be another one once it has run, and its tries would be further ones."""
    plan = plan_of("fedavg", "fedprox")
    runs = stored(tmp_path, plan, {"fedavg": 0.1, "fedprox": 0.1})
    lost = (runs["algorithm"] == "fedprox") & (runs["setting_json"].str.contains('"lr":0.2'))
    assert lost.sum() == 1
    failed = runs.assign(status=runs["status"].mask(lost, "failed"))
    for left in (runs[~lost], failed):
        second = second_stage(plan, left)
        assert {run_spec.algorithm for run_spec in second.run_specs} == {"fedavg"}
        assert "fedprox" in second.notes[0]
        confirming = confirmation(replace(plan, options=replace(plan.options, confirm=(1,))), left)
        assert {run_spec.algorithm for run_spec in confirming.run_specs} == {"fedavg"}
    assert second_stage(plan, runs).notes == ()


def test_a_form_waits_with_its_base(tmp_path: Path) -> None:
    """It has values of its own, and the rate of its base."""
    plan = plan_of("fedprox", "fedprox_t1", values={"fedprox_t1.mu": ("0.5", "0.7")})
    runs = stored(tmp_path, plan, {"fedprox": 0.2, "fedprox_t1": 0.2})
    lost = (runs["algorithm"] == "fedprox") & (runs["setting_json"].str.contains('"lr":0.2'))
    left = runs[~(lost & ~runs["hp_json"].str.contains("0.5"))]
    assert len(left) == len(runs) - 1
    assert second_stage(plan, left).run_specs == ()
    assert waiting(plan, left) == ["fedprox", "fedprox_t1"]


def test_second_rows_do_not_lead(tmp_path: Path) -> None:
    """With `all`, as with the name, a run's rates follow its first row."""
    plan = plan_of("fedproto")
    runs = stored(tmp_path, plan, {"fedproto": 0.05, "fedproto_proto": 0.2})
    every = replace(plan, options=replace(plan.options, algo=("all",)))
    rates = [
        {run_spec.setting.lr for run_spec in second_stage(each, runs).run_specs}
        for each in (plan, every)
    ]
    assert rates[0] == rates[1]
    assert max(rates[0]) < 0.1


def test_nothing_follows_what_did_not_finish() -> None:
    plan = plan_of("fedavg")
    assert second_stage(plan, pd.DataFrame([make_row("fedprox", {"mu": 0.1})])).run_specs == ()


def test_two_rows_follow_their_base(tmp_path: Path) -> None:
    plan = plan_of("fedavg", "fedavg_t1")
    assert {run_spec.algorithm for run_spec in plan.run_specs} == {"fedavg_t1"}
    second = second_stage(plan, stored(tmp_path, plan, {"fedavg": 0.1, "fedavg_t1": 0.2}))
    assert [run_spec.setting.lr for run_spec in second.run_specs] == [0.0707, 0.141, 0.0841]


def test_more_seeds_keep_the_second_stage(tmp_path: Path) -> None:
    """0.1 is best on seed 0, 0.2 on the mean of three: another rate would add tries."""
    scores = {0.05: (0.5, 0.5, 0.5), 0.1: (0.9, 0.1, 0.1), 0.2: (0.8, 0.8, 0.8)}
    plan = plan_of("fedavg", seeds=3)
    for run_spec in plan.run_specs:
        row = make_row(
            "fedavg",
            run_spec.hyperparameters,
            run_spec.setting.as_dict(),
            run_spec.seed,
            entry("fedavg").version,
            best_val_accuracy=scores[run_spec.setting.lr][run_spec.seed],
        )
        Store(tmp_path).write(row, CURVE)
    runs = Store(tmp_path).runs()
    of_three = second_stage(plan, runs).run_specs
    of_one = second_stage(plan_of("fedavg"), runs[runs["seed"] == 0]).run_specs
    assert {run_spec.setting.lr for run_spec in of_three} == {0.0707, 0.141, 0.0841}
    of_seed_0 = [run_spec for run_spec in of_three if run_spec.seed == 0]
    assert of_seed_0 == [*of_one]
    # A failure on another seed does not hold it up.
    lost = (runs["seed"] == 2) & (runs["setting_json"].str.contains('"lr":0.2'))
    assert second_stage(plan, runs[~lost]).run_specs == of_three


@pytest.mark.parametrize(
    ("names", "values"),
    [
        (("fedavg", "fedavg_t1"), {}),
        (("fedavg", "fedavg_t1"), {"t1_unvisited": ("skip", "w0")}),
        (("fedgkd", "fedgkd_t1"), {}),
        (("fedprox_t1", "fedprox"), {}),
        (("fedprox_t1", "fedprox"), {"mu": ("0.001", "0.01", "0.1", "0.5", "1", "2")}),
    ],
)
def test_both_rows_of_a_run_get_the_budget(
    tmp_path: Path, names: tuple[str, ...], values: dict[str, tuple[str, ...]]
) -> None:
    plan = plan_of(*names, budget=5, values=values, dataset="digits")
    second = second_stage(plan, stored(tmp_path, plan, dict.fromkeys(names, 0.1)))
    assert len(second.run_specs) == count_second_stage(plan)
    tried: dict[str, set[str]] = {}
    for run_spec in (*plan.run_specs, *second.run_specs):
        for suffix, name in run_spec.row_names.items():
            tried.setdefault(name, set()).add(run_spec.rows[suffix])
    assert {name: len(keys) for name, keys in tried.items()} == dict.fromkeys(names, 5)


def test_a_form_does_not_fix_its_base(tmp_path: Path) -> None:
    """The space of `fedprox_t1` on the digits has one mu, that of `fedprox` three."""
    plan = plan_of("fedprox", "fedprox_t1", budget=5, dataset="digits")
    second = second_stage(plan, stored(tmp_path, plan, {"fedprox": 0.1, "fedprox_t1": 0.1}))
    run_specs = (*plan.run_specs, *second.run_specs)
    assert {run_spec.hyperparameters["mu"] for run_spec in run_specs} == {0.01, 0.1, 1.0}


@pytest.mark.parametrize(
    ("best", "near"), [(0.05, [0.0354, 0.0707]), (0.1, [0.0707, 0.141]), (0.2, [0.141, 0.283])]
)
def test_rates_near_the_best(best: float, near: list[float]) -> None:
    rates = list(rates_around(best, [0.05, 0.1, 0.2]))
    assert rates[:2] == near
    assert len(set(rates)) == len(rates) > 100
    assert not {0.05, 0.1, 0.2} & set(rates)


@pytest.mark.parametrize(
    "options",
    [
        {"budget": 3},
        {"budget": 0},
        {"values": {"lr": ("0.1",)}},
        {"search": "optuna"},
        {"search": "random"},
    ],
)
def test_what_has_no_two_stages_is_refused(options: dict[str, Any]) -> None:
    with pytest.raises(UsageError, match=r"two-stage|--budget"):
        plan_of("fedavg", **options)


def test_own_values_that_contradict_are_refused() -> None:
    with pytest.raises(UsageError, match="no combination keeps beta <= gamma"):
        plan_of("fedcad", values={"beta": ("0.9",), "gamma": ("0.1", "0.2")})


def test_rates_far_apart_have_numbers_between() -> None:
    for rates in ([1e-300, 1e300], [1e-320, 1.0]):
        for best in rates:
            assert all(0 < rate < math.inf for rate in rates_around(best, rates))


def test_a_budget_that_two_stages_cannot_fill_is_refused(tmp_path: Path) -> None:
    """FedAvg has no own values, and 0.1 and 0.101 are neighbours in three digits."""
    with pytest.raises(UsageError, match="--budget"):
        plan_of("fedavg", budget=40, values={"lr": ("0.1", "0.101")})
    plan = plan_of("fedavg", budget=40)
    second = second_stage(plan, stored(tmp_path, plan, {"fedavg": 0.1}))
    assert len(second.run_specs) == 37


@pytest.mark.slow
def test_a_sweep_runs_both_stages_and_confirms(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    command = [
        "--algo",
        "fedavg",
        "fedprox",
        "--dataset",
        "digits",
        "--rounds",
        "1",
        "--local-epochs",
        "1",
    ]
    command += [
        "--budget",
        "4",
        "--tuning",
        "two-stage",
        "--lr",
        "0.05",
        "0.1",
        "--set",
        "mu=0.01,0.1,1",
    ]
    command += [
        "--confirm",
        "101-102",
        "--replicates",
        "fedavg=2",
        "--executor",
        "inline",
        "--out",
        str(tmp_path),
    ]
    dry = [*command, "--dry-run", "--json"]
    assert sweep(dry) == 0
    before = json.loads(capsys.readouterr().out)
    assert (before["to_do"], before["second_stage_runs"], before["second_stage_to_do"]) == (
        4,
        4,
        None,
    )
    assert before["confirming_runs_at_most"] == 2 * 2 + 2
    assert sweep([*command, "-q"]) == 0
    capsys.readouterr()
    runs = Store(tmp_path).runs()
    assert (runs["seed"] == 0).sum() == 8
    assert sorted(runs.loc[(runs["algorithm"] == "fedavg") & (runs["seed"] > 0), "seed"]) == [
        101,
        102,
        1101,
        1102,
    ]
    assert sorted(runs.loc[(runs["algorithm"] == "fedprox") & (runs["seed"] > 0), "seed"]) == [
        101,
        102,
    ]
    assert sweep(dry) == 0
    after = json.loads(capsys.readouterr().out)
    assert (after["to_do"], after["second_stage_to_do"], after["confirming_runs_to_do"]) == (
        0,
        0,
        0,
    )


# Replicates


def test_replicates_share_the_partition_and_first_weights() -> None:
    first, other = (
        simulate("fedavg", seed=seed, partition_seed=partition_seed)
        for seed, partition_seed in ((7, None), (1007, 7))
    )
    assert all(
        torch.equal(first.server.params[name], other.server.params[name])
        for name in first.net.names
    )
    assert [first.participants(r) for r in range(1, 9)] != [
        other.participants(r) for r in range(1, 9)
    ]
    labels = toy_dataset().train_y
    plain, fixed = replace(TINY, num_clients=4), replace(TINY, num_clients=4, partition_seed=7)
    assert (
        split(plain, labels, 7).hash
        == split(fixed, labels, 1007).hash
        != split(plain, labels, 1007).hash
    )


def test_the_runs_own_seed_as_partition_seed_is_the_default() -> None:
    run_spec = RunSpec("fedavg", {}, TINY, 7)
    assert replace(run_spec, setting=replace(TINY, partition_seed=7)).key == run_spec.key
    assert replace(run_spec, setting=replace(TINY, partition_seed=8)).key != run_spec.key
    assert (
        trained("fedavg", seed=7).progress.curves
        == trained("fedavg", seed=7, partition_seed=7).progress.curves
    )


def test_replicates_are_numbered_by_their_partition() -> None:
    run_specs = with_replicates(
        [
            RunSpec("fedavg_t1", entry("fedavg_t1").defaults(), TINY, 5),
            RunSpec("fedprox", entry("fedprox").defaults(), TINY, 5),
        ],
        {"fedavg": 3},
    )
    assert [(u.algorithm, u.seed, u.setting.partition_seed) for u in run_specs] == [
        ("fedavg_t1", 5, None),
        ("fedavg_t1", 1005, 5),
        ("fedavg_t1", 2005, 5),
        ("fedprox", 5, None),
    ]
    assert len({run_spec.key for run_spec in run_specs}) == 4


def test_confirmation_has_given_seeds_and_replicates(tmp_path: Path) -> None:
    plan = make_plan(
        SweepOptions(
            ("fedprox",), values={"mu": ("0.1", "1")}, confirm=(101, 105), replicates={"fedprox": 2}
        )
    )
    assert [run_spec.seed for run_spec in plan.run_specs] == [0, 0]
    assert len(stand_ins(plan)) == 4
    for run_spec in plan.run_specs:
        row = make_row(
            "fedprox",
            run_spec.hyperparameters,
            run_spec.setting.as_dict(),
            0,
            entry("fedprox").version,
        )
        Store(tmp_path).write(row, CURVE)
    assert [run_spec.seed for run_spec in confirmation(plan, Store(tmp_path).runs()).run_specs] == [
        101,
        1101,
        105,
        1105,
    ]


@pytest.mark.parametrize(
    "options",
    [
        {"replicates": {"fedprox": 2}},
        {"replicates": {"fedavg": 2}, "seeds": 1001},
        {"replicates": {"fedavg": 2}, "confirm": (1000,)},
        {"replicates": {"fedavg": 2}, "search": "optuna"},
    ],
)
def test_wrong_replicates_are_refused(options: dict[str, Any]) -> None:
    with pytest.raises(UsageError, match="--replicates"):
        make_plan(SweepOptions(("fedavg",), **options))


@pytest.mark.parametrize("words", ["fedavg=0", "fedavg=x", "fedavg=1,2", "fedavg=101"])
def test_replicates_are_whole_numbers(words: str, tmp_path: Path) -> None:
    assert (
        sweep(["--algo", "fedavg", "--replicates", words, "--out", str(tmp_path), "--dry-run"]) == 2
    )


# Seeds


@pytest.mark.parametrize(
    ("text", "seeds"),
    [
        ("3", (1, 2, 3)),
        ("101-103", (101, 102, 103)),
        ("5,7-8", (5, 7, 8)),
        ("4-4", (4,)),
        ("1,1-2", (1, 2)),
    ],
)
def test_seeds_are_a_count_or_named(text: str, seeds: tuple[int, ...]) -> None:
    assert seeds_to_confirm(text) == seeds


@pytest.mark.parametrize(
    "text", ["0", "0-3", "5-3", "a", "1-", "", "1.5", "-3", "1-1000000", "9" * 30]
)
def test_wrong_seeds_are_refused(text: str) -> None:
    with pytest.raises(ArgumentTypeError):
        seeds_to_confirm(text)


def test_seeds_are_shortened_in_words() -> None:
    assert seeds_in_words((1, 2, 3, 7, 9, 10)) == "1 to 3, 7, 9 to 10"

"""`--table` and `--confirm-at`: what they refuse, narrow and replace, in whole texts."""

from __future__ import annotations

from itertools import product
from typing import Any

import pytest

from bench.errors import UsageError
from bench.planning.confirm import stand_ins, tuned_at
from bench.planning.options import SweepOptions
from bench.planning.plan import Plan
from bench.planning.planner import make_plan
from bench.planning.tables import counterparts_of, needs_local_accuracy, places_of, title_of


def table_plan(table: str = "3", *algo: str, dataset: str = "", **options: Any) -> Plan:
    """Plan runs of a table of FedGKD's paper, or of another."""
    options = {"paper": "fedgkd", **options}
    return make_plan(SweepOptions(algo, dataset=dataset, table=table, **options))


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"paper": None}, "--table 3 needs --paper: whose table it is"),
        *(
            (
                option,
                "--table runs the cells as printed: leave out --search, --scheduler and --budget",
            )
            for option in ({"search": "random"}, {"scheduler": "asha"}, {"budget": 2})
        ),
        (
            {"values": {"dataset": ("cifar10",)}},
            "a table's data sets are narrowed by --dataset, not with --set",
        ),
        (
            {"dataset": "cifar10,mnist"},
            "Table 3 of fedgkd has no data set 'mnist'; it has: cifar10, cifar100, tiny_imagenet",
        ),
        (
            {"values": {"alpha": ("1", "7")}},
            "--alpha 7 is not in these cells of the table; they have: 1, 0.5, 0.1",
        ),
        (
            {"values": {"participation": ("0.7",)}},
            "--participation 0.7 is not in these cells of the table; they have: 0.2",
        ),
        (
            {"values": {"num_clients": ("7",)}},
            "--clients 7 is not in these cells of the table; they have: 20",
        ),
        (
            {"values": {"classes_per_client": ("7",)}, "paper": "fedproto", "table": "1"},
            "--set classes_per_client 7 is not in these cells of the table; they have: 3, 4, 5",
        ),
        (
            {"table": "99"},
            "paper 'fedgkd' has no table of results '99'; it has: 3, 4, 5, 6, 7, 8, 9, fig2",
        ),
        (
            {"paper": "mine"},
            "no paper with tables of results 'mine'; "
            "known: fedcad, feddkd, fedgkd, fedkf, fedproto",
        ),
        (
            {"values": {"local_epochs": ("21",)}, "dataset": "cifar10"},
            "local_epochs=21 is more than the 20 of FedAvg on cifar10: a table's runs can be "
            "shortened, not lengthened: select other cells, or lower it",
        ),
        (
            {"values": {"local_epochs": ("2",)}, "table": "4"},
            "local_epochs=2 is more than the 1 of FedAvg on ag_news: a table's runs can be "
            "shortened, not lengthened: select other cells, or lower it",
        ),
        (
            {"values": {"model": ("mlp",)}, "dataset": "cifar10"},
            "FedAvg on cifar10: model 'mlp' takes 8x8 inputs, the data set has images of 3x32x32; "
            "models that fit: cnn_cifar, lenet5, lenet5_120, vgg9, cnn_femnist, resnet8, "
            "resnet8_wide, resnet50, resnet50_imagenet; or select by --algo and --dataset what can "
            "run so",
        ),
    ],
)
def test_a_table_is_refused_in_words(options: dict[str, Any], problem: str) -> None:
    with pytest.raises(UsageError) as refused:
        table_plan(**options)
    assert str(refused.value) == problem


def test_a_table_without_an_algorithm_lists_its_own() -> None:
    with pytest.raises(UsageError) as refused:
        table_plan("3", "fedavg", "fedmd")
    assert str(refused.value) == (
        "Table 3 of fedgkd has no algorithm 'fedmd'; it has: fedavg, fedprox, moon, feddistill, "
        "fedgen, fedgkd, fedgkd_vote, fedgkd_plus"
    )


def cells(plan: Plan) -> list[tuple[str, Any, Any, Any]]:
    """List algorithm, alpha, local epochs and seed of the runs."""
    found = []
    for run_spec in plan.run_specs:
        setting = run_spec.setting
        found.append((run_spec.algorithm, setting.alpha, setting.local_epochs, run_spec.seed))
    return found


def test_values_that_a_table_has_narrow_it() -> None:
    plan = table_plan("3", "fedavg", dataset="cifar10", values={"alpha": ("0.1", "1")}, seeds=2)
    expected = [("fedavg", alpha, 20, seed) for alpha, seed in product((1.0, 0.1), (0, 1))]
    assert cells(plan) == expected
    assert (plan.notes, plan.origins) == ((), {})
    assert {run_spec.shortened for run_spec in plan.run_specs} == {False}


def test_epochs_narrow_a_table_that_varies_them() -> None:
    options: Any = {"paper": "fedcad", "table": "4"}
    plan = table_plan(**options, values={"local_epochs": ("50", "1")})
    assert {setting.local_epochs for setting in plan.settings} == {1, 50}
    assert plan.origins == {}
    with pytest.raises(UsageError, match=r"^local_epochs=5 is more than the 1 of "):
        table_plan(**options, values={"local_epochs": ("1", "5")})


def test_epochs_shorten_other_tables() -> None:
    plan = table_plan("3", "fedavg", dataset="cifar10", values={"local_epochs": ("7",)})
    assert cells(plan) == [("fedavg", alpha, 7, 0) for alpha in (1.0, 0.5, 0.1)]
    assert {run_spec.shortened for run_spec in plan.run_specs} == {True}
    assert plan.origins == {"local_epochs": "command line"}
    assert plan.notes == ()
    same = table_plan("3", "fedavg", dataset="cifar10", values={"local_epochs": ("20",)})
    assert {run_spec.shortened for run_spec in same.run_specs} == {False}


@pytest.mark.parametrize(
    ("values", "names"),
    [
        ({"lr": ("7",)}, "lr"),
        ({"gamma": ("7",)}, "gamma"),
        ({"gamma": ("7",), "lr": ("7",), "momentum": ("0.5",)}, "lr, momentum, gamma"),
        ({"rounds": ("3",)}, ""),
        ({"lr": ("0.05",)}, ""),
        ({"gamma": ("0.2",)}, ""),
        ({"gamma": ("0.2", "0.1")}, "gamma"),
    ],
)
def test_a_tables_runs_with_other_values(values: dict[str, tuple[str, ...]], names: str) -> None:
    plan = table_plan("3", "fedgkd", dataset="cifar10", values=values)
    note = (
        f"with values of {names} that are not the table's: bench.compare --table shows these runs "
        "beside no cell"
    )
    assert plan.notes == ((note,) if names else ())


def test_another_algorithms_values_are_the_tables() -> None:
    plan = table_plan("3", "fedavg", "fedgkd", dataset="cifar10", values={"fedgkd.gamma": ("7",)})
    assert [run_spec.hyperparameters.get("gamma") for run_spec in plan.run_specs] == [
        None,
        7.0,
    ] * 3


def test_places_have_a_title() -> None:
    figure = places_of("fedgkd", "FIG2")
    assert title_of(figure[0]) == "Figure 2 · Yao et al. 2021 (fedgkd) · ours beside printed"
    assert needs_local_accuracy(figure)
    assert not needs_local_accuracy(figure[:1])
    table = places_of("feddkd", "v")
    assert title_of(table[0]) == "Table V · Li et al. 2022 (feddkd) · ours beside printed"
    assert not needs_local_accuracy(table)
    assert needs_local_accuracy([*table, *figure])


def test_a_number_of_several_tries_has_their_labels() -> None:
    first = {place.printed.algorithm: place for place in reversed(places_of("fedcad", "1"))}
    assert first["fedavg"].tried == ()
    assert [one.label for one in counterparts_of(first["fedavg"])] == [""]
    tried = counterparts_of(first["fedprox"])
    assert first["fedprox"].tried == ("mu",)
    assert [one.label for one in tried] == ["mu=0.001", "mu=0.01", "mu=0.1"]
    assert [one.algorithm for one in tried] == ["fedprox"] * 3
    assert first["fedprox"].setting == first["fedprox"].run_specs[0].setting


# `--confirm-at`


def confirming(confirm_at: dict[str, tuple[str, ...]], **options: Any) -> Plan:
    return make_plan(SweepOptions(("fedavg",), confirm=(1, 2), confirm_at=confirm_at, **options))


@pytest.mark.parametrize(
    ("confirm_at", "options", "problem"),
    [
        ({"lr": ("x",)}, {}, "lr must be a number, got 'x' (from --confirm-at)"),
        (
            {"participation": ("2",)},
            {},
            "participation must be in (0, 1], got 2.0 (from --confirm-at)",
        ),
        *(
            (
                {name: ("1",)},
                {},
                f"--confirm-at {name}=...: {name} makes another problem; take another field, such "
                "as participation",
            )
            for name in ("dataset", "start_from", "partition_seed")
        ),
        (
            {"lr": ("0.1",)},
            {"budget": 2},
            "--confirm-at lr=...: lr is selected over by this search; take another field, such as "
            "participation",
        ),
        (
            {"participation": ("0.5",), "rounds": ("3",)},
            {"values": {"participation": ("0.2", "0.3")}},
            "--confirm-at participation rounds=... would confirm in one cell what was tuned in "
            "several, which differ in participation: tune at one value of participation",
        ),
        (
            {"participation": ("0.5",)},
            {"values": {"participation": ("0.2", "0.3"), "alpha": ("0.1", "1")}},
            "--confirm-at participation=... would confirm in one cell what was tuned in several, "
            "which differ in participation: tune at one value of participation",
        ),
    ],
)
def test_a_confirmation_is_refused_in_words(
    confirm_at: dict[str, tuple[str, ...]], options: dict[str, Any], problem: str
) -> None:
    with pytest.raises(UsageError) as refused:
        stand_ins(confirming(confirm_at, **options))
    assert str(refused.value) == problem


def test_an_unknown_field_is_compared_with_the_known() -> None:
    problem = r"^no field for --confirm-at 'lrr' \(did you mean lr\?\); known: adam_beta1, "
    with pytest.raises(UsageError, match=problem):
        stand_ins(confirming({"lrr": ("1",)}))


def test_a_choice_is_confirmed_on_each_seed_where_asked() -> None:
    plan = confirming({"participation": ("0.25", "1")})
    runs = [(each.algorithm, each.setting.participation, each.seed) for each in stand_ins(plan)]
    assert runs == [
        ("fedavg", participation, seed) for participation, seed in product((0.25, 1.0), (1, 2))
    ]
    (tuned,) = {setting.participation for setting in plan.settings}
    assert tuned_at(plan) == {"participation": tuned}
    assert tuned_at(confirming({"participation": (str(tuned),)})) == {}

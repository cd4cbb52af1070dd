"""Settings and grids against a copy of what the papers print, kept here on its own."""

from __future__ import annotations

import dataclasses

import pytest

from algorithms import ALGORITHMS
from bench.data import DATASETS
from bench.data.partition import partition
from bench.models import check_model
from search_spaces import PAPERS, SETTINGS, SPACES, Bounds, Grid, Range, Setting, cast, check, find, holds

PRINTED_SETTINGS = {
    ("fedcad", "cifar10"): {
        "model": "cnn_cifar",
        "num_clients": 10,
        "participation": 1.0,
        "alpha": 0.5,
        "rounds": 100,
        "local_epochs": 10,
        "batch_size": 64,
        "optimizer": "sgd",
        "lr": 0.01,
        "momentum": 0.9,
        "auxiliary_per_class": 32,
    },
    ("fedgkd", "cifar10"): {
        "model": "resnet8",
        "num_clients": 20,
        "participation": 0.2,
        "rounds": 100,
        "local_epochs": 20,
        "batch_size": 64,
        "optimizer": "sgd",
        "lr": 0.05,
        "momentum": 0.9,
        "weight_decay": 1e-5,
        "validation_fraction": 0.1,
    },
}
PRINTED_SETTINGS["fedgkd", "cifar100"] = PRINTED_SETTINGS["fedgkd", "cifar10"]
PRINTED_GRIDS = {
    ("fedcad", "cifar10", "fedprox"): {"mu": (0.001, 0.01, 0.1)},
    ("fedcad", "cifar10", "fedlsd"): {"distillation_weight": (0.1, 0.3, 0.5)},
    ("fedcad", "cifar10", "fedcad"): {"beta": (0.0, 0.3, 0.5, 0.7), "gamma": (0.0, 0.3, 0.5, 0.7)},
    ("fedgkd", "cifar10", "fedgkd"): {"buffer": (1, 3, 5, 7)},
    ("fedgkd", "cifar100", "fedgkd"): {"buffer": (1, 3, 5, 7)},
}
PRINTED_VALUES = {
    ("fedcad", "cifar10", "fedlsd"): {"temperature": 2.0},
    ("fedgkd", "cifar10", "fedgkd"): {"gamma": 0.2},
    ("fedgkd", "cifar10", "fedprox"): {"mu": 0.01},
    ("fedgkd", "cifar100", "fedprox"): {"mu": 0.001},
}


@pytest.mark.parametrize("key", PRINTED_SETTINGS, ids="-".join)
def test_settings_are_as_printed(key: tuple[str, str]) -> None:
    setting = SETTINGS[key].as_dict()
    assert {name: setting[name] for name in PRINTED_SETTINGS[key]} == PRINTED_SETTINGS[key]


def test_grids_are_as_printed() -> None:
    grids = {
        key: {name: grid.values for name, grid in space.grid.items()}
        for key, space in SPACES.items()
        if key[0] != "fedkd" and space.grid
    }
    assert grids == PRINTED_GRIDS
    assert {key: dict(SPACES[key].fixed) for key in PRINTED_VALUES} == PRINTED_VALUES


def test_every_space_names_what_exists_and_its_source() -> None:
    for (paper, dataset, algorithm), space in SPACES.items():
        assert paper in PAPERS
        assert space.source
        entry = ALGORITHMS[algorithm]
        assert set(space.grid) | set(space.fixed) <= set(entry.defaults())
        assert set(space.where) <= set(entry.where)
        bounds = {field.name: field.bounds for field in entry.fields}
        for name, grid in space.grid.items():
            assert all(bounds[name].allows(value) for value in grid.values)
        assert space.setting.dataset == dataset
        check_model(space.setting.model, DATASETS[dataset].input_shape)
        partition(space.setting.partition)


def test_every_algorithm_has_a_space_on_the_embedded_data(name: str) -> None:
    assert find(name, "digits", "fedkd") is not None


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"participation": 0}, "participation must be in (0, 1], got 0.0"),
        ({"lr": float("inf")}, "lr must be > 0, got inf"),
        ({"rounds": 2.5}, "rounds must be of type int, got 2.5"),
        ({"optimizer": "sdg"}, "optimizer must be one of sgd, adam, got 'sdg'"),
        ({"nesterov": True}, "nesterov needs momentum > 0"),
        ({"evaluate_every": 101}, "evaluate_every must be <= rounds"),
        ({"dataset": None}, "dataset must be of type str, got None"),
    ],
)
def test_a_setting_is_checked_in_the_users_words(values: dict, message: str) -> None:
    with pytest.raises(ValueError, match=r".") as caught:
        Setting(**values)
    assert message in str(caught.value)


def test_one_and_one_point_zero_are_one_setting() -> None:
    assert Setting(alpha=1, participation=1) == Setting(alpha="1.0", participation="1")
    assert Setting(rounds="10").rounds == 10
    assert isinstance(Setting(alpha=1).alpha, float)


def test_every_field_of_a_setting_has_bounds_and_a_meaning() -> None:
    for item in dataclasses.fields(Setting):
        assert isinstance(item.metadata["bounds"], Bounds)
        assert item.metadata["meaning"]


def test_cohorts_round_half_up() -> None:
    assert Setting(num_clients=10, participation=0.25).cohort_size == 3
    assert Setting(num_clients=10, participation=0.01).cohort_size == 1


def test_casting_and_relations() -> None:
    assert cast("x", "true", "bool") is True
    assert cast("x", "none", "float | None") is None
    assert cast("x", "1e2", "int") == 100
    with pytest.raises(ValueError, match="x must be of type bool, got 'maybe'"):
        cast("x", "maybe", "bool")
    with pytest.raises(ValueError, match="x must be of type float, got True"):
        cast("x", True, "float")
    check("x", None, Bounds(0, 1))
    assert holds("a <= b", {"a": 1, "b": 1})
    assert not holds("a < b", {"a": 1, "b": 1})
    with pytest.raises(ValueError, match="name op name"):
        holds("a is b", {"a": 1, "b": 1})


def test_ranges_and_grids_refuse_nonsense() -> None:
    with pytest.raises(ValueError, match="low < high"):
        Range(1, 1)
    with pytest.raises(ValueError, match="low > 0"):
        Range(0, 1, log=True)
    with pytest.raises(ValueError, match="at least one"):
        Grid()
    assert str(Grid(0.1, 1)) == "{0.1, 1}"
    assert str(Range(0.001, 1, log=True)) == "[0.001, 1] log"

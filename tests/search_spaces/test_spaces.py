"""Settings, grids and tables against a copy of what the papers print, kept on its own in `paper_tables.py`."""

from __future__ import annotations

import dataclasses
from itertools import product

import paper_tables
import pytest

from algorithms import ALGORITHMS, entry
from bench.data import DATASETS
from bench.data.partition import PARTITIONS
from bench.models import check_model
from bench.planning.options import SweepOptions
from bench.planning.planner import make_plan
from search_spaces import (
    PAPERS,
    SETTINGS,
    SPACES,
    Bounds,
    Grid,
    Range,
    Setting,
    Space,
    cast,
    check,
    combinations,
    holds,
)
from search_spaces.setting import share_of

PRINTED = {key: space for key, space in SPACES.items() if key[0] != "fedkd"}


def configurations(space: Space) -> list[dict]:
    """The grid's combinations that keep the relations, resolved by the registry."""
    found = entry(space.algorithm)
    values = {name: Grid(value) for name, value in space.fixed.items()} | dict(space.grid)
    resolved = [found.resolve(values) for values in combinations(values)]
    valid = []
    for configuration in resolved:
        if all(holds(relation, configuration) for relation in found.where):
            valid.append(configuration)
    return valid


@pytest.mark.parametrize("key", [key for key in SETTINGS if key[0] != "fedkd"], ids="-".join)
def test_settings_are_as_printed(key: tuple[str, str]) -> None:
    expected = Setting(dataset=key[1], **paper_tables.SETTINGS[key])
    assert SETTINGS[key].as_dict() == expected.as_dict()


@pytest.mark.parametrize("key", paper_tables.SAMPLES, ids="-".join)
def test_shares_give_the_printed_numbers_of_samples(key: tuple[str, str]) -> None:
    setting, (pool, trained, validating) = SETTINGS[key], paper_tables.SAMPLES[key]
    kept = share_of(setting.fraction, pool)
    held_out = share_of(setting.validation_fraction, kept)
    classes = {"cifar10": 10, "cifar100": 100}.get(setting.dataset, 0)
    shared = kept - held_out - setting.auxiliary_per_class * classes
    assert (shared - share_of(setting.local_test_fraction, shared), held_out) == (
        trained,
        validating,
    )
    assert DATASETS[setting.dataset].train_size == pool


@pytest.mark.parametrize("key", PRINTED, ids="-".join)
def test_spaces_are_as_printed(key: tuple[str, str, str]) -> None:
    space, row, found = PRINTED[key], paper_tables.ROWS[key], ALGORITHMS[key[2]]
    assert {name: grid.values for name, grid in space.grid.items()} == row.tried
    assert {name: grid.values for name, grid in space.tuned.items()} == paper_tables.TUNED.get(
        key, {}
    )
    assert space.chosen == row.reported
    assert found.resolve(space.fixed) == found.defaults() | row.fixed


@pytest.mark.parametrize("key", SPACES, ids="-".join)
def test_a_space_resolves_and_names_what_there_is(key: tuple[str, str, str]) -> None:
    paper, dataset, algorithm = key
    space = SPACES[key]
    assert paper in PAPERS
    assert space.source
    assert space.algorithm == algorithm
    assert configurations(space)
    entry(algorithm).resolve(space.reported())
    main = SETTINGS[paper, dataset]
    assert dataclasses.replace(space.setting, model=main.model) == main, (
        "only the model may be an algorithm's own"
    )
    assert space.setting.normalization in DATASETS[dataset].normalizations
    assert space.setting.partition in PARTITIONS
    check_model(space.setting.model, DATASETS[dataset].sized(space.setting.image_size).input_shape)


@pytest.mark.parametrize("key", SETTINGS, ids="-".join)
def test_a_sweep_of_a_paper_runs_its_grids_and_nothing_else(key: tuple[str, str]) -> None:
    for space in (
        space for (paper, dataset, _), space in SPACES.items() if (paper, dataset) == key
    ):
        plan = make_plan(SweepOptions((space.algorithm,), dataset=key[1], paper=key[0]))
        tried = list(product(combinations(space.tuned), configurations(space)))
        assert [run_spec.hyperparameters for run_spec in plan.run_specs] == [
            values for _, values in tried
        ]
        for run_spec, (fields, _) in zip(plan.run_specs, tried, strict=True):
            assert run_spec.setting.as_dict().items() >= fields.items()


def all_rows() -> set[str]:
    """The names of all rows: an algorithm's, or that and a suffix."""
    rows = set(ALGORITHMS)
    for algorithm in ALGORITHMS.values():
        rows |= set(algorithm.rows.values())
    return rows


def test_all_algorithms_on_the_embedded_data_are_few_runs() -> None:
    sizes = {name: len(configurations(SPACES["fedkd", "digits", name])) for name in ALGORITHMS}
    assert (
        max(
            sizes[name]
            for name in ("fedgen", "fedkf", "feddf", "feddkd", "feddkd_max", "feddkd_bn")
        )
        <= 2
    )
    plan = make_plan(SweepOptions(("all",)))
    assert len(ALGORITHMS) <= len(plan.run_specs) <= 2 * len(ALGORITHMS)
    rows = set[str]()
    for run_spec in plan.run_specs:
        rows |= set(ALGORITHMS[run_spec.algorithm].rows.values())
    assert rows == all_rows()


@pytest.mark.parametrize(("key", "values"), paper_tables.REPORTED_AT.items(), ids=str)
def test_the_reported_value_follows_alpha(
    key: tuple[str, str, str], values: dict[float, dict]
) -> None:
    for alpha, expected in values.items():
        reported = SPACES[key].reported(alpha)
        assert {name: reported[name] for name in expected} == expected
        assert reported.items() >= SPACES[key].fixed.items()
    own = SPACES[key].setting.alpha
    assert SPACES[key].reported() == SPACES[key].reported(own)


@pytest.mark.parametrize(
    "space", SPACES.values(), ids=lambda space: f"{space.algorithm}-{space.setting.dataset}"
)
def test_what_a_paper_reports_with_is_among_what_it_tried(space: Space) -> None:
    assert not set(space.grid) & set(space.fixed)
    for values in (space.chosen, *space.chosen_at.values()):
        assert all(value in space.grid[name] for name, value in values.items())
    assert all(getattr(space.setting, name) in grid for name, grid in space.tuned.items())


@pytest.mark.parametrize(
    ("values", "name"),
    [
        ({"participation": 0}, "participation"),
        ({"rounds": 2.5}, "rounds"),
        ({"optimizer": "sdg"}, "optimizer"),
        ({"nesterov": True}, "nesterov"),
        ({"evaluate_every": 101}, "evaluate_every"),
        ({"dataset": None}, "dataset"),
    ],
)
def test_a_setting_is_checked_by_name(values: dict, name: str) -> None:
    with pytest.raises(ValueError, match=name):
        Setting(**values)


def test_one_and_one_point_zero_are_one_setting() -> None:
    assert Setting(alpha=1, participation=1) == Setting(alpha="1.0", participation="1")
    assert Setting(rounds="10").rounds == 10
    assert isinstance(Setting(alpha=1).alpha, float)


def test_cohorts_round_half_up() -> None:
    assert Setting(num_clients=10, participation=0.25).cohort_size == 3
    assert Setting(num_clients=10, participation=0.01).cohort_size == 1
    assert Setting(num_clients=50, participation=0.29).cohort_size == 15  # 14.5 is meant
    new = Setting(num_clients=50, new_clients=0.29, local_test_fraction=0.2)
    assert new.training_clients == 35


@pytest.mark.parametrize(
    ("share", "count", "expected"),
    [(0.29, 50, 15), (0.289, 50, 14), (0.5, 1, 1), (0.1, 45_000, 4500), (0.0, 9, 0), (1.0, 7, 7)],
)
def test_shares_are_rounded_half_up(share: float, count: int, expected: int) -> None:
    assert share_of(share, count) == expected


@pytest.mark.parametrize(
    ("value", "kind"),
    [("maybe", "bool"), (True, "float"), ("y", "float | None"), ("1.5", "int"), (None, "str")],
)
def test_a_value_of_another_type_is_refused_by_name(value: object, kind: str) -> None:
    with pytest.raises(ValueError, match=r"^x "):
        cast("x", value, kind)


def test_casting_and_relations() -> None:
    assert cast("x", "true", "bool") is True
    assert cast("x", "none", "float | None") is None
    assert cast("x", "1e2", "int") == 100
    check("x", None, Bounds(0, 1))
    with pytest.raises(ValueError, match=r"^x must be in"):
        check("x", 10**400, Bounds(0, 1))
    assert holds("a <= b", {"a": 1, "b": 1})
    assert not holds("a < b", {"a": 1, "b": 1})
    with pytest.raises(ValueError, match="a is b"):
        holds("a is b", {"a": 1, "b": 1})


def test_ranges_and_grids_are_printed_and_no_grid_is_empty() -> None:
    with pytest.raises(ValueError, match="value"):
        Grid()
    assert str(Grid(0.1, 1)) == "{0.1, 1}"
    assert str(Range(0.001, 1)) == "[0.001, 1] log"

"""Settings, grids and tables against a copy of what the papers print, kept on its own in `paper_tables.py`."""

from __future__ import annotations

import dataclasses
from itertools import product

import paper_tables
import pytest

import search_spaces
from algorithms import ALGORITHMS, entry
from bench.data import DATASETS
from bench.data.partition import PARTITIONS
from bench.data.splits import share_of
from bench.models import check_model
from bench.planning.plan import make_plan
from bench.planning.request import Request
from search_spaces import (
    PAPERS,
    SETTINGS,
    SPACES,
    TABLES,
    Bounds,
    Grid,
    Range,
    Setting,
    Space,
    cast,
    check,
    combinations,
    crossed,
    holds,
)

PRINTED = {key: space for key, space in SPACES.items() if key[0] != "fedkd"}
MOST_ON_DIGITS = 55


def configurations(space: Space) -> list[dict]:
    """The grid's combinations that keep the relations, resolved by the registry."""
    found = entry(space.algorithm)
    values = {name: Grid(value) for name, value in space.fixed.items()} | dict(space.grid)
    resolved = [found.resolve(values) for values in combinations(values)]
    return [values for values in resolved if all(holds(relation, values) for relation in (*found.where, *space.where))]


@pytest.mark.parametrize("key", paper_tables.SETTINGS, ids="-".join)
def test_settings_are_as_printed(key: tuple[str, str]) -> None:
    expected = Setting(dataset=key[1], **paper_tables.SETTINGS[key])
    assert SETTINGS[key].as_dict() == expected.as_dict()


def test_every_setting_of_a_paper_is_checked() -> None:
    assert set(paper_tables.SETTINGS) == {key for key in SETTINGS if key[0] != "fedkd"}


@pytest.mark.parametrize("key", paper_tables.SAMPLES, ids="-".join)
def test_shares_give_the_printed_numbers_of_samples(key: tuple[str, str]) -> None:
    setting, (pool, trained, validating) = SETTINGS[key], paper_tables.SAMPLES[key]
    kept = share_of(setting.fraction, pool)
    held_out = share_of(setting.validation_fraction, kept)
    classes = {"cifar10": 10, "cifar100": 100}.get(setting.dataset, 0)
    shared = kept - held_out - setting.auxiliary_per_class * classes
    assert (shared - share_of(setting.local_test_fraction, shared), held_out) == (trained, validating)
    assert DATASETS[setting.dataset].train_size == pool


@pytest.mark.parametrize("key", PRINTED, ids="-".join)
def test_spaces_are_as_printed(key: tuple[str, str, str]) -> None:
    space, row, found = PRINTED[key], paper_tables.ROWS[key], ALGORITHMS[key[2]]
    assert {name: grid.values for name, grid in space.grid.items()} == row.tried
    assert {name: grid.values for name, grid in space.tuned.items()} == paper_tables.TUNED.get(key, {})
    assert space.chosen == row.reported
    assert found.resolve(space.fixed) == found.defaults() | row.fixed


def test_every_row_of_the_papers_has_a_space() -> None:
    assert set(paper_tables.ROWS) == set(PRINTED)


@pytest.mark.parametrize("key", SPACES, ids="-".join)
def test_a_space_resolves_and_names_what_there_is(key: tuple[str, str, str]) -> None:
    paper, dataset, algorithm = key
    space = SPACES[key]
    assert paper in PAPERS
    assert space.source
    assert space.algorithm == algorithm
    assert set(space.where) <= set(entry(algorithm).where)
    assert configurations(space)
    entry(algorithm).resolve(space.reported())
    main = SETTINGS[paper, dataset]
    assert dataclasses.replace(space.setting, model=main.model) == main, "only the model may be an algorithm's own"
    assert space.setting.normalization in DATASETS[dataset].normalizations
    assert space.setting.partition in PARTITIONS
    check_model(space.setting.model, DATASETS[dataset].sized(space.setting.image_size).input_shape)


@pytest.mark.parametrize("key", SETTINGS, ids="-".join)
def test_a_sweep_of_a_paper_runs_its_grids_and_nothing_else(key: tuple[str, str]) -> None:
    for space in (space for (paper, dataset, _), space in SPACES.items() if (paper, dataset) == key):
        plan = make_plan(Request((space.algorithm,), dataset=key[1], paper=key[0]))
        tried = list(product(combinations(space.tuned), configurations(space)))
        assert [unit.hyperparameters for unit in plan.units] == [values for _, values in tried]
        for unit, (fields, _) in zip(plan.units, tried, strict=True):
            assert unit.setting.as_dict().items() >= fields.items()


def test_all_algorithms_on_the_embedded_data_are_some_fifty_runs() -> None:
    sizes = {name: len(configurations(SPACES["fedkd", "digits", name])) for name in ALGORITHMS}
    assert max(sizes[name] for name in ("fedgen", "fedkf", "feddf", "feddkd", "feddkd_max", "feddkd_bn")) <= 2
    plan = make_plan(Request(("all",)))
    assert len(ALGORITHMS) <= len(plan.units) <= MOST_ON_DIGITS
    assert {suffixed for unit in plan.units for suffixed in ALGORITHMS[unit.algorithm].rows.values()} == set(ALGORITHMS)


@pytest.mark.parametrize(("key", "values"), paper_tables.REPORTED_AT.items(), ids=str)
def test_the_reported_value_follows_alpha(key: tuple[str, str, str], values: dict[float, dict]) -> None:
    for alpha, expected in values.items():
        reported = SPACES[key].reported(alpha)
        assert {name: reported[name] for name in expected} == expected
        assert reported.items() >= SPACES[key].fixed.items()
    own = SPACES[key].setting.alpha
    assert SPACES[key].reported() == SPACES[key].reported(own)


def test_only_these_reported_values_follow_alpha() -> None:
    varied = {key for key, space in SPACES.items() if space.chosen_at and key[0] != "fedkf_printed"}
    assert varied == set(paper_tables.REPORTED_AT)
    assert SPACES["fedkf_printed", "cifar10", "fedkf"].chosen_at == SPACES["fedkf", "cifar10", "fedkf"].chosen_at


def test_what_a_paper_does_not_choose_is_not_reported() -> None:
    assert SPACES["fedcad", "cifar10", "fedcad"].reported() == {}
    assert SPACES["fedcad", "cifar10", "fedlsd"].reported() == {"temperature": 2.0}


def test_resnet50_has_batchnorm_for_projection_heads_alone() -> None:
    models = {name: SPACES["fedgkd", "tiny_imagenet", name].setting.model for name in TABLES["fedgkd", "3"].algorithms}
    assert {name for name, model in models.items() if model == "resnet50+bn"} == {"moon", "fedgkd_plus"}
    assert set(models.values()) == {"resnet50", "resnet50+bn"}


@pytest.mark.parametrize("space", SPACES.values(), ids=lambda space: f"{space.algorithm}-{space.setting.dataset}")
def test_what_a_paper_reports_with_is_among_what_it_tried(space: Space) -> None:
    assert not set(space.grid) & set(space.fixed)
    for values in (space.chosen, *space.chosen_at.values()):
        assert all(value in space.grid[name] for name, value in values.items())
    assert all(getattr(space.setting, name) in grid for name, grid in space.tuned.items())


def test_no_two_entries_have_one_key() -> None:
    for name, table in (("SETTINGS", SETTINGS), ("SPACES", SPACES), ("TABLES", TABLES)):
        assert len(table) == sum(len(getattr(module, name)) for module in search_spaces._MODULES)
    assert len(PAPERS) == len(search_spaces._MODULES)


def test_crossed_settings_vary_the_last_value_fastest() -> None:
    cells = crossed(Setting(), alpha=(1.0, 0.1), participation=(0.2, 0.4))
    assert [(cell.alpha, cell.participation) for cell in cells] == [(1.0, 0.2), (1.0, 0.4), (0.1, 0.2), (0.1, 0.4)]
    assert crossed(Setting()) == (Setting(),)


@pytest.mark.parametrize(
    ("values", "name"),
    [
        ({"participation": 0}, "participation"),
        ({"lr": float("inf")}, "lr"),
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


def test_every_field_of_a_setting_has_bounds_and_a_meaning() -> None:
    for item in dataclasses.fields(Setting):
        assert isinstance(item.metadata["bounds"], Bounds)
        assert item.metadata["meaning"]


def test_cohorts_round_half_up() -> None:
    assert Setting(num_clients=10, participation=0.25).cohort_size == 3
    assert Setting(num_clients=10, participation=0.01).cohort_size == 1


@pytest.mark.parametrize(
    ("value", "kind"),
    [("maybe", "bool"), (True, "float"), ("y", "float | None"), ("1.5", "int"), ("inf", "int | None"), (None, "str")],
)
def test_what_cannot_be_cast_is_refused_by_name(value: object, kind: str) -> None:
    with pytest.raises(ValueError, match=r"^x must be "):
        cast("x", value, kind)


def test_casting_and_relations() -> None:
    assert cast("x", "true", "bool") is True
    assert cast("x", "none", "float | None") is None
    assert cast("x", "1e2", "int") == 100
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

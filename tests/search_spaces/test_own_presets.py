"""This project's own settings and spaces, by which stored runs are named, and bounds."""

from __future__ import annotations

import math
import random
from typing import Any

import pytest
from commands import ROOT

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
    holds,
    names_in,
    own_space,
    setting_fields,
)
from search_spaces.bounds import check_relation, kind_of, nearest
from search_spaces.setting import crossed

# What a setting has off the defaults of `Setting`, beside data set and model.
_CAD = {"momentum": 0.9, "auxiliary_per_class": 32}
OWN: dict[str, dict[str, Any]] = {
    "digits": {
        "alpha": 0.1,
        "participation": 0.5,
        "rounds": 20,
        "local_epochs": 5,
        "batch_size": 16,
        "lr": 0.1,
        "validation_fraction": 0.1,
        "auxiliary_per_class": 8,
    },
    "mnist_usps": {
        "model": "cnn_digits5",
        "partition": "by_source",
        "alpha": None,
        "num_clients": 2,
        "local_epochs": 1,
        "batch_size": 32,
        "lr_decay": 0.98,
    },
    "mnist": _CAD | {"model": "lenet5", "image_size": "pad32"},
    "fashion_mnist": _CAD | {"model": "lenet5", "image_size": "pad32"},
    "kmnist": _CAD | {"model": "lenet5", "image_size": "pad32"},
    "usps": _CAD | {"model": "lenet5", "image_size": "resize32"},
    "svhn": _CAD | {"model": "cnn_cifar"},
    "synthdigits": _CAD | {"model": "cnn_cifar"},
    "mnist_m": _CAD | {"model": "cnn_cifar", "image_size": "pad32"},
    "toy2d": {
        "model": "mlp_vectors",
        "alpha": 0.1,
        "num_clients": 4,
        "rounds": 20,
        "local_epochs": 5,
        "batch_size": 32,
        "optimizer": "adam",
        "normalization": "none",
        "validation_fraction": 0.1,
    },
}
# What is tried, and what is fixed, for each algorithm on the embedded digits.
TRIED = """
fedprox mu={0.01, 0.1, 1}
moon mu={0.1, 1}
feddistill distillation_weight={0.1, 1}
fedgen hidden_dim=64 noise_dim=16
fedgkd gamma={0.2, 1} buffer={1, 5}
fedgkd_vote buffer=3
fedgkd_plus gamma=1.0
fedgkd_mse gamma=0.2
fedmax beta={0.1, 1}
fedntd beta={0.3, 1}
fedlc tau={0.3, 1}
fedrs missing_scale={0.5, 0.9}
qffl q={0.001, 0.1}
feddkd lr={0.05, 0.2} steps=3 batch_size=16
feddkd_max beta=0.1 steps=3 batch_size=16
feddkd_bn steps=3 batch_size=16
fedlsd distillation_weight={0.1, 0.3, 0.5}
fedcad beta={0, 0.3, 0.5} gamma={0.3, 0.5, 0.7}
fedkf noise_dim=32
fedprox_t1 mu=0.1
fedgkd_t1 gamma=1.0
feddyn alpha_dyn={0.01, 0.1}
fedavgm server_momentum={0.5, 0.9}
fedadam server_lr={0.01, 0.1}
feddf max_steps=200 check_every=50 patience=100 server_batch_size=32
ditto mu={0.1, 1}
fd distillation_weight={0.1, 1}
fedproto proto_weight={0.1, 1}
fml ce_weight={0.5, 0.9}
fedtgp proto_weight={0.1, 1} server_epochs=20
fedmd digest_epochs={1, 5} digest_batch_size=16
dsfl aggregation={era, sa} digest_batch_size=16
fedgh server_lr={0.01, 0.1} server_epochs=20
fedrep head_share={0.5, 0.9}
"""


@pytest.mark.parametrize("dataset", OWN)
def test_own_settings_are_those_of_stored_runs(dataset: str) -> None:
    assert SETTINGS["fedkd", dataset] == Setting(dataset=dataset, **OWN[dataset])


@pytest.mark.parametrize("line", TRIED.strip().splitlines())
def test_own_spaces_are_those_of_stored_runs(line: str) -> None:
    algorithm = line.split()[0]
    space = SPACES["fedkd", "digits", algorithm]
    values = {**space.grid, **space.fixed}
    assert " ".join([algorithm, *(f"{name}={value}" for name, value in values.items())]) == line


@pytest.mark.parametrize("algorithm", ["fedavg", "fedbn", "scaffold", "fednova", "local", "fedkd"])
def test_what_has_nothing_to_tune_has_one_run(algorithm: str) -> None:
    space = SPACES["fedkd", "digits", algorithm]
    assert (space.grid, space.fixed, space.tuned) == ({}, {}, {})


def test_tables_state_how_many_runs_were_averaged() -> None:
    runs = {key: table.runs for key, table in TABLES.items() if table.runs != 1}
    three = [("fedgkd", name) for name in "3456789"]
    three += [("feddkd", "I"), ("feddkd", "II")]
    assert runs == {**dict.fromkeys(three, 3), ("feddkd_emnist", "V"): 10}


def test_papers_are_of_their_years() -> None:
    years = {key: paper.year for key, paper in PAPERS.items() if not paper.part_of}
    assert years.pop("fedkd") == 2026
    assert years.pop("fedgkd") == 2021
    assert set(years.values()) == {2022}


@pytest.mark.parametrize(
    ("algorithm", "dataset", "paper", "found"),
    [
        ("fedgkd", "sst5", "fedgkd", ("fedgkd", "sst5")),
        ("fedgkd", "digits", "fedgkd", ("fedgkd", "cifar10")),
        ("fedcad", "cifar10", "fedcad", ("fedcad", "cifar10")),
    ],
)
def test_an_own_space_is_of_this_data_set_or_the_first(
    algorithm: str, dataset: str, paper: str, found: tuple[str, str]
) -> None:
    space = own_space(algorithm, dataset, paper)
    assert space is SPACES[*found, algorithm]


def test_a_paper_without_the_algorithm_has_no_space() -> None:
    assert own_space("fedcad", "cifar10", "fedgkd") is None


def test_a_reported_value_is_the_one_for_alpha() -> None:
    space = Space("a", Setting(alpha=None), {}, {"x": 1}, "", {"y": 2}, {0.5: {"y": 3}})
    assert space.reported() == {"x": 1, "y": 2}
    assert space.reported(0.5) == {"x": 1, "y": 3}
    assert space.reported(0.1) == {"x": 1, "y": 2}


def test_the_last_field_varies_fastest() -> None:
    settings = crossed(Setting(), rounds=(1, 2), lr=(0.1, 0.2))
    assert [(s.rounds, s.lr) for s in settings] == [(1, 0.1), (1, 0.2), (2, 0.1), (2, 0.2)]


# Settings


def documented() -> dict[str, list[str]]:
    """Default and allowed values of each field, as docs/sweeps.md has them."""
    page = (ROOT / "docs/sweeps.md").read_text(encoding="utf-8")
    table = page.partition("<!-- fields:begin -->")[2].partition("<!-- fields:end -->")[0]
    rows = {}
    for line in table.strip().splitlines()[2:]:
        name, *cells = (cell.strip() for cell in line.replace("\\", "").strip("|").split("|"))
        rows[name.strip("`")] = cells[:2]
    return rows


def test_defaults_and_limits_are_the_documented_ones() -> None:
    rows = documented()
    assert list(rows) == list(setting_fields())
    for name, field in setting_fields().items():
        default, allowed = rows[name]
        assert str(field.default if field.default != "" else "none") == default, name
        bounds = str(field.metadata["bounds"])
        assert allowed in (bounds, "a name", "true or false"), name
        assert (allowed == bounds) is (bounds != "any number"), name


@pytest.mark.parametrize(
    ("values", "clients", "cohort"),
    [
        ({"num_clients": 10, "new_clients": 0.25}, 7, 7),
        ({"num_clients": 10, "new_clients": 0.24}, 8, 8),
        ({"num_clients": 10, "new_clients": 0.9}, 1, 1),
        ({"num_clients": 10, "participation": 0.25}, 10, 3),
        ({"num_clients": 10, "participation": 0.24}, 10, 2),
        ({"num_clients": 3, "participation": 0.1}, 3, 1),
        ({"num_clients": 10, "new_clients": 0.5, "participation": 0.5}, 5, 3),
    ],
)
def test_clients_are_counted_half_up(values: dict[str, Any], clients: int, cohort: int) -> None:
    setting = Setting(local_test_fraction=0.2, **values)
    assert (setting.training_clients, setting.cohort_size) == (clients, cohort)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"nesterov": True}, "set momentum, or nesterov=false$"),
        ({"rounds": 5, "evaluate_every": 6}, "got evaluate_every=6, rounds=5$"),
        ({"client_models": "mlp/"}, "joined by /, such as mlp/cnn_digits, got 'mlp/'"),
        ({"public": "mnist:0"}, "such as cifar100:5000, or own, got 'mnist:0'"),
        ({"public": "mnist"}, "^public must be"),
        ({"public": "mnist:1234567890"}, "^public must be"),
        ({"start_from": "a" * 63}, "64 hexadecimal digits, got 'a+'"),
        ({"start_from": "A" * 64}, "64 hexadecimal digits"),
        ({"local_validation_fraction": 0.1}, r"=0\.1 needs local_test_fraction > 0, got 0"),
        (
            {"local_test_fraction": 0.5, "local_validation_fraction": 0.5},
            r"must be < 1, .* got 0\.5 \+ 0\.5: lower either$",
        ),
        ({"new_clients": 0.5}, r"^new_clients=0\.5 needs local_test_fraction > 0"),
        (
            {"new_clients": 0.96, "local_test_fraction": 0.1},
            r"got new_clients=0\.96 of num_clients=10: lower it$",
        ),
    ],
)
def test_what_contradicts_itself_is_refused(values: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Setting(**values)


@pytest.mark.parametrize(
    "values",
    [
        {"nesterov": True, "momentum": 0.9},
        {"rounds": 5, "evaluate_every": 5},
        {"client_models": "mlp"},
        {"public": "own"},
        {"public": "csv:there, too.csv:0100"},
        {"public": "mnist:123456789"},
        {"start_from": "0f" * 32},
        {"local_test_fraction": 0.5, "local_validation_fraction": 0.49},
        {"local_test_fraction": 0.5},
        {"new_clients": 0.94, "local_test_fraction": 0.1},
    ],
)
def test_what_is_just_allowed_is_kept(values: dict[str, Any]) -> None:
    setting = Setting(**values)
    assert {name: getattr(setting, name) for name in values} == values


def test_models_and_public_samples_are_read_from_text() -> None:
    setting = Setting(model="mlp", client_models="a/b/a", public="csv:x:0100")
    assert setting.models_of_clients == ("a", "b", "a")
    assert setting.models == ("mlp", "a", "b")
    assert setting.public_set == ("csv:x", 100)
    assert Setting().models_of_clients == ("mlp",)
    assert Setting().public_set is Setting(public="own").public_set is None


def test_only_a_partition_seed_replaces_a_runs_seed() -> None:
    assert Setting().partition_seed_of(7) == 7
    assert Setting(partition_seed=0).partition_seed_of(7) == 0


def test_what_one_program_shares_is_what_steps_compute() -> None:
    program = Setting().of_program()
    steps = {"batch_size", "optimizer", "momentum", "nesterov", "weight_decay", "decay_exempt"}
    steps |= {"clip_norm", "adam_beta1", "adam_beta2", "adam_eps", "augmentation", "precision"}
    inputs = {"dataset", "model", "client_models", "normalization", "image_size"}
    assert program.keys() == steps | inputs


# Bounds


@pytest.mark.parametrize(
    ("bounds", "words", "inside", "outside"),
    [
        (Bounds(), "any number", [-1e300, 0, 5], [math.nan, math.inf, -math.inf]),
        (Bounds(0), ">= 0", [0, 0.0, 7], [-1e-9, math.inf]),
        (Bounds(0, open_low=True), "> 0", [1e-9], [0, 0.0]),
        (Bounds(None, 2), "<= 2", [2, -5.0], [2.5, -math.inf]),
        (Bounds(None, 2, open_high=True), "< 2", [1.5], [2, 2.5]),
        (Bounds(0, 1), "in [0, 1]", [0, 0.5, 1], [-0.1, 1.1]),
        (Bounds(0, 1, open_low=True), "in (0, 1]", [0.5, 1], [0, 1.1]),
        (Bounds(0, 1, open_high=True), "in [0, 1)", [0, 0.5], [1, -0.1]),
        (Bounds(choices=("a", "b")), "one of a, b", ["a", "b"], ["c", 1]),
        (Bounds(0, 1), "in [0, 1]", ["text", None], []),
    ],
)
def test_bounds_allow_what_they_say(
    bounds: Bounds, words: str, inside: list[Any], outside: list[Any]
) -> None:
    assert str(bounds) == words
    assert all(map(bounds.allows, inside))
    assert not any(map(bounds.allows, outside))


@pytest.mark.parametrize(
    ("value", "bounds", "message"),
    [
        (2, Bounds(0, 1), r"^x must be in \[0, 1\], got 2$"),
        (2.5, Bounds(0, 1), r"^x must be in \[0, 1\], got 2\.5$"),
        (math.inf, Bounds(0), "^x must be >= 0, and finite, got inf$"),
        ("flipcrop", Bounds(choices=("none", "flip_crop")), r"did you mean flip_crop\?\)$"),
    ],
)
def test_a_value_outside_is_named(value: Any, bounds: Bounds, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        check("x", value, bounds)


def test_the_nearest_name_is_as_it_is_written() -> None:
    assert nearest("CIFAR1", ["mnist", "Cifar10"]) == " (did you mean Cifar10?)"
    assert nearest("zzz", ["mnist"]) == ""


@pytest.mark.parametrize(
    ("low", "high", "log", "whole", "values"),
    [
        (0.01, 100.0, True, False, (0.01, 0.1, 1.0, 10.0, 100.0)),
        (0.0, 1.0, False, False, (0.0, 0.25, 0.5, 0.75, 1.0)),
        (1, 4, True, True, (1, 2, 3, 4)),
        (1, 4, False, True, (1, 2, 3, 4)),
        (1.0, 2.0, True, False, (1.0, 1.19, 1.41, 1.68, 2.0)),
        (0.12345, 0.9, False, False, (0.12345, 0.318, 0.512, 0.706, 0.9)),
    ],
)
def test_a_range_has_five_even_values(
    low: float, high: float, log: bool, whole: bool, values: tuple[float, ...]
) -> None:
    tried = Range(low, high, log, whole)
    assert tried.values == values
    assert str(tried) == f"[{low:g}, {high:g}] {'log' if log else 'linear'}"


@pytest.mark.parametrize(
    ("ends", "log", "message"),
    [
        ((1, 1), True, "low < high, both finite, got 1 and 1$"),
        ((0, math.inf), False, "both finite"),
        ((-math.inf, 0), False, "both finite"),
        ((0, 1), True, "must be above 0, got 0 and 1: use a linear one$"),
    ],
)
def test_an_impossible_range_is_refused(ends: tuple[float, float], log: bool, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Range(*ends, log=log)


def test_draws_have_three_digits_within_the_ends() -> None:
    generator = random.Random(0)
    places = random.Random(0)
    drawn = [Range(1e-3, 10.0).draw(generator) for _ in range(50)]
    assert drawn == [float(f"{1e-3 * 1e4 ** places.random():.3g}") for _ in range(50)]
    assert [Grid(1, 2, 3).draw(random.Random(seed)) for seed in range(9)] == [
        random.Random(seed).choice((1, 2, 3)) for seed in range(9)
    ]
    default = Range(0.5, 2.0)
    assert default.log
    assert not default.whole


@pytest.mark.parametrize(
    ("value", "kind", "expected"),
    [
        ("Yes", "bool", True),
        ("0", "bool", False),
        ("1", "bool", True),
        ("NO", "bool", False),
        (True, "bool", True),
        ("+7", "int", 7),
        ("-7", "int", -7),
        (7.0, "int", 7),
        (str(2**63 - 1), "int", 2**63 - 1),
        (str(-(2**63)), "int", -(2**63)),
        ("None", "int | None", None),
        ("", "float | None", None),
        (None, "str | None", None),
        ("-0", "float", 0.0),
        (3, "float", 3.0),
        ("none", "str", "none"),
        ("", "str", ""),
    ],
)
def test_a_value_becomes_its_type(value: Any, kind: str, expected: Any) -> None:
    found = cast("x", value, kind)
    assert (found, type(found)) == (expected, type(expected))
    assert math.copysign(1, found if isinstance(found, float) else 1) == 1


@pytest.mark.parametrize(
    ("value", "kind", "message"),
    [
        ("2", "bool", "^x must be true or false, got '2'$"),
        ("7.5", "int", "^x must be a whole number, got '7.5'$"),
        (str(2**63), "int", "a whole number"),
        (str(-(2**63) - 1), "int", "a whole number"),
        (None, "float", "^x must be a number, got None$"),
        (False, "float", "^x must be a number, got False$"),
        ("?", "float | None", "^x must be a number, or none, got '[?]'$"),
        (1, "list", "^x must be of type list, got 1$"),
    ],
)
def test_what_is_of_no_such_type_is_refused(value: Any, kind: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        cast("x", value, kind)


def test_an_annotation_is_text_or_a_type() -> None:
    assert (kind_of(float), kind_of("int | None")) == ("float", "int | None")


@pytest.mark.parametrize(
    ("sign", "below", "equal", "above"),
    [
        ("<", True, False, False),
        ("<=", True, True, False),
        ("==", False, True, False),
        ("!=", True, False, True),
        (">=", False, True, True),
        (">", False, False, True),
    ],
)
def test_relations_hold_as_written(sign: str, below: bool, equal: bool, above: bool) -> None:
    relation = f" a {sign} b "
    results = [holds(relation, {"a": value, "b": 1}) for value in (0, 1, 2)]
    assert results == [below, equal, above]
    assert names_in(relation) == {"a", "b"}


def test_a_relation_that_does_not_hold_has_both_values() -> None:
    check_relation("a <= b", {"a": 1, "b": 1})
    with pytest.raises(ValueError, match=r"^a <= b must hold, got a=2, b=1$"):
        check_relation("a <= b", {"a": 2, "b": 1})

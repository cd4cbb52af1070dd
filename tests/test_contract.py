"""What every algorithm and its registry entry must be."""

from __future__ import annotations

import dataclasses
import pickle
import subprocess
import sys

import pytest
import torch
from conftest import simulate

from algorithms import ALGORITHMS, build, entry
from algorithms.base import NEEDS, Algorithm, Server
from bench.engine.trees import leaves


def test_the_registry_equals_the_dataclass(name: str) -> None:
    made, found = build(name), entry(name)
    fields = {item.name: item for item in dataclasses.fields(made) if item.name != "base"}
    assert set(fields) == set(found.defaults())
    for field in found.fields:
        item = fields[field.name]
        assert (field.default, field.kind) == (item.default, str(item.type)), field.name
        assert field.bounds == item.metadata["bounds"], field.name
        assert field.packable == item.metadata["packable"], field.name
        assert field.meaning
    assert found.needs == made.needs
    assert made.needs <= NEEDS


def test_an_algorithm_is_frozen_hashable_and_picklable(name: str) -> None:
    made = build(name)
    assert isinstance(made, Algorithm)
    assert made == pickle.loads(pickle.dumps(made))
    assert hash(made) == hash(build(name))
    for field in entry(name).fields:
        with pytest.raises(dataclasses.FrozenInstanceError):
            setattr(made, field.name, field.default)


def test_hooks_return_what_the_contract_says(name: str) -> None:
    simulation = simulate(name)
    algorithm, fed = simulation.algorithm, simulation.fed
    assert isinstance(simulation.server, Server)
    message = algorithm.broadcast(fed, simulation.server)
    assert set(message["params"]) <= set(simulation.net.names)
    memory = algorithm.init_client(fed, simulation.server.params)
    local = algorithm.start(fed, message, memory, fed.stream("test"))
    assert set(local["params"]) == set(simulation.net.names)
    assert isinstance(algorithm.teachers(message, memory), dict)
    simulation.advance(1)
    assert simulation.server.round == 1
    assert not any(value.requires_grad for value in leaves(simulation.server.params))
    assert set(algorithm.evaluated(simulation.server)) == set(entry(name).rows)


def test_a_round_leaves_what_was_broadcast_untouched(name: str) -> None:
    simulation = simulate(name, model="mlp+bn")
    before = {key: value.clone() for key, value in simulation.server.params.items()}
    held = simulation.server.params
    simulation.advance(1)
    assert all(torch.equal(before[key], held[key]) for key in before)


def test_every_hyper_parameter_changes_the_result(name: str) -> None:
    """A field that does nothing is a field that lies. Round 2 and later count: some terms start there."""
    reference = simulate(name)
    reference.advance(4)
    for field in entry(name).fields:
        other = simulate(build(name, **{field.name: _another(field)}))
        other.advance(4)
        gap = max(
            float((reference.server.params[n] - other.server.params[n]).abs().max()) for n in reference.server.params
        )
        assert gap > 1e-9, f"{name}.{field.name} changes nothing"


def _another(field: object) -> object:
    """An allowed value that is not the default."""
    if field.bounds.choices:  # type: ignore[attr-defined]
        return next(choice for choice in field.bounds.choices if choice != field.default)  # type: ignore[attr-defined]
    special = {"beta": 0.1, "gamma": 0.8, "phi_temperature": 1.0}
    if field.name in special:  # type: ignore[attr-defined]
        return special[field.name]  # type: ignore[attr-defined]
    if field.kind == "bool":  # type: ignore[attr-defined]
        return not field.default  # type: ignore[attr-defined]
    return 1 if field.kind == "int" else field.default / 2  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("name_", "values", "words"),
    [
        ("fedprox", {"mu": -1}, ["mu", ">= 0", "-1"]),
        ("fedprox", {"mu": float("nan")}, ["mu", ">= 0", "nan"]),
        ("fedprox", {"prox_reduction": "avg"}, ["prox_reduction", "sum, mean_per_tensor", "avg"]),
        ("fedgkd", {"buffer": 0}, ["buffer", ">= 1", "0"]),
        ("fedgkd", {"buffer": 1.5}, ["buffer", "int", "1.5"]),
        ("fedcad", {"gamma": 1.0}, ["gamma", "[0, 1)", "1.0"]),
        ("fedcad", {"beta": 0.7, "gamma": 0.3}, ["beta <= gamma must hold", "beta=0.7", "gamma=0.3"]),
        ("fedlsd", {"temperature": 0}, ["temperature", "> 0", "0"]),
        ("fedcad", {"gama": 0.3}, ["gama", "did you mean gamma?"]),
    ],
)
def test_values_are_checked_at_construction(name_: str, values: dict, words: list[str]) -> None:
    with pytest.raises(ValueError, match=r".") as caught:
        build(name_, **values)
    assert all(word in str(caught.value) for word in words), str(caught.value)


def test_an_unknown_algorithm_is_answered_with_the_nearest() -> None:
    with pytest.raises(KeyError, match=r"fedcat.*did you mean fedcad\?"):
        build("fedcat")


def test_the_registry_needs_no_torch() -> None:
    modules = "algorithms, search_spaces, bench.plan, leaderboards"
    code = f"import {modules}, sys; print('torch' in sys.modules, 'ray' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["False", "False"]


def test_names_are_those_of_the_table() -> None:
    assert all(key == found.name for key, found in ALGORITHMS.items())

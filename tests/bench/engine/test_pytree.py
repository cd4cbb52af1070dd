"""Functions on trees of tensors, and the numbers in which runs of one program may differ."""

from __future__ import annotations

import math
from collections import namedtuple
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor

from algorithms import build
from algorithms.fedavg import FedAvg
from algorithms.fedprox import FedProx
from algorithms.t1 import T1
from bench.engine import pytree
from bench.engine.stacked.batched_hparams import (
    Differences,
    constants,
    packable_numbers,
    with_numbers,
)

CPU = torch.device("cpu")
Pair = namedtuple("Pair", "a b")
ONE = torch.ones(2)


def tree() -> dict[str, Any]:
    """Tensors in every kind of node, and other leaves."""
    return {"x": ONE, "y": [ONE + 1, (ONE + 2, "text")], "z": Pair(ONE + 3, None), "n": 7}


def test_every_tensor_is_replaced_and_listed_in_order() -> None:
    doubled = pytree.tree_map(lambda value: float(value[0]) * 2, tree())
    assert doubled == {"x": 2.0, "y": [4.0, (6.0, "text")], "z": Pair(8.0, None), "n": 7}
    assert isinstance(doubled["z"], Pair)
    assert isinstance(doubled["y"][1], tuple)
    assert [float(leaf[0]) for leaf in pytree.leaves(tree())] == [1, 2, 3, 4]
    assert pytree.shapes(ONE) == ((2,), torch.float32)
    other = {"n": 7, "y": [ONE, (ONE, "text")], "z": Pair(ONE, None), "x": ONE * 9}
    assert [float(second[0]) for _, second in pytree.pairs(tree(), other)] == [9, 1, 1, 1]


def test_models_are_equal_by_names_and_values() -> None:
    nan = torch.tensor([math.nan])
    assert pytree.equal({"a": ONE}, {"a": ONE.clone()})
    assert pytree.equal({"a": nan}, {"a": nan}), "one tensor"
    assert not pytree.equal({"a": nan}, {"a": nan.clone()})
    assert not pytree.equal({"a": ONE}, {"b": ONE})
    assert not pytree.equal({"a": ONE}, {"a": ONE, "b": ONE})
    assert not pytree.equal({"a": ONE, "b": ONE}, {"a": ONE, "b": ONE + 1})


def test_stacks_are_undone() -> None:
    trees = [{"x": ONE * k, "y": [(ONE + k, "same")], "z": Pair(ONE[0] * k, 3)} for k in range(3)]
    stacked = pytree.stack(trees)
    assert stacked["x"].tolist() == [[0, 0], [1, 1], [2, 2]]
    assert stacked["z"].a.tolist() == [0, 1, 2]
    for one, other in zip(trees, pytree.unstack(stacked), strict=True):
        assert other["z"].b == 3
        values = zip(pytree.leaves(one), pytree.leaves(other), strict=True)
        assert all(torch.equal(*pair) for pair in values)


@pytest.mark.parametrize(
    ("trees", "message"),
    [
        ([{"a": ONE}, {"b": ONE}], r"but names differ: \['a'\] and \['b'\]"),
        ([{"a": [ONE]}, {"a": [ONE, ONE]}], "but lengths differ: 1 and 2"),
        ([{"a": 1}, {"a": 2}], "no tensors differ: 1 and 2"),
        ([{"a": 1}, {"a": 1.0}], r"no tensors differ: 1 and 1\.0"),
        ([{"a": "p"}, {"a": "p"}, {"a": "q"}], "no tensors differ: 'p' and 'q'"),
    ],
)
def test_unlike_trees_are_not_stacked(trees: list[Any], message: str) -> None:
    with pytest.raises(
        ValueError, match=f"same structure, {message}|same structure, but values that are {message}"
    ):
        pytree.stack(trees)


def test_numbers_become_tensors_of_the_runs_type() -> None:
    made = pytree.tensors(
        {"a": 1.5, "b": True, "c": 3, "d": [ONE], "e": "text"}, CPU, torch.float64
    )
    assert (made["a"].dtype, made["a"].item()) == (torch.float64, 1.5)
    assert (made["b"].dtype, made["b"].item()) == (torch.float64, 1.0)
    assert (made["c"].dtype, made["c"].item()) == (torch.int64, 3)
    assert made["d"][0] is ONE
    assert made["e"] == "text"
    pair = pytree.tensors(Pair(2, 0.5), CPU, torch.float32)
    assert isinstance(pair, Pair)


def test_copies_are_listed_that_move_values() -> None:
    memory = torch.arange(6.0)
    first = memory[:2]
    second = memory[2:4]
    places = {"a": first, "b": second}
    swapped = pytree.moves(places, {"a": second, "b": first})
    for target, source in swapped:
        target.copy_(source)
    assert memory.tolist() == [2, 3, 0, 1, 4, 5]
    assert pytree.moves(places, places) == []
    assert len(pytree.moves(places, {"a": first, "b": torch.zeros(2)})) == 1
    apart = pytree.apart_from([first], {"a": second, "b": ONE})
    assert apart["a"] is not second
    assert apart["b"] is ONE


def test_bytes_are_those_of_distinct_tensors() -> None:
    double = torch.zeros(3, dtype=torch.float64)
    assert pytree.num_bytes({"a": ONE, "b": [ONE, double], "c": 5}) == 2 * 4 + 3 * 8
    assert pytree.num_bytes({}) == 0


@pytest.mark.parametrize(
    ("values", "total", "has_nan"),
    [
        ([1.0, 2.0], 3.0, False),
        ([1.0, math.nan], math.nan, True),
        ([1.0, math.inf], math.inf, False),
        ([3e38, 3e38], math.inf, False),
    ],
)
def test_sums_tell_what_is_not_finite(values: list[float], total: float, has_nan: bool) -> None:
    tensors = {"a": torch.tensor(values), "b": torch.arange(3), "c": ONE.double() * 0}
    assert pytree.total(tensors).item() == pytest.approx(total, nan_ok=True)
    flag = pytree.has_nan(tensors)
    assert math.isnan(flag) if has_nan else flag == 0
    assert pytree.total({"b": torch.arange(3)}) == 0
    assert pytree.has_nan({"b": torch.arange(3)}) == 0
    assert math.isnan(pytree.has_nan(torch.tensor([complex(0, math.nan)])))


def test_gradients_of_unused_tensors_are_zero() -> None:
    used = torch.tensor([1.0, 2.0], requires_grad=True)
    unused = torch.ones(3, requires_grad=True)
    grads = pytree.gradients_of(used.square().sum(), {"a": used, "b": unused})
    assert grads["a"].tolist() == [2, 4]
    assert grads["b"].tolist() == [0, 0, 0]


def test_factors_are_along_the_first_axis() -> None:
    factors = torch.tensor([1.0, 10.0])
    scaled = torch.ones(2, 3, 1) * pytree.along_first_axis(factors, torch.ones(2, 3, 1))
    assert scaled.flatten(1).tolist() == [[1, 1, 1], [10, 10, 10]]
    assert pytree.along_first_axis(factors, factors).shape == (2,)
    assert pytree.without({"a": 1, "b": 2, "c": 3}, "a", "c") == {"b": 2}
    mapped = pytree.each(lambda x, n: x * n, {"x": torch.arange(3.0), "n": 2})
    assert mapped.tolist() == [0, 2, 4]
    kept = pytree.detached_copy({"a": used_by_autograd()})["a"]
    assert not kept.requires_grad
    assert kept.untyped_storage().nbytes() == 4


def used_by_autograd() -> Tensor:
    return torch.ones(5, requires_grad=True)[:1] * 2


# Numbers of a program


def test_numbers_of_a_program_may_differ() -> None:
    assert packable_numbers(FedProx(0.25)) == {(0, "mu"): 0.25}
    assert packable_numbers(T1(FedProx(0.25))) == {(1, "mu"): 0.25}
    assert packable_numbers(FedAvg()) == {}


def test_constants_are_classes_and_other_fields() -> None:
    assert constants(FedProx(0.25)) == constants(FedProx(0.5))
    assert constants(FedProx(0.25)) != constants(FedProx(0.25, "mean_per_tensor"))
    assert constants(FedAvg()) != constants(FedProx(0.25))
    assert constants(T1(FedProx(0.25))) == constants(T1(FedProx(0.5)))
    assert constants(T1(FedProx(0.25))) != constants(T1(FedAvg()))
    assert constants(T1(FedAvg())) != constants(FedAvg())
    assert constants(T1(FedAvg(), "skip")) != constants(T1(FedAvg(), "w0"))

    class Same(FedAvg):
        pass

    assert constants(Same()) != constants(FedAvg())


def job(algorithm: Any, lr: float) -> Any:
    return SimpleNamespace(context=SimpleNamespace(algorithm=algorithm), lr=lr)


def test_differences_are_found_among_runs() -> None:
    alike = [job(FedProx(0.5), 0.1), job(FedProx(0.5), 0.1)]
    assert Differences.among(alike) == Differences(True, (), False)
    assert Differences.among(alike[:1]) == Differences(False, (), False)
    unlike = [*alike, job(FedProx(0.25), 0.2)]
    assert Differences.among(unlike) == Differences(True, ((0, "mu"),), True)


def test_a_copy_has_other_numbers() -> None:
    method = T1(build("fedcad"))
    places = tuple(packable_numbers(method))
    values = torch.arange(1.0, 1 + len(places))
    changed = with_numbers(method, places, values)
    assert [float(value) for value in packable_numbers(method).values()] != values.tolist()
    for (depth, name), value in zip(places, values, strict=True):
        layer = changed if depth == 0 else changed.base
        assert getattr(layer, name) is not None
        assert float(getattr(layer, name)) == value

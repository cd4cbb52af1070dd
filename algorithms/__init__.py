"""The registry: what this suite can run, as a table that needs no torch.

`ALGORITHMS` maps a name to an `Entry`. `build(name, **hyperparameters)` makes the algorithm itself and is what first
imports torch. Adding an algorithm: one file in this folder, one entry here, one `Space` in `search_spaces`, one
equation test.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any

from search_spaces.bounds import Bounds, Value, cast, check

if TYPE_CHECKING:
    from algorithms.base import Algorithm


@dataclass(frozen=True)
class Field:
    """One hyper-parameter, as the registry knows it.

    Args:
        name: as in the dataclass.
        kind: `bool`, `int`, `float` or `str`, with `| None` where it may be empty.
        default: the printed equation's value.
        bounds: what is allowed.
        meaning: what it does, and what its limits are.
        packable: whether configurations that differ in it may train in one program.
    """

    name: str
    kind: str
    default: Value
    bounds: Bounds
    meaning: str
    packable: bool = True

    @property
    def allowed(self) -> str:
        """The range in words."""
        return "true or false" if self.kind == "bool" else str(self.bounds)


@dataclass(frozen=True)
class Entry:
    """One registered algorithm.

    Args:
        name: lower snake case; also the name of its result row.
        factory: `module:function`, called with the hyper-parameters.
        paper: key of its own paper in `search_spaces`, or authors and year.
        equations: where the paper defines it.
        summary: one line.
        fields: hyper-parameters.
        down: floats sent to each client in a round, P being the model's size and C the classes.
        up: floats each client sends back.
        keeps: what a client keeps between rounds.
        needs: what the engine must supply (`algorithms.base.NEEDS`).
        where: relations between hyper-parameters that every configuration keeps.
        rows: suffixes of the result rows that one run yields.
        version: raised when results change.
    """

    name: str
    factory: str
    paper: str
    equations: str
    summary: str
    fields: tuple[Field, ...] = ()
    down: str = "P"
    up: str = "P"
    keeps: str = "nothing"
    needs: frozenset[str] = frozenset()
    where: tuple[str, ...] = ()
    rows: tuple[str, ...] = ("",)
    version: int = 1

    def defaults(self) -> dict[str, Value]:
        """Every hyper-parameter's default."""
        return {field.name: field.default for field in self.fields}

    def resolve(self, given: Mapping[str, Any]) -> dict[str, Value]:
        """All hyper-parameters, those given cast to their types and checked.

        Raises:
            ValueError: an unknown name, a wrong type or a value out of range.
        """
        unknown = sorted(set(given) - {field.name for field in self.fields})
        if unknown:
            raise ValueError(
                f"{self.name} has no hyper-parameter {unknown[0]!r}; known: "
                f"{', '.join(field.name for field in self.fields) or 'none'}{_nearest(unknown[0], self.defaults())}"
            )
        values: dict[str, Value] = {}
        for field in self.fields:
            value = cast(f"{self.name}.{field.name}", given.get(field.name, field.default), field.kind)
            check(f"{self.name}.{field.name}", value, field.bounds)
            values[field.name] = value
        return values


def _nearest(name: str, known: Mapping[str, Any]) -> str:
    near = get_close_matches(name, list(known), n=1)
    return f" (did you mean {near[0]}?)" if near else ""


_FRACTION = Bounds(0, 1, open_high=True)
_POSITIVE = Bounds(0, open_low=True)
_T_SQUARED = Field(
    "kd_t_squared", "bool", False, Bounds(), "multiply the distillation term by T^2 (not printed)", False
)
_TEMPERATURE = Field("temperature", "float", 2.0, _POSITIVE, "T of the distillation term's softmax functions")

_ENTRIES = (
    Entry(
        name="fedavg",
        factory="algorithms.fedavg:FedAvg",
        paper="McMahan et al. 2017",
        equations="Algorithm 1",
        summary="local cross entropy, models averaged by examples",
    ),
    Entry(
        name="fedprox",
        factory="algorithms.fedprox:FedProx",
        paper="Li et al. 2020",
        equations="Algorithm 2",
        summary="keeps local models near the received one by an L2 term",
        fields=(
            Field("mu", "float", 0.01, Bounds(0), "weight of the proximal term; 0 is FedAvg"),
            Field(
                "prox_reduction",
                "str",
                "sum",
                Bounds(choices=("sum", "mean_per_tensor")),
                "the printed squared norm, or each tensor's mean square",
                False,
            ),
        ),
    ),
    Entry(
        name="fedgkd",
        factory="algorithms.fedgkd:FedGKD",
        paper="fedgkd",
        equations="Eq. 4",
        summary="distils from the mean of the last M global models",
        fields=(
            Field("gamma", "float", 0.2, Bounds(0), "distillation weight, halved in the loss; 0 is FedAvg"),
            Field(
                "buffer",
                "int",
                5,
                Bounds(1),
                "M, global models in the teacher; 1 distils from the received model",
                False,
            ),
        ),
        down="P; 2P from round 3 if M > 1",
    ),
    Entry(
        name="fedlsd",
        factory="algorithms.fedcad:FedLSD",
        paper="Lee et al. 2021, version 1",
        equations="FedCAD, Experiments",
        summary="distils from the received global model with a constant weight",
        fields=(
            Field("distillation_weight", "float", 0.3, Bounds(0, 1), "a in (1-a) CE + a KL; 0 is FedAvg"),
            _TEMPERATURE,
            _T_SQUARED,
        ),
    ),
    Entry(
        name="fedcad",
        factory="algorithms.fedcad:FedCAD",
        paper="fedcad",
        equations="Eqs. 3-6",
        summary="distils from the received global model, more on the classes it knows well",
        fields=(
            Field("beta", "float", 0.3, _FRACTION, "weight of a class the global model always misses; <= gamma"),
            Field("gamma", "float", 0.7, _FRACTION, "weight of a class it is certain of; beta = gamma is FedLSD"),
            _TEMPERATURE,
            Field("phi_temperature", "float | None", None, _POSITIVE, "T of p in Eq. 6; none takes temperature", False),
            _T_SQUARED,
        ),
        down="P + C",
        needs=frozenset({"auxiliary"}),
        where=("beta <= gamma",),
    ),
)

ALGORITHMS: dict[str, Entry] = {entry.name: entry for entry in _ENTRIES}


def entry(name: str) -> Entry:
    """The registry's entry.

    Raises:
        KeyError: no such algorithm; the message lists those known and the nearest.
    """
    if name not in ALGORITHMS:
        raise KeyError(f"no algorithm {name!r}; known: {', '.join(ALGORITHMS)}{_nearest(name, ALGORITHMS)}")
    return ALGORITHMS[name]


def build(name: str, **hyperparameters: Any) -> Algorithm:
    """The algorithm with these hyper-parameters, all others at their defaults.

    Raises:
        KeyError: no such algorithm.
        ValueError: an unknown hyper-parameter, or a value that is not allowed.
    """
    found = entry(name)
    module, _, function = found.factory.partition(":")
    made: Algorithm = getattr(importlib.import_module(module), function)(**found.resolve(hyperparameters))
    return made


__all__ = ["ALGORITHMS", "Entry", "Field", "build", "entry"]

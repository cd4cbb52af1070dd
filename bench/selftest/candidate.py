"""What is certified: an algorithm by its name, and its runs on the toy federation, each made once."""

from __future__ import annotations

import functools
import importlib
import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from algorithms import ALGORITHMS, Entry, build, entry
from algorithms.base import Algorithm
from bench.engine.simulation import Simulation
from bench.engine.state import StateFolder
from bench.selftest.toy import SHORT, SIZES, simulate, supplied
from search_spaces import Value

PLAIN = "mlp"
Values = Mapping[str, Value]


@dataclass(frozen=True)
class Candidate:
    """An algorithm under test."""

    name: str  # of the registry, of an entry point, or `module:factory`
    entry: Entry  # of the registry, or read from its dataclass if it comes from outside
    _runs: dict[Any, Simulation] = field(default_factory=dict, repr=False, compare=False)

    @property
    def built_in(self) -> bool:
        """Whether the registry's own table holds it."""
        return self.entry.name in ALGORITHMS

    @property
    def factory(self) -> Callable[..., Algorithm]:
        """The class or function that makes it."""
        module, _, function = self.entry.factory.partition(":")
        factory: Callable[..., Algorithm] = getattr(importlib.import_module(module), function)
        return factory

    @property
    def place(self) -> str:
        """` (file.py:12)`, where one from outside is written; empty for a built-in one, or if nobody knows."""
        if self.built_in:
            return ""
        code = inspect.unwrap(self.factory)
        try:
            return f" ({Path(str(inspect.getsourcefile(code))).name}:{inspect.getsourcelines(code)[1]})"
        except (OSError, TypeError):
            return ""

    def build(self, **hyperparameters: Any) -> Algorithm:
        """A new object, all other hyper-parameters at their defaults."""
        return build(self.name, **hyperparameters)

    @functools.cached_property
    def needs(self) -> frozenset[str]:
        """What the entry and the algorithm itself ask for."""
        return self.entry.needs | self.build().needs

    def defaults(self) -> dict[str, Value]:
        """Hyper-parameters of a toy run that are not given: the server's work is cut short."""
        return {**self.entry.defaults(), **SHORT.get(self.entry.name, {})}

    def model(self, form: str = PLAIN) -> str:
        """The model in a form that the algorithm can run on."""
        return supplied(form, self.needs)

    def other_choices(self) -> Iterator[dict[str, Value]]:
        """Each value but the default of each hyper-parameter that is a string or a truth value, if it is allowed."""
        for item in self.entry.fields:
            choices: Sequence[Value] = item.bounds.choices or ((True, False) if item.kind == "bool" else ())
            for choice in choices:
                if choice != item.default and self.allows({item.name: choice}):
                    yield {item.name: choice}

    def allows(self, values: Values) -> bool:
        """Whether it can be made with these hyper-parameters."""
        try:
            self.build(**{**self.defaults(), **values})
        except ValueError:
            return False
        return True

    def simulate(
        self,
        backend: str = "loop",
        values: Values | None = None,
        *,
        wrap: Callable[[Algorithm], Algorithm] = lambda algorithm: algorithm,
        folder: StateFolder | None = None,
        sizes: Sequence[int] = SIZES,
        exact_model: bool = False,
        **fields: Any,
    ) -> Simulation:
        """A new simulation of `toy.simulate`, of the algorithm with these hyper-parameters in `wrap`.

        `exact_model` takes the model as it is, even if the algorithm needs another form.
        """
        if not exact_model:
            fields["model"] = self.model(fields.get("model", PLAIN))
        algorithm = wrap(self.build(**{**self.defaults(), **(values or {})}))
        return simulate(algorithm, backend, folder=folder, sizes=sizes, **fields)

    def run(self, rounds: int, backend: str = "loop", values: Values | None = None, **options: Any) -> Simulation:
        """A simulation after some rounds; the same one for the same arguments, so it must not be advanced."""
        key = (rounds, backend, repr(sorted((values or {}).items())), repr(sorted(options.items())))
        if key not in self._runs:
            simulation = self.simulate(backend, values, **{"rounds": max(rounds, 4), **options})
            simulation.advance(rounds)
            self._runs[key] = simulation
        return self._runs[key]


@functools.cache
def candidate(name: str) -> Candidate:
    """The algorithm of this name, shared by all checks, its runs included.

    Raises:
        KeyError: no such algorithm.
        ValueError: one from outside that cannot be imported, or is none.
    """
    return Candidate(name, entry(name))

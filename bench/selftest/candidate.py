"""The algorithm under test, and its runs on the toy federation, each trained once."""

from __future__ import annotations

import functools
import inspect
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from algorithms import ALGORITHMS, Entry, build, entry
from algorithms.base import Algorithm
from algorithms.plugins import factory_of
from bench.engine.simulation import Simulation
from bench.engine.state import StateFolder
from bench.selftest.toy import SHORT, SIZES, TINY, simulate, supplied
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
        """Return whether the algorithm is in the registry's own table."""
        return self.entry.name in ALGORITHMS

    @property
    def factory(self) -> Callable[..., Algorithm]:
        """The class or function that builds the algorithm."""
        return factory_of(self.entry)

    @property
    def place(self) -> str:
        """Source of an algorithm from outside, ` (file.py:12)`; empty if unknown or built in."""
        if self.built_in:
            return ""
        code = inspect.unwrap(self.factory)
        try:
            file = Path(str(inspect.getsourcefile(code)))
            _, line = inspect.getsourcelines(code)
        except (OSError, TypeError):
            return ""
        return f" ({file.name}:{line})"

    def build(self, **hyperparameters: Any) -> Algorithm:
        """Build the algorithm, with all other hyper-parameters at their defaults."""
        return build(self.name, **hyperparameters)

    @functools.cached_property
    def needs(self) -> frozenset[str]:
        """The needs of the entry and of the algorithm itself."""
        return self.entry.needs | self.build().needs

    def defaults(self) -> dict[str, Value]:
        """Return the default hyper-parameters of a toy run, which shorten the server's work."""
        return {**self.entry.defaults(), **SHORT.get(self.entry.name, {})}

    def model(self, form: str = PLAIN) -> str:
        """Return the model in a form on which the algorithm can run."""
        return supplied(form, self.needs)

    def other_choices(self) -> Iterator[dict[str, Value]]:
        """Yield each allowed value but the default of each hyper-parameter with choices.

        Truth values are choices, too.
        """
        for item in self.entry.fields:
            choices: Sequence[Value] = item.bounds.choices or ()
            if item.kind == "bool" and not choices:
                choices = (True, False)
            for choice in choices:
                if choice != item.default and self.allows({item.name: choice}):
                    yield {item.name: choice}

    def allows(self, values: Values) -> bool:
        """Return whether the algorithm can be built with these hyper-parameters."""
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
        """Start a simulation of the algorithm with these hyper-parameters, by `toy.simulate`.

        `wrap` wraps the algorithm. `exact_model` keeps the model as it is, even if the algorithm
        needs another form.
        """
        if not exact_model:
            fields["model"] = self.model(fields.get("model", PLAIN))
        algorithm = wrap(self.build(**{**self.defaults(), **(values or {})}))
        return simulate(algorithm, backend, folder=folder, sizes=sizes, **fields)

    def run(
        self, rounds: int, backend: str = "loop", values: Values | None = None, **options: Any
    ) -> Simulation:
        """Return a simulation after some rounds.

        It is cached by its arguments, so it must not be advanced.
        """
        chosen = sorted((values or {}).items())
        key = (rounds, backend, repr(chosen), repr(sorted(options.items())))
        if key not in self._runs:
            fields = {"rounds": max(rounds, TINY.rounds), **options}
            simulation = self.simulate(backend, values, **fields)
            simulation.advance(rounds)
            self._runs[key] = simulation
        return self._runs[key]

    def resumed(
        self, backend: str = "loop", values: Values | None = None, **fields: Any
    ) -> Simulation:
        """Return a simulation of four rounds that was saved after two and read from its state.

        Its backend is that of the state, too.
        """
        with tempfile.TemporaryDirectory() as path:
            folder = StateFolder(Path(path))
            first = self.simulate(backend, values, folder=folder, **fields)
            first.advance(2)
            first.save()
            second = self.simulate("auto", values, folder=folder, **fields)
            second.load()
            second.advance(2)
        return second


@functools.cache
def candidate(name: str) -> Candidate:
    """Return the algorithm of this name, which all checks share together with its runs.

    Raises:
        KeyError: no such algorithm.
        ValueError: an object from outside cannot be imported, or is no algorithm.
    """
    return Candidate(name, entry(name))

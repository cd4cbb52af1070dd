"""Where the time of a round goes, by timers around the engine's own phases.

They are there only while the split is measured: what is measured elsewhere runs without them.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, is_dataclass, replace
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import Any

from bench.engine import simulation as engine
from bench.engine.simulation import Simulation
from bench.engine.state import StateFolder
from bench.perf.ceilings import synchroniser
from bench.perf.measure import figure, timed
from bench.perf.workload import Workload, one_round, simulation

TESTS = 10_000  # samples that a round is evaluated on
PHASES = {
    "step": "forward, backward and the optimiser",
    "augmentation": "gathering, augmenting and normalising inputs",
    "preparation": "schedules, draws and starting points of the clients",
    "aggregation": "the server's step",
    "evaluation": "the test set",
    "checkpoint": "writing the state, as a run does about every quarter of a minute",
    "rest": "what is in none of these: messages, counters, checks",
}


@dataclass
class Stopwatch:
    """Seconds by phase; what runs in a phase within another one is that one's alone.

    Args:
        synchronise: waits for the device, so that its work counts where it was given.
        seconds: so far.
    """

    synchronise: Callable[[], object]
    seconds: dict[str, float] = field(default_factory=dict)
    _open: list[str] = field(default_factory=lambda: ["rest"])
    _since: float = field(default_factory=perf_counter)

    def timed(self, phase: str, function: Callable[..., Any]) -> Callable[..., Any]:
        """The function, its time counted to a phase."""

        def call(*args: Any, **kwargs: Any) -> Any:
            self._turn()
            self._open.append(phase)
            try:
                return function(*args, **kwargs)
            finally:
                self._turn()
                self._open.pop()

        return call

    def take(self) -> dict[str, float]:
        """What was counted since the last call, by phase."""
        self._turn()
        found, self.seconds = self.seconds, {}
        return found

    def _turn(self) -> None:
        """Count the time until now to the phase that is open."""
        self.synchronise()
        now = perf_counter()
        self.seconds[self._open[-1]] = self.seconds.get(self._open[-1], 0.0) + now - self._since
        self._since = now


def measure_split(work: Workload, algorithm: str, rounds: int) -> dict[str, Any]:
    """The time of a round with an evaluation and a saved state, by phase.

    Args:
        work: what is trained.
        algorithm: registry name.
        rounds: timed.

    Returns:
        `samples` trained on, `tests` evaluated, `round` without timers; `phases`: figures of seconds, by name; `share`
        of each in the round; `measuring`: a round with the timers over one without; `not_separated`: phases that
        passed no timer: within a captured step, which is replayed whole, their time is the step's.
    """
    wait = synchroniser(work.device)
    with tempfile.TemporaryDirectory() as place:
        run = simulation(replace(work, evaluated=True, tests=TESTS), algorithm)
        run.folder = StateFolder(Path(place) / "state")
        _whole(run)
        plain = [timed(lambda: _whole(run), wait).seconds for _ in range(rounds)]
        turns = []
        watch = Stopwatch(wait)
        with watching(run, watch):
            watch.take()
            for _ in range(rounds):
                _whole(run)
                turns.append(watch.take())
    return {"samples": work.processed, "tests": TESTS} | _found(turns, plain)


def _whole(run: Simulation) -> None:
    one_round(run)
    run.save()


def _found(turns: list[dict[str, float]], plain: list[float]) -> dict[str, Any]:
    """The record of what was timed in each round."""
    seen = [name for name in PHASES if any(name in turn for turn in turns)]
    totals = [sum(turn.values()) for turn in turns]
    pairs = list(zip(turns, totals, strict=True))
    return {
        "round": figure(plain, "s"),
        "phases": {name: figure([turn.get(name, 0.0) for turn in turns], "s") for name in seen},
        "share": {name: median(turn.get(name, 0.0) / total for turn, total in pairs) for name in seen},
        "measuring": median(totals) / median(plain),
        "not_separated": [name for name in PHASES if name not in seen],
    }


@contextmanager
def watching(run: Simulation, watch: Stopwatch) -> Iterator[None]:
    """Timers around the phases of a run."""
    points: list[tuple[Any, str, str]] = [
        (run.trainer, "train", "step"),
        (run.federation.train, "batch", "augmentation"),
        (engine, "make_work", "preparation"),
        (run, "_uploads", "aggregation"),
        (run.algorithm, "server_step", "aggregation"),
        (run, "_evaluate", "evaluation"),
        (run, "save", "checkpoint"),
    ]
    with ExitStack() as stack:
        for owner, name, phase in points:
            if hasattr(owner, name):  # else its phase is among those that are not separated
                stack.enter_context(_replaced(owner, name, watch.timed(phase, getattr(owner, name))))
        yield


@contextmanager
def _replaced(owner: Any, name: str, function: Callable[..., Any]) -> Iterator[None]:
    """An attribute of a module or an object, a frozen one included, for a while."""
    frozen = is_dataclass(owner)
    put, remove = (object.__setattr__, object.__delattr__) if frozen else (setattr, delattr)
    own, before = name in vars(owner), vars(owner).get(name)
    put(owner, name, function)
    try:
        yield
    finally:
        if own:
            put(owner, name, before)
        else:
            remove(owner, name)

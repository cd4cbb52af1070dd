"""What tests share: the toy federation of `bench.selftest`, and its checks, each run once for each algorithm."""

from __future__ import annotations

import sys
import warnings
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import torch

from algorithms import ALGORITHMS, build, entry, generators
from algorithms.base import Algorithm
from bench.engine.simulation import Simulation
from bench.engine.stacked.backend import Stacked
from bench.engine.state import StateFolder
from bench.errors import Slower
from bench.selftest import toy
from bench.selftest.candidate import candidate
from bench.selftest.certify import NOT_APPLICABLE, PASSED, run_check
from bench.selftest.toy import INFO, TINY, identical, largest_gap, toy_dataset, toy_split

__all__ = [
    "INFO",
    "TINY",
    "holds",
    "identical",
    "largest_gap",
    "resumed",
    "simulate",
    "toy_dataset",
    "toy_split",
]

# Tests use helpers of each other's files, whatever folder these are in.
for file in sorted(Path(__file__).parent.rglob("test_*.py")):
    if str(file.parent) not in sys.path:
        sys.path.append(str(file.parent))

# Files that take longest, mostly waiting for Ray or for other processes, the longest first.
LONGEST = (
    "test_certificates.py",
    "test_interrupt.py",
    "test_sweep.py",
    "test_mirror.py",
    "test_logs.py",
    "test_data_plugins.py",
    "test_algorithm_plugins.py",
    "test_progress.py",
    "test_streams.py",
    "test_perf.py",
    "test_trainable.py",
    "test_notebook_classes.py",
    "test_every_algorithm.py",
)

# Files for `make test-slow`: whole runs of every algorithm, and tests that start other processes or
# kill them.
SLOW = {
    "test_certificates.py",
    "test_compaction.py",
    "test_every_algorithm.py",
    "test_progress.py",
    "test_golden.py",
    "test_start_from.py",
    "test_streams.py",
    "test_wheel.py",
}


SLOW_SECONDS = 3600  # after which a slow test is ended


def pytest_configure(config: pytest.Config) -> None:
    """`--dist loadfile` gives files out in the order of collection, not by how many tests they have."""
    if hasattr(config.option, "loadscopereorder"):
        config.option.loadscopereorder = False


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Long files first, for one that comes last leaves the other workers idle; then those of many tests."""
    places = {name: place for place, name in enumerate(LONGEST)}
    counts = Counter(item.path for item in items)
    for item in items:
        if item.path.name in SLOW:
            item.add_marker(pytest.mark.slow)
        if item.get_closest_marker("slow"):
            item.add_marker(pytest.mark.timeout(SLOW_SECONDS))
    items.sort(
        key=lambda item: (places.get(item.path.name, len(places)), -counts[item.path], item.path)
    )


def make(name: str, **hyperparameters: Any) -> Algorithm:
    """A registered algorithm, with its server's work cut short unless hyper-parameters set it."""
    return build(name, **{**toy.SHORT.get(name, {}), **hyperparameters})


def simulate(
    algorithm: str | Algorithm, backend: str = "loop", seed: int = 0, **options: Any
) -> Simulation:
    """A run of the toy federation; of a registered name on a model in the form that it needs."""
    if isinstance(algorithm, str):
        model = options.get("model", TINY.model)
        options["model"] = toy.supplied(model, entry(algorithm).needs)
        algorithm = make(algorithm)
    return toy.simulate(algorithm, backend, seed, **options)


def trained(
    algorithm: str | Algorithm, backend: str = "loop", rounds: int = 2, **options: Any
) -> Simulation:
    """A run of the toy federation after some rounds."""
    run = simulate(algorithm, backend, **options)
    run.advance(rounds)
    return run


def resumed(
    folder: Path, algorithm: str | Algorithm, backend: str = "loop", **options: Any
) -> Simulation:
    """A run of two rounds, saved, then of two more in a new simulation, to which the state tells the backend."""
    trained(algorithm, backend, folder=StateFolder(folder), **options).save()
    torch.rand(7)
    run = simulate(algorithm, "auto", folder=StateFolder(folder), **options)
    assert run.load()
    run.advance(2)
    return run


def apart(runs: Sequence[Simulation]) -> Exception | None:
    """Why the stacked runs of a pack train one by one; None if they train together."""
    trainer = runs[0].trainer
    assert isinstance(trainer, Stacked)
    return trainer.apart


@contextmanager
def nothing_falls_back() -> Iterator[None]:
    """Every step is captured: one that falls back says so in a warning."""
    with warnings.catch_warnings():
        warnings.simplefilter("error", Slower)
        yield


def holds(name: str, check: str) -> None:
    """One check of the conformance suite passes; it is skipped where it does not apply."""
    outcome = run_check(candidate(name), check)
    if outcome.status == NOT_APPLICABLE:
        pytest.skip(outcome.measured)
    assert outcome.status == PASSED, "\n".join(outcome.problems)


@pytest.fixture(scope="session")
def shared_ray() -> Iterator[None]:
    """A Ray for the sweeps of this process with `--executor ray`, which takes seconds to start."""
    from bench.executors.runner import import_executor, ray_environment

    import_executor("ray")
    import ray

    from bench.execution import Execution
    from bench.executors.ray_cluster import start

    with ray_environment():  # its workers' too
        start(Execution(out=""))
    yield  # sweeps do not leave a Ray that was there
    ray.shutdown()


# FedKF's generator of images: its own widths take most of a run's time in float64, and are tested
# as equations.
NARROW, PUBLISHED = (12, 10, 6), generators.IMAGE_WIDTHS


@pytest.fixture(scope="session", autouse=True)
def _narrow_generators() -> Iterator[None]:
    """All layers that it has; unlike widths, of which none can stand for another."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(generators, "IMAGE_WIDTHS", NARROW)
        yield


@contextmanager
def published_widths() -> Iterator[None]:
    """FedKF's generator is as wide as its authors'."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(generators, "IMAGE_WIDTHS", PUBLISHED)
        yield


@pytest.fixture(autouse=True)
def _surroundings(monkeypatch: pytest.MonkeyPatch) -> None:
    """One thread: bit-equality holds at equal threads.

    No width of a terminal: what starts the tests may set one.

    Dry runs do not measure the machine, which would take seconds of each.
    """
    torch.set_num_threads(1)
    monkeypatch.delenv("COLUMNS", raising=False)
    monkeypatch.delenv("FEDKD_MIRROR", raising=False)
    monkeypatch.setenv("FEDKD_MEASURE_SECONDS", "0")


@pytest.fixture
def short_stacks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of every operation that it traces torch takes down the stack, which under pytest is most of tracing's time."""
    monkeypatch.setattr(sys, "tracebacklimit", 1, raising=False)


@pytest.fixture(params=list(ALGORITHMS))
def name(request: pytest.FixtureRequest) -> str:
    """Every registered algorithm: being registered is being tested."""
    return str(request.param)

"""Local training: the engine beside a bare PyTorch loop, and each algorithm beside FedAvg."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch.utils.flop_counter import FlopCounterMode

from bench.engine.simulation import Simulation
from bench.errors import UsageError
from bench.perf.measure import Spent, alternate, figure, nothing
from bench.perf.workload import BareLoop, Workload, one_round, simulation

BASELINE = "fedavg"
SPEED_LIMIT = 0.95  # of the bare loop's samples per second
STUDENT_PASSES = 3  # a training step in units of a forward pass: forward once, backward twice
SETTLED = 3  # rounds until every algorithm does its usual work (FedGKD has a teacher of its own from round 3)


def measure_training(
    work: Workload,
    model_names: Sequence[str],
    augmentations: Sequence[str],
    algorithms: Sequence[str],
    rounds: int,
    say: Callable[[str], None],
) -> dict[str, Any]:
    """Engine against bare loop for every model and augmentation; algorithms in the first of each.

    Args:
        work: what is trained; its model and augmentation are replaced.
        model_names: names of models.
        augmentations: values of `Setting.augmentation`.
        algorithms: registry names to put beside FedAvg.
        rounds: timed rounds of each comparison.
        say: told what is being done.
    """
    found: dict[str, Any] = {"work": _described(work), "engine": {}, "algorithms": {}}
    for model in model_names:
        found["engine"][model] = {}
        for augmentation in augmentations:
            say(f"training: {model}, augmentation {augmentation}, {rounds} rounds beside a bare loop")
            given = replace(work, model=model, augmentation=augmentation)
            found["engine"][model][augmentation] = beside_bare_loop(given, rounds)
    given = replace(work, model=model_names[0], augmentation=augmentations[0])
    for algorithm in algorithms:
        say(f"training: {algorithm}, {rounds} rounds beside {BASELINE}")
        found["algorithms"][algorithm] = _guarded(algorithm, given, rounds)
    return found


def beside_bare_loop(work: Workload, rounds: int) -> dict[str, Any]:
    """FedAvg's rounds and the bare loop's equal number of steps in turn."""
    run, bare = simulation(work, BASELINE), BareLoop(work)
    one_round(run)
    bare.segment()
    pairs = alternate(lambda: one_round(run), bare.segment, rounds, _synchronise(work))
    # Augmentation is work that the bare loop does not do: no target there.
    limit = SPEED_LIMIT if work.augmentation == "none" else None
    return {
        "backend": run.backend,
        "engine_rate": figure([work.processed / engine.seconds for engine, _ in pairs], "samples/s"),
        "bare_rate": figure([work.processed / bare.seconds for _, bare in pairs], "samples/s"),
        "ratio": figure([bare.seconds / engine.seconds for engine, bare in pairs], "x", limit, at_least=True),
        **_cpu_ratio([(bare, engine) for engine, bare in pairs]),
    }


def beside_fedavg(algorithm: str, work: Workload, rounds: int) -> dict[str, Any]:
    """A round's time over FedAvg's, beside what the arithmetic alone would allow.

    Returns:
        `ratio` of times; `arithmetic`, the ratio of floating-point operations that were counted; `floor`, the ratio if
        nothing but the student's steps and its teachers' forward passes were done.
    """
    run, fedavg = simulation(work, algorithm), simulation(work, BASELINE)
    for _ in range(SETTLED):
        one_round(run)
    one_round(fedavg)
    pairs = alternate(lambda: one_round(run), lambda: one_round(fedavg), rounds, _synchronise(work))
    return {
        "ratio": figure([own.seconds / other.seconds for own, other in pairs], "x"),
        **_cpu_ratio(pairs),
        "arithmetic": _operations(run) / _operations(fedavg),
        "floor": floor(_teachers(run), work),
    }


def floor(teachers: int, work: Workload) -> float:
    """Forward passes of a step with teachers over those of a step without.

    Args:
        teachers: frozen models that a client asks.
        work: with unaugmented inputs a teacher is asked once a round, else in every epoch.
    """
    passes = work.epochs if work.augmentation != "none" else 1
    return 1 + teachers * passes / (STUDENT_PASSES * work.epochs)


def _guarded(algorithm: str, work: Workload, rounds: int) -> dict[str, Any]:
    """One algorithm's failure is its own entry: the others' figures are not lost with it."""
    try:
        return beside_fedavg(algorithm, work, rounds)
    except UsageError as reason:
        return {"left_out": str(reason)}
    except Exception as error:
        return {"error": f"{type(error).__name__}: {error}"}


def _cpu_ratio(pairs: Iterable[tuple[Spent, Spent]]) -> dict[str, Any]:
    """Ratio of processor times, the first over the second: steadier than the clock's where others share the machine."""
    if torch.get_num_threads() > 1:  # threads that wait would be counted
        return {}
    return {"cpu_ratio": figure([first.cpu_seconds / second.cpu_seconds for first, second in pairs], "x")}


def _operations(run: Simulation) -> int:
    """Floating-point operations of one round, those of products and convolutions."""
    with FlopCounterMode(display=False) as counter:
        one_round(run)
    return int(counter.get_total_flops())


def _teachers(run: Simulation) -> int:
    """Frozen models that a client of the last round asked."""
    client = run.participants(run.round)[0]
    message = run.algorithm.broadcast(run.fed, run.server)
    return len(run.algorithm.teachers(message, run.memories.get(client, {})))


def _synchronise(work: Workload) -> Callable[[], object]:
    return torch.cuda.synchronize if work.device == "cuda" else nothing


def _described(work: Workload) -> dict[str, Any]:
    names = ("clients", "cohort", "samples", "epochs", "batch_size", "device", "precision")
    return {name: getattr(work, name) for name in names}

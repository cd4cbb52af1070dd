"""Local training: the engine beside a bare PyTorch loop, and each algorithm beside FedAvg."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import torch
from torch.utils.flop_counter import FlopCounterMode

from bench.engine.loop import Loop
from bench.engine.simulation import Simulation
from bench.perf.floors import floor
from bench.perf.measure import Keep, Spent, alternate, figure, guarded, nothing
from bench.perf.workload import BareLoop, Workload, one_round, simulation

BASELINE = "fedavg"
SPEED_LIMIT = 0.95  # of the bare loop's samples per second
ABOVE_FLOOR = 1.15  # of what its arithmetic allows, the most that a round may take
SETTLED = 6  # rounds until every algorithm does its usual work (FedGKD-VOTE has its five teachers in round 6)
MOST_CLIENTS, MOST_SAMPLES = 4, 320  # of a comparison of algorithms, of which there are many


def measure_training(
    work: Workload,
    model_names: Sequence[str],
    augmentations: Sequence[str],
    algorithms: Sequence[str],
    rounds: int,
    say: Callable[[str], None],
    keep: Keep = nothing,
) -> dict[str, Any]:
    """Engine against bare loop for every model and augmentation; algorithms for every model, with the first of those.

    Args:
        work: what is trained; its model and augmentation are replaced.
        model_names: names of models.
        augmentations: values of `Setting.augmentation`.
        algorithms: registry names to put beside FedAvg.
        rounds: timed rounds of each comparison.
        say: told what is being done.
        keep: given the result so far.
    """
    found: dict[str, Any] = {"work": _described(work), "engine": {}, "algorithms": {}}
    for model in model_names:
        found["engine"][model] = {}
        for augmentation in augmentations:
            say(f"training: {model}, augmentation {augmentation}, {rounds} rounds beside a bare loop")
            given = replace(work, model=model, augmentation=augmentation)
            found["engine"][model][augmentation] = beside_bare_loop(given, rounds)
            keep(found)
    for model in model_names if algorithms else ():
        given = smaller(replace(work, model=model, augmentation=augmentations[0]))
        found["algorithms"][model] = {}
        for algorithm in algorithms:
            say(f"training: {model}, {algorithm}, {rounds} rounds beside {BASELINE}")
            found["algorithms"][model][algorithm] = guarded(partial(beside_fedavg, algorithm, given, rounds))
            keep(found)
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
        **cpu_ratio([(bare, engine) for engine, bare in pairs]),
    }


def smaller(work: Workload) -> Workload:
    """The workload with few clients of few samples: a ratio needs no more."""
    clients, samples = min(work.clients, MOST_CLIENTS), min(work.samples, MOST_SAMPLES)
    return replace(work, clients=clients, cohort=min(work.cohort, clients), samples=samples)


def beside_fedavg(algorithm: str, work: Workload, rounds: int) -> dict[str, Any]:
    """A round's time over FedAvg's with the same model and optimiser, beside what the arithmetic alone would allow.

    Returns:
        `ratio` of times; `arithmetic`, the ratio of floating-point operations that were counted; `floor`, the ratio of
        forward passes that the method must make (`bench.perf.floors`); `over_floor`, the ratio of times over the
        larger of the two.
    """
    run, fedavg = simulation(work, algorithm), simulation(work, BASELINE, beside=algorithm)
    for _ in range(SETTLED):
        one_round(run)
    one_round(fedavg)
    pairs = alternate(lambda: one_round(run), lambda: one_round(fedavg), rounds, _synchronise(work))
    arithmetic, least = _operations(run) / _operations(fedavg), floor(run, work)
    ratios = [own.seconds / other.seconds for own, other in pairs]
    over = [ratio / max(arithmetic, least) for ratio in ratios]
    return {
        "ratio": figure(ratios, "x"),
        **cpu_ratio(pairs),
        "arithmetic": arithmetic,
        "floor": least,
        "over_floor": figure(over, "x", ABOVE_FLOOR),
    }


def cpu_ratio(pairs: Iterable[tuple[Spent, Spent]]) -> dict[str, Any]:
    """Ratio of processor times, the first over the second: steadier than the clock's where others share the machine."""
    if torch.get_num_threads() > 1:  # threads that wait would be counted
        return {}
    return {"cpu_ratio": figure([first.cpu_seconds / second.cpu_seconds for first, second in pairs], "x")}


def _operations(run: Simulation) -> int:
    """Floating-point operations of one round, those of products and convolutions, client after client."""
    trainer, run.trainer = run.trainer, Loop()  # a captured step shows its operations to nobody
    try:
        with FlopCounterMode(display=False) as counter:
            one_round(run)
    finally:
        run.trainer = trainer
    return int(counter.get_total_flops())


def _synchronise(work: Workload) -> Callable[[], object]:
    return torch.cuda.synchronize if work.device == "cuda" else nothing


def _described(work: Workload) -> dict[str, Any]:
    names = ("clients", "cohort", "samples", "epochs", "batch_size", "device", "precision")
    return {name: getattr(work, name) for name in names}

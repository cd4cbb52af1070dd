"""Local training: the engine beside a bare PyTorch loop, and each algorithm beside FedAvg."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import partial

import torch
from torch.utils.flop_counter import FlopCounterMode

from bench.engine.loop import Loop
from bench.engine.simulation import Simulation
from bench.perf.measure import Record, Say, Spent, alternate, figure, guarded, synchroniser
from bench.perf.workload import BareLoop, Workload, one_round, simulation

BASELINE = "fedavg"
SPEED_LIMIT = 0.95  # of the bare loop's samples per second
OVER_ARITHMETIC = 1.15  # of the ratio that counted operations allow
SETTLED = 6  # rounds until every algorithm does its usual work (FedGKD-VOTE has its five teachers in round 6)
MOST_CLIENTS, MOST_SAMPLES = 4, 320  # of a comparison of algorithms, of which there are many


def measure_training(
    record: Record,
    work: Workload,
    model_names: Sequence[str],
    augmentations: Sequence[str],
    algorithms: Sequence[str],
    rounds: int,
    say: Say,
) -> None:
    """Time the engine beside a bare loop, and algorithms beside FedAvg with the first augmentation.

    The record gets `work`; `engine`, by model and augmentation; `algorithms`, by model and name.
    """
    names = ("clients", "cohort", "samples", "epochs", "batch_size", "device", "precision")
    record |= {"work": {name: getattr(work, name) for name in names}, "engine": {}, "algorithms": {}}
    for model in model_names:
        record["engine"][model] = {}
        for augmentation in augmentations:
            say(f"training: {model}, augmentation {augmentation}, {rounds} rounds beside a bare loop")
            case = replace(work, model=model, augmentation=augmentation)
            record["engine"][model][augmentation] = beside_bare_loop(case, rounds)
    for model in model_names if algorithms else ():
        case = smaller(replace(work, model=model, augmentation=augmentations[0]))
        record["algorithms"][model] = {}
        for algorithm in algorithms:
            say(f"training: {model}, {algorithm}, {rounds} rounds beside {BASELINE}")
            record["algorithms"][model][algorithm] = guarded(partial(beside_fedavg, algorithm, case, rounds))


def beside_bare_loop(work: Workload, rounds: int) -> Record:
    """Time FedAvg's rounds and the bare loop's equal number of steps in turn."""
    run, bare = simulation(work, BASELINE), BareLoop(work)
    one_round(run)
    bare.segment()
    pairs = alternate(lambda: one_round(run), bare.segment, rounds, synchroniser(work.device))
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
    """Return the workload with few clients of few samples: a ratio needs no more."""
    clients, samples = min(work.clients, MOST_CLIENTS), min(work.samples, MOST_SAMPLES)
    return replace(work, clients=clients, cohort=min(work.cohort, clients), samples=samples)


def beside_fedavg(algorithm: str, work: Workload, rounds: int) -> Record:
    """Time an algorithm's rounds and FedAvg's, with the same model and optimiser, in turn.

    Returns `ratio` of times; `arithmetic`, the ratio of floating-point operations that were counted; `over_arithmetic`,
    the first over the second.
    """
    run, fedavg = simulation(work, algorithm), simulation(work, BASELINE, like=algorithm)
    for _ in range(SETTLED):
        one_round(run)
    one_round(fedavg)
    pairs = alternate(lambda: one_round(run), lambda: one_round(fedavg), rounds, synchroniser(work.device))
    arithmetic = operations(run) / operations(fedavg)
    ratios = [own.seconds / other.seconds for own, other in pairs]
    return {
        "ratio": figure(ratios, "x"),
        **cpu_ratio(pairs),
        "arithmetic": figure([arithmetic], "x"),
        "over_arithmetic": figure([ratio / arithmetic for ratio in ratios], "x", OVER_ARITHMETIC),
    }


def cpu_ratio(pairs: Iterable[tuple[Spent, Spent]]) -> Record:
    """Return the ratio of processor times, first over second; nothing with threads, whose waiting would be counted."""
    if torch.get_num_threads() > 1:
        return {}
    return {"cpu_ratio": figure([first.cpu_seconds / second.cpu_seconds for first, second in pairs], "x")}


def operations(run: Simulation) -> int:
    """Count the floating-point operations of one round, those of products and convolutions, client after client."""
    trainer, run.trainer = run.trainer, Loop()  # operations of a replayed CUDA graph cannot be counted
    try:
        with FlopCounterMode(display=False) as counter:
            one_round(run)
    finally:
        run.trainer = trainer
    return int(counter.get_total_flops())

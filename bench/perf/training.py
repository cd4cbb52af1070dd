"""Benchmarks of local training: engine beside a bare loop, algorithms beside FedAvg, rates."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import partial
from itertools import product

import torch
from torch.utils.flop_counter import FlopCounterMode

from bench.engine.loop import Loop
from bench.engine.process import give_back_gpu_memory
from bench.engine.simulation import Simulation, choose_backend
from bench.errors import UsageError
from bench.perf.measure import Record, Say, Spent, alternate, figure, guarded, synchroniser, timed
from bench.perf.workload import BareLoop, Workload, one_round, simulation, simulations, together

BASELINE = "fedavg"
SPEED_LIMIT = 0.95  # of the bare loop's samples per second
OVER_ARITHMETIC = 1.15  # of the ratio of counted operations
# Rounds until every algorithm does its usual work (FedGKD-VOTE has its five teachers in round 6).
SETTLED = 6
# Of a comparison of algorithms, of which there are many.
MOST_CLIENTS = 4
MOST_SAMPLES = 320


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
    record |= {
        "work": {name: getattr(work, name) for name in names},
        "engine": {},
        "algorithms": {},
    }
    for model in model_names:
        record["engine"][model] = {}
        for augmentation in augmentations:
            name = f"{model}, augmentation {augmentation}"
            say(f"training: {name}, {rounds} rounds beside a bare loop")
            case = replace(work, model=model, augmentation=augmentation)
            record["engine"][model][augmentation] = beside_bare_loop(case, rounds)
    if not algorithms:
        return
    for model in model_names:
        case = smaller(replace(work, model=model, augmentation=augmentations[0]))
        record["algorithms"][model] = {}
        for algorithm in algorithms:
            say(f"training: {model}, {algorithm}, {rounds} rounds beside {BASELINE}")
            comparison = guarded(partial(beside_fedavg, algorithm, case, rounds))
            record["algorithms"][model][algorithm] = comparison


def beside_bare_loop(work: Workload, rounds: int) -> Record:
    """Time FedAvg's rounds, in turn with the same number of steps of the bare loop."""
    run = simulation(work, BASELINE)
    bare = BareLoop(work)
    one_round(run)
    bare.segment()
    pairs = alternate(lambda: one_round(run), bare.segment, rounds, synchroniser(work.device))
    # The bare loop does not augment: with augmentation there is no goal.
    limit = SPEED_LIMIT if work.augmentation == "none" else None
    engine_rates = [work.processed / engine.seconds for engine, _ in pairs]
    bare_rates = [work.processed / bare.seconds for _, bare in pairs]
    ratios = [bare.seconds / engine.seconds for engine, bare in pairs]
    return {
        "backend": run.backend,
        "engine_rate": figure(engine_rates, "samples/s"),
        "bare_rate": figure(bare_rates, "samples/s"),
        "ratio": figure(ratios, "x", limit, at_least=True),
        **cpu_ratio([(bare, engine) for engine, bare in pairs]),
    }


def smaller(work: Workload) -> Workload:
    """Return the workload with few clients and few samples, which are enough for a ratio."""
    clients = min(work.clients, MOST_CLIENTS)
    samples = min(work.samples, MOST_SAMPLES)
    return replace(work, clients=clients, cohort=min(work.cohort, clients), samples=samples)


def beside_fedavg(algorithm: str, work: Workload, rounds: int) -> Record:
    """Time an algorithm's rounds and FedAvg's, with the same model and optimiser, in turn.

    Returns:
        `ratio`: of the times.
        `arithmetic`: the ratio of the counted floating-point operations.
        `over_arithmetic`: `ratio` over `arithmetic`.
    """
    run = simulation(work, algorithm)
    fedavg = simulation(work, BASELINE, like=algorithm)
    for _ in range(SETTLED):
        one_round(run)
    one_round(fedavg)
    pairs = alternate(
        lambda: one_round(run), lambda: one_round(fedavg), rounds, synchroniser(work.device)
    )
    arithmetic = operations(run) / operations(fedavg)
    ratios = [first.seconds / second.seconds for first, second in pairs]
    return {
        "ratio": figure(ratios, "x"),
        **cpu_ratio(pairs),
        "arithmetic": figure([arithmetic], "x"),
        "over_arithmetic": figure([ratio / arithmetic for ratio in ratios], "x", OVER_ARITHMETIC),
    }


def cpu_ratio(pairs: Iterable[tuple[Spent, Spent]]) -> Record:
    """Return the ratio of processor times, first over second.

    There is none with several threads, because waiting would count.
    """
    if torch.get_num_threads() > 1:
        return {}
    ratios = [first.cpu_seconds / second.cpu_seconds for first, second in pairs]
    return {"cpu_ratio": figure(ratios, "x")}


def operations(run: Simulation) -> int:
    """Count the floating-point operations of products and convolutions in one round.

    Clients train one after another.
    """
    trainer = run.trainer
    run.trainer = Loop()  # operations of a replayed CUDA graph cannot be counted
    try:
        with FlopCounterMode(display=False) as counter:
            one_round(run)
    finally:
        run.trainer = trainer
    return int(counter.get_total_flops())


def cases(
    works: Sequence[Workload],
    backends: Sequence[str],
    precisions: Sequence[str],
    packs: Sequence[int],
) -> list[Workload]:
    """Return every combination, without repeating the backend that `auto` stands for."""
    resolved = dict.fromkeys(
        choose_backend(name, torch.device(works[0].device)) for name in backends
    )
    return [
        replace(work, backend=backend, precision=precision, pack=pack)
        for work, backend, precision, pack in product(works, resolved, precisions, packs)
    ]


def measure_throughput(
    record: Record, workloads: Sequence[Workload], rounds: int, say: Say
) -> None:
    """Measure FedAvg's samples a second in each workload: `rates` of the record."""
    fields = ("model", "augmentation", "backend", "precision", "pack", "epochs", "name")
    record["rates"] = []
    for work in workloads:
        say(f"throughput: {work.name}")
        described = {name: getattr(work, name) for name in fields}
        record["rates"].append(described | guarded(partial(rate, work, rounds)))


def rate(work: Workload, rounds: int) -> Record:
    """Time single rounds, after a first round that is not timed: on a GPU it captures.

    Returns:
        `rate`: samples a second.
        `flops`: the counted operations a second.
        `memory`: the most that a GPU's allocator held.
        `cpu_rate`: samples a second of processor time, on a CPU with one thread.

    Raises:
        UsageError: the device does not have the precision.
    """
    if (work.device, work.precision) == ("cpu", "tf32"):
        raise UsageError("a CPU has no TF32: name another precision, or a GPU")
    if work.device == "cuda":
        give_back_gpu_memory()
        torch.cuda.reset_peak_memory_stats()
    advance = together(simulations(work, BASELINE, work.pack))
    samples = work.pack * work.processed
    advance()
    times = [timed(advance, synchroniser(work.device)) for _ in range(rounds)]
    figures = {"rate": figure([samples / spent.seconds for spent in times], "samples/s")}
    if work.device == "cuda":
        figures["memory"] = figure([torch.cuda.max_memory_allocated() / 1e6], "MB")
    elif torch.get_num_threads() == 1:
        figures["cpu_rate"] = figure([samples / spent.cpu_seconds for spent in times], "samples/s")
    alone = replace(work, clients=1, cohort=1)
    per_sample = operations(simulation(alone, BASELINE)) / alone.processed
    flops = [samples * per_sample / spent.seconds for spent in times]
    figures["flops"] = figure(flops, "FLOP/s")
    return figures

"""What a processor's cores give: bfloat16 beside float32 on one, and two trials on two beside one trial alone."""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from multiprocessing.connection import Connection
from pathlib import Path
from statistics import fmean
from time import perf_counter
from typing import Any

import torch

from bench.engine.process import prepare_process
from bench.errors import EnvironmentProblem
from bench.execution import cpu_count
from bench.perf.measure import Spent, alternate, figure, timed
from bench.perf.training import cpu_ratio
from bench.perf.workload import BareLoop, Workload, one_round, simulation

ALGORITHM = "fedavg"
BF16_RATIO = 1.6  # target, where the processor multiplies bfloat16 itself
BF16_MODEL = "resnet8"
TWO_TRIALS = 1.9  # target, of one's samples a second
TRIALS = 2
WHAT = ("engine", "bare")  # that a trial's process can be asked for
FLAGS = ("avx512_bf16", "amx_bf16")  # as Linux spells them
PATIENCE = 600  # seconds for an answer of a trial


def measure_cores(work: Workload, rounds: int, say: Callable[[str], None]) -> dict[str, Any]:
    """Both comparisons, each round in turn.

    Args:
        work: on a CPU; its precision and, of the first comparison, its model are replaced.
        rounds: timed, of each.
        say: told what is being done.
    """
    say(f"cores: {BF16_MODEL} in bfloat16 beside float32, {rounds} rounds")
    bf16 = beside_fp32(replace(work, model=BF16_MODEL), rounds)
    say(f"cores: {TRIALS} trials of {work.model} beside one, {rounds} rounds")
    return {"bf16_over_fp32": bf16, "two_trials_over_one": two_trials(replace(work, precision="fp32"), rounds)}


def bf16_support() -> str:
    """The instructions that multiply bfloat16 here; empty where the processor has none."""
    found = [name for name in FLAGS if name in _processor_flags()]
    asked = {"avx512_bf16": "_is_avx512_bf16_supported", "amx_bf16": "_is_amx_tile_supported"}
    found += [name for name, question in asked.items() if getattr(torch.cpu, question, bool)()]
    return ", ".join(dict.fromkeys(found))


def _processor_flags() -> set[str]:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return set()
    return set(next((line for line in lines if line.startswith("flags")), "").split())


def beside_fp32(work: Workload, rounds: int) -> dict[str, Any]:
    """The samples/s of bfloat16 over float32's; `left_out` where the processor cannot multiply it.

    Bare loops in the engine's place show what the library's operators give.
    """
    support = bf16_support()
    if not support:
        return {"left_out": f"not applicable: the processor has neither of {', '.join(FLAGS)}"}
    works = [replace(work, precision=name) for name in ("bf16", "fp32")]
    pairs = _in_turn([partial(one_round, simulation(one, ALGORITHM)) for one in works], rounds)
    bare = _in_turn([BareLoop(one).segment for one in works], rounds)
    rates = {"bf16": [half.seconds for half, _ in pairs], "fp32": [full.seconds for _, full in pairs]}
    return {
        "instructions": support,
        "rates": {name: figure([work.processed / one for one in each], "samples/s") for name, each in rates.items()},
        "ratio": figure([full.seconds / half.seconds for half, full in pairs], "x", BF16_RATIO, at_least=True),
        "bare_ratio": figure([full.seconds / half.seconds for half, full in bare], "x"),
        **cpu_ratio([(full, half) for half, full in pairs]),
    }


def _in_turn(rounds_of: list[Callable[[], object]], rounds: int) -> list[tuple[Spent, Spent]]:
    """Two kinds of rounds in turn, the first of each not timed."""
    first, second = rounds_of
    first()
    second()
    return alternate(first, second, rounds)


def two_trials(work: Workload, rounds: int) -> dict[str, Any]:
    """The samples/s of two trials at once, each a process with one thread, over those of one alone.

    Bare loops in their place show what the machine gives: its cores share caches, memory and power.
    """
    if cpu_count() < TRIALS:
        return {"left_out": f"not applicable: {cpu_count()} core here"}
    with _trials(work) as trials:
        for what in WHAT:
            _round(trials, what)  # the first prepares
        turns = [{what: (_round(trials[:1], what), _round(trials, what)) for what in WHAT} for _ in range(rounds)]
    pairs, bare = ([turn[what] for turn in turns] for what in WHAT)
    return {
        "one": figure([work.processed / alone.seconds for alone, _ in pairs], "samples/s"),
        "two": figure([TRIALS * work.processed / both.seconds for _, both in pairs], "samples/s"),
        "ratio": figure(
            [TRIALS * alone.seconds / both.seconds for alone, both in pairs], "x", TWO_TRIALS, at_least=True
        ),
        "bare_ratio": figure([TRIALS * alone.seconds / both.seconds for alone, both in bare], "x"),
        # What the two take from each other, caches and memory, without what others take from both.
        "cpu_ratio": figure([TRIALS * alone.cpu_seconds / both.cpu_seconds for alone, both in pairs], "x"),
    }


@contextmanager
def _trials(work: Workload) -> Iterator[list[Connection]]:
    """Processes that each have a run ready, and the ends of their pipes."""
    context = multiprocessing.get_context("spawn")
    pipes = [context.Pipe() for _ in range(TRIALS)]
    processes = [context.Process(target=_trial, args=(theirs, work), daemon=True) for _, theirs in pipes]
    for process in processes:
        process.start()
    for _, theirs in pipes:
        theirs.close()  # so that the end of a trial is seen
    try:
        yield [ours for ours, _ in pipes]
    finally:
        for ours, _ in pipes:
            ours.close()
        for process in processes:
            process.join()


def _trial(pipe: Connection, work: Workload) -> None:
    """A trial's process: a round each time it is asked, and what it took."""
    prepare_process(1)
    run, bare = simulation(work, ALGORITHM), BareLoop(work)
    rounds = dict(zip(WHAT, (lambda: one_round(run), bare.segment), strict=True))
    while True:
        try:
            asked = pipe.recv()
        except EOFError:
            return
        pipe.send(timed(rounds[asked]))


def _round(trials: list[Connection], what: str) -> Spent:
    """A round of all these trials at once: seconds until the last is done, and the mean of their processor times.

    Raises:
        EnvironmentProblem: a trial ended, or did not answer.
    """
    began, spent = perf_counter(), list[Spent]()
    try:
        for trial in trials:
            trial.send(what)
        spent += [trial.recv() for trial in trials if trial.poll(PATIENCE)]
    except (EOFError, OSError):
        spent.clear()
    if len(spent) < len(trials):
        raise EnvironmentProblem("a trial of the comparison of cores ended before its round was over")
    return Spent(perf_counter() - began, fmean(one.cpu_seconds for one in spent))

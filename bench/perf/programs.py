"""The programs of a stack's steps side by side: every way of computing its convolutions, as it is and compiled.

On a GPU a sweep measures them by itself and takes the fastest; here all of them are seen. On a CPU steps are made as
they come, and client after client (`loop`) stands beside them.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import torch

from bench.engine.stacked.backend import Stacked
from bench.engine.stacked.captures import as_it_comes, cuda_graphs
from bench.engine.stacked.choices import Always
from bench.engine.stacked.convolutions import WAYS
from bench.engine.stacked.probe import COMPILED, Preparer
from bench.engine.stacked.programs import Captured
from bench.errors import Slower, UsageError
from bench.perf.ceilings import check_precision, synchroniser
from bench.perf.measure import Keep, Spent, failure, figure, nothing, timed
from bench.perf.throughput import ALGORITHM, Case
from bench.perf.workload import simulations, together

BASELINE = "grouped"  # what vmap by itself would make


def measure_programs(
    asked: Sequence[Case], compiles: bool, rounds: int, say: Callable[[str], None], keep: Keep = nothing
) -> dict[str, Any]:
    """An entry for each case and program, the programs of a case timed in turn.

    Args:
        asked: what to train.
        compiles: whether compiled programs are measured, too; each takes up to a minute before.
        rounds: timed, of each program.
        say: told what is being done.
        keep: given the result so far.

    Returns:
        `rates`, each with `model`, `precision`, `pack`, `program`; `rate`, on a CPU with one thread by processor time;
        `ratio` to the program with grouped convolutions; or the `error`, or why a precision is `left_out`.
    """
    found: dict[str, Any] = {"rates": []}
    for case in asked:
        found["rates"] += _of_case(case, compiles, rounds, say)
        keep(found)
    return found


def _of_case(case: Case, compiles: bool, rounds: int, say: Callable[[str], None]) -> Iterator[dict[str, Any]]:
    known = {"model": case.work.model, "precision": case.work.precision, "pack": case.pack}
    try:
        check_precision(case.work.device, case.work.precision)
    except UsageError as reason:
        yield known | {"program": "any", "left_out": str(reason)}
        return
    names = [*WAYS, *[way + COMPILED for way in WAYS if compiles], *["loop"] * (case.work.device == "cpu")]
    ready, failed = {}, {}
    for name in names:
        say(f"programs: {case.work.model}, {case.work.precision}, pack {case.pack}, {name}")
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("error", Slower)  # whatever runs instead has another name
                ready[name] = _prepared(case, name)
        except Exception as error:
            failed[name] = failure(error)
    wait = synchroniser(case.work.device)
    turns = [{name: _seconds(timed(advance, wait), case) for name, advance in ready.items()} for _ in range(rounds)]
    for name in names:
        measured = {"error": failed[name]} if name in failed else _figures(case, turns, name)
        yield known | {"program": name} | measured


def _prepared(case: Case, program: str) -> Callable[[], None]:
    """What advances the runs by a round; the first one, which prepares, is over."""
    looped = program == "loop"
    runs = simulations(replace(case.work, backend="loop" if looped else "stacked"), ALGORITHM, case.pack)
    if not looped:
        runs[0].trainer = Stacked(lambda: Captured(_preparer(case.work.device, program)))
    advance = together(runs)
    advance()
    return advance


def _preparer(device: str, program: str) -> Preparer:
    if device == "cuda":
        return Preparer(cuda_graphs(), choices=Always(program))
    return Preparer(as_it_comes, choices=Always(program), warm_up=0)


def _seconds(spent: Spent, case: Case) -> float:
    by_processor = case.work.device == "cpu" and torch.get_num_threads() == 1
    return spent.cpu_seconds if by_processor else spent.seconds


def _figures(case: Case, turns: Sequence[dict[str, float]], program: str) -> dict[str, Any]:
    samples = case.pack * case.work.processed
    found = {"rate": figure([samples / turn[program] for turn in turns], "samples/s")}
    if BASELINE in turns[0]:
        found["ratio"] = figure([turn[BASELINE] / turn[program] for turn in turns], "x")
    return found

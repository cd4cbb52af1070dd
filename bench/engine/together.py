"""Runs that advance side by side, their clients trained in one program."""

from __future__ import annotations

import time
from collections.abc import Sequence

import torch

from bench.engine.client_round import RoundWork
from bench.engine.simulation import Simulation
from bench.errors import Interrupted, result_or_error


def advance_together(
    simulations: Sequence[Simulation], rounds: int = 1
) -> dict[Simulation, Exception]:
    """Run up to `rounds` rounds, each of the simulations that have made the fewest.

    They have one model, batch size and optimiser, one data set, algorithm and backend. They may
    differ in the seed, in how clients are made and drawn, in rounds and epochs, in the learning
    rate, and in the algorithm's packable numbers. Each has the results that it would have alone:
    bit for bit under `Loop`, within float tolerance in a stack. From now on they share one trainer,
    because it keeps what it learns of their program.

    Returns:
        The error of each simulation that failed, which leaves the others. A failed one may be in
        the middle of a round, and is then of no use any more: a retry begins at its last save.
    """
    for simulation in simulations:
        simulation.trainer = simulations[0].trainer
    failures: dict[Simulation, Exception] = {}
    for _ in range(rounds):
        going_on = [
            simulation
            for simulation in simulations
            if not simulation.done and simulation not in failures
        ]
        if not going_on:
            break
        fewest = min(simulation.round for simulation in going_on)
        failures |= _round([one for one in going_on if one.round == fewest])
    return failures


def _round(simulations: Sequence[Simulation]) -> dict[Simulation, Exception]:
    """Run a round of simulations that have made equally many; return the errors of failed ones."""
    failures: dict[Simulation, Exception] = {}
    owners: dict[RoundWork, Simulation] = {}
    for simulation in simulations:
        with simulation.clock():
            begun = result_or_error(simulation.begin)
        if isinstance(begun, Exception):
            failures[simulation] = begun
        else:
            owners[begun] = simulation
    trainer = simulations[0].trainer
    shares = _shares_of_samples(owners)
    began = time.perf_counter()
    for job, trained in trainer.train_all(list(owners)):
        simulation = owners.pop(job)
        if simulation.device.type == "cuda":
            # Otherwise the first one that is evaluated would be charged for all.
            torch.cuda.synchronize(simulation.device)
        spent = time.perf_counter() - began
        for sharer, share in shares.items():
            sharer.progress.seconds += spent * share
        if isinstance(trained, Exception):
            ended: Exception | None = trained
        else:
            with simulation.clock():
                ended = result_or_error(simulation.end, job, trained)
        if ended is not None:
            failures[simulation] = ended
        if isinstance(ended, Interrupted):
            break  # the others are still at the end of the round before
        # Before the next are trained: all models together may not fit into memory.
        del job, trained, ended
        began = time.perf_counter()
    return failures


def _shares_of_samples(owners: dict[RoundWork, Simulation]) -> dict[Simulation, float]:
    """Return each simulation's share of the training samples of a round, which shares the time."""
    samples: dict[Simulation, int] = {}
    for job, simulation in owners.items():
        samples[simulation] = sum(sum(work.schedule.sizes) for work in job.clients)
    total = sum(samples.values())
    return {simulation: count / total for simulation, count in samples.items()}

"""What a round must cost at least: forward passes of an algorithm's own work beside those of the students' training.

A training step costs three forward passes, a frozen model's answer one. What generators cost is not counted in
passes of the model: there the floating-point operations that were counted stand alone.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

from algorithms.base import Algorithm, layers
from bench.engine.simulation import Simulation
from bench.perf.workload import Workload

STUDENT_PASSES = 3  # a training step in units of a forward pass: forward once, backward twice


def floor(run: Simulation, work: Workload) -> float:
    """A round's forward passes over those of FedAvg's round.

    Args:
        run: after some rounds, so that its message holds what it usually does.
        work: what it trains.
    """
    own = teacher_passes(_teachers(run), work) + sum(count(run, work) for count in _extra(run.algorithm))
    return 1 + own / (STUDENT_PASSES * work.processed)


def teacher_passes(teachers: int, work: Workload) -> int:
    """Samples that pass through frozen models: with unaugmented inputs once a round, else in every epoch."""
    epochs = work.epochs if work.augmentation != "none" else 1
    return teachers * work.cohort * work.samples * epochs


def _teachers(run: Simulation) -> int:
    """Frozen models that a client of the last round asked."""
    client = run.participants(run.round)[0]
    message = run.algorithm.broadcast(run.fed, run.server)
    return len(run.algorithm.teachers(message, run.memories.get(client, {})))


def _extra(algorithm: Algorithm) -> list[Callable[[Simulation, Workload], float]]:
    """What the algorithm, and whatever it wraps, does beside training and asking its teachers."""
    return [EXTRA[name] for layer in layers(algorithm) if (name := type(layer).__name__) in EXTRA]


def _every_sample(run: Simulation, work: Workload) -> float:
    return work.processed


def _own_data_once(run: Simulation, work: Workload) -> float:
    return work.cohort * work.samples


def _auxiliary(run: Simulation, work: Workload) -> float:
    return len(run.fed.auxiliary.y)


def _validation(run: Simulation, work: Workload) -> float:
    return len(run.fed.validation.y)


def _requests(run: Simulation, work: Workload) -> float:
    """Each request is a step of the student and an answer of the client's own model."""
    values: Any = run.algorithm
    return float(values.steps * work.cohort * min(values.batch_size, work.samples) * (STUDENT_PASSES + 1))


def _server_distillation(run: Simulation, work: Workload) -> float:
    """The ensemble's answers, the steps of the server's student, and its validations."""
    values: Any = run.algorithm
    batch = min(values.server_batch_size, len(run.fed.auxiliary.y))
    validations = 1 + math.ceil(values.max_steps / values.check_every)
    steps = values.max_steps * batch * STUDENT_PASSES
    return float(work.cohort * len(run.fed.auxiliary.y) + steps + validations * len(run.fed.validation.y))


# By class: samples through one forward pass in a round.
EXTRA: Mapping[str, Callable[[Simulation, Workload], float]] = {
    "FedDistill": _every_sample,  # the logits of its table
    "QFFL": _own_data_once,  # F_k(w_t)
    "FedCAD": _auxiliary,
    "FedGKDVote": _validation,
    "DKD": _requests,
    "FedDF": _server_distillation,
}

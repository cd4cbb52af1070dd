"""FedKD: mentors and a mentee that teach each other, and changes of the mentee at low rank.

B batch, C classes, D features.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial

import torch
from torch import Tensor

from algorithms.base import Batch, Outputs, Params
from bench.selftest.equations.checks import Check
from bench.selftest.equations.formulas import cross_entropy, kl, masked, weighted
from bench.selftest.equations.lab import FEATURES, ROUNDS, SIZES, TWO, forward, moved_statistics
from bench.selftest.equations.lab_run import LabRun, Pass, holds, local_gap, loss_and_grad_of
from bench.selftest.equations.optimizers import Sgd
from bench.selftest.toy import gap

FEDKD = "Wu et al. 2022, adaptive mutual distillation, truncated updates"
EVERYONE = (tuple(SIZES),) * 2


def objective(own: Outputs, other: Outputs, samples: Batch) -> Tensor:
    """Return CE + (KL(p_other || p_own) + mean square of h_own - h_other) / (CE + CE_other).

    Each part is a mean over the batch, and `other` is constant: a scalar.
    """
    other = Outputs(other.logits.detach(), other.features.detach())

    def mean(values: Tensor) -> Tensor:
        return masked(values, samples.weight)

    task = mean(cross_entropy(own.logits, samples.y))
    other_task = mean(cross_entropy(other.logits, samples.y))
    distance = ((own.features - other.features) ** 2).sum(1) / FEATURES
    return task + mean(kl(other.logits, own.logits) + distance) / (task + other_task)


def mentee_outputs(mentee: Params, w: Tensor, x: Tensor) -> Outputs:
    """Return the mentee's logits, and W h of its features."""
    out = forward(mentee, x)
    return Outputs(out.logits, torch.stack([w @ h for h in out.features]))


def mentor_objective(mentor: Params, samples: Batch, mentee: Params, w: Tensor) -> Tensor:
    """Return the mentor's objective: a scalar."""
    other = mentee_outputs(mentee, w, samples.x)
    return objective(forward(mentor, samples.x), other, samples)


def mentee_objective(mentor: Params, samples: Batch, both: Params) -> Tensor:
    """Return the objective of a mentee and W, `both`: a scalar."""
    mentee = {name: value for name, value in both.items() if name != "W"}
    own = mentee_outputs(mentee, both["W"], samples.x)
    return objective(own, forward(mentor, samples.x), samples)


def taught(run: LabRun, mentee: Params, w: Tensor, passes: Sequence[Pass]) -> Params:
    """Return a mentee, and `W`, after a step of SGD beside each pass of the mentor."""
    sgd = Sgd(run.lr, run.momentum)
    names = [*run.net.trainable, "W"]
    both = {**mentee, "W": w}
    for mentor, samples in passes:
        grad = loss_and_grad_of(partial(mentee_objective, mentor, samples), both, names).grad
        after = sgd.step([both[name] for name in names], list(grad.values()))
        moved = moved_statistics(both, samples.x) if run.net.batchnorm else {}
        both = {**both, **moved, **dict(zip(names, after, strict=True))}
    return both


def low_rank(change: Params, energy: float) -> tuple[Params, int]:
    """Project each matrix on its first singular vectors; return it, and the floats that tell it.

    The vectors are eigenvectors of M M^T, whose eigenvalues are the squared singular values.
    """
    projected = {}
    floats = 0
    for name, value in change.items():
        projected[name] = value
        size = value.numel()
        if value.dim() == 2:
            values, vectors = torch.linalg.eigh(value @ value.T)
            rank = 0
            while float(values.flip(0)[:rank].sum()) < energy * float(values.sum()):
                rank += 1
            first = vectors.flip(1)[:, :rank]
            projected[name] = first @ first.T @ value
            size = min(size, rank * (sum(value.shape) + 1))
        floats += size
    return projected, floats


def fedkd_gaps(
    run: LabRun,
    energy_start: float,
    energy_end: float,
    cohorts: Sequence[Sequence[int]] = TWO,
) -> Iterator[float]:
    """Compare rounds of the mentee, its size, each mentor, its loss and its gradient."""
    mentee = run.initial
    whole = sum(value.numel() for value in mentee.values())
    w = {k: torch.eye(FEATURES, dtype=torch.float64) for k in SIZES}
    for clients in cohorts:
        energy = energy_start + (energy_end - energy_start) * run.number / ROUNDS
        passes = {k: run.passes(k) for k in clients}
        changes = {}
        for k in clients:
            both = taught(run, mentee, w[k], passes[k])
            w[k] = both.pop("W")
            change = {name: both[name] - mentee[name] for name in mentee}
            changes[k], _ = low_rank(change, energy)
        run.round(clients, passes)
        change, floats = low_rank(weighted(changes, SIZES), energy)
        mentee = {name: mentee[name] + change[name] for name in mentee}
        yield gap(run.algorithm.evaluated(run.server), {"": {}, "_mentee": mentee})
        yield gap(run.message()["params"], mentee)
        sent = floats if len(clients) == len(SIZES) else whole
        yield holds(int(run.message()["floats"]) == sent)
        for k in SIZES:
            loss = partial(mentor_objective, mentee=mentee, w=w[k])
            yield local_gap(run, k, run.last[k], loss)


def upload_gaps(run: LabRun, energy_start: float, energy_end: float) -> Iterator[float]:
    """Compare a client's truncated change, and the floats that it counts."""
    client = 0
    energy = energy_start + (energy_end - energy_start) / ROUNDS
    passes = run.passes(client)
    visit = run.visit(client, len(passes))
    for mentor, samples in passes:
        visit.step_loss(mentor, samples)
    upload = visit.upload(run.local(client))
    both = taught(run, run.initial, torch.eye(FEATURES, dtype=torch.float64), passes)
    change = {name: both[name] - run.initial[name] for name in run.initial}
    expected, floats = low_rank(change, energy)
    yield gap(upload["change"], expected)
    yield holds(int(upload["floats"]) == floats)


LOW = {"energy_start": 0.4, "energy_end": 0.9}

CHECKS: dict[str, tuple[Check, ...]] = {
    "fedkd": (
        Check("both models, loss and gradient, 2 rounds", FEDKD, fedkd_gaps, LOW),
        Check(
            "with momentum, without BatchNorm",
            FEDKD,
            fedkd_gaps,
            {"energy_start": 1.0, "energy_end": 0.6},
            norm=False,
            momentum=0.9,
        ),
        Check(
            "all clients take part", FEDKD, partial(fedkd_gaps, cohorts=EVERYONE), LOW, norm=False
        ),
        Check("an upload and its floats", FEDKD, upload_gaps, LOW),
    ),
}

"""FedKD: mentors and a mentee that teach each other, and changes of the mentee at low rank.

B batch, C classes, D features.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import torch
from torch import Tensor

from algorithms.base import Batch, Outputs, Params
from bench.selftest.equations.checks import Check
from bench.selftest.equations.formulas import cross_entropy, kl, masked, weighted
from bench.selftest.equations.lab import FEATURES, ROUNDS, SIZES, TWO, Cohorts, forward
from bench.selftest.equations.lab_run import Gaps, LabRun, Pass, holds
from bench.selftest.equations.optimizers import Sgd, stepped
from bench.selftest.toy import gap

FEDKD = "Wu et al. 2022, adaptive mutual distillation, truncated updates"
EVERYONE = (tuple(SIZES),) * 2
IDENTITY = torch.eye(FEATURES, dtype=torch.float64)


def objective(own: Outputs, other: Outputs, samples: Batch) -> Tensor:
    """Return CE + (KL(p_other || p_own) + mean square of h_own - h_other) / (CE + CE_other).

    Each part is a mean over the batch, and `other` is constant: a scalar.
    """
    z, h = map(Tensor.detach, other)
    task = masked(cross_entropy(own.logits, samples.y), samples.weight)
    other_task = masked(cross_entropy(z, samples.y), samples.weight)
    distance = ((own.features - h) ** 2).sum(1) / FEATURES
    return task + masked(kl(z, own.logits) + distance, samples.weight) / (task + other_task)


def outputs_of(mentee: Params, x: Tensor) -> Outputs:
    """Return the mentee's logits, and W h of its features; W is an entry of `mentee`."""
    out = forward(mentee, x)
    return Outputs(out.logits, out.features @ mentee["W"].T)


def mentor_objective(mentor: Params, samples: Batch, mentee: Params) -> Tensor:
    """Return the mentor's objective: a scalar."""
    return objective(forward(mentor, samples.x), outputs_of(mentee, samples.x), samples)


def mentee_objective(mentor: Params, samples: Batch, mentee: Params) -> Tensor:
    """Return the objective of a mentee and its W: a scalar."""
    return objective(outputs_of(mentee, samples.x), forward(mentor, samples.x), samples)


def taught(run: LabRun, mentee: Params, passes: Sequence[Pass]) -> Params:
    """Return a mentee, with its W, after a step of SGD beside each pass of the mentor."""
    sgd = Sgd(run.lr, run.momentum)
    for mentor, samples in passes:
        mentee = stepped(sgd, mentee, partial(mentee_objective, mentor, samples), samples.x)
    return mentee


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


def fedkd_gaps(run: LabRun, energy_start: float, energy_end: float, cohorts: Cohorts = TWO) -> Gaps:
    """Compare rounds of the mentee, its size, each mentor, its loss and its gradient."""
    mentee = run.initial
    whole = sum(value.numel() for value in mentee.values())
    w = dict.fromkeys(SIZES, IDENTITY)
    for clients in cohorts:
        energy = energy_start + (energy_end - energy_start) * run.number / ROUNDS
        changes = {}
        for k in clients:
            after = taught(run, {**mentee, "W": w[k]}, run.passes(k))
            w[k] = after["W"]
            changes[k], _ = low_rank({n: after[n] - mentee[n] for n in mentee}, energy)
        run.round(clients)
        change, floats = low_rank(weighted(changes), energy)
        mentee = {name: mentee[name] + change[name] for name in mentee}
        yield gap(run.evaluated, {"": {}, "_mentee": mentee})
        yield gap(run.message()["params"], mentee)
        sent = floats if len(clients) == len(SIZES) else whole
        yield holds(int(run.message()["floats"]) == sent)
        for k in SIZES:
            loss = partial(mentor_objective, mentee={**mentee, "W": w[k]})
            yield run.local_gap(k, run.last[k], loss)


def upload_gaps(run: LabRun, energy_start: float, energy_end: float) -> Gaps:
    """Compare a client's truncated change, and the floats that it counts."""
    client = 0
    energy = energy_start + (energy_end - energy_start) / ROUNDS
    visit = run.visit(client)
    for mentor, samples in run.passes(client):
        visit.step_loss(mentor, samples)
    upload = visit.upload(run.local(client))
    after = taught(run, {**run.initial, "W": IDENTITY}, run.passes(client))
    change = {name: after[name] - run.initial[name] for name in run.initial}
    expected, floats = low_rank(change, energy)
    yield gap(upload["change"], expected)
    yield holds(int(upload["floats"]) == floats)


LOW = {"energy_start": 0.4, "energy_end": 0.9}

CHECKS = {
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
            "all clients take part",
            FEDKD,
            partial(fedkd_gaps, cohorts=EVERYONE),
            {"energy_start": 0.9, "energy_end": 0.3},
            norm=False,
        ),
        Check("an upload and its floats", FEDKD, upload_gaps, LOW),
    ),
}

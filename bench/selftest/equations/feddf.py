"""FedDF: the server distils the ensemble of local models on its own samples.

C classes, K clients. Batches that hold the whole auxiliary set make every step determined; smaller ones are the
algorithm's own draw, and noted as the student is given them.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any
from unittest.mock import patch

import torch
from torch import Tensor

from algorithms.base import Data, Params
from bench.selftest.equations.checks import Check, Limit, loss_check
from bench.selftest.equations.formulas import kl, sum_of, weighted
from bench.selftest.equations.lab import SIZES, TWO, LabNet, forward, moved_statistics
from bench.selftest.equations.run import Run, fedavg_loss, slope_of
from bench.selftest.equations.watch import Adam, bare

SOURCE = "Lin et al. 2020, Algorithm 1"


@dataclass(frozen=True)
class Student:
    """The server's student. Fields are the hyper-parameters."""

    server_lr: float = 0.05
    server_batch_size: int = 64
    max_steps: int = 12
    check_every: int = 1
    patience: int = 100

    def path(self, net: LabNet, batches: list[Tensor], ended: Mapping[int, Params]) -> list[Params]:
        """The student after 0, 1, ... Adam steps, from the weighted mean on."""
        adam, path = Adam(self.server_lr), [weighted(ended, SIZES)]
        for x in batches:
            w = path[-1]
            slope = slope_of(net, partial(_divergence, ended, x), w)
            values = adam.step([w[n] for n in net.trainable], list(slope.grad.values()))
            statistics = moved_statistics(w, x) if net.batchnorm else {}
            path.append(statistics | dict(zip(net.trainable, values, strict=True)))
        return path

    def kept(self, path: list[Params], held: Data) -> Params:
        """The checkpoint of the best validation accuracy; the search ends `patience` steps after it."""
        answers = [forward(w, held.x, training=False).logits.argmax(1) for w in path]
        scores, best = [int((answer == held.y).sum()) for answer in answers], 0
        for step in range(self.check_every, self.max_steps + 1, self.check_every):
            if scores[step] > scores[best]:
                best = step
            elif step - best >= self.patience:
                break
        return path[best]


def _divergence(ended: Mapping[int, Params], x: Tensor, w: Params) -> Tensor:
    """The student's objective: mean KL( softmax(mean_k z_k) || softmax(z) )."""
    mean = sum_of(forward(own, x, training=False).logits for own in ended.values()) / len(ended)
    return kl(mean, forward(w, x).logits).mean()


def distilled(run: Run, peak: int, **hyperparameters: Any) -> Iterator[float]:
    """The model after each round's distillation.

    The validation labels are the student's own answers after `peak` steps of round 1.
    """
    student, held = Student(**hyperparameters), run.fed.validation
    whole = [run.fed.auxiliary.x] * student.max_steps
    for clients in TWO:
        visits, ended = {k: run.visit(k) for k in clients}, {k: run.local(k) for k in clients}
        path = student.path(run.net, whole, ended)
        if run.number == 1:
            held.y.copy_(forward(path[peak], held.x, training=False).logits.argmax(1))
        run.close(visits, ended)
        yield run.model_gap(student.kept(path, held))


def small_batches(run: Run, **hyperparameters: Any) -> Iterator[float]:
    """Batches of 5 of the 12 auxiliary samples, whichever they are."""
    student, batches = Student(**hyperparameters), list[Tensor]()
    ended = {k: run.local(k) for k in TWO[0]}
    visits, x, held = {k: run.visit(k) for k in ended}, run.fed.auxiliary.x, run.fed.validation
    late = student.path(run.net, [x] * student.max_steps, ended)[-1]
    held.y.copy_(forward(late, held.x, training=False).logits.argmax(1))  # so that the last checkpoint is the best
    with patch.object(run.net, "taught", lambda given: batches.append(bare(given))):
        run.close(visits, ended)
    auxiliary = all(any(torch.equal(row, sample) for sample in x) for given in batches for row in given)
    sizes = [len(given) for given in batches] == [student.server_batch_size] * student.max_steps
    yield 0.0 if auxiliary and sizes else math.inf
    yield run.model_gap(student.kept(student.path(run.net, batches, ended), held))


def feddf_check(title: str, peak: int, norm: bool = False, **others: Any) -> Check:
    """Two rounds."""
    return Check(title, SOURCE, partial(distilled, peak=peak), vars(Student(**others)), norm)


CHECKS: dict[str, tuple[Check, ...]] = {
    "feddf": (
        feddf_check("Adam on the ensemble's mean logits, 12 steps, 2 rounds", 12),
        # Under Adam a bias before BatchNorm moves by rounding noise times the learning rate: a small one hides it.
        feddf_check("with BatchNorm in training mode, 6 steps, 2 rounds", 6, norm=True, server_lr=0.003, max_steps=6),
        feddf_check("the best checkpoint is kept, not the last", 5),
        feddf_check("validated every 4th step", 7, check_every=4),
        feddf_check("the search ends without a better checkpoint for 3 steps", 12, patience=3),
        feddf_check("max_steps=0 is the mean", 0, max_steps=0),
        Check(
            "8 batches of 5 auxiliary samples",
            SOURCE,
            small_batches,
            vars(Student(server_batch_size=5, max_steps=8, check_every=8)),
            norm=False,
        ),
        loss_check("loss and gradient, round 1", SOURCE, fedavg_loss, max_steps=0),
    )
}

LIMITS: dict[str, tuple[Limit, ...]] = {
    "feddf": (Limit({"max_steps": 0}),),
}

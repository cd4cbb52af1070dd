"""FedDF: the server distils the ensemble of local models on its own samples.

C classes, K clients. Batches of the whole auxiliary set make every step deterministic; smaller ones
are drawn by the algorithm, and recorded when the student gets them.
"""

from __future__ import annotations

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
from bench.selftest.equations.lab import SIZES, TWO, LabNet, forward
from bench.selftest.equations.lab_run import LabRun, fedavg_loss, holds
from bench.selftest.equations.observe import unwrapped
from bench.selftest.equations.optimizers import Adam, stepped

SOURCE = "Lin et al. 2020, Algorithm 1"


@dataclass(frozen=True)
class Student:
    """The server's student. The fields are the hyper-parameters."""

    server_lr: float = 0.05
    server_batch_size: int = 64
    max_steps: int = 12
    check_every: int = 1
    patience: int = 100

    def path(self, net: LabNet, batches: list[Tensor], ended: Mapping[int, Params]) -> list[Params]:
        """Return the student after 0, 1, ... Adam steps that start from the weighted mean."""
        adam = Adam(self.server_lr)
        path = [weighted(ended, SIZES)]
        for x in batches:
            path.append(stepped(net, adam, path[-1], partial(_divergence, ended, x), x))
        return path

    def kept(self, path: list[Params], validation: Data) -> Params:
        """Return the checkpoint of the best validation accuracy.

        The search ends `patience` steps after it.
        """
        predictions = [forward(w, validation.x, training=False).logits.argmax(1) for w in path]
        scores = [int((labels == validation.y).sum()) for labels in predictions]
        best = 0
        for step in range(self.check_every, self.max_steps + 1, self.check_every):
            if scores[step] > scores[best]:
                best = step
            elif step - best >= self.patience:
                break
        return path[best]


def _divergence(ended: Mapping[int, Params], x: Tensor, w: Params) -> Tensor:
    """Return the student's objective, the mean KL( softmax(mean_k z_k) || softmax(z) )."""
    logits = [forward(local, x, training=False).logits for local in ended.values()]
    mean = sum_of(logits) / len(logits)
    return kl(mean, forward(w, x).logits).mean()


def distilled(run: LabRun, peak: int, **hyperparameters: Any) -> Iterator[float]:
    """Compare the model after each round's distillation.

    The validation labels are the student's own predictions after `peak` steps of round 1.
    """
    student = Student(**hyperparameters)
    validation = run.fed.validation
    batches = [run.fed.auxiliary.x] * student.max_steps
    for clients in TWO:
        ended = {k: run.local(k) for k in clients}
        path = student.path(run.net, batches, ended)
        if run.number == 1:
            logits = forward(path[peak], validation.x, training=False).logits
            validation.y.copy_(logits.argmax(1))
        run.round(clients)
        yield run.model_gap(student.kept(path, validation))


def small_batches(run: LabRun, **hyperparameters: Any) -> Iterator[float]:
    """Check batches of 5 of the 12 auxiliary samples, whichever samples they hold."""
    student = Student(**hyperparameters)
    batches = list[Tensor]()
    ended = {k: run.local(k) for k in TWO[0]}
    visits = {k: run.visit(k) for k in ended}
    x = run.fed.auxiliary.x
    validation = run.fed.validation
    late = student.path(run.net, [x] * student.max_steps, ended)[-1]
    # Makes the last checkpoint best.
    validation.y.copy_(forward(late, validation.x, training=False).logits.argmax(1))
    with patch.object(run.net, "on_train", lambda inputs: batches.append(unwrapped(inputs))):
        run.close(visits)
    rows = torch.cat(batches)
    equal = (rows[:, None] == x[None]).flatten(2).all(2)  # (rows, auxiliary samples)
    auxiliary = bool(equal.any(1).all())
    sizes = [len(batch) for batch in batches] == [student.server_batch_size] * student.max_steps
    yield holds(auxiliary and sizes)
    yield run.model_gap(student.kept(student.path(run.net, batches, ended), validation))


def feddf_check(title: str, peak: int, norm: bool = False, **others: Any) -> Check:
    """Make a check of two rounds of distillation."""
    return Check(title, SOURCE, partial(distilled, peak=peak), vars(Student(**others)), norm)


CHECKS: dict[str, tuple[Check, ...]] = {
    "feddf": (
        feddf_check("Adam on the ensemble's mean logits, 12 steps, 2 rounds", 12),
        # Under Adam a bias before BatchNorm moves by rounding noise times the learning rate: a
        # small one hides it.
        feddf_check(
            "with BatchNorm in training mode, 6 steps, 2 rounds",
            6,
            norm=True,
            server_lr=0.003,
            max_steps=6,
        ),
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

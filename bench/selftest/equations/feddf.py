"""FedDF: the server distils the ensemble of local models on its own samples.

C classes, K clients. Batches of the whole auxiliary set make every step deterministic; smaller ones
are drawn by the algorithm, and recorded when the student gets them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any
from unittest.mock import patch

import torch
from torch import Tensor

from algorithms.base import Data, Params
from bench.selftest.equations.checks import Check, Limit, loss_check
from bench.selftest.equations.formulas import kl, mean, weighted
from bench.selftest.equations.lab import ONE, TWO, forward
from bench.selftest.equations.lab_run import Gaps, LabRun, constant, fedavg_loss, holds
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

    def path(self, batches: list[Tensor], ended: Mapping[int, Params]) -> list[Params]:
        """Return the student after 0, 1, ... Adam steps that start from the weighted mean.

        Its objective is the mean KL( softmax(mean_k z_k) || softmax(z) ).
        """

        def divergence(x: Tensor, w: Params) -> Tensor:
            teacher = mean(constant(local, x).logits for local in ended.values())
            return kl(teacher, forward(w, x).logits).mean()

        adam = Adam(self.server_lr)
        path = [weighted(ended)]
        for x in batches:
            path.append(stepped(adam, path[-1], partial(divergence, x), x))
        return path

    def kept(self, path: list[Params], validation: Data) -> Params:
        """Return the checkpoint of the best validation accuracy.

        The search ends `patience` steps after it.
        """
        scores = [int((predictions(w, validation) == validation.y).sum()) for w in path]
        best = 0
        for step in range(self.check_every, self.max_steps + 1, self.check_every):
            if scores[step] > scores[best]:
                best = step
            elif step - best >= self.patience:
                break
        return path[best]


def unwrapped(value: Tensor) -> Tensor:
    """Copy the numbers of a tensor that a transformation of `torch.func` may have wrapped."""
    while torch._C._functorch.is_functorch_wrapped_tensor(value):
        value = torch._C._functorch.get_unwrapped(value)
    return value.detach().clone()


def predictions(w: Params, data: Data) -> Tensor:
    """Return the predicted label of each sample."""
    return constant(w, data.x).logits.argmax(1)


def distilled(run: LabRun, peak: int, **hyperparameters: Any) -> Gaps:
    """Compare the model after each round's distillation.

    The validation labels are the student's own predictions after `peak` steps of round 1.
    """
    student = Student(**hyperparameters)
    validation = run.fed.validation
    batches = [run.fed.auxiliary.x] * student.max_steps
    for clients in TWO:
        path = student.path(batches, {k: run.local(k) for k in clients})
        if run.number == 1:
            validation.y.copy_(predictions(path[peak], validation))
        run.round(clients)
        yield run.model_gap(student.kept(path, validation))


def small_batches(run: LabRun, **hyperparameters: Any) -> Gaps:
    """Check batches of 5 of the 12 auxiliary samples, whichever samples they hold."""
    student = Student(**hyperparameters)
    batches: list[Tensor] = []
    visits = {k: run.visit(k) for k in ONE[0]}
    ended = {k: run.local(k) for k in visits}
    x = run.fed.auxiliary.x
    validation = run.fed.validation
    late = student.path([x] * student.max_steps, ended)[-1]
    # Makes the last checkpoint best.
    validation.y.copy_(predictions(late, validation))
    with patch.object(run.net, "on_train", lambda inputs: batches.append(unwrapped(inputs))):
        run.close(visits)
    equal = (torch.cat(batches)[:, None] == x).flatten(2).all(2)  # (rows, auxiliary samples)
    yield holds(bool(equal.any(1).all()))
    yield holds([len(x) for x in batches] == [student.server_batch_size] * student.max_steps)
    yield run.model_gap(student.kept(student.path(batches, ended), validation))


def feddf_check(title: str, peak: int, norm: bool = False, **others: Any) -> Check:
    """Make a check of two rounds of distillation."""
    return Check(title, SOURCE, partial(distilled, peak=peak), vars(Student(**others)), norm)


CHECKS = {
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
        # After a step fewer without a better one the first of these searches would end, too; after
        # one more, the second would go on.
        feddf_check("the best checkpoint is kept, not the last", 7, patience=5),
        feddf_check("validated every 4th step", 7, check_every=4),
        feddf_check("the search ends without a better checkpoint for 5 steps", 12, patience=5),
        feddf_check("max_steps=0 is the mean", 0, max_steps=0),
        Check(
            "8 batches of 5 auxiliary samples",
            SOURCE,
            small_batches,
            vars(Student(server_batch_size=5, max_steps=8, check_every=8)),
            norm=False,
        ),
        loss_check("loss and gradient, round 1", SOURCE, fedavg_loss),
    )
}

LIMITS = {"feddf": (Limit({"max_steps": 0}),)}

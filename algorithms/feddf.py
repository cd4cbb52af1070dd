"""FedDF: Ensemble Distillation for Robust Model Fusion in Federated Learning.

Lin, Kong, Stich, Jaggi, NeurIPS 2020, Algorithm 1. https://arxiv.org/abs/2006.07242
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from algorithms.base import Algorithm, Cohort, Data, Fed, Net, Params, Server, Upload, hyper
from algorithms.forward import logits_of
from algorithms.losses import kl


@dataclass(frozen=True)
class FedDF(Algorithm):
    """The server starts from the weighted mean and distils the ensemble of the round's local models into it.

    It minimises KL( softmax(mean_k z_k(x)) || softmax(z(x)) ) over its auxiliary samples, whose labels it does not use,
    with Adam, and keeps the model of the best validation accuracy.

    Args:
        server_lr: Adam's learning rate.
        server_batch_size: samples of a step; at most all auxiliary samples.
        max_steps: steps a round at most; 0 is FedAvg.
        check_every: steps between validations.
        patience: the distillation ends after so many steps without a better validation accuracy.

    Differences from the paper:
        1. The data that the server distils on are the auxiliary samples taken out of the training set.
        2. The paper's learning rate falls by cosine annealing in some runs; here it is constant.
    """

    needs = frozenset({"auxiliary", "validation"})

    server_lr: float = hyper(1e-3, 0, open_low=True)
    server_batch_size: int = hyper(128, 1, packable=False)
    max_steps: int = hyper(10_000, 0, packable=False)
    check_every: int = hyper(100, 1, packable=False)
    patience: int = hyper(1000, 1, packable=False)

    def server_step(self, fed: Fed, server: Server, uploads: Upload, cohort: Cohort) -> Server:
        """The mean, and its distillation."""
        mean = cohort.mean(uploads["params"])
        if not self.max_steps:
            return server.next(mean)
        clients = [{name: value[k] for name, value in uploads["params"].items()} for k in range(len(cohort.ids))]
        x = fed.auxiliary.x
        teacher = torch.stack([logits_of(fed.net, params, x) for params in clients]).mean(0)
        if fed.net.batchnorm and min(self.server_batch_size, len(x)) == 1:
            raise ValueError(
                f"FedDF on a model with BatchNorm takes statistics of its server's batches: server_batch_size and the "
                f"auxiliary samples must be > 1, got {self.server_batch_size} and {len(x)}"
            )
        batches = self._batches(fed.stream("feddf", server.round), len(x))
        return server.next(self._distil(fed.net, mean, x, teacher, batches, fed.validation))

    def _distil(
        self, net: Net, mean: Params, x: Tensor, teacher: Tensor, batches: Iterator[Tensor], validation: Data
    ) -> Params:
        """The model of the best validation accuracy, the mean being the first."""
        student = {name: value.detach().clone() for name, value in mean.items()}
        leaves = [student[name].requires_grad_() for name in net.trainable]
        optimizer = torch.optim.Adam(leaves, self.server_lr)
        best, best_at, kept = _accuracy(net, mean, validation), 0, mean
        for step in range(1, self.max_steps + 1):
            at = next(batches).to(x.device)
            optimizer.zero_grad()
            torch.autograd.backward(kl(teacher[at], net(student, x[at]).logits).mean())
            optimizer.step()
            if step % self.check_every and step < self.max_steps:
                continue
            accuracy = _accuracy(net, student, validation)
            if accuracy > best:
                best, best_at = accuracy, step
                kept = {name: value.detach().clone() for name, value in student.items()}
            if step - best_at >= self.patience:
                break
        return kept

    def _batches(self, generator: torch.Generator, count: int) -> Iterator[Tensor]:
        """Positions of each step's samples: a fresh order each epoch, its short last batch left out."""
        size = min(self.server_batch_size, count)
        while True:
            order = torch.randperm(count, generator=generator)
            yield from torch.split(order[: count - count % size], size)


def _accuracy(net: Net, params: Params, data: Data) -> float:
    return float((logits_of(net, params, data.x).argmax(1) == data.y).double().mean())

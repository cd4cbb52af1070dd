"""FedDF: Ensemble Distillation for Robust Model Fusion in Federated Learning.

Lin, Kong, Stich, Jaggi, NeurIPS 2020, Algorithm 1. https://arxiv.org/abs/2006.07242
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Any

import torch
from torch import Tensor

from algorithms.adam import adam_init, adam_step
from algorithms.base import Algorithm, Cohort, Data, Fed, Net, Params, Server, Upload, hyper
from algorithms.entry import About
from algorithms.forward import logits_of
from algorithms.losses import kl


@dataclass(frozen=True)
class FedDF(Algorithm):
    """The server distils the ensemble of the round's local models into their weighted mean.

    It minimises KL( softmax(mean_k z_k(x)) || softmax(z(x)) ) over its auxiliary samples, whose
    labels it does not use, with Adam, and keeps the model of the best validation accuracy.

    Args:
        server_lr: learning rate of the server's Adam.
        server_batch_size: samples of a server step; at most all auxiliary samples.
        max_steps: largest number of server steps in a round; 0 is FedAvg.
        check_every: server steps between validations.
        patience: steps without a better validation accuracy after which the distillation ends.

    Differences from the paper:
        1. The data that the server distils on are the auxiliary samples taken out of the training
           set.
        2. In the authors' code the server's learning rate falls by cosine annealing, by default and
           in every published command, and its gradient is clipped at norm 5. Here the rate is
           constant, and nothing is clipped.
        3. The student is in training mode without dropout, on samples that are not augmented. It is
           chosen on the validation samples that its validation accuracy is then of.
    """

    about = About(
        name="feddf",
        paper="Lin et al. 2020",
        equations="Algorithm 1",
        summary="the server distils the ensemble of local models on its own unlabelled samples",
    )
    needs = frozenset({"auxiliary", "validation"})

    server_lr: float = hyper(1e-3, 0, open_low=True)
    server_batch_size: int = hyper(128, 2, packable=False)
    max_steps: int = hyper(10_000, 0, packable=False)
    check_every: int = hyper(100, 1, packable=False)
    patience: int = hyper(1000, 1, packable=False)

    def server_step(self, fed: Fed, server: Server, uploads: Upload, cohort: Cohort) -> Server:
        """Return the mean, after the ensemble is distilled into it."""
        mean = cohort.mean(uploads["params"])
        if not self.max_steps:
            return server.next(mean)
        x = fed.auxiliary.x
        logits = []
        for k in range(len(cohort.ids)):
            local_model = {name: value[k] for name, value in uploads["params"].items()}
            logits.append(logits_of(fed.net, local_model, x))
        teacher = torch.stack(logits).mean(0)
        batches = self._batches(fed.stream("feddf", server.round), len(x))
        return server.next(self._distil(fed, mean, batches, {"x": x, "teacher": teacher}))

    def _distil(
        self, fed: Fed, mean: Params, batches: Iterator[Tensor], samples: dict[str, Tensor]
    ) -> Params:
        """Distil into the mean, and return the model with the best validation accuracy.

        The mean itself is one of the candidates.
        """
        state = {
            "params": mean,
            "adam": adam_init({name: mean[name] for name in fed.net.trainable}),
        }
        best = _accuracy(fed.net, mean, fed.validation)
        best_step = 0
        best_params = mean
        step = 0
        while step < self.max_steps and step - best_step < self.patience:
            count = min(self.check_every, self.max_steps - step)
            positions = torch.stack(list(islice(batches, count)))
            state = fed.repeat(self._student_step, state, positions, samples)
            step += len(positions)
            accuracy = _accuracy(fed.net, state["params"], fed.validation)
            if accuracy > best:
                best = accuracy
                best_step = step
                best_params = state["params"]
        return best_params

    def _student_step(
        self, net: Net, state: Any, positions: Tensor, samples: Any
    ) -> dict[str, Any]:
        """Take one Adam step of the student on the samples at `positions` (B,)."""
        leaves = {name: state["params"][name].detach().requires_grad_() for name in net.trainable}
        student = state["params"] | leaves
        loss = kl(
            samples["teacher"][positions], net(student, samples["x"][positions]).logits
        ).mean()
        grads = torch.autograd.grad(
            loss, list(leaves.values()), allow_unused=True, materialize_grads=True
        )
        params = {name: value.detach() for name, value in leaves.items()}
        params, adam = adam_step(
            params, dict(zip(leaves, grads, strict=True)), state["adam"], self.server_lr
        )
        return {"params": student | params, "adam": adam}

    def _batches(self, generator: torch.Generator, count: int) -> Iterator[Tensor]:
        """Yield the positions of each step's samples.

        The order is fresh each epoch, without its short last batch.
        """
        size = min(self.server_batch_size, count)
        while True:
            order = torch.randperm(count, generator=generator)
            yield from torch.split(order[: count - count % size], size)


def _accuracy(net: Net, params: Params, data: Data) -> float:
    return float((logits_of(net, params, data.x).argmax(1) == data.y).double().mean())

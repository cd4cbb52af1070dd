"""FedDF: Ensemble Distillation for Robust Model Fusion in Federated Learning.

Lin, Kong, Stich, Jaggi, NeurIPS 2020, Algorithm 1. https://arxiv.org/abs/2006.07242
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from typing import Any

import torch
from torch import Tensor

from algorithms.adam import adam_init, adam_step
from algorithms.base import (
    Algorithm,
    Cohort,
    Data,
    Fed,
    Message,
    Net,
    Outputs,
    Params,
    Server,
    Upload,
    hyper,
)
from algorithms.entry import About
from algorithms.forward import logits_of
from algorithms.losses import kl
from algorithms.students import endless_batches, student_gradient


@dataclass(frozen=True)
class FedDF(Algorithm):
    """The server distils the ensemble of the round's local models into their weighted mean.

    It minimises KL( softmax(mean_k z_k(x)) || softmax(z(x)) ) over the public samples with Adam,
    and keeps the model of the best validation accuracy. If clients have models of their own, there
    is a mean for each architecture, over its clients, and all participants are the ensemble that is
    distilled into it (section 4). A client receives its own architecture's model.

    Args:
        server_lr: learning rate of the server's Adam.
        server_batch_size: samples of a server step; at most all public samples.
        max_steps: largest number of server steps in a round; 0 is FedAvg.
        check_every: server steps between validations.
        patience: steps without a better validation accuracy after which the distillation ends.

    Differences from the paper:
        1. The data that the server distils on are the setting's public samples, by default
           auxiliary ones taken out of the training set.
        2. In the authors' code the server's learning rate falls by cosine annealing, by default and
           in every published command, and its gradient is clipped at norm 5. Here the rate is
           constant, and nothing is clipped.
        3. The student is in training mode without dropout, on samples that are not augmented. It is
           chosen on the validation samples that its validation accuracy is then of.
        4. An architecture of which no client takes part in a round keeps its model.
    """

    about = About(
        name="feddf",
        paper="Lin et al. 2020",
        equations="Algorithm 1",
        summary="the server distils the ensemble of local models on unlabelled samples",
    )
    needs = frozenset({"public", "validation"})
    unlike_models = True
    server_steps = "max_steps"
    by_model = ("params",)

    server_lr: float = hyper(1e-3, 0, open_low=True)
    server_batch_size: int = hyper(128, 2, packable=False)
    max_steps: int = hyper(10_000, 0, packable=False)
    check_every: int = hyper(100, 1, packable=False)
    patience: int = hyper(1000, 1, packable=False)

    def init_server(self, fed: Fed, params: Params) -> Server:
        """Keep w_0, of unlike models each one's."""
        if _have_one_model(fed):
            return Server(params)
        return Server({}, extra={"models": dict(fed.initial)})

    def broadcast(self, fed: Fed, server: Server) -> Message:
        """Send each client its architecture's model."""
        return {"params": _models(fed, server)}

    def server_step(self, fed: Fed, server: Server, uploads: Upload, cohort: Cohort) -> Server:
        """Return the mean of each architecture, after the ensemble is distilled into it."""
        groups = cohort.groups
        fused = {name: group.mean(uploads["params"][name]) for name, group in groups.items()}
        if self.max_steps:
            x = fed.public.x
            samples = {"x": x, "teacher": _ensemble(fed, uploads["params"], x)}
            for name, mean in fused.items():
                generator = fed.stream("feddf", server.round)
                batches = endless_batches(generator, len(x), self.server_batch_size)
                fused[name] = self._distil(fed, fed.nets[name], mean, batches, samples)
        if _have_one_model(fed):
            (params,) = fused.values()
            return server.next(params)
        return server.next({}, models=_models(fed, server) | fused)

    def _distil(
        self,
        fed: Fed,
        net: Net,
        mean: Params,
        batches: Iterator[Tensor],
        samples: dict[str, Tensor],
    ) -> Params:
        """Distil into the mean, and return the model with the best validation accuracy.

        The mean itself is one of the candidates.
        """
        state = {
            "params": mean,
            "adam": adam_init({name: mean[name] for name in net.trainable}),
        }
        best = _accuracy(net, mean, fed.validation)
        best_step = 0
        best_params = mean
        step = 0
        while step < self.max_steps and step - best_step < self.patience:
            count = min(self.check_every, self.max_steps - step)
            positions = torch.stack(list(islice(batches, count)))
            state = fed.repeat(self._student_step, state, positions, samples, net)
            step += len(positions)
            accuracy = _accuracy(net, state["params"], fed.validation)
            if accuracy > best:
                best = accuracy
                best_step = step
                best_params = state["params"]
        return best_params

    def _student_step(
        self, net: Net, state: Any, positions: Tensor, samples: Any
    ) -> dict[str, Any]:
        """Take one Adam step of the student on the samples at `positions` (B,)."""
        teacher = samples["teacher"][positions]

        def losses(outputs: Outputs) -> Tensor:
            return kl(teacher, outputs.logits)

        x = samples["x"][positions]
        student, trained, grads = student_gradient(net, state["params"], x, losses)
        params, adam = adam_step(trained, grads, state["adam"], self.server_lr)
        return {"params": student | params, "adam": adam}


def _have_one_model(fed: Fed) -> bool:
    """Return whether all clients and the server have one model."""
    return list(fed.nets.values()) == [fed.net]


def _models(fed: Fed, server: Server) -> dict[str, Params]:
    """Return the model of each architecture, by its name."""
    if _have_one_model(fed):
        return dict.fromkeys(fed.nets, server.params)
    return dict(server.extra["models"])


def _ensemble(fed: Fed, models: Mapping[str, Params], x: Tensor) -> Tensor:
    """Return the mean logits (N, C) of all participants; `models` are stacked by architecture."""
    logits = []
    for name, stacked in models.items():
        count = len(next(iter(stacked.values())))
        for k in range(count):
            params = {key: value[k] for key, value in stacked.items()}
            logits.append(logits_of(fed.nets[name], params, x))
    return torch.stack(logits).mean(0)


def _accuracy(net: Net, params: Params, data: Data) -> float:
    predicted = logits_of(net, params, data.x).argmax(1)
    return float((predicted == data.y).double().mean())

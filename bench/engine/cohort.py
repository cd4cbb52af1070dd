"""The clients of a round as the server sees them: means and gradients, each exchange counted."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from itertools import compress
from typing import Any

import torch
from torch import Tensor

from algorithms.base import Batch, Params
from bench.engine.client_round import Problem, masked_mean
from bench.engine.dropout import step_keys
from bench.engine.pytree import num_bytes, stack, tree_map
from bench.engine.rng import stream
from bench.engine.samples import draw_crops


@dataclass
class Traffic:
    """The exchanges of a run so far.

    Args:
        communications: exchanges with a cohort: one for local training, one for each server request
            beyond it.
        bytes_down: from the server, summed over clients.
        bytes_up: to the server, summed over clients.
        train_steps: optimiser steps and gradient requests of a client, averaged over each round's
            clients.
    """

    communications: int = 0
    bytes_down: int = 0
    bytes_up: int = 0
    train_steps: float = 0.0


@dataclass
class ClientCohort:
    """Implementation of `algorithms.base.Cohort` for m clients.

    Args:
        problem: of the run.
        round: its number, from 1.
        ids: (m,) clients, in the order of the uploads' leading axis.
        num_examples: (m,) n_k.
        lr: local learning rate of the round.
        params: final local models, by client.
        traffic: counters to which exchanges are added.
    """

    problem: Problem
    round: int
    ids: Tensor
    num_examples: Tensor
    lr: float
    params: dict[int, Params]
    traffic: Traffic
    _calls: int = field(default=0)

    def mean(self, tree: Any, among: Tensor | None = None) -> Any:
        """Average over the leading client axis, weighted by examples; `among` (m,) of 0 and 1 leaves clients out.

        Raises:
            ValueError: `among` leaves all clients out.
        """
        weights = (
            self.num_examples if among is None else self.num_examples * among.to(self.num_examples)
        )
        if among is not None and not bool(weights.any()):
            raise ValueError("the mean is over no client: `among` is 0 for all of them")
        shares = weights / weights.sum()

        def mean(tensor: Tensor) -> Tensor:
            values = tensor if tensor.is_floating_point() else tensor.to(shares)
            return (values * shares.to(values).view(-1, *[1] * (values.dim() - 1))).sum(0)

        return tree_map(mean, tree)

    def everyone(self) -> ClientCohort:
        """Return the cohort of all K clients, for means over values that the server caches."""
        federation = self.problem.federation
        sizes = torch.tensor(federation.sizes, device=federation.device, dtype=federation.dtype)
        ids = torch.arange(len(sizes), device=federation.device)
        return replace(self, ids=ids, num_examples=sizes, _calls=0)

    def gradients(
        self,
        loss: Any,
        params: Params,
        batch_size: int,
        *,
        augmented: bool = False,
        among: Tensor | None = None,
    ) -> Params:
        """Return each client's gradient (m, ...) of `loss` at `params` on one fresh mini-batch: one communication."""
        self._calls += 1
        clients: list[int] = self.ids.tolist()
        answering = [True] * len(clients) if among is None else among.bool().tolist()
        grads = [
            self._gradient(client, loss, params, batch_size, augmented)
            for client in compress(clients, answering)
        ]
        self.traffic.communications += 1
        self.traffic.bytes_down += len(clients) * num_bytes(params)
        self.traffic.bytes_up += sum(num_bytes(grad) for grad in grads)
        self.traffic.train_steps += len(grads) / len(clients)
        zeros = {
            name: torch.zeros_like(params[name])
            for name in self.problem.net.trainable
            if name in params
        }
        answers = iter(grads)
        stacked: Params = stack(
            [next(answers) if is_answering else zeros for is_answering in answering]
        )
        return stacked

    def _gradient(
        self, client: int, loss: Any, params: Params, batch_size: int, augmented: bool
    ) -> Params:
        """Return a client's gradient on a fresh mini-batch, or on all its samples if fewer; zero for unused tensors."""
        net, federation = self.problem.net, self.problem.federation

        def generator(*purpose: str) -> torch.Generator:
            return stream(self.problem.seed, *purpose, self.round, self._calls, client)

        client_index = federation.clients[client]
        order = torch.randperm(len(client_index), generator=generator("gradient"))
        index = client_index[order[:batch_size].to(federation.device)]
        data, draws, key = federation.data(index), None, None
        augmentation = self.problem.setting.augmentation
        if augmented and augmentation != "none":
            drawn = draw_crops(generator("augment", "gradient"), 1, len(index), augmentation)
            draws = drawn[0].to(federation.device)
        x = federation.train.batch(index, draws) if augmented else data.x
        if net.has_dropout:
            key = step_keys(generator("dropout", "gradient"), 1)[0].to(federation.device)
        # Copied, because a model in training mode writes its running statistics into its
        # parameters.
        copies = {name: value.detach().clone() for name, value in params.items()}
        leaves = {name: copies[name].requires_grad_() for name in net.trainable if name in copies}
        with net.dropout(key):
            losses = loss(net, copies, self.params[client], Batch(x, data.y, data.weight))
        value = masked_mean(losses, data.weight)
        grads = torch.autograd.grad(
            value, list(leaves.values()), allow_unused=True, materialize_grads=True
        )
        return dict(zip(leaves, grads, strict=True))

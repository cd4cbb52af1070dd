"""The clients of a round as the server sees them: means and gradients, each exchange counted."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from algorithms.base import Batch, Params
from bench.engine.dropout import step_keys
from bench.engine.loop import masked_mean
from bench.engine.streams import stream
from bench.engine.tasks import Problem
from bench.engine.trees import num_bytes, stack, tree_map


@dataclass
class Traffic:
    """What a run has exchanged so far.

    Args:
        communications: exchanges with a cohort: one for local training, one for each server request beyond it.
        bytes_down: from the server, summed over clients.
        bytes_up: to the server, likewise.
        train_steps: optimiser steps and gradient requests of a client, averaged over each round's clients.
    """

    communications: int = 0
    bytes_down: int = 0
    bytes_up: int = 0
    train_steps: float = 0.0


@dataclass
class ClientCohort:
    """Implements `algorithms.base.Cohort`. m is the number of clients.

    Args:
        problem: the run's.
        round: from 1.
        ids: (m,) clients, in the order of the uploads' leading axis.
        num_examples: (m,) n_k.
        lr: local learning rate of the round.
        params: each client's final local model, by client.
        traffic: counted into.
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
        """The mean over the leading client axis, weighted by examples; `among` (m,) of 0 and 1 leaves clients out.

        Raises:
            ValueError: `among` leaves nobody.
        """
        weights = self.num_examples if among is None else self.num_examples * among.to(self.num_examples)
        if among is not None and not bool(weights.any()):
            raise ValueError("the mean is over no client: `among` is 0 for all of them")
        shares = weights / weights.sum()
        return tree_map(lambda tensor: (tensor * shares.to(tensor).view(-1, *[1] * (tensor.dim() - 1))).sum(0), tree)

    def everyone(self) -> ClientCohort:
        """All K clients, for means over what the server caches."""
        federation = self.problem.federation
        sizes = [float(len(index)) for index in federation.clients]
        return ClientCohort(
            problem=self.problem,
            round=self.round,
            ids=torch.arange(len(sizes), device=federation.device),
            num_examples=torch.tensor(sizes, device=federation.device, dtype=federation.dtype),
            lr=self.lr,
            params=self.params,
            traffic=self.traffic,
        )

    def gradients(self, loss: Any, params: Params, batch_size: int) -> Params:
        """Each client's gradient (m, ...) of `loss` at `params` on one fresh mini-batch: one communication."""
        self._calls += 1
        slopes = [self._gradient(int(client), loss, params, batch_size) for client in self.ids]
        self.traffic.communications += 1
        self.traffic.bytes_down += len(slopes) * num_bytes(params)
        self.traffic.bytes_up += sum(num_bytes(slope) for slope in slopes)
        self.traffic.train_steps += 1
        stacked: Params = stack(slopes)
        return stacked

    def _dropout_key(self, client: int) -> Tensor | None:
        if not self.problem.net.has_dropout:
            return None
        generator = stream(self.problem.seed, "dropout", "gradient", self.round, self._calls, client)
        return step_keys(generator, 1)[0].to(self.problem.federation.device)

    def _gradient(self, client: int, loss: Any, params: Params, batch_size: int) -> Params:
        problem, federation = self.problem, self.problem.federation
        index = federation.clients[client]
        generator = stream(problem.seed, "gradient", self.round, self._calls, client)
        chosen = torch.randperm(len(index), generator=generator)[:batch_size].to(federation.device)
        data = federation.data(index[chosen])
        # Copies: a model in training mode writes its running statistics into what it is given.
        given = {name: value.detach().clone() for name, value in params.items()}
        leaves = {name: given[name].requires_grad_() for name in problem.net.trainable if name in given}
        with problem.net.dropout(self._dropout_key(client)):
            value = masked_mean(
                loss(problem.net, given, self.params[client], Batch(data.x, data.y, data.weight)), data.weight
            )
        slopes = torch.autograd.grad(value, list(leaves.values()), allow_unused=True, materialize_grads=True)
        return dict(zip(leaves, slopes, strict=True))

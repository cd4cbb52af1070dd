"""The clients of a round as the server sees them: means and gradients, each exchange counted."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import partial
from itertools import compress
from typing import Any, NamedTuple

import torch
from torch import Tensor

from algorithms.base import Batch, Params
from bench.engine.client_round import Problem
from bench.engine.crops import draw_crops
from bench.engine.dropout import step_keys
from bench.engine.loop import masked_mean
from bench.engine.pytree import each, num_bytes, stack, tree_map
from bench.engine.rng import stream


@dataclass
class Traffic:
    """The exchanges of a run so far.

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


class _Request(NamedTuple):
    """A client's gradient request: x, y and weight of a mini-batch, its local model, its key for dropout."""

    batch: tuple[Tensor, Tensor, Tensor]
    local: Params
    key: Tensor | None


@dataclass
class ClientCohort:
    """Implements `algorithms.base.Cohort` for m clients.

    Args:
        problem: of the run.
        round: from 1.
        ids: (m,) clients, in the order of the uploads' leading axis.
        num_examples: (m,) n_k.
        lr: local learning rate of the round.
        params: final local models, by client.
        traffic: where exchanges are counted.
        stacked: whether clients' gradients are one program.
    """

    problem: Problem
    round: int
    ids: Tensor
    num_examples: Tensor
    lr: float
    params: dict[int, Params]
    traffic: Traffic
    stacked: bool = False
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
        sizes = torch.tensor(federation.sizes, device=federation.device, dtype=federation.dtype)
        ids = torch.arange(len(sizes), device=federation.device)
        return replace(self, ids=ids, num_examples=sizes, _calls=0)

    def gradients(
        self, loss: Any, params: Params, batch_size: int, *, augmented: bool = False, among: Tensor | None = None
    ) -> Params:
        """Each client's gradient (m, ...) of `loss` at `params` on one fresh mini-batch: one communication."""
        self._calls += 1
        clients: list[int] = self.ids.tolist()
        answering = [True] * len(clients) if among is None else among.bool().tolist()
        requests = [self._request(client, batch_size, augmented) for client in compress(clients, answering)]
        if self.stacked:
            grads = self._together(requests, loss, params)
        else:
            grads = [self._alone(request, loss, params) for request in requests]
        self.traffic.communications += 1
        self.traffic.bytes_down += len(clients) * num_bytes(params)
        self.traffic.bytes_up += sum(num_bytes(grad) for grad in grads)
        self.traffic.train_steps += len(grads) / len(clients)
        silent = {name: torch.zeros_like(params[name]) for name in self._trainable(params)}
        answers = iter(grads)
        stacked: Params = stack([next(answers) if answers_now else silent for answers_now in answering])
        return stacked

    def _request(self, client: int, batch_size: int, augmented: bool) -> _Request:
        """A client's fresh mini-batch, or all of its samples if they are fewer; augmented as in local training."""
        problem, federation = self.problem, self.problem.federation

        def generator(*purpose: str) -> torch.Generator:
            return stream(problem.seed, *purpose, self.round, self._calls, client)

        held = federation.clients[client]
        order = torch.randperm(len(held), generator=generator("gradient"))
        index = held[order[:batch_size].to(federation.device)]
        data, draws = federation.data(index), None
        if augmented and problem.setting.augmentation != "none":
            draws = draw_crops(generator("augment", "gradient"), 1, len(index))[0].to(federation.device)
        x = federation.train.batch(index, draws) if augmented else data.x
        key = None
        if problem.net.has_dropout:
            key = step_keys(generator("dropout", "gradient"), 1)[0].to(federation.device)
        return _Request((x, data.y, data.weight), self.params[client], key)

    def _together(self, requests: list[_Request], loss: Any, params: Params) -> list[Params]:
        """All clients' gradients as few programs: one for each size of batch, because padding would move BatchNorm."""
        from bench.engine.stacked.batched_layers import BatchedLayers

        grads: dict[int, Params] = {}
        sizes = [tuple(request.batch[0].shape) for request in requests]
        for size in dict.fromkeys(sizes):
            at = [position for position, other in enumerate(sizes) if other == size]
            batch, local, key = stack([tuple(requests[position]) for position in at])
            given = {name: value.detach().expand(len(at), *value.shape).clone() for name, value in params.items()}
            leaves = {name: given[name].requires_grad_() for name in self._trainable(given)}
            parts = {"given": given, "batch": batch, "local": local, "key": key}
            with BatchedLayers():
                values = each(partial(self._value, loss), parts)
            of_all = _grads(values.sum(), leaves)
            for row, position in enumerate(at):
                grads[position] = {name: grad[row] for name, grad in of_all.items()}
        return [grads[position] for position in range(len(requests))]

    def _alone(self, request: _Request, loss: Any, params: Params) -> Params:
        # Copies: a model in training mode writes its running statistics into what it is given.
        given = {name: value.detach().clone() for name, value in params.items()}
        leaves = {name: given[name].requires_grad_() for name in self._trainable(given)}
        return _grads(self._value(loss, given, *request), leaves)

    def _trainable(self, given: Params) -> list[str]:
        return [name for name in self.problem.net.trainable if name in given]

    def _value(self, loss: Any, given: Params, batch: Any, local: Params, key: Tensor | None) -> Tensor:
        """One client's objective, a scalar."""
        with self.problem.net.dropout(key):
            return masked_mean(loss(self.problem.net, given, local, Batch(*batch)), batch[2])


def _grads(value: Tensor, leaves: Params) -> Params:
    """The gradient by name; zero if `value` does not depend on it."""
    grads = torch.autograd.grad(value, list(leaves.values()), allow_unused=True, materialize_grads=True)
    return dict(zip(leaves, grads, strict=True))

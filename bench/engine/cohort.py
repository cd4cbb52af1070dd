"""The clients of a round as the server sees them: means and gradients, each exchange counted."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from itertools import compress
from typing import Any, NamedTuple

import torch
from torch import Tensor

from algorithms.base import Batch, Params
from bench.engine.crops import draw_crops
from bench.engine.dropout import step_keys
from bench.engine.loop import masked_mean
from bench.engine.stacked.batched_layers import BatchedLayers
from bench.engine.streams import stream
from bench.engine.tasks import Problem
from bench.engine.trees import each, num_bytes, stack, tree_map


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


class _Asked(NamedTuple):
    """What one client's gradient is of: x, y and weight of its mini-batch, its local model, its key for dropout."""

    batch: tuple[Tensor, Tensor, Tensor]
    local: Params
    key: Tensor | None


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
        stacked: whether clients' gradients are one program.
        seen: called with each model that gradients are asked of.
    """

    problem: Problem
    round: int
    ids: Tensor
    num_examples: Tensor
    lr: float
    params: dict[int, Params]
    traffic: Traffic
    stacked: bool = False
    seen: Callable[[Params], None] = lambda params: None
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
            stacked=self.stacked,
        )

    def gradients(
        self, loss: Any, params: Params, batch_size: int, *, augmented: bool = False, among: Tensor | None = None
    ) -> Params:
        """Each client's gradient (m, ...) of `loss` at `params` on one fresh mini-batch: one communication."""
        self.seen(params)
        self._calls += 1
        clients: list[int] = self.ids.tolist()
        answering = [True] * len(clients) if among is None else among.bool().tolist()
        asked = [self._batch(client, batch_size, augmented) for client in compress(clients, answering)]
        slopes = self._together(asked, loss, params) if self.stacked else [self._alone(a, loss, params) for a in asked]
        self.traffic.communications += 1
        self.traffic.bytes_down += len(clients) * num_bytes(params)
        self.traffic.bytes_up += sum(num_bytes(slope) for slope in slopes)
        self.traffic.train_steps += len(slopes) / len(clients)
        silent = {name: torch.zeros_like(params[name]) for name in self._differentiated(params)}
        found = iter(slopes)
        made: Params = stack([next(found) if answers else silent for answers in answering])
        return made

    def _batch(self, client: int, batch_size: int, augmented: bool) -> _Asked:
        """A client's fresh mini-batch; what it has, where that is less."""
        federation, seed = self.problem.federation, self.problem.seed
        held = federation.clients[client]
        generator = stream(seed, "gradient", self.round, self._calls, client)
        index = held[torch.randperm(len(held), generator=generator)[:batch_size].to(federation.device)]
        data = federation.data(index)
        x = self._augmented(client, index) if augmented else data.x
        return _Asked((x, data.y, data.weight), self.params[client], self._dropout_key(client))

    def _augmented(self, client: int, index: Tensor) -> Tensor:
        """Inputs of a request as local training would see them; as they are where the setting augments nothing."""
        federation, draws = self.problem.federation, None
        if self.problem.setting.augmentation != "none":
            generator = stream(self.problem.seed, "augment", "gradient", self.round, self._calls, client)
            draws = draw_crops(generator, 1, len(index))[0].to(federation.device)
        return federation.train.batch(index, draws)

    def _dropout_key(self, client: int) -> Tensor | None:
        if not self.problem.net.has_dropout:
            return None
        generator = stream(self.problem.seed, "dropout", "gradient", self.round, self._calls, client)
        return step_keys(generator, 1)[0].to(self.problem.federation.device)

    def _together(self, asked: list[_Asked], loss: Any, params: Params) -> list[Params]:
        """All clients' gradients as few programs: one for each size of batch, for padding would move BatchNorm."""
        found: dict[int, Params] = {}
        sizes = [tuple(one.batch[0].shape) for one in asked]
        for size in dict.fromkeys(sizes):
            at = [position for position, own in enumerate(sizes) if own == size]
            batch, local, key = stack([tuple(asked[position]) for position in at])
            given = {name: value.detach().expand(len(at), *value.shape).clone() for name, value in params.items()}
            leaves = self._leaves(given)
            parts = {"given": given, "batch": batch, "local": local, "key": key}
            with BatchedLayers():
                values = each(partial(self._value, loss), parts)
            slopes = _slopes(values.sum(), leaves)
            for row, position in enumerate(at):
                found[position] = {name: slope[row] for name, slope in slopes.items()}
        return [found[position] for position in range(len(asked))]

    def _alone(self, asked: _Asked, loss: Any, params: Params) -> Params:
        # Copies: a model in training mode writes its running statistics into what it is given.
        given = {name: value.detach().clone() for name, value in params.items()}
        leaves = self._leaves(given)
        value = self._value(loss, given, asked.batch, asked.local, asked.key)
        return _slopes(value, leaves)

    def _leaves(self, given: Params) -> Params:
        return {name: given[name].requires_grad_() for name in self._differentiated(given)}

    def _differentiated(self, given: Params) -> list[str]:
        return [name for name in self.problem.net.trainable if name in given]

    def _value(self, loss: Any, given: Params, batch: Any, local: Params, key: Tensor | None) -> Tensor:
        """One client's objective, a scalar."""
        with self.problem.net.dropout(key):
            return masked_mean(loss(self.problem.net, given, local, Batch(*batch)), batch[2])


def _slopes(value: Tensor, leaves: Params) -> Params:
    """The gradient by name; zero where `value` does not depend on it."""
    slopes = torch.autograd.grad(value, list(leaves.values()), allow_unused=True, materialize_grads=True)
    return dict(zip(leaves, slopes, strict=True))

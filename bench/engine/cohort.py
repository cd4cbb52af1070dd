"""The clients of a round as the server sees them: means and gradients, each exchange counted."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import compress, count
from typing import Any

import torch
from torch import Tensor

from algorithms.base import Batch, Params, Upload
from bench.engine.client_round import ClientResult, RunContext, masked_mean
from bench.engine.dropout import step_keys
from bench.engine.pytree import (
    along_first_axis,
    gradients_of,
    num_bytes,
    shapes,
    stack,
    tree_map,
    without,
)
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
        context: of the run.
        round: its number, from 1.
        ids: (m,) clients, in the order of the uploads' leading axis.
        num_examples: (m,) n_k.
        lr: local learning rate of the round.
        params: final local models, by client.
        traffic: counters to which exchanges are added.
    """

    context: RunContext
    round: int
    ids: Tensor
    num_examples: Tensor
    lr: float
    params: dict[int, Params]
    traffic: Traffic
    # Numbers of the requests of gradients, one sequence for the cohort and its parts.
    _numbers: Iterator[int] = field(default_factory=partial(count, 1))

    def mean(self, tree: Any, among: Tensor | None = None) -> Any:
        """Average over the leading client axis, weighted by examples.

        `among` (m,) of 0 and 1 leaves clients out.

        Raises:
            ValueError: `among` leaves all clients out, or a tensor's first axis is not theirs.
        """
        weights = self.num_examples
        if among is not None:
            weights = weights * among.to(weights)
            if not bool(weights.any()):
                raise ValueError("the mean is over no client: `among` is 0 for all of them")
        shares = weights / weights.sum()

        def mean(tensor: Tensor) -> Tensor:
            if tensor.dim() and len(tensor) != len(shares):
                raise ValueError(
                    f"the mean is over {len(shares)} clients, got a tensor of shape "
                    f"{tuple(tensor.shape)}: its first axis must be theirs; an entry of `by_model` "
                    "has the clients of cohort.groups[name of the model]"
                )
            is_whole = not (tensor.is_floating_point() or tensor.is_complex())
            values = tensor.to(shares) if is_whole else tensor
            weighted = values * along_first_axis(shares.to(values), values)
            return weighted.sum(0)

        return tree_map(mean, tree)

    @property
    def groups(self) -> dict[str, ClientCohort]:
        """The clients that have one model, by its name."""
        groups = {}
        for model, places in self.context.places_by_model(self.ids.tolist()).items():
            index = torch.tensor(places, device=self.ids.device)
            groups[model] = replace(
                self, ids=self.ids[index], num_examples=self.num_examples[index]
            )
        return groups

    def everyone(self) -> ClientCohort:
        """Return the cohort of all K clients, for means over values that the server caches."""
        federation = self.context.federation
        sizes = torch.tensor(federation.sizes, device=federation.device, dtype=federation.dtype)
        ids = torch.arange(len(sizes), device=federation.device)
        return replace(self, ids=ids, num_examples=sizes)

    def gradients(
        self,
        loss: Any,
        params: Params,
        batch_size: int,
        *,
        augmented: bool = False,
        among: Tensor | None = None,
    ) -> Params:
        """Return each client's gradient (m, ...) of `loss` at `params` on one fresh mini-batch.

        It is one communication.

        Raises:
            ValueError: the clients have unlike models.
        """
        request = next(self._numbers)
        clients: list[int] = self.ids.tolist()
        models = self.context.places_by_model(clients)
        if len(models) > 1:
            raise ValueError(
                "gradients are those of one model, and the clients have unlike ones "
                f"({', '.join(models)}): ask the clients of cohort.groups[name of the model]"
            )
        net = self.context.of(clients[0]).net
        answering = clients if among is None else [*compress(clients, among.bool().tolist())]
        grads = {}
        for client in answering:
            grads[client] = self._gradient(client, request, loss, params, batch_size, augmented)
        self.traffic.communications += 1
        self.traffic.bytes_down += len(clients) * num_bytes(params)
        self.traffic.bytes_up += sum(map(num_bytes, grads.values()))
        self.traffic.train_steps += len(grads) / len(clients)
        zeros = {name: torch.zeros_like(params[name]) for name in net.trainable if name in params}
        stacked: Params = stack([grads.get(client, zeros) for client in clients])
        return stacked

    def _gradient(
        self,
        client: int,
        request: int,
        loss: Any,
        params: Params,
        batch_size: int,
        augmented: bool,
    ) -> Params:
        """Return a client's gradient on a fresh mini-batch, or on all its samples if fewer.

        It is zero for unused tensors.
        """
        net = self.context.of(client).net
        federation = self.context.federation

        def generator(*purpose: str) -> torch.Generator:
            return stream(self.context.seed, *purpose, self.round, request, client)

        client_index = federation.clients[client]
        order = torch.randperm(len(client_index), generator=generator("gradient"))
        index = client_index[order[:batch_size].to(federation.device)]
        data = federation.data(index)
        weight = torch.ones(len(index), device=federation.device, dtype=federation.dtype)
        draws = None
        key = None
        augmentation = self.context.setting.augmentation
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
            losses = loss(net, copies, self.params[client], Batch(x, data.y, weight))
        return gradients_of(masked_mean(losses, weight), leaves)


def gathered(context: RunContext, trained: Sequence[ClientResult]) -> Upload:
    """Stack the uploads of a round's clients.

    Entries of `by_model` are stacked by name of the model, all others over all clients.

    Raises:
        ValueError: uploads have unlike names or shapes.
    """
    by_model = context.algorithm.by_model
    _check_alike(context, trained)
    if not by_model:
        whole: Upload = stack([result.upload for result in trained])
        return whole
    groups = context.places_by_model(result.client for result in trained)
    names = trained[0].upload.keys()
    uploads: Upload = stack([without(result.upload, *by_model) for result in trained])
    for name in [name for name in by_model if name in names]:
        uploads[name] = {}
        for model, places in groups.items():
            uploads[name][model] = stack([trained[place].upload[name] for place in places])
    return uploads


def _check_alike(context: RunContext, trained: Sequence[ClientResult]) -> None:
    """Raise ValueError if an entry outside `by_model` has unlike shapes."""
    by_model = context.algorithm.by_model
    first = trained[0]
    expected = shapes(without(first.upload, *by_model))
    model = context.of(first.client).model
    for result in trained:
        other = context.of(result.client).model
        got = shapes(without(result.upload, *by_model))
        differing = [name for name in {**expected, **got} if expected.get(name) != got.get(name)]
        if not differing:
            continue
        name = differing[0]
        if other == model:
            raise ValueError(
                f"upload: {name!r} of client {result.client} is {got.get(name)}, of client "
                f"{first.client} it is {expected.get(name)}: the server gets uploads stacked, so "
                "each must have the same names, shapes and types"
            )
        raise ValueError(
            f"the upload {name!r} of clients with model {model} has another shape than "
            f"that of clients with {other}: give the models one number of features (+fd64), or "
            f"list {name!r} in the algorithm's `by_model`"
        )

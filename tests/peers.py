"""The same federated work by other libraries: fluke's clients and servers, Flower's strategy.

`make peers` has both.

Every function starts from a simulation that has not begun: from its weights, its clients' samples
and its setting.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
import torch.nn.functional as F
from fluke import DDict, FlukeENV
from fluke.algorithms import CentralizedFL
from fluke.algorithms.feddyn import FedDyn, FedDynClient, get_all_params_of
from fluke.algorithms.fednova import FedNova, FedNovaServer
from fluke.data import FastDataLoader
from fluke.evaluation import ClassificationEval
from fluke.nets import EncoderHeadNet
from flwr.common import Code, FitRes, Status, ndarrays_to_parameters, parameters_to_ndarrays
from flwr.server.strategy import FedAvgM
from torch import Tensor, nn

from algorithms.base import Params
from bench import models
from bench.engine.simulation import Simulation
from bench.selftest.toy import INFO


class Model(nn.Module):
    """A simulation's network with its first weights, in the form that fluke asks for (MOON: `encoder` and `head`)."""

    def __init__(self, simulation: Simulation) -> None:
        super().__init__()
        self.ours = models.make(
            simulation.setting.model, INFO.input_shape, INFO.num_classes
        ).double()
        self.ours.load_state_dict(simulation.fed.initial[simulation.setting.model])

    def forward(self, x: Tensor) -> Tensor:
        """Return logits (B, C)."""
        return self.ours(x).logits

    def encoder(self, x: Tensor) -> Tensor:
        """Return features (B, D)."""
        return self.ours(x).features

    def head(self, features: Tensor) -> Tensor:
        """Return logits (B, C) of features (B, D)."""
        return self.ours.head(features)


class BodyAndHead(EncoderHeadNet):
    """A simulation's network with its first weights, in fluke's form for methods that split it."""

    def __init__(self, simulation: Simulation) -> None:
        ours = Model(simulation).ours
        super().__init__(ours.body, ours.head)


def split_params_of(model: EncoderHeadNet) -> Params:
    """Return the parameters of body and head by the names that the engine has for them."""
    body = {f"body.{name}": value for name, value in model.encoder.named_parameters()}
    head = {f"head.{name}": value for name, value in model.head.named_parameters()}
    return {name: value.detach() for name, value in (body | head).items()}


def params_of(model: Model) -> Params:
    """Return the parameters by the names that the engine has for them."""
    return {name: value.detach() for name, value in model.ours.named_parameters()}


def client_samples(simulation: Simulation) -> list[tuple[Tensor, Tensor]]:
    """Return each client's inputs and labels, as the engine's own steps see them."""
    return [
        (data.x, data.y) for data in map(simulation.federation.data, simulation.federation.clients)
    ]


class FixedSplit:
    """A stand-in for fluke's `DataSplitter`, which would draw the clients' samples itself."""

    def __init__(self, clients: list[tuple[Tensor, Tensor]]) -> None:
        self._clients = clients

    def assign(self, n_clients: int, batch_size: int) -> Any:
        """Return the clients' training sets, no test sets of theirs, and none of the server's."""
        options = {
            "num_labels": INFO.num_classes,
            "batch_size": batch_size,
            "skip_singleton": False,
        }
        return (
            [FastDataLoader(x, y, **options) for x, y in self._clients],
            [None] * n_clients,
        ), None


def fluke_algorithm(
    kind: type[CentralizedFL],
    simulation: Simulation,
    client: Mapping[str, float],
    server: Mapping[str, object],
    model: nn.Module | None = None,
    clients_model: nn.Module | None = None,
) -> CentralizedFL:
    """Make an algorithm of fluke, before its first round.

    Args:
        kind: fluke's class.
        simulation: what to start from.
        client: hyper-parameters of the clients beside those of local SGD, or in their place.
        server: hyper-parameters of the server, which weights clients by examples unless told
            otherwise.
        model: of the server; None for the simulation's.
        clients_model: of which each client gets a copy, where fluke's method asks for it.
    """
    setting = simulation.setting
    FlukeENV().set_evaluator(
        ClassificationEval(eval_every=setting.rounds + 1, n_classes=INFO.num_classes)
    )
    FlukeENV().set_eval_cfg(server=False, locals=False, pre_fit=False, post_fit=False)
    own = {
        "batch_size": setting.batch_size,
        "local_epochs": setting.local_epochs,
        "loss": "CrossEntropyLoss",
        "optimizer": DDict(name="SGD", lr=setting.lr),
        "scheduler": DDict(name="StepLR", gamma=1, step_size=1),
        "clipping": 0,
    }
    clients = DDict(**{**own, **client})
    if clients_model is not None:
        clients.update(model=clients_model)
    options = DDict(
        client=clients,
        server=DDict(**{"weighted": True, **server}),
        model=Model(simulation) if model is None else model,
    )
    return kind(len(simulation.federation.clients), FixedSplit(client_samples(simulation)), options)


def flower_fedavgm(simulation: Simulation, server_lr: float, server_momentum: float) -> Params:
    """Return the model after all rounds under Flower's FedAvgM; the clients run `torch.optim.SGD` on full batches."""
    model = Model(simulation)
    names = list(params_of(model))
    sent = _packed(params_of(model))
    strategy = FedAvgM(
        initial_parameters=sent, server_learning_rate=server_lr, server_momentum=server_momentum
    )
    for number in range(1, simulation.setting.rounds + 1):
        results = []
        for x, y in client_samples(simulation):
            model.ours.load_state_dict(_unpacked(names, sent))
            _local_sgd(model, x, y, simulation)
            results.append(
                (None, FitRes(Status(Code.OK, ""), _packed(params_of(model)), len(y), {}))
            )
        sent, _ = strategy.aggregate_fit(number, results, [])
    return _unpacked(names, sent)


def _packed(params: Params) -> Any:
    return ndarrays_to_parameters([value.numpy() for value in params.values()])


def _unpacked(names: list[str], packed: Any) -> Params:
    return dict(zip(names, map(torch.from_numpy, parameters_to_ndarrays(packed)), strict=True))


def _local_sgd(model: Model, x: Tensor, y: Tensor, simulation: Simulation) -> None:
    sgd = torch.optim.SGD(model.parameters(), simulation.setting.lr)
    for _ in range(simulation.setting.local_epochs):
        sgd.zero_grad()
        F.cross_entropy(model(x), y).backward()
        sgd.step()


class MendedNovaServer(FedNovaServer):
    """The server of fluke's FedNova with the term (1 - sum_k v_k) w_t that fluke 0.8.1 leaves out."""

    @torch.no_grad()
    def aggregate(self, eligible: Any, client_models: Any) -> None:
        """Add the term to what fluke makes."""
        old = [value.clone() for value in self.model.parameters()]
        super().aggregate(eligible, client_models)
        shares = list(
            zip(self._get_client_weights(eligible), (client.a for client in eligible), strict=True)
        )
        total = sum(p * a for p, a in shares) * sum(p / a for p, a in shares)
        for value, before in zip(self.model.parameters(), old, strict=True):
            value += (1 - total) * before


class MendedNova(FedNova):
    """FedNova with that server."""

    def get_server_class(self) -> type[FedNovaServer]:
        """Return the mended server."""
        return MendedNovaServer


class MendedDynClient(FedDynClient):
    """The client of fluke's FedDyn with its state moved by w_k - w_t; fluke 0.8.1 moves it by alpha (w_t - w_k)."""

    def fit(self, override_local_epochs: int = 0) -> float:
        """Train as fluke does, then put the state right."""
        before, received = self.prev_grads.clone(), get_all_params_of(self.model)
        loss = super().fit(override_local_epochs)
        self.prev_grads = before + get_all_params_of(self.model) - received
        return loss


class MendedDyn(FedDyn):
    """FedDyn with those clients."""

    def get_client_class(self) -> type[FedDynClient]:
        """Return the mended client."""
        return MendedDynClient

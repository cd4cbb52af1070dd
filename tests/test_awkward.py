"""Shapes of algorithm that strain the contract, each as small as it can be: both backends agree, and runs resume.

They are no implementations of their papers; each keeps the trait that makes its paper awkward.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from conftest import INFO, TINY, identical, largest_gap, simulate, toy_dataset, toy_split

from algorithms.base import Algorithm, Plugin, Server
from algorithms.losses import cross_entropy, kl
from bench.engine.simulation import Simulation
from bench.engine.state import StateFolder
from bench.engine.trees import num_bytes


def normal(net: Any) -> list[str]:
    return [name for name in net.names if name not in net.batchnorm]


@dataclass(frozen=True)
class OwnNorms(Algorithm):
    """FedBN: the server's model lacks names; clients keep theirs, and evaluation is client by client."""

    def init_server(self, fed, params):
        return Server({n: params[n] for n in normal(fed.net)})

    def init_client(self, fed, params):
        return {n: params[n] for n in fed.net.batchnorm}

    def start(self, fed, message, memory, generator):
        return {"params": {**message["params"], **memory}}

    def upload(self, net, local, data, message, memory, plan):
        w = local["params"]
        return {"params": {n: w[n] for n in normal(net)}}, {n: w[n] for n in net.batchnorm}


@dataclass(frozen=True)
class Distil(Plugin):
    """FedDKD: the server asks the cohort for gradients, the clients' own models being the teachers."""

    steps: int = 2

    def loss(self, net, params, local_params, batch):
        teacher = net.eval(local_params, batch.x).logits.detach()
        return kl(teacher, net.eval(local_params | params, batch.x).logits)

    def server_step(self, fed, server, uploads, cohort):
        server = self.base.server_step(fed, server, uploads, cohort)
        for _ in range(self.steps):
            slopes = cohort.gradients(self.loss, server.params, 4)
            moved = {n: w - 0.1 * slopes[n].mean(0) if n in slopes else w for n, w in server.params.items()}
            server = replace(server, params=moved)
        return server


@dataclass(frozen=True)
class Overall(Plugin):
    """T1: the server caches every client's latest model and evaluates their mean beside the base's."""

    rows = ("", "_t1")

    def init_server(self, fed, params):
        server = self.base.init_server(fed, params)
        slots = {n: w.expand(fed.num_clients, *w.shape).clone() for n, w in server.params.items()}
        filled = torch.zeros(fed.num_clients)
        return replace(server, extra={**server.extra, "slots": slots, "filled": filled, "overall": server.params})

    def server_step(self, fed, server, uploads, cohort):
        slots = {n: s.index_copy(0, cohort.ids, uploads["params"][n]) for n, s in server.extra["slots"].items()}
        filled = server.extra["filled"].index_fill(0, cohort.ids, 1.0)
        overall = cohort.everyone().mean(slots, among=filled)
        server = self.base.server_step(fed, server, uploads, cohort)
        return replace(server, extra={**server.extra, "slots": slots, "filled": filled, "overall": overall})

    def evaluated(self, server):
        return self.base.evaluated(server) | {"_t1": server.extra["overall"]}


@dataclass(frozen=True)
class Controls(Algorithm):
    """SCAFFOLD: memories that change the gradient, and an upload that needs the number of steps and the lr."""

    def init_server(self, fed, params):
        return Server(params, extra={"control": {n: torch.zeros_like(params[n]) for n in fed.net.trainable}})

    def broadcast(self, fed, server):
        return {"params": server.params, "control": server.extra["control"]}

    def init_client(self, fed, params):
        return {n: torch.zeros_like(params[n]) for n in fed.net.trainable}

    def local_loss(self, net, local, batch, message, memory, plan):
        w = local["params"]
        shift = sum(((message["control"][n] - memory[n]) * w[n]).sum() for n in net.trainable)
        return cross_entropy(net(w, batch.x).logits, batch.y) + shift

    def upload(self, net, local, data, message, memory, plan):
        scale = plan.num_steps * plan.lr
        moved = {n: message["params"][n] - local["params"][n] for n in net.trainable}
        new = {n: memory[n] - message["control"][n] + moved[n] / scale for n in net.trainable}
        return {"params": local["params"], "change": {n: new[n] - memory[n] for n in new}}, new

    def server_step(self, fed, server, uploads, cohort):
        share = len(cohort.ids) / fed.num_clients
        control = {n: c + share * uploads["change"][n].mean(0) for n, c in server.extra["control"].items()}
        return server.next(cohort.mean(uploads["params"]), control=control)


@dataclass(frozen=True)
class Risks(Algorithm):
    """q-FFL: the upload holds the received model's loss on the client's whole data; the server divides by a sum."""

    q: float = 0.5

    def upload(self, net, local, data, message, memory, plan):
        losses = cross_entropy(net.eval(message["params"], data.x).logits, data.y)
        return {"params": local["params"], "risk": (losses * data.weight).sum() / data.weight.sum()}, memory

    def server_step(self, fed, server, uploads, cohort):
        shares = (uploads["risk"] + 1e-10) ** self.q
        shares = shares / shares.sum()
        mixed = {n: torch.tensordot(shares, w, 1) for n, w in uploads["params"].items()}
        return server.next(mixed)


@dataclass(frozen=True)
class Generated(Algorithm):
    """FedKF: each client trains a generator of its own before each step, with noise drawn for it, and keeps it."""

    def init_client(self, fed, params):
        size = fed.input_shape[1] * fed.input_shape[2]
        return {"theta": torch.randn(4, size, generator=fed.stream("theta"), dtype=torch.float64) * 0.1}

    def start(self, fed, message, memory, generator):
        return {"params": message["params"], "theta": memory["theta"], "shift": torch.rand((), generator=generator)}

    def noise(self, fed, generator, batch_size):
        return {"z": torch.randn(batch_size, 4, generator=generator, dtype=torch.float64)}

    def teachers(self, message, memory):
        return {"global": message["params"]}

    def make(self, net, theta, z):
        return net.normalise(torch.sigmoid(z @ theta).view(-1, *net.input_shape))

    def before_step(self, net, local, batch, message, plan):
        def objective(theta):
            p = net.eval(message["params"], self.make(net, theta, batch.noise["z"])).logits.softmax(-1).mean(0)
            return (p * p.log()).sum() + 0.01 * local["shift"] * theta.square().sum()

        return {**local, "theta": local["theta"] - 0.5 * torch.func.grad(objective)(local["theta"])}

    def local_loss(self, net, local, batch, message, memory, plan):
        fakes = self.make(net, local["theta"], batch.noise["z"]).detach()
        pull = kl(net.eval(message["params"], fakes).logits, net.eval(local["params"], fakes).logits).mean()
        real = net(local["params"], batch.x).logits
        return cross_entropy(real, batch.y) + pull + 0.1 * kl(batch.teacher["global"].logits, real)

    def upload(self, net, local, data, message, memory, plan):
        return {"params": local["params"]}, {"theta": local["theta"]}


@dataclass(frozen=True)
class Previous(Algorithm):
    """MOON: a shared teacher and one of the client's own; the second waits for its first model."""

    def init_client(self, fed, params):
        return {"previous": params, "seen": 0.0}

    def teachers(self, message, memory):
        return {"global": message["params"], "previous": memory["previous"]}

    def local_loss(self, net, local, batch, message, memory, plan):
        out, teacher = net(local["params"], batch.x), batch.teacher
        near = torch.cosine_similarity(out.features, teacher["global"].features)
        far = torch.cosine_similarity(out.features, teacher["previous"].features)
        return cross_entropy(out.logits, batch.y) + memory["seen"] * torch.nn.functional.softplus(far - near)

    def upload(self, net, local, data, message, memory, plan):
        return {"params": local["params"]}, {"previous": local["params"], "seen": 1.0}


@dataclass(frozen=True)
class Voters(Algorithm):
    """FedGKD-VOTE: several teachers of unequal weight, one more each round, weighted by their validation loss."""

    def init_server(self, fed, params):
        return Server(params, extra={"models": (), "losses": ()})

    def broadcast(self, fed, server):
        losses = server.extra["losses"]
        weights = torch.stack(losses).neg().softmax(0) if losses else None
        voters = [{"w": w, "weight": weights[i]} for i, w in enumerate(server.extra["models"])]
        return {"params": server.params, "voters": voters}

    def teachers(self, message, memory):
        return {str(i): voter["w"] for i, voter in enumerate(message["voters"])}

    def local_loss(self, net, local, batch, message, memory, plan):
        student = net(local["params"], batch.x).logits
        pulls = [v["weight"] * kl(batch.teacher[str(i)].logits, student) for i, v in enumerate(message["voters"])]
        return cross_entropy(student, batch.y) + 0.1 * sum(pulls)

    def server_step(self, fed, server, uploads, cohort):
        params = cohort.mean(uploads["params"])
        logits = fed.net.eval(params, fed.validation.x).logits
        loss = cross_entropy(logits, fed.validation.y).mean()
        models, losses = (*server.extra["models"], params)[-2:], (*server.extra["losses"], loss)[-2:]
        return server.next(params, models=models, losses=losses)


@dataclass(frozen=True)
class Heads(Algorithm):
    """FedGen: the server trains a generator through the clients' heads by gradient steps of its own."""

    def init_server(self, fed, params):
        draw = torch.randn(fed.num_classes, fed.feature_dim, generator=fed.stream("g"), dtype=torch.float64)
        return Server(params, extra={"g": draw})

    def broadcast(self, fed, server):
        return {"params": server.params, "g": server.extra["g"]}

    def noise(self, fed, generator, batch_size):
        return {"label": torch.randint(fed.num_classes, (batch_size,), generator=generator)}

    def local_loss(self, net, local, batch, message, memory, plan):
        real = cross_entropy(net(local["params"], batch.x).logits, batch.y)
        label = batch.noise["label"]
        return real + 0.1 * cross_entropy(net.head(local["params"], message["g"][label]), label).mean()

    def server_step(self, fed, server, uploads, cohort):
        heads, g = uploads["params"], server.extra["g"].clone().requires_grad_()
        labels = torch.arange(fed.num_classes)
        parts = [
            cross_entropy(fed.net.head({n: w[k] for n, w in heads.items()}, g), labels).mean()
            for k in range(len(cohort.ids))
        ]
        (slope,) = torch.autograd.grad(torch.stack(parts).sum(), g)
        return server.next(cohort.mean(heads), g=(g - 0.5 * slope).detach())


AWKWARD = {
    "FedBN": OwnNorms(),
    "FedDKD over FedBN": Distil(OwnNorms()),
    "FedDKD": Distil(Algorithm()),
    "T1 over MOON": Overall(Previous()),
    "SCAFFOLD": Controls(),
    "q-FFL": Risks(),
    "FedKF": Generated(),
    "MOON": Previous(),
    "FedGKD-VOTE": Voters(),
    "FedGen": Heads(),
}


@pytest.mark.parametrize("augmentation", ["none", "flip_crop"])
@pytest.mark.parametrize("case", AWKWARD)
def test_both_backends_agree(case: str, augmentation: str) -> None:
    loop, stacked = (
        simulate(AWKWARD[case], backend, model="mlp+bn", augmentation=augmentation) for backend in ("loop", "stacked")
    )
    loop.advance(3)
    stacked.advance(3)
    assert largest_gap(loop, stacked) < 1e-9
    assert loop.progress.traffic == stacked.progress.traffic


@pytest.mark.parametrize("case", AWKWARD)
def test_they_resume_exactly(case: str, tmp_path: Path) -> None:
    whole = simulate(AWKWARD[case], model="mlp+bn")
    whole.advance(4)
    first = simulate(AWKWARD[case], model="mlp+bn", folder=StateFolder(tmp_path))
    first.advance(2)
    first.save()
    second = simulate(AWKWARD[case], model="mlp+bn", folder=StateFolder(tmp_path))
    assert second.load()
    second.advance(2)
    assert identical(whole, second)


def test_personal_models_are_measured_client_by_client() -> None:
    simulation = simulate(OwnNorms(), model="mlp+bn", participation=1.0)
    simulation.advance(2)
    net, federation = simulation.net, simulation.federation
    hits = []
    for client in range(4):
        model = {**simulation.memories[client], **simulation.server.params}
        x, y = next(federation.chunks(federation.test))
        hits.append((net.eval(model, x).logits.argmax(1) == y).double().mean().item())
    curve = {name: value for at, name, value in simulation.progress.curves[""] if at == 2}
    assert curve["accuracy"] == pytest.approx(sum(hits) / 4)
    shared = {n: simulation.server.params[n] for n in normal(net)}
    assert simulation.progress.traffic.bytes_down == 2 * 4 * num_bytes(shared)


def test_gradient_requests_are_communications() -> None:
    simulation = simulate(Distil(Algorithm(), steps=3))
    simulation.advance(2)
    assert simulation.progress.traffic.communications == 2 * (1 + 3)


@dataclass(frozen=True)
class Forgetful(Algorithm):
    """A memory that is used up, and an upload that names one tensor twice."""

    def init_client(self, fed, params):
        return {"first": 1.0}

    def local_loss(self, net, local, batch, message, memory, plan):
        return cross_entropy(net(local["params"], batch.x).logits, batch.y) * (2.0 if "first" in memory else 1.0)

    def upload(self, net, local, data, message, memory, plan):
        return {"params": local["params"], "again": local["params"]}, {}


def test_an_emptied_memory_stays_empty(tmp_path: Path) -> None:
    whole = simulate(Forgetful())
    whole.advance(4)
    first = simulate(Forgetful(), folder=StateFolder(tmp_path))
    first.advance(2)
    first.save()
    second = simulate(Forgetful(), folder=StateFolder(tmp_path))
    assert second.load()
    second.advance(2)
    assert identical(whole, second)


def test_one_tensor_under_two_names_travels_once() -> None:
    simulation = simulate(Forgetful())
    simulation.advance(1)
    assert simulation.progress.traffic.bytes_up == 3 * num_bytes(simulation.server.params)


def test_one_run_may_give_several_rows() -> None:
    simulation = simulate(Overall(Algorithm()), participation=1.0)
    simulation.advance(1)
    base, overall = (simulation.algorithm.evaluated(simulation.server)[suffix] for suffix in ("", "_t1"))
    assert all(torch.allclose(base[name], overall[name], atol=1e-12) for name in base), "equal at full participation"
    assert set(simulation.progress.curves) == {"", "_t1"}


@pytest.mark.parametrize("algorithm", [Algorithm(), OwnNorms()], ids=["shared", "personal"])
def test_each_source_counts_alike(algorithm: Algorithm) -> None:
    """Four sources of unequal test sets: a shared model is measured on each, a personal one on its own."""
    dataset = toy_dataset()
    sources = np.repeat(np.arange(4), (12, 9, 6, 3))
    grouped = replace(dataset, test_groups=sources)
    setting = replace(TINY, partition="by_source", model="mlp+bn", participation=1.0)
    simulation = Simulation(algorithm, setting, 0, grouped, INFO, toy_split(), "cpu", "loop")
    simulation.advance(2)
    x, y = next(simulation.federation.chunks(simulation.federation.test))
    scores = []
    for source in range(4):
        model = {**simulation.memories[source], **simulation.server.params}
        at = torch.from_numpy(sources == source)
        scores.append((simulation.net.eval(model, x[at]).logits.argmax(1) == y[at]).double().mean().item())
    curve = {name: value for at, name, value in simulation.progress.curves[""] if at == 2}
    assert curve["accuracy"] == pytest.approx(sum(scores) / 4)

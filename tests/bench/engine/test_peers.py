"""Runs of the engine beside the same runs by other libraries; docs/agreement.md has the figures."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from importlib.util import find_spec
from typing import Any

import pytest
import torch

from algorithms import build
from algorithms.base import Params
from bench.data.dataset import Dataset
from bench.engine.simulation import Simulation
from bench.selftest.toy import EQUAL_SIZES, INFO, SIZES, TINY, gap, toy_dataset, toy_split

if find_spec("fluke") is None:
    pytest.skip(
        "fluke and Flower are not installed here: `make peers` runs these tests",
        allow_module_level=True,
    )

import peers
from fluke.algorithms import (
    CentralizedFL,
    ditto,
    fedavg,
    fedavgm,
    feddyn,
    fednova,
    fedproto,
    fedprox,
    fedrep,
    lg_fedavg,
    moon,
    scaffold,
)
from fluke.utils.model import state_dict_zero_like

TOLERANCE = 1e-12  # float64, four rounds
APART = 1e-3  # a wrong option moves some weight by more


@pytest.fixture(autouse=True)
def _double_precision() -> Iterator[None]:
    """Let fluke make float64 tensors of Python numbers, such as FedNova's weights."""
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(torch.float32)


@dataclass(frozen=True)
class Case:
    """One algorithm here and in fluke.

    Args:
        name: ours.
        theirs: fluke's class.
        values: our hyper-parameters.
        client: those of fluke's clients.
        server: those of fluke's server.
        wrong: fields with which the two must differ.
        sizes: samples of each client.
        model: of both.
        batch_size: at least the largest client's samples for full batches.
        copies: whether all samples of a client are copies of one, so that the order of small
            batches does not matter.
    """

    name: str
    theirs: type
    values: Mapping[str, Any] = field(default_factory=dict)
    client: Mapping[str, Any] = field(default_factory=dict)
    server: Mapping[str, Any] = field(default_factory=dict)
    wrong: Mapping[str, Any] = field(default_factory=dict)
    sizes: Sequence[int] = SIZES
    model: str = "mlp"
    batch_size: int = max(SIZES)
    copies: bool = False


PLAIN = {"weighted": False}
CASES = {
    "fedavg": Case("fedavg", fedavg.FedAVG, wrong={"server": PLAIN}),
    "fedprox": Case(
        "fedprox", fedprox.FedProx, {"mu": 0.5}, {"mu": 0.5}, wrong={"client": {"mu": 1.0}}
    ),
    "moon": Case(
        "moon",
        moon.MOON,
        {"mu": 5.0, "temperature": 0.5},
        {"mu": 5.0, "tau": 0.5},
        wrong={"client": {"mu": 10.0, "tau": 0.5}},
        model="mlp+head",
    ),
    "scaffold, equal sizes": Case(
        "scaffold", scaffold.SCAFFOLD, wrong={"server": {"lr": 0.5}}, sizes=EQUAL_SIZES
    ),
    "scaffold, plain mean": Case(
        "scaffold", scaffold.SCAFFOLD, server=PLAIN, wrong={"server": {"weighted": True}}
    ),
    "fednova, mended": Case(
        "fednova", peers.MendedNova, wrong={"theirs": fednova.FedNova}, batch_size=8, copies=True
    ),
    "feddyn, mended": Case(
        "feddyn",
        peers.MendedDyn,
        {"alpha_dyn": 0.3},
        {"alpha": 0.3},
        wrong={"theirs": feddyn.FedDyn},
        sizes=EQUAL_SIZES,
    ),
}


def begin(case: Case) -> Simulation:
    """Make our run: all clients take part in every round."""
    setting = replace(
        TINY,
        model=case.model,
        num_clients=len(case.sizes),
        participation=1.0,
        batch_size=case.batch_size,
    )
    dataset, split = toy_dataset(), toy_split(case.sizes)
    if case.copies:
        dataset = with_copies(dataset, split.clients)
    return Simulation(
        build(case.name, **case.values), setting, 0, dataset, INFO, split, backend="loop"
    )


def with_copies(dataset: Dataset, clients: Sequence[Any]) -> Dataset:
    """Put a client's first sample in place of all that it holds."""
    x, y = dataset.train_x.copy(), dataset.train_y.copy()
    for index in clients:
        x[index], y[index] = x[index[0]], y[index[0]]
    return Dataset.of("toy", (x, y), (dataset.test_x, dataset.test_y))


def measure(case: Case) -> float:
    """Return the largest difference between any two weights after all rounds."""
    simulation = begin(case)
    theirs = peers.fluke_algorithm(case.theirs, simulation, case.client, case.server)
    theirs.run(TINY.rounds, 1.0)
    simulation.advance(TINY.rounds)
    server = theirs.server
    model = server.cld_mdl if isinstance(server, feddyn.FedDynServer) else server.model
    return gap(simulation.server.params, peers.params_of(model))


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_fluke_agrees(case: Case) -> None:
    assert measure(case) <= TOLERANCE


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_fluke_is_apart_with_a_wrong_option_and_unmended(case: Case) -> None:
    assert measure(replace(case, **case.wrong)) > APART


@pytest.mark.parametrize(("momentum", "agrees"), [(0.9, True), (0.8, False)])
def test_flowers_fedavgm_agrees_with_the_same_momentum_only(momentum: float, agrees: bool) -> None:
    simulation = begin(Case("fedavgm", fedavgm.FedAVGM, {"server_lr": 0.5, "server_momentum": 0.9}))
    theirs = peers.flower_fedavgm(simulation, 0.5, momentum)
    simulation.advance(TINY.rounds)
    distance = gap(simulation.server.params, theirs)
    assert distance <= TOLERANCE if agrees else distance > APART


def test_flukes_fedavgm_skips_its_first_round_unless_it_has_a_velocity() -> None:
    simulation = begin(Case("fedavgm", fedavgm.FedAVGM))
    given = (fedavgm.FedAVGM, simulation, {}, {"momentum": 0.9})
    theirs, mended = peers.fluke_algorithm(*given), peers.fluke_algorithm(*given)
    theirs.run(1, 1.0)
    assert gap(simulation.server.params, peers.params_of(theirs.server.model)) == 0
    theirs.run(TINY.rounds - 1, 1.0)
    mended.server.momentum_vector = state_dict_zero_like(mended.server.model.state_dict())
    mended.run(TINY.rounds, 1.0)
    simulation.advance(TINY.rounds)
    assert gap(simulation.server.params, peers.params_of(mended.server.model)) <= TOLERANCE
    assert gap(simulation.server.params, peers.params_of(theirs.server.model)) > APART


# Methods that leave each client a model of its own; fluke's are run without their fine-tuning at
# the end.


def own_models(simulation: Simulation) -> list[Params]:
    """Our clients' models after all rounds."""
    simulation.advance(TINY.rounds)
    row = simulation.algorithm.evaluated(simulation.server)[""]
    return [simulation.local_model(row, client) for client in range(len(SIZES))]


def without_tuning(theirs: CentralizedFL) -> CentralizedFL:
    """Run all rounds, and not what fluke does after them."""
    theirs.finalize = lambda: None
    theirs.run(TINY.rounds, 1.0)
    return theirs


@pytest.mark.parametrize(("mu", "agrees"), [(0.7, True), (0.5, False)])
def test_flukes_ditto_agrees_with_the_same_lambda_only(mu: float, agrees: bool) -> None:
    simulation = begin(Case("ditto", ditto.Ditto, {"mu": 0.7}))
    client = {"tau": TINY.local_epochs, "lam": mu}
    model = peers.Model(simulation)
    theirs = without_tuning(
        peers.fluke_algorithm(ditto.Ditto, simulation, client, {}, clients_model=model)
    )
    ours = own_models(simulation)
    expected = [peers.params_of(client.personalized_model) for client in theirs.clients]
    assert gap(ours, expected) <= TOLERANCE if agrees else gap(ours, expected) > APART
    assert gap(simulation.server.params, peers.params_of(theirs.server.model)) <= TOLERANCE


@pytest.mark.parametrize(("lam", "agrees"), [(2.0, True), (1.0, False)])
def test_flukes_fedproto_agrees_with_the_same_lambda_only(lam: float, agrees: bool) -> None:
    values = {"proto_weight": 2.0, "proto_from": "all_epochs"}
    simulation = begin(Case("fedproto", fedproto.FedProto, values))
    client = {"lam": lam, "n_protos": INFO.num_classes}
    server = {"n_protos": INFO.num_classes}
    model = peers.Model(simulation)
    theirs = peers.fluke_algorithm(
        fedproto.FedProto, simulation, client, server, clients_model=model
    )
    for each in theirs.clients:  # fluke makes a model of its name for each, and shares an object
        each.model = copy.deepcopy(model)
    without_tuning(theirs)
    ours = own_models(simulation)
    expected = [peers.params_of(client.model) for client in theirs.clients]
    assert gap(ours, expected) <= TOLERANCE if agrees else gap(ours, expected) > APART


@pytest.mark.parametrize(("tau", "agrees"), [(1, True), (2, False)])
def test_flukes_fedrep_agrees_on_equal_epochs_only(tau: int, agrees: bool) -> None:
    simulation = begin(Case("fedrep", fedrep.FedRep, {"head_share": 0.5}))
    split = peers.BodyAndHead(simulation)
    client = {"local_epochs": 1, "tau": tau}
    encoder = copy.deepcopy(split.encoder)
    theirs = peers.fluke_algorithm(fedrep.FedRep, simulation, client, {}, encoder, split)
    for member in theirs.clients:  # fluke's share an object
        member.model = copy.deepcopy(member.model)
    without_tuning(theirs)
    ours = own_models(simulation)
    body = {f"body.{name}": value for name, value in theirs.server.model.named_parameters()}
    expected = []
    for member in theirs.clients:
        own = member.model.get_local().named_parameters()
        head = {f"head.{name}": value for name, value in own}
        expected.append({name: value.detach() for name, value in (body | head).items()})
    assert gap(ours, expected) <= TOLERANCE if agrees else gap(ours, expected) > APART


@pytest.mark.parametrize(("weighted", "agrees"), [(True, True), (False, False)])
def test_flukes_lg_fedavg_agrees_by_examples_only(weighted: bool, agrees: bool) -> None:
    simulation = begin(Case("lg_fedavg", lg_fedavg.LGFedAVG))
    split = peers.BodyAndHead(simulation)
    server = {"weighted": weighted}
    theirs = without_tuning(
        peers.fluke_algorithm(
            lg_fedavg.LGFedAVG, simulation, {}, server, copy.deepcopy(split.head), split
        )
    )
    ours = own_models(simulation)
    expected = []
    for client in theirs.clients:
        own = peers.split_params_of(client.model.model)
        head = {f"head.{name}": value for name, value in theirs.server.model.named_parameters()}
        expected.append({**own, **{name: value.detach() for name, value in head.items()}})
    assert gap(ours, expected) <= TOLERANCE if agrees else gap(ours, expected) > APART

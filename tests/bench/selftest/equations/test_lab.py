"""The laboratory of the formulas: its network is torch's, its numbers are what comparisons need."""

from __future__ import annotations

from functools import partial
from itertools import chain
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from algorithms import build
from algorithms.base import Params, Server
from bench.selftest.equations import lab as laboratory
from bench.selftest.equations.formulas import with_vector
from bench.selftest.equations.lab import (
    BATCH_SIZE,
    CLASSES,
    CLIENT,
    FEATURES,
    FIVE,
    LABELS,
    NAMES,
    ONE,
    PIXEL_MEAN,
    PIXEL_STD,
    SHAPES,
    SIZES,
    STATISTICS,
    THREE,
    TWO,
    LabCohort,
    LabFed,
    LabNet,
    batch,
    client_samples,
    loss_and_grad_of,
    model,
    requested,
    server_samples,
)
from bench.selftest.equations.lab_run import LabRun, Visit, holds
from bench.selftest.equations.optimizers import Adam, Sgd, step_orders
from bench.selftest.toy import gap


def fedavg_run(*lrs: float) -> LabRun:
    """The rounds of FedAvg."""
    return LabRun(partial(build, "fedavg"), {}, norm=True, lrs=lrs or (0.1,), momentum=0.0)


def layers(norm: bool) -> nn.Sequential:
    """Torch's modules of the network."""
    width = [nn.BatchNorm1d(FEATURES)] if norm else []
    first = nn.Linear(laboratory.PIXELS, FEATURES)
    modules = [nn.Flatten(), first, *width, nn.ReLU(), nn.Linear(FEATURES, CLASSES)]
    return nn.Sequential(*modules).double()


def filled(norm: bool, params: Params) -> nn.Sequential:
    """The modules with these parameters."""
    modules = layers(norm)
    kinds = {"body": modules[1], "norm": modules[2], "head": modules[-1]}
    for name, value in params.items():
        module, _, kind = name.partition(".")
        getattr(kinds[module], kind).data.copy_(value)
    return modules


@pytest.mark.parametrize("norm", [True, False])
def test_the_network_is_that_of_torch(norm: bool) -> None:
    net = LabNet(norm)
    params = model(net, "here")
    modules = filled(norm, params)
    x = batch("here").x
    torch.testing.assert_close(net.eval(params, x).logits, modules.eval()(x))
    out = net(params, x)
    torch.testing.assert_close(out.logits, modules.train()(x))
    torch.testing.assert_close(out.features, modules[:-1](x))
    torch.testing.assert_close(net.head(params, out.features), out.logits)
    if norm:
        for name in STATISTICS:
            moved = getattr(filled(norm, model(net, "here")).train()[2], name.partition(".")[2])
            assert gap(moved, params[name]) > 0
        fresh = filled(norm, model(net, "here"))
        fresh.train()(x)
        for name in STATISTICS:
            statistic = getattr(fresh[2], name.partition(".")[2])
            torch.testing.assert_close(params[name], statistic)
    assert set(net.names) == set(params) == {*net.trainable, *(STATISTICS if norm else ())}
    assert net.batchnorm == {name for name in NAMES if name.startswith("norm") and norm}
    assert float(net.normalise(torch.tensor(PIXEL_MEAN + 2 * PIXEL_STD))) == pytest.approx(2)


def test_a_network_takes_all_of_its_entries() -> None:
    plain = LabNet(norm=False)
    for run in (plain, plain.eval):
        with pytest.raises(KeyError, match="the network has the parameters"):
            run(model(LabNet(), "here"), batch("here").x)


def test_gradients_are_those_of_torch() -> None:
    params = model(LabNet(norm=False), "here")
    samples = batch("here", padded=False)
    modules = filled(False, params)
    expected = nn.functional.cross_entropy(modules(samples.x), samples.y)
    expected.backward()

    def objective(w: Params) -> Tensor:
        return nn.functional.cross_entropy(LabNet(norm=False)(w, samples.x).logits, samples.y)

    found = loss_and_grad_of(objective, params)
    torch.testing.assert_close(found.loss, expected.detach())
    torch.testing.assert_close(found.grad["body.weight"], modules[1].weight.grad)
    assert not any(value.requires_grad for value in params.values())


def test_draws_are_told_apart_by_their_keys() -> None:
    net = LabNet()
    assert gap(model(net, "a", 1), model(net, "a", 1)) == 0
    assert gap(model(net, "a", 1), model(net, "a", 2)) > 0
    assert gap(batch("a").x, batch("b").x) > 0
    assert gap(client_samples(0).x, client_samples(1).x[:1].expand(9, -1, -1, -1)) > 0
    for name in ("norm.weight", "norm.running_var"):
        assert float(model(net, "a")[name].min()) >= 0.5
    assert float(model(net, "a")["body.weight"].std()) == pytest.approx(0.5, abs=0.1)


def test_batches_end_with_padding_unless_full() -> None:
    assert batch("a").weight.tolist() == [1.0] * (BATCH_SIZE - 1) + [0.0]
    assert batch("a", padded=False).weight.tolist() == [1.0] * BATCH_SIZE
    assert len(batch("a").y) == len(batch("a").x) == BATCH_SIZE


def test_clients_are_such_as_comparisons_need() -> None:
    assert [len(client_samples(k).y) for k in SIZES] == list(SIZES.values())
    assert len(set(SIZES.values())) == len(SIZES)
    assert SIZES[1] < BATCH_SIZE < min(SIZES[k] for k in SIZES if k != 1)
    assert [len(cohorts) for cohorts in (ONE, TWO, THREE, FIVE)] == [1, 2, 3, 5]
    for cohorts in (ONE, TWO, THREE, FIVE):
        assert {*chain(*cohorts)} <= set(SIZES)
        assert any(CLIENT in cohort for cohort in cohorts)
        assert all(len(set(cohort)) == len(cohort) > 1 for cohort in cohorts)
    owners = [client for client, labels in LABELS.items() if 3 in labels]
    assert len(owners) == 1
    assert set(chain(*LABELS.values())) == set(range(CLASSES))
    assert server_samples("auxiliary").y.bincount().tolist() == [3] * CLASSES
    assert laboratory.PIXELS == laboratory.SIDE**2
    assert FEATURES not in (CLASSES, BATCH_SIZE)


def test_every_pass_holds_labels_of_the_client() -> None:
    run = fedavg_run()
    for client, labels in LABELS.items():
        passes = run.passes(client)
        assert len(passes) == laboratory.PASSES
        assert {int(y) for _, samples in passes for y in samples.y} <= set(labels)
        assert len({float(w["body.bias"][0]) for w, _ in passes}) == len(passes)


def test_requested_batches_differ_by_round_and_call() -> None:
    data = client_samples(3)
    first = requested(data, 1, 0, 5)
    assert first.weight.tolist() == [1.0] * 5
    again = [requested(data, 1, 1, 5), requested(data, 2, 0, 5)]
    assert all(gap(first.x, other.x) > 0 for other in again)
    assert gap(requested(data, 1, 0, 5, augmented=True).x, first.x.flip(3)) == 0
    whole = requested(client_samples(1), 1, 0, 64)
    assert sorted(whole.y.tolist()) == sorted(client_samples(1).y.tolist())


def cohort() -> LabCohort:
    """Clients 1 and 3, of 4 and 12 samples."""
    net = LabNet(norm=False)
    models = {k: model(net, k) for k in (1, 3)}
    return LabCohort(net, 1, 0.1, models, {k: client_samples(k) for k in SIZES})


def test_the_cohort_weighs_by_examples() -> None:
    values = {"a": torch.tensor([[4.0, 8.0], [8.0, 0.0]], dtype=torch.float64)}
    assert cohort().mean(values)["a"].tolist() == [7.0, 2.0]
    among = torch.tensor([1.0, 0.0])
    assert cohort().mean(values, among)["a"].tolist() == [4.0, 8.0]
    assert cohort().ids.tolist() == [1, 3]
    assert cohort().everyone().num_examples.tolist() == list(SIZES.values())


def test_the_cohort_notes_who_answers() -> None:
    asked = cohort()
    params = model(asked.net, "server")

    def loss(net: Any, w: Params, local: Params, samples: Any) -> Tensor:
        return (net.eval(w, samples.x).logits - net.eval(local, samples.x).logits) ** 2

    both = asked.gradients(loss, params, 5)
    one = asked.gradients(loss, params, 5, among=torch.tensor([False, True]))
    assert asked.answering == [[1, 3], [3]]
    assert all(value.shape == (2, *SHAPES[name]) for name, value in both.items())
    assert all(float(value[0].abs().max()) == 0 for value in one.values())
    assert gap(one["head.bias"][1], both["head.bias"][1]) > 0  # another batch
    for place, client in enumerate((1, 3)):
        samples = requested(client_samples(client), 1, 0, 5)
        expected = loss_and_grad_of(
            lambda w, k=client, s=samples: loss(asked.net, w, asked.models[k], s).mean(), params
        ).grad
        assert gap({name: value[place] for name, value in both.items()}, expected) == 0


def test_the_federation_shows_clients_nothing_of_the_server() -> None:
    fed = LabFed(LabNet())
    assert (fed.num_clients, fed.batch_size) == (len(SIZES), BATCH_SIZE)
    assert gap(fed.public.x, fed.auxiliary.x) == 0
    assert gap(fed.validation.x, fed.auxiliary.x) > 0
    seen = fedavg_run().fed_of(3)
    assert seen.client.number == 3
    assert int(seen.client.num_examples) == len(client_samples(3).y)
    assert seen.client.label_counts.tolist() == client_samples(3).y.bincount(minlength=4).tolist()
    with pytest.raises(AttributeError, match=r"fed\.auxiliary\.x"):
        _ = seen.auxiliary.x
    drawn = fed.initialised("a", 1)
    assert fed.drawn_models == [drawn]
    assert gap(drawn, fed.initialised("a", 2)) > 0


def test_a_server_that_counts_no_round_is_told() -> None:
    run = fedavg_run()
    right = run.algorithm

    class Still:
        """FedAvg, whose server stays."""

        by_model = ()

        def __getattr__(self, name: str) -> Any:
            return getattr(right, name)

        def server_step(self, fed: Any, server: Server, *given: Any) -> Server:
            return server

    run.algorithm = Still()  # type: ignore[assignment]
    with pytest.raises(ValueError, match=r"server.next\(...\): round 0 after 1"):
        run.round((0, 2))


def test_a_round_tells_clients_their_steps_and_rate() -> None:
    run = fedavg_run(0.1, 0.04)
    plans = []
    for steps in (None, {0: 4.0, 2: 7.0}, None):
        plan = Visit(run, 2, steps[2] if steps else 3).plan
        plans.append((plan.round, plan.lr, float(plan.num_steps)))
        run.round((0, 2), steps)
    assert plans == [(1, 0.1, 3.0), (2, 0.04, 7.0), (3, 0.04, 3.0)]
    assert gap(run.last[2], run.cohort.models[2]) == 0
    assert gap(run.last[1], run.initial) == 0
    assert holds(True) == 0 != holds(False)


@pytest.mark.parametrize("momentum", [0.0, 0.9])
def test_sgd_is_that_of_torch(momentum: float) -> None:
    w = torch.tensor([1.0, -2.0], dtype=torch.float64)
    leaf = w.clone().requires_grad_()
    ours = Sgd(0.1, momentum)
    theirs = torch.optim.SGD([leaf], 0.1, momentum)
    compare(ours, theirs, w, leaf)


@pytest.mark.parametrize("decay", [0.0, 0.1])
def test_adam_is_that_of_torch(decay: float) -> None:
    w = torch.tensor([1.0, -2.0], dtype=torch.float64)
    leaf = w.clone().requires_grad_()
    compare(Adam(0.1, decay), torch.optim.Adam([leaf], 0.1, weight_decay=decay), w, leaf)


def compare(ours: Any, theirs: torch.optim.Optimizer, w: Tensor, leaf: Tensor) -> None:
    """Compare three steps, with gradients down to the size of Adam's eps."""
    for gradient in ([1.0, 3e-8], [0.5, -1e-8], [-2.0, 2e-8]):
        leaf.grad = torch.tensor(gradient, dtype=torch.float64)
        theirs.step()
        w = ours.step(w, leaf.grad)
        torch.testing.assert_close(w, leaf.detach(), rtol=1e-12, atol=0)


def test_orders_of_steps_are_all_that_there_are() -> None:
    assert list(step_orders(3, 3, 2)) == [[[0, 1, 2], [0, 1, 2]]]
    assert list(step_orders(3, 4, 1)) == [[[0, 1, 2]]]
    orders = list(step_orders(4, 2, 1))
    assert len(orders) == 24
    assert [[2, 0], [3, 1]] in orders
    assert next(step_orders(3, 2, 1)) == [[0, 1], [2]]


def test_a_vector_is_of_the_trained_entries() -> None:
    params = model(LabNet(), "here")
    count = sum(value.numel() for name, value in params.items() if name not in STATISTICS)
    ones = with_vector(params, torch.ones(count))
    assert all(bool((ones[name] == 1).all()) == (name not in STATISTICS) for name in params)

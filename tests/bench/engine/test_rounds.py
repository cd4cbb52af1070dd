"""The parts of a round, each against a slow and obvious computation."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from itertools import combinations
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from conftest import TINY, largest_gap, simulate, toy_split, trained

from algorithms.base import (
    Algorithm,
    Cohort,
    Fed,
    Local,
    Memory,
    Message,
    Net,
    Params,
    Server,
    Upload,
)
from bench.engine import evaluate
from bench.engine.client_round import draw_schedule, steps_of
from bench.engine.evaluate import Evaluator, Score, mean_measures
from bench.engine.optimizers import clip, decays
from bench.engine.pytree import num_bytes
from bench.engine.rng import stream
from bench.selftest.toy import INFO, SIZES
from leaderboards.numbers import curve_of, numbers_of


@pytest.mark.parametrize(
    ("rule", "client", "sizes"),
    [
        ("epochs", 0, (8, 8, 5) * 2),
        ("whole_epochs", 0, (8, 8) * 2),
        ("whole_epochs", 2, (8, 8)),
        ("whole_epochs", 3, (5, 5)),  # less than a batch: what there is
        ("batches", 0, (8, 8)),  # two batches, of one epoch
        ("batches", 2, (8, 1)),
        (
            "equal",
            0,
            (8, 8),
        ),  # 48 samples of four clients: one whole batch of the mean client, twice
        ("equal", 2, (8, 8)),  # 9 samples: one whole batch an epoch, so a second epoch begins
        ("equal", 3, (5, 5)),  # less than a batch: what there is
    ],
)
def test_the_step_rule_says_what_local_epochs_count(
    rule: str, client: int, sizes: tuple[int, ...]
) -> None:
    setting = replace(TINY, step_rule=rule, local_epochs=2, batch_size=8)
    schedule = draw_schedule(torch.Generator().manual_seed(0), setting, (21, 13, 9, 5), client)
    assert schedule.sizes == sizes
    assert schedule.positions.shape == schedule.weight.shape == (len(sizes), 8)


@pytest.mark.parametrize("count", [3, 8, 21])
@pytest.mark.parametrize("rule", ["batches", "whole_epochs"])
def test_each_epoch_is_an_order_of_its_own(count: int, rule: str) -> None:
    """Epochs in batches of 8, in int64 and one after another."""
    setting = replace(TINY, step_rule=rule, local_epochs=7, batch_size=8)
    drawn = draw_schedule(stream(0, "order", 1, 0), setting, (count,), 0)
    steps = len(drawn.sizes)
    generator = stream(0, "order", 1, 0)
    positions: list[list[int]] = []
    sizes: list[int] = []
    while len(sizes) < steps:
        order = torch.randperm(count, generator=generator).tolist()
        end = max(count // 8 * 8, min(count, 8)) if rule == "whole_epochs" else count
        for begin in range(0, end, 8):
            positions.append([order[place % count] for place in range(begin, begin + 8)])
            sizes.append(min(8, count - begin))
    weight = [[True] * size + [False] * (8 - size) for size in sizes]
    assert drawn.positions.tolist() == positions[:steps]
    assert drawn.sizes == tuple(sizes[:steps])
    assert drawn.weight.tolist() == weight[:steps]


@pytest.mark.parametrize("rule", ["epochs", "whole_epochs", "batches", "equal"])
def test_no_client_takes_more_steps_than_the_largest(rule: str) -> None:
    setting = replace(TINY, step_rule=rule, batch_size=8)
    sizes = (5, 40, 21, 8, 16)
    counts = [steps_of(setting, size, sizes) for size in sizes]
    assert max(counts) == steps_of(setting, max(sizes), sizes)


def test_a_client_has_a_memory_once_it_took_part() -> None:
    run = trained("moon", rounds=1, participation=0.5)
    assert set(run.memories) == set(run.participants(1)) < set(range(len(run.federation.clients)))


@pytest.mark.parametrize("algorithm", ["local", "fedbn"])
def test_untrained_clients_are_scored_once(algorithm: str, monkeypatch: pytest.MonkeyPatch) -> None:
    options = {"participation": 0.25, "evaluate_every": 2, "model": "mlp+bn"}
    scored: list[int] = []
    score_whole = Evaluator._score_whole

    def counted(self: Evaluator, params: Params, part: int) -> Score:
        scored.append(part)
        return score_whole(self, params, part)

    monkeypatch.setattr(Evaluator, "_score_whole", counted)
    run = trained(algorithm, rounds=2, **options)
    drawn = {*run.participants(1), *run.participants(2)}
    clients = len(run.federation.clients)
    assert len(drawn) < clients
    assert len(scored) == len(drawn) + 1
    monkeypatch.setattr(evaluate, "equal", lambda first, second: False)
    apart = trained(algorithm, rounds=2, **options)
    assert len(scored) == len(drawn) + 1 + clients
    assert run.progress.curves == apart.progress.curves, "to the last bit"


@pytest.mark.parametrize("rule", ["whole_epochs", "batches", "equal"])
def test_backends_agree_under_every_step_rule(rule: str) -> None:
    loop, stacked = (
        trained("fedgkd", backend, step_rule=rule, model="mlp+bn")
        for backend in ("loop", "stacked")
    )
    assert largest_gap(loop, stacked) < 1e-9
    assert loop.progress.samples == stacked.progress.samples > 0


def test_weight_decay_exemptions() -> None:
    simulation = simulate("fedavg")
    names = ("body.conv.weight", "body.norm.weight", "body.blocks.1.shortcut.1.weight")
    norms = frozenset(names[1:])
    assert decays(simulation.setting, names, norms) == (True, True, True)
    for rule, expected in (
        ("norm", (True, False, False)),
        ("norm_but_shortcut", (True, False, True)),
    ):
        setting = SimpleNamespace(decay_exempt=rule)
        assert decays(setting, names, norms) == expected  # type: ignore[arg-type]


@pytest.mark.parametrize("limit", [0.5, 100.0])
def test_gradients_are_clipped_as_torch_clips_them(limit: float) -> None:
    shapes = ((4, 3, 3, 3), (4,), ())
    clients = []
    for _ in range(3):
        clients.append([torch.randn(shape, dtype=torch.float64) for shape in shapes])
    stacked = [torch.stack(grads) for grads in zip(*clients, strict=True)]
    clip(stacked, limit, stacked=True)
    for client, grads in enumerate(clients):
        weights = [torch.nn.Parameter(torch.zeros_like(grad)) for grad in grads]
        for weight, grad in zip(weights, grads, strict=True):
            weight.grad = grad.clone()
        torch.nn.utils.clip_grad_norm_(weights, limit)
        clip(grads, limit, stacked=False)
        for weight, grad, of_all in zip(weights, grads, stacked, strict=True):
            torch.testing.assert_close(grad, weight.grad, rtol=1e-14, atol=0)
            torch.testing.assert_close(of_all[client], weight.grad, rtol=1e-14, atol=0)


def test_train_steps_are_a_clients_mean() -> None:
    simulation = trained("fedavg", participation=1.0)
    per_round = np.mean([2 * -(-size // 8) for size in (21, 13, 9, 5)])
    assert simulation.progress.traffic.train_steps == 2 * per_round
    assert simulation.progress.samples == 2 * 2 * 48


@dataclass(frozen=True)
class Compressed(Algorithm):
    """FedAvg that could be told by fewer numbers than it sends."""

    down: float = 3.0

    def broadcast(self, fed: Fed, server: Server) -> Message:
        assert fed.rounds == TINY.rounds
        return {**super().broadcast(fed, server), "floats": self.down}

    def upload(self, net: Net, local: Local, *given: Any) -> tuple[Upload, Memory]:
        upload, memory = super().upload(net, local, *given)
        floats = (local["params"]["head.bias"] != 0).sum()
        return {**upload, "floats": floats}, memory

    def server_step(self, fed: Fed, server: Server, uploads: Upload, cohort: Cohort) -> Server:
        assert set(uploads) == {"params"}
        return super().server_step(fed, server, uploads, cohort)


@pytest.mark.parametrize("backend", ["loop", "stacked"])
def test_a_message_that_states_its_floats_has_so_many_bytes(backend: str) -> None:
    simulation = simulate(Compressed(), participation=1.0, backend=backend)
    simulation.advance(2)
    traffic = simulation.progress.traffic
    size = simulation.net.dtype.itemsize
    clients = len(SIZES)
    assert traffic.bytes_down == 2 * clients * 3 * size
    assert traffic.bytes_up == 2 * clients * INFO.num_classes * size


def test_a_fraction_of_a_float_is_counted_in_whole_bytes() -> None:
    simulation = simulate(Compressed(down=2.3), participation=1.0)
    simulation.advance(1)
    size = simulation.net.dtype.itemsize
    assert simulation.progress.traffic.bytes_down == len(SIZES) * math.ceil(2.3 * size)


@pytest.mark.parametrize("floats", [-5.0, math.nan, math.inf, torch.ones(1), torch.ones(3)])
def test_a_size_that_is_no_number_is_named_before_clients_train(floats: Any) -> None:
    class Wrong(Algorithm):
        def broadcast(self, fed: Fed, server: Server) -> Message:
            return {**super().broadcast(fed, server), "floats": floats}

        def start(self, *given: Any) -> Local:
            raise AssertionError("a client begins")

    with pytest.raises(
        ValueError, match="`floats`, the size of what is sent, must be a number >= 0"
    ):
        simulate(Wrong()).advance(1)


def test_metrics_of_a_message_are_sent_and_counted() -> None:
    class Renamed(Algorithm):
        def broadcast(self, fed: Fed, server: Server) -> Message:
            return {"metrics": server.params}

        def start(self, fed: Fed, message: Message, *given: Any) -> Local:
            return {"params": message["metrics"]}

    simulation = simulate(Renamed(), participation=1.0)
    simulation.advance(1)
    sent = num_bytes(simulation.server.params)
    assert simulation.progress.traffic.bytes_down == len(SIZES) * sent


def test_numbers_of_every_kind_are_averaged() -> None:
    simulation = simulate("fedavg", participation=1.0)
    trained = [SimpleNamespace(client=k, params=simulation.server.params) for k in range(4)]
    cohort = simulation._cohort(trained, 0.1)  # type: ignore[arg-type]
    shares = cohort.num_examples / cohort.num_examples.sum()
    hits = torch.tensor([4, 6, 0, 1])
    assert cohort.mean(hits).item() == pytest.approx(float((shares * hits).sum()))
    assert cohort.mean(hits > 3).item() == pytest.approx(float(shares[:2].sum()))
    imaginary = cohort.mean(torch.complex(torch.zeros(4), hits.float())).imag
    assert imaginary.item() == pytest.approx(float((shares * hits).sum()))


def test_gradients_from_the_cohort_are_those_of_the_clients() -> None:
    """One communication; at batches as large as a client the gradient is that of its whole data."""
    simulation = simulate("fedavg", participation=1.0)
    trained = [SimpleNamespace(client=k, params=simulation.server.params) for k in range(4)]
    cohort = simulation._cohort(trained, 0.1)  # type: ignore[arg-type]

    def loss(net, params, local, batch):  # type: ignore[no-untyped-def]
        return F.cross_entropy(net.eval(params, batch.x).logits, batch.y, reduction="none")

    slopes = cohort.gradients(loss, simulation.server.params, batch_size=100)
    assert simulation.progress.traffic.communications == 1
    assert simulation.progress.traffic.bytes_up == num_bytes(slopes)
    for client, index in enumerate(toy_split().clients):
        data = simulation.federation.data(torch.tensor(index))
        leaves = {
            n: simulation.server.params[n].clone().requires_grad_()
            for n in simulation.net.trainable
        }
        value = F.cross_entropy(simulation.net.eval(leaves, data.x).logits, data.y)
        expected = torch.autograd.grad(value, list(leaves.values()))
        for name, want in zip(leaves, expected, strict=True):
            torch.testing.assert_close(slopes[name][client], want)


def test_each_request_of_a_part_of_the_cohort_has_a_fresh_batch() -> None:
    simulation = simulate("fedavg", participation=1.0)
    params = simulation.server.params
    trained = [SimpleNamespace(client=k, params=params) for k in range(4)]
    cohort = simulation._cohort(trained, 0.1)  # type: ignore[arg-type]

    def loss(net, params, local, batch):  # type: ignore[no-untyped-def]
        return F.cross_entropy(net.eval(params, batch.x).logits, batch.y, reduction="none")

    requests = []
    for _ in range(2):
        (group,) = cohort.groups.values()
        for part in (cohort, group, cohort.everyone()):
            slopes = part.gradients(loss, params, batch_size=2)
            requests.append(torch.cat([value.flatten() for value in slopes.values()]))
    equal = [torch.equal(one, other) for one, other in combinations(requests, 2)]
    assert not any(equal)


def test_a_cohort_refuses_what_has_no_value() -> None:
    simulation = simulate("fedavg", participation=1.0)
    trained = [SimpleNamespace(client=k, params=simulation.server.params) for k in range(4)]
    cohort = simulation._cohort(trained, 0.1)  # type: ignore[arg-type]
    values = torch.arange(4.0)
    last = torch.tensor([0, 0, 0, 1])
    assert cohort.mean(values, among=last).item() == 3.0
    with pytest.raises(ValueError, match="over no client"):
        cohort.mean(values, among=torch.zeros(4))
    with pytest.raises(AttributeError, match=r"init_client and start only"):
        _ = simulation.fed.client
    unlike = simulate("local", participation=1.0, client_models="mlp/cnn_digits")
    asked = replace(cohort, context=unlike.context)
    with pytest.raises(ValueError, match=r"unlike ones \(mlp, cnn_digits\)"):
        asked.gradients(lambda *_: values, simulation.server.params, batch_size=2)


def test_an_error_inside_a_client_says_which() -> None:
    class Broken(Algorithm):
        def local_loss(self, *_: object) -> torch.Tensor:  # type: ignore[override]
            raise ValueError("no loss today")

    with pytest.raises(RuntimeError, match=r"round 1, client \d"):
        simulate(Broken()).advance(1)


def test_a_server_that_does_not_count_its_round_is_told() -> None:
    class Stuck(Algorithm):
        def server_step(self, fed, server, uploads, cohort):  # type: ignore[no-untyped-def]
            return server

    with pytest.raises(RuntimeError, match=r"server\.next"):
        simulate(Stuck()).advance(1)


def test_the_summary_of_a_curve_by_hand() -> None:
    accuracy = [0.10, 0.50, 0.40, 0.50]
    validation = [0.20, 0.30, 0.60, 0.60]
    curve = [(r + 1, "accuracy", a) for r, a in enumerate(accuracy)]
    curve += [(r + 1, "val_accuracy", v) for r, v in enumerate(validation)]
    for name, value in (
        ("communications", 4),
        ("bytes_down", 80),
        ("bytes_up", 40),
        ("train_steps", 12.5),
    ):
        curve.append((4, name, value))
    row = numbers_of(curve_of(curve))
    assert (row["best_accuracy"], row["best_round"]) == (0.5, 2), "the first of equals"
    assert row["final_accuracy"] == 0.5
    assert (row["selected_accuracy"], row["selected_round"], row["best_val_accuracy"]) == (
        0.4,
        3,
        0.6,
    )
    assert row["mean_last10_accuracy"] == pytest.approx(0.375)
    # 0.1; .6*.1 + .4*.5 = .26; .6*.26 + .4*.4 = .316; .6*.316 + .4*.5 = .3896
    assert row["ema_accuracy"] == pytest.approx(0.3896)
    assert (row["communications"], row["bytes_down"], row["bytes_up"], row["train_steps"]) == (
        4,
        80,
        40,
        12.5,
    )
    assert row["amp"] is None


@pytest.mark.parametrize("participation", [0.5, 1.0])
def test_scores_follow_clients_that_trained(participation: float) -> None:
    run = simulate("local", participation=participation, rounds=4)
    for _ in range(4):
        run.advance(1)
        fresh = Evaluator(run.net, run.federation, run.fed.num_clients, lambda client: run.net)
        expected = mean_measures(fresh.personal(run.models_of("")).scores)
        stored = {name: value for at, name, value in run.progress.curves[""] if at == run.round}
        assert {name: stored[name] for name in expected} == pytest.approx(expected, abs=1e-12)


def test_a_lone_client_is_asked_for_gradients() -> None:
    simulation = simulate("feddkd", participation=0.1)
    simulation.advance(1)
    assert len(simulation.participants(1)) == 1
    assert simulation.progress.traffic.communications > 1

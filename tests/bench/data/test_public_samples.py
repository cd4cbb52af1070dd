"""Public samples: which they are, who reads them, how they are counted, and what is refused."""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from conftest import INFO, TINY, identical, largest_gap, make, simulate, toy_dataset, toy_split
from outside_world import place, world
from torch import Tensor

from algorithms import feddf
from algorithms.base import (
    Algorithm,
    Batch,
    Fed,
    Local,
    LocalPlan,
    Memory,
    Message,
    Net,
    Params,
)
from algorithms.losses import cross_entropy
from algorithms.t1 import T1
from bench import data
from bench.data.dataset import Dataset
from bench.data.splits import PublicSet, public_set, split
from bench.engine.simulation import Simulation
from bench.engine.state import StateFolder
from bench.engine.together import advance_together
from bench.errors import UsageError
from bench.planning.options import SweepOptions
from bench.planning.planner import make_plan
from bench.planning.run_spec import RunSpec
from bench.selftest.communication import _traffic_by_round
from bench.sweep.command import main as sweep
from leaderboards import Store
from search_spaces import Setting

__all__ = ["place", "world"]
COUNT = 7
UNLIKE: dict[str, Any] = {"client_models": "mlp/cnn_digits", "participation": 1.0}
SAMPLE_BYTES = 64 * 8  # 8x8 pixels in float64


@dataclass(frozen=True)
class Nudged(Algorithm):
    """FedAvg whose loss has the mean logit of the public samples."""

    needs = frozenset({"public"})

    def local_loss(
        self,
        net: Net,
        local: Local,
        batch: Batch,
        message: Message,
        memory: Memory,
        plan: LocalPlan,
    ) -> Tensor:
        """Return the cross entropy and the public term."""
        assert plan.public is not None
        public = net.eval(local["params"], plan.public.x).logits.mean()
        return cross_entropy(net(local["params"], batch.x).logits, batch.y) + 0.1 * public


@dataclass(frozen=True)
class Started(Algorithm):
    """FedAvg whose clients read the public samples when they start."""

    needs = frozenset({"public"})

    def start(self, fed: Fed, message: Message, memory: Memory, generator: Any) -> Local:
        """Read them."""
        assert len(fed.public.x) == COUNT
        return {"params": message["params"]}


def other(seed: int = 1, size: int = COUNT) -> PublicSet:
    """Public samples of the toy's shape."""
    draw = np.random.RandomState(seed)
    pixels = draw.randint(0, 255, (size, 1, 8, 8)).astype(np.uint8)
    labels = (np.arange(size) % 3).astype(np.int64)
    dataset = Dataset.of("other", (pixels, labels), (pixels[:1], labels[:1]))
    return PublicSet(dataset, INFO, dataset.hash)


def start(
    algorithm: str | Algorithm,
    backend: str = "loop",
    public: PublicSet | None = None,
    **fields: Any,
) -> Simulation:
    folder = fields.pop("folder", None)
    seed = fields.pop("seed", 0)
    setting = replace(TINY, **fields)
    built = make(algorithm) if isinstance(algorithm, str) else algorithm
    samples = other() if public is None else public
    split_ = toy_split()
    run = Simulation(
        built, setting, seed, toy_dataset(), INFO, split_, "cpu", backend, folder, public=samples
    )
    return run


def test_inputs_are_those_of_the_set_normalised_as_the_runs() -> None:
    run = start("feddf")
    public = other()
    expected = (public.dataset.train_x / 255 - 0.5) / 0.25
    assert np.allclose(run.fed.public.x.numpy(), expected)
    assert run.fed.public.x.shape == (COUNT, 1, 8, 8)


def test_they_are_the_auxiliary_samples_unless_a_set_is_named() -> None:
    run = simulate("feddf")
    assert torch.equal(run.fed.public.x, run.fed.auxiliary.x)


def test_the_server_distils_on_them() -> None:
    run = start("feddf")
    run.advance(2)
    assert run.progress.traffic.bytes_down == 2 * 3 * _model_bytes(run)
    own = simulate("feddf")
    own.advance(2)
    assert largest_gap(run, own) > 1e-6


def _model_bytes(run: Simulation) -> int:
    return sum(value.numel() for value in run.server.params.values()) * 8


@pytest.mark.parametrize("algorithm", [Nudged(), Started()])
@pytest.mark.parametrize("backend", ["loop", "stacked"])
def test_each_client_is_sent_them_once(algorithm: Algorithm, backend: str) -> None:
    run = start(algorithm, backend)
    seen: set[int] = set()
    for number in range(1, 5):
        before = run.progress.traffic.bytes_down
        run.advance(1)
        clients = set(run.participants(number))
        sent = run.progress.traffic.bytes_down - before - len(clients) * _model_bytes(run)
        assert sent == len(clients - seen) * COUNT * SAMPLE_BYTES
        seen |= clients


def test_what_an_algorithm_states_of_its_message_leaves_them_out() -> None:
    rounds = _traffic_by_round(start(Started()))
    size = _model_bytes(start(Started())) / 8
    assert [counts["down"] for counts in rounds] == [size] * 4


def test_their_labels_change_nothing() -> None:
    public = other()
    labels = public.dataset.train_y[::-1].copy()
    turned = replace(public, dataset=replace(public.dataset, train_y=labels))
    for algorithm in (Nudged(), "feddf"):
        first = start(algorithm)
        second = start(algorithm, public=turned)
        first.advance(2)
        second.advance(2)
        assert identical(first, second)


def test_both_backends_read_them_alike() -> None:
    loop = start(Nudged())
    stacked = start(Nudged(), "stacked")
    plain = simulate("fedavg")
    for run in (loop, stacked, plain):
        run.advance(3)
    assert largest_gap(loop, stacked) <= 1e-10
    assert largest_gap(loop, plain) > 1e-4


def test_a_pack_trains_runs_with_public_samples_one_by_one() -> None:
    members = [start(Nudged(), "stacked", other(seed), seed=seed) for seed in (1, 2)]
    with pytest.warns(UserWarning, match="public samples"):
        assert not advance_together(members, 2)
    for seed, member in zip((1, 2), members, strict=True):
        alone = start(Nudged(), "stacked", other(seed), seed=seed)
        alone.advance(2)
        assert largest_gap(alone, member) == 0


@pytest.mark.parametrize("algorithm", [Nudged(), "feddf"])
def test_a_killed_run_goes_on_to_the_bit(algorithm: Any, tmp_path: Path) -> None:
    whole = start(algorithm)
    whole.advance(4)
    first = start(algorithm, folder=StateFolder(tmp_path))
    first.advance(2)
    first.save()
    second = start(algorithm, folder=StateFolder(tmp_path))
    assert second.load()
    second.advance(2)
    assert identical(whole, second)
    changed = start(algorithm, public=other(9), folder=StateFolder(tmp_path))
    with pytest.warns(UserWarning, match="another copy of the data"):
        assert not changed.load()


def test_labels_are_read_by_methods_that_need_them() -> None:
    with pytest.raises(AttributeError, match="public_labels"):
        _ = start("feddf").fed.public.y

    @dataclass(frozen=True)
    class Labelled(Started):
        needs = frozenset({"public", "public_labels"})

    assert start(Labelled()).fed.public.y.tolist() == [0, 1, 2, 0, 1, 2, 0]


# FedDF on unlike models.


def test_feddf_fuses_each_architecture_from_all_participants(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    run = start(make("feddf", max_steps=1, check_every=1, server_lr=0.01), **UNLIKE)
    models = _trained()
    x = run.fed.public.x
    logits = [run.fed.nets[name].eval(w, x).logits for name, w in models]
    teacher = torch.stack(logits).mean(0)
    scores = count()
    monkeypatch.setattr(feddf, "_accuracy", lambda *_: next(scores))  # the last is the best
    run.advance(1)
    for name, net in run.fed.nets.items():
        own = [(k, w) for k, (model, w) in enumerate(models) if model == name]
        sizes = torch.tensor([float(run.federation.sizes[k]) for k, _ in own]).double()
        shares = sizes / sizes.sum()
        leaves: Params = {}
        for key in net.names:
            mean = sum(share * w[key] for share, (_, w) in zip(shares, own, strict=True))
            leaves[key] = torch.as_tensor(mean).clone().requires_grad_()
        p = teacher.softmax(1)
        q = net(leaves, x).logits.log_softmax(1)
        (p * (p.log() - q)).sum(1).mean().backward()
        kept = run.server.extra["models"][name]
        for key, w in leaves.items():
            assert w.grad is not None
            step = w.detach() - 0.01 * w.grad / (w.grad.abs() + 1e-8)  # Adam's first
            assert torch.allclose(kept[key], step, atol=1e-9)


def _gap(first: Params, second: Params) -> float:
    return max(float((first[key] - second[key]).abs().max()) for key in first)


def _trained() -> list[tuple[str, Params]]:
    """The models that clients end the first round with, and their names."""
    run = start(make("feddf", max_steps=0), **UNLIKE)
    results = run.trainer.train(run.begin())
    return [(run.context.of(result.client).model, result.params) for result in results]


def test_an_architecture_without_a_participant_keeps_its_model() -> None:
    run = start("feddf", client_models="mlp/cnn_digits", participation=0.25)
    before = dict(run.server.extra["models"])
    run.advance(1)
    (client,) = run.participants(1)
    absent = ("mlp", "cnn_digits")[1 - client % 2]
    assert _gap(run.server.extra["models"][absent], before[absent]) == 0


def test_plugins_around_feddf_see_the_one_model() -> None:
    run = simulate(T1(make("feddf")))
    run.advance(2)
    plain = simulate("feddf")
    plain.advance(2)
    assert _gap(run.server.params, plain.server.params) == 0
    assert not T1(make("feddf")).unlike_models


# Planning and sweeps.


def run_specs(*algorithms: str, dataset: str = "digits", **values: str) -> tuple[RunSpec, ...]:
    given = {name: tuple(value.split(",")) for name, value in values.items()}
    return make_plan(SweepOptions(algorithms, dataset, values=given)).run_specs


def test_own_samples_are_todays_auxiliary_ones() -> None:
    (today,) = run_specs("feddf", max_steps="1")
    (own,) = run_specs("feddf", max_steps="1", public="own")
    assert today.key == own.key
    assert today.setting.auxiliary_per_class > 0


def test_a_set_is_part_of_the_key_and_takes_no_training_samples() -> None:
    (run_spec,) = run_specs("feddf", dataset="cifar10", max_steps="1", public="cifar100:500")
    assert not run_spec.setting.auxiliary_per_class
    assert run_spec.setting.as_dict()["public"].endswith(":500")
    assert "public" not in Setting().as_dict()


@pytest.mark.parametrize(
    ("public", "said"),
    [
        ("cifar10:500", "data set that clients train on"),
        ("digits:500", "8x8"),
        ("cifar100", "NAME|number"),
        ("cifar100:0", "number"),
        ("cifar100:60000", "50000"),
        ("nothing:5", "nothing"),
    ],
)
def test_sets_that_cannot_be_are_refused(public: str, said: str) -> None:
    with pytest.raises(UsageError, match=said):
        run_specs("feddf", dataset="cifar10", max_steps="1", public=public)


def test_the_draw_follows_the_seed_of_the_partition() -> None:
    setting = Setting(public="digits:20", dataset="mnist")
    first = public_set(setting, 0, data.load)
    again = public_set(setting, 0, data.load)
    another = public_set(setting, 1, data.load)
    fixed = public_set(replace(setting, partition_seed=0), 1, data.load)
    assert first is not None
    assert again is not None
    assert another is not None
    assert fixed is not None
    assert first.hash == again.hash == fixed.hash != another.hash
    assert len(first.dataset.train_y) == 20
    with pytest.raises(UsageError, match="1438"):
        public_set(replace(setting, public="digits:2000"), 0, data.load)


def test_a_sweep_on_a_set_from_outside(world: Path) -> None:
    arguments = ["--algo", "feddf", "--dataset", "digits", "--rounds", "1", "--executor", "inline"]
    arguments += ["--set", "public=my_world:SHAPES:40", "max_steps=2", "--out", "out", "--quiet"]
    assert sweep(arguments) == 0
    runs = Store(world / "out").runs()
    (row,) = runs.to_dict("records")
    assert "public_version" in row["setting_json"]
    dataset = data.load("digits")
    setting = run_specs("feddf", max_steps="2", public="my_world:SHAPES:40")[0].setting
    alone = split(setting, dataset.train_y, 0, dataset.train_groups).hash
    assert row["partition_hash"] != alone
    assert sweep(arguments) == 0  # nothing to do
    assert len(Store(world / "out").runs()) == 1

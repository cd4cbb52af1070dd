"""What a captured program must not mistake: another member's numbers, another structure, what stood there before."""

from __future__ import annotations

import gc
import warnings
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pytest
import torch
from conftest import largest_gap, simulate
from torch import Tensor

from algorithms.base import Algorithm, Params, Plugin, hyper
from algorithms.fedavg import FedAvg
from algorithms.fedprox import FedProx
from algorithms.losses import cross_entropy, kl
from bench.engine.pack import Pack
from bench.engine.simulation import Simulation
from bench.engine.stacked.backend import KEPT_PROGRAMS, Stacked
from bench.engine.stacked.captures import Act, traced
from bench.engine.stacked.choices import Always
from bench.engine.stacked.probe import Preparer
from bench.engine.stacked.programs import Captured
from bench.engine.stacked.stack import Stack
from bench.selftest.toy import EQUAL_SIZES

pytestmark = pytest.mark.usefixtures("short_stacks")
ROUNDS = 4
Fields = dict[str, Any]


def captured(limit: int | None = None, **options: Any) -> Stacked:
    return Stacked(lambda: Captured(Preparer(traced, compiler=None, warm_up=1, **options)), limit=limit)


def gaps(
    members: list[tuple[Algorithm, Fields]], limit: int | None = None, trainer: Stacked | None = None
) -> list[float]:
    """Between each member of a captured pack and its lone run client by client; nothing may fall back."""
    alone = [simulate(made, "loop", **fields) for made, fields in members]
    packed = [simulate(made, "stacked", **fields) for made, fields in members]
    for run in alone:
        run.advance(ROUNDS)
    pack = Pack(packed)
    pack.trainer = trainer or captured(limit)
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        pack.advance(ROUNDS)
    assert not pack.failures
    return [largest_gap(one, other) for one, other in zip(alone, packed, strict=True)]


@dataclass(frozen=True)
class Shrinks(Algorithm):
    """A part of its message is shorter in each round."""

    def broadcast(self, fed: Any, server: Any) -> Any:
        return {"params": server.params, "votes": torch.arange(1.0, 6 - server.round, dtype=torch.float64)}

    def local_loss(self, net: Any, local: Any, batch: Any, message: Any, memory: Any, plan: Any) -> Tensor:
        return cross_entropy(net(local["params"], batch.x).logits, batch.y) / message["votes"].sum()


@dataclass(frozen=True)
class PerClient(Algorithm):
    """A part of its message is as long as there are clients."""

    def broadcast(self, fed: Any, server: Any) -> Any:
        return {"params": server.params, "votes": torch.ones(fed.num_clients, dtype=torch.float64)}

    def local_loss(self, net: Any, local: Any, batch: Any, message: Any, memory: Any, plan: Any) -> Tensor:
        return cross_entropy(net(local["params"], batch.x).logits, batch.y) / message["votes"].sum()


@dataclass(frozen=True)
class EveryOtherRound(Algorithm):
    """Distils in rounds 2, 4, ... alone."""

    def broadcast(self, fed: Any, server: Any) -> Any:
        return {"params": server.params, "distils": float(server.round % 2)}

    def teachers(self, message: Any, memory: Any) -> dict[str, Params]:
        return {"global": message["params"]} if message["distils"] else {}

    def local_loss(self, net: Any, local: Any, batch: Any, message: Any, memory: Any, plan: Any) -> Tensor:
        student = net(local["params"], batch.x).logits
        loss = cross_entropy(student, batch.y)
        return loss + kl(batch.teacher["global"].logits, student) if "global" in batch.teacher else loss


def test_members_of_a_later_part_keep_their_own_weight_decay() -> None:
    """Each part is of members that share a value; the parts have one size."""
    decays = [0.0, 0.0, 0.5, 0.5]
    members = [(FedAvg(), {"weight_decay": decay, "seed": seed}) for seed, decay in enumerate(decays)]
    assert max(gaps([(made, {**fields, "sizes": EQUAL_SIZES}) for made, fields in members], limit=6)) < 1e-12


def test_members_that_differ_in_no_rate_share_it_as_a_number() -> None:
    """Decay 0.5 is fixed in what is captured for the first two; the others, of decay 0, must not replay it."""
    trainer = captured()
    for decay in (0.5, 0.0):
        members = [(FedAvg(), {"weight_decay": decay, "seed": seed, "lr_decay": 0.5}) for seed in (0, 1)]
        assert max(gaps(members, trainer=trainer)) < 1e-12


def test_members_of_unlike_form_do_not_replay_each_other() -> None:
    forms = ["sum", "sum", "mean_per_tensor", "mean_per_tensor"]
    members = [(FedProx(0.5, form), {"seed": seed, "sizes": EQUAL_SIZES}) for seed, form in enumerate(forms)]
    assert max(gaps(members)) < 1e-12


@pytest.mark.parametrize("number", [1, 2])
def test_a_message_may_shrink(number: int) -> None:
    assert max(gaps([(Shrinks(), {"seed": seed}) for seed in range(number)])) < 1e-12


def test_messages_may_be_as_long_as_there_are_clients() -> None:
    sizes = [EQUAL_SIZES, (6,) * 8]
    assert max(gaps([(PerClient(), {"sizes": own}) for own in sizes for _ in range(2)])) < 1e-12


def test_teachers_may_come_and_go() -> None:
    options = {"model": "cnn_digits", "augmentation": "flip_crop", "local_epochs": 1}
    members = [(EveryOtherRound(), {**options, "seed": seed}) for seed in range(2)]
    one_way = captured(choices=Always("separate"))  # a choice would trace every way of every program
    assert max(gaps(members, trainer=one_way)) < 1e-12


def test_programs_that_are_no_longer_used_are_let_go() -> None:
    run = simulate(Shrinks(), "stacked", rounds=5)
    run.trainer = captured()
    run.advance(5)
    assert isinstance(run.trainer, Stacked)
    assert len(run.trainer._programs) == KEPT_PROGRAMS


def test_a_program_keeps_what_it_reads_but_not_the_round_of_its_capture() -> None:
    """The problem has constants that are read; a round's tasks would only fill memory."""
    run = simulate("fedgkd", "stacked", sizes=EQUAL_SIZES)
    trainer = run.trainer = captured()
    gc.collect()
    before = {id(thing) for thing in gc.get_objects() if type(thing) is Stack}
    run.advance(2)
    gc.collect()
    assert {id(thing) for thing in gc.get_objects() if type(thing) is Stack} <= before
    (made,) = trainer._programs
    assert isinstance(made.program, Captured)
    assert [reads for _, reads in made.program._programs.values()] == [run.problem]


def test_rounds_may_be_shorter_than_a_warm_up() -> None:
    """Two steps a round, three to warm up, which nothing shows of."""
    captures: list[int] = []

    def counted(step: Act) -> Act:
        captures.append(1)
        return traced(step)

    run = simulate("fedavg", "stacked", sizes=EQUAL_SIZES, local_epochs=1, batch_size=6, participation=1.0)
    run.trainer = Stacked(lambda: Captured(Preparer(counted, compiler=None, warm_up=3)))
    run.advance(4)
    assert len(captures) == 1
    alone = simulate("fedavg", "loop", sizes=EQUAL_SIZES, local_epochs=1, batch_size=6, participation=1.0)
    alone.advance(4)
    assert largest_gap(alone, run) < 1e-12


# Algorithms from outside, whether captured or not.


@dataclass(frozen=True)
class Derived(Algorithm):
    """Keeps a number that it made of another."""

    weight: float = hyper(0.5, 0)

    def __post_init__(self) -> None:
        vars(self)["twice"] = 2 * self.weight

    def local_loss(self, net: Any, local: Any, batch: Any, message: Any, memory: Any, plan: Any) -> Tensor:
        return cross_entropy(net(local["params"], batch.x).logits, batch.y) * vars(self)["twice"]


@dataclass(frozen=True)
class Wraps(Algorithm):
    """Holds another algorithm without being a plug-in."""

    base: Algorithm = field(default_factory=FedProx)

    def local_loss(self, *given: Any) -> Tensor:
        return self.base.local_loss(*given)


def packed(*members: Algorithm) -> tuple[Pack, list[Simulation]]:
    pack = Pack([simulate(made, "stacked") for made in members])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        pack.advance(ROUNDS)
    alone = [simulate(made, "loop") for made in members]
    for run in alone:
        run.advance(ROUNDS)
    return pack, alone


@pytest.mark.parametrize("kind", [Derived, lambda value: Wraps(FedProx(value)), lambda value: Plugin(FedProx(value))])
def test_no_member_computes_with_anothers_number(kind: Callable[[float], Algorithm]) -> None:
    pack, alone = packed(kind(0.1), kind(0.6))
    assert not pack.failures
    assert max(largest_gap(one, other) for one, other in zip(alone, pack.members, strict=True)) < 1e-12


@pytest.mark.parametrize("state", [None, "text", {"later": 1.0}])
def test_what_cannot_be_stacked_is_refused(state: Any) -> None:
    """Two clients whose memories differ in names, or in what is no tensor."""

    @dataclass(frozen=True)
    class Remembers(Algorithm):
        def upload(self, net: Any, local: Any, data: Any, message: Any, memory: Any, plan: Any) -> Any:
            return {"params": local["params"]}, {"kept": state}

    run = simulate(Remembers(), "stacked", participation=0.5)
    with pytest.raises(RuntimeError, match="has to have one structure"):
        run.advance(ROUNDS)


def test_numbers_that_are_drawn_have_to_be_tensors() -> None:
    """A stack computes all clients' steps with one number: it must not be the first client's for everybody."""

    @dataclass(frozen=True)
    class Draws(Algorithm):
        def noise(self, fed: Any, generator: torch.Generator, batch_size: int) -> Any:
            return {"scale": float(torch.rand((), generator=generator))}

    with pytest.raises(RuntimeError, match="has to have one structure"):
        simulate(Draws(), "stacked").advance(1)

"""Captured steps, as traces of operations: nothing is fixed that changes, and nothing of another run is replayed."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from conftest import apart, largest_gap, nothing_falls_back, simulate, trained
from torch import Tensor

from algorithms.base import Algorithm, hyper
from algorithms.fedprox import FedProx
from algorithms.losses import cross_entropy
from bench.engine.stacked import backend, step_executors
from bench.engine.stacked.backend import Stacked
from bench.engine.stacked.step_executors import Act, Captured, traced
from bench.engine.together import advance_together
from bench.selftest.candidate import candidate
from bench.selftest.toy import EQUAL_SIZES

pytestmark = pytest.mark.usefixtures("short_stacks")


def on_traces(captures: list[Act] | None = None) -> Stacked:
    """A backend whose steps are captured as a GPU's would be; `captures` collects them."""

    def capture(step: Act) -> Act:
        if captures is not None:
            captures.append(step)
        return traced(step)

    return Stacked(lambda: Captured(capture, warm_ups=1))


def check(members: list[tuple[Algorithm, dict[str, Any]]]) -> None:
    """Each member of a captured pack equals its lone run client by client."""
    alone = [trained(algorithm, **fields) for algorithm, fields in members]
    pack = [simulate(algorithm, "stacked", **fields) for algorithm, fields in members]
    pack[0].trainer = on_traces()
    with nothing_falls_back():
        failures = advance_together(pack, 2)
    assert not failures
    assert max(largest_gap(one, other) for one, other in zip(alone, pack, strict=True)) < 1e-12


@pytest.mark.parametrize(
    "options",
    [
        {"lr_decay": 0.8, "momentum": 0.9, "weight_decay": 0.01, "clip_norm": 0.5},
        {"optimizer": "adam", "lr": 0.01, "lr_decay": 0.8, "weight_decay": 0.01},
        {"model": "cnn_digits", "augmentation": "flip_crop"},
    ],
    ids=["momentum", "adam", "augmented"],
)
@pytest.mark.slow
def test_a_captured_step_fixes_nothing_that_changes(options: dict[str, Any]) -> None:
    captured = simulate("fedgkd", "stacked", **options)
    captured.trainer = on_traces()
    with nothing_falls_back():
        captured.advance(2)
    assert largest_gap(trained("fedgkd", "stacked", **options), captured) < 1e-12


# One of each kind: plain, teachers, memory, generators, requests to clients, control variates,
# server steps, two rows.
KINDS = ["fedgkd", "scaffold"]
LONGER = ["moon", "fedgen", "fedkf", "feddkd", "feddf", "fedavg_t1"]


@pytest.mark.parametrize(
    "name", [*KINDS, *(pytest.param(name, marks=pytest.mark.slow) for name in LONGER)]
)
def test_each_kind_of_algorithm_can_be_captured(name: str) -> None:
    """Round 2 replays what round 1 captured."""
    options = {"sizes": EQUAL_SIZES, "local_epochs": 3}
    runs = [candidate(name).simulate("stacked", seed=seed, **options) for seed in (0, 1)]
    pack = runs
    pack[0].trainer = on_traces()
    with nothing_falls_back():
        failures = advance_together(pack, 2)
    assert not failures
    assert apart(pack) is None
    for seed, run in enumerate(runs):
        assert largest_gap(candidate(name).run(2, "loop", seed=seed, **options), run) < 1e-10


def test_a_step_is_captured_for_few_sizes_of_the_stack_and_then_replayed() -> None:
    """Five clients that leave at five different times."""
    captures: list[Act] = []
    options = {
        "sizes": tuple(range(1, 6)),
        "participation": 1.0,
        "batch_size": 1,
        "local_epochs": 1,
    }
    stacked = simulate("fedavg", "stacked", **options)
    stacked.trainer = on_traces(captures=captures)
    stacked.advance(1)
    assert len(captures) == 4, "5, 4, 2 and 1"
    stacked.advance(1)
    assert len(captures) == 4
    assert largest_gap(trained("fedavg", **options), stacked) < 1e-12


@pytest.mark.parametrize("name", ["fedavg", "fedgkd"])
def test_a_larger_client_of_a_later_round_needs_no_other_capture(name: str) -> None:
    """Buffers have room for the largest clients from round 1 on, with teachers' tables, too."""
    captures: list[Act] = []
    options = {
        "sizes": (2, 3, 3, 4, 5, 12, 19),
        "participation": 3 / 7,
        "batch_size": 2,
        "local_epochs": 1,
        "seed": 1,
    }
    captured = simulate(name, "stacked", **options)
    captured.trainer = on_traces(captures=captures)
    largest = [max(captured.participants(number)) for number in (1, 2, 3, 4)]
    assert largest[0] < max(largest)
    captured.advance(4)
    assert len(captures) <= 3, "one for each of 3, 2 and 1 clients"
    assert largest_gap(trained(name, rounds=4, **options), captured) < 1e-12


@dataclass(frozen=True)
class Shrinks(Algorithm):
    """A part of its message is shorter in each round."""

    def broadcast(self, fed: Any, server: Any) -> Any:
        return {
            "params": server.params,
            "votes": torch.arange(1.0, 6 - server.round, dtype=torch.float64),
        }

    def local_loss(
        self, net: Any, local: Any, batch: Any, message: Any, memory: Any, plan: Any
    ) -> Tensor:
        return cross_entropy(net(local["params"], batch.x).logits, batch.y) / message["votes"].sum()


@pytest.mark.slow
def test_members_of_unlike_form_do_not_replay_each_other() -> None:
    forms = enumerate(["sum", "sum", "mean_per_tensor", "mean_per_tensor"])
    check([(FedProx(0.5, form), {"seed": seed, "sizes": EQUAL_SIZES}) for seed, form in forms])


@pytest.mark.slow
def test_a_message_may_shrink() -> None:
    check([(Shrinks(), {"seed": seed}) for seed in range(2)])


@dataclass(frozen=True)
class Shifts(Algorithm):
    """Before each step one part of a client's state takes the place of another."""

    def start(self, fed: Any, message: Any, memory: Any, generator: Any) -> Any:
        zero = torch.zeros((), dtype=torch.float64)
        return {"params": message["params"], "now": zero, "before": zero}

    def before_step(self, net: Any, local: Any, batch: Any, message: Any, plan: Any) -> Any:
        return {**local, "now": local["now"] + 1, "before": local["now"]}

    def local_loss(
        self, net: Any, local: Any, batch: Any, message: Any, memory: Any, plan: Any
    ) -> Tensor:
        return (1 + local["before"] / 2) * cross_entropy(
            net(local["params"], batch.x).logits, batch.y
        )


class Remembers(Shifts):
    """Keeps the model as it was before the step."""

    def before_step(self, net: Any, local: Any, batch: Any, message: Any, plan: Any) -> Any:
        apart = sum(
            (local["params"][name] - message["params"][name]).square().sum()
            for name in net.trainable
        )
        return {**local, "previous": local["params"], "before": apart}

    def local_loss(
        self, net: Any, local: Any, batch: Any, message: Any, memory: Any, plan: Any
    ) -> Tensor:
        moved = sum(
            (local["params"][name] - local["previous"][name]).square().sum()
            for name in net.trainable
        )
        return super().local_loss(net, local, batch, message, memory, plan) + 5 * moved


@pytest.mark.filterwarnings("ignore:.*not captured")
@pytest.mark.parametrize("algorithm", [Shifts, Remembers])
@pytest.mark.parametrize("trainer", [Stacked, on_traces])
def test_a_part_of_the_state_may_become_another(trainer: Any, algorithm: Any) -> None:
    stacked = simulate(algorithm(), "stacked")
    stacked.trainer = trainer()
    stacked.advance(2)
    assert largest_gap(trained(algorithm()), stacked) < 1e-12


def test_a_step_that_cannot_be_captured_is_executed_as_it_comes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def refuse(step: Act) -> Act:
        raise RuntimeError("it asks for a value")

    given_back: list[int] = []
    monkeypatch.setattr(backend, "give_back_gpu_memory", lambda: given_back.append(1))
    refused = simulate("fedavg", "stacked")
    refused.trainer = Stacked(lambda: Captured(refuse))
    with pytest.warns(UserWarning, match="it asks for a value"):
        refused.advance(1)
    with nothing_falls_back():  # it is tried, and said, once
        refused.advance(1)
    assert len(given_back) == 1, "the memory of the attempt"
    assert largest_gap(trained("fedavg", "stacked"), refused) < 1e-12


def test_a_capture_without_room_is_out_of_memory() -> None:
    def fail() -> None:
        raise RuntimeError("CUDA error: out of memory")

    executor = Captured(lambda act: act)
    with pytest.raises(torch.OutOfMemoryError):
        executor.run((), fail, 1, None)


def test_buffers_keep_their_places_and_their_room() -> None:
    """A larger tree gets a buffer for both, and whatever was captured is captured anew."""
    executor = Captured(lambda step: step, warm_ups=1)
    executor.place("clock", torch.zeros(1))
    rows = torch.arange(6.0).view(2, 3)
    first = executor.place("a", {"x": rows, "y": rows[:, :2].long()}, 1, (4,))
    assert first["x"].shape == (4, 3)
    assert torch.equal(first["x"][:2], rows)
    assert not first["x"][2:].any()
    steps: list[int] = []
    executor.run("key", lambda: steps.append(1), 2, None)
    assert executor.place("a", {"x": rows[1:], "y": rows[1:, :2].long()}, 1, (4,)) is first
    assert torch.equal(first["x"][0], rows[1])
    executor.run("key", lambda: steps.append(2), 2, None)
    assert steps == [1] * 4 + [1] * 1
    longer = torch.ones(5, 3)
    second = executor.place("a", {"x": longer, "y": longer[:3, :2].long()}, 1, (4,))
    assert (len(second["x"]), len(second["y"])) == (5, 4)
    executor.run("key", lambda: steps.append(3), 1, None)
    assert steps[-2:] == [3, 3], "a step before the capture, and one that is replayed"
    wider = executor.place("a", {"x": torch.ones(1, 4), "y": longer[:1].long()}, 1, (4,))
    assert wider["x"].shape == (4, 4)
    whole = executor.place("b", rows, 0)
    assert whole.shape == (2, 3)
    assert executor.place("b", rows[:1], 0) is not whole


def test_a_capture_leaves_what_its_steps_write() -> None:
    taken: list[float] = []

    def capture(step: Act) -> Act:
        step()
        return step

    executor = Captured(capture)
    total = executor.place("totals", torch.zeros(1))
    other = executor.place("other", torch.zeros(1))

    def step() -> None:
        total.add_(1)
        other.add_(1)
        taken.append(float(total))

    executor.run("key", step, 3, None)
    assert float(total) == 3
    assert taken == [1.0] * (3 + 1) + [1.0, 2.0, 3.0]
    assert float(other) == 7, "it is none that a step writes"


@pytest.mark.parametrize("has_workspaces", [True, False])
def test_unused_memory_is_freed_with_the_workspaces(
    has_workspaces: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    done: list[str] = []
    clear = (lambda: done.append("workspaces")) if has_workspaces else None
    monkeypatch.setattr(torch._C, "_cuda_clearCublasWorkspaces", clear, raising=False)
    monkeypatch.setattr(torch.cuda, "empty_cache", lambda: done.append("cache"))
    step_executors._free_unused()
    assert done == (["workspaces", "cache"] if has_workspaces else ["cache"])


class Allocator:
    """What torch's allocator of CUDA memory keeps of captures, in torch of some version.

    Attributes:
        directed: pools to which allocations go at present.
        uses: graphs of each pool, whose memory can be freed once it has none.
    """

    def __init__(self, version: str) -> None:
        self.version = torch.torch_version.TorchVersion(version)
        self.directed: list[int] = []
        self.uses: dict[int, int] = {}
        self.invalid = False  # the capture that goes on

    def stop(self, device: int, pool: int) -> None:
        if pool not in self.directed:
            raise RuntimeError("endAllocatePool: not currently recording to mempool_id")
        self.directed.remove(pool)

    def release(self, device: int, pool: int) -> None:
        self.uses[pool] -= 1
        assert self.uses[pool] >= 0, "empty_cache would fail from now on"


class PoolGraph:
    """A graph of `Allocator`'s captures; `instantiates`: whether a captured one can be replayed."""

    instantiates = True

    def __init__(self, allocator: Allocator) -> None:
        self._allocator = allocator
        self._pool = 0
        self._complete = False

    def capture_begin(self, pool: int) -> None:
        self._pool = pool
        self._allocator.invalid = False
        self._allocator.directed.append(pool)
        self._allocator.uses[pool] = self._allocator.uses.get(pool, 0) + 1

    def capture_end(self) -> None:
        if not self._allocator.invalid or self._allocator.version >= "2.12":
            self._allocator.stop(0, self._pool)
        if self._allocator.invalid:
            raise RuntimeError("operation failed due to a previous error during capture")
        self._complete = True
        if not self.instantiates:
            raise RuntimeError("CUDA error: out of memory")

    def pool(self) -> int:
        if not self._complete:
            raise RuntimeError("Called CUDAGraph::pool() without a preceding successful capture.")
        return self._pool

    def replay(self) -> None:
        pass

    def __del__(self) -> None:
        if self._complete or (self._pool and self._allocator.version >= "2.14"):
            self._allocator.release(0, self._pool)


@pytest.fixture(params=["2.8.0", "2.11.0+cu130", "2.12.1", "2.13.0", "2.14.1+cu130"])
def allocator(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Allocator]:
    made = Allocator(request.param)
    handles = iter(range(1, 100))
    monkeypatch.setattr(torch, "__version__", made.version)
    monkeypatch.setattr(torch._C, "_cuda_endAllocateToPool", made.stop, raising=False)
    monkeypatch.setattr(torch._C, "_cuda_releasePool", made.release, raising=False)
    monkeypatch.setattr(step_executors, "_free_unused", lambda: None)
    monkeypatch.setattr(step_executors, "_side_stream", lambda device: None)
    for name, stand_in in {
        "CUDAGraph": lambda: PoolGraph(made),
        "graph_pool_handle": lambda: next(handles),
        "synchronize": lambda: None,
        "current_device": lambda: 0,
        "stream": lambda stream: nullcontext(),
    }.items():
        monkeypatch.setattr(torch.cuda, name, stand_in)
    gc.freeze()  # what other tests left need not be searched
    yield made
    gc.unfreeze()


@pytest.mark.parametrize("failing", ["step", "invalid step", "instantiation"])
def test_a_failed_capture_gives_its_memory_back(
    failing: str, allocator: Allocator, monkeypatch: pytest.MonkeyPatch
) -> None:
    capture = step_executors.cuda_graphs()
    replay = capture(lambda: None)

    def fail() -> None:
        allocator.invalid = failing == "invalid step"
        if failing != "instantiation":
            raise ValueError("of the step")

    monkeypatch.setattr(PoolGraph, "instantiates", failing != "instantiation")
    with pytest.raises(RuntimeError if failing == "instantiation" else ValueError):
        capture(fail)
    gc.collect()
    assert allocator.directed == []
    assert allocator.uses == {1: 1}, "of the graph that is still there"
    monkeypatch.setattr(PoolGraph, "instantiates", True)
    again = capture(lambda: None)
    assert allocator.uses == {1: 1, 2: 1}, "torch does not accept the first pool any more"
    del replay, again
    gc.collect()
    assert allocator.uses == {1: 0, 2: 0}


def test_memories_that_differ_in_structure_are_refused() -> None:
    @dataclass(frozen=True)
    class Keeps(Algorithm):
        def upload(
            self, net: Any, local: Any, data: Any, message: Any, memory: Any, plan: Any
        ) -> Any:
            return {"params": local["params"]}, {"kept": {"later": 1.0}}

    with pytest.raises(RuntimeError, match="structure"):
        simulate(Keeps(), "stacked", participation=0.5).advance(4)


@dataclass(frozen=True)
class Derived(Algorithm):
    """Keeps a number that it made of another."""

    weight: float = hyper(0.5, 0)

    def __post_init__(self) -> None:
        vars(self)["twice"] = 2 * self.weight

    def local_loss(
        self, net: Any, local: Any, batch: Any, message: Any, memory: Any, plan: Any
    ) -> Tensor:
        return cross_entropy(net(local["params"], batch.x).logits, batch.y) * vars(self)["twice"]


@pytest.mark.filterwarnings("ignore:runs of this pack")
def test_no_member_computes_with_anothers_number() -> None:
    algorithms = [Derived(weight) for weight in (0.1, 0.6)]
    pack = [simulate(algorithm, "stacked") for algorithm in algorithms]
    assert not advance_together(pack, 2)
    for algorithm, member in zip(algorithms, pack, strict=True):
        assert largest_gap(trained(algorithm), member) < 1e-12

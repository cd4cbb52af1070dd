"""Stacked convolutions in every way, and the choice of the fastest program of a step."""

from __future__ import annotations

import json
import math
import re
import shutil
import warnings
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from conftest import largest_gap, simulate
from torch import Tensor
from torch.func import grad, jvp, vmap

from bench.engine.pack import Pack
from bench.engine.stacked import captures, convolutions, probe
from bench.engine.stacked.backend import Stacked
from bench.engine.stacked.captures import Act, compiled, traced
from bench.engine.stacked.choices import Always, Choices
from bench.engine.stacked.convolutions import WAYS, Shape, computed, copied_patches
from bench.engine.stacked.probe import COMPILED, Preparer, Step
from bench.engine.stacked.programs import Captured
from bench.engine.stacked.rooms import FixedRoom
from bench.engine.stacked.stack import SIZES
from bench.engine.state import StateFolder
from bench.selftest.toy import EQUAL_SIZES

pytestmark = pytest.mark.usefixtures("short_stacks")
CLIENTS = 3
needs_compiler = pytest.mark.skipif(shutil.which("g++") is None, reason="no C++ compiler")


def images(*shape: int) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(0), dtype=torch.float64)


# Convolutions.


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize(
    "options",
    [
        {"padding": 1},
        {"stride": 2, "padding": (2, 1), "dilation": 2},
        {"stride": (1, 2), "groups": 2},
        {"padding": "same"},
    ],
    ids=["padded", "dilated", "in groups", "padded in words"],
)
@pytest.mark.parametrize("biased", [True, False])
def test_each_way_is_every_clients_own_convolution(way: str, options: dict[str, Any], biased: bool) -> None:
    x, weight = images(CLIENTS, 2, 4, 7, 6), images(CLIENTS, 6, 4 // options.get("groups", 1), 3, 3)
    bias = images(CLIENTS, 6) if biased else None

    def value(x: Tensor, weight: Tensor, bias: Any) -> Tensor:
        return torch.tanh(F.conv2d(x, weight, bias, **options)).sum()

    def found(stacked: bool) -> list[Tensor]:
        leaves = [part.clone().requires_grad_() for part in (x, weight, bias) if part is not None]
        given = [*leaves, None] if bias is None else leaves
        if stacked:
            with computed(way):
                values = vmap(value, in_dims=(0, 0, 0 if biased else None))(*given)
        else:
            one_by_one = zip(given[0], given[1], given[2] if biased else [None] * CLIENTS, strict=True)
            values = torch.stack([value(*each) for each in one_by_one])
        return [values, *torch.autograd.grad(values.sum(), leaves)]

    for stacked, alone in zip(found(True), found(False), strict=True):
        assert torch.allclose(stacked, alone, rtol=0, atol=1e-12)


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("dims", [(None, 0), (0, None)], ids=["one batch", "one model"])
def test_clients_may_share_a_batch_or_a_model(way: str, dims: tuple[int | None, int | None]) -> None:
    x, weight = images(CLIENTS, 2, 4, 7, 6), images(CLIENTS, 6, 4, 3, 3)
    given = [part if axis == 0 else part[0] for part, axis in zip((x, weight), dims, strict=True)]
    with computed(way):
        made = vmap(F.conv2d, in_dims=dims)(*given)
    xs, weights = (part if axis == 0 else [part] * CLIENTS for part, axis in zip(given, dims, strict=True))
    alone = torch.stack([F.conv2d(own, kernel) for own, kernel in zip(xs, weights, strict=True)])
    assert torch.allclose(made, alone, rtol=0, atol=1e-12)


@pytest.mark.parametrize("way", WAYS)
def test_a_hook_may_differentiate_within_a_stack(way: str) -> None:
    """As FedKF trains generators in its `before_step`; and its own gradient is differentiated once more."""
    x, weight, bias = images(CLIENTS, 2, 4, 5, 5), images(CLIENTS, 6, 4, 3, 3), images(CLIENTS, 6)

    def slope(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
        inner: Tensor = grad(lambda given: torch.tanh(F.conv2d(given, weight, bias)).square().sum())(x)
        return inner.square().sum()

    leaves = [part.requires_grad_() for part in (weight, bias)]
    alone = torch.stack([slope(*each) for each in zip(x, *leaves, strict=True)])
    with computed(way):
        made = vmap(slope)(x, *leaves)
    slopes = [torch.autograd.grad(values.sum(), leaves) for values in (made, alone)]
    for own, other in zip(*slopes, strict=True):
        assert torch.allclose(own, other, rtol=0, atol=1e-10)


@pytest.mark.filterwarnings("ignore:.torch.jit.script. is deprecated")  # torch's own use, for forward derivatives
@pytest.mark.parametrize("way", WAYS)
def test_hooks_may_differentiate_forward_and_map_models(way: str) -> None:
    x, weights, bias = images(CLIENTS, 2, 4, 5, 5), images(CLIENTS, 2, 6, 4, 3, 3), images(6)

    def ensemble(x: Tensor, weights: Tensor) -> Tensor:
        """Of two models of each client, along x and their own weights."""
        convolve: Callable[..., Tensor] = F.conv2d
        made, slope = jvp(
            lambda *given: vmap(lambda w: convolve(given[0], w, bias))(given[1]), (x, weights), (x, weights)
        )
        return (made + slope).sum(0)

    alone = torch.stack([ensemble(*each) for each in zip(x, weights, strict=True)])
    with computed(way):
        made = vmap(ensemble)(x, weights)
    assert torch.allclose(made, alone, rtol=0, atol=1e-12)


@pytest.mark.parametrize("convolve", [F.conv1d, F.conv3d, F.conv_transpose1d, F.conv_transpose2d, F.conv_transpose3d])
def test_autocast_reaches_other_convolutions(convolve: Callable[..., Tensor]) -> None:
    axes = int(re.findall(r"\d", convolve.__name__)[0])
    x, weight = images(CLIENTS, 2, 4, *[5] * axes).float(), images(CLIENTS, 4, 4, *[3] * axes).float()
    with torch.autocast("cpu", torch.bfloat16), computed("grouped"):
        assert vmap(lambda x, w: convolve(x, weight=w))(x, weight).dtype == torch.bfloat16


def test_autocast_reaches_a_rectifier_with_weights_of_its_own() -> None:
    """The loop's computes in bfloat16; a stack's was given an input in that, and weights in float32."""
    x, weight = images(CLIENTS, 2, 4, 5, 5).bfloat16(), images(CLIENTS, 4).float()
    with torch.autocast("cpu", torch.bfloat16):
        alone = torch.stack([F.prelu(*each) for each in zip(x, weight, strict=True)])
        with computed("grouped"):
            assert all(torch.equal(vmap(prelu)(x, weight), alone) for prelu in (F.prelu, Tensor.prelu))


@pytest.mark.filterwarnings("ignore:There is a performance drop")  # of vmap, which has no attention of its own on a CPU
def test_autocast_reaches_attention_and_leaves_its_mask() -> None:
    x, queries = images(CLIENTS, 2, 4, 6, 8).bfloat16(), images(CLIENTS, 2, 4, 3, 8).float()
    mask = torch.ones(3, 6, dtype=torch.bool).tril()

    def attend(queries: Tensor, x: Tensor) -> Tensor:
        return F.scaled_dot_product_attention(queries, x, x, attn_mask=mask)

    with torch.autocast("cpu", torch.bfloat16):
        alone = torch.stack([attend(*each) for each in zip(queries, x, strict=True)])
        with computed("grouped"):
            made = vmap(attend)(queries, x)
    assert made.dtype == torch.bfloat16
    torch.testing.assert_close(made, alone)


@pytest.mark.parametrize("model", ["cnn_digits+bn", "mlp+bn", "cnn_digits"])
def test_bfloat16_is_as_near_to_the_loop_as_to_float32(model: str) -> None:
    runs = [
        simulate("fedavg", backend, model=model, precision=precision, local_epochs=1)
        for backend, precision in (("loop", "bf16"), ("stacked", "bf16"), ("loop", "fp32"))
    ]
    for run in runs:
        run.advance(1)
    alone, stacked, exact = runs
    assert 0 < largest_gap(alone, stacked) <= 3 * largest_gap(alone, exact)


@pytest.mark.parametrize("way", WAYS)
def test_autocast_reaches_stacked_convolutions(way: str) -> None:
    """`vmap` by itself runs them in float32."""

    def made(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
        with torch.autocast("cpu", torch.bfloat16):
            return F.conv2d(x, weight, bias)

    weight = images(CLIENTS, 6, 4, 3, 3).float().requires_grad_()
    with computed(way):
        result = vmap(made)(images(CLIENTS, 2, 4, 5, 5).float(), weight, images(CLIENTS, 6).float())
    assert result.dtype == torch.bfloat16
    (slope,) = torch.autograd.grad(result.sum(), weight)
    assert slope.dtype == torch.float32


@pytest.mark.parametrize("kernel", [(3, 2), (1, 1)])
@pytest.mark.parametrize("shape", [Shape((1, 1), (0, 0), (1, 1), 1), Shape((2, 1), (1, 2), (1, 2), 1)])
def test_copied_patches_are_torchs_own(kernel: tuple[int, int], shape: Shape) -> None:
    x = images(3, 4, 7, 6).requires_grad_()
    own, copied = F.unfold(x, kernel, shape.dilation, shape.padding, shape.stride), copied_patches(x, kernel, shape)
    assert torch.equal(own, copied)
    weights = images(*own.shape)
    ours, theirs = (torch.autograd.grad(patches, x, weights)[0] for patches in (copied, own))
    torch.testing.assert_close(ours, theirs, rtol=1e-14, atol=1e-14)


def test_an_unknown_way_is_refused() -> None:
    with pytest.raises(ValueError, match=r"one of grouped, separate, channels_last, matmul; got 'fast'"):
        computed("fast")


@pytest.mark.parametrize(("algorithm", "way"), [*(("fedgkd", way) for way in WAYS), ("fedkf", "channels_last")])
def test_runs_are_alike_in_every_way(algorithm: str, way: str) -> None:
    options = {"model": "cnn_digits", "augmentation": "flip_crop", "local_epochs": 1}
    alone, stacked = (simulate(algorithm, backend, **options) for backend in ("loop", "stacked"))
    stacked.trainer = on_traces(choices=Always(way))
    alone.advance(2)
    stacked.advance(2)
    assert largest_gap(alone, stacked) < 1e-12


def on_traces(capture: Callable[[Act], Act] = traced, **options: Any) -> Stacked:
    """As on a GPU, programs being traces; whatever makes a step as it comes fails."""
    warnings.simplefilter("error", UserWarning)
    return Stacked(lambda: Captured(Preparer(capture, **{"compiler": None, "warm_up": 1, **options})))


@needs_compiler
def test_a_compiled_run_is_the_run() -> None:
    options = {"model": "cnn_digits", "momentum": 0.9, "lr_decay": 0.8, "participation": 1.0, "local_epochs": 1}
    options["sizes"] = EQUAL_SIZES  # one program, for compiling takes seconds
    alone, fast = (simulate("fedprox", backend, **options) for backend in ("loop", "stacked"))
    made: list[Act] = []

    def counted(step: Act) -> Act:
        made.append(step)
        return compiled(step)

    fast.trainer = on_traces(lambda step: step, compiler=counted, choices=Always("separate" + COMPILED))
    alone.advance(3)
    fast.advance(3)
    assert made
    assert largest_gap(alone, fast) < 1e-12


def test_a_program_is_prepared_for_few_sizes() -> None:
    """Nine clients that leave at nine different times."""
    captures: list[Act] = []

    def counted(step: Act) -> Act:
        captures.append(step)
        return traced(step)

    options = {"sizes": tuple(range(1, 10)), "participation": 1.0, "batch_size": 1, "local_epochs": 1}
    alone, stacked = (simulate("fedavg", backend, **options) for backend in ("loop", "stacked"))
    stacked.trainer = on_traces(counted)
    alone.advance(1)
    stacked.advance(1)
    assert 1 < len(captures) <= SIZES
    assert largest_gap(alone, stacked) < 1e-12


# The choice.


@dataclass
class Toy:
    """A step that adds 1 to what is trained; each way takes as long as it is told."""

    seconds: dict[str, float]
    expected: int = 1
    pieces: dict[str, int] = field(default_factory=dict)
    wrong: str = ""
    failing: dict[str, Exception] = field(default_factory=dict)
    now: float = 0.0
    acts: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.room = FixedRoom()
        self.local = self.room.place("local", {"params": {"w": torch.full((2, 3), 5.0)}})["params"]["w"]
        self.clock = self.room.place("clock", torch.zeros(1, dtype=torch.int64))

    def act(self, way: str) -> None:
        self.acts.append(way)
        if way in self.failing:
            raise self.failing[way]
        self.now += self.seconds[way]
        self.local += -1.0 if way == self.wrong else 1.0
        self.clock += 1

    def compile(self, act: Act) -> Act:
        """Ten times as fast."""
        assert self.acts, "what a first step makes must not become part of the program"

        def fast() -> None:
            before = self.now
            act()
            self.now = before + (self.now - before) / 10

        act()  # as a trace does
        return fast

    def prepare(self, choices: Choices, compiler: Any = None) -> str:
        """The way of the program that is chosen."""
        step = Step(self.act, list(self.seconds), "the work", self.expected, self.pieces)
        program = Preparer(lambda act: act, compiler, choices, "a device")(step, self.room)
        assert bool((self.local == 5).all()), "preparing changes nothing"
        assert not self.clock
        self.acts.clear()
        program()
        assert bool((self.local == 6).all())
        return self.acts[0]


@pytest.fixture
def timed(monkeypatch: pytest.MonkeyPatch) -> Callable[..., Toy]:
    def toy(**given: Any) -> Toy:
        made = Toy(**given)
        monkeypatch.setattr(probe.time, "perf_counter", lambda: made.now)
        return made

    return toy


def test_the_fastest_is_chosen_and_never_timed_again(timed: Callable[..., Toy], tmp_path: Path) -> None:
    path = tmp_path / "programs.json"
    assert timed(seconds={"a": 3e-3, "b": 1e-3, "c": 2e-3}).prepare(Choices(path)) == "b"
    assert json.loads(path.read_text()) == {
        "a device: the work": {"fastest": "b", "microseconds": {"a": 3000.0, "b": 1000.0, "c": 2000.0}}
    }
    later = timed(seconds={"a": 1e-3, "b": 5e-3, "c": 2e-3})
    step = Step(later.act, ["a", "b", "c"], "the work", 1)
    Preparer(lambda act: act, None, Choices(path), "a device")(step, later.room)
    assert set(later.acts) == {"b"}


def test_a_state_brings_the_programs_that_its_run_used(tmp_path: Path) -> None:
    """To another machine, say, which has no file yet."""
    options = {"model": "cnn_digits", "folder": StateFolder(tmp_path), "local_epochs": 1}
    first = simulate("fedavg", "stacked", **options)
    first.trainer = on_traces(choices=first.choices)
    first.advance(1)
    first.save()
    second = simulate("fedavg", "stacked", **options)
    assert second.load()
    assert first.choices.used
    assert {work: second.choices.get(work) for work in first.choices.used} == first.choices.used


def test_what_a_run_used_stands_against_the_file(tmp_path: Path) -> None:
    path = tmp_path / "programs.json"
    Choices(path).put("work", {"a": 1.0, "b": 2.0})
    resumed = Choices(path)
    resumed.adopt({"work": "b"})
    resumed.put("other work", {"a": 1.0})
    assert resumed.get("work") == "b"
    assert resumed.used == {"work": "b", "other work": "a"}


@pytest.mark.parametrize("known", ["unknown", "unknown, compiled"])
def test_a_program_that_there_is_no_longer_is_measured_anew(
    known: str, timed: Callable[..., Toy], tmp_path: Path
) -> None:
    path = tmp_path / "programs.json"
    Choices(path).put("a device: the work", {known: 1.0})
    assert timed(seconds={"a": 2e-3, "b": 1e-3}).prepare(Choices(path)) == "b"
    assert timed(seconds={"a": 2e-3, "b": 9e-3}).prepare(Choices(path)) == "b"


def test_where_no_file_can_be_written_the_fastest_is_still_taken(timed: Callable[..., Toy], tmp_path: Path) -> None:
    (tmp_path / "state").write_text("no folder")
    with pytest.warns(UserWarning, match=r"programs.json cannot be written, so others measure again"):
        assert timed(seconds={"a": 2e-3, "b": 1e-3}).prepare(Choices(tmp_path / "state" / "programs.json")) == "b"


def test_members_of_a_pack_all_know_what_it_used(tmp_path: Path) -> None:
    members = [simulate("fedavg", "stacked", model="cnn_digits", seed=seed) for seed in range(2)]
    members[1].choices.adopt({"work": "a"})
    pack = Pack(members)
    pack.trainer = on_traces(choices=members[0].choices)
    pack.advance(1)
    assert members[0].choices.used == members[1].choices.used
    assert len(members[1].choices.used) > 1


def test_whoever_was_first_decides(timed: Callable[..., Toy], tmp_path: Path) -> None:
    """Two processes that measure at once."""
    one, other = (Choices(tmp_path / "programs.json") for _ in range(2))
    assert one.get("work") is other.get("work") is None
    assert one.put("work", {"a": 1.0, "b": 2.0}) == "a"
    assert other.put("work", {"a": 2.0, "b": 1.0}) == "a"
    assert other.get("work") == "a"


@pytest.mark.parametrize("content", ["", "{", "[]", '{"a device: the work": {"fastest": 1}}'])
def test_a_file_that_nobody_can_read_is_made_anew(content: str, timed: Callable[..., Toy], tmp_path: Path) -> None:
    path = tmp_path / "programs.json"
    path.write_text(content)
    assert timed(seconds={"a": 2e-3, "b": 1e-3}).prepare(Choices(path)) == "b"
    assert json.loads(path.read_text())["a device: the work"]["fastest"] == "b"


def test_what_computes_something_else_is_left_out(timed: Callable[..., Toy]) -> None:
    toy = timed(seconds={"a": 3e-3, "b": 1e-3, "c": 2e-3}, wrong="b")
    with pytest.warns(UserWarning, match="left out, b: ValueError: local: a step's result differs"):
        assert toy.prepare(Choices()) == "c"


def test_a_wrong_convolution_is_left_out_of_a_run(monkeypatch: pytest.MonkeyPatch) -> None:
    """It leaves losses, step counts and all other layers about what they are."""
    product = convolutions._as_product
    monkeypatch.setattr(convolutions, "_as_product", lambda *given: -product(*given))
    stacked = simulate("fedavg", "stacked", model="cnn_digits", local_epochs=1, sizes=EQUAL_SIZES, participation=1.0)
    stacked.trainer = on_traces()
    with pytest.warns(UserWarning, match="left out, matmul: ValueError: local: a step's result differs"):
        stacked.advance(1)


def test_a_program_chosen_before_is_compiled_after_a_first_step(timed: Callable[..., Toy]) -> None:
    toy, choices = timed(seconds={"a": 3e-3, "b": 1e-3}), Choices()
    choices.adopt({"a device: the work": "a, compiled"})
    assert toy.prepare(choices, toy.compile) == "a"


def test_what_is_no_number_is_not_compared() -> None:
    """A diverging run's first result, say, or flags; a result that alone is none is as far away as can be."""
    nan, begun = math.nan, [torch.zeros(2), torch.tensor([True, False])]
    first = [torch.tensor([nan, 2.0]), torch.tensor([False, False])]
    assert probe._distances(first, first, begun) == (0, math.sqrt(5))
    assert probe._distances([torch.tensor([5.0, 3.0]), first[1]], first, begun) == (1, math.sqrt(5))
    assert probe._distances([torch.tensor([nan, nan]), first[1]], first, begun) == (math.inf, math.sqrt(5))


@pytest.mark.parametrize(("ended", "released"), [(True, 0), (False, 1)])
def test_a_failed_capture_gives_its_pool_back_once(ended: bool, released: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Torch fails before it has ended the capture's allocations, or after that: then the graph gives back the pool."""
    given_back: list[object] = []

    class Failing:
        def capture_end(self) -> None:
            raise RuntimeError("invalid")

    def end(device: int, pool: object) -> None:
        if ended:
            raise RuntimeError("not recording")

    monkeypatch.setattr(torch.cuda, "current_device", lambda: 0)
    monkeypatch.setattr(torch._C, "_cuda_endAllocateToPool", end, raising=False)
    monkeypatch.setattr(torch._C, "_cuda_releasePool", lambda device, pool: given_back.append(pool), raising=False)
    with pytest.raises(RuntimeError, match="invalid"):
        captures._end(Failing(), (0, 1))
    assert given_back == [(0, 1)] * released


@pytest.mark.parametrize("error", [RuntimeError("no kernel"), torch.OutOfMemoryError("too large")])
def test_what_fails_is_left_out(error: Exception, timed: Callable[..., Toy]) -> None:
    toy = timed(seconds={"a": 3e-3, "b": 1e-3, "c": 2e-3}, failing={"b": error})
    with pytest.warns(UserWarning, match=f"the work: left out, b: {type(error).__name__}: {error}"):
        assert toy.prepare(Choices()) == "c"


def test_where_the_first_way_fails_another_is_taken(timed: Callable[..., Toy]) -> None:
    toy = timed(seconds={"a": 1e-3, "b": 3e-3, "c": 2e-3}, failing={"a": RuntimeError("no kernel")})
    with pytest.warns(UserWarning, match="the work: left out, a: RuntimeError: no kernel"):
        assert toy.prepare(Choices()) == "c"


def test_where_every_way_fails_the_step_fails(timed: Callable[..., Toy]) -> None:
    toy = timed(seconds={"a": 3e-3, "b": 1e-3}, failing={"a": RuntimeError("no kernel"), "b": RuntimeError("nor here")})
    choices = Choices()
    with pytest.raises(RuntimeError, match="no kernel"), warnings.catch_warnings(action="error"):
        toy.prepare(choices)
    assert bool((toy.local == 5).all())
    assert not choices.used


def test_where_a_known_program_fails_another_is_taken(timed: Callable[..., Toy]) -> None:
    """Of another version of torch, say."""
    failing = {"a": RuntimeError("no kernel"), "b": RuntimeError("nor here")}
    toy, choices = timed(seconds={"a": 3e-3, "b": 1e-3, "c": 2e-3}, failing=failing), Choices()
    choices.adopt({"a device: the work": "b"})
    with pytest.warns(UserWarning, match="left out, (a: RuntimeError: no kernel|b: RuntimeError: nor here)") as said:
        assert toy.prepare(choices) == "c"
    assert len(said) == 2


@pytest.mark.parametrize(
    "error",
    [torch.OutOfMemoryError("too large"), RuntimeError("GET was unable to find an engine to execute this computation")],
)
def test_a_stack_that_does_not_fit_is_not_trained_in_a_slower_way(error: Exception, timed: Callable[..., Toy]) -> None:
    toy = timed(seconds={"a": 1e-3, "b": 3e-3}, failing={"a": error})
    with pytest.raises(type(error), match=str(error)):
        toy.prepare(Choices())
    assert "b" not in toy.acts


def test_cudnn_without_room_to_work_in_is_out_of_memory() -> None:
    def failing(way: str) -> None:
        raise RuntimeError("GET was unable to find an engine to execute this computation")

    program = Captured(Preparer(lambda act: act, None))
    program.room.place("clock", torch.zeros(1, dtype=torch.int64))
    with pytest.raises(torch.OutOfMemoryError, match="unable to find an engine"):
        program.run((), Step(failing), 1)


def test_what_was_compiled_elsewhere_may_run_uncompiled(timed: Callable[..., Toy]) -> None:
    """A machine without a compiler goes on from another's state."""
    toy, choices = timed(seconds={"a": 3e-3, "b": 1e-3}), Choices()
    choices.adopt({"a device: the work": "a, compiled"})

    def missing(act: Act) -> Act:
        raise RuntimeError("no C++ compiler")

    with pytest.warns(UserWarning, match="the work: left out, a, compiled: RuntimeError: no C"):
        assert toy.prepare(choices, missing) == "a"


@pytest.mark.parametrize(
    ("expected", "pieces", "fastest"),
    [(10_000, 1, "b"), (1_000_000, 1, "b, compiled"), (1_000_000, 2, "b"), (2_000_000, 2, "b, compiled")],
)
def test_what_is_long_enough_is_compiled(
    expected: int, pieces: int, fastest: str, timed: Callable[..., Toy], tmp_path: Path
) -> None:
    toy = timed(seconds={"a": 3e-3, "b": 1e-3}, expected=expected, pieces={"b": pieces})
    path = tmp_path / "programs.json"
    assert toy.prepare(Choices(path), toy.compile) == "b"
    kept = json.loads(path.read_text())["a device: the work"]
    assert kept["fastest"] == fastest
    assert ("b, compiled" in kept["microseconds"]) == (fastest == "b, compiled")

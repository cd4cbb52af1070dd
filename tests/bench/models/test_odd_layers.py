"""Odd layers of models from outside: trained as PyTorch trains them, or refused by name."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from conftest import INFO, largest_gap, simulate, trained
from outside_world import place, world
from torch import Tensor, nn

from bench import models
from bench.engine import own_draws
from bench.engine.network import make_module
from bench.engine.trial_passes import stacks
from bench.errors import UsageError

__all__ = ["place", "world"]
SHAPE = INFO.input_shape
SOURCE = """\
import itertools

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn
from torch.nn.utils import parametrizations, weight_norm
from torch.utils.checkpoint import checkpoint

from bench.models import ModelInfo


class Body(nn.Module):
    def __init__(self):
        super().__init__()
        self.dense = nn.Linear(64, 16)
        self.make()

    def make(self):
        pass

    def forward(self, x):
        return self.after(F.relu(self.dense(x.flatten(1))))


class Gru(Body):
    def make(self):
        self.gru = nn.GRU(4, 8, batch_first=True, bidirectional=True)

    def after(self, h):
        return self.gru(h.view(-1, 4, 4))[0][:, -1]


class NormedGru(Body):
    def make(self):
        self.gru = weight_norm(nn.GRU(4, 8, batch_first=True), "weight_hh_l0")

    def after(self, h):
        return self.gru(h.view(-1, 4, 4))[0][:, -1]


class Normed(Body):
    def make(self):
        self.first = weight_norm(nn.Linear(16, 16))
        self.second = parametrizations.weight_norm(nn.Linear(16, 16))
        self.scale = nn.Parameter(torch.tensor(0.7))

    def after(self, h):
        return self.scale * self.second(F.relu(self.first(h)))


class Padded(Body):
    def make(self):
        self.words = nn.Embedding(3, 16, padding_idx=-2)

    def after(self, h):
        return h + self.words((h[:, :3] > 0.1).sum(1) % 3)


class TwiceDropped(Body):
    def make(self):
        drop = nn.Dropout(0.3)
        self.part = nn.Sequential(drop, nn.Linear(16, 16), drop)

    def after(self, h):
        return self.part(h)


class Instances(Body):
    def make(self):
        self.norm = nn.InstanceNorm1d(4, track_running_stats=True)

    def after(self, h):
        return self.norm(h.view(-1, 4, 4)).flatten(1)


class Centred(Body):
    def make(self):
        self.register_buffer("mean", torch.zeros(16))

    def after(self, h):
        if self.training:
            self.mean.mul_(0.5).add_(0.5 * h.detach().mean(0))
            return h - h.mean(0)
        return h - self.mean


class Spectral(Body):
    def make(self):
        self.part = parametrizations.spectral_norm(nn.Linear(16, 16))

    def after(self, h):
        return self.part(h)


class NewBuffer(Body):
    def make(self):
        self.register_buffer("mean", torch.zeros(16))

    def after(self, h):
        if self.training:
            self.mean = 0.5 * self.mean + 0.5 * h.detach().mean(0)
        return h - self.mean


class PlainMean(Body):
    def make(self):
        self.mean = torch.zeros(16)

    def after(self, h):
        if not self.training:
            return h - self.mean
        self.mean = 0.5 * self.mean + 0.5 * h.detach().mean(0)
        return h


class Counter(Body):
    def make(self):
        self.register_buffer("calls", torch.zeros((), dtype=torch.long))

    def after(self, h):
        self.calls += self.training
        return h if self.training else h / (1 + self.calls)


class Cached(Body):
    def make(self):
        self.part = nn.Linear(16, 16)
        self.kept = None

    def after(self, h):
        if self.training:
            return h @ F.normalize(self.part.weight)
        if self.kept is None:
            self.kept = F.normalize(self.part.weight)
        return h @ self.kept


class OneMemory(Body):
    def make(self):
        self.first = nn.Linear(16, 16)
        self.second = nn.Linear(16, 16)
        self.second.weight.data = self.first.weight.data

    def after(self, h):
        return self.second(F.relu(self.first(h)))


class View(Body):
    def make(self):
        self.part = nn.Linear(16, 16)
        self.transposed = self.part.weight.detach().t()

    def after(self, h):
        return F.relu(self.part(h)) @ self.transposed


class Computed(Body):
    def make(self):
        self.part = nn.Linear(16, 16)
        self.transposed = self.part.weight.t()

    def after(self, h):
        return F.relu(self.part(h)) @ self.transposed


class BatchMean(Body):
    def after(self, h):
        return h - h.mean(0)


class Complex(Body):
    def make(self):
        self.part = nn.Parameter(torch.randn(16, dtype=torch.complex64))

    def after(self, h):
        return (h * self.part).abs()


class Cumulative(Body):
    def make(self):
        self.norm = nn.BatchNorm1d(16, momentum=None)

    def after(self, h):
        return self.norm(h)


class Untracked(Body):
    def make(self):
        self.norm = nn.BatchNorm1d(16, track_running_stats=False)

    def after(self, h):
        return self.norm(h)


class Synced(Body):
    def make(self):
        self.norm = nn.SyncBatchNorm(16)

    def after(self, h):
        return self.norm(h)


class Reentrant(Body):
    def make(self):
        self.part = nn.Linear(16, 16)

    def after(self, h):
        return checkpoint(self.part, h, use_reentrant=True)


class Steep(Body):
    def make(self):
        self.part = nn.Linear(16, 16)

    def after(self, h):
        return torch.sin(1e6 * self.part(torch.sin(1e3 * h)))


class Resting(Body):
    def make(self):
        self.norm = nn.BatchNorm1d(16).requires_grad_(False)

    def train(self, mode=True):
        super().train(mode)
        self.norm.eval()

    def after(self, h):
        return self.norm(h)


class ParametrizedGru(Body):
    def make(self):
        self.gru = parametrizations.weight_norm(nn.GRU(4, 8), "weight_hh_l0")

    def after(self, h):
        return self.gru(h.view(4, -1, 4))[0][-1]


class Remembered(Body):
    def make(self):
        self.features = None
        self.dense.register_forward_hook(lambda *parts: setattr(self, "features", parts[2]))

    def after(self, h):
        return self.features


class Hooked(Body):
    def make(self):
        self.dense.weight.register_hook(lambda grad: grad * 0)

    def after(self, h):
        return h


class SlowNumber(Body):
    def make(self):
        self.share = 0.0

    def after(self, h):
        self.share += 1e-7 * self.training
        return h * (1 + self.share)


class Later(Body):
    def make(self):
        self.state = {"calls": [0]}

    def after(self, h):
        self.state["calls"][0] += self.training
        return h if self.state["calls"][0] < 100 else -h


class Noisy(Body):
    def make(self):
        self.noise = np.random.default_rng(0)

    def after(self, h):
        if not self.training:
            return h
        return h + 1e-5 * torch.from_numpy(self.noise.normal(size=16)).to(h)


class Fresh(Body):
    def after(self, h):
        return h + 1e-5 * torch.from_numpy(np.random.default_rng().normal(size=16)).to(h)


class Drifting(Body):
    def make(self):
        self.mean = torch.zeros(16)

    def after(self, h):
        self.mean = self.mean + 1e-5 * h.detach().mean(0)
        return h + self.mean


class Measured(Body):
    def make(self):
        self.register_buffer("largest", torch.zeros(()))

    def after(self, h):
        if not self.training:
            self.largest.fill_(h.detach().abs().max())
        return h


class Unseeded(Body):
    def make(self):
        noise = np.random.default_rng().normal(size=(16, 64))
        self.dense.weight.data = torch.from_numpy(noise).float()

    def after(self, h):
        return h


class Noted(Body):
    def after(self, h):
        self.size = h.shape[0]
        self.features = h.detach()
        return h


class Moved(Body):
    def make(self):
        self.register_buffer("mean", torch.zeros(16))

    def after(self, h):
        if not self.training:
            return h - self.mean
        self.mean.mul_(0.5).add_(0.5 * h.detach().mean(0))
        return h


class Sequences(Body):
    def make(self):
        self.drop = nn.Dropout(0.3)

    def after(self, h):
        return self.drop(h.view(-1, 4, 4).transpose(0, 1)).transpose(0, 1).flatten(1)


class Frequent(Body):
    def make(self):
        self.words = nn.Embedding(3, 16, scale_grad_by_freq=True)

    def after(self, h):
        return h + self.words((h[:, :3] > 0.1).sum(1) % 3)


class Kept(Body):
    def make(self):
        self.register_buffer("keep", (torch.arange(16) % 3 > 0).float())

    def after(self, h):
        return h.masked_fill(self.keep != 1, 0)


class Late(Body):
    def make(self):
        self.register_buffer("calls", torch.zeros(()))
        self.register_buffer("mean", torch.zeros(16))

    def after(self, h):
        if not self.training:
            return h - self.mean
        self.calls += 1
        if self.calls > 4:
            self.mean.copy_(h.detach().mean(0))
        return h


class Idle(Body):
    def make(self):
        self.part = nn.Linear(16, 16)

    def after(self, h):
        return h


class LargestScaled(Body):
    def after(self, h):
        return h / h.abs().max()


class GradientState(Body):
    def make(self):
        self.seen = 0.0

    def after(self, h):
        if h.requires_grad:
            h.register_hook(self.keep)
        return h

    def keep(self, grad):
        self.seen += float(grad.abs().sum())


class TensorStep(Body):
    def make(self):
        self.step = torch.zeros(())

    def after(self, h):
        self.step += self.training
        return h if self.step < 100 else -h


class ClassStep(Body):
    calls = 0

    def after(self, h):
        ClassStep.calls += self.training
        return h if ClassStep.calls < 100 else -h


class FrozenTeacher(Body):
    def make(self):
        self.teacher = nn.Linear(64, 16).requires_grad_(False)

    def after(self, h):
        if self.training:
            self.teacher.weight.data.mul_(0.9999).add_(self.dense.weight.data, alpha=1e-4)
        return h


class GradientMean(Body):
    def make(self):
        self.register_buffer("mean", torch.zeros(()))

    def after(self, h):
        if h.requires_grad:
            h.register_hook(self.keep)
        return h

    def keep(self, grad):
        with torch.no_grad():
            self.mean.mul_(0.9).add_(0.1 * grad.abs().mean())


class LateTable(Body):
    def make(self):
        self.register_buffer("steps", 1 / torch.arange(1.0, 17.0))

    def after(self, h):
        if not hasattr(self, "table"):
            self.register_buffer("table", self.steps.cos(), persistent=False)
        return h * self.table


class Standardised(Body):
    def make(self):
        self.kernel = nn.Parameter(torch.rand(4, 1, 3, 3) - 0.5)

    def after(self, h):
        rows = self.kernel.view(4, -1)
        rows = (rows - rows.mean(1, keepdim=True)) / rows.std(1, keepdim=True)
        return F.conv2d(h.view(-1, 1, 4, 4), rows.view_as(self.kernel)).flatten(1)


class Momentless(Body):
    def make(self):
        self.norm = nn.BatchNorm1d(16, momentum=0.0)

    def after(self, h):
        return self.norm(h)


class Counted(Body):
    def make(self):
        self.steps = itertools.count()

    def after(self, h):
        return h * 0.5 if self.training and next(self.steps) > 14 else h


class InPlace(Body):
    def forward(self, x):
        return self.after(self.dense(x.sub_(0.5).flatten(1)))

    def after(self, h):
        return h


class Half(Body):
    def after(self, h):
        return h.bfloat16()


class Locked(Body):
    def make(self):
        self.functions = F

    def after(self, h):
        return self.functions.relu(h)


class Scripted(Body):
    def __new__(cls):
        return torch.jit.script(nn.Sequential(nn.Flatten(), nn.Linear(64, 16)))


class Empty(Body):
    def make(self):
        self.nothing = nn.Parameter(torch.zeros(0, 16))

    def after(self, h):
        return h


class Expanded(Body):
    def make(self):
        self.shift = nn.Parameter(torch.zeros(1).expand(16))

    def after(self, h):
        return h + self.shift


class Double(Body):
    def make(self):
        self.second = nn.Linear(16, 16).double()

    def after(self, h):
        return self.second(h.double()).float()


class DroppedAgain(Body):
    def make(self):
        self.drop = nn.Sequential(nn.Dropout(0.5), nn.Linear(16, 16))

    def after(self, h):
        return checkpoint(self.drop, h, use_reentrant=False)


class ExpandedTable(Body):
    def make(self):
        self.register_buffer("table", torch.full((1,), 0.5).expand(16))

    def after(self, h):
        return h * self.table


class Listed(Body):
    def make(self):
        self.layers = [nn.Linear(16, 16)]

    def after(self, h):
        return self.layers[0](h)


class Taught(Listed):
    def after(self, h):
        with torch.no_grad():
            taught = self.layers[0](h.float())
        return h + taught.to(h.dtype)


class Letters(nn.Module):
    def __init__(self, tokens, batchnorm):
        super().__init__()
        self.letters = nn.Embedding(5, 8)

    def forward(self, x):
        used = (x != 0).unsqueeze(-1)
        return (self.letters(x) * used).sum(1) / used.sum(1)


class Padding(Letters):
    def forward(self, x):
        return self.letters(x).mean(1)


class Sparse(Letters):
    def __init__(self, tokens, batchnorm):
        super().__init__(tokens, batchnorm)
        self.letters = nn.Embedding(5, 8, sparse=True)


class Inferred(Letters):
    def __init__(self, tokens, batchnorm):
        with torch.inference_mode():
            super().__init__(tokens, batchnorm)


class Renormed(Letters):
    def __init__(self, tokens, batchnorm):
        super().__init__(tokens, batchnorm)
        self.letters = nn.Embedding(5, 8, max_norm=0.1)


MODEL_Letters = ModelInfo("odd:Letters", "", tokens=16)
MODEL_Padding = ModelInfo("odd:Padding", "", tokens=16)
MODEL_Sparse = ModelInfo("odd:Sparse", "", tokens=16)
MODEL_Inferred = ModelInfo("odd:Inferred", "", tokens=16)
MODEL_Renormed = ModelInfo("odd:Renormed", "", tokens=16)


def factory(kind):
    return lambda channels, batchnorm: kind()


for kind in [*Body.__subclasses__(), Taught]:
    name = kind.__name__
    globals()[f"make_{name}"] = factory(kind)
    has_batchnorm = name in ("Cumulative", "Untracked", "Synced", "Momentless")
    globals()[f"MODEL_{name}"] = ModelInfo(f"odd:make_{name}", "", always_batchnorm=has_batchnorm)
"""
REFUSED = {
    "Listed": r"a tensor of shape \(16,.*keep layers in nn.ModuleList",
    "NewBuffer": "body.mean",
    "PlainMean": "body.mean",
    "Counter": "body.calls",
    "Cached": "output in evaluation",
    "OneMemory": "share a Parameter",
    "View": "output in evaluation",
    "Computed": "forward",
    "BatchMean": "samples beside it",
    "Complex": "is torch.complex64: make it two real tensors",
    "Cumulative": "momentum=None",
    "Untracked": "track_running_stats=False",
    "Synced": "norm is SyncBatchNorm: use nn.BatchNorm",
    "Counted": "body.steps, which a pass in training",
    "InPlace": "changes its inputs in place",
    "Half": r"features of torch.bfloat16: end `forward` by .float\(\)",
    "Locked": "keep no modules of Python, open files or locks",
    "Scripted": "a module of torch.jit",
    "Empty": "nothing has no numbers",
    "Expanded": r"shift is expanded.*make it with .clone\(\)",
    "ExpandedTable": "table is expanded",
    "Double": "tensors in float32, as all weights are here",
    "ParametrizedGru": "gru is parametrized",
    "Remembered": "a method of the body",
    "Hooked": "dense.weight has a hook",
    "SlowNumber": "body.share, which a pass in training",
    "Later": r"body.state\['calls'\]\[0\]",
    "Noisy": "body.noise",
    "Fresh": "output in training",
    "Drifting": "body.mean",
    "Measured": "largest after evaluation",
    "LargestScaled": "samples beside it",
    "GradientState": "body.seen",
    "TensorStep": "body.step",
    "ClassStep": "ClassStep.calls",
    "FrozenTeacher": "teacher.weight after training",
    "Unseeded": "two constructions with one seed differ in body.dense.weight",
}


@pytest.fixture
def odd(world: Path) -> Path:
    (world / "odd.py").write_text(SOURCE)
    return world


PLAIN = ["Gru", "NormedGru", "Normed", "Padded", "Centred", "Instances", "Standardised"]
PLAIN += ["Momentless"]


@pytest.mark.parametrize("kind", PLAIN)
def test_one_client_trains_as_plain_pytorch(kind: str, odd: Path) -> None:
    model = f"odd:MODEL_{kind}"
    run = simulate("fedavg", sizes=(21,), model=model, participation=1.0)
    module = make_module(lambda: models.make(model, SHAPE, 3), 0).double().train()
    for _ in range(2):
        job = run.begin()
        (work,) = job.clients
        optimizer = torch.optim.SGD(module.parameters(), lr=job.lr)
        for step, count in enumerate(work.schedule.sizes):
            size = 8 if run.net.batch_statistics else count  # filled up, for statistics
            x = work.inputs.take(step, size)
            labels = work.inputs.labels(step, size)
            loss = F.cross_entropy(module(x).logits[:count], labels[:count])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        run.advance()
    own = {**dict(module.named_parameters()), **dict(module.named_buffers())}
    for name, value in run.server.params.items():
        assert torch.allclose(value, own[name], rtol=1e-12, atol=1e-12), name
    x = run.federation.test.at(slice(None))
    logits = module.eval()(x).logits
    assert torch.allclose(run.net.eval(run.server.params, x).logits, logits, rtol=1e-12)


MAPPED = ["Normed", "Padded", "TwiceDropped", "Instances", "Centred", "Standardised"]


@pytest.mark.parametrize("kind", MAPPED)
def test_a_stack_computes_the_same(kind: str, odd: Path) -> None:
    model = f"odd:MODEL_{kind}"
    loop = trained("fedavg", model=model)
    stacked = trained("fedavg", "stacked", model=model)
    assert largest_gap(loop, stacked) < 1e-12


@pytest.mark.parametrize("kind", ["Gru", "Spectral", "Momentless"])
def test_what_vmap_cannot_map_is_refused_in_stacks(kind: str, odd: Path) -> None:
    model = f"odd:MODEL_{kind}"
    with pytest.raises(UsageError, match="--backend loop"):
        simulate("fedavg", "stacked", model=model)


def test_a_body_without_gradients_is_refused_in_stacks(odd: Path) -> None:
    with pytest.raises(UsageError, match=r"has no gradients.*use_reentrant"):
        simulate("fedavg", "stacked", model="odd:MODEL_Reentrant")


def test_dropout_inside_a_checkpoint_is_refused(odd: Path) -> None:
    with pytest.raises(UsageError, match=r"dropout layers inside torch\.utils"):
        simulate("fedavg", "loop", model="odd:MODEL_DroppedAgain")


@pytest.mark.parametrize("kind", ["Steep", "Resting", "Noted", "LateTable", "Taught"])
def test_sound_models_are_no_odd_ones(kind: str, odd: Path) -> None:
    """Enlarged rounding, a `train` that returns nothing, notes, a late table, a teacher."""
    model = f"odd:MODEL_{kind}"
    trained("fedavg", model=model)
    assert not own_draws.mixes_samples(model, SHAPE)


def test_a_vocabulary_may_be_of_few_letters(odd: Path) -> None:
    assert own_draws.drawing_layer("odd:MODEL_Letters", (16,)) == ""
    stacks.check_stacks("odd:MODEL_Letters", (16,))


def test_a_buffer_that_gradients_change_is_no_constant(odd: Path) -> None:
    run = trained("fedavg", model="odd:MODEL_GradientMean")
    assert run.server.params["body.mean"] > 0


@pytest.mark.parametrize("kind", ["Moved", "Sequences", "Frequent"])
def test_what_mixes_samples_is_seen_and_trains_alike(kind: str, odd: Path) -> None:
    """By statistics, by masks along another axis than the first, by gradients."""
    model = f"odd:MODEL_{kind}"
    assert own_draws.mixes_samples(model, SHAPE)
    loop = trained("fedavg", model=model)
    assert largest_gap(loop, trained("fedavg", "stacked", model=model)) < 1e-12


def test_a_text_models_output_needs_no_padding(odd: Path) -> None:
    with pytest.raises(UsageError, match=r"samples beside it.*mask the token 0"):
        own_draws.drawing_layer("odd:MODEL_Padding", (16,))


def test_an_embedding_that_evaluation_rescales_is_refused(odd: Path) -> None:
    assert not own_draws.mixes_samples("odd:MODEL_Letters", (16,))
    with pytest.raises(UsageError, match=r"letters has max_norm=0\.1"):
        models.make("odd:MODEL_Renormed", (16,), 3)


def test_sparse_gradients_are_refused(odd: Path) -> None:
    with pytest.raises(UsageError, match=r"letters\.weight has sparse gradients"):
        own_draws.mixes_samples("odd:MODEL_Sparse", (16,))


def test_parameters_of_inference_mode_are_refused(odd: Path) -> None:
    with pytest.raises(UsageError, match=r"letters\.weight was made under"):
        models.make("odd:MODEL_Inferred", (16,), 3)


@pytest.mark.parametrize("backend", ["loop", "stacked"])
def test_a_buffer_that_training_leaves_is_a_constant(backend: str, odd: Path) -> None:
    run = trained("fedavg", backend, rounds=4, model="odd:MODEL_Kept", participation=1.0)
    assert "body.keep" not in run.server.params
    assert run.net.constants["body.keep"].tolist() == [float(i % 3 > 0) for i in range(16)]
    numbers = sum(value.numel() for value in run.server.params.values())
    assert run.progress.traffic.bytes_up == 4 * 4 * 8 * numbers


@pytest.mark.parametrize("optimizer", ["sgd", "adam"])
@pytest.mark.parametrize("backend", ["loop", "stacked"])
def test_weight_decay_spares_what_no_loss_uses(backend: str, optimizer: str, odd: Path) -> None:
    options = {"optimizer": optimizer, "weight_decay": 0.1, "model": "odd:MODEL_Idle"}
    first = simulate("fedavg", backend, **options).server.params
    last = trained("fedavg", backend, rounds=1, **options).server.params
    for name in ("body.part.weight", "body.part.bias"):
        assert torch.allclose(last[name], first[name], rtol=1e-15), name
    assert not torch.equal(last["body.dense.weight"], first["body.dense.weight"])


def test_a_constant_that_training_changes_later_ends_the_run(odd: Path) -> None:
    with pytest.raises(RuntimeError, match=r"changed body\.mean"):
        trained("fedavg", model="odd:MODEL_Late")


def test_other_gradients_of_vmap_are_refused(odd: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from bench.engine.stacked import layers

    monkeypatch.delitem(layers.LAYERS, F.embedding)
    with pytest.raises(UsageError, match=r"words\.weight other values"):
        simulate("fedavg", "stacked", model="odd:MODEL_Padded")


@pytest.mark.parametrize(("kind", "reason"), REFUSED.items())
def test_state_beside_the_tensors_is_refused(kind: str, reason: str, odd: Path) -> None:
    with pytest.raises(UsageError, match=rf"MODEL_{kind}.*{reason}"):
        simulate("fedavg", model=f"odd:MODEL_{kind}")


def test_an_embedding_of_one_client_is_torchs() -> None:
    from bench.engine.stacked.layers import embedding

    words = torch.tensor([[0, 1, 2, 1]])
    for padding in (None, 1, -2):
        weight = nn.Parameter(torch.randn(3, 4, dtype=torch.float64))
        (got,) = torch.autograd.grad(embedding(words, weight, padding).square().sum(), weight)
        (expected,) = torch.autograd.grad(
            F.embedding(words, weight, padding).square().sum(), weight
        )
        assert torch.equal(got, expected)


def test_float64_tells_rounding_from_other_values(
    odd: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = []
    differing = stacks._differing_in_stack

    def rounded(model: str, module: nn.Module, x: Tensor, dtype: torch.dtype) -> str | None:
        asked.append(dtype)
        return "body.weight" if dtype == torch.float32 else differing(model, module, x, dtype)

    monkeypatch.setattr(stacks, "_differing_in_stack", rounded)
    stacks.check_stacks("odd:MODEL_Normed", SHAPE)
    assert asked == [torch.float32, torch.float64]


def test_a_model_of_float32_alone_keeps_its_verdict(
    odd: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def rounded(model: str, module: nn.Module, x: Tensor, dtype: torch.dtype) -> str:
        if dtype == torch.float64:
            raise UsageError("it has float32 alone")
        return "body.weight"

    monkeypatch.setattr(stacks, "_differing_in_stack", rounded)
    with pytest.raises(UsageError, match=r"body\.weight other values"):
        stacks.check_stacks("odd:MODEL_Normed", SHAPE)

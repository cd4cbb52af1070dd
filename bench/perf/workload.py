"""The work that the engine and a bare PyTorch loop both do: equal clients, CIFAR-10 shapes, random pixels.

Random pixels cost what real ones cost, and no file is needed.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from algorithms import Entry, build, entry
from bench import models
from bench.data import Dataset, DatasetInfo, info
from bench.data.splits import Split
from bench.engine.network import make_module
from bench.engine.simulation import Simulation
from bench.needs import AUXILIARY_PER_CLASS, supply
from search_spaces.setting import Setting

DATASET = "cifar10"
LR, MOMENTUM = 0.01, 0.9
VALIDATION = 320  # samples held out, for algorithms that read them
# Server work that does not grow with the clients' is kept short beside their few samples.
SHORT: dict[str, dict[str, int]] = {"feddf": {"max_steps": 20, "check_every": 10}, "fedgen": {"generator_steps": 5}}
ENDLESS = 10**9  # rounds of a run that is neither finished nor evaluated while it is timed


@dataclass(frozen=True)
class Workload:
    """FedAvg's local training, SGD with momentum, all clients of equal size.

    Args:
        model: name in `bench.models.MODELS`.
        augmentation: of the engine; the bare loop never augments.
        clients: K.
        cohort: clients that train in a round.
        samples: of each client.
        epochs: E.
        batch_size: B.
        device: `cpu` or `cuda`.
        backend: of the engine.
        precision: of both.
    """

    model: str
    augmentation: str = "none"
    clients: int = 10
    cohort: int = 10
    samples: int = 640
    epochs: int = 2
    batch_size: int = 64
    device: str = "cpu"
    backend: str = "auto"
    precision: str = "fp32"

    @property
    def processed(self) -> int:
        """Training samples of a round, each epoch counted."""
        return self.cohort * self.samples * self.epochs

    @property
    def setting(self) -> Setting:
        """The problem as the engine takes it; it is never evaluated."""
        return Setting(
            dataset=DATASET,
            model=self.model,
            num_clients=self.clients,
            participation=self.cohort / self.clients,
            rounds=ENDLESS,
            evaluate_every=ENDLESS,
            local_epochs=self.epochs,
            batch_size=self.batch_size,
            lr=LR,
            momentum=MOMENTUM,
            augmentation=self.augmentation,
            auxiliary_per_class=AUXILIARY_PER_CLASS,
            validation_fraction=VALIDATION / (self.clients * self.samples + VALIDATION),
            precision=self.precision,
        )


def simulation(work: Workload, algorithm: str, beside: str = "") -> Simulation:
    """A run of the algorithm with its defaults.

    Args:
        work: what is trained.
        algorithm: registry name.
        beside: an algorithm whose model and optimiser it takes over, to be compared with it.

    Raises:
        UsageError: the workload cannot give what the algorithm needs.
    """
    setting = supply(entry(algorithm), _fitted(entry(beside or algorithm), work.setting))
    dataset, split = _federation(work, info(DATASET))
    made = build(algorithm, **SHORT.get(algorithm, {}))
    return Simulation(made, setting, 0, dataset, info(DATASET), split, device=work.device, backend=work.backend)


def _fitted(needing: Entry, setting: Setting) -> Setting:
    """The workload's problem as an algorithm can run in it: plain SGD and BatchNorm where it has to be."""
    return supply(needing, replace(setting, momentum=0.0) if "plain_sgd" in needing.needs else setting)


def one_round(run: Simulation) -> None:
    """Advance by one round.

    Raises:
        RuntimeError: there was none left, because a model stopped being finite: nothing would be timed.
    """
    before = run.round
    run.advance()
    if run.round != before + 1:
        raise RuntimeError(f"the run diverged in round {before}")


def _federation(work: Workload, constants: DatasetInfo) -> tuple[Dataset, Split]:
    """Random images, labels in turn; the clients' samples first, then the server's, then those held out."""
    auxiliary = AUXILIARY_PER_CLASS * constants.num_classes
    owned = work.clients * work.samples
    train, test = _images(owned + auxiliary + VALIDATION, constants), _images(constants.num_classes, constants)
    order = np.arange(len(train[1]))
    clients, server, held_out = np.split(order, [owned, owned + auxiliary])
    empty = tuple(order[:0] for _ in range(work.clients))
    shares = tuple(np.split(clients, work.clients))
    return Dataset.of(DATASET, train, test), Split(shares, empty, server, held_out, "equal")


def _images(count: int, constants: DatasetInfo) -> tuple[np.ndarray, np.ndarray]:
    draw = np.random.RandomState(0)
    pixels = draw.randint(0, constants.scale + 1, (count, *constants.input_shape)).astype(np.uint8)
    return pixels, np.arange(count, dtype=np.int64) % constants.num_classes


class BareLoop:
    """What a round's local training costs without an engine: one model, `torch.optim.SGD`, inputs made beforehand.

    The module, the batch size, the number of steps and the memory layout (channels last) are the engine's.
    """

    def __init__(self, work: Workload) -> None:
        self.work = work
        self._device = torch.device(work.device)
        self._dtype = torch.float64 if work.precision == "fp64" else torch.float32
        self._module = self._make_module()
        self._optimizer = torch.optim.SGD(self._module.parameters(), LR, momentum=MOMENTUM)
        self._generator = torch.Generator().manual_seed(0)
        self._shards = [self._shard(info(DATASET)) for _ in range(work.cohort)]

    def segment(self) -> None:
        """As many steps as a round of the engine."""
        for x, y in self._shards:
            for _ in range(self.work.epochs):
                order = torch.randperm(len(y), generator=self._generator).to(self._device)
                for positions in torch.split(order, self.work.batch_size):
                    self._step(x[positions], y[positions])

    def _step(self, x: Tensor, y: Tensor) -> None:
        self._optimizer.zero_grad()
        with torch.autocast(self._device.type, torch.bfloat16, enabled=self.work.precision == "bf16"):
            loss = F.cross_entropy(self._module(x).logits, y)
        torch.autograd.backward(loss)
        self._optimizer.step()

    def _make_module(self) -> nn.Module:
        constants = info(DATASET)
        made = make_module(lambda: models.make(self.work.model, constants.input_shape, constants.num_classes), 0)
        placed: nn.Module = made.train().to(self._device, self._dtype)
        return placed.to(memory_format=torch.channels_last)

    def _shard(self, constants: DatasetInfo) -> tuple[Tensor, Tensor]:
        pixels, labels = _images(self.work.samples, constants)
        x = torch.from_numpy(pixels).to(self._device, self._dtype) / constants.scale - 0.5
        return x.contiguous(memory_format=torch.channels_last), torch.from_numpy(labels).to(self._device)

"""Work for the engine and for a bare loop: equal clients, made-up samples of CIFAR-10's shapes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import torch
import torch.nn.functional as F
from torch import nn

from algorithms import build, entry
from bench import models
from bench.data import info
from bench.data.embedded import made_up, made_up_samples
from bench.engine.network import make_module
from bench.engine.simulation import Simulation
from bench.engine.together import advance_together
from bench.planning.settings import AUXILIARY_PER_CLASS, supply
from search_spaces.setting import Setting

DATASET = "cifar10"  # whose shapes and classes the made-up samples have
LR = 0.01
MOMENTUM = 0.9
ROUNDS = 200  # of a whole run, of which few are timed
VALIDATION = 320  # samples held out, for algorithms that read them
TESTS = 10  # samples of the test set
# Server work that does not grow with the clients' work is shortened, because clients have few
# samples here.
SHORT: dict[str, dict[str, int]] = {
    "feddf": {"max_steps": 20, "check_every": 10},
    "fedgen": {"generator_steps": 5},
}


@dataclass(frozen=True)
class Workload:
    """FedAvg's local training, SGD with momentum, all clients of equal size."""

    model: str
    augmentation: str = "none"  # of the engine; the bare loop never augments
    clients: int = 10  # K
    cohort: int = 10
    samples: int = 640  # of each client
    epochs: int = 2  # E
    batch_size: int = 64  # B
    device: str = "cpu"
    backend: str = "auto"
    precision: str = "fp32"
    pack: int = 1  # runs side by side in one program

    @property
    def name(self) -> str:
        """The printed name: `resnet8, stacked, bf16, pack 8`."""
        return f"{self.model}, {self.backend}, {self.precision}, pack {self.pack}"

    @property
    def processed(self) -> int:
        """Training samples of a round, each epoch counted."""
        return self.cohort * self.samples * self.epochs

    @property
    def setting(self) -> Setting:
        """The setting that the engine takes."""
        return Setting(
            dataset=DATASET,
            model=self.model,
            num_clients=self.clients,
            participation=self.cohort / self.clients,
            rounds=ROUNDS,
            evaluate_every=ROUNDS,
            local_epochs=self.epochs,
            batch_size=self.batch_size,
            lr=LR,
            momentum=MOMENTUM,
            augmentation=self.augmentation,
            normalization="standard",
            auxiliary_per_class=AUXILIARY_PER_CLASS,
            validation_fraction=VALIDATION / (self.clients * self.samples + VALIDATION),
            precision=self.precision,
        )


def simulation(work: Workload, algorithm: str, like: str = "") -> Simulation:
    """Make a run of the algorithm with its defaults.

    Its problem meets the needs of `like` as well. Raises UsageError if the workload cannot give
    what the algorithm needs.
    """
    return simulations(work, algorithm, 1, like)[0]


def simulations(work: Workload, algorithm: str, count: int, like: str = "") -> list[Simulation]:
    """Make `count` runs as `simulation` does, with seeds from 0 and the same samples."""
    reference = entry(like or algorithm)
    fitted = replace(work.setting, momentum=0.0) if "plain_sgd" in reference.needs else work.setting
    setting = supply(entry(algorithm), supply(reference, fitted))
    constants = info(DATASET)
    auxiliary = AUXILIARY_PER_CLASS * constants.num_classes
    dataset, split = made_up(constants, work.clients, work.samples, auxiliary, VALIDATION, TESTS)
    built = build(algorithm, **SHORT.get(algorithm, {}))
    return [
        Simulation(
            built,
            setting,
            seed,
            dataset,
            constants,
            split,
            device=work.device,
            backend=work.backend,
        )
        for seed in range(count)
    ]


def together(runs: Sequence[Simulation]) -> Callable[[], None]:
    """Return a function that advances all runs by one round, several as one program.

    It raises a failed run's error, and RuntimeError if a run diverged before, because nothing would
    be timed.
    """

    def advance() -> None:
        before = runs[0].round
        for error in advance_together(runs).values():
            raise error
        if any(run.round != before + 1 for run in runs):
            raise RuntimeError(f"the run diverged in round {before}")

    return advance


def one_round(run: Simulation) -> None:
    """Advance by one round, as `together` does."""
    together([run])()


class BareLoop:
    """A round's local training without an engine: one model, `torch.optim.SGD`.

    Inputs are made beforehand. The module, the batch size, the number of steps and the memory
    layout (channels last) are the engine's.
    """

    def __init__(self, work: Workload) -> None:
        constants = info(DATASET)
        device = torch.device(work.device)
        dtype = torch.float64 if work.precision == "fp64" else torch.float32
        module = make_module(
            lambda: models.make(work.model, constants.input_shape, constants.num_classes), 0
        )
        module = module.train().to(device, dtype)
        self.work = work
        self._module: nn.Module = module.to(memory_format=torch.channels_last)
        self._optimizer = torch.optim.SGD(self._module.parameters(), LR, momentum=MOMENTUM)
        self._generator = torch.Generator().manual_seed(0)
        self._shards = []
        for _ in range(work.cohort):
            pixels, labels = made_up_samples(work.samples, constants)
            x = torch.from_numpy(pixels).to(device, dtype) / constants.scale - 0.5
            x = x.contiguous(memory_format=torch.channels_last)
            self._shards.append((x, torch.from_numpy(labels).to(device)))

    def segment(self) -> None:
        """Take as many steps as a round of the engine."""
        mixed = self.work.precision == "bf16"
        for x, y in self._shards:
            for _ in range(self.work.epochs):
                order = torch.randperm(len(y), generator=self._generator).to(y.device)
                for positions in torch.split(order, self.work.batch_size):
                    self._optimizer.zero_grad()
                    with torch.autocast(x.device.type, torch.bfloat16, enabled=mixed):
                        loss = F.cross_entropy(self._module(x[positions]).logits, y[positions])
                    torch.autograd.backward(loss)
                    self._optimizer.step()

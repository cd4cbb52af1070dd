"""Whole runs of known settings against the clock: FedGKD's, FedCAD's, and pfl-research's own benchmark.

Samples are made up and clients of equal size: the arithmetic is the setting's. Fewer rounds give an estimate; fewer
samples only show that it runs.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from statistics import fmean
from typing import Any

from torch import nn

from algorithms import build, entry
from bench.data import info
from bench.data.made_up import made_up
from bench.engine.simulation import Simulation
from bench.models import ModelInfo
from bench.perf.device import check_precision
from bench.perf.measure import Record, Say, figure, guarded, synchroniser, timed
from bench.perf.workload import together
from bench.planning.settings import supply
from search_spaces import SPACES, Setting


@dataclass(frozen=True)
class Known:
    """A setting whose time matters."""

    setting: Setting
    algorithm: str
    values: dict[str, Any]  # its hyper-parameters that are not the defaults
    seeds: int
    seconds: float  # target, for all of them on one GPU


def _printed(paper: str, seeds: int, seconds: float) -> Known:
    """A paper's own algorithm in its own CIFAR-10 setting."""
    space = SPACES[paper, "cifar10", paper]
    return Known(space.setting, paper, dict(space.reported()), seeds, seconds)


def pfl_body(channels: int, batchnorm: bool) -> nn.Module:
    """The network of pfl-research's own CIFAR-10 benchmark: images (B, C, 32, 32) to 128 features."""
    return nn.Sequential(
        nn.Conv2d(channels, 32, 3),
        nn.ReLU(),
        nn.Conv2d(32, 64, 3),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Dropout(0.25),
        nn.Flatten(),
        nn.Linear(12544, 128),
        nn.ReLU(),
        nn.Dropout(0.5),
    )


PFL_CNN = ModelInfo("bench.perf.settings:pfl_body", "pfl-research's CNN for CIFAR-10", features=128, size=32)
# Granqvist et al. 2024 (arXiv 2404.06430): 1,000 clients of 50 samples, 50 a round, 1,500 rounds, evaluated every 10.
_PFL = Setting(
    dataset="cifar10",
    model="bench.perf.settings:PFL_CNN",
    partition="iid",
    alpha=None,
    num_clients=1_000,
    participation=0.05,
    rounds=1_500,
    local_epochs=1,
    batch_size=10,
    lr=0.1,
    evaluate_every=10,
)
SETTINGS = {
    "fedgkd": _printed("fedgkd", 3, 90.0),  # Yao et al. 2021, section 5.1
    "fedcad": _printed("fedcad", 1, 60.0),  # He et al. 2022, Experiments
    "pfl": Known(_PFL, "fedavg", {}, 1, 40.0),
}


@dataclass(frozen=True)
class Manner:
    """The manner in which settings are run."""

    device: str
    backend: str = "auto"
    precision: str = "fp32"
    pack: int = 1  # most seeds side by side
    rounds: int | None = None  # of each run, or None for the setting's own; at least those between two evaluations
    samples: int | None = None  # of each client, or None for the setting's own


def measure_settings(record: Record, names: Sequence[str], algorithm: str, manners: Sequence[Manner], say: Say) -> None:
    """Time settings, each in every manner; the record gets `runs`, an entry for each.

    `algorithm` is instead of each setting's own; empty for that.
    """
    record["runs"] = []
    for name in names:
        for manner in manners:
            trained = algorithm or SETTINGS[name].algorithm
            title = f"{name}, {trained}, {manner.precision}, pack {manner.pack}"
            say(f"settings: {title}, {manner.device}")
            entry = {"name": title, "setting": name, "algorithm": trained}
            record["runs"].append(entry | guarded(partial(run_setting, name, trained, manner)))


def run_setting(name: str, algorithm: str, manner: Manner) -> Record:
    """Time all seeds of a setting from the first round to the last, evaluations included.

    Returns `seconds` of whole runs, with the target on a GPU; of runs with fewer rounds `seconds_estimate`, their first
    two rounds once, which prepare, and the mean of the others for all that are missing; of runs with fewer samples
    `seconds_tried`, of what ran; `rate`; `rounds` that ran `of` how many. Raises UsageError if the device does not
    compute in the precision.
    """
    check_precision(manner.device, manner.precision)
    known = SETTINGS[name]
    of = known.setting.rounds
    rounds = min(max(manner.rounds or of, known.setting.evaluate_every), of)
    runs = runs_of(known, algorithm, manner)
    wait, turns = synchroniser(manner.device), []
    for first in range(0, len(runs), manner.pack):
        advance = together(runs[first : first + manner.pack])
        turns.append([timed(advance, wait).seconds for _ in range(rounds)])
    samples, seconds = sum(run.progress.samples for run in runs), sum(map(sum, turns))
    times = {"seconds_tried": figure([seconds], "s")} if manner.samples else times_of(known, turns, manner.device)
    described = {"rounds": rounds, "of": of, "seeds": known.seeds, "backend": runs[0].backend}
    return described | times | {"rate": figure([samples / seconds], "samples/s")}


def times_of(known: Known, turns: Sequence[Sequence[float]], device: str) -> Record:
    """Summarise the rounds' seconds of all packs, one after another; shortened runs are extrapolated."""
    of = known.setting.rounds
    if all(len(pack) == of for pack in turns):
        return {"seconds": figure([sum(map(sum, turns))], "s", known.seconds if device == "cuda" else None)}
    estimate = sum(sum(pack[:2]) + (of - len(pack[:2])) * fmean(pack[2:] or pack[-1:]) for pack in turns)
    return {"seconds_estimate": figure([estimate], "s")}


def runs_of(known: Known, algorithm: str, manner: Manner) -> list[Simulation]:
    """Make the setting's seeds, over the same made-up samples."""
    setting = supply(entry(algorithm), replace(known.setting, precision=manner.precision))
    constants = info(setting.dataset)
    auxiliary = setting.auxiliary_per_class * constants.num_classes
    validation = round(setting.validation_fraction * constants.train_size)
    samples = manner.samples or (constants.train_size - validation - auxiliary) // setting.num_clients
    dataset, split = made_up(
        constants, setting.num_clients, samples, auxiliary, validation, manner.samples or constants.test_size
    )
    built = build(algorithm, **(known.values if algorithm == known.algorithm else {}))
    return [
        Simulation(built, setting, seed, dataset, constants, split, device=manner.device, backend=manner.backend)
        for seed in range(known.seeds)
    ]

"""Whole runs of known settings against the clock: FedGKD's, FedCAD's, and pfl-research's own benchmark.

Samples are made up and clients of equal size: the arithmetic is the setting's. Fewer rounds give an estimate; fewer
samples only show that it runs.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from statistics import fmean
from typing import Any

from algorithms import build, entry
from bench.data import info
from bench.data.made_up import made_up
from bench.engine.simulation import Simulation
from bench.perf.ceilings import check_precision, synchroniser
from bench.perf.energy import Energy
from bench.perf.measure import Keep, figure, guarded, nothing
from bench.perf.pfl_cnn import NAME as PFL_CNN
from bench.perf.workload import together
from bench.planning.needs import supply
from search_spaces import SPACES, Setting


@dataclass(frozen=True)
class Known:
    """A setting whose time matters.

    Args:
        setting: the problem.
        algorithm: registry name.
        values: its hyper-parameters, where they are not the defaults.
        seeds: runs.
        seconds: target, for all of them on one GPU.
        source: where it is from.
    """

    setting: Setting
    algorithm: str
    values: dict[str, Any]
    seeds: int
    seconds: float
    source: str


def _printed(paper: str, seeds: int, seconds: float, source: str) -> Known:
    """A paper's own algorithm in its own CIFAR-10 setting."""
    space = SPACES[paper, "cifar10", paper]
    return Known(space.setting, paper, dict(space.reported()), seeds, seconds, source)


# Granqvist et al. 2024 (arXiv 2404.06430): 1,000 clients of 50 samples, 50 a round, 1,500 rounds, evaluated every 10.
_PFL = Setting(
    dataset="cifar10",
    model=PFL_CNN,
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
    "fedgkd": _printed("fedgkd", 3, 90.0, "FedGKD (Yao et al. 2021), section 5.1"),
    "fedcad": _printed("fedcad", 1, 60.0, "FedCAD (He et al. 2022), Experiments"),
    "pfl": Known(_PFL, "fedavg", {}, 1, 40.0, "pfl-research (Granqvist et al. 2024), its benchmark"),
}


@dataclass(frozen=True)
class Asked:
    """How settings are run.

    Args:
        device: `cpu` or `cuda`.
        backend: of the engine.
        precision: of training.
        pack: most seeds side by side.
        rounds: of each run, or None for the setting's own; at least those between two evaluations.
        samples: of each client, or None for the setting's own: fewer only try whether it works.
    """

    device: str
    backend: str = "auto"
    precision: str = "fp32"
    pack: int = 1
    rounds: int | None = None
    samples: int | None = None


def measure_settings(
    names: Sequence[str],
    algorithms: Sequence[str],
    asked: Sequence[Asked],
    say: Callable[[str], None],
    keep: Keep = nothing,
) -> dict[str, Any]:
    """`runs`: an entry for each setting, algorithm, and way to run it.

    Args:
        names: of `SETTINGS`.
        algorithms: instead of each setting's own; may be empty.
        asked: the ways.
        say: told what is being done.
        keep: given the result so far.
    """
    found: dict[str, Any] = {"runs": []}
    for name in names:
        for algorithm in algorithms or (SETTINGS[name].algorithm,):
            for how in asked:
                say(f"settings: {name}, {algorithm}, {how.precision}, pack {how.pack}, {how.device}")
                entry = {"setting": name, "algorithm": algorithm, "precision": how.precision, "pack": how.pack}
                found["runs"].append(entry | guarded(partial(run_setting, name, algorithm, how)))
                keep(found)
    return found


def run_setting(name: str, algorithm: str, asked: Asked) -> dict[str, Any]:
    """All seeds of a setting against the clock, from the first round to the last, evaluations included.

    Returns:
        `seconds` of a whole run, with the target on a GPU; of one with fewer rounds `seconds_estimate`, its first two
        rounds once, which prepare, and the mean of the others for all that are missing; of one with fewer samples
        `seconds_tried`, of what ran; `rate`, `energy`, and what was run.

    Raises:
        UsageError: the device does not compute in the precision that is asked for.
    """
    check_precision(asked.device, asked.precision)
    known = SETTINGS[name]
    rounds = rounds_of(known, asked)
    runs = _runs(known, algorithm, asked)
    energy, turns = Energy(asked.device), []
    for first in range(0, len(runs), asked.pack):
        advance = together(runs[first : first + asked.pack])
        turns.append([energy.timed(advance, synchroniser(asked.device)).seconds for _ in range(rounds)])
    samples, spent = sum(run.progress.samples for run in runs), sum(map(sum, turns))
    times = {"seconds_tried": figure([spent], "s")} if asked.samples else _times(known, turns, asked.device)
    described = {"rounds": rounds, "of": known.setting.rounds, "seeds": known.seeds, "backend": runs[0].backend}
    sizes = {"clients": runs[0].setting.cohort_size, "samples": runs[0].federation.sizes[0], "source": known.source}
    measured = {"rate": figure([samples / spent], "samples/s"), "energy": energy.of(samples)}
    return described | sizes | times | measured


def rounds_of(known: Known, asked: Asked) -> int:
    """Those of each run: as asked, but enough to end with an evaluation."""
    of = known.setting.rounds
    return min(max(asked.rounds or of, known.setting.evaluate_every), of)


def _times(known: Known, turns: Sequence[Sequence[float]], device: str) -> dict[str, Any]:
    """Seconds of all packs, one after another; of shortened runs what the whole would take, by estimate."""
    of, whole = known.setting.rounds, sum(map(sum, turns))
    if all(len(pack) == of for pack in turns):
        return {"seconds": figure([whole], "s", known.seconds if device == "cuda" else None)}
    estimate = sum(sum(pack[:2]) + (of - len(pack[:2])) * fmean(pack[2:] or pack[-1:]) for pack in turns)
    target = {"limit": known.seconds, "bound": "<="} if device == "cuda" else {}
    return {"seconds_estimate": figure([estimate], "s") | target}


def _runs(known: Known, algorithm: str, asked: Asked) -> list[Simulation]:
    """The setting's seeds, over the same made-up samples."""
    setting = supply(entry(algorithm), replace(known.setting, precision=asked.precision))
    constants = info(setting.dataset)
    auxiliary = setting.auxiliary_per_class * constants.num_classes
    validation = round(setting.validation_fraction * constants.train_size)
    samples = asked.samples or (constants.train_size - validation - auxiliary) // setting.num_clients
    tests = constants.test_size if asked.samples is None else asked.samples
    dataset, split = made_up(constants, setting.num_clients, samples, auxiliary, validation, tests)
    made = build(algorithm, **(known.values if algorithm == known.algorithm else {}))
    return [
        Simulation(made, setting, seed, dataset, constants, split, device=asked.device, backend=asked.backend)
        for seed in range(known.seeds)
    ]

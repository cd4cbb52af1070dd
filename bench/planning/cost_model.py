"""The time of a run: its samples at recorded rates, or at this machine's pace.

A pace is measured once, by a process of its own, and kept in the cache folder. Imports neither torch nor ray.
"""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
from collections.abc import Hashable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from hashlib import sha256
from pathlib import Path

from algorithms import entry
from bench import models
from bench.data.download import cache_dir
from bench.errors import UsageError
from bench.execution import process_columns
from bench.planning.packing import program_of
from bench.planning.run_spec import RunSpec, samples_of, training_samples
from bench.terminal.console import say
from bench.terminal.words import counted
from leaderboards import Store
from leaderboards.rows.files import atomic_file
from search_spaces import Setting

PERSONAL = ("fedbn", "feddkd_bn", "local")  # each client's own model is evaluated
SERVER_STEPS = {"fedgen": "generator_steps", "feddf": "max_steps"}  # the hyper-parameter that counts them
SPREAD = 1.5  # an estimate is given from so much less to so much more
LIMIT = "FEDKD_MEASURE_SECONDS"
LIMIT_SECONDS = 20.0
_TOO_SHORT = "seconds_too_short"  # in the file of a program that was not measured in time


@dataclass(frozen=True)
class Pace:
    """Seconds that an algorithm takes on one machine for one model and batch size."""

    client: float  # a client's round, without the following
    batch: float  # a batch of a client's samples, once a round, as for the answers of teachers
    step: float  # a local step on a full batch
    sample: float  # one test sample of an evaluation
    server_step: float  # a step of the server's own training


@dataclass(frozen=True)
class Time:
    """Seconds of a run, from `low` to `high`: equal at a recorded rate, NaN if nothing is known."""

    low: float
    high: float

    @property
    def known(self) -> bool:
        """Whether there is a time."""
        return not math.isnan(self.low)

    @property
    def estimated(self) -> bool:
        """Whether no run like it was recorded."""
        return self.low < self.high

    @property
    def middle(self) -> float:
        """The likely time: as many times `low` as `high` is of it."""
        return math.sqrt(self.low * self.high)


def estimated_time(unit: RunSpec, pace: Pace) -> Time:
    """A run's time by its counted steps and the machine's pace.

    The server of FedDF stops when `patience` steps brought no better validation: at least so many, at most `max_steps`.
    """
    most = int(unit.hyperparameters.get(SERVER_STEPS.get(unit.algorithm, ""), 0) or 0)
    least = min(most, int(unit.hyperparameters.get("patience", most) or 0))
    seconds, server = _seconds(unit, pace), unit.setting.rounds * pace.server_step
    return Time((seconds + least * server) / SPREAD, (seconds + most * server) * SPREAD)


def _seconds(unit: RunSpec, pace: Pace) -> float:
    """Estimate the time of all but the server's own steps."""
    setting = unit.setting
    clients, sharing = (1, 1) if "pooled" in entry(unit.algorithm).needs else (setting.cohort_size, setting.num_clients)
    samples = training_samples(setting) / sharing
    batches = max(1.0, samples / setting.batch_size + 0.5)  # the last is half full on average
    steps, trained = batches * setting.local_epochs, samples * setting.local_epochs
    if setting.step_rule == "batches":
        steps, trained = setting.local_epochs, setting.local_epochs * setting.batch_size
    full = min(pace.step, 3 * pace.sample * setting.batch_size)  # the part of a step that grows with its samples
    training = steps * (pace.step - full) + trained / setting.batch_size * full
    a_round = clients * (pace.client + batches * pace.batch + training)
    evaluated = samples_of(setting)[1] * _models(unit)
    return setting.rounds * a_round + evaluated * pace.sample


def _models(unit: RunSpec) -> int:
    """Models that an evaluation measures, each on the whole test set; two rows of one run are in the pace."""
    setting = unit.setting
    if unit.algorithm not in PERSONAL or setting.partition == "by_source":  # each client has a part of the test set
        return 1
    return setting.cohort_size if unit.algorithm == "local" else setting.num_clients  # of `local`, those that trained


def recorded_rates(store: Store, device: str) -> dict[str, float]:
    """Training samples per second of stored runs: on the CPU if `device` is `cpu`, else on a GPU.

    Medians by the names of data set and model, and of data set, model and algorithm.
    """
    if not store.begun:
        return {}
    runs = store.runs(columns=("dataset", "model", "algorithm", "device", "samples_per_second"))
    known = runs[(runs.samples_per_second > 0) & ((runs.device == "cpu") == (device == "cpu"))]
    problem = known.dataset + " " + known.model
    medians: dict[str, float] = {}
    for names in (problem, problem + " " + known.algorithm):
        medians |= {str(name): rate for name, rate in known.groupby(names).samples_per_second.median().items()}
    return medians


def recorded_time(rates: Mapping[str, float], setting: Setting, algorithm: str = "") -> Time:
    """A run's time at its algorithm's recorded rate on this data set and model, or at that of all algorithms."""
    rate = rates.get(f"{setting.dataset} {setting.model} {algorithm}".rstrip(), math.nan)
    return Time(*[samples_of(setting)[0] / rate] * 2)


# The pace of this machine.


def measured_paces(units: Iterable[RunSpec], threads: int) -> dict[Hashable, Pace]:
    """`program_of(unit)` -> its pace on this machine's CPU; missing ones are measured now, and kept.

    A program that was not measured in time is tried again once it gets twice the time: from a larger limit, or because
    fewer programs share it. Programs that failed, or that the limit left no time for, are left out. Raises UsageError
    if `$FEDKD_MEASURE_SECONDS` is no number of seconds.
    """
    given = os.environ.get(LIMIT) or LIMIT_SECONDS
    try:
        limit = float(given)
    except ValueError:
        raise UsageError(f"{LIMIT} must be a number of seconds (0 measures nothing), got {given!r}") from None
    distinct = {program_of(unit): unit for unit in units}
    kept = {program: _read(_file(unit, threads)) for program, unit in distinct.items()}
    missing = {program: unit for program, unit in distinct.items() if not isinstance(kept[program], Pace)}
    share = limit / max(1, len(missing))
    tried = {program for program in missing if isinstance(before := kept[program], float) and 2 * before > share}
    asked = [unit for program, unit in missing.items() if program not in tried]
    if asked and limit:
        say(f"measuring this machine for {counted(len(asked), 'kind')} of runs, once, in at most {limit:g} s")
        for unit, result in zip(asked, _measured(asked, threads, limit), strict=True):
            kept[program_of(unit)] = result
            if result is not None:
                _write(_file(unit, threads), asdict(result) if isinstance(result, Pace) else {_TOO_SHORT: result})
    return {program: pace for program, pace in kept.items() if isinstance(pace, Pace)}


def _measured(units: Sequence[RunSpec], threads: int, limit: float) -> list[Pace | float | None]:
    """Measure units in a process of its own: the pace of each, its share of a limit that passed, None if it failed."""
    asked = [[unit.algorithm, dict(unit.hyperparameters), unit.setting.as_dict()] for unit in units]
    folders = [path or str(Path.cwd()) for path in sys.path]
    left = None
    try:
        done = subprocess.run(
            [sys.executable, "-P", "-m", "bench.engine.pace", str(threads)],
            input=json.dumps(asked).encode(),
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            timeout=limit,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(folders)},
            check=False,
        )
        out = done.stdout
    except subprocess.TimeoutExpired as error:
        out, left = error.stdout or b"", limit / len(units)
    lines = [json.loads(line) for line in out.split(b"\n")[:-1]]  # the rest after the last newline was cut off
    if len(lines) < len(units):
        say(f"{counted(len(units) - len(lines), 'kind')} of runs not measured; {LIMIT} gives more than {limit:g} s")
    return [None if "error" in line else Pace(**line) for line in lines] + [left] * (len(units) - len(lines))


def _file(unit: RunSpec, threads: int) -> Path:
    """The file of a pace: by processor, torch, threads and program, and versions of algorithm and model."""
    process = process_columns("cpu")
    made_by = [process["cpu"], process["versions"].get("torch"), threads]
    versions = [entry(unit.algorithm).version, models.version(unit.setting.model)]
    key = sha256(json.dumps([*made_by, *versions, program_of(unit)]).encode()).hexdigest()[:16]
    return cache_dir() / "paces" / f"{key}.json"


def _read(file: Path) -> Pace | float | None:
    """Read a kept pace, or the seconds in which it could not be measured; None if there is neither."""
    try:
        kept = json.loads(file.read_bytes())
        if _TOO_SHORT in kept:
            return float(kept[_TOO_SHORT])
        return Pace(**kept)
    except (OSError, ValueError, TypeError):
        return None


def _write(file: Path, kept: dict[str, float]) -> None:
    """Keep a pace; if the folder cannot be written it is measured again."""
    with suppress(OSError):
        file.parent.mkdir(parents=True, exist_ok=True)
        with atomic_file(file) as opened:
            opened.write(json.dumps(kept).encode())

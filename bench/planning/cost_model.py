"""The expected time of a run, from rates of stored runs or from this machine's measured pace.

A pace is measured once, in a separate process, and kept in the cache folder. Imports neither torch
nor ray.
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

from algorithms import ALGORITHMS, entry
from bench.data.download import cache_dir
from bench.errors import UsageError
from bench.planning.packing import program_of
from bench.planning.run_spec import RunSpec, client_models_version, model_version
from bench.planning.work import (
    client_size,
    clients_of,
    evaluations_of,
    own_samples,
    samples_of,
    server_tests,
)
from bench.provenance import process_columns
from bench.terminal.console import say
from bench.terminal.words import counted
from leaderboards import Store
from leaderboards.rows.files import atomic_file
from search_spaces import Value

SPREAD = 1.5  # an estimate is given as a range, this factor up and down
LIMIT = "FEDKD_MEASURE_SECONDS"
LIMIT_SECONDS = 20.0
_TOO_SHORT = "seconds_too_short"  # in the file of a program that was not measured in time


@dataclass(frozen=True)
class Pace:
    """Seconds that an algorithm takes on one machine for one model and batch size."""

    client: float  # a client's round, without the costs below
    batch: float  # a batch of a client's samples, once a round, such as the outputs of teachers
    step: float  # a local step on a full batch
    sample: float  # one test sample of an evaluation
    server_step: float  # a step of the server's own training


@dataclass(frozen=True)
class Time:
    """The range of a run's seconds.

    `low` and `high` are equal for a recorded rate, and NaN if nothing is known.
    """

    low: float
    high: float

    @property
    def known(self) -> bool:
        """Return whether the time is known."""
        return not math.isnan(self.low)

    @property
    def estimated(self) -> bool:
        """Return whether the time is an estimate, because no such run was recorded."""
        return self.low < self.high

    @property
    def middle(self) -> float:
        """The likely time: the geometric mean of `low` and `high`."""
        return math.sqrt(self.low * self.high)


def estimated_time(run_spec: RunSpec, pace: Pace) -> Time:
    """Estimate a run's time from its number of steps and the machine's pace.

    FedDF's server stops once `patience` steps bring no better validation, so it takes `patience` to
    `max_steps` steps.
    """
    values = run_spec.hyperparameters
    max_steps = int(values.get(entry(run_spec.algorithm).server_steps, 0) or 0)
    min_steps = min(max_steps, int(values.get("patience", max_steps) or 0))
    seconds = _seconds(run_spec, pace)
    server = run_spec.setting.rounds * pace.server_step
    return Time((seconds + min_steps * server) / SPREAD, (seconds + max_steps * server) * SPREAD)


def _seconds(run_spec: RunSpec, pace: Pace) -> float:
    """Estimate the time of everything but the server's own steps."""
    setting = run_spec.setting
    clients, samples = clients_of(run_spec)
    batches = max(1.0, samples / setting.batch_size + 0.5)  # the last is half full on average
    if setting.step_rule == "whole_epochs":
        batches = max(1.0, samples / setting.batch_size - 0.5)
        samples = min(samples, batches * setting.batch_size)
    steps = batches * setting.local_epochs
    trained = samples * setting.local_epochs
    if setting.step_rule == "batches":
        steps = setting.local_epochs
        trained = setting.local_epochs * setting.batch_size
    # The part of a step that grows with its samples.
    full = min(pace.step, 3 * pace.sample * setting.batch_size)
    training = steps * (pace.step - full) + trained / setting.batch_size * full
    round_seconds = clients * (pace.client + batches * pace.batch + training)
    seconds = setting.rounds * round_seconds + evaluated_samples(run_spec) * pace.sample
    if setting.finetune_steps:
        share = min(1.0, client_size(setting) / setting.batch_size)  # of a batch that is filled
        step = pace.step - full + share * full
        models = setting.num_clients * len(entry(run_spec.algorithm).rows)
        further = pace.client + setting.finetune_steps * step
        seconds += evaluations_of(setting) * models * further
    return seconds


def evaluated_samples(run_spec: RunSpec) -> float:
    """Count the samples that a run's evaluations read, once for every model measured on them."""
    setting = run_spec.setting
    evaluations = evaluations_of(setting)
    on_test_set = evaluations if setting.evaluate_personal == "every" else 1
    rounds = on_test_set if entry(run_spec.algorithm).personal else evaluations
    samples = rounds * evaluated_models(run_spec) * server_tests(setting)
    samples += evaluations * own_samples(setting)
    if setting.finetune_steps:
        models = 1 if setting.partition == "by_source" else setting.training_clients
        of_row = on_test_set * models * server_tests(setting) + evaluations * own_samples(setting)
        samples += len(entry(run_spec.algorithm).rows) * of_row
    return samples


def evaluated_models(run_spec: RunSpec) -> float:
    """Compute how many models an evaluation measures on the whole test set: the mean over a run.

    The pace covers a run's second row. Clients that have not trained yet share one model; `local`
    measures it once, and else the models of clients that have trained since the last evaluation.
    """
    setting = run_spec.setting
    personal = entry(run_spec.algorithm).personal or bool(setting.client_models)
    if not personal or setting.partition == "by_source":  # each client has a part of the test set
        return 1
    clients = setting.training_clients
    left_out = 1 - setting.cohort_size / clients  # probability that a client misses a round

    def trained(rounds: int) -> float:
        return clients * (1 - left_out**rounds)

    def someone_untrained(rounds: int) -> float:
        return 1 - (1 - left_out**rounds) ** clients

    ends = [*range(setting.evaluate_every, setting.rounds, setting.evaluate_every), setting.rounds]
    starts = [0, *ends[:-1]]
    if run_spec.algorithm == "local":
        counts = [trained(end - start) for start, end in zip(starts, ends, strict=True)]
        counts.append(someone_untrained(ends[0]))
    else:
        counts = [trained(end) + someone_untrained(end) for end in ends]
    return sum(counts) / len(ends)


def recorded_rates(store: Store, device: str) -> dict[str, float]:
    """Return the training samples per second of stored runs on a device.

    `device`: `cpu`, else a GPU. The rates are medians by data set and model, and by data set, model
    and algorithm, under these names (`_rate_name`).
    """
    if not store.begun:
        return {}
    columns = ("dataset", "setting_json", "algorithm", "hp_json", "device", "samples_per_second")
    runs = store.runs(columns=columns)
    like_here = (runs.device == "cpu") == (device == "cpu")
    timed = runs[(runs.samples_per_second > 0) & like_here]
    problem = timed.dataset + " " + timed.setting_json.map(_models_of)
    names = [
        _rate_name(name, json.loads(text))
        for name, text in zip(timed.algorithm, timed.hp_json, strict=True)
    ]
    medians: dict[str, float] = {}
    for key in (problem, problem + " " + names):
        for name, rate in timed.groupby(key).samples_per_second.median().items():
            medians[str(name)] = rate
    return medians


def _models_of(setting_json: str) -> str:
    """Return the models that clients train in a setting, as it names them."""
    setting = json.loads(setting_json)
    return str(setting.get("client_models") or setting["model"])


def recorded_time(rates: Mapping[str, float], run_spec: RunSpec, *, of_all: bool = False) -> Time:
    """Estimate a run's time at the recorded rate of its algorithm on its data set and model.

    `of_all`: at that of all algorithms, unless its own trains on the server.
    """
    setting = run_spec.setting
    name = f"{setting.dataset} {setting.client_models or setting.model}"
    if not of_all or entry(run_spec.algorithm).server_steps:
        name += f" {_rate_name(run_spec.algorithm, run_spec.hyperparameters)}"
    seconds = samples_of(run_spec) / rates.get(name, math.nan)
    return Time(seconds, seconds)


def _rate_name(algorithm: str, hyperparameters: Mapping[str, Value]) -> str:
    """Return the key of a recorded rate: algorithm and number of server steps."""
    own_entry = ALGORITHMS.get(algorithm)  # None for one from outside, which is not imported
    if own_entry is None or not own_entry.server_steps:
        return algorithm
    counts = [hyperparameters.get(name) for name in (own_entry.server_steps, "patience")]
    return f"{algorithm} {counts}"


# The pace of this machine.


def measured_paces(run_specs: Iterable[RunSpec], threads: int) -> dict[Hashable, Pace]:
    """Return `program_of(run_spec)` -> pace on this machine's CPU.

    Missing paces are measured now, and kept.

    A program that was not measured in time is tried again once it gets twice the time, because the
    limit is larger or fewer programs share it. Programs that failed, or that the limit left no time
    for, are left out. Raises UsageError if `$FEDKD_MEASURE_SECONDS` is no number of seconds.
    """
    limit = _limit()
    distinct = {program_of(run_spec): run_spec for run_spec in run_specs}
    paces: dict[Hashable, Pace] = {}
    too_short: dict[Hashable, float] = {}  # seconds in which a program was not measured
    for program, run_spec in distinct.items():
        stored = _load(_pace_file(run_spec, threads))
        if isinstance(stored, Pace):
            paces[program] = stored
        else:
            too_short[program] = stored
    share = limit / max(1, len(too_short))
    to_do = [distinct[program] for program, tried in too_short.items() if 2 * tried <= share]
    if limit:
        _say_unmeasured(len(too_short) - len(to_do), limit)
    if not to_do or not limit:
        return paces
    say(
        f"measuring this machine for {counted(len(to_do), 'kind')} of runs, once, in at most "
        f"{limit:g} s"
    )
    for run_spec, result in zip(to_do, _measured(to_do, threads, limit), strict=True):
        if isinstance(result, Pace):
            paces[program_of(run_spec)] = result
            _store(_pace_file(run_spec, threads), asdict(result))
        elif result is not None:
            _store(_pace_file(run_spec, threads), {_TOO_SHORT: result})
    return paces


def _limit() -> float:
    """Return the seconds in which paces may be measured, of `$FEDKD_MEASURE_SECONDS`."""
    value = os.environ.get(LIMIT) or LIMIT_SECONDS
    try:
        limit = float(value)
    except ValueError:
        limit = math.nan
    if not 0 <= limit < math.inf:
        raise UsageError(f"{LIMIT} must be a number of seconds (0 measures nothing), got {value!r}")
    return limit


def _measured(
    run_specs: Sequence[RunSpec], threads: int, limit: float
) -> list[Pace | float | None]:
    """Measure run specs in a separate process.

    Returns for each its pace, None if it failed, or its share of a limit too short.
    """
    tasks = []
    for run_spec in run_specs:
        setting = run_spec.setting.as_dict()
        tasks.append([run_spec.algorithm, dict(run_spec.hyperparameters), setting])
    folders = [path or str(Path.cwd()) for path in sys.path]
    unmeasured = None
    try:
        process = subprocess.run(
            [sys.executable, "-P", "-m", "bench.engine.pace", str(threads)],
            input=json.dumps(tasks).encode(),
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            timeout=limit,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(folders)},
            check=False,
        )
        out = process.stdout
    except subprocess.TimeoutExpired as error:
        out = error.stdout or b""
        unmeasured = limit / len(run_specs)
    results: list[Pace | float | None] = []
    for line in out.split(b"\n")[:-1]:  # the rest after the last newline was cut off
        values = json.loads(line)
        results.append(None if "error" in values else Pace(**values))
    lacking = len(run_specs) - len(results)
    _say_unmeasured(lacking, limit)
    return results + [unmeasured] * lacking


def _say_unmeasured(count: int, limit: float) -> None:
    if count:
        say(f"{counted(count, 'kind')} of runs not measured; {LIMIT} gives more than {limit:g} s")


def _pace_file(run_spec: RunSpec, threads: int) -> Path:
    """Return the file of a pace.

    It is named by processor, torch, threads, program, and versions of algorithm and model.
    """
    process = process_columns("cpu")
    machine = [process["cpu"], process["versions"].get("torch"), threads]
    versions: list[Value] = [entry(run_spec.algorithm).version, model_version(run_spec.setting)]
    if run_spec.setting.client_models:
        versions.append(client_models_version(run_spec.setting))
    key = json.dumps([*machine, *versions, program_of(run_spec)])
    return cache_dir() / "paces" / f"{sha256(key.encode()).hexdigest()[:16]}.json"


def _load(file: Path) -> Pace | float:
    """Read a stored pace, or the seconds in which it could not be measured; 0 without either."""
    try:
        content = json.loads(file.read_bytes())
        if _TOO_SHORT in content:
            return float(content[_TOO_SHORT])
        return Pace(**content)
    except (OSError, ValueError, TypeError):
        return 0.0


def _store(file: Path, content: dict[str, float]) -> None:
    """Store a pace; if the folder cannot be written, it is measured again next time."""
    with suppress(OSError):
        file.parent.mkdir(parents=True, exist_ok=True)
        with atomic_file(file) as opened:
            opened.write(json.dumps(content).encode())

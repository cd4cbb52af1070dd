"""The work of a run: the samples that it reads, and their time at recorded rates or at a measured pace."""

from __future__ import annotations

import math
from dataclasses import dataclass
from statistics import median

from algorithms import entry
from bench.data import info
from bench.planning.run_spec import RunSpec
from leaderboards import Store
from search_spaces import Setting

PERSONAL = ("fedbn", "feddkd_bn", "local")  # each client's own model is evaluated
SERVER_STEPS = {"fedgen": "generator_steps", "feddf": "max_steps"}  # the hyper-parameter that counts them
SPREAD = 1.5  # an estimate is given from so much less to so much more


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


def samples_of(setting: Setting) -> tuple[float, float]:
    """Samples that a run trains on, each epoch counted, and that its evaluations read.

    Clients are taken to be of equal size: a cohort's samples are its share of all.
    """
    per_round = _training_samples(setting) * setting.cohort_size / setting.num_clients
    if setting.step_rule == "batches":
        per_round = setting.cohort_size * setting.batch_size
    kept = info(setting.dataset).train_size * setting.fraction
    validation = kept * setting.validation_fraction
    evaluations = math.ceil(setting.rounds / setting.evaluate_every)
    local = (kept - validation) * setting.local_test_fraction
    tests = info(setting.dataset).test_size + validation + local
    return per_round * setting.local_epochs * setting.rounds, evaluations * tests


def _training_samples(setting: Setting) -> float:
    """Count the samples that all clients together train on."""
    data = info(setting.dataset)
    kept = data.train_size * setting.fraction * (1 - setting.validation_fraction)
    return (kept - setting.auxiliary_per_class * data.num_classes) * (1 - setting.local_test_fraction)


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
    samples = _training_samples(setting) / sharing
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


class RecordedRates:
    """Training samples per second of stored runs: medians by data set and model, and by algorithm as well.

    Args:
        device: `cpu`, or another for runs on a GPU.
    """

    def __init__(self, store: Store, device: str) -> None:
        self._rates: dict[str, float] = {}
        if not store.begun:
            return
        runs = store.runs(columns=("dataset", "model", "algorithm", "device", "samples_per_second"))
        known = runs[(runs.samples_per_second > 0) & ((runs.device == "cpu") == (device == "cpu"))]
        problem = known.dataset + " " + known.model
        for names in (problem, problem + " " + known.algorithm):
            medians = known.groupby(names).samples_per_second.median()
            self._rates |= {str(name): float(rate) for name, rate in medians.items()}

    def seconds(self, algorithm: str, setting: Setting) -> float:
        """Estimate a run's time at its algorithm's rate on this data set and model; NaN if none was recorded."""
        return samples_of(setting)[0] / self._rates.get(f"{_problem(setting)} {algorithm}", math.nan)

    def seconds_of_any(self, setting: Setting) -> float:
        """Estimate a run's time at the median rate of all algorithms on its data set and model; NaN without one."""
        return samples_of(setting)[0] / self._rates.get(_problem(setting), math.nan)

    def work(self, algorithm: str, setting: Setting) -> float:
        """A number to compare runs by: its seconds at its own rate, else at its problem's, else at the typical one."""
        problem = _problem(setting)
        rates = [self._rates[name] for name in (f"{problem} {algorithm}", problem) if name in self._rates]
        return samples_of(setting)[0] / (rates[0] if rates else median(list(self._rates.values()) or [1.0]))


def _problem(setting: Setting) -> str:
    return f"{setting.dataset} {setting.model}"

"""The work of a run: the samples that it trains on and evaluates, as estimates of time count them.

Imports neither torch nor ray.
"""

from __future__ import annotations

import math

from algorithms import entry
from bench import data
from bench.planning.run_spec import RunSpec
from search_spaces import Setting


def clients_of(run_spec: RunSpec) -> tuple[int, float]:
    """Count the clients that train in a round, and the samples of each, as if of equal size."""
    setting = run_spec.setting
    size = client_size(setting)
    if "pooled" in entry(run_spec.algorithm).needs:
        return 1, size * setting.training_clients
    return setting.cohort_size, size


def client_size(setting: Setting) -> float:
    """Count the samples that a client trains on."""
    return _dealt_samples(setting) * (1 - _kept_share(setting)) / setting.num_clients


def samples_of(run_spec: RunSpec) -> float:
    """Count the samples that a run trains on, over all epochs."""
    setting = run_spec.setting
    clients, size = clients_of(run_spec)
    per_round = clients * (setting.batch_size if setting.step_rule == "batches" else size)
    return per_round * setting.local_epochs * setting.rounds


def evaluations_of(setting: Setting) -> int:
    """Count the rounds of a run that are evaluated."""
    return math.ceil(setting.rounds / setting.evaluate_every)


def server_tests(setting: Setting) -> float:
    """Count the samples of the server that one model is evaluated on: tests and validation."""
    dataset = data.info(setting.dataset)
    held_out = dataset.train_size * setting.fraction * setting.validation_fraction
    return dataset.test_size + held_out


def own_samples(setting: Setting) -> float:
    """Count the samples that all clients together keep for evaluation."""
    return _dealt_samples(setting) * _kept_share(setting)


def _kept_share(setting: Setting) -> float:
    """Return the share of its samples that a client keeps for evaluation."""
    return setting.local_test_fraction + setting.local_validation_fraction


def _dealt_samples(setting: Setting) -> float:
    """Count the samples that the partition gives to all clients together."""
    from bench.data.partition import partition  # numpy

    per_class = partition(setting.partition).per_class
    if per_class:
        return per_class * setting.classes_per_client * setting.num_clients
    dataset = data.info(setting.dataset)
    samples = dataset.train_size * setting.fraction * (1 - setting.validation_fraction)
    return samples - setting.auxiliary_per_class * dataset.num_classes

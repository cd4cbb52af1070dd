"""How much work a run is: the samples that it reads, and the time they take at rates that stored runs had."""

from __future__ import annotations

import math
from statistics import median

from bench.data import info
from leaderboards import Store
from search_spaces import Setting


def samples_of(setting: Setting) -> tuple[float, float]:
    """Samples that a run trains on, each epoch counted, and that its evaluations read.

    Clients are taken to be of equal size: a cohort's samples are its share of all.
    """
    data = info(setting.dataset)
    kept = data.train_size * setting.fraction
    validation = kept * setting.validation_fraction
    own = (kept - validation - setting.auxiliary_per_class * data.num_classes) * (1 - setting.local_test_fraction)
    per_round = own * setting.cohort_size / setting.num_clients
    if setting.step_rule == "batches":
        per_round = setting.cohort_size * setting.batch_size
    evaluations = math.ceil(setting.rounds / setting.evaluate_every)
    local = (kept - validation) * setting.local_test_fraction
    return per_round * setting.local_epochs * setting.rounds, evaluations * (data.test_size + validation + local)


class RecordedRates:
    """Training samples per second of stored runs: medians by data set and model, and by algorithm as well.

    Args:
        store: where the runs are.
        device: `cpu`, or another for those that ran on none.
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
        """Of a run; the algorithm's own rate is preferred to its problem's. NaN where neither was recorded."""
        return samples_of(setting)[0] / self._rate(algorithm, setting)

    def work(self, algorithm: str, setting: Setting) -> float:
        """A number to compare runs by: its seconds, at the typical rate where none of its problem was recorded."""
        rate = self._rate(algorithm, setting)
        return samples_of(setting)[0] / (self._typical if math.isnan(rate) else rate)

    def _rate(self, algorithm: str, setting: Setting) -> float:
        problem = f"{setting.dataset} {setting.model}"
        return self._rates.get(f"{problem} {algorithm}", self._rates.get(problem, math.nan))

    @property
    def _typical(self) -> float:
        return median(self._rates.values()) if self._rates else 1.0

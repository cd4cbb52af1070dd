"""What has to be there before the first trial: a folder that takes results, data, weights, partitions."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from bench.errors import EnvironmentProblem, UsageError
from bench.execution import Execution
from bench.planning.plan import Plan
from bench.planning.unit import Unit
from search_spaces import Setting

if TYPE_CHECKING:
    from bench.data.splits import Split


def check_out(out: Path) -> None:
    """Raise EnvironmentProblem unless files can be written under `out`."""
    try:
        out.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=out) as file:
            file.write(b"\0" * 4096)
            file.flush()
    except OSError as error:
        raise EnvironmentProblem(
            f"--out {out} cannot be written: {error.strerror or error}; choose another folder with --out or FEDKD_OUT"
        ) from None


def prepare_data(plan: Plan, units: Sequence[Unit], execution: Execution) -> None:
    """Fetch each data set once, before workers ask for it together, and refuse partitions that cannot be drawn.

    Raises:
        UsageError: a partition that no draw satisfies.
        EnvironmentProblem: the data, or a model's weights, are missing or altered.
    """
    from bench import data
    from bench.data.splits import feasible, split, split_like
    from bench.models import has_batchnorm, weights

    settings = [(unit.setting, unit.seed) for unit in units]
    settings += [(search.setting, seed) for search in plan.searches for seed in range(plan.request.seeds)]
    # Many runs share a partition, which takes milliseconds to draw, or with many samples seconds.
    unlike = {(split_like(setting), setting.model, seed): (setting, seed) for setting, seed in settings}
    for setting, seed in sorted(unlike.values(), key=lambda case: case[0].dataset):
        dataset = data.load(setting.dataset, execution.data_dir, execution.offline)
        weights.provide(setting.model, execution.data_dir, execution.offline)
        reason = feasible(setting, dataset.train_y, seed, dataset.train_groups)
        if reason:
            raise UsageError(reason)
        if has_batchnorm(setting.model):
            _check_statistics(setting, split(setting, dataset.train_y, seed, dataset.train_groups))


def _check_statistics(setting: Setting, shares: Split) -> None:
    """Refuse a client of one sample where BatchNorm would have to take a variance of it."""
    smallest = min(len(index) for index in shares.clients)
    if smallest < 2:
        raise UsageError(
            f"model {setting.model!r} takes its statistics over a batch, and a client has {smallest} sample: use fewer "
            "clients, a larger alpha, or a model without BatchNorm"
        )

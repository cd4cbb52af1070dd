"""The problems of the papers' tables, as far as speed is concerned: which models train on samples of which shape."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from bench.perf.workload import Workload
from bench.planning.request import Request
from bench.planning.table_plan import make_table_plan
from bench.planning.unit import Unit
from search_spaces import PAPERS, TABLES, Setting

# Weights need not be fetched for their arithmetic.
ALIKE = {"distilbert": "distilbert_scratch"}


def tables() -> Iterator[tuple[str, list[Unit]]]:
    """Every printed table, by paper and name, with all runs of its cells."""
    for (paper, name), table in TABLES.items():
        whose = PAPERS[paper].part_of or paper
        request = Request(("all",), "", whose, seeds=table.runs, table=name)
        yield f"{whose} {name}", list(make_table_plan(request).units)


def problem_of(setting: Setting) -> str:
    """What a rate depends on beside backend, precision and pack: `resnet8 cifar10 own sgd 64`."""
    return f"{setting.model} {setting.dataset} {setting.image_size} {setting.optimizer} {setting.batch_size}"


def table_works(work: Workload) -> dict[str, Workload]:
    """A workload for each problem of the tables, by `problem_of`: the given one with that model and those samples."""
    settings = {problem_of(unit.setting): unit.setting for _, units in tables() for unit in units}
    return {name: _adapted(work, setting) for name, setting in settings.items()}


def _adapted(work: Workload, setting: Setting) -> Workload:
    base, plus, forms = setting.model.partition("+")
    names = ("dataset", "image_size", "optimizer", "batch_size")
    return replace(work, model=ALIKE.get(base, base) + plus + forms, **{name: getattr(setting, name) for name in names})

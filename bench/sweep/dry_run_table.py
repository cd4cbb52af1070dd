"""The dry run of a printed table: its cells, the models that they are read off, the runs that yield these.

Imports neither torch nor ray.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from bench.planning.plan import Plan
from bench.planning.tables import Cell, name_in_print
from bench.planning.unit import distinct_runs
from bench.terminal.console import console
from search_spaces import setting_fields


@dataclass(frozen=True)
class Group:
    """The cells of a table that share a problem and what stands in the way of running it.

    Args:
        problem: data set, and what else tells the table's problems apart, by field.
        cells: the printed numbers.
        reason: why they cannot be run here; empty where they can.
    """

    problem: dict[str, Any]
    cells: tuple[Cell, ...]
    reason: str

    def as_dict(self, seeds: int) -> dict[str, Any]:
        """Its figures, for JSON."""
        return {**self.problem, **counts(self.cells, seeds), "reason": self.reason}


def counts(cells: Iterable[Cell], seeds: int) -> dict[str, int]:
    """How many printed cells there are, evaluated models that they are read off, and runs that yield those."""
    cells = tuple(cells)
    units = [unit for cell in cells for unit in cell.units]
    models = len({unit.key for unit in units}) * seeds
    return {"printed_cells": len(cells), "models_evaluated": models, "runs": len(distinct_runs(units)) * seeds}


def summary_of(plan: Plan) -> dict[str, Any]:
    """A table's figures: of all its cells, of those that can be run here, and of each of its problems."""
    seeds = plan.request.seeds
    runnable = [cell for cell in plan.cells if not cell.reason]
    return {
        "table": plan.cells[0].printed.table,
        **counts(plan.cells, seeds),
        "here": counts(runnable, seeds),
        "problems": [group.as_dict(seeds) for group in groups(plan.cells)],
    }


def groups(cells: Sequence[Cell]) -> list[Group]:
    """The cells by problem and reason, in the order of print."""
    fields = ("alpha", "num_clients", "participation", "local_epochs")
    varying = [name for name in fields if len({getattr(cell.printed, name) for cell in cells}) > 1]
    found: dict[tuple[Any, ...], list[Cell]] = {}
    for cell in cells:
        key = (cell.printed.dataset, *(getattr(cell.printed, name) for name in varying), cell.reason)
        found.setdefault(key, []).append(cell)
    names = ("dataset", *varying)
    return [Group(dict(zip(names, key[:-1], strict=True)), tuple(own), key[-1]) for key, own in found.items()]


def print_cells(plan: Plan) -> None:
    """The table of problems, and in a sentence what all of it amounts to."""
    from rich.table import Table

    seeds, found = plan.request.seeds, groups(plan.cells)
    table = Table(*found[0].problem, "algorithms", "printed cells", "models evaluated", "runs", "can be run")
    for group in found:
        values = ["none" if value is None else str(value) for value in group.problem.values()]
        names = dict.fromkeys(cell.printed.algorithm for cell in group.cells)
        figures = [str(number) for number in counts(group.cells, seeds).values()]
        table.add_row(*values, " ".join(names), *figures, "no" if group.reason else "yes")
    out = console()
    out.print(table)
    out.print(sentence(plan), markup=False, soft_wrap=True)


def sentence(plan: Plan) -> str:
    """`Table 3 of fedgkd: 72 printed cells, 216 models evaluated, 216 runs (3 seeds); ...`."""
    seeds = plan.request.seeds
    runnable = [cell for cell in plan.cells if not cell.reason]
    name = f"{name_in_print(plan.cells[0].printed.table)} of {plan.paper}"
    text = f"{name}: {_figures(counts(plan.cells, seeds))} ({seeds} seed{'s' * (seeds > 1)})"
    several = [cell for cell in plan.cells if len(cell.units) > 1]
    tuned = [cell for cell in several if set(cell.tried) & set(setting_fields())]
    if undecided := [cell for cell in several if cell not in tuned]:
        text += (
            f"; the paper does not tell its choice for {_names(undecided)}: every configuration that it tried is run"
        )
    if tuned:
        fields = ", ".join(dict.fromkeys(name for cell in tuned for name in cell.tried))
        text += f"; the paper tuned {fields} of {_names(tuned)}: every value that it tried is run"
    if len(runnable) < len(plan.cells):
        text += f"; here: {_figures(counts(runnable, seeds))}"
    return text


def _names(cells: Sequence[Cell]) -> str:
    return ", ".join(dict.fromkeys(cell.printed.algorithm for cell in cells))


def _figures(numbers: dict[str, int]) -> str:
    return ", ".join(f"{number} {name.replace('_', ' ')}" for name, number in numbers.items())

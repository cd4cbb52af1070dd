"""The plan of `--paper P --table T`: the table's cells, narrowed and shortened.

Imports neither torch nor ray.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from algorithms import Entry, entry
from bench.errors import UsageError
from bench.planning.request import Request, canonical, distinct, given_grids, sort_values, supply
from bench.planning.run_spec import Cell, Plan, RunSpec, distinct_runs, shortened
from bench.planning.tables import cells_of
from bench.terminal.words import text
from leaderboards.problems import base_model
from leaderboards.rows.schema import SHORTENING
from search_spaces import Grid, combinations, holds, setting_fields

# Fields that distinguish the cells of a table, with their options. A value that a table does not
# have is an error.
_NARROWING = {
    "alpha": "--alpha",
    "participation": "--participation",
    "num_clients": "--clients",
    "classes_per_client": "--set classes_per_client",
}


@dataclass(frozen=True)
class Changes:
    """Replacements of a table's values: setting fields, and hyper-parameters by (algorithm or None for any, name)."""

    fields: Mapping[str, Grid]
    hyper: Mapping[tuple[str | None, str], tuple[str, ...]]


def make_table_plan(request: Request) -> Plan:
    """Plan the runs of the requested cells of a table.

    Raises UsageError if there is no such table, a cell cannot run with the given values, or an
    option excludes tables.
    """
    if not request.paper:
        raise UsageError(f"--table {request.table} needs --paper: whose table it is")
    if request.search != "grid" or request.scheduler != "none" or request.budget:
        raise UsageError(
            "--table runs the cells as printed: leave out --search, --scheduler and --budget"
        )
    if "dataset" in request.values:
        raise UsageError("a table's data sets are narrowed by --dataset, not with --set")
    notes: list[str] = []
    cells, changes = table_cells(request)
    if changes.fields or changes.hyper:
        changed = _apply(changes, cells)
        _note_foreign_values(cells, changed, changes, notes)
        cells = changed
    runs = distinct_runs(run_spec for cell in cells for run_spec in cell.run_specs)
    run_specs = tuple(
        replace(run_spec, seed=seed) for run_spec in runs for seed in range(request.seeds)
    )
    settings = tuple(dict.fromkeys(run_spec.setting for run_spec in run_specs))
    origins = {name: request.origins.get(name, "command line") for name in changes.fields}
    return Plan(
        request, request.paper, run_specs, (), settings, origins, tuple(notes), tuple(cells)
    )


def table_cells(request: Request) -> tuple[list[Cell], Changes]:
    """Select the cells of a request's table; return them, and the values that replace theirs.

    Raises UsageError.
    """
    algorithms = () if request.algorithms == ("all",) else request.algorithms
    datasets = [name for name in request.dataset.split(",") if name]
    cells = _select(
        cells_of(request.paper or "", request.table or ""),
        "algorithm",
        "algorithm",
        algorithms,
        request,
    )
    cells = _select(cells, "data set", "dataset", datasets, request)
    fields, hyper = sort_values(
        request, [entry(name) for name in dict.fromkeys(c.printed.algorithm for c in cells)]
    )
    cells, replaced = _narrow(cells, fields)
    return cells, Changes(replaced, hyper)


def _select(
    cells: list[Cell], kind: str, field: str, names: Sequence[str], request: Request
) -> list[Cell]:
    """Select the cells whose printed `field` is among `names`; all cells if there are no names."""
    printed = list(dict.fromkeys(getattr(cell.printed, field) for cell in cells))
    for name in names:
        if name not in printed:
            raise UsageError(
                f"Table {request.table} of {request.paper} has no {kind} {name!r}; it has: {', '.join(printed)}"
            )
    return [cell for cell in cells if not names or getattr(cell.printed, field) in names]


def _narrow(
    cells: Sequence[Cell], fields: Mapping[str, tuple[str, ...]]
) -> tuple[list[Cell], dict[str, Grid]]:
    """Select the cells with the given values of fields that distinguish cells; return them, and the other fields.

    Local epochs select cells if the table varies them and prints the given values; else they
    shorten the runs.
    """
    kinds = setting_fields()
    selected, replaced = list(cells), {}
    for name, texts in fields.items():
        values = distinct(name, texts, str(kinds[name].type))
        if name in _NARROWING or (name == "local_epochs" and _varies_epochs(selected, values)):
            printed = list(dict.fromkeys(getattr(cell.printed, name) for cell in selected))
            for value in values.values:
                if value not in printed:
                    option, listed = (
                        _NARROWING.get(name, "--local-epochs"),
                        ", ".join(map(text, printed)),
                    )
                    raise UsageError(
                        f"{option} {text(value)} is not in these cells of the table; they have: {listed}"
                    )
            selected = [cell for cell in selected if getattr(cell.printed, name) in values]
        else:
            replaced[name] = values
    return selected, replaced


def _varies_epochs(cells: Sequence[Cell], values: Grid) -> bool:
    """Tell whether the cells of each data set differ in their local epochs, and include the given ones."""
    printed: dict[str, set[int]] = {}
    for cell in cells:
        printed.setdefault(cell.printed.dataset, set()).add(cell.printed.local_epochs)
    return all(len(epochs) > 1 and epochs >= set(values.values) for epochs in printed.values())


def _apply(changes: Changes, cells: Sequence[Cell]) -> list[Cell]:
    """Replace setting fields and hyper-parameters of the cells."""
    changed = []
    for cell in cells:
        algorithm = entry(cell.printed.algorithm)
        variants = [_variant(cell, algorithm, values) for values in combinations(changes.fields)]
        run_specs = [
            run_spec
            for run_specs in variants
            for run_spec in _with_hyperparameters(algorithm, run_specs, changes)
        ]
        changed.append(
            replace(
                cell, run_specs=tuple({run_spec.key: run_spec for run_spec in run_specs}.values())
            )
        )
    return changed


def _variant(cell: Cell, algorithm: Entry, values: Mapping[str, Any]) -> list[RunSpec]:
    """Return the run specs of a cell with other values of setting fields."""
    base = cell.setting
    for name in SHORTENING:
        if name in values and values[name] > getattr(base, name):
            raise UsageError(
                f"{name}={text(values[name])} is more than the {text(getattr(base, name))} of {cell.printed.printed} "
                f"on {base.dataset}: a table's runs can be shortened, not lengthened: select other cells, or lower it"
            )
    try:
        changed = {
            old: canonical(replace(old, **values))
            for old in {run_spec.setting for run_spec in cell.run_specs}
        }
    except ValueError as error:
        raise UsageError(str(error)) from None
    try:
        fits = {old: supply(algorithm, new) for old, new in changed.items()}
    except ValueError as error:
        raise UsageError(
            f"{cell.printed.printed} on {base.dataset}: {error}; or select by --algo and --dataset what can run so"
        ) from None
    fitted = fits[
        base
    ]  # cells vary fields, such as lr, that decide neither what fits nor how long a run is
    short = shortened(fitted, base) or base_model(fitted.model) != base_model(base.model)
    return [
        replace(run_spec, setting=fits[run_spec.setting], shortened=short)
        for run_spec in cell.run_specs
    ]


def _with_hyperparameters(
    algorithm: Entry, run_specs: Iterable[RunSpec], changes: Changes
) -> list[RunSpec]:
    """Give the run specs other hyper-parameters; drop the run specs that then violate the algorithm's relations."""
    valid = []
    for run_spec in run_specs:
        for values in combinations(given_grids(algorithm, changes.hyper)):
            try:
                resolved = algorithm.resolve({**run_spec.hyperparameters, **values})
            except ValueError as error:
                raise UsageError(str(error)) from None
            if all(holds(relation, resolved) for relation in algorithm.where):
                valid.append(replace(run_spec, hyperparameters=resolved))
    if not valid:
        raise UsageError(
            f"{algorithm.name}: the values given break {' and '.join(algorithm.where)}"
        )
    return valid


def _note_foreign_values(
    cells: Sequence[Cell], changed: Sequence[Cell], changes: Changes, notes: list[str]
) -> None:
    """Note the values that make runs which no longer correspond to a cell of the table."""
    names: list[str] = []
    for cell, other in zip(cells, changed, strict=True):
        for name in (field for field in changes.fields if field not in (*SHORTENING, "model")):
            tried = {getattr(run_spec.setting, name) for run_spec in cell.run_specs}
            names += [name] * any(
                getattr(run_spec.setting, name) not in tried for run_spec in other.run_specs
            )
        original = [run_spec.hyperparameters for run_spec in cell.run_specs]
        if any(run_spec.hyperparameters not in original for run_spec in other.run_specs):
            names += [
                name
                for algorithm, name in changes.hyper
                if algorithm in (None, cell.printed.algorithm)
            ]
    if names:
        notes.append(
            f"with values of {', '.join(dict.fromkeys(names))} that are not the table's: bench.compare --table shows "
            "these runs beside no cell"
        )

"""`--paper P --table T` as a plan: the table's cells, narrowed and shortened. Imports neither torch nor ray."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from algorithms import Entry, entry
from bench.errors import UsageError
from bench.planning.request import Notes, Request, canonical, distinct, given_grids, sort_values, supply
from bench.planning.run_spec import Cell, Plan, RunSpec, distinct_runs, shortened
from bench.planning.tables import cells_of
from bench.terminal.words import text
from leaderboards.rows.schema import SHORTENING
from search_spaces import Grid, combinations, holds, setting_fields

# Fields that tell a table's cells apart, with their options. A value that a table does not have is an error.
_NARROWING = {"alpha": "--alpha", "participation": "--participation", "num_clients": "--clients"}


@dataclass(frozen=True)
class Changes:
    """Values that replace a table's: setting fields, and hyper-parameters by (algorithm or None for any, name)."""

    fields: Mapping[str, Grid]
    hyper: Mapping[tuple[str | None, str], tuple[str, ...]]


def make_table_plan(request: Request) -> Plan:
    """Plan the runs of a table's cells that are asked for.

    Raises UsageError if there is no such table, a cell cannot run with the given values, or options do not go with it.
    """
    if not request.paper:
        raise UsageError(f"--table {request.table} needs --paper: whose table it is")
    if request.search != "grid" or request.scheduler != "none":
        raise UsageError("--table runs the cells as printed: leave out --search and --scheduler")
    if "dataset" in request.values:
        raise UsageError("a table's data sets are narrowed by --dataset, not with --set")
    notes = Notes()
    cells, changes = table_cells(request)
    if changes.fields or changes.hyper:
        changed = _changed(cells, changes)
        _note_strangers(cells, changed, changes, notes)
        cells = changed
    runs = distinct_runs(unit for cell in cells for unit in cell.units)
    units = tuple(replace(unit, seed=seed) for unit in runs for seed in range(request.seeds))
    settings = tuple(dict.fromkeys(unit.setting for unit in units))
    origins = {name: request.origins.get(name, "command line") for name in changes.fields}
    return Plan(request, request.paper, units, (), settings, origins, tuple(notes.lines), tuple(cells))


def table_cells(request: Request) -> tuple[list[Cell], Changes]:
    """The cells that a request narrows its table to, and the values that replace theirs; raises UsageError."""
    algorithms = () if request.algorithms == ("all",) else request.algorithms
    datasets = [name for name in request.dataset.split(",") if name]
    cells = _keep(cells_of(request.paper or "", request.table or ""), "algorithm", "algorithm", algorithms, request)
    cells = _keep(cells, "data set", "dataset", datasets, request)
    fields, hyper = sort_values(request, [entry(name) for name in dict.fromkeys(c.printed.algorithm for c in cells)])
    cells, left = _narrowed(cells, fields)
    return cells, Changes(left, hyper)


def _keep(cells: list[Cell], kind: str, field: str, names: Sequence[str], request: Request) -> list[Cell]:
    """Keep the cells whose printed `field` is among the names, all if there are none."""
    there = list(dict.fromkeys(getattr(cell.printed, field) for cell in cells))
    for name in names:
        if name not in there:
            raise UsageError(
                f"Table {request.table} of {request.paper} has no {kind} {name!r}; it has: {', '.join(there)}"
            )
    return [cell for cell in cells if not names or getattr(cell.printed, field) in names]


def _narrowed(cells: Sequence[Cell], fields: Mapping[str, tuple[str, ...]]) -> tuple[list[Cell], dict[str, Grid]]:
    """The cells with the given values of fields that tell cells apart, and the fields that are left to change.

    Local epochs narrow a table that varies them and prints the values given; else they shorten.
    """
    kinds = setting_fields()
    kept, left = list(cells), {}
    for name, texts in fields.items():
        values = distinct(name, texts, str(kinds[name].type))
        if name in _NARROWING or (name == "local_epochs" and _varies_epochs(kept, values)):
            there = list(dict.fromkeys(getattr(cell.printed, name) for cell in kept))
            for value in values.values:
                if value not in there:
                    option, listed = _NARROWING.get(name, "--local-epochs"), ", ".join(map(text, there))
                    raise UsageError(f"{option} {text(value)} is not in these cells of the table; they have: {listed}")
            kept = [cell for cell in kept if getattr(cell.printed, name) in values]
        else:
            left[name] = values
    return kept, left


def _varies_epochs(cells: Sequence[Cell], values: Grid) -> bool:
    """Tell whether the cells of one data set differ in their local epochs, and have those given."""
    printed: dict[str, set[int]] = {}
    for cell in cells:
        printed.setdefault(cell.printed.dataset, set()).add(cell.printed.local_epochs)
    return all(len(epochs) > 1 and epochs >= set(values.values) for epochs in printed.values())


def _changed(cells: Sequence[Cell], changes: Changes) -> list[Cell]:
    """The cells with other values of setting fields and hyper-parameters."""
    changed = []
    for cell in cells:
        algorithm = entry(cell.printed.algorithm)
        variants = [_variant(cell, algorithm, values) for values in combinations(changes.fields)]
        units = [unit for units in variants for unit in _with_hyperparameters(algorithm, units, changes)]
        changed.append(replace(cell, units=tuple({unit.key: unit for unit in units}.values())))
    return changed


def _variant(cell: Cell, algorithm: Entry, values: Mapping[str, Any]) -> list[RunSpec]:
    """The units of a cell in a setting with other values."""
    own = cell.setting
    for name in SHORTENING:
        if name in values and values[name] > getattr(own, name):
            raise UsageError(
                f"{name}={text(values[name])} is more than the {text(getattr(own, name))} of {cell.printed.printed} "
                f"on {own.dataset}: a table's runs can be shortened, not lengthened; narrow it, or lower {name}"
            )
    try:
        asked = {setting: canonical(replace(setting, **values)) for setting in {unit.setting for unit in cell.units}}
    except ValueError as error:
        raise UsageError(str(error)) from None
    try:
        fits = {setting: supply(algorithm, given) for setting, given in asked.items()}
    except ValueError as error:
        raise UsageError(
            f"{cell.printed.printed} on {own.dataset}: {error}; or name by --algo and --dataset what can run so"
        ) from None
    fitted = fits[own]  # cells vary fields, such as lr, that decide neither what fits nor how long a run is
    short = shortened(fitted, own) or fitted.model.partition("+")[0] != own.model.partition("+")[0]
    return [replace(unit, setting=fits[unit.setting], shortened=short) for unit in cell.units]


def _with_hyperparameters(algorithm: Entry, units: Iterable[RunSpec], changes: Changes) -> list[RunSpec]:
    """The units with the given hyper-parameters that keep the algorithm's relations."""
    kept = []
    for unit in units:
        for values in combinations(given_grids(algorithm, changes.hyper)):
            try:
                resolved = algorithm.resolve({**unit.hyperparameters, **values})
            except ValueError as error:
                raise UsageError(str(error)) from None
            if all(holds(relation, resolved) for relation in algorithm.where):
                kept.append(replace(unit, hyperparameters=resolved))
    if not kept:
        raise UsageError(f"{algorithm.name}: the values given break {' and '.join(algorithm.where)}")
    return kept


def _note_strangers(cells: Sequence[Cell], changed: Sequence[Cell], changes: Changes, notes: Notes) -> None:
    """Say which values make runs that stand for no cell of the table any more."""
    names = [name for name in changes.fields if name not in (*SHORTENING, "model")]
    for cell, other in zip(cells, changed, strict=True):
        known = [unit.hyperparameters for unit in cell.units]
        if any(unit.hyperparameters not in known for unit in other.units):
            names += [name for algorithm, name in changes.hyper if algorithm in (None, cell.printed.algorithm)]
    if names:
        notes.add(
            f"with values of {', '.join(dict.fromkeys(names))} that are not the table's: bench.compare --table shows "
            "these runs beside no cell"
        )

"""The runs of a paper's table: each printed cell with the configuration and the setting that reproduce it.

Imports neither torch nor ray.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from algorithms import Entry, entry
from bench.errors import UsageError
from bench.planning.request import canonical, supply
from bench.planning.run_spec import Cell, RunSpec
from bench.terminal.words import unknown
from leaderboards.problems import base_model
from leaderboards.published import Counterpart, PrintedCell, printed_cells
from search_spaces import (
    PAPERS,
    SPACES,
    Setting,
    Space,
    Table,
    Value,
    combinations,
    crossed,
    find_table,
    holds,
)


def table_of(paper: str, name: str) -> tuple[str, Table]:
    """Find a paper's table by its printed name; return the key of its spaces, and the table.

    Raises UsageError.
    """
    names = list(dict.fromkeys(cell.table for cell in printed_cells() if cell.paper == paper))
    if not names:
        raise unknown(
            "paper with tables of results",
            paper,
            dict.fromkeys(cell.paper for cell in printed_cells()),
        )
    exact_name = next((table for table in names if table.lower() == name.lower()), None)
    table = find_table(paper, exact_name) if exact_name else None
    if table is None:
        raise UsageError(
            f"paper {paper!r} has no table of results {name!r}; it has: {', '.join(names)}"
        )
    return table


def name_in_print(table: str) -> str:
    """Return a table's printed name: `Table IV`, or `Figure 2` for the one caption that holds results."""
    return "Figure 2" if table == "fig2" else f"Table {table}"


def title_of(cell: Cell) -> str:
    """Return the title of a cell's table: its printed name, authors and year."""
    paper = PAPERS[cell.printed.paper]
    return f"{name_in_print(cell.printed.table)} · {paper.authors} {paper.year} ({paper.key}) · ours beside printed"


def counterparts_of(cell: Cell) -> list[Counterpart]:
    """List the configurations that a printed cell may be of.

    If an algorithm's run has further rows, such as of another prediction, each is a counterpart
    too.
    """
    counterparts = []
    for run_spec in cell.run_specs:
        setting = run_spec.setting.as_dict()
        values = setting | dict(run_spec.hyperparameters)
        tried = [f"{name}={values[name]}" for name in cell.tried]
        hp_json = str(run_spec.named_by["hp_json"])
        for row in _rows_of(run_spec):
            further = [] if row == run_spec.algorithm else [row]
            label = " ".join([*tried, *further])
            counterparts.append(Counterpart(cell.printed, row, hp_json, setting, label))
    return counterparts


def _rows_of(run_spec: RunSpec) -> list[str]:
    """Return a run's own row, and all others if its own is the first, not another algorithm's."""
    rows = run_spec.row_names
    return list(rows.values()) if rows[""] == run_spec.algorithm else [run_spec.algorithm]


def cells_of(paper: str, name: str) -> list[Cell]:
    """List the printed cells of a table, such as `3` or `IV`, with the runs that reproduce them; raises UsageError."""
    key, table = table_of(paper, name)
    reproduced: dict[tuple[Setting, str, str], tuple[tuple[RunSpec, ...], tuple[str, ...]]] = {}
    cells = []
    for printed in printed_cells():
        if (printed.paper, printed.table) != (PAPERS[key].part_of or key, table.name):
            continue
        setting = _setting_of(printed, table)
        case = (setting, printed.algorithm, printed.hyperparameters)
        if case not in reproduced:
            reproduced[case] = _run_specs_of(key, table, setting, printed)
        run_specs, tried = reproduced[case]
        cells.append(Cell(printed, run_specs, tried))
    return cells


def _setting_of(printed: PrintedCell, table: Table) -> Setting:
    """Find the table's setting that a cell belongs to."""
    wanted = (printed.dataset, printed.model, printed.client_models or "", printed.alpha)
    shape = (printed.num_clients, printed.participation, printed.local_epochs)
    ways = printed.classes_per_client
    return next(
        setting
        for setting in table.settings
        if (setting.dataset, base_model(setting.model), setting.client_models, setting.alpha)
        == wanted
        and (setting.num_clients, setting.participation, setting.local_epochs) == shape
        and ways in (None, setting.classes_per_client)
    )


def _run_specs_of(
    key: str, table: Table, setting: Setting, printed: PrintedCell
) -> tuple[tuple[RunSpec, ...], tuple[str, ...]]:
    """Return the run specs of a cell, and the names in which they differ."""
    algorithm, space = entry(printed.algorithm), SPACES[key, setting.dataset, printed.algorithm]
    # The paper may use another form of the model, such as one with BatchNorm, for this algorithm
    # alone.
    fitted = supply(algorithm, canonical(replace(setting, model=space.setting.model)))
    tuned = table.tuned.get(algorithm.name, {})
    configurations, tried = _configurations(algorithm, space, setting, printed)
    settings = crossed(fitted, **{name: grid.values for name, grid in tuned.items()})
    run_specs = tuple(
        RunSpec(algorithm.name, values, fit, 0, key)
        for fit in settings
        for values in configurations
    )
    return run_specs, (*tuned, *tried)


def _configurations(
    algorithm: Entry, space: Space, setting: Setting, printed: PrintedCell
) -> tuple[Sequence[dict[str, Value]], tuple[str, ...]]:
    """Return the configuration that the paper reports for a cell; if it names none, every combination that it tried."""
    reported = {**space.reported(setting.alpha), **printed.variant}
    grid = {name: values for name, values in space.grid.items() if name not in reported}
    relations = (*algorithm.where, *space.where)
    resolved = [algorithm.resolve({**reported, **values}) for values in combinations(grid)]
    valid = [
        values for values in resolved if all(holds(relation, values) for relation in relations)
    ]
    return valid, tuple(grid)

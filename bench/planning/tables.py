"""The runs of a paper's table: a configuration and a setting for each printed number.

Imports neither torch nor ray.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from algorithms import Entry, entry
from bench.errors import UsageError
from bench.planning.run_spec import RunSpec
from bench.planning.settings import canonical, supply
from bench.terminal.words import unknown
from leaderboards.problems import base_model
from leaderboards.published import Counterpart, PrintedCell, printed_cells
from search_spaces import (
    PAPERS,
    SPACES,
    PaperTable,
    Setting,
    Space,
    Value,
    combinations,
    find_table,
    holds,
)

# Fields that a printed number and its setting have in common.
_SHARED = ("dataset", "alpha", "num_clients", "participation", "local_epochs")


@dataclass(frozen=True)
class TablePlace:
    """A place of a printed table: one number, and the runs that reproduce it.

    Args:
        printed: the number.
        run_specs: the run of seed 0 that reproduces it; several if the paper tried several
            configurations and does not say which it prints.
        tried: the hyper-parameters in which the run specs differ.
    """

    printed: PrintedCell
    run_specs: tuple[RunSpec, ...]
    tried: tuple[str, ...]

    @property
    def setting(self) -> Setting:
        """The setting in which the algorithm runs."""
        return self.run_specs[0].setting


def table_of(paper: str, name: str) -> tuple[str, PaperTable]:
    """Find a paper's table by its printed name; return the key of its spaces, and the table.

    Raises UsageError.
    """
    names_of: dict[str, dict[str, None]] = {}
    for printed in printed_cells():
        names_of.setdefault(printed.paper, {})[printed.table] = None
    if paper not in names_of:
        raise unknown("paper with tables of results", paper, names_of)
    names = names_of[paper]
    exact_name = next((table for table in names if table.lower() == name.lower()), None)
    table = find_table(paper, exact_name) if exact_name else None
    if table is None:
        raise UsageError(
            f"paper {paper!r} has no table of results {name!r}; it has: {', '.join(names)}"
        )
    return table


def name_in_print(table: str) -> str:
    """Return a table's printed name: `Table IV`, or `Figure 2` for the one caption with results."""
    return "Figure 2" if table == "fig2" else f"Table {table}"


def title_of(place: TablePlace) -> str:
    """Return the title of a place's table: its printed name, authors and year."""
    paper = PAPERS[place.printed.paper]
    name = name_in_print(place.printed.table)
    return f"{name} · {paper.authors} {paper.year} ({paper.key}) · ours beside printed"


def needs_local_accuracy(places: Iterable[TablePlace]) -> bool:
    """Return whether a printed number is of clients' own models, which `--track local` measures."""
    return any(place.printed.quantity == "local_accuracy" for place in places)


def counterparts_of(place: TablePlace) -> list[Counterpart]:
    """List the configurations that a printed number may be of.

    If an algorithm's run has further rows, such as of another prediction, each is a counterpart
    too.
    """
    counterparts = []
    for run_spec in place.run_specs:
        setting = run_spec.setting.as_dict()
        tried = [f"{name}={run_spec.hyperparameters[name]}" for name in place.tried]
        hp_json = str(run_spec.named_by["hp_json"])
        # Further rows are the run's own, if its first row is not another algorithm's.
        rows = run_spec.row_names
        own = rows.values() if rows[""] == run_spec.algorithm else [run_spec.algorithm]
        for row in own:
            further = [] if row == run_spec.algorithm else [row]
            label = " ".join([*tried, *further])
            counterparts.append(Counterpart(place.printed, row, hp_json, setting, label))
    return counterparts


def places_of(paper: str, name: str) -> list[TablePlace]:
    """List the places of a table, such as `3` or `IV`, with the runs that reproduce them.

    Raises UsageError.
    """
    key, table = table_of(paper, name)
    owner = PAPERS[key].part_of or key
    reproduced: dict[tuple[Setting, str, str], TablePlace] = {}
    places = []
    for printed in printed_cells():
        if (printed.paper, printed.table) != (owner, table.name):
            continue
        setting = _setting_of(printed, table)
        case = (setting, printed.algorithm, printed.hyperparameters)
        if case not in reproduced:
            reproduced[case] = _place(key, table, setting, printed)
        places.append(replace(reproduced[case], printed=printed))
    return places


def _setting_of(printed: PrintedCell, table: PaperTable) -> Setting:
    """Find the table's setting that a printed number belongs to; raises LookupError without one."""
    models = (printed.model, printed.client_models or "")
    for setting in table.settings:
        fields_agree = all(getattr(setting, name) == getattr(printed, name) for name in _SHARED)
        models_agree = (base_model(setting.model), setting.client_models) == models
        classes_agree = printed.classes_per_client in (None, setting.classes_per_client)
        if fields_agree and models_agree and classes_agree:
            return setting
    raise LookupError(f"table {table.name} has no setting of {printed.printed}")


def _place(key: str, table: PaperTable, setting: Setting, printed: PrintedCell) -> TablePlace:
    """Make the place of a printed number."""
    algorithm = entry(printed.algorithm)
    space = SPACES[key, setting.dataset, printed.algorithm]
    # The paper may use another form of the model, such as one with BatchNorm, for this algorithm
    # alone.
    fitted = supply(algorithm, canonical(replace(setting, model=space.setting.model)))
    configurations, tried = _configurations(algorithm, space, setting, printed)
    run_specs = [RunSpec(algorithm.name, values, fitted, 0, key) for values in configurations]
    return TablePlace(printed, tuple(run_specs), tried)


def _configurations(
    algorithm: Entry, space: Space, setting: Setting, printed: PrintedCell
) -> tuple[Sequence[dict[str, Value]], tuple[str, ...]]:
    """Return the configuration that the paper reports for a number, and no names.

    If it names none, return every combination that it tried, and the names in which they differ.
    """
    reported = {**space.reported(setting.alpha), **printed.variant}
    grid = {name: values for name, values in space.grid.items() if name not in reported}
    valid = []
    for values in combinations(grid):
        configuration = algorithm.resolve({**reported, **values})
        if all(holds(relation, configuration) for relation in algorithm.where):
            valid.append(configuration)
    return valid, tuple(grid)

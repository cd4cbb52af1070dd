"""The plan of `--paper P --table T`: the table's places, narrowed and shortened.

Imports neither torch nor ray.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from algorithms import Entry, entry
from bench.errors import UsageError, refusing_values
from bench.planning.given import HyperTexts, distinct, given_grids, sort_values
from bench.planning.options import SweepOptions, Texts
from bench.planning.plan import Plan
from bench.planning.run_spec import RunSpec, distinct_runs, shortened
from bench.planning.settings import canonical, supply
from bench.planning.tables import TablePlace, places_of
from bench.terminal.words import text
from leaderboards.problems import base_model
from leaderboards.rows.schema import SHORTENING
from search_spaces import Grid, combinations, holds, setting_fields

# Fields that distinguish the places of a table, with their options. A value that a table does not
# have is an error.
_NARROWING = {
    "alpha": "--alpha",
    "participation": "--participation",
    "num_clients": "--clients",
    "classes_per_client": "--set classes_per_client",
}


@dataclass(frozen=True)
class Changes:
    """Replacements of a table's values: of setting fields, and of hyper-parameters."""

    fields: Mapping[str, Grid]
    hyper: HyperTexts


def make_table_plan(options: SweepOptions) -> Plan:
    """Plan the runs of the requested places of a table.

    Raises UsageError if there is no such table, a place cannot run with the given values, or an
    option excludes tables.
    """
    if not options.paper:
        raise UsageError(f"--table {options.table} needs --paper: whose table it is")
    if options.search != "grid" or options.scheduler != "none" or options.budget:
        raise UsageError(
            "--table runs the cells as printed: leave out --search, --scheduler and --budget"
        )
    if "dataset" in options.values:
        raise UsageError("a table's data sets are narrowed by --dataset, not with --set")
    notes: list[str] = []
    places, changes = table_places(options)
    if changes.fields or changes.hyper:
        changed = [_changed(place, changes) for place in places]
        names = dict.fromkeys(_foreign_values(places, changed, changes))
        if names:
            notes.append(
                f"with values of {', '.join(names)} that are not the table's: bench.compare "
                "--table shows these runs beside no cell"
            )
        places = changed
    runs: list[RunSpec] = []
    for place in places:
        runs += place.run_specs
    run_specs: list[RunSpec] = []
    for run_spec in distinct_runs(runs):
        run_specs += [replace(run_spec, seed=seed) for seed in range(options.seeds)]
    return Plan(
        options=options,
        paper=options.paper,
        run_specs=tuple(run_specs),
        searches=(),
        settings=tuple(dict.fromkeys(run_spec.setting for run_spec in run_specs)),
        origins={name: options.origin_of(name) for name in changes.fields},
        notes=tuple(notes),
        places=tuple(places),
    )


def table_places(options: SweepOptions) -> tuple[list[TablePlace], Changes]:
    """Select the places of a table; return them, and the values that replace theirs.

    Raises UsageError.
    """
    algorithms = () if options.every_algorithm else options.algo
    datasets = [name for name in options.dataset.split(",") if name]
    places = places_of(options.paper or "", options.table or "")
    places = _select(places, "algorithm", "algorithm", algorithms, options)
    places = _select(places, "data set", "dataset", datasets, options)
    names = dict.fromkeys(place.printed.algorithm for place in places)
    fields, hyper = sort_values(options, [entry(name) for name in names])
    places, replaced = _narrow(places, fields)
    return places, Changes(replaced, hyper)


def _select(
    places: list[TablePlace], kind: str, field: str, names: Sequence[str], options: SweepOptions
) -> list[TablePlace]:
    """Select the places whose printed `field` is among `names`; all if there are no names."""
    printed = list(dict.fromkeys(getattr(place.printed, field) for place in places))
    for name in names:
        if name not in printed:
            raise UsageError(
                f"Table {options.table} of {options.paper} has no {kind} {name!r}; it has: "
                f"{', '.join(printed)}"
            )
    return [place for place in places if not names or getattr(place.printed, field) in names]


def _narrow(
    places: Sequence[TablePlace], fields: Mapping[str, Texts]
) -> tuple[list[TablePlace], dict[str, Grid]]:
    """Select the places with the given values of fields that distinguish places.

    Local epochs select places if the table varies them and prints the given values; else they
    shorten the runs. Returns the places, and the other fields.
    """
    kinds = setting_fields()
    selected = list(places)
    replaced = {}
    for name, texts in fields.items():
        values = distinct(name, texts, str(kinds[name].type))
        epochs = name == "local_epochs" and _varies_epochs(selected, values)
        if name not in _NARROWING and not epochs:
            replaced[name] = values
            continue
        printed = list(dict.fromkeys(getattr(place.printed, name) for place in selected))
        for value in values.values:
            if value not in printed:
                option = _NARROWING.get(name, "--local-epochs")
                listed = ", ".join(map(text, printed))
                raise UsageError(
                    f"{option} {text(value)} is not in these cells of the table; they have: "
                    f"{listed}"
                )
        selected = [place for place in selected if getattr(place.printed, name) in values]
    return selected, replaced


def _varies_epochs(places: Sequence[TablePlace], values: Grid) -> bool:
    """Tell whether the places of each data set differ in local epochs, and have the given ones."""
    printed: dict[str, set[int]] = {}
    for place in places:
        printed.setdefault(place.printed.dataset, set()).add(place.printed.local_epochs)
    return all(len(epochs) > 1 and epochs >= set(values.values) for epochs in printed.values())


def _changed(place: TablePlace, changes: Changes) -> TablePlace:
    """Replace setting fields and hyper-parameters of a place."""
    algorithm = entry(place.printed.algorithm)
    by_key: dict[str, RunSpec] = {}
    for values in combinations(changes.fields):
        variant = _variant(place, algorithm, values)
        for run_spec in _with_hyperparameters(algorithm, variant, changes):
            by_key[run_spec.key] = run_spec
    return replace(place, run_specs=tuple(by_key.values()))


def _variant(place: TablePlace, algorithm: Entry, values: Mapping[str, Any]) -> list[RunSpec]:
    """Return the run specs of a place with other values of setting fields."""
    base = place.setting
    where = f"{place.printed.printed} on {base.dataset}"
    for name in SHORTENING:
        if name in values and values[name] > getattr(base, name):
            raise UsageError(
                f"{name}={text(values[name])} is more than the {text(getattr(base, name))} of "
                f"{where}: a table's runs can be shortened, not lengthened: select other cells, or "
                "lower it"
            )
    with refusing_values():
        changed = canonical(replace(base, **values))
    try:
        fitted = supply(algorithm, changed)
    except ValueError as error:
        raise UsageError(
            f"{where}: {error}; or select by --algo and --dataset what can run so"
        ) from None
    short = shortened(fitted, base) or base_model(fitted.model) != base_model(base.model)
    return [replace(run_spec, setting=fitted, shortened=short) for run_spec in place.run_specs]


def _with_hyperparameters(
    algorithm: Entry, run_specs: Iterable[RunSpec], changes: Changes
) -> list[RunSpec]:
    """Give run specs other hyper-parameters, without those that break the algorithm's relations."""
    valid = []
    for run_spec in run_specs:
        for values in combinations(given_grids(algorithm, changes.hyper)):
            with refusing_values():
                resolved = algorithm.resolve({**run_spec.hyperparameters, **values})
            if all(holds(relation, resolved) for relation in algorithm.where):
                valid.append(replace(run_spec, hyperparameters=resolved))
    if not valid:
        raise UsageError(
            f"{algorithm.name}: the values given break {' and '.join(algorithm.where)}"
        )
    return valid


def _foreign_values(
    places: Sequence[TablePlace], changed: Sequence[TablePlace], changes: Changes
) -> Iterator[str]:
    """Yield the names with values of runs that no longer correspond to a place of the table."""
    fields = [name for name in changes.fields if name not in (*SHORTENING, "model")]
    for place, other in zip(places, changed, strict=True):
        for name in fields:
            if getattr(other.setting, name) != getattr(place.setting, name):
                yield name
        original = [run_spec.hyperparameters for run_spec in place.run_specs]
        if all(run_spec.hyperparameters in original for run_spec in other.run_specs):
            continue
        for algorithm, name in changes.hyper:
            if algorithm in (None, place.printed.algorithm):
                yield name

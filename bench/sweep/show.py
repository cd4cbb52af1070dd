"""`--list` and `--show`: the registry and the search spaces, as tables or JSON.

Imports neither torch nor ray.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import chain
from typing import TYPE_CHECKING, Any

from algorithms import ALGORITHMS, Entry, Field, plugins
from bench.errors import UsageError
from bench.planning.given import find_algorithm
from bench.planning.plan import Plan
from bench.terminal.console import console, print_json, say
from bench.terminal.words import text
from search_spaces import PAPERS, SPACES, Space

if TYPE_CHECKING:
    from rich.table import Table

_TABLE_WIDTH = 120  # columns of a terminal that has room for the tables


def print_registry(names: Sequence[str], as_json: bool) -> None:
    """Print algorithms: paper, equations, hyper-parameters, traffic, clients' memory.

    Hyper-parameters have their defaults and the values that papers tried. JSON has ranges and
    meanings. `names`: the algorithms to show; if empty or `all`, those registered or installed.
    """
    entries, broken = _entries(names)
    if as_json:
        print_json([_as_dict(entry) for entry in entries])
        return
    out = console()
    if out.width < _TABLE_WIDTH:
        for entry in entries:
            out.print(_block(entry))
    else:
        out.print(_registry_table(entries))
    out.print(
        "Floats per active client and round: P the model's size, C classes, G a generator's size, "
        "M the buffer, J the steps.\n"
        "--json has summaries, ranges and meanings too; --algo NAME --list shows one."
    )
    for problem in broken:
        out.print(f"left out: {problem}")


def _block(entry: Entry) -> str:
    """Return the facts of an algorithm as lines, for a terminal too narrow for their table."""
    lines = [f"{entry.name}: {_paper(entry)}, {entry.equations}"]
    for field in entry.fields:
        lines += [f"  {line}" for line in _field_lines(entry, field)]
    lines.append(f"  down {entry.down}; up {entry.up}; client keeps {entry.keeps}")
    return "\n".join([*lines, ""])


def _registry_table(entries: Sequence[Entry]) -> Table:
    from rich.table import Column, Table

    widths = {
        "paper": 22,
        "hyper-parameters = default, values tried": None,
        "down": 16,
        "up": 13,
        "client keeps": 20,
    }
    columns = [Column(name, max_width=width) for name, width in widths.items()]
    table = Table(Column("algorithm", no_wrap=True, style="bold"), *columns)
    for entry in entries:
        lines: list[str] = []
        for field in entry.fields:
            lines += _field_lines(entry, field)
        table.add_row(
            entry.name,
            f"{_paper(entry)}\n{entry.equations}",
            "\n".join(lines) or "–",
            entry.down,
            entry.up,
            entry.keeps,
        )
        table.add_section()
    return table


def _entries(names: Sequence[str]) -> tuple[list[Entry], list[str]]:
    """Return the entries to show; if all are, also why installed algorithms cannot be imported."""
    if names and "all" not in names:
        return [find_algorithm(name) for name in names], []
    entries = list(ALGORITHMS.values())
    broken: list[str] = []
    for name in plugins.names():
        if name in ALGORITHMS:
            continue
        try:
            entries.append(find_algorithm(name))
        except UsageError as problem:
            broken.append(str(problem))
    return entries, broken


def print_spaces(plan: Plan) -> None:
    """Print the spaces of the plan's algorithms.

    If a data set was given, print only those on it; raises UsageError if there are none.
    """
    narrow = "dataset" in plan.options.given
    names = list(plan.options.algo)
    dataset = plan.options.dataset
    everything = plan.options.every_algorithm
    if everything:
        names = _planned_names(plan)
    anywhere = []
    for (paper, _, algorithm), space in SPACES.items():
        if algorithm in names:
            anywhere.append((paper, space))
    spaces = [item for item in anywhere if not narrow or item[1].setting.dataset == dataset]
    if anywhere and not spaces:
        datasets = ", ".join(dict.fromkeys(space.setting.dataset for _, space in anywhere))
        algorithms = "any of them" if everything else ", ".join(names)
        raise UsageError(f"no paper here tried {algorithms} on {dataset}; there is: {datasets}")
    tried_by_papers = {space.algorithm for _, space in spaces}
    own = []
    without = set(names) - tried_by_papers
    for entry in map(find_algorithm, dict.fromkeys(names)):
        if any(field.search for field in entry.fields):
            without.discard(entry.name)
            if entry.name not in tried_by_papers:
                own.append(entry)
    if narrow and without and not everything:
        say(f"no paper here tried {', '.join(sorted(without))} on {dataset}")
    if plan.options.json:
        listed = [_space_dict(paper, space) for paper, space in spaces]
        listed += [_own_space_dict(entry) for entry in own]
        print_json(listed)
    else:
        _print_table(spaces, own)


def _planned_names(plan: Plan) -> list[str]:
    """List the algorithms of a plan of `all`, also those whose runs are part of another's."""
    names: dict[str, None] = {}
    for run_spec in plan.run_specs:
        names |= dict.fromkeys(run_spec.row_names.values())
    names |= dict.fromkeys(search.algorithm for search in plan.searches)
    return [name for name in names if name in ALGORITHMS]  # other rows are of no algorithm


def _print_table(spaces: Sequence[tuple[str, Space]], own: Sequence[Entry]) -> None:
    """Print spaces, each with its paper, then those that classes state themselves."""
    # Algorithm, paper, data set, and the lines of each further column.
    rows: list[tuple[str, str, str, list[list[str]]]] = []
    for paper, space in spaces:
        tried_values = [f"{name} {grid}" for name, grid in {**space.tuned, **space.grid}.items()]
        fixed = [f"{name} = {text(value)}" for name, value in space.fixed.items()]
        cells = [tried_values, fixed, list(ALGORITHMS[space.algorithm].where), [space.source]]
        rows.append((space.algorithm, PAPERS[paper].title, space.setting.dataset, cells))
    for entry in own:
        stated = [f"{field.name} {field.search}" for field in entry.fields if field.search]
        cells = [stated, [], list(entry.where), [entry.factory]]
        rows.append((entry.name, "–", "any", cells))
    out = console()
    if out.width < _TABLE_WIDTH:
        for name, title, dataset, cells in rows:
            lines = chain.from_iterable(cells)
            out.print("\n  ".join([f"{name} on {dataset}: {title}", *lines]) + "\n")
        return
    from rich.table import Column, Table

    columns = ("paper", "data set", "tried", "fixed", "relations", "source")
    table = Table(Column("algorithm", style="bold"), *columns, show_lines=True)
    for name, title, dataset, cells in rows:
        table.add_row(name, title, dataset, *("\n".join(lines) or "–" for lines in cells))
    out.print(table)


def _field_lines(entry: Entry, field: Field) -> Iterator[str]:
    """Yield a hyper-parameter with its default, then each grid with who tried it where."""
    yield f"{field.name} = {text(field.default)}"
    if field.search:
        yield f"  {field.search}: {entry.factory}"
    for grid, places in tried(entry.name, field.name).items():
        datasets: dict[str, list[str]] = {}
        for paper, dataset in places:
            datasets.setdefault(paper, []).append(dataset)
        papers = [f"{paper} ({', '.join(names)})" for paper, names in datasets.items()]
        yield f"  {grid}: {', '.join(papers)}"


def tried(algorithm: str, field: str, stated: bool = False) -> dict[str, list[tuple[str, str]]]:
    """List each grid of a hyper-parameter with the papers and data sets that tried it.

    `stated`: fixed values, too.
    """
    places: dict[str, list[tuple[str, str]]] = {}
    for (paper, dataset, name), space in SPACES.items():
        values = {**space.fixed, **space.grid} if stated else space.grid
        if name == algorithm and field in values:
            value = values[field]
            places.setdefault("none" if value is None else str(value), []).append((paper, dataset))
    return places


def _paper(entry: Entry) -> str:
    if entry.paper in PAPERS:
        return f"{PAPERS[entry.paper].authors} {PAPERS[entry.paper].year}"
    return entry.paper


def _as_dict(entry: Entry) -> dict[str, Any]:
    hyperparameters = []
    for field in entry.fields:
        hyperparameters.append(
            {
                "name": field.name,
                "type": field.kind,
                "default": field.default,
                "range": field.allowed,
                "meaning": field.meaning,
            }
        )
    grids = []
    for (paper, dataset, algorithm), space in SPACES.items():
        if algorithm == entry.name and space.grid:
            values = ", ".join(f"{name} {grid}" for name, grid in space.grid.items())
            grids.append({"paper": paper, "dataset": dataset, "grid": values})
    return {
        "name": entry.name,
        "paper": _paper(entry),
        "equations": entry.equations,
        "summary": entry.summary,
        "hyperparameters": hyperparameters,
        "grids": grids,
        "down": entry.down,
        "up": entry.up,
        "keeps": entry.keeps,
        "needs": sorted(entry.needs),
        "version": entry.version,
    }


def _space_dict(paper: str, space: Space) -> dict[str, Any]:
    return {
        "algorithm": space.algorithm,
        "paper": paper,
        "setting": space.setting.as_dict(),
        "grid": {name: str(grid) for name, grid in space.grid.items()},
        "tuned": {name: str(grid) for name, grid in space.tuned.items()},
        "fixed": dict(space.fixed),
        "where": list(ALGORITHMS[space.algorithm].where),
        "source": space.source,
    }


def _own_space_dict(entry: Entry) -> dict[str, Any]:
    """Return the space that a class states itself, of any setting."""
    return {
        "algorithm": entry.name,
        "paper": None,
        "setting": None,
        "grid": {field.name: str(field.search) for field in entry.fields if field.search},
        "tuned": {},
        "fixed": {},
        "where": list(entry.where),
        "source": entry.factory,
    }

"""`--list` and `--show`: the registry and the search spaces, as tables or JSON. Imports neither torch nor ray."""

from __future__ import annotations

import json
import sys
from typing import Any

from algorithms import ALGORITHMS, Entry
from bench.console import console
from bench.plan import Plan
from search_spaces import PAPERS, SPACES, Space, Value


def print_registry(as_json: bool) -> None:
    """Every algorithm: paper, equations, hyper-parameters with default, range and grids, traffic, what clients keep."""
    if as_json:
        sys.stdout.write(json.dumps([_as_dict(entry) for entry in ALGORITHMS.values()], indent=2) + "\n")
        return
    from rich.table import Table

    table = Table(
        "algorithm", "paper", "hyper-parameters (default; range)", "grids", "down / up", "keeps", show_lines=True
    )
    for entry in ALGORITHMS.values():
        fields = [f"{field.name} ({_text(field.default)}; {field.allowed})" for field in entry.fields]
        grids = [f"{paper}/{dataset}: {grid}" for paper, dataset, grid in _grids(entry.name)]
        table.add_row(
            f"[bold]{entry.name}[/bold]\n{entry.summary}",
            f"{_paper(entry)}\n{entry.equations}",
            "\n".join(fields) or "–",
            "\n".join(grids) or "–",
            f"{entry.down} / {entry.up}",
            entry.keeps,
        )
    out = console()
    out.print(table)
    out.print("P: size of the model. C: number of classes. Down and up: floats per active client and round.")


def print_spaces(plan: Plan, as_json: bool) -> None:
    """The spaces that the plan's algorithms have, with their sources."""
    names = dict.fromkeys([unit.algorithm for unit in plan.units] + [search.algorithm for search in plan.searches])
    spaces = [(paper, space) for (paper, _, algorithm), space in SPACES.items() if algorithm in names]
    if as_json:
        sys.stdout.write(json.dumps([_space_dict(paper, space) for paper, space in spaces], indent=2) + "\n")
        return
    from rich.table import Table

    table = Table("algorithm", "paper", "data set", "tried", "fixed", "relations", "source", show_lines=True)
    for paper, space in spaces:
        table.add_row(
            f"[bold]{space.algorithm}[/bold]",
            PAPERS[paper].title,
            space.setting.dataset,
            "\n".join(f"{name} {grid}" for name, grid in space.grid.items()) or "–",
            "\n".join(f"{name} = {_text(value)}" for name, value in space.fixed.items()) or "–",
            "\n".join(space.where) or "–",
            space.source,
        )
    console().print(table)


def _grids(algorithm: str) -> list[tuple[str, str, str]]:
    return [
        (paper, dataset, ", ".join(f"{name} {grid}" for name, grid in space.grid.items()))
        for (paper, dataset, name_), space in SPACES.items()
        if name_ == algorithm and space.grid
    ]


def _paper(entry: Entry) -> str:
    if entry.paper in PAPERS:
        return f"{PAPERS[entry.paper].authors} {PAPERS[entry.paper].year}"
    return entry.paper


def _text(value: Value) -> str:
    return "none" if value is None else f"{value:g}" if isinstance(value, float) else str(value)


def _as_dict(entry: Entry) -> dict[str, Any]:
    return {
        "name": entry.name,
        "paper": _paper(entry),
        "equations": entry.equations,
        "summary": entry.summary,
        "hyperparameters": [
            {"name": f.name, "type": f.kind, "default": f.default, "range": f.allowed, "meaning": f.meaning}
            for f in entry.fields
        ],
        "grids": [{"paper": p, "dataset": d, "grid": g} for p, d, g in _grids(entry.name)],
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
        "fixed": dict(space.fixed),
        "where": list(space.where),
        "source": space.source,
    }

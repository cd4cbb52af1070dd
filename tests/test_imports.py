"""The diagram of docs/design.md: three leaves, one root."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
OURS = {"algorithms", "search_spaces", "leaderboards", "bench"}
ALLOWED = {
    "algorithms": {"algorithms", "search_spaces.bounds"},
    "search_spaces": {"search_spaces"},
    "leaderboards": {"leaderboards"},
    "bench": OURS,
}
HEAVY = {"torch", "ray", "torchvision", "transformers", "pandas", "pyarrow", "sklearn", "scipy", "optuna"}
# What information commands import: free of heavy packages at module level.
LIGHT = ["bench/sweep.py", "bench/options.py", "bench/plan.py", "bench/show.py", "bench/dry_run.py", "bench/status.py"]
LIGHT += ["bench/needs.py", "bench/tuning/runner.py", "bench/tuning/progress.py", "bench/compare.py", "bench/cli.py"]
LIGHT += [f"bench/figures/{name}.py" for name in ("command", "table", "draw")]
LIGHT += ["bench/packs.py", "bench/tuning/logs.py", "bench/mirror.py"]
LIGHT += [f"bench/mirror_{name}.py" for name in ("place", "rows", "index", "states")]
LIGHT += [f"bench/selftest/{name}.py" for name in ("command", "report", "checks", "outcome")]
LIGHT += ["bench/tables.py", "bench/table_plan.py", "bench/table_dry_run.py", "bench/compare_published.py"]
LIGHT += ["leaderboards/published.py", "bench/labels.py", "bench/data/table.py", "bench/data/command.py"]
LIGHT += ["bench/unit.py", "bench/request.py", "bench/problems.py", "bench/configurations.py", "bench/budget.py"]
LIGHT += ["bench/words.py", "bench/dry_run_summary.py", "bench/stored_names.py", "bench/__main__.py"]
LIGHT += [
    "bench/console.py",
    "bench/ready.py",
    "bench/boards.py",
    "bench/compare_diff.py",
    "bench/tracked.py",
    "bench/track.py",
]


def imported(file: Path, top_level_only: bool = False) -> set[str]:
    """Modules that a file imports; those only needed by type checkers do not count."""
    tree = ast.parse(file.read_text())
    nodes: list[ast.AST] = list(tree.body) if top_level_only else list(ast.walk(tree))
    found = set()
    for node in nodes:
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found.add(node.module)
    return found


@pytest.mark.parametrize("package", ALLOWED)
def test_packages_import_what_the_diagram_allows(package: str) -> None:
    for file in (ROOT / package).rglob("*.py"):
        for module in imported(file):
            if module.split(".")[0] in OURS:
                allowed = any(module == name or module.startswith(name + ".") for name in ALLOWED[package])
                assert allowed, f"{file.relative_to(ROOT)} imports {module}"


@pytest.mark.parametrize("path", LIGHT)
def test_information_is_light(path: str) -> None:
    heavy = {module.split(".")[0] for module in imported(ROOT / path, top_level_only=True)} & HEAVY
    assert not heavy


def test_every_package_is_listed_for_distribution() -> None:
    import tomllib

    listed = set(tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]["packages"])
    present = {
        ".".join(folder.parent.relative_to(ROOT).parts)
        for name in OURS
        for folder in (ROOT / name).rglob("__init__.py")
    }
    assert listed == present

"""The diagram of docs/design.md: three leaves, one root."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
from pathlib import Path

import pytest
from commands import ROOT
from weight import import_circle

from bench.cli import COMMANDS

OURS = {"algorithms", "search_spaces", "leaderboards", "bench"}
ALLOWED = {
    "algorithms": {"algorithms", "search_spaces.bounds"},
    "search_spaces": {"search_spaces"},
    "leaderboards": {"leaderboards"},
    "bench": OURS,
}
# Within bench, each imports only from those before it, at whatever level.
LAYERS = (
    "errors",
    "state_files",
    "machine",
    "provenance",
    "execution",
    "terminal",
    "artifacts",
    "charts",
    "models",
    "data",
    "planning",
)
LAYERS += ("engine", "trial", "executors", "sync", "stored", "compare", "figures", "report")
LAYERS += ("boards", "selftest", "sweep", "status", "perf", "api", "cli")
UPWARD = {("models", "data")}  # a model's weights are files, kept where data sets are
HEAVY = {
    "torch",
    "ray",
    "torchvision",
    "transformers",
    "pandas",
    "pyarrow",
    "sklearn",
    "scipy",
    "optuna",
}
CLAIM = "neither torch nor ray"  # what the docstring of a light module says, some with ", nor numpy" after it
# Reads lines, each a module and what it must not bring; imports the modules and prints what came
# that must not.
PROBE = """
import importlib, sys
for line in sys.stdin:
    name, *heavy = line.split()
    before = set(sys.modules)
    importlib.import_module(name)
    found = sorted(set(heavy) & (set(sys.modules) - before))
    if found:
        print(name, "imports", *found)
"""


def imported(file: Path) -> set[str]:
    """Modules that a file imports, at whatever level."""
    found = set()
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found |= (
                {f"bench.{alias.name}" for alias in node.names}
                if node.module == "bench"
                else {node.module}
            )
    return found


def light() -> dict[str, set[str]]:
    """Module -> what it must not bring: the packages, every command, what says so of itself, and a sweep's driver."""
    found = {
        name: HEAVY
        for name in [*sorted(OURS), "bench.cli", *(f"bench.{command}" for command in COMMANDS)]
    }
    for file in sorted(file for package in OURS for file in (ROOT / package).rglob("*.py")):
        said = " ".join((ast.get_docstring(ast.parse(file.read_text())) or "").split())
        if CLAIM in said:
            name = ".".join(file.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")
            found[name] = HEAVY | ({"numpy"} if f"{CLAIM}, nor numpy" in said else set())
    return found | {
        "bench.executors.ray_executor": {"torch", "optuna"}
    }  # the last, for it brings much of the rest


@pytest.mark.parametrize("package", ALLOWED)
def test_packages_import_what_the_diagram_allows(package: str) -> None:
    for file in (ROOT / package).rglob("*.py"):
        for module in imported(file):
            if module.split(".")[0] in OURS:
                allowed = any(
                    module == name or module.startswith(name + ".") for name in ALLOWED[package]
                )
                assert allowed, f"{file.relative_to(ROOT)} imports {module}"


def test_parts_of_bench_import_what_stands_below_them() -> None:
    bench = ROOT / "bench"
    for file in bench.rglob("*.py"):
        own = file.relative_to(bench).with_suffix("").parts[0]
        if own.startswith("__"):
            continue
        assert own in LAYERS, f"{own} has no place among them"
        for module in imported(file):
            root, _, rest = module.partition(".")
            other = rest.split(".")[0]
            if root == "bench" and other in LAYERS and other != own and (own, other) not in UPWARD:
                assert LAYERS.index(other) < LAYERS.index(own), (
                    f"{file.relative_to(ROOT)} imports {module}"
                )


def test_information_is_light() -> None:
    """One process for all, where what a module brings stays; those that must not bring numpy come first."""
    modules = light()
    assert {
        "bench.sweep.plan_report",
        "bench.planning.plan",
        "algorithms.entry",
    } <= modules.keys(), "none lost its claim"
    order = sorted(modules, key=lambda name: "numpy" not in modules[name])
    lines = "\n".join(f"{name} {' '.join(modules[name])}" for name in order)
    done = subprocess.run(
        [sys.executable, "-c", PROBE], input=lines, cwd=ROOT, capture_output=True, text=True
    )
    assert (done.stdout, done.stderr, done.returncode) == ("", "", 0)


@pytest.mark.slow
def test_a_package_of_the_users_own_ends_commands(tmp_path: Path) -> None:
    """A console script, unlike `python -m`, does not look into the working folder first."""
    (tmp_path / "algorithms").mkdir()
    (tmp_path / "algorithms" / "__init__.py").touch()
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    asked = [
        "sweep",
        "--algo",
        "fedavg",
        "--rounds",
        "1",
        "--executor",
        "inline",
        "-q",
        "--out",
        "results",
    ]

    def run(*words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, *words], cwd=tmp_path, env=environment, capture_output=True, text=True
        )

    for module in ("bench", "bench.sweep", "bench.status", "bench.boards"):
        hidden = run("-m", module, *asked[1:])
        assert (hidden.returncode, hidden.stderr.count("\n")) == (2, 1)
        assert "another package 'algorithms'" in hidden.stderr
    imported = run("-c", "import bench")
    assert imported.returncode == 1
    assert "ImportError: another package 'algorithms'" in imported.stderr
    script = run("-P", "-c", "import sys; from bench.cli import main; sys.exit(main())", *asked)
    assert (script.returncode, script.stderr) == (0, "1 run, 1 to do\n")


def test_no_modules_import_each_other() -> None:
    """Imports within functions and for types alone count."""
    sources = {
        file: file.read_text()
        for package in OURS
        for file in sorted((ROOT / package).rglob("*.py"))
    }
    assert import_circle(sources) == []

"""Measure how heavy the repository is: `make weight`.

The figures are those of docs/design.md. Only the Python standard library is used but for the one
inline sweep, whose files are counted by running it.
"""

from __future__ import annotations

import ast
import os
import re
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from graphlib import CycleError, TopologicalSorter
from pathlib import Path
from statistics import median, quantiles

ROOT = Path(__file__).resolve().parent.parent
PACKAGES = ("algorithms", "bench", "search_spaces", "leaderboards")
ENGINE_HALF = (
    "algorithms",
    "search_spaces",
    "bench/engine",
    "bench/models",
    "bench/data",
    "bench/planning",
)
# Runs a small sweep and prints the files of this repository of which a function ran.
COUNT_FILES = """
import sys
ran = set()
def note(frame, event, arg):
    if frame.f_code.co_name != "<module>":
        ran.add(frame.f_code.co_filename)
sys.setprofile(note)
from bench import cli
cli.main(["sweep", "--algo", "fedavg", "--dataset", "digits", "--rounds", "1", "--executor", "inline", "--quiet",
          "--out", sys.argv[1]])
sys.setprofile(None)
print(len({name for name in ran if name.startswith(sys.argv[2]) and "/.venv/" not in name}))
"""


def main() -> None:
    """Print each figure with its name."""
    product = {
        file: file.read_text(encoding="utf-8")
        for package in PACKAGES
        for file in _python(ROOT / package)
    }
    tests = {file: file.read_text(encoding="utf-8") for file in _python(ROOT / "tests")}
    lengths = [length for text in product.values() for length in _function_lengths(ast.parse(text))]
    called_once, helpers = _helpers_named_once(product)
    figures = {
        "product code, Python lines": sum(text.count("\n") for text in product.values()),
        "tests, Python lines": sum(text.count("\n") for text in tests.values()),
        "Python files in bench": len(list(_python(ROOT / "bench"))),
        "files that one inline sweep runs code of": _files_of_a_sweep(),
        "modules of an import circle, if there is one": len(import_circle(product)),
        "private helpers named once beyond their definition, engine half": f"{called_once} of {helpers}",
        "asserts on phrases of three words or more": sum(
            _phrase_asserts(ast.parse(text)) for text in tests.values()
        ),
        "function length, median / 90th percentile": f"{median(lengths):.0f} / {quantiles(lengths, n=10)[-1]:.0f}",
    }
    for name, figure in figures.items():
        sys.stdout.write(f"{figure!s:>12}  {name}\n")


def import_circle(sources: dict[Path, str]) -> list[str]:
    """Modules that import each other, if any do; imports in functions and for types alone count."""
    names = {_module(file): file for file in sources}
    graph = {
        name: {*_imports(ast.parse(sources[file]), names)} - {name} for name, file in names.items()
    }
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        return list(error.args[1])
    return []


def _python(folder: Path) -> Iterator[Path]:
    return iter(sorted(folder.rglob("*.py")))


def _module(file: Path) -> str:
    return ".".join(file.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")


def _imports(tree: ast.Module, names: dict[str, Path]) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name in names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            for alias in node.names:
                whole = f"{node.module}.{alias.name}"
                if whole in names:
                    yield whole
                elif node.module in names:
                    yield node.module


def _function_lengths(tree: ast.Module) -> Iterator[int]:
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield (node.end_lineno or node.lineno) - node.lineno + 1


def _helpers_named_once(product: dict[Path, str]) -> tuple[int, int]:
    """Private module functions whose name stands once beyond the definition, and how many private ones there are."""
    once = total = 0
    for file, text in product.items():
        if not str(file.relative_to(ROOT)).startswith(ENGINE_HALF):
            continue
        words = Counter(re.findall(r"\w+", text))
        for node in ast.parse(text).body:
            if isinstance(node, ast.FunctionDef) and node.name.startswith("_"):
                total += 1
                once += words[node.name] == 2
    return once, total


def _phrase_asserts(tree: ast.Module) -> int:
    """Asserts and `match=` of `pytest.raises` with a string of three words or more that is no path and no command."""
    count = 0
    for node in ast.walk(tree):
        if isinstance(node, ast.Assert):
            texts = [part.value for part in ast.walk(node.test) if isinstance(part, ast.Constant)]
        elif isinstance(node, ast.keyword) and node.arg == "match":
            texts = [part.value for part in ast.walk(node.value) if isinstance(part, ast.Constant)]
        else:
            continue
        count += any(
            isinstance(text, str) and len(re.findall(r"\b[a-z]{2,}\b", text)) > 2 for text in texts
        )
    return count


def _files_of_a_sweep() -> int:
    with tempfile.TemporaryDirectory() as out:
        command = [sys.executable, "-c", COUNT_FILES, out, str(ROOT)]
        quiet = os.environ | {"FEDKD_MEASURE_SECONDS": "0"}
        done = subprocess.run(
            command, cwd=ROOT, env=quiet, capture_output=True, text=True, check=True
        )
    return int(done.stdout.split()[-1])


if __name__ == "__main__":
    main()

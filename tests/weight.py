"""Measure how heavy the repository is: `make weight`.

The figures are those of docs/design.md. Only the Python standard library is used but for the one
inline sweep, whose files are counted by running it. Weight is counted in tokens, never in lines: a
goal in lines is reached by longer lines. Tokens depend on Python's version, because 3.12 splits
f-strings: the figures of docs/design.md are those of 3.11.
"""

from __future__ import annotations

import ast
import io
import os
import re
import subprocess
import sys
import tempfile
import tokenize
from collections import Counter
from collections.abc import Iterator
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

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
WIDTH = 100  # columns of a line
LAYOUT = {
    tokenize.COMMENT,
    tokenize.NL,
    tokenize.NEWLINE,
    tokenize.INDENT,
    tokenize.DEDENT,
    tokenize.ENDMARKER,
}
Comprehension = ast.ListComp | ast.SetComp | ast.DictComp | ast.GeneratorExp
COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)
# Runs a small sweep and prints the files of this repository of which a function ran.
COUNT_FILES = """
import sys
ran = set()
def note(frame, event, arg):
    if frame.f_code.co_name != "<module>":
        ran.add(frame.f_code.co_filename)
sys.setprofile(note)
from bench import cli
cli.main(["sweep", "--algo", "fedavg", "--dataset", "digits", "--rounds", "1",
          "--executor", "inline", "--quiet", "--out", sys.argv[1]])
sys.setprofile(None)
print(len({name for name in ran if name.startswith(sys.argv[2]) and "/.venv/" not in name}))
"""


def main() -> None:
    """Print each figure with its name."""
    product: dict[Path, str] = {}
    for package in PACKAGES:
        product |= _texts(ROOT / package)
    tests = _texts(ROOT / "tests")
    counts = sum(map(counts_of, product.values()), Counter[str]())
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    called_once, helpers = _helpers_named_once(product)
    per_thousand = 1000 / counts["code lines"]
    figures = {
        "product tokens": f"{counts['tokens']:,}",
        "tokens a code line": f"{counts['tokens'] / counts['code lines']:.2f}",
        "parallel assignments per 1,000 code lines": (
            f"{per_thousand * counts['parallel assignments']:.1f}"
        ),
        "comprehensions per 1,000 code lines": f"{per_thousand * counts['comprehensions']:.0f}",
        "comprehensions with two loops, or with another one inside": counts["nested"],
        f"product lines over {WIDTH} columns": f"{counts['long lines']:,}",
        "README: words": f"{len(readme.split()):,}",
        "README: line of the heading Install": _line_of(readme, "## Install"),
        "Python files in bench": len(list(_python(ROOT / "bench"))),
        "files that one inline sweep runs code of": _files_of_a_sweep(),
        "modules of an import circle, if there is one": len(import_circle(product)),
        "private helpers named once beyond their definition, engine half": (
            f"{called_once} of {helpers}"
        ),
        "asserts on phrases of three words or more": sum(
            _phrase_asserts(ast.parse(text)) for text in tests.values()
        ),
    }
    for name, figure in figures.items():
        sys.stdout.write(f"{figure!s:>12}  {name}\n")


def counts_of(text: str) -> Counter[str]:
    """Count what makes one file heavy, without comments, layout and docstrings."""
    nodes = list(ast.walk(ast.parse(text)))
    docstring_lines: set[int] = set()
    for node in nodes:
        if isinstance(node, ast.Expr) and _is_text(node.value):
            docstring_lines.update(range(node.lineno, (node.end_lineno or node.lineno) + 1))
    lines = []  # of each token
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type not in LAYOUT and token.start[0] not in docstring_lines:
            lines.append(token.start[0])
    comprehensions = [node for node in nodes if isinstance(node, COMPREHENSIONS)]
    return Counter(
        {
            "tokens": len(lines),
            "code lines": len(set(lines)),
            "parallel assignments": sum(map(_is_parallel, nodes)),
            "comprehensions": len(comprehensions),
            "nested": sum(map(_is_nested, comprehensions)),
            "long lines": sum(len(line) > WIDTH for line in text.split("\n")),
        }
    )


def _is_text(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and isinstance(node.value, str)


def _is_parallel(node: ast.AST) -> bool:
    """Tell whether a statement assigns several values to several names; a swap does, too."""
    if not isinstance(node, ast.Assign):
        return False
    return isinstance(node.targets[0], ast.Tuple) and isinstance(node.value, ast.Tuple)


def _is_nested(node: Comprehension) -> bool:
    """Tell whether a comprehension has two loops, or another comprehension inside."""
    inside = sum(isinstance(inner, COMPREHENSIONS) for inner in ast.walk(node))
    return inside > 1 or len(node.generators) > 1


def _line_of(text: str, heading: str) -> int | str:
    """Return the number of the line that is this heading."""
    lines = text.splitlines()
    return lines.index(heading) + 1 if heading in lines else "none"


def _texts(folder: Path) -> dict[Path, str]:
    return {file: file.read_text(encoding="utf-8") for file in _python(folder)}


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


def _helpers_named_once(product: dict[Path, str]) -> tuple[int, int]:
    """Count the private module functions named once beyond their definition, and all of them."""
    once = 0
    total = 0
    for file, text in product.items():
        if not str(file.relative_to(ROOT)).startswith(ENGINE_HALF):
            continue
        words = Counter(re.findall(r"\w+", text))
        for node in ast.parse(text).body:
            if isinstance(node, ast.FunctionDef) and node.name.startswith("_"):
                total += 1
                if words[node.name] == 2:
                    once += 1
    return once, total


def _phrase_asserts(tree: ast.Module) -> int:
    """Count asserts and `match=` of `pytest.raises` with a string of three words or more.

    Paths and commands have no such strings.
    """
    count = 0
    for node in ast.walk(tree):
        if isinstance(node, ast.Assert):
            texts = [part.value for part in ast.walk(node.test) if isinstance(part, ast.Constant)]
        elif isinstance(node, ast.keyword) and node.arg == "match":
            texts = [part.value for part in ast.walk(node.value) if isinstance(part, ast.Constant)]
        else:
            continue
        if any(_is_phrase(text) for text in texts):
            count += 1
    return count


def _is_phrase(text: object) -> bool:
    return isinstance(text, str) and len(re.findall(r"\b[a-z]{2,}\b", text)) > 2


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

"""The files that a plug-in is written in: a number that changes when any of them does."""

from __future__ import annotations

import ast
import importlib.util
import sys
import zlib
from collections.abc import Iterable, Iterator
from pathlib import Path

OURS = frozenset({"algorithms", "search_spaces", "leaderboards", "bench"})


def fingerprint(modules: Iterable[str]) -> int:
    """The CRC-32 of the modules' files and of all that these import from beside them, in turn.

    Beside is the folder of the file, or of the package that it is in; this suite's own files, and whatever else is
    installed, do not count. It does not depend on what else is loaded, so that all processes of a sweep agree.
    """
    files: set[Path] = set()
    waiting = [Path(path) for name in modules if (path := None if _is_ours(name) else _file(name))]
    while waiting:
        file = waiting.pop()
        if file.suffix == ".py" and file not in files:
            files.add(file)
            waiting += _imported(file)
    return zlib.crc32(b"\0".join(file.read_bytes() for file in sorted(files)))


def _is_ours(module: str) -> bool:
    return module.partition(".")[0] in OURS


def _file(module: str) -> str | None:
    """The file of a module, without importing it."""
    if module in sys.modules:
        return getattr(sys.modules[module], "__file__", None)
    spec = importlib.util.find_spec(module)
    return spec.origin if spec else None


def _imported(file: Path) -> Iterator[Path]:
    """Files beside `file` that its import statements name."""
    roots = _roots(file)
    for node in ast.walk(ast.parse(file.read_bytes())):
        if isinstance(node, ast.Import):
            names, starts = [alias.name for alias in node.names], roots
        elif isinstance(node, ast.ImportFrom):
            starts = roots if not node.level else [file.parents[node.level - 1]]
            names = [node.module or "", *(f"{node.module or ''}.{alias.name}" for alias in node.names)]
        else:
            continue
        for name in names:
            if starts is roots and _is_ours(name):  # a user's file may lie beside the suite's own
                continue
            parts = name.strip(".").split(".")
            for path in (start.joinpath(*parts) for start in starts if not _is_installed(start, parts[0], file)):
                yield from (place for place in (path.with_suffix(".py"), path / "__init__.py") if place.is_file())


def _is_installed(start: Path, top: str, file: Path) -> bool:
    """Whether a name is that of another installed package."""
    installed = start.name in ("site-packages", "dist-packages")
    return installed and top != file.relative_to(start).parts[0].removesuffix(".py")


def _roots(file: Path) -> list[Path]:
    """Where absolute imports of a file's neighbours begin: above its package, and folders above that are looked in."""
    root = file.parent
    while (root / "__init__.py").exists():
        root = root.parent
    looked_in = {Path(entry or ".").resolve() for entry in sys.path}
    return [root, *(folder for folder in root.parents if folder in looked_in)]

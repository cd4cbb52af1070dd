"""Plug-ins: how they are imported, refused and fingerprinted.

They are named by an entry point or `package.module:name`. Algorithms, data sets, models and
partitions can be plug-ins: each has its `Kind`. Stored runs are read within `names_of_rows`,
because a name in a file must not choose which code is run.
"""

from __future__ import annotations

import ast
import importlib
import importlib.metadata
import importlib.util
import linecache
import sys
import traceback
import zlib
from collections.abc import Collection, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import FunctionType, ModuleType, NoneType
from typing import Any, TypeVar

from search_spaces.bounds import nearest

OURS = frozenset({"algorithms", "search_spaces", "leaderboards", "bench"})
LONGEST_NAME = 255  # bytes of a file's name
# Values that are told by their `repr`.
PLAIN = (bool, int, float, str, bytes, tuple, list, dict, NoneType)
# The `module:name`s that may be imported; None means all.
_importable: Collection[str] | None = None
_option = "--import"  # with which the user allows one
T = TypeVar("T")


@dataclass(frozen=True)
class Kind:
    """A kind of plug-in from other packages.

    It has a name, such as `data set`, and the group of its entry points.
    """

    name: str
    group: str
    problem: type[ValueError] = ValueError  # the class of errors about such a plug-in

    def names(self) -> tuple[str, ...]:
        """Return the names that installed packages add."""
        return tuple(
            sorted(point.name for point in importlib.metadata.entry_points(group=self.group))
        )

    def path(self, name: str) -> str | None:
        """Return the `module:name` that a name stands for, or None if no package has it."""
        for point in importlib.metadata.entry_points(group=self.group):
            if point.name == name:
                return f"{point.module}:{point.attr}"
        return name if ":" in name else None

    def load(self, name: str, path: str) -> Any:
        """Import the object at `path`, a `module:name`, for a user who typed `name`.

        Raises:
            ValueError: there is no such module, it cannot be imported, it has no such name, or a
                stored run names it.
        """
        module, _, attribute = path.partition(":")
        if ":" in name:
            self.check_typed(name)
        hint = as_module(path)
        if hint:
            raise self.error(name, hint)
        here = str(Path.cwd())
        if here not in sys.path:  # unlike `python -m`, a console script does not search it
            sys.path.append(here)
        try:
            imported = importlib.import_module(module)
        except ModuleNotFoundError as error:
            missing = f"no module {error.name!r} in the working directory or the installed packages"
            raise self.error(name, missing) from error
        except (Exception, SystemExit) as error:
            raise self.failure(name, "imported", error) from error
        if not hasattr(imported, attribute):
            raise self.error(
                name, f"module {module!r} has no {attribute!r}{nearest(attribute, vars(imported))}"
            )
        return getattr(imported, attribute)

    def check_typed(self, name: str) -> None:
        """Raise ValueError if the user has not typed this name, which a stored run has."""
        if _importable is not None and name not in _importable:
            raise self.error(
                name, f"only a stored run names it; if you trust it, add {_option} {name}"
            )

    def load_entry(self, name: str, path: str, wanted: type[T]) -> T:
        """Return the entry, of class `wanted`, at `path` or from the function there.

        Raises as `load`.
        """
        entry = self.load(name, path)
        rule = f"must be or return a {wanted.__module__}.{wanted.__name__}"
        if callable(entry) and not isinstance(entry, wanted):
            try:
                entry = entry()
            except Exception as error:
                raise self.error(
                    name, f"{path} {rule}; called, it raises {type(error).__name__}: {error}"
                ) from error
        if not isinstance(entry, wanted):
            raise self.error(name, f"{path} {rule}, got {type(entry).__name__}")
        return entry

    def error(self, name: str, what: str) -> ValueError:
        """Return an error about a plug-in, to be raised."""
        return self.problem(f"{self.name} {name!r}: {what}")

    def failure(self, name: str, done: str, error: BaseException) -> ValueError:
        """Return an error about a plug-in whose code raised while being `done`.

        `done` is `imported`, `made` or the like.
        """
        place = ""
        for frame in traceback.extract_tb(error.__traceback__):
            if frame.name == "<module>":  # the last one counts
                place = f" ({frame.filename}, line {frame.lineno}: {frame.line})"
        return self.problem(
            f"{self.name} {name!r} cannot be {done}: {type(error).__name__}: {error}{place}"
        )


@contextmanager
def names_of_rows(typed: Collection[str] = (), option: str = "--import") -> Iterator[None]:
    """Import no `module:name` in this context.

    Names in it come from stored runs, which others may have written.

    Built-in names, entry points of installed packages and plug-ins loaded before are found as
    usual. This holds for all threads of the process. Names that the user `typed`, with the
    command's `option`, are imported.
    """
    global _importable, _option
    before = _importable, _option
    _importable = typed
    _option = option
    try:
        yield
    finally:
        _importable, _option = before


def as_module(name: str) -> str:
    """Return `name a module, not a file: pk.own:A` or the like if `name` names a file.

    For the name of a module alone it is what may follow. Otherwise the text is empty.
    """
    text, _, attribute = name.partition(":")
    file = Path(text)
    if len(f"{text}.py".encode(errors="surrogateescape")) > LONGEST_NAME:
        return ""
    if file.suffix != ".py" and (attribute or not Path(f"{text}.py").is_file()):
        return ""
    outside = file.is_absolute() or ".." in file.parts  # in no package of the working directory
    module = file.stem if outside else ".".join(file.with_suffix("").parts)
    where = f", run from {file.parent}" if outside else ""
    advice = "name a module, not a file"
    if file.suffix != ".py":
        advice = "name a class or function of the module"
    return f"{advice}: {module}:{attribute or 'NAME'}{where}"


def fingerprint(modules: Iterable[str], own: str = "", sources: Iterable[str] = ()) -> int:
    """Return the CRC-32 of the modules' files and of all neighbouring files that they import.

    Indirect imports count, too.

    Neighbouring files lie in the folder of the file, or of the package that it is in. Other
    installed packages do not count, nor do this suite's own files, except that of the module `own`.
    The number does not depend on loaded modules, so all processes of a sweep agree. `sources` are
    of code without a file.
    """
    files: set[Path] = set()
    waiting = []
    for name in modules:
        if name == own or not _is_ours(name):
            path = file_of(name)
            if path:
                waiting.append(Path(path))
    while waiting:
        file = waiting.pop()
        if file.suffix == ".py" and file not in files:
            files.add(file)
            waiting += _imported_files(file)
    contents = [file.read_bytes() for file in sorted(files)]
    contents += [source.encode() for source in sources]
    return zlib.crc32(b"\0".join(contents))


def module_name(module: str) -> str:
    """Return the name that other processes have for a module.

    For a running script, `__main__`, it is that of its file.
    """
    if module != "__main__":
        return module
    main = sys.modules[module]
    if main.__spec__:  # run by `python -m`
        return main.__spec__.name
    file = getattr(main, "__file__", None)
    return Path(file).stem if file else module


def source_of(part: Any) -> tuple[str, set[str]]:
    """Return the source of a class or function of a notebook, and of what it uses of that notebook.

    These are classes and functions, of which this holds in turn, and the values of variables.

    Returns:
        The source, and the names of the modules of the user's own files that it uses.

    Raises:
        ValueError: Python does not know the source.
    """
    notebook = vars(sys.modules[part.__module__])
    texts: dict[str, str] = {}
    modules: set[str] = set()
    waiting = [part]
    while waiting:
        used = waiting.pop()
        if used.__name__ in texts:
            continue
        definition = _definition(used)
        texts[used.__name__] = ast.unparse(definition)
        names = {node.id for node in ast.walk(definition) if isinstance(node, ast.Name)}
        values = {name: notebook[name] for name in names & notebook.keys()}
        for name, value in values.items():
            if isinstance(value, type | FunctionType) and value.__module__ == part.__module__:
                waiting.append(value)
            elif isinstance(value, type | FunctionType):
                modules.add(value.__module__)
            elif isinstance(value, ModuleType):
                modules |= _modules_below(value, name, definition)
            else:
                texts[name] = _text_of(value)
    text = "\n".join(f"{name} = {texts[name]}" for name in sorted(texts))
    return text, set(filter(_is_users_own, modules))


def _text_of(value: Any) -> str:
    """Return a text that tells a plain value, an array, a tensor or a set from another of its type.

    Of other objects it is the type: their `repr` may be that of their place in memory.
    """
    if isinstance(value, set | frozenset):
        return repr(sorted(map(repr, value)))
    if hasattr(value, "tolist"):
        return f"{getattr(value, 'dtype', type(value))} {value.tolist()}"
    return repr(value) if isinstance(value, PLAIN) else type(value).__name__


def _modules_below(module: ModuleType, name: str, definition: ast.AST) -> set[str]:
    """Return the names of a module, and of its modules that a definition reaches by its `name`."""
    modules = {module.__name__}
    for node in ast.walk(definition):
        dotted = ast.unparse(node) if isinstance(node, ast.Attribute) else ""
        base, _, rest = dotted.partition(".")
        below = f"{module.__name__}.{rest}"
        if base == name and below in sys.modules:
            modules.add(below)
    return modules


def _is_users_own(module: str) -> bool:
    """Return whether a loaded module is a file of none of the installed packages."""
    file = getattr(sys.modules.get(module), "__file__", None)
    if not file or module.partition(".")[0] in sys.stdlib_module_names:
        return False
    return not {"site-packages", "dist-packages"}.intersection(Path(file).parts)


def _definition(part: Any) -> ast.AST:
    """Find the statement that defines a class or function of a notebook.

    Python keeps the source of its cell. A class is found by its functions, because only these say
    which cell they are of.
    """
    functions = [part] if isinstance(part, FunctionType) else vars(part).values()
    codes = [function.__code__ for function in functions if isinstance(function, FunctionType)]
    for code in codes:
        for node in ast.walk(ast.parse("".join(linecache.getlines(code.co_filename)))):
            if isinstance(node, ast.ClassDef | ast.FunctionDef) and node.name == part.__name__:
                first = min([node.lineno, *(decorator.lineno for decorator in node.decorator_list)])
                if first <= code.co_firstlineno <= (node.end_lineno or first):
                    return node
    raise ValueError(f"Python does not know the source of {part.__name__}")


def file_of(module: str) -> str | None:
    """Return the file of a module without importing it, also of a running script, `__main__`."""
    if module in sys.modules:
        return getattr(sys.modules[module], "__file__", None)
    spec = importlib.util.find_spec(module)
    return spec.origin if spec else None


def _is_ours(module: str) -> bool:
    return module.partition(".")[0] in OURS


def _imported_files(file: Path) -> Iterator[Path]:
    """Yield the neighbouring files that the import statements of `file` name."""
    roots = _import_roots(file)
    for node in ast.walk(ast.parse(file.read_bytes())):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
            starts = roots
        elif isinstance(node, ast.ImportFrom):
            starts = roots if not node.level else [file.parents[node.level - 1]]
            names = [
                node.module or "",
                *(f"{node.module or ''}.{alias.name}" for alias in node.names),
            ]
        else:
            continue
        for name in names:
            if starts is roots and _is_ours(name):  # a user's file may lie beside the suite's own
                continue
            parts = name.strip(".").split(".")
            for start in starts:
                if start.name in ("site-packages", "dist-packages"):
                    own_package = file.relative_to(start).parts[0].removesuffix(".py")
                    if parts[0] != own_package:
                        continue
                path = start.joinpath(*parts)
                yield from filter(Path.is_file, (path.with_suffix(".py"), path / "__init__.py"))


def _import_roots(file: Path) -> list[Path]:
    """Return the roots of absolute imports of neighbours.

    These are the folder above the package, and its parents on sys.path.
    """
    root = file.parent
    while (root / "__init__.py").exists():
        root = root.parent
    search_path = {Path(entry or ".").resolve() for entry in sys.path}
    return [root, *(folder for folder in root.parents if folder in search_path)]

"""Plug-ins: found by an entry point's name or by `package.module:name`, imported, refused with a reason.

Algorithms come so, and data sets, models and partitions: a `Kind` each. Whoever reads stored runs does so within
`names_of_rows`, because a name in a file must not choose which code is run.
"""

from __future__ import annotations

import importlib
import importlib.metadata
import sys
import traceback
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

_importable: Collection[str] | None = None  # the names `module:name` that may be imported; None is all
_option = "--import"  # with which the user types one
T = TypeVar("T")


@dataclass(frozen=True)
class Kind:
    """A kind of thing that other packages may add: its name, such as `data set`, and the group of its entry points."""

    name: str
    group: str
    problem: type[ValueError] = ValueError  # the class of errors about one of them

    def names(self) -> tuple[str, ...]:
        """The names that installed packages add."""
        return tuple(sorted(point.name for point in importlib.metadata.entry_points(group=self.group)))

    def path(self, name: str) -> str | None:
        """`module:name` of what a name stands for; None where no package has one of that name."""
        for point in importlib.metadata.entry_points(group=self.group):
            if point.name == name:
                return f"{point.module}:{point.attr}"
        return name if ":" in name else None

    def load(self, name: str, path: str) -> Any:
        """Import what stands at `path`, a `module:name`, for a user who typed `name`.

        Raises:
            ValueError: there is no such module, it cannot be imported, it has no such name, or a stored run names it.
        """
        module, _, attribute = path.partition(":")
        if ":" in name and _importable is not None and name not in _importable:
            raise self.error(name, f"only a stored run names it; if you trust its code, add {_option} {name}")
        meant = as_module(path)
        if meant:
            raise self.error(name, meant)
        here = str(Path.cwd())
        if here not in sys.path:  # a console script does not look where it is started, `python -m` does
            sys.path.append(here)
        try:
            imported = importlib.import_module(module)
        except ModuleNotFoundError as error:
            missing = f"no module {error.name!r} in the working directory or the installed packages"
            raise self.error(name, missing) from error
        except Exception as error:
            raise self.failure(name, "imported", error) from error
        if not hasattr(imported, attribute):
            defined = [key for key, value in vars(imported).items() if _is_own(key, value, module)]
            have = ", ".join(defined) or "nothing"
            raise self.error(name, f"module {module!r} has no {attribute!r}; it defines: {have}")
        return getattr(imported, attribute)

    def load_entry(self, name: str, path: str, wanted: type[T]) -> T:
        """The entry, of class `wanted`, that stands at `path` or is given by the function there; raises as `load`."""
        entry, asked = self.load(name, path), f"must be or give a {wanted.__module__}.{wanted.__name__}"
        if callable(entry) and not isinstance(entry, wanted):
            try:
                entry = entry()
            except Exception as error:
                raise self.error(name, f"{path} {asked}; called, it raises {type(error).__name__}: {error}") from error
        if not isinstance(entry, wanted):
            raise self.error(name, f"{path} {asked}, got {type(entry).__name__}")
        return entry

    def error(self, name: str, what: str) -> ValueError:
        """Make the error of a plug-in, to be raised."""
        return self.problem(f"{self.name} {name!r}: {what}")

    def failure(self, name: str, done: str, error: Exception) -> ValueError:
        """The error of one whose code raised when it was `imported`, `made` or the like."""
        frames = [frame for frame in traceback.extract_tb(error.__traceback__) if frame.name == "<module>"]
        place = f" ({frames[-1].filename}, line {frames[-1].lineno}: {frames[-1].line})" if frames else ""
        return self.problem(f"{self.name} {name!r} cannot be {done}: {type(error).__name__}: {error}{place}")


@contextmanager
def names_of_rows(typed: Collection[str] = (), option: str = "--import") -> Iterator[None]:
    """Import no `module:name` within it: names come from stored runs, which others may have written.

    Built-in names and entry points of installed packages are found as ever, and so is what was imported before. All
    threads of the process are held to it.

    Args:
        typed: names that the user typed, which are imported.
        option: of the command, by which they are typed.
    """
    global _importable, _option
    before = _importable, _option
    _importable, _option = typed, option
    try:
        yield
    finally:
        _importable, _option = before


def as_module(name: str) -> str:
    """What is typed instead of a file: `a module is named, not a file: pk.own:A`; empty where none is named."""
    text, _, attribute = name.partition(":")
    file = Path(text)
    given = file.suffix == ".py" or len(file.parts) > 1 or (not attribute and Path(f"{text}.py").is_file())
    if not file.name or not given:
        return ""
    beside = file.is_absolute() or ".." in file.parts  # no package of the working directory has it
    module = file.stem if beside else ".".join(file.with_suffix("").parts)
    where = f", the command being given in {file.parent}" if beside else ""
    return f"a module is named, not a file: {module}:{attribute or 'NAME'}{where}"


def _is_own(key: str, value: Any, module: str) -> bool:
    """Whether a module defines a name itself: classes and functions tell, other values are known by their capitals."""
    constant = key.isupper() and key != "TYPE_CHECKING" and not callable(value)
    return constant or getattr(value, "__module__", "") == module

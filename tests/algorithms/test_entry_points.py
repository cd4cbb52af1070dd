"""Names of modules, as other processes have them."""

from __future__ import annotations

import importlib
import sys
import zlib
from pathlib import Path
from types import SimpleNamespace

import pytest
from outside_world import install, place

from algorithms import entry_points
from algorithms.entry_points import (
    Kind,
    as_module,
    file_of,
    fingerprint,
    module_name,
    names_of_rows,
)

__all__ = ["place"]
KIND = Kind("thing", "fedkd_bench.things")


@pytest.mark.parametrize(
    ("main", "name"),
    [
        ({"__spec__": None, "__file__": "/somewhere/run_all.py"}, "run_all"),
        ({"__spec__": SimpleNamespace(name="package.run"), "__file__": "run.py"}, "package.run"),
        ({"__spec__": None}, "__main__"),  # a notebook
    ],
)
def test_a_running_script_has_the_name_of_its_file(
    main: dict[str, object], name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "__main__", SimpleNamespace(**main))  # type: ignore[misc]
    assert module_name("__main__") == name
    assert module_name("algorithms.fedavg") == "algorithms.fedavg"


@pytest.mark.parametrize(
    ("name", "answer"),
    [
        ("own.py:A", "name a module, not a file: own:A"),
        ("pk/own.py:A", "name a module, not a file: pk.own:A"),
        ("pk/own.py", "name a module, not a file: pk.own:NAME"),
        ("here", "name a class or function of the module: here:NAME"),
        ("/there/own.py:A", "name a module, not a file: own:A, run from /there"),
        ("../own.py:A", "name a module, not a file: own:A, run from .."),
        ("here:A", ""),
        ("own", ""),
        ("pk.own:A", ""),
        (f"{'x' * 300}.py", ""),
        ("x" * 252, ""),
        ("x" * 253, ""),
        ("é" * 127, ""),
    ],
)
def test_a_file_is_answered_with_its_module(name: str, answer: str, place: Path) -> None:
    (place / "here.py").touch()
    assert as_module(name) == answer


def test_a_name_stands_for_a_module_and_a_thing(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install(place, monkeypatch, things="b = module:B\na = module:A.inner")
    assert KIND.names() == ("a", "b")
    paths = [KIND.path(name) for name in ("a", "b", "c", "module:C")]
    assert paths == ["module:A.inner", "module:B", None, "module:C"]


def test_what_fails_at_import_is_shown_with_its_line(place: Path) -> None:
    (place / "failing.py").write_text("def f():\n    1 / 0\n\n\nf()\n")
    with pytest.raises(
        ValueError, match=r"imported: ZeroDivisionError: .*failing\.py, line 5: f\(\)"
    ):
        KIND.load("failing:A", "failing:A")
    error = KIND.failure("x", "made", ValueError("no"))
    assert str(error) == "thing 'x' cannot be made: ValueError: no"


def test_stored_names_import_nothing_within_a_block(place: Path) -> None:
    (place / "trusted.py").write_text("A = 1\n")
    with names_of_rows(), names_of_rows({"trusted:A"}, "--import"):
        assert KIND.load("trusted:A", "trusted:A") == 1
    with names_of_rows({"other:A"}, "--trust"):
        with pytest.raises(ValueError, match=r"only a stored run .* add --trust trusted:A$"):
            KIND.load("trusted:A", "trusted:A")
        with names_of_rows():
            pass
        with pytest.raises(ValueError, match="add --trust"):
            KIND.check_typed("trusted:A")
        assert KIND.load("an entry point's name", "trusted:A") == 1
    KIND.check_typed("trusted:A")


def test_an_entry_is_a_thing_or_returns_one(place: Path) -> None:
    (place / "made.py").write_text("ONE = 1\ndef two(): return 2\ndef bad(): return '3'\n")
    assert KIND.load_entry("made:ONE", "made:ONE", int) == 1
    assert KIND.load_entry("made:two", "made:two", int) == 2
    with pytest.raises(ValueError, match=r"must be or return a builtins\.int, got str$"):
        KIND.load_entry("made:bad", "made:bad", int)


def crc(*files: Path) -> int:
    return zlib.crc32(b"\0".join(file.read_bytes() for file in sorted(files)))


def test_a_fingerprint_is_of_the_file_and_its_neighbours(place: Path) -> None:
    """Also of those that a function imports, by a relative name, or from a package."""
    package = place / "pk"
    (package / "sub").mkdir(parents=True)
    sources = {
        "__init__.py": "",
        "a.py": "from . import b\nimport pk.c, json\nimport algorithms\n",
        "b.py": "def f():\n    from .sub import d\n",
        "c.py": "import numpy\n",
        "sub/__init__.py": "from ..e import X\n",
        "sub/d.py": "",
        "e.py": "X = 1\n",
        "unrelated.py": "",
    }
    files = {}
    for name, text in sources.items():
        files[name] = package / name
        files[name].write_text(text + "# mine\n")
    importlib.invalidate_caches()
    sys.path.append(str(place))
    counted = [file for name, file in files.items() if name != "unrelated.py"]
    assert fingerprint(["pk.a"]) == crc(*counted)
    assert fingerprint(["pk.c"]) == crc(files["c.py"])
    assert fingerprint(["pk.c"], sources=["more"]) == zlib.crc32(
        files["c.py"].read_bytes() + b"\0more"
    )
    assert fingerprint(["algorithms.base", "pk.c"]) == crc(files["c.py"])
    own = Path(entry_points.__file__)
    assert fingerprint(["algorithms.entry_points"], "algorithms.entry_points") == crc(own)
    assert file_of("pk.c") == str(files["c.py"])
    assert file_of("no_such_module_anywhere") is None


def test_names_fit_into_file_names() -> None:
    longest = "a" * 249
    assert as_module(f"{longest}.py:A") == f"name a module, not a file: {longest}:A"
    assert as_module(f"a{longest}.py:A") == ""

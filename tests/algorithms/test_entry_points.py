"""Names of modules, as other processes have them."""

from __future__ import annotations

import sys
from types import SimpleNamespace

import pytest

from algorithms.entry_points import module_name


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

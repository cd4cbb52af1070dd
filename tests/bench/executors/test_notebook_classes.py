"""An algorithm whose class is given to `trainable` as an object: of a module, a script or a notebook."""

from __future__ import annotations

import linecache
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from commands import ROOT
from outside_world import DOCUMENT, forget
from rows import hyperparameter

from algorithms import build, entry, plugins
from algorithms.base import Algorithm
from algorithms.fedprox import FedProx
from bench.errors import UsageError
from bench.executors import trainable
from bench.planning.single_run import run_spec_of
from leaderboards import Store

Cell = Callable[..., ModuleType]
CELL = """
from dataclasses import dataclass
from algorithms.base import Algorithm, hyper
from algorithms.losses import cross_entropy

SCALE = 0.5

def proximal(local, message):
    return sum(((local["params"][n] - message["params"][n]) ** 2).sum() for n in local["params"])

@dataclass(frozen=True)
class MyProx(Algorithm):
    mu: float = hyper(0.01, 0)

    def local_loss(self, net, local, batch, message, memory, plan):
        loss = cross_entropy(net(local["params"], batch.x).logits, batch.y)
        return loss + SCALE * self.mu * proximal(local, message)
"""


@pytest.fixture
def cell(monkeypatch: pytest.MonkeyPatch) -> Iterator[Cell]:
    """Runs source as a notebook's cell does: in `__main__`, which has no file, with the source in `linecache`."""
    notebook = ModuleType("__main__")
    monkeypatch.setitem(sys.modules, "__main__", notebook)

    def run(source: str, keep: bool = True) -> ModuleType:
        name = f"<cell {len(linecache.cache)}>"
        if keep:
            linecache.cache[name] = (len(source), None, source.splitlines(keepends=True), name)
        exec(compile(source, name, "exec"), vars(notebook))
        return notebook

    yield run
    for name in [name for name in plugins.given if name.startswith("__main__:")]:
        del plugins.given[name]


def key_of(algorithm: Any) -> str:
    """The run key of an algorithm's trainable with its defaults."""
    return run_spec_of(trainable(algorithm).algorithm).key


def test_a_built_in_class_is_its_name() -> None:
    assert trainable(FedProx).__name__ == "fedprox"
    assert key_of(FedProx) == key_of("fedprox")


def test_a_modules_class_is_its_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "a_module.py").write_text(CELL)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    forget()
    key = key_of("a_module:MyProx")
    assert key_of(sys.modules["a_module"].MyProx) == key
    del plugins.given["a_module:MyProx"]


@pytest.mark.slow
def test_a_scripts_class_has_its_files_keys(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What a script trains is what a sweep of `a_script:MyProx` would train."""
    lines = """
if __name__ == "__main__":
    from bench.executors import trainable
    from bench.planning.single_run import run_spec_of
    print(run_spec_of(trainable(MyProx).algorithm).key)
"""
    script = tmp_path / "a_script.py"
    script.write_text(CELL + lines)
    root = str(ROOT)
    done = subprocess.run(
        [sys.executable, str(script)],
        capture_output=True,
        text=True,
        env={"PYTHONPATH": root},
        check=True,
    )
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    forget()
    assert done.stdout.strip() == key_of("a_script:MyProx")


def test_a_notebooks_version_follows_its_source(cell: Cell) -> None:
    key = key_of(cell(CELL).MyProx)
    assert key_of(cell(CELL + "\nprint(end='')\n").MyProx) == key
    assert key_of(cell(CELL.replace("self.mu", "2 * self.mu")).MyProx) != key
    assert key_of(cell(CELL.replace(" ** 2", " ** 4")).MyProx) != key, "of a function that it uses"
    assert key_of(cell(CELL.replace("SCALE = 0.5", "SCALE = 0.6")).MyProx) != key, (
        "of a number that it uses"
    )
    assert key_of(cell(CELL).MyProx) == key
    assert entry("__main__:MyProx").fields[0].default == 0.01
    assert isinstance(build("__main__:MyProx", mu=0.3), Algorithm)


@pytest.mark.parametrize("line", ["from of_mine import term", "import of_mine"])
def test_its_version_follows_imported_files(
    cell: Cell, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, line: str
) -> None:
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "of_mine", raising=False)
    file = tmp_path / "of_mine.py"
    file.write_text("def term(local, message):\n    return 0.0\n")
    used = line.rpartition(" ")[2].replace("of_mine", "of_mine.term")
    source = f"import math\n{line}\n{CELL.replace('* proximal(', f'* {used}(')}"
    key = key_of(cell(source).MyProx)
    assert key_of(cell(source).MyProx) == key
    file.write_text("def term(local, message):\n    return 1.0\n")
    assert key_of(cell(source).MyProx) != key


@pytest.mark.parametrize("line", ["import packaged.part", "import packaged.part as used"])
def test_its_version_follows_a_packages_module(
    cell: Cell, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, line: str
) -> None:
    monkeypatch.syspath_prepend(str(tmp_path))
    for name in ("packaged", "packaged.part"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    file = tmp_path / "packaged" / "part.py"
    file.parent.mkdir()
    (file.parent / "__init__.py").touch()
    file.write_text("def term(local, message):\n    return 0.0\n")
    used = line.rpartition(" ")[2]
    source = f"{line}\n{CELL.replace('* proximal(', f'* {used}.term(')}"
    key = key_of(cell(source).MyProx)
    file.write_text("def term(local, message):\n    return 1.0\n")
    assert key_of(cell(source).MyProx) != key


@pytest.mark.parametrize(
    ("value", "other"),
    [
        ("{'a', 'b'}", "{'a', 'c'}"),
        ("torch.arange(3000)", "torch.arange(3000).flip(0)"),
        ("torch.zeros(2)", "torch.zeros(2, dtype=torch.float64)"),
        ("torch.zeros(2).numpy()", "torch.ones(2).numpy()"),
    ],
)
def test_its_version_follows_sets_and_arrays(cell: Cell, value: str, other: str) -> None:
    source = "import torch\n" + CELL.replace("0.5", value)
    key = key_of(cell(source).MyProx)
    assert key_of(cell(source).MyProx) == key
    assert key_of(cell(source.replace(value, other)).MyProx) != key


def test_a_class_without_source_is_refused(cell: Cell) -> None:
    with pytest.raises(UsageError, match="source of MyProx"):
        trainable(cell(CELL, keep=False).MyProx)
    stated = CELL.replace("    mu: float", "    version = 3\n    mu: float")
    assert trainable(cell(stated, keep=False).MyProx).__name__ == "__main__:MyProx"
    assert entry("__main__:MyProx").version == 3


@pytest.mark.parametrize("algorithm", [3, None, dict, FedProx()])
def test_what_is_no_algorithm_is_refused(algorithm: Any) -> None:
    with pytest.raises(UsageError):
        trainable(algorithm)


@pytest.mark.slow
@pytest.mark.usefixtures("shared_ray")
def test_workers_get_a_notebooks_class(cell: Cell, tmp_path: Path) -> None:
    from ray import tune

    tuner = tune.Tuner(
        trainable(
            cell(CELL).MyProx, dataset="digits", rounds=2, local_epochs=1, out=str(tmp_path / "out")
        ),
        param_space={"mu": tune.grid_search([0.0, 0.3])},
        tune_config=tune.TuneConfig(metric="objective", mode="max", reuse_actors=True),
        run_config=tune.RunConfig(storage_path=str(tmp_path / "tune"), verbose=0),
    )
    assert not tuner.fit().errors
    runs = Store(tmp_path / "out").runs()
    assert [*runs.algorithm] == ["__main__:MyProx"] * 2
    assert sorted(hyperparameter(runs, "mu")) == [0.0, 0.3]
    assert not runs.certified.any()


@pytest.mark.slow
@pytest.mark.usefixtures("shared_ray")
def test_the_documented_cell_runs(
    cell: Cell, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A class of the notebook with its own space, under ASHA and Optuna, whose rungs are rounds 2 and 4."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("FEDKD_OUT", str(tmp_path / "out"))
    monkeypatch.delenv("TUNE_DISABLE_AUTO_CALLBACK_LOGGERS", raising=False)  # set for sweeps
    (example,) = re.findall(
        r"```python\n(# a cell of a notebook\n.*?)```", DOCUMENT.read_text(), re.DOTALL
    )
    stored = f'RunConfig(verbose=0, storage_path="{tmp_path / "tune"}")'
    table = cell(example.replace("RunConfig(verbose=0)", stored)).table
    assert "config/mu" in capsys.readouterr().out
    assert len(table) == 6
    assert table["config/mu"].between(0.001, 10).all()
    assert {*table["training_iteration"]} <= {2, 4, 8}
    assert (table["training_iteration"] == table["round"]).all()
    assert {*Store(tmp_path / "out").runs().status} == {"finished", "stopped"}

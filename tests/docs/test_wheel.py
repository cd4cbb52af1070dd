"""The package as a user gets it: a wheel in an environment of its own, run from any folder."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import venv
from pathlib import Path

import pytest
from commands import ROOT

from bench import __version__
from leaderboards import Store

PACKAGES = ("algorithms", "bench", "leaderboards", "search_spaces")
FILES = ("pyproject.toml", "README.md", "LICENSE")
RESULTS = ("runs", "curves", "state", "tracked", "logs")  # of a user who works in the repository


def run(*words: str | Path, cwd: Path) -> subprocess.CompletedProcess[str]:
    """A command to its end, without this process's ways to find packages and results."""
    kept = {}
    for name, value in os.environ.items():
        if name not in ("PYTHONPATH", "FEDKD_OUT"):
            kept[name] = value
    return subprocess.run(
        [str(word) for word in words],
        cwd=cwd,
        env=kept,
        capture_output=True,
        text=True,
        timeout=300,
    )


def left_out(folder: str, names: list[str]) -> list[str]:
    """What of the repository is no source."""
    out = [name for name in names if name == "__pycache__"]
    if Path(folder) == ROOT / "leaderboards":
        out += [name for name in names if name in RESULTS]
    return out


@pytest.fixture(scope="module")
def scripts(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of commands of an environment with the wheel, which is lent what it depends on."""
    source = tmp_path_factory.mktemp("source")
    for package in PACKAGES:
        shutil.copytree(ROOT / package, source / package, ignore=left_out)
    for file in FILES:
        shutil.copy(ROOT / file, source)
    wheels = tmp_path_factory.mktemp("wheels")
    pip = (sys.executable, "-m", "pip", "--disable-pip-version-check")
    built = run(
        *pip, "wheel", "--no-deps", "--no-build-isolation", "-w", wheels, source, cwd=wheels
    )
    assert built.returncode == 0, built.stderr
    (wheel,) = wheels.glob(f"fedkd_bench-{__version__}-py3-none-any.whl")
    place = tmp_path_factory.mktemp("environment")
    venv.create(place, symlinks=True)
    (packages,) = place.glob("lib/python3*/site-packages")
    lent = [path for path in sys.path if path.endswith("site-packages")]
    (packages / "lent.pth").write_text("\n".join(lent))
    install = ("install", "--no-deps", "--no-index", "--force-reinstall")
    done = run(*pip, "--python", place / "bin" / "python", *install, wheel, cwd=place)
    assert done.returncode == 0, done.stderr
    return place / "bin"


def test_the_wheel_is_what_runs(scripts: Path, tmp_path: Path) -> None:
    where = run(scripts / "python", "-c", "import bench; print(bench.__file__)", cwd=tmp_path)
    assert Path(where.stdout.strip()).is_relative_to(scripts.parent)
    version = run(scripts / "fedkd", "--version", cwd=tmp_path)
    assert version.stdout.split()[-1] == __version__
    listed = run(scripts / "fedkd", "--help", cwd=tmp_path)
    assert listed.returncode == 0
    assert "  sweep " in listed.stdout


def test_from_a_sweep_to_a_page(scripts: Path, tmp_path: Path) -> None:
    pytest.importorskip("vl_convert", reason="the page needs the extra report")
    words = ("--algo", "fedavg,fedgkd", "--dataset", "digits", "--rounds", "2")
    one = ("--set", "gamma=0.2", "buffer=1", "--executor", "inline")
    swept = run(scripts / "fedkd", "sweep", *words, *one, cwd=tmp_path)
    assert swept.returncode == 0, swept.stderr
    stored = Store(tmp_path / "leaderboards").runs()
    assert set(stored["package_version"]) == {__version__}
    compared = run(scripts / "fedkd", "compare", cwd=tmp_path)
    assert compared.returncode == 0, compared.stderr
    assert "fedgkd" in compared.stdout
    page = run(scripts / "fedkd", "report", "--to", "page.html", cwd=tmp_path)
    assert page.returncode == 0, page.stderr
    assert "fedgkd" in (tmp_path / "page.html").read_text()


def test_the_boards_are_in_it(scripts: Path, tmp_path: Path) -> None:
    board = run(scripts / "fedkd", "compare", "--board", "reference", cwd=tmp_path)
    assert board.returncode == 0, board.stderr
    assert "scaffold" in board.stdout
    words = ("--paper", "fedcad", "--table", "1", "--dataset", "cifar10")
    printed = run(scripts / "fedkd", "compare", *words, cwd=tmp_path)
    assert printed.returncode == 0, printed.stderr
    assert "71.29" in printed.stdout


@pytest.mark.parametrize("name", ["algorithms", "leaderboards"])
def test_a_package_of_the_same_name_is_a_sentence(scripts: Path, tmp_path: Path, name: str) -> None:
    own = tmp_path / name / "__init__.py"
    own.parent.mkdir()
    own.write_text("")
    hidden = run(scripts / "python", "-m", "bench.sweep", "--list", cwd=tmp_path)
    assert hidden.returncode == 2
    assert str(own) in hidden.stderr
    assert "Traceback" not in hidden.stderr
    words = ("--algo", "fedavg", "--dataset", "digits", "--rounds", "1")
    under_ray = run(scripts / "fedkd", "sweep", *words, cwd=tmp_path)
    assert under_ray.returncode == 2
    assert str(own) in under_ray.stderr
    assert "Traceback" not in under_ray.stderr
    inline = (*words, "--executor", "inline", "--out", "results")
    assert run(scripts / "fedkd", "sweep", *inline, cwd=tmp_path).returncode == 0

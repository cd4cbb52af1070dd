"""Standard output and error that nobody reads, that are closed or full: no result is lost by it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from leaderboards import Store

PYTHON = sys.executable
SWEEP = "-m bench.sweep --algo fedavg --seeds 2 --rounds 2 --local-epochs 1 --executor inline"


def shell(command: str, folder: Path) -> subprocess.CompletedProcess[str]:
    """With Python's own exit status where its output goes to another command."""
    line = ["bash", "-o", "pipefail", "-c", command]
    return subprocess.run(line, cwd=folder, capture_output=True, text=True, timeout=120)


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("results")
    done = shell(f"{PYTHON} {SWEEP} --out o", folder)
    assert done.returncode == 0, done.stderr
    return folder


COMMANDS = ["-m bench.sweep --algo all --dry-run", "-m bench.compare --out o"]


@pytest.mark.parametrize("command", COMMANDS)
def test_output_may_be_unread_closed_or_full(command: str, results: Path) -> None:
    for end in ("| true", ">&-"):
        done = shell(f"{PYTHON} {command} {end}", results)
        assert (done.returncode, "Error" in done.stderr) == (0, False)
    full = shell(f"{PYTHON} {command} > /dev/full", results)
    assert full.returncode == 3


@pytest.mark.parametrize("end", ["2>&-", "2>&1 | true", ">/dev/full 2>&1"])
def test_a_sweep_goes_on_whoever_reads_its_progress(end: str, tmp_path: Path) -> None:
    done = shell(f"{PYTHON} {SWEEP} --out o {end}", tmp_path)
    assert done.returncode == (3 if ">/dev/full 2" in end else 0)
    assert list(Store(tmp_path / "o").runs()["status"]) == ["finished"] * 2


def test_a_failure_stays_one_though_nobody_reads_on(tmp_path: Path) -> None:
    (tmp_path / "wrong.py").write_text(
        "from dataclasses import dataclass\nfrom algorithms.base import Algorithm\n@dataclass(frozen=True)\n"
        "class Wrong(Algorithm):\n    def local_loss(self, *given):\n        raise ValueError\n"
    )
    options = "--algo wrong:Wrong --rounds 1 --executor inline --uncertified --out o"
    assert shell(f"{PYTHON} -m bench.sweep {options} | true", tmp_path).returncode == 1


def test_a_python_without_a_package_is_named(tmp_path: Path) -> None:
    """Not a traceback: the environment of the suite is not active, most likely."""
    code = "import sys; sys.modules['pandas'] = None; from bench.compare.command import main; "
    done = shell(f'{PYTHON} -c "{code} sys.exit(main([]))"', tmp_path)
    assert done.returncode == 3
    assert "has no package pandas: activate the environment" in done.stderr
    assert "Traceback" not in done.stderr

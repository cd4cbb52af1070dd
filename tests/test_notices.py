"""Warnings of trials reach the sweep's display, from this process and from workers."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from bench.executors.notices import Notices

WORKER = """
import sys, warnings
from bench.errors import Slower, Waiting
from bench.executors.notices import pass_on
pass_on(sys.argv[1])
pass_on(sys.argv[1])
warnings.warn("going on\\nwith 6 at a time", Slower)
warnings.warn("fedavg is at work elsewhere", Waiting)
warnings.warn("of somebody else")
"""


@pytest.fixture
def out(tmp_path: Path) -> Path:
    """A results folder."""
    (tmp_path / "state").mkdir()
    return tmp_path


def worker(path: Path) -> str:
    """A process that warns; what its stderr has."""
    done = subprocess.run([sys.executable, "-c", WORKER, str(path)], capture_output=True, text=True, check=True)
    return done.stderr


def test_a_workers_own_warnings_are_said_once_for_all_workers(out: Path) -> None:
    said: list[str] = []
    with Notices(out, said.append) as heard:
        for _ in range(2):
            left = worker(heard.path)
            assert "of somebody else" in left
            assert "going on" not in left
    assert said == ["warning: going on with 6 at a time", "warning: fedavg is at work elsewhere"]
    assert not list((out / "state").iterdir())

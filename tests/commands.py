"""Helpers for tests that run whole commands."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pandas as pd

from bench.state_files import saved_runs
from bench.sweep import command as sweep
from bench.trial.trial import Trial
from leaderboards import Store
from leaderboards.rows.schema import READ_OFF_CURVES

IDENTITY = ("partition_hash", "diverged", "status", "hp_json", "setting_json", "seed", "algorithm")
EQUAL_COLUMNS = (*READ_OFF_CURVES, *IDENTITY)
ROOT = Path(__file__).resolve().parent.parent


def start(*arguments: str, module: str = "bench.sweep", cwd: Path = ROOT) -> subprocess.Popen[str]:
    """A command as a process group of its own."""
    return subprocess.Popen(
        [sys.executable, "-m", module, *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=cwd,
        start_new_session=True,
    )


def command(
    *arguments: str, module: str = "bench.sweep", timeout: float = 120, cwd: Path = ROOT
) -> subprocess.CompletedProcess[str]:
    """A command run to its end."""
    with start(*arguments, module=module, cwd=cwd) as process:
        out, err = process.communicate(timeout=timeout)
    return subprocess.CompletedProcess(arguments, process.returncode, out, err)


def wait_for(condition: Callable[[], bool], seconds: float = 120) -> None:
    """Until it holds."""
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "waited in vain"
        time.sleep(0.02)


def saved_round(out: Path) -> int:
    """The largest round of any saved state under a results folder; 0 without one."""
    return max((manifest.get("round", 0) for manifest in saved_runs(out).values()), default=0)


def run(out: Path, *arguments: str) -> int:
    """A sweep in this process, without Ray."""
    return sweep.main([*arguments, "--executor", "inline", "--out", str(out), "-q"])


def finish(trial: Trial) -> dict[str, Any]:
    """Step a trial to its end and close it; its last report."""
    while not (report := trial.step())["done"]:
        pass
    trial.close()
    return report


def descendants(pid: int) -> Iterator[int]:
    """Every process below `pid`, workers in sessions of their own included."""
    parents: dict[int, list[int]] = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            text = stat.read_text()
        except OSError:
            continue
        parent = int(text.rpartition(")")[2].split()[1])
        parents.setdefault(parent, []).append(int(stat.parent.name))
    waiting = list(parents.get(pid, []))
    while waiting:
        found = waiting.pop()
        yield found
        waiting += parents.get(found, [])


def kill_all(process: subprocess.Popen[str]) -> None:
    """SIGKILL to a command and all its workers."""
    for pid in [process.pid, *descendants(process.pid)]:
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            continue
    process.wait(timeout=30)
    for pipe in (process.stdout, process.stderr):
        if pipe:
            pipe.close()


def results(out: Path) -> tuple[pd.DataFrame, pd.DataFrame]:
    """The result columns by run key, and the curves, of a folder."""
    store = Store(out)
    runs = store.runs().set_index("run_key").sort_index()
    curves = store.curves().sort_values(["run_key", "round", "metric"]).reset_index(drop=True)
    return runs[list(EQUAL_COLUMNS)], curves


def assert_equal_results(left: Path, right: Path) -> None:
    """Equal rows in every result column, bit for bit, and equal curves."""
    (runs_a, curves_a), (runs_b, curves_b) = results(left), results(right)
    pd.testing.assert_frame_equal(runs_a, runs_b, check_exact=True)
    pd.testing.assert_frame_equal(curves_a, curves_b, check_exact=True)


def cells_of(text: str) -> list[list[str]]:
    """The lines of a printed text; of a table's line its cells."""
    lines = []
    for line in text.splitlines():
        cells = [cell.strip() for cell in line.replace("┃", "│").split("│")]
        if len(cells) > 1:
            lines.append(cells[1:-1])
        elif not line.startswith(("┏", "┡", "└")):
            lines.append([line])
    return lines

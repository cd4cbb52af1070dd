"""How long a user waits for commands that only inform: whole processes, beside a bare interpreter."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import bench
from bench.data import labels
from bench.errors import EnvironmentProblem
from bench.perf.measure import figure, timed

HEAVY = ("torch", "ray")
DRY_RUN_DATASET = "cifar10"
BARE = ("-c", "pass")
# Arguments of the interpreter, and seconds beyond the bare interpreter that are allowed.
COMMANDS: dict[str, tuple[tuple[str, ...], float]] = {
    "help": (("-m", "bench.sweep", "--help"), 0.3),
    "list": (("-m", "bench.sweep", "--list"), 0.3),
    "dry_run": (("-m", "bench.sweep", "--algo", "fedcad", "--dataset", DRY_RUN_DATASET, "--dry-run"), 2.0),
}


def measure_startup(repetitions: int, say: Callable[[str], None]) -> dict[str, Any]:
    """Each command several times, in turn with the bare interpreter.

    Args:
        repetitions: of every command; one more, not counted, warms the file cache.
        say: told what is being done.

    Returns:
        figures by command, and which of `HEAVY` it imports; if the data set is present, a dry run draws the partition.
    """
    say(f"start-up: {repetitions} repetitions")
    commands = {"interpreter": BARE, **{name: arguments for name, (arguments, _) in COMMANDS.items()}}
    with tempfile.TemporaryDirectory() as out:
        environment = _environment(out)
        imports = {name: _heavy_imports(arguments, environment) for name, arguments in commands.items()}
        seconds: dict[str, list[float]] = {name: [] for name in commands}
        for _ in range(repetitions):
            for name, arguments in commands.items():
                seconds[name].append(timed(lambda given=arguments: _run(given, environment)).seconds)  # type: ignore[misc]
    bare = seconds["interpreter"]
    found: dict[str, Any] = {"interpreter": {"seconds": figure(bare, "s")}}
    for name, (_, limit) in COMMANDS.items():
        beyond = [total - base for total, base in zip(seconds[name], bare, strict=True)]
        found[name] = {
            "seconds": figure(seconds[name], "s"),
            "beyond_interpreter": figure(beyond, "s", limit),
            "imports": imports[name],
        }
    found["dry_run"]["dataset_present"] = labels(DRY_RUN_DATASET) is not None
    return found


def _environment(out: str) -> dict[str, str]:
    """The user's, with an empty result folder, and this source tree importable from anywhere."""
    root = str(Path(bench.__file__).resolve().parent.parent)
    path = os.pathsep.join(part for part in (root, os.environ.get("PYTHONPATH")) if part)
    return {**os.environ, "FEDKD_OUT": out, "PYTHONPATH": path}


def _run(arguments: tuple[str, ...], environment: Mapping[str, str]) -> str:
    """Run the interpreter to its end; returns what it wrote on stderr.

    Raises:
        EnvironmentProblem: it failed.
    """
    done = subprocess.run([sys.executable, *arguments], env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        last = done.stderr.strip().splitlines()[-1:] or ["no message"]
        raise EnvironmentProblem(f"`python {' '.join(arguments)}` ended with status {done.returncode}: {last[0]}")
    return done.stderr


def _heavy_imports(arguments: tuple[str, ...], environment: Mapping[str, str]) -> list[str]:
    """Which of `HEAVY` a command imports, by the interpreter's own account."""
    lines = _run(("-X", "importtime", *arguments), environment).splitlines()
    imported = {line.rpartition("|")[2].strip() for line in lines}
    return [name for name in HEAVY if name in imported]

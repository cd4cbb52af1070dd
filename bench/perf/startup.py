"""How long a user waits for commands that only inform: whole processes, beside a bare interpreter."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import bench
from bench.data import source
from bench.errors import EnvironmentProblem
from bench.perf.measure import Spent, figure, timed

HEAVY = ("torch", "ray")
# Data sets that a dry run reads the labels of, if they are here, to draw its partitions.
READ = {"dry_run": ("cifar10",), "paper_dry_run": ("cifar10", "cifar100", "tiny_imagenet")}
BARE = ("-c", "pass")
# Arguments of the interpreter, and seconds beyond the bare interpreter that are allowed.
COMMANDS: dict[str, tuple[tuple[str, ...], float]] = {
    "help": (("-m", "bench.sweep", "--help"), 0.3),
    "list": (("-m", "bench.sweep", "--list"), 0.3),
    "dry_run": (("-m", "bench.sweep", "--algo", "fedcad", "--dataset", "cifar10", "--dry-run"), 2.0),
    "paper_dry_run": (("-m", "bench.sweep", "--paper", "fedgkd", "--table", "3", "--dry-run"), 2.0),
}


def measure_startup(folder: Path, repetitions: int, say: Callable[[str], None]) -> dict[str, Any]:
    """Each command several times, in turn with the bare interpreter.

    Args:
        folder: of data sets.
        repetitions: of every command; one more, not counted, warms the file cache.
        say: told what is being done.

    Returns:
        figures by command, and which of `HEAVY` it imports; of a dry run also `present`, the data sets that it read.
    """
    say(f"start-up: {repetitions} repetitions")
    commands = {"interpreter": BARE, **{name: arguments for name, (arguments, _) in COMMANDS.items()}}
    with tempfile.TemporaryDirectory() as out:
        environment = _environment(out, folder)
        imports = {name: _heavy_imports(arguments, environment) for name, arguments in commands.items()}
        turns = [
            {name: _time(arguments, environment) for name, arguments in commands.items()} for _ in range(repetitions)
        ]
    found = {name: _figures(name, turns, imports[name]) for name in commands}
    for name, datasets in READ.items():
        found[name]["present"] = [dataset for dataset in datasets if not source(dataset).missing(folder)]
    return found


def _figures(name: str, turns: Sequence[Mapping[str, Spent]], imports: list[str]) -> dict[str, Any]:
    """One command's times, alone and beyond the interpreter's of the same turn."""
    own = [turn[name] for turn in turns]
    found: dict[str, Any] = {
        "seconds": figure([spent.seconds for spent in own], "s"),
        "cpu_seconds": figure([spent.cpu_seconds for spent in own], "s"),
    }
    if name in COMMANDS:
        beyond = [turn[name].seconds - turn["interpreter"].seconds for turn in turns]
        found["beyond_interpreter"] = figure(beyond, "s", COMMANDS[name][1])
        found["imports"] = imports
    return found


def _time(arguments: tuple[str, ...], environment: Mapping[str, str]) -> Spent:
    """Run it once; its processor time shows what it would take on a machine of its own."""
    before = os.times()
    seconds = timed(lambda: _run(arguments, environment)).seconds
    after = os.times()
    user, system = after.children_user - before.children_user, after.children_system - before.children_system
    return Spent(seconds, user + system)


def _environment(out: str, folder: Path) -> dict[str, str]:
    """The user's, with an empty result folder, these data sets, and this source tree importable from anywhere."""
    root = str(bench.ROOT)
    path = os.pathsep.join(part for part in (root, os.environ.get("PYTHONPATH")) if part)
    return {**os.environ, "FEDKD_OUT": out, "FEDKD_DATA": str(folder), "PYTHONPATH": path}


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

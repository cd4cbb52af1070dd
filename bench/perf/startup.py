"""How long a user waits for commands that only inform: whole processes, beside a bare interpreter."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from bench.data import source
from bench.perf.interpreter import Ran, run
from bench.perf.measure import figure

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
        # An empty result folder, these data sets, and no measurement, which a dry run makes once.
        places = {"FEDKD_OUT": out, "FEDKD_DATA": str(folder), "FEDKD_MEASURE_SECONDS": "0"}
        imports = {name: _heavy_imports(arguments, places) for name, arguments in commands.items()}
        turns = [{name: run(arguments, **places) for name, arguments in commands.items()} for _ in range(repetitions)]
    found = {name: _figures(name, turns, imports[name]) for name in commands}
    for name, datasets in READ.items():
        found[name]["present"] = [dataset for dataset in datasets if not source(dataset).missing(folder)]
    return found


def _figures(name: str, turns: Sequence[Mapping[str, Ran]], imports: list[str]) -> dict[str, Any]:
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


def _heavy_imports(arguments: tuple[str, ...], places: Mapping[str, str]) -> list[str]:
    """Which of `HEAVY` a command imports, by the interpreter's own account."""
    lines = run(("-X", "importtime", *arguments), **places).errors.splitlines()
    imported = {line.rpartition("|")[2].strip() for line in lines}
    return [name for name in HEAVY if name in imported]

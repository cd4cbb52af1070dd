"""Waiting time of commands that only inform: whole processes, beside a bare interpreter."""

from __future__ import annotations

import tempfile
from pathlib import Path

from bench.data import source
from bench.perf.measure import Record, Say, figure, run_python, seconds_of

HEAVY = ("torch", "ray")
# Data sets whose labels a dry run reads, if they are here, to draw its partitions.
READ = {"dry_run": ("cifar10",), "paper_dry_run": ("cifar10", "cifar100", "tiny_imagenet")}
# Arguments of the interpreter, and seconds beyond the bare interpreter that are allowed.
COMMANDS: dict[str, tuple[tuple[str, ...], float]] = {
    "help": (("-m", "bench.sweep", "--help"), 0.3),
    "list": (("-m", "bench.sweep", "--list"), 0.3),
    "dry_run": (("-m", "bench.sweep", "--algo", "fedcad", "--dataset", "cifar10", "--dry-run"), 2.0),
    "paper_dry_run": (("-m", "bench.sweep", "--paper", "fedgkd", "--table", "3", "--dry-run"), 2.0),
}


def measure_startup(record: Record, folder: Path, repetitions: int, say: Say) -> None:
    """Time each command, in turn with the bare interpreter.

    The record gets figures by command and the modules of `HEAVY` that it imports; of a dry run also `present`, the data
    sets that it read. One more repetition, not counted, warms the file cache.
    """
    say(f"start-up: {repetitions} repetitions")
    commands = {"interpreter": ("-c", "pass"), **{name: arguments for name, (arguments, _) in COMMANDS.items()}}
    with tempfile.TemporaryDirectory() as out:
        # An empty result folder, these data sets, and no measurement of the machine, which a dry run makes once.
        places = {"FEDKD_OUT": out, "FEDKD_DATA": str(folder), "FEDKD_MEASURE_SECONDS": "0"}
        imports = {}
        for name, arguments in commands.items():
            lines = run_python(("-X", "importtime", *arguments), **places).errors.splitlines()
            imported = {line.rpartition("|")[2].strip() for line in lines}
            imports[name] = [module for module in HEAVY if module in imported]
        turns = [
            {name: run_python(arguments, **places) for name, arguments in commands.items()} for _ in range(repetitions)
        ]
    for name in commands:
        record[name] = seconds_of([turn[name] for turn in turns])
        if name in COMMANDS:
            beyond = [turn[name].seconds - turn["interpreter"].seconds for turn in turns]
            record[name] |= {"beyond_interpreter": figure(beyond, "s", COMMANDS[name][1]), "imports": imports[name]}
    for name, datasets in READ.items():
        record[name]["present"] = [dataset for dataset in datasets if not source(dataset).missing(folder)]

"""The command line of `bench.perf`. Imports neither torch nor ray before something is measured."""

from __future__ import annotations

import argparse
import json
import os
import sys
import traceback
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from algorithms import ALGORITHMS
from bench.data import data_dir, info
from bench.errors import EXIT_FAILED, EXIT_INTERRUPTED, EXIT_OK, EnvironmentProblem, UsageError
from bench.execution import BACKENDS
from bench.machine import cpu_count, resolve_device
from bench.models import check_model
from bench.perf.measure import Record, Say, message_of
from bench.planning.given import find_algorithm
from bench.provenance import command_columns, process_columns
from bench.terminal.console import Parser, console, exit_status
from bench.terminal.values import split_list, whole_number
from bench.terminal.words import DATA_DIR, counted, unknown
from leaderboards.rows.files import typed_file
from leaderboards.shell_text import shell_command
from search_spaces.setting import AUGMENTATIONS, PRECISIONS

if TYPE_CHECKING:
    from bench.perf.workload import Workload

PARTS = ("startup", "data", "training", "throughput", "tune")
ON_REQUEST = "boards"  # a part that is measured only if asked for
USUAL = ("fedprox", "fedgkd", "fedlsd", "fedcad")
BUSY = 0.5  # load average from which other processes distort timings
DESCRIPTION = """\
Measure this suite: the start-up of its commands, preparing data and sharing them out, local
training beside a bare PyTorch loop, rates of a device, what Ray Tune adds and, on request, large
result folders. A table on stdout, progress on stderr; targets are shown beside the figures and
never decide the exit status."""
EPILOG = """\
examples:
  everything usual, some ten minutes
    python -m bench.perf
  what comes before training, about a minute
    python -m bench.perf --part startup data
    python -m bench.perf --part training --model cnn_cifar --algo none --cohort 2
  every algorithm, about ten minutes
    python -m bench.perf --part training --algo all --model cnn_cifar
    python -m bench.perf --part training throughput --json perf.json
    python -m bench.perf --part throughput --device cuda --precision tf32 bf16 --pack 1 8 64 \\
      --json h100.json
  100,000 runs' leaderboard and a page, minutes
    python -m bench.perf --part boards

Lists of names take spaces or commas.
exit status: 0 measured; 1 something failed; 2 usage or value; 3 environment; 130 interrupted"""


def make_parser() -> Parser:
    """Declare all options."""
    parser = Parser(prog="python -m bench.perf", description=DESCRIPTION, epilog=EPILOG)
    add = parser.add_argument
    parts = f"of {', '.join(PARTS)} (all of these), {ON_REQUEST}"
    add("--part", nargs="+", default=list(PARTS), metavar="NAME", help=parts)
    add(
        "--json",
        nargs="?",
        const="-",
        metavar="FILE",
        help="the record in a file, or on stdout instead of tables",
    )
    threads = "processor threads of training and of each trial (1)"
    add("--threads", type=whole_number, default=1, metavar="N", help=threads)
    add("-v", "--verbose", action="store_true", help="tracebacks of failures")
    add = parser.add_argument_group("startup, data, boards").add_argument
    add(
        "--repetitions",
        type=whole_number,
        default=7,
        metavar="N",
        help="repetitions of every command or piece of work (7)",
    )
    add("--data-dir", metavar="DIR", help=DATA_DIR)
    runs = "runs in the made-up result folder (100,000)"
    add("--runs", type=whole_number, default=100_000, metavar="N", help=runs)
    add = parser.add_argument_group("training, throughput").add_argument
    add(
        "--model",
        nargs="+",
        default=["cnn_cifar", "resnet8"],
        metavar="NAME",
        help="models (cnn_cifar resnet8)",
    )
    augmentations = "augmentations (none flip_crop); throughput takes the first"
    add(
        "--augmentation",
        nargs="+",
        default=["none", "flip_crop"],
        metavar="NAME",
        help=augmentations,
    )
    beside = f"algorithms beside FedAvg, all, or none ({' '.join(USUAL)})"
    add("--algo", nargs="+", default=list(USUAL), metavar="NAME", help=beside)
    add("--rounds", type=whole_number, default=7, metavar="N", help="timed rounds (7)")
    add("--clients", type=whole_number, default=10, metavar="K", help="number of clients (10)")
    add(
        "--cohort",
        type=whole_number,
        metavar="N",
        help="clients that train in a round (all); a round of few is short",
    )
    add(
        "--samples",
        type=whole_number,
        default=640,
        metavar="N",
        help="samples of each client (640)",
    )
    epochs = "passes over a client's samples in a round (2); many hide what a round costs besides"
    add("--epochs", type=whole_number, default=2, metavar="E", help=epochs)
    add("--device", choices=("auto", "cpu", "cuda"), default="auto", help="where to train (auto)")
    several = "only throughput takes several"
    add(
        "--backend",
        nargs="+",
        default=["auto"],
        metavar="NAME",
        help=f"of {', '.join(BACKENDS)} (auto); {several}",
    )
    precisions = f"of {', '.join(PRECISIONS)} (fp32); {several}"
    add("--precision", nargs="+", default=["fp32"], metavar="NAME", help=precisions)
    add(
        "--pack",
        nargs="+",
        type=whole_number,
        default=[1],
        metavar="N",
        help=f"runs that train as one program (1); {several}",
    )
    add = parser.add_argument_group("tune").add_argument
    add("--trials", type=whole_number, default=12, metavar="N", help="small trials (12)")
    add(
        "--steps",
        type=whole_number,
        default=200,
        metavar="N",
        help="reports of one long trial (200)",
    )
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command and return its exit status."""
    argv = list(sys.argv[1:] if argv is None else argv)
    options = make_parser().parse_args(argv)
    return exit_status(
        lambda: _measure(options, shell_command("bench.perf", *argv)), options.verbose
    )


def check(options: argparse.Namespace) -> None:
    """Resolve lists and `auto`, and refuse what cannot be measured, before minutes are spent.

    Raises UsageError for an unknown name, or a value out of range.
    """
    valid = {
        "part": (*PARTS, ON_REQUEST),
        "augmentation": AUGMENTATIONS,
        "backend": BACKENDS,
        "precision": PRECISIONS,
    }
    for option in (*valid, "model", "algo"):
        names = list(dict.fromkeys(split_list(getattr(options, option))))
        setattr(options, option, names)
        if not names:
            raise UsageError(f"--{option} takes at least one name")
    for option, allowed in valid.items():
        for name in getattr(options, option):
            if name not in allowed:
                raise unknown(option, name, allowed)
    for model in options.model:
        check_model(model, info("cifar10").input_shape)
    if options.algo == ["all"]:
        options.algo = [name for name in ALGORITHMS if name != "fedavg"]
    elif options.algo == ["none"]:
        options.algo = []
    for name in options.algo:
        find_algorithm(name)
    options.device = resolve_device(options.device)
    options.cohort = options.clients if options.cohort is None else options.cohort
    _check_numbers(options)


def _check_numbers(options: argparse.Namespace) -> None:
    """Raise UsageError for a number out of range."""
    least = {"trials": 2, "steps": 2, "runs": 10}
    least |= dict.fromkeys(("threads", "repetitions", "rounds", "epochs"), 1)
    least |= dict.fromkeys(("clients", "cohort", "samples"), 1)
    for option, lowest in least.items():
        if getattr(options, option) < lowest:
            raise UsageError(f"--{option} must be >= {lowest}, got {getattr(options, option)}")
    if min(options.pack) < 1:
        raise UsageError(f"--pack takes whole numbers >= 1, got {min(options.pack)}")
    if options.cohort > options.clients:
        raise UsageError(
            f"--cohort must be <= --clients, got {options.cohort} and {options.clients}"
        )


def _measure(options: argparse.Namespace, command: str) -> int:
    check(options)
    record = _new_record(command, options)
    _save(options.json, record)  # so that an unwritable file fails before minutes are spent
    status = _measure_parts(options, record)
    try:
        _save(options.json, record)
    finally:  # the tables, even if the file cannot be written
        if options.json == "-":
            sys.stdout.write(json.dumps(record) + "\n")
        else:
            print_record(record)
    return status or (EXIT_FAILED if any(_failures(record)) else EXIT_OK)


def _new_record(command: str, options: argparse.Namespace) -> Record:
    about = {**command_columns("bench.perf"), **process_columns(options.device)}
    del about["host"]  # because records are passed on
    load = list(os.getloadavg()) if hasattr(os, "getloadavg") else None
    started = datetime.now(UTC).isoformat(timespec="seconds")
    machine = {"threads": options.threads, "cores": cpu_count(), "load": load, "started": started}
    return {"schema": 3, **about, "command": command, **machine, "parts": {}, "failed": {}}


def _measure_parts(options: argparse.Namespace, record: Record) -> int:
    """Measure part after part into the record, whose file is written again before each case.

    Returns 0, or 130 after an interruption.
    """

    def say(text: str) -> None:
        sys.stderr.write(text + "\n")
        _save(options.json, record)

    for name in options.part:
        record["parts"][name] = {}
        try:
            _measure_part(name, record["parts"][name], options, say)
        except KeyboardInterrupt:
            record["failed"][name] = "interrupted"
            return EXIT_INTERRUPTED
        except Exception as error:
            record["failed"][name] = message_of(error)
            if options.verbose:
                traceback.print_exception(error)
    return EXIT_OK


def _measure_part(name: str, part: Record, options: argparse.Namespace, say: Say) -> None:
    """Fill one part of the record; only here are torch and ray imported."""
    if name == "startup":
        from bench.perf.processes import measure_startup

        measure_startup(part, data_dir(options.data_dir), options.repetitions, say)
    elif name == "data":
        from bench.perf.data import measure_data

        measure_data(part, data_dir(options.data_dir), options.repetitions, say)
    elif name == "boards":
        from bench.perf.processes import measure_boards

        measure_boards(part, options.runs, options.repetitions, say)
    elif name == "tune":
        from bench.perf.tune import measure_tune

        measure_tune(part, options.trials, options.steps, options.threads, say)
    elif name == "training":
        from bench.perf.training import measure_training

        work = _works(options)[0]
        models = options.model
        augmentations = options.augmentation
        measure_training(part, work, models, augmentations, options.algo, options.rounds, say)
    else:
        from bench.perf.training import cases, measure_throughput

        works = cases(_works(options), options.backend, options.precision, options.pack)
        measure_throughput(part, works, options.rounds, say)


def _works(options: argparse.Namespace) -> list[Workload]:
    """Return a workload for each model, with the first of every other list."""
    from bench.engine.process import prepare_process
    from bench.perf.workload import Workload

    prepare_process(options.threads)
    first = Workload(
        options.model[0],
        augmentation=options.augmentation[0],
        clients=options.clients,
        cohort=options.cohort,
        samples=options.samples,
        epochs=options.epochs,
        device=options.device,
        backend=options.backend[0],
        precision=options.precision[0],
    )
    return [replace(first, model=model) for model in options.model]


def _save(target: str | None, record: Record) -> None:
    """Write the record so far, if a file was asked for.

    Raises EnvironmentProblem if it cannot be written.
    """
    if target in (None, "-"):
        return
    try:
        with typed_file(Path(str(target))) as content:
            content.write((json.dumps(record) + "\n").encode())
    except OSError as error:
        raise EnvironmentProblem(f"{target} cannot be written: {error.strerror or error}") from None


def figures_of(
    tree: Any, path: tuple[str, ...] = (), key: str = "median"
) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Yield every mapping in a record's parts that has `key`, with its path.

    A path is such as `training engine cnn_cifar ratio`. Entries of a list are named by their
    `name`.
    """
    if isinstance(tree, list):
        tree = {entry["name"]: entry for entry in tree if "name" in entry}
    for name, value in tree.items() if isinstance(tree, Mapping) else ():
        if isinstance(value, Mapping) and key in value:
            yield " ".join((*path, name)), value
        else:
            yield from figures_of(value, (*path, name), key)


def _failures(record: Record) -> Iterator[str]:
    for name, failed in figures_of(record["parts"], key="error"):
        yield f"{name}: {failed['error']}"
    for name, why in record["failed"].items():
        yield f"part {name}: {why}"


def print_record(record: Record) -> None:
    """Print the figures as a table, and what is missing with its reason."""
    from rich.table import Table

    out = console()
    versions = []
    for name in ("torch", "ray"):
        versions.append(f"{name} {record['versions'].get(name) or 'not installed'}")
    cores = f"{counted(record['cores'], 'core')}, {counted(record['threads'], 'thread')}"
    out.print(", ".join([record["device"], record["cpu"], cores, *versions]))
    table = Table("figure", "median", "quartiles", "target", "met")
    for column in table.columns[1:]:
        column.justify = "right"
    for name, figure in figures_of(record["parts"]):
        scale = 1.0
        prefix = ""
        if figure["median"] >= 1e9:
            scale = 1e9
            prefix = "G"
        median = _digits(figure["median"] / scale)
        spread = ""
        if figure["n"] > 1:
            spread = f"{_digits(figure['low'] / scale)} to {_digits(figure['high'] / scale)}"
        target = ""
        met = ""
        if "limit" in figure:
            target = f"{figure['bound']} {figure['limit']:g}"
            met = "yes" if figure["met"] else "no"
        table.add_row(name, f"{median} {prefix}{figure['unit']}", spread, target, met)
    if table.row_count:
        out.print(table)
    left_out = figures_of(record["parts"], key="left_out")
    notes = [f"{name}: {entry['left_out']}" for name, entry in left_out]
    load = (record["load"] or [0.0])[0]
    if load >= BUSY:
        notes.append(
            f"the load was {load:.1f} on {record['cores']} cores at the start: "
            "by the clock all is slower than it is"
        )
    for line in [*notes, *_failures(record)]:
        out.print(line, soft_wrap=True)


def _digits(value: float) -> str:
    """Format three digits, or the whole number."""
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"

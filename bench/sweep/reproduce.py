"""`python -m bench.sweep reproduce RUN_KEY`: run a stored row's configuration again."""

from __future__ import annotations

import argparse
import json
import math
import sys
from collections.abc import Mapping, Sequence
from typing import Any

from algorithms import ALGORITHMS
from algorithms.entry_points import names_of_rows
from bench import artifacts, data
from bench.compare.filters import run_of_key
from bench.errors import EXIT_FAILED, EXIT_OK, EnvironmentProblem, UsageError
from bench.execution import Execution, default_out
from bench.machine import resolve_device
from bench.planning.given import find_algorithm, names_of_paths
from bench.planning.run_spec import RunSpec, setting_of, trained_by
from bench.terminal.console import Parser, exit_status, say
from bench.terminal.paths import result_folder, whole_path
from bench.terminal.values import split_list
from bench.terminal.words import DATA_DIR, IMPORT, LABEL, counted
from leaderboards import Store
from leaderboards.numbers import NUMBERS
from leaderboards.rows.files import part_of
from leaderboards.rows.schema import READ_OFF_CURVES
from leaderboards.shell_text import shell_command


def main(argv: Sequence[str]) -> int:
    """Run the command and return its exit status."""
    parser = Parser(
        prog="python -m bench.sweep reproduce",
        description="Run a stored row's configuration again and compare every result column.",
        epilog="exit status: 0 equal; 1 different or failed; 2 no such run; 3 data or disk",
    )
    parser.add_argument("run_key", help="the row's run_key, or its first characters")
    parser.add_argument(
        "--out",
        metavar="DIR",
        help="where the row is, also a file of rows (default $FEDKD_OUT, else leaderboards)",
    )
    parser.add_argument(
        "--into",
        metavar="DIR",
        help="folder of the new row (default OUT/reproduced; of the default OUT if --out is a "
        "file)",
    )
    parser.add_argument("--import", dest="imports", nargs="+", metavar="NAME", help=IMPORT)
    parser.add_argument(
        "--dataset",
        nargs="+",
        default=[],
        metavar="NAME",
        help="folder:PATH or csv:PATH, where the data and the public samples lie that the row "
        "names by their content",
    )
    parser.add_argument("--label", default="", metavar="COLUMN", help=LABEL)
    parser.add_argument("--data-dir", metavar="DIR", help=DATA_DIR)
    parser.add_argument("--offline", action="store_true", help="never touch the network")
    parser.add_argument(
        "--device", choices=("auto", "cpu", "cuda"), default="auto", help="where to train (auto)"
    )
    arguments = parser.parse_args(argv)
    typed = (*split_list(arguments.imports), *arguments.dataset)
    with names_of_rows(typed):
        return exit_status(lambda: _reproduce(arguments))


def _reproduce(arguments: argparse.Namespace) -> int:
    from bench.provenance import command_columns
    from leaderboards.rows.frames import records
    from leaderboards.rows.store import Folders

    out = whole_path(arguments.out or default_out())
    into = result_folder(
        arguments.into or part_of(default_out() if out.is_file() else out, "reproduced"), "--into"
    )
    (row,) = records(run_of_key(Folders([out]).runs(), arguments.run_key, [out]))
    if row["status"] != "finished":
        raise UsageError(
            f"the run {row['run_key'][:16]} is {row['status']}, and only a finished row can be "
            "compared: give its command again to finish it, or name a finished run"
        )
    run_spec = run_spec_of_row(row)
    names = [run_spec.setting.dataset]
    if run_spec.setting.public_set is not None:
        public, _ = run_spec.setting.public_set
        names.append(public)
    _check_data(row["run_key"][:16], names, arguments.dataset, arguments.label)
    if run_spec.setting.start_from:
        artifacts.copy([out], into, run_spec.setting.start_from)
    execution = Execution(
        out=str(into),
        data_dir=arguments.data_dir,
        offline=arguments.offline,
        device=resolve_device(arguments.device),
        backend=row["backend"],
        threads=int(row["threads"]),
        force=True,
        track=() if row["local_accuracy_mean"] is None else ("local",),
        certified=(run_spec.algorithm,) if row["certified"] else (),
        provenance=command_columns(shell_command("bench.sweep", "reproduce", row["run_key"])),
    )
    report = _train(run_spec, execution)
    if report["status"] == "environment":
        raise EnvironmentProblem(report["error"])
    if report["status"] == "failed":
        sys.stderr.write(f"failed: {report['error']}\n")
        return EXIT_FAILED
    rows = Store(into).runs(replicates=True, keys=[row["run_key"]])
    return _compare(row, records(rows.sort_values("finished"))[-1])


def _train(run_spec: RunSpec, execution: Execution) -> dict[str, Any]:
    """Train a run, with a line on stderr for each report; return the last report."""
    from bench.trial.trial import Trial

    sys.stderr.write(f"{run_spec.label}: {counted(run_spec.setting.rounds, 'round')}\n")
    trial = Trial([run_spec], execution)
    report = trial.report()
    while not report["done"]:
        report = trial.step()
        line = f"round {report['round']}"
        if not math.isnan(report["accuracy"]):
            line += f": accuracy {100 * report['accuracy']:.2f} %"
        sys.stderr.write(f"{line}\n")
    trial.close()
    return report


def _check_data(run: str, names: Sequence[str], paths: Sequence[str], label: str) -> None:
    """Read the data that the user says where to find.

    Raises UsageError unless they are of a run's data `names`, and all of these are then known.
    """
    for path, name in names_of_paths(paths, label).items():
        if name not in names:
            raise UsageError(
                f"--dataset {path} is {name}, and the run {run} has {' and '.join(names)}: "
                "name its data"
            )
    for name in names:
        data.info(name)  # raises if nobody says where data known by content lie


def run_spec_of_row(row: Mapping[str, Any]) -> RunSpec:
    """Rebuild the run of a row.

    Raises UsageError if its algorithm is unknown here, or is another version by now.
    """
    setting = setting_of(row["setting_json"])
    name = trained_by(row["algorithm"], row["setting_json"])
    algorithm = find_algorithm(name)
    name = algorithm.name
    values = {**algorithm.defaults(), **json.loads(row["hp_json"])}
    run_spec = RunSpec(name, values, setting, row["seed"], row["paper"], row["shortened"])
    if row["run_key"] not in run_spec.rows.values():
        commit = row["git_commit"]
        advice = ""
        if name in ALGORITHMS and commit is not None:
            advice = f"; check out commit {commit} to reproduce it"
        raise UsageError(
            f"the row was made by another version of {name}, or of its data, model or settings: "
            f"its key is {row['run_key'][:16]}, that of the same values is {run_spec.key[:16]} "
            f"here{advice}"
        )
    return run_spec


def _compare(old: Mapping[str, Any], new: Mapping[str, Any]) -> int:
    """Print the result columns that differ, and return the exit status."""
    # A number that is of a later version, and of a metric that the stored curve lacks, is new.
    gained = [name for name in READ_OFF_CURVES if NUMBERS[name].optional and old[name] is None]
    different = []
    for name in (*READ_OFF_CURVES, "partition_hash", "diverged"):
        if old[name] != new[name] and name not in gained:
            different.append(name)
    for name in different:
        sys.stdout.write(f"{name}: stored {old[name]}, now {new[name]}\n")
    if not different:
        sys.stdout.write(f"equal in all {len(READ_OFF_CURVES) + 2} result columns, bit for bit\n")
    elif old["pack"] > 1 and old["backend"] == "stacked":
        others = counted(int(old["pack"]) - 1, "other run")
        say(
            f"the stored row trained in one program with {others}: alone it rounds otherwise, and "
            "training amplifies that; a small difference is no sign of an error"
        )
    return EXIT_FAILED if different else EXIT_OK

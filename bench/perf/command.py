"""The command line of `bench.perf`. Imports neither torch nor ray before something is measured."""

from __future__ import annotations

import argparse
import json
import signal
import sys
import threading
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bench.data import data_dir
from bench.errors import EXIT_FAILED, EXIT_INTERRUPTED, EXIT_OK, EnvironmentProblem
from bench.perf.measure import Keep, failure
from bench.perf.options import ROUNDS, SAMPLES, TABLES, check, make_parser
from bench.terminal.console import console, exit_status
from bench.whole import whole_file
from leaderboards.commands import shell_command

if TYPE_CHECKING:
    from bench.perf.workload import Workload


def main(argv: Sequence[str] | None = None) -> int:
    """The command; returns its exit status."""
    argv = list(sys.argv[1:] if argv is None else argv)
    given = make_parser().parse_args(argv)
    with _terminable():
        return exit_status(lambda: _measure(given, shell_command("bench.perf", *argv)), given.verbose)


@contextmanager
def _terminable() -> Iterator[None]:
    """A SIGTERM, as of a time limit, is an interruption: what was measured is printed and kept."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _measure(given: argparse.Namespace, command: str) -> int:
    check(given)
    from bench.perf.peers import read_peers
    from bench.perf.report import check_devices, new_record, print_record, problems, read_records

    peers = read_peers(given.compare)
    known = read_records(given.sources)
    record = new_record(command, given.device, given.threads)
    if given.cudnn_benchmark:  # from the beginning: cuDNN keeps what it has once chosen
        import torch

        torch.backends.cudnn.benchmark = True
    measured = {"throughput", "training"} & set(given.part)
    check_devices([*known, record] if measured else known)
    status = _parts(given, record, known)
    if peers:
        record["peers"] = _beside_peers(peers, record, given)
    try:
        _keep(given, record)
    finally:  # the tables, if the files cannot be written
        if given.json == "-":
            sys.stdout.write(json.dumps(record) + "\n")
        else:
            print_record(record, console())
    return status or (EXIT_FAILED if problems(record) else EXIT_OK)


def _parts(given: argparse.Namespace, record: dict[str, Any], known: list[dict[str, Any]]) -> int:
    """Measure part after part into the record and its files: what fails, or is interrupted, costs nothing before it.

    Returns:
        130 after an interruption, else 0.

    Raises:
        Exception: what failed first, if nothing was measured.
        KeyboardInterrupt: so is an interruption then.
    """

    def keep(name: str, part: dict[str, Any]) -> None:
        record["parts"][name] = part
        with suppress(EnvironmentProblem):  # said at the end, below the tables
            _keep(given, record)

    runners = RUNNERS | {"scale": lambda given, keep: _run_scale(given, [*known, record])}
    errors: list[Exception] = []
    for name in sorted(given.part, key="scale".__eq__):  # last, for it reads what the others measured
        try:
            keep(name, runners[name](given, partial(keep, name)))
        except KeyboardInterrupt:
            if not record["parts"]:
                raise
            record["failed"][name] = "interrupted"
            return EXIT_INTERRUPTED
        except Exception as error:
            errors.append(error)
            record["failed"][name] = failure(error)
            if given.verbose and (record["parts"] or len(given.part) > 1):  # what leaves nothing is raised below
                traceback.print_exception(error)
    if not record["parts"]:
        raise errors[0]
    return EXIT_OK


def _keep(given: argparse.Namespace, record: dict[str, Any]) -> None:
    """The record so far, in the files that were asked for."""
    for file in (given.out, given.json if given.json != "-" else None):
        if file:
            _write(Path(file), json.dumps(record) + "\n")


def _work(given: argparse.Namespace, device: str | None = None) -> Workload:
    """What parts that train have in common: the first of every list."""
    from bench.engine.process import prepare_process
    from bench.perf.workload import Workload

    prepare_process(given.threads)
    return Workload(
        given.model[0],
        clients=given.clients,
        cohort=given.cohort,
        samples=given.samples or SAMPLES,
        device=device or given.device,
        backend=given.backend[0],
        precision=given.precision[0],
        rounds=100 + (given.rounds or ROUNDS),
    )


def _run_startup(given: argparse.Namespace, keep: Keep) -> dict[str, Any]:
    from bench.perf.startup import measure_startup

    return measure_startup(data_dir(given.data_dir), given.repetitions, _say)


def _run_data(given: argparse.Namespace, keep: Keep) -> dict[str, Any]:
    from bench.perf.data import measure_data

    return measure_data(data_dir(given.data_dir), given.repetitions, _say)


def _run_training(given: argparse.Namespace, keep: Keep) -> dict[str, Any]:
    from bench.perf.training import measure_training

    return measure_training(
        _work(given), given.model, given.augmentation, given.algo, given.rounds or ROUNDS, _say, keep
    )


def _run_throughput(given: argparse.Namespace, keep: Keep) -> dict[str, Any]:
    from dataclasses import replace

    from bench.perf.tables import problem_of, table_works
    from bench.perf.throughput import cases, measure_throughput

    work = replace(_work(given), augmentation=given.augmentation[0])
    of_tables = given.model == [TABLES]
    named = [replace(work, model=model) for model in given.model]
    works = table_works(work) if of_tables else {problem_of(one.setting): one for one in named}
    split = [] if of_tables else [replace(one, augmentation=given.augmentation[-1]) for one in named]
    return measure_throughput(
        cases(works, given.backend, given.precision, given.pack), split, given.rounds or ROUNDS, _say, keep
    )


def _run_cores(given: argparse.Namespace, keep: Keep) -> dict[str, Any]:
    from bench.perf.cores import measure_cores

    return measure_cores(_work(given, "cpu"), given.rounds or ROUNDS, _say)


def _run_tune(given: argparse.Namespace, keep: Keep) -> dict[str, Any]:
    from bench.perf.tune import measure_tune

    return measure_tune(given.trials, given.steps, given.threads, _say)


def _run_settings(given: argparse.Namespace, keep: Keep) -> dict[str, Any]:
    from bench.engine.process import prepare_process
    from bench.perf.settings import Asked, measure_settings

    prepare_process(given.threads)
    ways = [
        Asked(given.device, backend, precision, pack, given.rounds, given.samples)
        for backend, precision, pack in product(given.backend, given.precision, given.pack)
    ]
    return measure_settings(given.setting, given.algo if given.own_algo else [], ways, _say, keep)


def _run_scale(given: argparse.Namespace, records: list[dict[str, Any]]) -> dict[str, Any]:
    from bench.perf.scale import measure_scale

    return measure_scale(records, given.precision[0])


def _run_profile(given: argparse.Namespace, keep: Keep) -> dict[str, Any]:
    from dataclasses import replace

    from bench.perf.profile import measure_profile

    algorithm = given.algo[0] if given.own_algo and given.algo else "fedavg"
    works = [replace(_work(given), model=model, augmentation=given.augmentation[0]) for model in given.model]
    return {work.model: measure_profile(work, algorithm) for work in works}


def _run_boards(given: argparse.Namespace, keep: Keep) -> dict[str, Any]:
    from bench.perf.boards import measure_boards

    return measure_boards(given.runs, given.repetitions, _say)


def _beside_peers(peers: list[dict[str, Any]], record: dict[str, Any], given: argparse.Namespace) -> Any:
    from bench.perf.peers import beside_peers, our_rates

    ours = our_rates(record["parts"], given.precision[0])
    return beside_peers(peers, ours, given.device, given.threads)


RUNNERS: dict[str, Callable[[argparse.Namespace, Keep], dict[str, Any]]] = {
    "startup": _run_startup,
    "data": _run_data,
    "training": _run_training,
    "throughput": _run_throughput,
    "cores": _run_cores,
    "tune": _run_tune,
    "settings": _run_settings,
    "profile": _run_profile,
    "boards": _run_boards,
}


def _say(text: str) -> None:
    sys.stderr.write(text + "\n")
    sys.stderr.flush()


def _write(file: Path, text: str) -> None:
    try:
        with whole_file(file) as content:
            content.write(text.encode())
    except OSError as error:
        raise EnvironmentProblem(f"{file} cannot be written: {error.strerror or error}") from None

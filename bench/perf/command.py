"""The command line of `bench.perf`. Imports neither torch nor ray before something is measured."""

from __future__ import annotations

import argparse
import json
import shlex
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from algorithms import ALGORITHMS, entry
from bench.console import console, report_problem
from bench.data import data_dir, info
from bench.errors import (
    EXIT_ENVIRONMENT,
    EXIT_FAILED,
    EXIT_INTERRUPTED,
    EXIT_OK,
    EXIT_USAGE,
    EnvironmentProblem,
    UsageError,
)
from bench.execution import cpu_count, resolve_device
from bench.models import MODELS, check_model
from bench.options import split_list
from search_spaces.setting import AUGMENTATIONS, PRECISIONS

PARTS = ("startup", "data", "training", "tune")
ON_REQUEST = ("boards",)  # parts that are measured only if asked for
USUAL = ("fedprox", "fedgkd", "fedlsd", "fedcad")
DESCRIPTION = """\
Measure this suite: the start-up of its commands, preparing data and sharing them out, local training beside a bare
PyTorch loop, what Ray Tune adds and, on request, large result folders. A table on stdout, progress on stderr; targets
are shown beside the figures and never decide the exit status."""
EPILOG = """\
examples:
  python -m bench.perf                                            everything, about ten minutes
  python -m bench.perf --part startup data                        what comes before training, about a minute
  python -m bench.perf --part training --model cnn_cifar --algo none --cohort 2
  python -m bench.perf --part training --algo all --model cnn_cifar   every algorithm, about ten minutes
  python -m bench.perf --part training --device cuda --json --out perf.json
  python -m bench.perf --boards                                   the leaderboard of 100,000 runs, minutes

Lists take spaces or commas.
exit status: 0 measured; 1 an algorithm failed; 2 usage or value; 3 environment; 130 interrupted"""


def make_parser() -> argparse.ArgumentParser:
    """All options."""
    parser = argparse.ArgumentParser(
        prog="python -m bench.perf",
        description=DESCRIPTION,
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    add = parser.add_argument
    known = f"of {', '.join(PARTS)} (all of these), {', '.join(ON_REQUEST)}"
    add("--part", nargs="+", default=list(PARTS), metavar="NAME", help=known)
    add("--boards", dest="part", action="store_const", const=["boards"], help="short for --part boards")
    add("--json", action="store_true", help="the record on stdout instead of tables")
    add("--out", type=Path, metavar="FILE", help="write the record to a file, too")
    add("--threads", type=int, default=1, metavar="N", help="of training and of each trial (1)")
    add("-v", "--verbose", action="store_true", help="tracebacks of failures")
    early = parser.add_argument_group("startup, data, boards")
    early.add_argument("--repetitions", type=int, default=7, metavar="N", help="of every command or piece of work (7)")
    early.add_argument("--data-dir", metavar="DIR", help="data sets (default $FEDKD_DATA, else ~/.local/share)")
    _training(parser.add_argument_group("training"))
    tune = parser.add_argument_group("tune")
    tune.add_argument("--trials", type=int, default=12, metavar="N", help="small trials (12)")
    tune.add_argument("--steps", type=int, default=200, metavar="N", help="reports of one long trial (200)")
    boards = parser.add_argument_group("boards")
    boards.add_argument("--runs", type=int, default=100_000, metavar="N", help="in the result folder (100,000)")
    return parser


def _training(group: argparse._ArgumentGroup) -> None:
    add = group.add_argument
    add("--model", nargs="+", default=["cnn_cifar", "resnet8"], metavar="NAME", help="models (cnn_cifar resnet8)")
    add(
        "--augmentation",
        nargs="+",
        default=["none", "flip_crop"],
        metavar="NAME",
        help="of the engine (none flip_crop)",
    )
    add(
        "--algo",
        nargs="+",
        default=list(USUAL),
        metavar="NAME",
        help=f"algorithms beside FedAvg, all, or none ({' '.join(USUAL)})",
    )
    add("--rounds", type=int, default=7, metavar="N", help="timed rounds of each comparison (7)")
    add("--clients", type=int, default=10, metavar="K", help="number of clients (10)")
    add("--cohort", type=int, metavar="N", help="clients that train in a round; few make it short (all)")
    add("--samples", type=int, default=640, metavar="N", help="of each client (640)")
    add("--device", choices=("auto", "cpu", "cuda"), default="auto", help="where to train (auto)")
    add("--backend", choices=("auto", "loop", "stacked"), default="auto", help="of the engine (auto)")
    add("--precision", choices=PRECISIONS, default="fp32", help="of both loops (fp32)")
    add("--compare", nargs="+", default=[], metavar="FILE", help="JSON lines of peers: peer, model, samples_per_s")


def main(argv: Sequence[str] | None = None) -> int:
    """The command; returns its exit status."""
    argv = list(sys.argv[1:] if argv is None else argv)
    given = make_parser().parse_args(argv)
    try:
        return _measure(given, "python -m bench.perf " + shlex.join(argv))
    except UsageError as error:
        return report_problem(error, EXIT_USAGE, given.verbose)
    except EnvironmentProblem as error:
        return report_problem(error, EXIT_ENVIRONMENT, given.verbose)
    except KeyboardInterrupt:
        return EXIT_INTERRUPTED


def _measure(given: argparse.Namespace, command: str) -> int:
    check(given)
    from bench.perf.peers import read_peers
    from bench.perf.report import new_record, print_record, problems

    peers = read_peers(given.compare)
    record = new_record(command, given.device, given.threads)
    for name in given.part:
        record["parts"][name] = RUNNERS[name](given)
    if peers:
        from bench.perf.peers import beside_peers

        training = record["parts"]["training"]
        training["peers"] = beside_peers(peers, training, given.threads)
    text = json.dumps(record)
    if given.out:
        _write(given.out, text + "\n")
    if given.json:
        sys.stdout.write(text + "\n")
    else:
        print_record(record, console())
    return EXIT_FAILED if problems(record) else EXIT_OK


def check(given: argparse.Namespace) -> None:
    """Resolve lists and `auto`, and refuse what cannot be measured, before minutes are spent.

    Raises:
        UsageError: an unknown name, or a value out of range.
    """
    for option in ("part", "model", "augmentation", "algo"):
        setattr(given, option, list(dict.fromkeys(split_list(getattr(given, option)))))
    _check_names("--part", given.part, (*PARTS, *ON_REQUEST))
    _check_names("--augmentation", given.augmentation, AUGMENTATIONS)
    if not given.model:
        raise UsageError(f"--model takes {', '.join(MODELS)}, got nothing")
    for model in given.model:
        check_model(model, info("cifar10").input_shape)
    given.algo = _algorithms(given.algo)
    given.device = resolve_device(given.device, None, remote=False)[0]
    given.cohort = given.clients if given.cohort is None else given.cohort
    least = {
        "threads": 1,
        "repetitions": 1,
        "rounds": 1,
        "clients": 1,
        "cohort": 1,
        "samples": 1,
        "trials": 2,
        "steps": 2,
        "runs": 10,
    }
    for option, lowest in least.items():
        if getattr(given, option) < lowest:
            raise UsageError(f"--{option} must be >= {lowest}, got {getattr(given, option)}")
    _check_relations(given)


def _check_relations(given: argparse.Namespace) -> None:
    if given.cohort > given.clients:
        raise UsageError(f"--cohort must be <= --clients, got {given.cohort} and {given.clients}")
    if given.threads > cpu_count():
        raise UsageError(f"--threads must be <= the {cpu_count()} cores here, got {given.threads}")
    if given.compare and "training" not in given.part:
        raise UsageError(f"--compare needs the part training, got --part {' '.join(given.part)}")
    if given.out and not given.out.absolute().parent.is_dir():
        raise UsageError(f"--out {given.out}: there is no folder {given.out.parent}; make it first")


def _check_names(option: str, names: Sequence[str], known: Sequence[str]) -> None:
    unknown = [name for name in names if name not in known]
    if unknown or not names:
        raise UsageError(f"{option} takes {', '.join(known)}, got {', '.join(unknown) or 'nothing'}")


def _algorithms(names: Sequence[str]) -> list[str]:
    """Registry names; `all` and `none` stand alone.

    Raises:
        UsageError: an unknown name, or nothing.
    """
    if names in (["all"], ["none"]):
        return [name for name in ALGORITHMS if name != "fedavg"] if names == ["all"] else []
    if not names or {"all", "none"} & set(names):
        raise UsageError(f"--algo takes names, or all or none, which stand alone; got {', '.join(names) or 'nothing'}")
    try:
        return [entry(name).name for name in names]
    except KeyError as error:
        raise UsageError(str(error.args[0])) from None


def _run_startup(given: argparse.Namespace) -> dict[str, Any]:
    from bench.perf.startup import measure_startup

    return measure_startup(data_dir(given.data_dir), given.repetitions, _say)


def _run_data(given: argparse.Namespace) -> dict[str, Any]:
    from bench.perf.data import measure_data

    return measure_data(data_dir(given.data_dir), given.repetitions, _say)


def _run_training(given: argparse.Namespace) -> dict[str, Any]:
    import torch

    from bench.perf.training import measure_training
    from bench.perf.workload import Workload

    torch.set_num_threads(given.threads)
    fields = ("clients", "cohort", "samples", "device", "backend", "precision")
    work = Workload(given.model[0], **{name: getattr(given, name) for name in fields})
    return measure_training(work, given.model, given.augmentation, given.algo, given.rounds, _say)


def _run_tune(given: argparse.Namespace) -> dict[str, Any]:
    from bench.perf.tune import measure_tune

    return measure_tune(given.trials, given.steps, given.threads, _say)


def _run_boards(given: argparse.Namespace) -> dict[str, Any]:
    from bench.perf.boards import measure_boards

    return measure_boards(given.runs, given.repetitions, _say)


RUNNERS: dict[str, Callable[[argparse.Namespace], dict[str, Any]]] = {
    "startup": _run_startup,
    "data": _run_data,
    "training": _run_training,
    "tune": _run_tune,
    "boards": _run_boards,
}


def _say(text: str) -> None:
    sys.stderr.write(text + "\n")
    sys.stderr.flush()


def _write(file: Path, text: str) -> None:
    try:
        file.write_text(text, encoding="utf-8")
    except OSError as error:
        raise EnvironmentProblem(f"--out {file} cannot be written: {error.strerror or error}") from None

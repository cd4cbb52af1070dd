"""The options of `bench.perf`, and what is refused before anything is measured. Imports neither torch nor ray."""

from __future__ import annotations

import argparse
import os
from collections.abc import Sequence
from pathlib import Path

from algorithms import ALGORITHMS, entry
from bench.data import info
from bench.errors import UsageError
from bench.execution import BACKENDS, cpu_count, resolve_device
from bench.models import MODELS, check_model
from bench.terminal import words
from bench.terminal.console import Parser
from bench.terminal.values import split_list
from search_spaces.setting import AUGMENTATIONS, PRECISIONS

PARTS = ("startup", "data", "training", "throughput", "cores", "tune")
ON_REQUEST = ("settings", "scale", "profile", "boards")  # parts that are measured only if asked for
USUAL = ("fedprox", "fedgkd", "fedlsd", "fedcad")
ROUNDS, SAMPLES = 7, 640  # unless given
TABLES = "tables"  # as a model: all that the papers' tables train
SETTINGS = ("fedgkd", "fedcad", "pfl")  # of `bench.perf.settings`
DESCRIPTION = """\
Measure this suite: the start-up of its commands, preparing data and sharing them out, local training beside a bare
PyTorch loop and beside what the machine could do, what Ray Tune adds and, on request, known settings against the
clock, all printed tables on paper, a profile, and large result folders. A table on stdout, progress on stderr; targets
are shown beside the figures and never decide the exit status."""
EPILOG = """\
examples:
  python -m bench.perf                                            everything usual, a quarter of an hour
  python -m bench.perf --part startup data                        what comes before training, about a minute
  python -m bench.perf --part training --model cnn_cifar --algo none --cohort 2
  python -m bench.perf --part training --algo all --model cnn_cifar   every algorithm, about ten minutes
  python -m bench.perf --part training throughput --json perf.json --compare peers.jsonl
  python -m bench.perf --part throughput --device cuda --precision tf32 bf16 --pack 1 8 64 --model tables --json h.json
  python -m bench.perf --part scale --from h.json --precision bf16    1, 8 and 64 such GPUs, on paper
  python -m bench.perf --part settings --device cuda --precision bf16 --pack 3
  python -m bench.perf --profile --model resnet8                  the operators of a round
  python -m bench.perf --boards                                   100,000 runs' leaderboard and a page, minutes

Lists take spaces or commas.
exit status: 0 measured; 1 something failed; 2 usage or value; 3 environment; 130 interrupted"""


def make_parser() -> Parser:
    """All options."""
    parser = Parser(
        prog="python -m bench.perf",
        description=DESCRIPTION,
        epilog=EPILOG,
    )
    add = parser.add_argument
    known = f"of {', '.join(PARTS)} (all of these), {', '.join(ON_REQUEST)}"
    add("--part", nargs="+", default=list(PARTS), metavar="NAME", help=known)
    add("--boards", dest="part", action="store_const", const=["boards"], help="short for --part boards")
    add("--profile", dest="part", action="store_const", const=["profile"], help="short for --part profile")
    add("--json", nargs="?", const="-", metavar="FILE", help="the record in a file, or on stdout instead of tables")
    add("--out", type=Path, metavar="FILE", help="write the record to a file, too")
    add("--compare", nargs="+", default=[], metavar="FILE", help="JSON lines of peers: peer, model, samples_per_s")
    add("--threads", type=int, default=1, metavar="N", help="of training and of each trial (1)")
    add("-v", "--verbose", action="store_true", help="tracebacks of failures")
    early = parser.add_argument_group("startup, data, boards")
    early.add_argument("--repetitions", type=int, default=7, metavar="N", help="of every command or piece of work (7)")
    early.add_argument("--data-dir", metavar="DIR", help=words.DATA_DIR)
    early.add_argument("--runs", type=int, default=100_000, metavar="N", help="in the result folder (100,000)")
    _training(parser.add_argument_group("training, throughput, cores, profile"))
    tune = parser.add_argument_group("tune")
    tune.add_argument("--trials", type=int, default=12, metavar="N", help="small trials (12)")
    tune.add_argument("--steps", type=int, default=200, metavar="N", help="reports of one long trial (200)")
    late = parser.add_argument_group("settings, scale")
    late.add_argument("--setting", nargs="+", default=list(SETTINGS), metavar="NAME", help=f"of {', '.join(SETTINGS)}")
    known = "scale: records of throughput and, for the algorithms' own times, training"
    late.add_argument("--from", dest="sources", nargs="+", default=[], metavar="RECORD", help=known)
    return parser


def _training(group: argparse._ArgumentGroup) -> None:
    add = group.add_argument
    models = f"models (cnn_cifar resnet8); {TABLES} are all of the papers' tables, for throughput"
    add("--model", nargs="+", default=["cnn_cifar", "resnet8"], metavar="NAME", help=models)
    changes = "of the engine (none flip_crop); throughput takes the first, its phases the last"
    add("--augmentation", nargs="+", default=["none", "flip_crop"], metavar="NAME", help=changes)
    beside = f"algorithms beside FedAvg, all, or none ({' '.join(USUAL)}); settings have their own"
    add("--algo", nargs="+", metavar="NAME", help=beside)
    add("--rounds", type=int, metavar="N", help=f"timed rounds ({ROUNDS}; of settings all: fewer give an estimate)")
    add("--clients", type=int, default=10, metavar="K", help="number of clients (10)")
    add("--cohort", type=int, metavar="N", help="clients that train in a round; few make it short (all)")
    add("--samples", type=int, metavar="N", help=f"of each client ({SAMPLES}; of settings their own)")
    add("--device", choices=("auto", "cpu", "cuda"), default="auto", help="where to train (auto)")
    several = "throughput and settings take several, other parts the first"
    add("--backend", nargs="+", default=["auto"], metavar="NAME", help=f"of {', '.join(BACKENDS)} (auto); {several}")
    known = ", ".join(PRECISIONS)
    add("--precision", nargs="+", default=["fp32"], metavar="NAME", help=f"of {known} (fp32); {several}")
    add(
        "--cudnn-benchmark",
        action="store_true",
        help="let cuDNN time its kernels; sweeps do not, for a run that goes on shall take those it began with",
    )
    add("--pack", nargs="+", default=["1"], metavar="N", help="runs side by side in one program (1); several likewise")


def check(given: argparse.Namespace) -> None:
    """Resolve lists and `auto`, and refuse what cannot be measured, before minutes are spent.

    Raises:
        UsageError: an unknown name, or a value out of range.
    """
    for option in ("part", "model", "augmentation", "backend", "precision", "pack", "setting"):
        setattr(given, option, list(dict.fromkeys(split_list(getattr(given, option)))))
    _check_names("--part", given.part, (*PARTS, *ON_REQUEST))
    _check_names("--augmentation", given.augmentation, AUGMENTATIONS)
    _check_names("--backend", given.backend, BACKENDS)
    _check_names("--precision", given.precision, PRECISIONS)
    _check_names("--setting", given.setting, SETTINGS)
    _check_models(given)
    given.pack = _numbers("--pack", given.pack)
    given.own_algo = given.algo is not None
    given.algo = _algorithms(list(dict.fromkeys(split_list(given.algo))) if given.own_algo else list(USUAL))
    given.device = resolve_device(given.device, None, remote=False)[0]
    given.cohort = given.clients if given.cohort is None else given.cohort
    least = {"trials": 2, "steps": 2, "runs": 10}
    least |= dict.fromkeys(("threads", "repetitions", "rounds", "clients", "cohort", "samples"), 1)
    for option, lowest in least.items():
        value = getattr(given, option)
        if value is not None and value < lowest:
            raise UsageError(f"--{option} must be >= {lowest}, got {value}")
    _check_relations(given)


def _check_models(given: argparse.Namespace) -> None:
    if not given.model:
        raise UsageError(f"--model takes {', '.join(MODELS)}, got nothing")
    if TABLES in given.model:
        other = [name for name in given.part if name in ("training", "cores", "profile")]
        if other or given.model != [TABLES]:
            got = f"--model {' '.join(given.model)} --part {' '.join(given.part)}"
            raise UsageError(f"--model {TABLES} stands alone, and goes with --part throughput and scale; got {got}")
        return
    for model in given.model:
        check_model(model, info("cifar10").input_shape)


def _check_relations(given: argparse.Namespace) -> None:
    if given.cohort > given.clients:
        raise UsageError(f"--cohort must be <= --clients, got {given.cohort} and {given.clients}")
    if given.threads > cpu_count():
        raise UsageError(f"--threads must be <= {cpu_count()}, the cores here, got {given.threads}")
    if given.compare and not {"training", "throughput"} & set(given.part):
        raise UsageError(f"--compare needs the part training or throughput, got --part {' '.join(given.part)}")
    if "scale" in given.part and not given.sources and "throughput" not in given.part:
        raise UsageError("--part scale needs rates: --from RECORD, or the part throughput beside it")
    if "settings" in given.part and given.device == "cpu" and given.rounds is None:
        raise UsageError("--part settings takes hours on a CPU: --rounds 1 gives an estimate")
    for option, file in (("--out", given.out), ("--json", given.json and given.json != "-" and Path(given.json))):
        if file:
            _check_file(option, file)


def _check_file(option: str, file: Path) -> None:
    """Raise UsageError, before anything is measured, unless a record can be written there."""
    if not file.absolute().parent.is_dir():
        raise UsageError(f"{option} {file}: there is no folder {file.parent}; make it first")
    if file.is_dir():
        raise UsageError(f"{option} {file} is a folder: name a file in it")
    if not file.exists() and not os.access(file.absolute().parent, os.W_OK | os.X_OK):
        raise UsageError(f"{option} {file}: nothing can be written into {file.parent}; name another folder")


def _check_names(option: str, names: Sequence[str], known: Sequence[str]) -> None:
    unknown = [name for name in names if name not in known]
    if unknown or not names:
        raise UsageError(f"{option} takes {', '.join(known)}, got {', '.join(unknown) or 'nothing'}")


def _numbers(option: str, texts: Sequence[str]) -> list[int]:
    if not texts or not all(text.isdecimal() and int(text) for text in texts):
        raise UsageError(f"{option} takes whole numbers >= 1, got {' '.join(texts) or 'nothing'}")
    return [int(text) for text in texts]


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

"""The command line of `bench.sweep`, and how it becomes a `Request`. Imports neither torch nor ray."""

from __future__ import annotations

import argparse
import tomllib
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from bench.errors import UsageError
from bench.plan import EMBEDDED_DATASET, Request

# Options that are settings under a shorter name.
SETTING_OPTIONS = {
    "model": "model",
    "alpha": "alpha",
    "participation": "participation",
    "clients": "num_clients",
    "rounds": "rounds",
    "local_epochs": "local_epochs",
    "batch_size": "batch_size",
    "lr": "lr",
    "precision": "precision",
}
DESCRIPTION = """\
Run federated algorithms over hyper-parameters, data heterogeneity and participation, as Ray Tune trials.
Finished runs are never computed twice: the same command again does what is missing or failed."""
EPILOG = """\
examples:
  python -m bench.sweep --algo fedcad --dataset cifar10           the paper's setting and grid
  python -m bench.sweep --algo fedavg,fedcad --dataset digits --alpha 0.1 0.5 --participation 0.5 1.0 --seeds 3
  python -m bench.sweep --algo fedcad --dataset cifar10 --set beta=0,0.3 gamma=0.5 --dry-run
  python -m bench.sweep reproduce RUN_KEY                         the run of a row, again

Lists take spaces or commas. Several values make a grid.
exit status: 0 all finished; 1 a trial failed; 2 usage or value; 3 data, disk or cluster; 130 interrupted, resumable"""


def make_parser() -> argparse.ArgumentParser:
    """All options; those left out are absent from the result, so that a configuration file can fill them."""
    parser = argparse.ArgumentParser(
        prog="python -m bench.sweep",
        description=DESCRIPTION,
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        argument_default=argparse.SUPPRESS,
        allow_abbrev=False,
    )
    _what(parser.add_argument_group("what to run"))
    _search(parser.add_argument_group("search"))
    _execution(parser.add_argument_group("execution"))
    _output(parser.add_argument_group("information and output"))
    return parser


def _what(group: argparse._ArgumentGroup) -> None:
    group.add_argument("--algo", nargs="+", metavar="NAME", help="one algorithm, several, or all")
    group.add_argument("--dataset", metavar="NAME", help=f"data set (default {EMBEDDED_DATASET}, which is embedded)")
    group.add_argument("--paper", metavar="NAME", help="whose setting and grids (default: the algorithm's own paper)")
    group.add_argument("--model", nargs="+", metavar="NAME", help="model; +head and +bn are its forms")
    group.add_argument("--alpha", nargs="+", metavar="A", help="Dirichlet concentration; small is non-IID")
    group.add_argument("--participation", nargs="+", metavar="C", help="share of the clients in a round, in (0, 1]")
    group.add_argument("--clients", nargs="+", metavar="K", help="number of clients")
    group.add_argument("--rounds", nargs="+", metavar="T", help="communication rounds")
    group.add_argument("--local-epochs", nargs="+", metavar="E", help="passes over a client's data in a round")
    group.add_argument("--batch-size", nargs="+", metavar="B", help="examples in a local step")
    group.add_argument("--lr", nargs="+", metavar="LR", help="local learning rate")
    group.add_argument("--precision", nargs="+", metavar="P", help="fp32 (strict), tf32, bf16 (autocast) or fp64")
    group.add_argument("--seeds", type=int, metavar="N", help="seeds 0 to N-1 for every configuration (default 1)")
    group.add_argument(
        "--set",
        nargs="+",
        metavar="NAME=V[,V...]",
        help="any setting field, or a hyper-parameter of any chosen algorithm (fedcad.gamma=0.5 names one)",
    )
    group.add_argument("--config", metavar="FILE", help="TOML file of these options; the command line goes over it")


def _search(group: argparse._ArgumentGroup) -> None:
    group.add_argument("--search", choices=("grid", "random", "optuna"), help="how configurations are chosen (grid)")
    group.add_argument("--num-samples", type=int, metavar="N", help="configurations per algorithm, not for grid (10)")
    group.add_argument("--scheduler", choices=("none", "asha"), help="stop weak configurations early (none)")


def _execution(group: argparse._ArgumentGroup) -> None:
    group.add_argument("--executor", choices=("ray", "inline"), help="Ray Tune, or one after another here (ray)")
    group.add_argument("--max-concurrent", type=int, metavar="N", help="trials at once (default: as many as fit)")
    group.add_argument("--cpus-per-trial", type=int, metavar="N", help="cores, and threads, of a trial (1)")
    group.add_argument("--gpus-per-trial", type=float, metavar="F", help="share of a GPU of a trial (0.25 with a GPU)")
    group.add_argument(
        "--address", metavar="HOST", help="an existing Ray cluster, or auto; all its nodes must see --out"
    )
    group.add_argument("--device", choices=("auto", "cpu", "cuda"), help="where to train (auto)")
    group.add_argument(
        "--backend", choices=("auto", "loop", "stacked"), help="clients one by one, or as one stack (auto)"
    )
    group.add_argument("--data-dir", metavar="DIR", help="data sets (default $FEDKD_DATA, else the XDG data folder)")
    group.add_argument("--offline", action="store_true", help="never touch the network")
    group.add_argument("--out", metavar="DIR", help="results (default $FEDKD_OUT, else leaderboards)")
    group.add_argument("--time-budget", type=float, metavar="S", help="seconds after which the sweep stops, resumable")
    group.add_argument("--save-seconds", type=float, metavar="S", help="least time between saves of a run's state (15)")
    group.add_argument("--force", action="store_true", help="run again what is finished")


def _output(group: argparse._ArgumentGroup) -> None:
    group.add_argument("--dry-run", action="store_true", help="what would run, where each value comes from, the cost")
    group.add_argument("--show", action="store_true", help="the search spaces with their sources")
    group.add_argument("--list", action="store_true", help="the algorithms that can be run")
    group.add_argument("--json", action="store_true", help="machine-readable output on stdout")
    group.add_argument("-q", "--quiet", action="store_true", help="no progress")
    group.add_argument("-v", "--verbose", action="store_true", help="tracebacks of errors")


DEFAULTS: dict[str, Any] = {
    "dataset": EMBEDDED_DATASET,
    "paper": None,
    "seeds": 1,
    "search": "grid",
    "num_samples": 10,
    "scheduler": "none",
    "executor": "ray",
    "max_concurrent": None,
    "cpus_per_trial": 1,
    "gpus_per_trial": None,
    "address": None,
    "device": "auto",
    "backend": "auto",
    "data_dir": None,
    "offline": False,
    "out": None,
    "time_budget": None,
    "save_seconds": 15.0,
    "force": False,
    "dry_run": False,
    "show": False,
    "list": False,
    "json": False,
    "quiet": False,
    "verbose": False,
}


def parse(argv: Sequence[str]) -> tuple[argparse.Namespace, dict[str, str]]:
    """The options, filled up from `--config` and the defaults, and where each given one came from.

    Raises:
        UsageError: the file cannot be read or names an option that does not exist.
        SystemExit: argparse's own, for `--help` and malformed options.
    """
    given = vars(make_parser().parse_args(argv))
    origins = dict.fromkeys(given, "command line")
    for name, value in _read_config(given.get("config")).items():
        if name == "set":
            # Names merge one by one; the command line's come last and win.
            given["set"] = [*value, *given.get("set", [])]
        elif name not in given:
            given[name], origins[name] = value, str(given["config"])
    return argparse.Namespace(**{**DEFAULTS, **given}), origins


def _read_config(path: str | None) -> dict[str, Any]:
    if path is None:
        return {}
    try:
        content = tomllib.loads(Path(path).read_text())
    except OSError as error:
        raise UsageError(f"--config {path}: {error.strerror}") from None
    except tomllib.TOMLDecodeError as error:
        raise UsageError(f"--config {path} is no TOML file: {error}") from None
    known = {*DEFAULTS, *SETTING_OPTIONS, "algo", "set"}
    options = {name.replace("-", "_"): value for name, value in content.items()}
    unknown = sorted(set(options) - known)
    if unknown:
        raise UsageError(f"--config {path}: no option {unknown[0]!r}; known: {', '.join(sorted(known))}")
    return {name: _from_toml(name, value) for name, value in options.items()}


def _from_toml(name: str, value: Any) -> Any:
    """A file's value as the command line would have given it."""
    if name == "set":
        return [f"{key}={','.join(split_list(_texts(values)))}" for key, values in value.items()]
    return _texts(value) if name in SETTING_OPTIONS or name == "algo" else value


def _texts(value: Any) -> list[str]:
    return [str(item) for item in (value if isinstance(value, list) else [value])]


def split_list(words: Iterable[str]) -> tuple[str, ...]:
    """`0.1 0.5`, `0.1,0.5` and `0.1, 0.5` alike."""
    return tuple(part.strip() for word in words for part in word.split(",") if part.strip())


def make_request(options: argparse.Namespace, origins: dict[str, str]) -> Request:
    """What the options ask to run.

    Raises:
        UsageError: no algorithm, or a malformed `--set`.
    """
    if not getattr(options, "algo", None):
        raise UsageError("--algo is missing: name an algorithm, several, or all; --list shows them")
    values: dict[str, tuple[str, ...]] = {}
    where: dict[str, str] = {}
    for option, name in SETTING_OPTIONS.items():
        if hasattr(options, option):
            values[name], where[name] = split_list(getattr(options, option)), origins[option]
    for name, texts in parse_set(getattr(options, "set", [])).items():
        values[name], where[name] = texts, origins.get("set", str(getattr(options, "config", "")))
    return Request(
        algorithms=split_list(options.algo),
        dataset=options.dataset,
        paper=options.paper,
        values=values,
        origins=where,
        seeds=options.seeds,
        search=options.search,
        num_samples=options.num_samples,
        scheduler=options.scheduler,
    )


def parse_set(words: Iterable[str]) -> dict[str, tuple[str, ...]]:
    """`name=v,v name=v` as a mapping; a later one of the same name wins.

    Raises:
        UsageError: a word without `=`, a name or a value.
    """
    values: dict[str, tuple[str, ...]] = {}
    for word in words:
        name, sign, text = word.partition("=")
        parts = split_list([text])
        if not sign or not name.strip() or not parts:
            raise UsageError(f"--set takes name=value[,value...], got {word!r}")
        values[name.strip()] = parts
    return values

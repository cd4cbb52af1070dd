"""The options of `bench.sweep`, and what they are where they are not given. Imports neither torch nor ray."""

from __future__ import annotations

import argparse
from typing import Any

from bench.execution import AUTO_PACK, BACKENDS, LOGS, TRACKS, UNPACKED_SHARE
from bench.planning.request import EMBEDDED_DATASET
from bench.terminal.console import Parser
from bench.terminal.values import gpu_share, pack_size, seed_count, seed_counts
from bench.terminal.words import DATA_DIR, OUT
from search_spaces import setting_fields

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
    "start_from": "start_from",
}
SWEEP = "python -m bench.sweep"
DESCRIPTION = """\
Run federated algorithms over hyper-parameters, data heterogeneity and participation, as Ray Tune trials.
Finished runs are never computed twice: the same command again does what is missing or failed."""
EPILOG = """\
examples:
  python -m bench.sweep --algo fedcad --dataset cifar10           the paper's setting and grid
  python -m bench.sweep --algo fedavg,fedcad --dataset digits --alpha 0.1 0.5 --participation 0.5 1.0 --seeds 3
  python -m bench.sweep --algo fedcad --dataset cifar10 --set beta=0,0.3 gamma=0.5 --dry-run
  python -m bench.sweep --paper fedgkd --table 3                  every cell of a printed table
  python -m bench.sweep --paper fedgkd --table 3 --dataset cifar10 --alpha 0.1 --algo fedavg,fedgkd --rounds 2
  python -m bench.sweep reproduce RUN_KEY                         the run of a row, again

Lists take spaces or commas. Several values make a grid.
exit status: 0 all finished; 1 a trial failed; 2 usage or value; 3 data, disk or cluster; 130 interrupted, resumable"""


class SweepParser(Parser):
    """Says of a field of the setting how it is given."""

    def nearest(self, option: str) -> str:
        """As `Parser.nearest`."""
        name = option.lstrip("-").replace("-", "_")
        return f"--set {name}=VALUE" if name in setting_fields() else super().nearest(option)


def make_parser(prog: str = SWEEP) -> Parser:
    """All options; those left out are absent from the result, so that a configuration file can fill them."""
    parser = SweepParser(
        prog=prog,
        description=DESCRIPTION,
        epilog=EPILOG,
        argument_default=argparse.SUPPRESS,
    )
    _what(parser.add_argument_group("what to run"))
    _search(parser.add_argument_group("search"))
    _execution(parser.add_argument_group("execution"))
    _output(parser.add_argument_group("information and output"))
    return parser


def _what(group: argparse._ArgumentGroup) -> None:
    _list(group, "--algo", "NAME", "one algorithm, several, or all")
    group.add_argument("--dataset", metavar="NAME", help=f"data set (default {EMBEDDED_DATASET}, which is embedded)")
    group.add_argument(
        "--paper",
        metavar="NAME",
        help="whose setting and grids (default: the first algorithm's whose own has the data set)",
    )
    group.add_argument(
        "--table",
        metavar="T",
        help="with --paper: a table of its results as printed (3, IV); --dataset, --algo, --alpha, --participation "
        "and --clients narrow it; --rounds, --local-epochs and --set fraction=... shorten its runs",
    )
    _list(group, "--model", "NAME", "model; +head and +bn are its forms")
    _list(group, "--alpha", "A", "Dirichlet concentration; small is non-IID")
    _list(group, "--participation", "C", "share of the clients in a round, in (0, 1]")
    _list(group, "--clients", "K", "number of clients")
    _list(group, "--rounds", "T", "communication rounds")
    _list(group, "--local-epochs", "E", "passes over a client's data in a round")
    _list(group, "--batch-size", "B", "examples in a local step")
    _list(group, "--lr", "LR", "local learning rate")
    _list(group, "--precision", "P", "fp32 (strict), tf32, bf16 (autocast) or fp64")
    _list(group, "--start-from", "RUN_KEY", "begin with the final model of a run in OUT that has --track models")
    group.add_argument(
        "--seeds", type=seed_count, metavar="N", help="seeds 0 to N-1 (default 1; of a table as many as printed)"
    )
    _list(
        group,
        "--set",
        "NAME=V[,V...]",
        "any setting field, or a hyper-parameter of any chosen algorithm (fedcad.gamma=0.5 names one)",
    )
    group.add_argument("--config", metavar="FILE", help="TOML file of these options; the command line goes over it")


def _list(group: argparse._ArgumentGroup, option: str, metavar: str, text: str) -> None:
    """An option of several values; given twice, it takes both."""
    group.add_argument(option, nargs="+", action="extend", metavar=metavar, help=text)


def _search(group: argparse._ArgumentGroup) -> None:
    group.add_argument("--search", choices=("grid", "random", "optuna"), help="how configurations are chosen (grid)")
    group.add_argument("--num-samples", type=int, metavar="N", help="configurations per algorithm, not for grid (10)")
    group.add_argument(
        "--budget",
        type=int,
        metavar="N",
        help="N configurations for every algorithm, lr within a factor of 10 among what is tuned",
    )
    group.add_argument("--scheduler", choices=("none", "asha"), help="stop weak configurations early (none)")
    group.add_argument(
        "--confirm",
        type=seed_counts,
        metavar="N[,N...]",
        help="search on seed 0 alone, then run what validation chose on seeds 1 to N, which alone are reported; "
        "several numbers are for the cells of --confirm-at, in their order",
    )
    _list(group, "--confirm-at", "FIELD=V[,V...]", "with --confirm: run it where these fields of the setting are so")


def _execution(group: argparse._ArgumentGroup) -> None:
    group.add_argument("--executor", choices=("ray", "inline"), help="Ray Tune, or one after another here (ray)")
    group.add_argument("--max-concurrent", type=int, metavar="N", help="trials at once (default: as many as fit)")
    group.add_argument("--cpus-per-trial", type=int, metavar="N", help="cores, and threads, of a trial (1)")
    group.add_argument(
        "--pack",
        type=pack_size,
        metavar="N",
        help="runs of a trial, trained as one program: configurations of a seed first, then further seeds; auto: "
        f"{AUTO_PACK} on a GPU, 1 on a CPU (auto)",
    )
    group.add_argument(
        "--gpus-per-trial",
        type=gpu_share,
        metavar="F",
        help="share of a GPU of a trial; auto: what the peak memory of stored runs leaves room for (1 for packs, "
        f"else {UNPACKED_SHARE})",
    )
    group.add_argument(
        "--address", metavar="HOST", help="an existing Ray cluster, or auto; all its nodes must see --out"
    )
    group.add_argument("--device", choices=("auto", "cpu", "cuda"), help="where to train (auto)")
    group.add_argument("--backend", choices=BACKENDS, help="clients one by one, or as one stack (auto)")
    group.add_argument("--data-dir", metavar="DIR", help=DATA_DIR)
    group.add_argument("--offline", action="store_true", help="never touch the network")
    group.add_argument("--out", metavar="DIR", help=OUT)
    group.add_argument(
        "--mirror",
        metavar="URL",
        help="keep a copy of OUT there, and go on from what it has: s3://, gs://, hdfs://, file:/// or a path "
        "(default $FEDKD_MIRROR, else none)",
    )
    group.add_argument("--time-budget", type=float, metavar="S", help="seconds after which the sweep stops, resumable")
    group.add_argument("--save-seconds", type=float, metavar="S", help="least time between saves of a run's state (15)")
    group.add_argument("--force", action="store_true", help="run again what is finished")
    kinds = "; ".join(f"{name}: {meaning}" for name, meaning in TRACKS.items())
    _list(group, "--track", "WHAT", f"keep more of each run, in OUT/tracked and its curve. {kinds}")
    tools = "; ".join(f"{name}: {meaning}" for name, meaning in LOGS.items())
    _list(group, "--log", "TOOL", f"show curves elsewhere, as they grow. {tools}")


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
    "table": None,
    "seeds": 1,
    "search": "grid",
    "num_samples": 10,
    "budget": 0,
    "scheduler": "none",
    "confirm": (),
    "confirm_at": [],
    "executor": "ray",
    "max_concurrent": None,
    "cpus_per_trial": 1,
    "pack": "auto",
    "gpus_per_trial": None,
    "address": None,
    "device": "auto",
    "backend": "auto",
    "data_dir": None,
    "offline": False,
    "out": None,
    "mirror": None,
    "time_budget": None,
    "save_seconds": 15.0,
    "force": False,
    "track": [],
    "log": [],
    "dry_run": False,
    "show": False,
    "list": False,
    "json": False,
    "quiet": False,
    "verbose": False,
}

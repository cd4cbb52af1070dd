"""The command line of `bench.sweep`, and how it becomes a `Request`. Imports neither torch nor ray."""

from __future__ import annotations

import argparse
import tomllib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench.console import Parser
from bench.errors import UsageError
from bench.execution import AUTO_PACK, BACKENDS, TRACKS, UNPACKED_SHARE
from bench.names import unknown
from bench.request import EMBEDDED_DATASET, Request
from bench.tuning.logs import LOGS
from bench.values import gpu_share, pack_size, split_list
from bench.words import DATA_DIR, OUT
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
    group.add_argument("--paper", metavar="NAME", help="whose setting and grids (default: the algorithm's own paper)")
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
    group.add_argument(
        "--seeds", type=int, metavar="N", help="seeds 0 to N-1 (default 1; of a table as many as printed)"
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


@dataclass(frozen=True)
class Layer:
    """Options from one place, those of later layers going over them. `origin` names the place."""

    origin: str
    options: Mapping[str, Any]


def parse(argv: Sequence[str], prog: str = SWEEP) -> tuple[argparse.Namespace, list[Layer]]:
    """The options, filled up from `--config` and the defaults, and the layers they came in.

    Args:
        argv: the words of the command line.
        prog: the command that is named in errors.

    Raises:
        UsageError: the file cannot be read or names an option that does not exist.
        SystemExit: argparse's own, for `--help` and malformed options, in the file as well.
    """
    parser = make_parser(prog)
    given = vars(parser.parse_args(argv))
    layers = [Layer("command line", given)]
    if "config" in given:
        # The file goes through the same parser, so that types and choices are those of the command line.
        layers.insert(0, Layer(given["config"], vars(parser.parse_args(_file_arguments(given["config"])))))
    merged = {name: value for layer in layers for name, value in layer.options.items()}
    return argparse.Namespace(**{**DEFAULTS, **merged}), layers


def _file_arguments(path: str) -> list[str]:
    """A TOML file's options as the words of a command line."""
    try:
        content = tomllib.loads(Path(path).read_text())
    except OSError as error:
        raise UsageError(f"--config {path}: {error.strerror}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise UsageError(f"--config {path} is no TOML file: {error}") from None
    known = {*DEFAULTS, *SETTING_OPTIONS, "algo", "set"}
    words: list[str] = []
    for key, value in content.items():
        name = key.replace("-", "_")
        if name not in known:
            raise unknown(f"option for --config {path}", key, known)
        if (name == "set") != isinstance(value, dict):
            raise UsageError(
                f"--config {path}: values for --set stand under [set], and only there; got {key} = {value!r}"
            )
        words += _words("--" + name.replace("_", "-"), value)
    return words


def _words(option: str, value: Any) -> list[str]:
    if isinstance(value, bool):
        return [option] if value else []
    if isinstance(value, dict):
        return [option, *(f"{name}={','.join(_texts(texts))}" for name, texts in _flat(value))] if value else []
    return [option, *_texts(value)]


def _flat(table: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """`fedcad.gamma = 0.5` is a table within a table to TOML: its names joined by dots again."""
    for name, value in table.items():
        if isinstance(value, dict):
            yield from _flat(value, f"{prefix}{name}.")
        else:
            yield prefix + name, value


def _texts(value: Any) -> list[str]:
    return [str(item) for item in (value if isinstance(value, list) else [value])]


def make_request(options: argparse.Namespace, layers: Sequence[Layer]) -> Request:
    """What the options ask to run.

    Raises:
        UsageError: no algorithm, no configuration, a malformed `--set`, or one value given in two ways.
    """
    if options.budget < 1 and any("budget" in layer.options for layer in layers):
        raise UsageError(f"--budget must be >= 1, got {options.budget}; without it the paper's own grid is run")
    _check_samples(options, layers)
    if not split_list(getattr(options, "algo", ())) and not options.table:
        raise UsageError("--algo is missing: name an algorithm, several, or all; --list shows them")
    values: dict[str, tuple[str, ...]] = {}
    origins: dict[str, str] = {}
    for layer in layers:
        given = _values_of(layer)
        # A plain name goes over what an earlier layer said of one algorithm's.
        hidden = [name for name in values if name.rpartition(".")[2] in given and name not in given]
        for name in hidden:
            del values[name]
        values |= given
        origins |= dict.fromkeys(given, layer.origin)
    return Request(
        algorithms=split_list(getattr(options, "algo", [])),
        dataset=_dataset(options, layers),
        paper=options.paper,
        values=values,
        origins=origins,
        seeds=_seeds(options, layers),
        search=options.search,
        num_samples=options.num_samples,
        budget=options.budget,
        scheduler=options.scheduler,
        force=options.force,
        table=options.table,
    )


def _check_samples(options: argparse.Namespace, layers: Sequence[Layer]) -> None:
    """A grid is run whole: a number of configurations asks for a search, unless a later layer put the grid over it."""
    named = [layer.options for layer in layers if {"search", "num_samples"} & layer.options.keys()]
    if options.search == "grid" and named and "num_samples" in named[-1]:
        other = "" if options.budget or options.table else "add one of them, or "
        raise UsageError(
            f"--num-samples {options.num_samples} is for --search random or --search optuna: {other}leave it out"
        )


def _dataset(options: argparse.Namespace, layers: Sequence[Layer]) -> str:
    """The data set; of a table all, unless some are named."""
    named = not options.table or any("dataset" in layer.options for layer in layers)
    return str(options.dataset) if named else ""


def _seeds(options: argparse.Namespace, layers: Sequence[Layer]) -> int:
    """How many seeds; of a table as many as there were runs, unless a number is given."""
    if not options.table or not options.paper or any("seeds" in layer.options for layer in layers):
        return int(options.seeds)
    from bench.tables import printed_runs, table_of

    return printed_runs(options.paper, table_of(options.paper, options.table)[1].name)


def _values_of(layer: Layer) -> dict[str, tuple[str, ...]]:
    """One layer's settings and hyper-parameters, by name."""
    options = {name: option for option, name in SETTING_OPTIONS.items() if option in layer.options}
    values = {name: split_list(layer.options[option]) for name, option in options.items()}
    extra = parse_set(layer.options.get("set", []))
    twice = sorted(set(values) & set(extra))
    if twice:
        option = "--" + options[twice[0]].replace("_", "-")
        raise UsageError(f"{option} and --set {twice[0]}= are the same thing, and both are given: leave one out")
    return values | extra


def parse_set(words: Iterable[str]) -> dict[str, tuple[str, ...]]:
    """`name=v,v name=v` as a mapping; values of a name that comes twice are put together.

    Raises:
        UsageError: a word without `=`, a name or a value.
    """
    values: dict[str, tuple[str, ...]] = {}
    for word in words:
        name, sign, text = word.partition("=")
        parts = split_list([text])
        if not sign or not name.strip() or not parts:
            raise UsageError(f"--set takes name=value[,value...], got {word!r}")
        values[name.strip()] = tuple(dict.fromkeys((*values.get(name.strip(), ()), *parts)))
    return values

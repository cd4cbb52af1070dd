"""The options of `bench.sweep`: each declared once, read from the command line and a file. Neither torch nor ray."""

from __future__ import annotations

import argparse
import tomllib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from functools import partial
from pathlib import Path
from typing import Any

from bench.errors import UsageError
from bench.execution import AUTO_PACK, BACKENDS, LOGS, TRACKS, UNPACKED_SHARE
from bench.planning.request import EMBEDDED_DATASET
from bench.terminal.console import Parser
from bench.terminal.words import DATA_DIR, OUT, logs_of, pack_size, split_list, tracks_of, unknown
from search_spaces import setting_fields
from search_spaces.bounds import Bounds

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

COMMAND_LINE = "command line"
RUN, SEARCH, EXECUTION, OUTPUT = "what to run", "search", "execution", "information and output"  # groups of `--help`
COUNT = Bounds(1, 100_000)  # more runs, trials or cores than that are a mistake
AMOUNT = Bounds(0)  # of seconds, or of GPUs

Texts = tuple[str, ...]


def parse_set(words: Iterable[str], option: str = "--set") -> dict[str, Texts]:
    """Read `name=v,v name=v` as a mapping; values of a name that comes twice are put together. Raises UsageError."""
    values: dict[str, Texts] = {}
    for word in words:
        name, sign, text = word.partition("=")
        parts = split_list([text])
        if not sign or not name.strip() or not parts:
            raise UsageError(f"{option} takes name=value[,value...], got {word!r}")
        values[name.strip()] = tuple(dict.fromkeys((*values.get(name.strip(), ()), *parts)))
    return values


def _option(
    group: str,
    text: str,
    metavar: str | None = None,
    default: Any = None,
    *,
    parse: Callable[[str], Any] | None = None,
    bounds: Bounds | None = None,
    choices: Sequence[str] | None = None,
    short: str | None = None,
    empty: bool = False,
) -> Any:
    """Declare an option of one value, or a switch.

    `parse` reads the text if the field's type does not say how; `bounds` are of numbers; `short` is a flag of one
    letter beside the name; `empty` says that the empty text is a value. Help shows the default after `text`.
    """
    facts = {"group": group, "help": text, "metavar": metavar, "parse": parse, "bounds": bounds or Bounds()}
    return field(default=default, metadata={**facts, "choices": choices, "short": short, "empty": empty})


def _several(
    group: str,
    text: str,
    metavar: str,
    *,
    setting: str | None = None,
    read: Callable[[list[str]], Any] = split_list,
) -> Any:
    """Declare an option of several values; given twice, it takes both.

    `setting` is the field of `Setting` that the option gives, whose values stay text; `read` takes the words.
    """
    facts = {"group": group, "help": text, "metavar": metavar, "setting": setting, "read": read}
    return field(default_factory=lambda: read([]), metadata=facts)


def _listed(meanings: Mapping[str, str]) -> str:
    return "; ".join(f"{name}: {meaning}" for name, meaning in meanings.items())


@dataclass(frozen=True)
class SweepOptions:
    """A sweep as it is asked for. A field that is declared by `_option` or `_several` is an option of that name.

    Args:
        given: option -> where it was given, `command line` or the file of `--config`.
        values: setting fields and hyper-parameters that were given by any option, as text.
        origins: where each of `values` was given.
    """

    algo: tuple[str, ...] = _several(RUN, "one algorithm, several, or all", "NAME")
    dataset: str = _option(RUN, "data set", "NAME", EMBEDDED_DATASET)
    paper: str | None = _option(
        RUN, "whose setting and grids (default: the first algorithm's whose own has the data set)", "NAME"
    )
    table: str | None = _option(
        RUN,
        "with --paper: a table of its results as printed (3, IV); --dataset, --algo, --alpha, --participation and "
        "--clients narrow it; --rounds, --local-epochs and --set fraction=... shorten its runs",
        "T",
    )
    model: tuple[str, ...] = _several(RUN, "model; +head and +bn are its forms", "NAME", setting="model")
    alpha: tuple[str, ...] = _several(RUN, "Dirichlet concentration; small is non-IID", "A", setting="alpha")
    participation: tuple[str, ...] = _several(
        RUN, "share of the clients in a round, in (0, 1]", "C", setting="participation"
    )
    clients: tuple[str, ...] = _several(RUN, "number of clients", "K", setting="num_clients")
    rounds: tuple[str, ...] = _several(RUN, "communication rounds", "T", setting="rounds")
    local_epochs: tuple[str, ...] = _several(RUN, "passes over a client's data in a round", "E", setting="local_epochs")
    batch_size: tuple[str, ...] = _several(RUN, "examples in a local step", "B", setting="batch_size")
    lr: tuple[str, ...] = _several(RUN, "local learning rate", "LR", setting="lr")
    precision: tuple[str, ...] = _several(RUN, "fp32 (strict), tf32, bf16 (autocast) or fp64", "P", setting="precision")
    start_from: tuple[str, ...] = _several(
        RUN, "begin with the final model of a run in OUT that has --track models", "RUN_KEY", setting="start_from"
    )
    seeds: int = _option(RUN, "seeds 0 to N-1; of a table as many as printed", "N", 1, bounds=COUNT)
    set: Mapping[str, Texts] = _several(
        RUN,
        "any setting field, or a hyper-parameter of any chosen algorithm (fedcad.gamma=0.5 names one)",
        "NAME=V[,V...]",
        read=parse_set,
    )
    config: str | None = _option(RUN, "TOML file of these options; the command line goes over it", "FILE")

    search: str = _option(SEARCH, "how configurations are chosen", None, "grid", choices=("grid", "random", "optuna"))
    num_samples: int = _option(SEARCH, "configurations per algorithm, not for grid", "N", 10, bounds=COUNT)
    budget: int | None = _option(
        SEARCH,
        "N configurations for every algorithm, lr within a factor of 10 among what is tuned",
        "N",
        bounds=COUNT,
    )
    scheduler: str = _option(SEARCH, "stop weak configurations early", None, "none", choices=("none", "asha"))
    confirm: int | None = _option(
        SEARCH,
        "search on seed 0 alone, then run what validation chose on seeds 1 to N, which alone are reported",
        "N",
        bounds=COUNT,
    )
    confirm_at: Mapping[str, Texts] = _several(
        SEARCH,
        "with --confirm: run it where these fields of the setting are so",
        "FIELD=V[,V...]",
        read=partial(parse_set, option="--confirm-at"),
    )

    executor: str = _option(EXECUTION, "Ray Tune, or one after another here", None, "ray", choices=("ray", "inline"))
    max_concurrent: int | None = _option(EXECUTION, "trials at once (default: as many as fit)", "N", bounds=COUNT)
    cpus_per_trial: int = _option(EXECUTION, "cores, and threads, of a trial", "N", 1, bounds=COUNT)
    pack: int | str = _option(
        EXECUTION,
        "runs of a trial, trained as one program: configurations of a seed first, then further seeds; auto: "
        f"{AUTO_PACK} on a GPU, 1 on a CPU",
        "N",
        "auto",
        parse=pack_size,
        bounds=COUNT,
    )
    gpus_per_trial: float | None = _option(
        EXECUTION,
        f"share of a GPU of a trial (default: 1 for packs, else {UNPACKED_SHARE})",
        "F",
        bounds=AMOUNT,
    )
    address: str | None = _option(EXECUTION, "an existing Ray cluster, or auto; all its nodes must see --out", "HOST")
    device: str = _option(EXECUTION, "where to train", None, "auto", choices=("auto", "cpu", "cuda"))
    backend: str = _option(EXECUTION, "clients one by one, or as one stack", None, "auto", choices=BACKENDS)
    data_dir: str | None = _option(EXECUTION, DATA_DIR, "DIR")
    offline: bool = _option(EXECUTION, "never touch the network", default=False)
    out: str | None = _option(EXECUTION, OUT, "DIR")
    mirror: str | None = _option(
        EXECUTION,
        "keep a copy of OUT there, and go on from what it has: s3://, gs://, hdfs://, file:/// or a path (default "
        "$FEDKD_MIRROR, else none)",
        "URL",
        empty=True,
    )
    time_budget: float | None = _option(EXECUTION, "seconds after which the sweep stops, resumable", "S", bounds=AMOUNT)
    save_seconds: float = _option(EXECUTION, "least time between saves of a run's state", "S", 15.0, bounds=AMOUNT)
    force: bool = _option(EXECUTION, "run again what is finished", default=False)
    uncertified: bool = _option(
        EXECUTION, "run algorithms from outside without the self-test; their results are marked", default=False
    )
    track: tuple[str, ...] = _several(
        EXECUTION,
        f"keep more of each run, in OUT/tracked and its curve. {_listed(TRACKS)}",
        "WHAT",
        read=tracks_of,
    )
    log: tuple[str, ...] = _several(
        EXECUTION, f"show curves elsewhere, as they grow. {_listed(LOGS)}", "TOOL", read=logs_of
    )

    dry_run: bool = _option(OUTPUT, "what would run, where each value comes from, the cost", default=False)
    show: bool = _option(OUTPUT, "the search spaces with their sources", default=False)
    list: bool = _option(OUTPUT, "the algorithms that can be run", default=False)
    json: bool = _option(OUTPUT, "machine-readable output on stdout", default=False)
    quiet: bool = _option(OUTPUT, "no progress", default=False, short="-q")
    verbose: bool = _option(OUTPUT, "tracebacks of errors", default=False, short="-v")

    given: Mapping[str, str] = field(default_factory=dict)
    values: Mapping[str, Texts] = field(default_factory=dict)
    origins: Mapping[str, str] = field(default_factory=dict)


OPTIONS = {item.name: item for item in fields(SweepOptions) if item.metadata}
_TYPES = {"int": int, "float": float, "str": str}


class SweepParser(Parser):
    """A parser that knows how a field of the setting is given."""

    def nearest(self, option: str) -> str:
        """Return the nearest option, as `Parser.nearest` does."""
        name = option.lstrip("-").replace("-", "_")
        return f"--set {name}=VALUE" if name in setting_fields() else super().nearest(option)


def parse(argv: Sequence[str], prog: str = SWEEP) -> SweepOptions:
    """Read the options of a command line, over those of its `--config`, over the defaults. `prog` is named in errors.

    Raises UsageError for a value that is not allowed or a file that cannot be read; SystemExit is argparse's own.
    """
    layers = {COMMAND_LINE: _read(argv, prog)}
    if file := layers[COMMAND_LINE].get("config"):
        # The file goes through the same parser, so that types and choices are those of the command line.
        layers = {file: _read(_file_arguments(file), prog, f", as {file} has it"), **layers}
    options: dict[str, Any] = {}
    given: dict[str, str] = {}
    values: dict[str, Texts] = {}
    origins: dict[str, str] = {}
    for place, layer in layers.items():
        options |= layer
        given |= dict.fromkeys(layer, place)
        added = _values_of(layer)
        # A plain name goes over an earlier layer's value for one algorithm.
        kept = [name for name in values if name in added or name.rpartition(".")[2] not in added]
        values = {name: values[name] for name in kept} | added
        origins |= dict.fromkeys(added, place)
    return SweepOptions(**options, given=given, values=values, origins=origins)


def make_parser(prog: str = SWEEP) -> Parser:
    """Build the parser of all options; those that are not given are absent from its result."""
    parser = SweepParser(prog=prog, description=DESCRIPTION, epilog=EPILOG, argument_default=argparse.SUPPRESS)
    groups = {name: parser.add_argument_group(name) for name in (RUN, SEARCH, EXECUTION, OUTPUT)}
    for name, item in OPTIONS.items():
        facts = item.metadata
        flags = [facts["short"]] if facts.get("short") else []
        add = partial(groups[facts["group"]].add_argument, *flags, _flag(name))
        if "read" in facts:
            add(nargs="+", action="extend", metavar=facts["metavar"], help=facts["help"])
        elif item.type == "bool":
            add(action="store_true", help=facts["help"])
        else:
            shown = f" ({item.default:g})" if isinstance(item.default, int | float) else f" ({item.default})"
            add(
                type=facts["parse"] or _TYPES[str(item.type).removesuffix(" | None")],
                choices=facts["choices"],
                metavar=facts["metavar"],
                help=facts["help"] + (shown if item.default else ""),
            )
    return parser


def _flag(name: str) -> str:
    return "--" + name.replace("_", "-")


def _read(words: Sequence[str], prog: str, place: str = "") -> dict[str, Any]:
    """Read and check the options among some words. `place`: what errors add, if these are not the command line's."""
    parser = make_parser(prog)
    parser.place = place
    options = vars(parser.parse_args(words))
    for name, value in options.items():
        facts = OPTIONS[name].metadata
        if "read" in facts:
            options[name] = facts["read"](value)
            continue
        if value == "" and not facts["empty"]:
            raise UsageError(f"{_flag(name)} takes a value, and got an empty one{place}")
        if not facts["bounds"].allows(value):
            raise UsageError(f"{_flag(name)} must be {facts['bounds']}, got {value}{place}")
    return options


def _file_arguments(path: str) -> list[str]:
    """Read a TOML file's options as the words of a command line."""
    try:
        content = tomllib.loads(Path(path).read_bytes().decode())
    except OSError as error:
        raise UsageError(f"--config {path}: {error.strerror}") from None
    except RecursionError:
        raise UsageError(f"--config {path}: its brackets are nested too deeply to be read") from None
    except ValueError as error:
        raise UsageError(f"--config {path} is no TOML file: {error}") from None
    words: list[str] = []
    for key, value in content.items():
        name = key.replace("-", "_")
        if name not in OPTIONS or name == "config":
            raise unknown(f"option for --config {path}", key, OPTIONS.keys() - {"config"})
        if (name == "set") != isinstance(value, dict):
            raise UsageError(
                f"--config {path}: values for --set stand under [set], and only there; got {key} = {value!r}"
            )
        switch = OPTIONS[name].type == "bool"
        if switch != isinstance(value, bool):
            shown = str(value).lower() if isinstance(value, bool) else repr(value)
            raise UsageError(f"--config {path}: {key} takes {'true or false' if switch else 'a value'}, got {shown}")
        if switch:
            words += [_flag(name)] * value
        elif name == "set":
            pairs = [f"{full}={','.join(_texts(texts))}" for full, texts in _flat(value)]
            words += [_flag(name), *pairs] if pairs else []
        else:
            words += [_flag(name), *_texts(value)]
    return words


def _flat(table: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """`fedcad.gamma = 0.5` is a table within a table to TOML: join its names by dots again."""
    for name, value in table.items():
        if isinstance(value, dict):
            yield from _flat(value, f"{prefix}{name}.")
        else:
            yield prefix + name, value


def _texts(value: Any) -> list[str]:
    return [str(item) for item in (value if isinstance(value, list) else [value])]


def _values_of(layer: Mapping[str, Any]) -> dict[str, Texts]:
    """Return one layer's setting fields and hyper-parameters, by name."""
    given = {name: item.metadata.get("setting") for name, item in OPTIONS.items() if name in layer}
    options: dict[str, str] = {setting: name for name, setting in given.items() if setting}
    values: dict[str, Texts] = {name: layer[option] for name, option in options.items()}
    extra: dict[str, Texts] = layer.get("set", {})
    for name in values.keys() & extra.keys():
        raise UsageError(
            f"{_flag(options[name])} and --set {name}= are the same thing, and both are given: leave one out"
        )
    return values | extra

"""The options of `bench.sweep`, read from the command line and a TOML file.

Imports neither torch nor ray.
"""

from __future__ import annotations

import argparse
import re
import tomllib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from functools import partial
from pathlib import Path
from typing import Any

from bench.data import is_path
from bench.errors import UsageError
from bench.execution import AUTO_PACK, BACKENDS, LOGS, TRACKS, UNPACKED_SHARE
from bench.planning.request import EMBEDDED_DATASET, TUNINGS
from bench.terminal.console import Parser
from bench.terminal.words import (
    CHOSEN_BY,
    DATA_DIR,
    IMPORT,
    OUT,
    SELECT_ON,
    flag,
    logs_of,
    pack_size,
    seeds_to_confirm,
    split_list,
    tracks_of,
    unknown,
)
from leaderboards.selection import DEFAULT_RULE, PROTOCOLS, RULES
from search_spaces import setting_fields
from search_spaces.bounds import Bounds

SWEEP = "python -m bench.sweep"
DESCRIPTION = """\
Run federated algorithms over hyper-parameters, data heterogeneity and participation, as Ray Tune trials.
Finished runs are never computed twice: the same command again runs what is missing or failed."""
EPILOG = """\
examples:
  python -m bench.sweep --algo fedcad --dataset cifar10           the paper's setting and grid
  python -m bench.sweep --algo fedavg,fedcad --dataset digits --alpha 0.1 0.5 --participation 0.5 1.0 --seeds 3
  python -m bench.sweep --algo fedcad --dataset cifar10 --set beta=0,0.3 gamma=0.5 --dry-run
  python -m bench.sweep --paper fedgkd --table 3                  every cell of a printed table
  python -m bench.sweep --paper fedgkd --table 3 --dataset cifar10 --alpha 0.1 --algo fedavg,fedgkd --rounds 2
  python -m bench.sweep reproduce RUN_KEY                         the run of a stored row, again

Lists take spaces or commas. Several values make a grid.
exit status: 0 all finished; 1 a trial failed; 2 usage or value; 3 data, disk or cluster; 130 interrupted, resumable"""

COMMAND_LINE = "command line"
RUN, SEARCH, EXECUTION, OUTPUT = (
    "what to run",
    "search",
    "execution",
    "information and output",
)  # groups of `--help`
COUNT = Bounds(1, 100_000)  # more runs, trials or cores than that are a mistake
AMOUNT = Bounds(0)  # of seconds, or of GPUs
CONFIG_BYTES = 2**20  # of a TOML file, at most
_LONG_NAME = re.compile(
    r"""(?<![\w"'-])(?:[\w"'-]+[ \t]*\.[ \t]*){20}"""
)  # whose time grows with its square
_OF_COMMAND_LINE = ("config", "import_")  # options that a file cannot set

Texts = tuple[str, ...]


def parse_set(words: Iterable[str], option: str = "--set") -> dict[str, Texts]:
    """Parse `name=v,v name=v` into a mapping; a repeated name collects all its values.

    Raises UsageError.
    """
    values: dict[str, Texts] = {}
    for word in words:
        name, sign, text = word.partition("=")
        parts = split_list([text])
        if not sign or not name.strip() or not parts:
            raise UsageError(f"{option} takes name=value[,value...], got {word!r}")
        values[name.strip()] = tuple(dict.fromkeys((*values.get(name.strip(), ()), *parts)))
    return values


def named_or_own(names: Sequence[str], text: str) -> str:
    """Parse one of `names`, or the `module:factory` of a user's own; raises ArgumentTypeError."""
    if text not in names and ":" not in text:
        choices = ", ".join(names)
        raise argparse.ArgumentTypeError(f"choose {choices} or module:factory, got {text!r}")
    return text


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
    """Declare an option with a single value, or a switch.

    `parse` converts the text if the field's type is not enough; `bounds` limit numbers; `short` is
    an additional one-letter flag; `empty` allows the empty text as a value. `--help` shows the
    default after `text`.
    """
    facts = {
        "group": group,
        "help": text,
        "metavar": metavar,
        "parse": parse,
        "bounds": bounds or Bounds(),
    }
    return field(
        default=default, metadata={**facts, "choices": choices, "short": short, "empty": empty}
    )


def _several(
    group: str,
    text: str,
    metavar: str,
    *,
    setting: str | None = None,
    read: Callable[[list[str]], Any] = split_list,
) -> Any:
    """Declare an option with several values; if it is given twice, the values add up.

    `setting` is the field of `Setting` that the option sets, whose values stay text; `read` parses
    the words.
    """
    facts = {"group": group, "help": text, "metavar": metavar, "setting": setting, "read": read}
    return field(default_factory=lambda: read([]), metadata=facts)


def _join_meanings(meanings: Mapping[str, str]) -> str:
    return "; ".join(f"{name}: {meaning}" for name, meaning in meanings.items())


@dataclass(frozen=True)
class SweepOptions:
    """The parsed options of a sweep.

    A field declared with `_option` or `_several` is the option of that name.

    Args:
        given: option that was given -> its origin, `command line` or the file of `--config`.
        values: setting fields and hyper-parameters that any option sets, as text.
        origins: origin of each of `values`.
    """

    algo: tuple[str, ...] = _several(RUN, "algorithms, or all", "NAME")
    dataset: str = _option(
        RUN,
        "data set; folder:PATH has images by class, csv:PATH rows with --set label=COLUMN",
        "NAME",
        EMBEDDED_DATASET,
    )
    paper: str | None = _option(
        RUN,
        "paper whose setting and grids to use (default: the first algorithm's that has the data set)",
        "NAME",
    )
    table: str | None = _option(
        RUN,
        "with --paper: run a printed table of it (3, IV); --dataset, --algo, --alpha, --participation and --clients "
        "select cells; --rounds, --local-epochs and --set fraction=... shorten the runs",
        "T",
    )
    model: tuple[str, ...] = _several(
        RUN,
        "model; +head adds a projection head, +bn BatchNorm, +lora8 factors of rank 8",
        "NAME",
        setting="model",
    )
    alpha: tuple[str, ...] = _several(
        RUN, "Dirichlet concentration; the smaller, the less IID", "A", setting="alpha"
    )
    participation: tuple[str, ...] = _several(
        RUN, "share of the clients that train in a round, in (0, 1]", "C", setting="participation"
    )
    clients: tuple[str, ...] = _several(RUN, "number of clients", "K", setting="num_clients")
    rounds: tuple[str, ...] = _several(RUN, "communication rounds", "T", setting="rounds")
    local_epochs: tuple[str, ...] = _several(
        RUN, "local epochs in a round", "E", setting="local_epochs"
    )
    batch_size: tuple[str, ...] = _several(RUN, "local batch size", "B", setting="batch_size")
    lr: tuple[str, ...] = _several(RUN, "local learning rate", "LR", setting="lr")
    precision: tuple[str, ...] = _several(
        RUN, "fp32 (strict), tf32, bf16 (autocast) or fp64", "P", setting="precision"
    )
    start_from: tuple[str, ...] = _several(
        RUN,
        "start from the final model of a run in OUT that had --track models",
        "RUN_KEY",
        setting="start_from",
    )
    seeds: int = _option(
        RUN, "seeds 0 to N-1; for a table as many as the paper used", "N", 1, bounds=COUNT
    )
    replicates: Mapping[str, Texts] = _several(
        RUN,
        "runs of each seed of an algorithm, which share its partition and first weights; comparisons average them",
        "NAME=N",
        read=partial(parse_set, option="--replicates"),
    )
    set: Mapping[str, Texts] = _several(
        RUN,
        "any setting field or hyper-parameter (fedcad.gamma=0.5: of that algorithm only)",
        "NAME=V[,V...]",
        read=parse_set,
    )
    config: str | None = _option(
        RUN, "TOML file of these options; the command line overrides it", "FILE"
    )
    import_: tuple[str, ...] = _several(
        RUN, f"{IMPORT} (a --config file in the working folder needs none)", "NAME"
    )

    search: str = _option(
        SEARCH,
        "how to choose configurations: grid, random, optuna, or module:factory of an Optuna sampler",
        "HOW",
        "grid",
        parse=partial(named_or_own, ("grid", "random", "optuna")),
    )
    num_samples: int = _option(
        SEARCH, "configurations per algorithm, for random and optuna", "N", 10, bounds=COUNT
    )
    budget: int | None = _option(
        SEARCH,
        "tune every algorithm over N configurations, lr included, within a factor of 10",
        "N",
        bounds=COUNT,
    )
    scheduler: str = _option(
        SEARCH,
        "stop weak configurations early: none, asha, or module:factory of a Ray Tune scheduler",
        "HOW",
        "none",
        parse=partial(named_or_own, ("none", "asha")),
    )
    tuning: str = _option(
        SEARCH,
        "with --budget: all configurations at once, or the learning rates at the middle own value first and then "
        "other own values at the best rate",
        None,
        "at-once",
        choices=TUNINGS,
    )
    chosen_by: str = _option(SEARCH, CHOSEN_BY, None, DEFAULT_RULE, choices=tuple(RULES))
    select_on: str | None = _option(SEARCH, SELECT_ON, None, choices=PROTOCOLS)
    confirm: tuple[int, ...] | None = _option(
        SEARCH,
        "search on seed 0, then run the configuration that validation chose on other seeds, and report only these: "
        "5 is seeds 1 to 5, 101-150 are given ones",
        "SEEDS",
        parse=seeds_to_confirm,
    )
    confirm_at: Mapping[str, Texts] = _several(
        SEARCH,
        "with --confirm: values of setting fields at which it runs",
        "FIELD=V[,V...]",
        read=partial(parse_set, option="--confirm-at"),
    )

    executor: str = _option(
        EXECUTION, "Ray Tune, or one by one in this process", None, "ray", choices=("ray", "inline")
    )
    max_concurrent: int | None = _option(
        EXECUTION, "trials at once (default: as many as fit)", "N", bounds=COUNT
    )
    cpus_per_trial: int = _option(EXECUTION, "cores and threads of a trial", "N", 1, bounds=COUNT)
    pack: int | str = _option(
        EXECUTION,
        "largest number of runs that a trial trains as one program: one seed's configurations "
        f"first; auto: {AUTO_PACK} on a GPU (experimental: docs/sweeps.md, Packs), 1 on a CPU or "
        "with --scheduler",
        "N",
        "auto",
        parse=pack_size,
        bounds=COUNT,
    )
    gpus_per_trial: float | None = _option(
        EXECUTION,
        f"GPUs of a trial, may be a fraction (default: 1 for packs, else {UNPACKED_SHARE})",
        "F",
        bounds=AMOUNT,
    )
    address: str | None = _option(
        EXECUTION, "an existing Ray cluster, or auto; all its nodes must share --out", "HOST"
    )
    device: str = _option(
        EXECUTION, "where to train", None, "auto", choices=("auto", "cpu", "cuda")
    )
    backend: str = _option(
        EXECUTION, "train clients one by one, or as one stack", None, "auto", choices=BACKENDS
    )
    data_dir: str | None = _option(EXECUTION, DATA_DIR, "DIR")
    offline: bool = _option(EXECUTION, "never use the network", default=False)
    out: str | None = _option(EXECUTION, OUT, "DIR")
    mirror: str | None = _option(
        EXECUTION,
        "keep a copy of OUT there, and continue from its results: s3://, gs://, hdfs://, file:/// or a path (default "
        "$FEDKD_MIRROR, else none)",
        "URL",
        empty=True,
    )
    time_budget: float | None = _option(
        EXECUTION, "seconds after which the sweep saves and stops", "S", bounds=AMOUNT
    )
    save_seconds: float = _option(
        EXECUTION, "shortest time between saves of a run's state", "S", 15.0, bounds=AMOUNT
    )
    force: bool = _option(EXECUTION, "run finished runs again", default=False)
    uncertified: bool = _option(
        EXECUTION,
        "skip the self-test of algorithms from outside; their results are marked",
        default=False,
    )
    track: tuple[str, ...] = _several(
        EXECUTION,
        f"store more of each run, in OUT/tracked and its curve. {_join_meanings(TRACKS)}",
        "WHAT",
        read=tracks_of,
    )
    log: tuple[str, ...] = _several(
        EXECUTION,
        f"send curves to a tool while they grow. {_join_meanings(LOGS)}",
        "TOOL",
        read=logs_of,
    )

    dry_run: bool = _option(
        OUTPUT, "print what would run, where each value comes from, the cost", default=False
    )
    show: bool = _option(OUTPUT, "print the search spaces with their sources", default=False)
    list: bool = _option(OUTPUT, "print the algorithms that can be run", default=False)
    json: bool = _option(OUTPUT, "machine-readable output on stdout", default=False)
    quiet: bool = _option(OUTPUT, "show no progress", default=False, short="-q")
    verbose: bool = _option(OUTPUT, "show tracebacks of errors", default=False, short="-v")

    given: Mapping[str, str] = field(default_factory=dict)
    values: Mapping[str, Texts] = field(default_factory=dict)
    origins: Mapping[str, str] = field(default_factory=dict)


OPTIONS = {item.name: item for item in fields(SweepOptions) if item.metadata}
_TYPES = {"int": int, "float": float, "str": str}


class SweepParser(Parser):
    """A parser that suggests `--set` for fields of the setting that have no option of their own."""

    def nearest(self, option: str) -> str:
        """Return the option nearest to an unknown one; for a field of the setting, `--set FIELD=VALUE`."""
        name = option.lstrip("-").replace("-", "_")
        return f"--set {name}=VALUE" if name in setting_fields() else super().nearest(option)


def parse(argv: Sequence[str], prog: str = SWEEP) -> SweepOptions:
    """Parse the options: command line over `--config` over defaults.

    `prog` is the program that errors name.

    Raises UsageError for a value that is not allowed or a file that cannot be read; argparse raises
    SystemExit.
    """
    layers = {COMMAND_LINE: _parse_words(argv, prog)}
    if file := layers[COMMAND_LINE].get("config"):
        # The file goes through the same parser, so that the types and choices of the command line
        # hold for it.
        layers = {file: _parse_words(_file_arguments(file), prog, f" (from {file})"), **layers}
    options: dict[str, Any] = {}
    given: dict[str, str] = {}
    values: dict[str, Texts] = {}
    origins: dict[str, str] = {}
    for origin, layer in layers.items():
        options |= layer
        given |= dict.fromkeys(layer, origin)
        new = _values_of(layer)
        # A plain name overrides an earlier layer's value for a single algorithm, unless it is a
        # field of the setting.
        hyper = new.keys() - setting_fields().keys()
        still_valid = [
            name for name in values if name in new or name.rpartition(".")[2] not in hyper
        ]
        values = {name: values[name] for name in still_valid} | new
        origins |= dict.fromkeys(new, origin)
    parsed = SweepOptions(**options, given=given, values=values, origins=origins)
    if file and Path(file).resolve().parent != Path.cwd():
        _check_imports(parsed, file)
    return parsed


def _check_imports(options: SweepOptions, file: str) -> None:
    """Refuse each `module:name` that only a file names: importing runs a stranger's code."""
    names: list[str] = []
    for option, value in (
        ("algo", options.algo),
        ("dataset", (options.dataset,)),
        ("search", (options.search,)),
        ("scheduler", (options.scheduler,)),
        ("confirm_at", options.confirm_at),
    ):
        if options.given.get(option) == file:
            names += (
                value
                if isinstance(value, tuple)
                else [text for texts in value.values() for text in texts]
            )
    names += [
        text
        for name, texts in options.values.items()
        if options.origins[name] == file
        for text in texts
    ]
    for name in names:
        if ":" in name and not is_path(name) and name not in options.import_:
            raise UsageError(
                f"--config {file} names {name}, whose code would run, and the file is not in the working folder: if "
                f"you trust it, add --import {name}, or give the command in the file's folder"
            )


def make_parser(prog: str = SWEEP) -> Parser:
    """Build the parser of all options; its result lacks the options that were not given."""
    parser = SweepParser(
        prog=prog, description=DESCRIPTION, epilog=EPILOG, argument_default=argparse.SUPPRESS
    )
    groups = {name: parser.add_argument_group(name) for name in (RUN, SEARCH, EXECUTION, OUTPUT)}
    for name, item in OPTIONS.items():
        facts = item.metadata
        flags = [facts["short"]] if facts.get("short") else []
        add = partial(groups[facts["group"]].add_argument, *flags, flag(name), dest=name)
        if "read" in facts:
            add(nargs="+", action="extend", metavar=facts["metavar"], help=facts["help"])
        elif item.type == "bool":
            add(action="store_true", help=facts["help"])
        else:
            shown = (
                f" ({item.default:g})"
                if isinstance(item.default, int | float)
                else f" ({item.default})"
            )
            add(
                type=facts["parse"] or _TYPES[str(item.type).removesuffix(" | None")],
                choices=facts["choices"],
                metavar=facts["metavar"],
                help=facts["help"] + (shown if item.default else ""),
            )
    return parser


def _parse_words(words: Sequence[str], prog: str, place: str = "") -> dict[str, Any]:
    """Parse and check the options in `words`.

    `place` is appended to errors if the words come from a file.
    """
    parser = make_parser(prog)
    parser.place = place
    options = vars(parser.parse_args(words))
    for name, value in options.items():
        facts = OPTIONS[name].metadata
        if "read" in facts:
            options[name] = facts["read"](value)
            if not options[name]:
                raise UsageError(f"{flag(name)} takes a value, and got an empty one{place}")
            continue
        if value == "" and not facts["empty"]:
            raise UsageError(f"{flag(name)} takes a value, and got an empty one{place}")
        if not facts["bounds"].allows(value):
            raise UsageError(f"{flag(name)} must be {facts['bounds']}, got {value}{place}")
    return options


def _file_arguments(path: str) -> list[str]:
    """Convert the options of a TOML file to words of a command line."""
    content = _read_toml(path)
    for key in content:
        if key.replace("-", "_") in _OF_COMMAND_LINE:
            raise unknown(f"option for --config {path}", key, OPTIONS.keys() - {*_OF_COMMAND_LINE})
    return words_of(content, f"--config {path}")


def words_of(values: Mapping[str, Any], place: str) -> list[str]:
    """Convert options with values of Python or TOML to words of a command line.

    Args:
        values: option -> value: true or false for a switch, a mapping for `set`, else one value or
            a list.
        place: what messages say of their origin.

    Raises:
        UsageError: there is no such option, or a value is of another kind.
    """
    words: list[str] = []
    for key, value in values.items():
        name = key.replace("-", "_")
        if name not in OPTIONS:
            raise unknown(f"option for {place}", key, OPTIONS.keys() - {*_OF_COMMAND_LINE})
        if (name == "set") != isinstance(value, dict):
            raise UsageError(
                f"{place}: values for --set stand under [set], and only there; got {key} = {value!r}"
            )
        switch = OPTIONS[name].type == "bool"
        if switch != isinstance(value, bool):
            shown = str(value).lower() if isinstance(value, bool) else repr(value)
            wanted = "true or false" if switch else "a value"
            raise UsageError(f"{place}: {key} takes {wanted}, got {shown}")
        if switch:
            if value:
                words.append(flag(name))
        elif name == "set":
            pairs = []
            for full, texts in _flatten(value):
                pairs.append(f"{full}={','.join(_texts(f'{place}: {full}', texts))}")
            if pairs:
                words += [flag(name), *pairs]
        else:
            words += [flag(name), *_texts(f"{place}: {key}", value)]
    return words


def _read_toml(path: str) -> dict[str, Any]:
    """Read a TOML file.

    Raises UsageError if it cannot be read, or has names or numbers that no option has.
    """
    try:
        with Path(path).open("rb") as file:
            text = file.read(CONFIG_BYTES + 1).decode(
                "utf-8-sig"
            )  # editors of Windows begin files with a mark
        if len(text) > CONFIG_BYTES:
            raise ValueError(f"it has more than {CONFIG_BYTES:,} bytes")
        if _LONG_NAME.search(text):
            raise ValueError("a name has more than 20 parts")
        content = tomllib.loads(text)
        _check_values(content)
    except OSError as error:
        raise UsageError(f"--config {path}: {error.strerror}") from None
    except (ValueError, RecursionError) as error:
        raise UsageError(f"--config {path} is no TOML file of options: {error}") from None
    return content


def _check_values(value: Any) -> None:
    """Raise ValueError for a whole number beyond 64 bits, and for text with a zero byte."""
    if isinstance(value, dict | list):
        for part in value.values() if isinstance(value, dict) else value:
            _check_values(part)
    elif isinstance(value, int) and not -(2**63) <= value < 2**63:
        raise ValueError(f"a number has {value.bit_length():,} bits, and at most 64 are allowed")
    elif isinstance(value, str) and "\0" in value:
        raise ValueError("a text has a zero byte")


def _flatten(table: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Flatten nested tables to dotted names: TOML parses `fedcad.gamma = 0.5` as a table within a table."""
    for name, value in table.items():
        if isinstance(value, dict):
            yield from _flatten(value, f"{prefix}{name}.")
        else:
            yield prefix + name, value


def _texts(name: str, value: Any) -> list[str]:
    if value == []:
        raise UsageError(f"{name} has no value: give one, or leave it out")
    texts = [str(item) for item in (value if isinstance(value, list) else [value])]
    for text in texts:
        if text.startswith("--"):  # which would be read as another option
            raise UsageError(f"{name} takes a value, got the option {text}")
    return texts


def _values_of(layer: Mapping[str, Any]) -> dict[str, Texts]:
    """Return one layer's setting fields and hyper-parameters, by name."""
    field_of = {
        name: item.metadata.get("setting") for name, item in OPTIONS.items() if name in layer
    }
    options: dict[str, str] = {setting: name for name, setting in field_of.items() if setting}
    values: dict[str, Texts] = {name: layer[option] for name, option in options.items()}
    extra: dict[str, Texts] = layer.get("set", {})
    for name in values.keys() & extra.keys():
        raise UsageError(
            f"{flag(options[name])} and --set {name}= are the same thing, and both are given: leave one out"
        )
    return values | extra

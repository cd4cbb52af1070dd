"""`SweepOptions`: what a user asks of a sweep, with the declaration of each option.

`bench.sweep.parser` reads them from the command line and a TOML file. Imports neither torch nor
ray.
"""

from __future__ import annotations

import argparse
import csv
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from algorithms import ALGORITHMS
from bench.errors import UsageError
from bench.execution import BACKENDS, LOGS, TRACKS
from bench.machine import AUTO_PACK, UNPACKED_SHARE
from bench.terminal.values import (
    logs_of,
    number_of_seeds,
    pack_size,
    seeds_to_confirm,
    split_list,
    tracks_of,
)
from bench.terminal.words import CHOSEN_BY, DATA_DIR, IMPORT, OUT, SELECT_ON
from leaderboards.selection import DEFAULT_RULE, PROTOCOLS, RULES
from search_spaces.bounds import Bounds

COMMAND_LINE = "command line"  # the origin of what a user types
EMBEDDED_DATASET = "digits"
AT_ONCE = "at-once"
TWO_STAGE = "two-stage"
TUNINGS = (AT_ONCE, TWO_STAGE)
# Groups of `--help`.
RUN = "what to run"
SEARCH = "search"
EXECUTION = "execution"
OUTPUT = "information and output"
COUNT = Bounds(1, 100_000)  # more runs, trials or cores than that are a mistake
AMOUNT = Bounds(0)  # of seconds, or of GPUs

Texts = tuple[str, ...]


def parse_set(words: Iterable[str], option: str = "--set") -> dict[str, Texts]:
    """Parse `name=v,v name=v` into a mapping; a repeated name collects all its values.

    A value with a comma stands in double quotes. Raises UsageError.
    """
    values: dict[str, Texts] = {}
    for word in words:
        name, sign, text = word.partition("=")
        name = name.strip()
        parts = _split_quoted(text)
        if not sign or not name or not parts:
            raise UsageError(f"{option} takes name=value[,value...], got {word!r}")
        values[name] = tuple(dict.fromkeys((*values.get(name, ()), *parts)))
    return values


def _split_quoted(text: str) -> Texts:
    """Split `a,b` at its commas, but for those in double quotes; empty if that is not possible."""
    try:
        (parts,) = csv.reader([text], skipinitialspace=True, strict=True)
    except (csv.Error, ValueError):
        return ()
    return tuple(part.strip() for part in parts if part.strip())


def parse_replicates(words: Iterable[str]) -> dict[str, int]:
    """Parse `name=n name=n`; raises UsageError unless each is one whole number from 1 to 100."""
    counts = {}
    for name, texts in parse_set(words, "--replicates").items():
        if len(texts) != 1 or not re.fullmatch("[1-9][0-9]?|100", texts[0]):
            got = ",".join(texts)
            raise UsageError(f"--replicates {name}= takes a whole number from 1 to 100, got {got}")
        counts[name] = int(texts[0])
    return counts


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
    metadata = {
        "group": group,
        "help": text,
        "metavar": metavar,
        "parse": parse,
        "bounds": bounds or Bounds(),
        "choices": choices,
        "short": short,
        "empty": empty,
    }
    return field(default=default, metadata=metadata)


def _several(
    group: str, text: str, metavar: str, read: Callable[[list[str]], Any] = split_list
) -> Any:
    """Declare an option with several values; if it is given twice, the values add up.

    `read` parses the words.
    """
    metadata = {"group": group, "help": text, "metavar": metavar, "read": read}
    return field(default_factory=lambda: read([]), metadata=metadata)


def _join_meanings(meanings: Mapping[str, str]) -> str:
    return "; ".join(f"{name}: {meaning}" for name, meaning in meanings.items())


@dataclass(frozen=True)
class SweepOptions:
    """The options of a sweep, as its user gives them.

    A field declared with `_option` or `_several` is the option of that name, `values` is `--set`.

    Args:
        algo: names of the registry or `module:name`, or `all`; for a table, none means all.
        dataset: for a table several joined by commas, or empty for all.
        paper: source of the setting and the grids; None lets data set and algorithms decide.
        table: printed name of a table of `paper`, whose cells are run; None for other sweeps.
        seeds: counted from 0.
        replicates: name of a row -> number of runs of each of its seeds.
        values: setting field or hyper-parameter, of any option -> its values. They are text,
            because the type of a hyper-parameter is known once its algorithm is imported.
        num_samples: configurations per algorithm, unless there is a `budget`.
        budget: configurations that every algorithm gets, with the learning rate tuned as well; 0
            for none.
        tuning: of `TUNINGS`; the second stage of `TWO_STAGE` is planned from the results of the
            first.
        chosen_by: of `leaderboards.selection.RULES`.
        select_on: of `leaderboards.selection.PROTOCOLS`; None is as each setting has it.
        confirm: seeds, 0 not among them, that run the configurations chosen on seed 0; empty for
            no confirmation.
        confirm_at: setting field -> values, as text, of the cells to confirm in; empty for the
            tuned cells.
        given: option that was given -> its origin, `command line` or the file of `--config`.
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
        "paper whose setting and grids to use (default: the first algorithm's that has the data "
        "set)",
        "NAME",
    )
    table: str | None = _option(
        RUN,
        "with --paper: run a printed table of it (3, IV); --dataset, --algo, --alpha, "
        "--participation and --clients select cells; --rounds, --local-epochs and "
        "--set fraction=... shorten the runs",
        "T",
    )
    seeds: int = _option(
        RUN,
        "seeds 0 to N-1; for a table as many as the paper used",
        "N",
        1,
        parse=number_of_seeds,
        bounds=COUNT,
    )
    replicates: Mapping[str, int] = _several(
        RUN,
        "runs of each seed of an algorithm, which share its partition and first weights; "
        "comparisons average them",
        "NAME=N",
        parse_replicates,
    )
    values: Mapping[str, Texts] = _several(
        RUN,
        "any setting field or hyper-parameter (fedcad.gamma=0.5: of that algorithm only)",
        "NAME=V[,V...]",
        parse_set,
    )
    config: str | None = _option(
        RUN, "TOML file of these options; the command line overrides it", "FILE"
    )
    import_: tuple[str, ...] = _several(
        RUN, f"{IMPORT} (a --config file in the working folder needs none)", "NAME"
    )

    search: str = _option(
        SEARCH,
        "how to choose configurations: grid, random, optuna, or module:factory of an Optuna "
        "sampler",
        "HOW",
        "grid",
        parse=partial(named_or_own, ("grid", "random", "optuna")),
    )
    num_samples: int = _option(
        SEARCH, "configurations per algorithm, for random and optuna", "N", 10, bounds=COUNT
    )
    budget: int = _option(
        SEARCH,
        "try N configurations of every algorithm; lr is drawn within 10x of the preset",
        "N",
        0,
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
        "with --budget: all configurations at once; or first the learning rates, each with the "
        "middle value of the grid, then other values at the best rate",
        None,
        AT_ONCE,
        choices=TUNINGS,
    )
    chosen_by: str = _option(SEARCH, CHOSEN_BY, None, DEFAULT_RULE, choices=tuple(RULES))
    select_on: str | None = _option(SEARCH, SELECT_ON, None, choices=PROTOCOLS)
    confirm: tuple[int, ...] = _option(
        SEARCH,
        "search on seed 0, then run the configuration that validation chose on other seeds, and "
        "report only these: 5 is seeds 1 to 5, 101-150 are given ones",
        "SEEDS",
        (),
        parse=seeds_to_confirm,
    )
    confirm_at: Mapping[str, Texts] = _several(
        SEARCH,
        "with --confirm: values of setting fields at which it runs",
        "FIELD=V[,V...]",
        partial(parse_set, option="--confirm-at"),
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
        "most runs that a trial trains side by side, one seed's configurations first; "
        f"auto: {AUTO_PACK} on a GPU (docs/sweeps.md, Packs), 1 on a CPU or "
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
        "keep a copy of OUT there, and continue from its results: s3://, gs://, hdfs://, file:/// "
        "or a path (default $FEDKD_MIRROR, else none)",
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
        tracks_of,
    )
    log: tuple[str, ...] = _several(
        EXECUTION,
        f"send curves to a tool while they grow. {_join_meanings(LOGS)}",
        "TOOL",
        logs_of,
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
    origins: Mapping[str, str] = field(default_factory=dict)

    @property
    def every_algorithm(self) -> bool:
        """Whether `--algo all` was given, in place of names."""
        return self.algo == ("all",)

    def asks_for(self, name: str) -> bool:
        """Tell whether an algorithm is asked for; a second row, `fedproto_proto`, is none."""
        return name in self.algo or (self.every_algorithm and name in ALGORITHMS)

    @property
    def sampler(self) -> str:
        """`module:factory` of the sampler that a user names for Optuna; empty for Optuna's TPE."""
        return self.search if ":" in self.search else ""

    @property
    def by_optuna(self) -> bool:
        """Whether Optuna chooses configurations."""
        return self.search == "optuna" or bool(self.sampler)

    @property
    def configurations(self) -> int:
        """The number of configurations that Optuna chooses for each algorithm."""
        return self.budget or self.num_samples

    def origin_of(self, name: str) -> str:
        """Return the origin of one of `values`; what Python gives counts as typed."""
        return self.origins.get(name, COMMAND_LINE)

    def place_of(self, name: str) -> str:
        """Return what a message adds on a value's origin; empty for the command line."""
        origin = self.origin_of(name)
        return "" if origin == COMMAND_LINE else f" (from {origin})"


# Options that each set a field of the setting, as `--set` does.
SETTING_OPTIONS: Mapping[str, Any] = {
    "model": _several(
        RUN, "model; +head adds a projection head, +bn BatchNorm, +lora8 factors of rank 8", "NAME"
    ),
    "alpha": _several(RUN, "Dirichlet concentration; the smaller, the less IID", "A"),
    "participation": _several(RUN, "share of the clients that train in a round, in (0, 1]", "C"),
    "clients": _several(RUN, "number of clients", "K"),
    "rounds": _several(RUN, "communication rounds", "T"),
    "local_epochs": _several(RUN, "local epochs in a round", "E"),
    "batch_size": _several(RUN, "local batch size", "B"),
    "lr": _several(RUN, "local learning rate", "LR"),
    "precision": _several(RUN, "fp32 (strict), tf32, bf16 (autocast) or fp64", "P"),
    "start_from": _several(
        RUN, "start from the final model of a run in OUT that had --track models", "RUN_KEY"
    ),
}
# The field that each of them sets.
FIELD_OF_OPTION = {name: name for name in SETTING_OPTIONS} | {"clients": "num_clients"}

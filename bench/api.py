"""The commands as functions of Python: `run`, `sweep`, `compare` and `load`.

They take what the commands take, by name, and return DataFrames; docs/columns.md describes the
columns. `trainable` is for a Tuner of one's own. Errors are exceptions. Imports neither torch nor
ray.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Mapping, Sequence
from contextlib import redirect_stderr
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from bench.errors import (
    EXIT_ENVIRONMENT,
    EXIT_INTERRUPTED,
    EnvironmentProblem,
    UsageError,
)
from bench.executors import trainable
from bench.terminal.words import flag, unknown
from leaderboards.shell_text import shell_command

if TYPE_CHECKING:
    import pandas as pd

    from algorithms.base import Algorithm
    from bench.planning.options import SweepOptions

__all__ = ["Frames", "compare", "load", "run", "sweep", "trainable"]

T = TypeVar("T")


@dataclass(frozen=True, repr=False)
class Frames:
    """Results as DataFrames.

    Args:
        runs: a row per result row. Accuracies are fractions.
        curves: a row per run, round and metric: `run_key`, `round`, `metric`, `value`.
        board: the leaderboard: a row per algorithm, configuration and setting, with statistics over
            seeds. `selected` marks the configurations that validation chose.
    """

    runs: pd.DataFrame
    curves: pd.DataFrame
    board: pd.DataFrame

    def __repr__(self) -> str:
        """Return the number of rows of each, which fits on a line of a notebook."""
        lengths = [f"{name}: {len(frame):,} rows" for name, frame in vars(self).items()]
        return f"Frames({', '.join(lengths)})"


def run(
    algorithm: str | type[Algorithm] | Callable[..., Algorithm],
    *,
    out: str | Path | None = None,
    data_dir: str | Path | None = None,
    offline: bool = False,
    device: str = "auto",
    backend: str = "auto",
    track: Sequence[str] = (),
    force: bool = False,
    uncertified: bool = False,
    quiet: bool = True,
    **fields: Any,
) -> Frames:
    """Run one configuration of an algorithm in this process, unless its result is stored.

    Args:
        algorithm: registry name, `module:name`, or a class that extends
            `algorithms.base.Algorithm`, also one of a script or a notebook. Such a class is checked
            by the self-test first.
        out: result folder; by default that of the commands.
        data_dir: folder of the data sets; likewise.
        offline: never use the network.
        device: `auto`, `cpu` or `cuda`.
        backend: `auto`, `loop` or `stacked`.
        track: more to store of the run, as `--track`.
        force: run it again if it is stored.
        uncertified: skip the self-test of a class from outside; its rows are marked.
        quiet: show no progress on stderr, only whether the run is to do, and warnings.
        fields: hyper-parameters and setting fields by name, `dataset` (digits), `label` of a
            `csv:PATH`, `paper` and `seed` (0). What is not given has the value of the paper's
            setting, or its default.

    Returns:
        The rows of the run (some algorithms yield several), their curves, and their leaderboard.

    Raises:
        UsageError: an unknown name, or a value that is not allowed.
        EnvironmentProblem: data are missing, the result folder is not writable, or a saved state
            cannot be used.
        KeyboardInterrupt: a signal stopped the run; the same call goes on from what is saved.
    """
    from bench.planning.given import LABEL
    from bench.planning.single_run import check_names, name_of, plan_of_one
    from bench.sweep import command
    from leaderboards.board import leaderboard

    name = name_of(algorithm)
    others = ("setting", "paper", "seed", LABEL)
    check_names(name, fields, others, f"setting field or hyper-parameter of {name}")
    given = {
        "out": out,
        "data_dir": data_dir,
        "offline": offline,
        "device": device,
        "backend": backend,
        "track": track,
        "force": force,
        "uncertified": uncertified,
        "quiet": quiet,
        "executor": "inline",
    }
    options = {key: value for key, value in given.items() if value}
    _, parsed = _sweep_options(options, "bench.api.run")
    plan = plan_of_one(name, fields, options=parsed)
    (run_spec,) = plan.run_specs
    status, _, store = command.run(plan, command.ready(plan), "bench.api.run")
    _raise_unless_ended(status, parsed)
    runs = store.runs(keys=set(run_spec.rows.values()))
    return Frames(runs, store.curves(set(runs["run_key"])), leaderboard(runs))


def sweep(**options: Any) -> Frames:
    """Run a sweep, as `python -m bench.sweep` does.

    Args:
        options: those of the command by name, `-` written as `_`: `algo=["fedavg", "fedcad"]`,
            `dataset="digits"`, `alpha=[0.1, 0.5]`, `seeds=3`, `executor="inline"`. `set` is a
            mapping: `set={"fedcad.gamma": [0.5, 0.7]}`. Switches take True. Options that only print
            (`list`, `show`, `dry_run`, `json`) are the command's alone.

    Returns:
        All rows in the sweep's contests, their curves, and their leaderboard. Runs that failed are
        rows whose `status` is `failed`.

    Raises:
        UsageError: an unknown name, or a value that is not allowed.
        EnvironmentProblem: data are missing, the result folder is not writable, there is no
            cluster, or a saved state cannot be used.
        KeyboardInterrupt: a signal stopped the sweep, which `time_budget` does not; the same call
            goes on from what is saved.
    """
    from bench.sweep import command
    from leaderboards.problems import cell_of

    for name in ("list", "show", "dry_run", "json"):
        if options.get(name):
            raise UsageError(
                f"{name} only prints: use `{shell_command('bench.sweep', flag(name))}`"
            )
    words, parsed = _sweep_options(options, "bench.api.sweep")
    status, plan, store = command.sweep(parsed, shell_command("bench.sweep", *words))
    _raise_unless_ended(status, parsed)
    contests = command.contests_of(plan, store)
    board, runs = command.board_of(plan, store)
    cells = runs["setting_json"].map(partial(cell_of, tuned=plan.tuned))
    rows = zip(cells, runs["algorithm"], runs["model"], strict=True)
    own = runs.loc[[row in contests for row in rows]].reset_index(drop=True)
    curves = store.curves(set(own["run_key"]))
    return Frames(own, curves, board.reset_index(drop=True))


def _raise_unless_ended(status: int, options: SweepOptions) -> None:
    """Raise what an exit status says of runs that did not end, but not for a spent time budget."""
    if status == EXIT_ENVIRONMENT:
        raise EnvironmentProblem(
            "some runs could not go on here, for the problems on standard error; the same call "
            "takes them up again"
        )
    if status == EXIT_INTERRUPTED and options.time_budget is None:
        raise KeyboardInterrupt("the same call goes on from what is saved")


def compare(**options: Any) -> pd.DataFrame:
    """Compare stored results, as `python -m bench.compare` does.

    Args:
        options: those of the command by name, `-` written as `_`: `board="reference"` or
            `out="DIR"`, `metric=["best", "final"]`, `alpha=0.1`, `where={"local_epochs": 5}`. A
            switch takes True, and so does `confirmed` without fields. `format` is the command's
            alone.

    Returns:
        A row per algorithm, cell and metric, as of `--format csv`, and one with `at_defaults` where
        the default hyper-parameters ran beside the chosen ones; with `reference`, `over_cells` or
        `paper`, a row per difference, score or printed number instead: `sheet` is the title of the
        table that it is of.

    Raises:
        UsageError: an unknown name, a value that is not allowed, or nothing to show.
        leaderboards.StoreError: a file cannot be read.
    """
    import pandas as pd

    from bench.compare.command import compared
    from bench.terminal.formats import cell_records

    if "format" in options:
        raise UsageError("format is for printing: use to_latex or to_csv of the result")

    tables, sheets = compared(_compare_arguments(options))
    records = []
    for sheet in sheets:
        records += [{"sheet": sheet.table.title, **record} for record in sheet.records]
    if sheets:
        return pd.DataFrame(records)
    return pd.DataFrame(cell_records(tables))


def load(source: str | Path) -> Frames:
    """Read a result folder, a file of rows, or a board that ships with this package.

    Args:
        source: a path that exists, else the name of a board, such as `reference`. Of a board come
            the runs and the leaderboard that its `board.toml` selects: of `reference` those of the
            confirming seeds. The path of its folder gives all its runs.

    Raises:
        UsageError: there is neither such a path nor such a board.
        leaderboards.StoreError: a file cannot be read.
    """
    from bench.compare.choice import selection
    from bench.stored.results import source_of
    from bench.terminal.paths import folders_of
    from leaderboards.board import leaderboard

    if not isinstance(source, str | Path):
        raise UsageError(f"load takes one path or the name of a board, got {source!r}")
    by_name = isinstance(source, str) and not Path(source).exists()
    if by_name and (Path(source).name != source or source.startswith("-")):
        raise UsageError(f"there is no folder or file {source}")
    arguments = _compare_arguments({"board" if by_name else "out": str(source)})
    selected = selection(arguments)
    folders = source_of(folders_of(arguments.out), selected)
    runs = folders.runs()
    board = leaderboard(runs, tuned=selected.tuned, chosen_by=selected.chosen_by)
    return Frames(runs, folders.curves(), board)


def _sweep_options(options: Mapping[str, Any], caller: str) -> tuple[list[str], SweepOptions]:
    """Return the words of a sweep's command, and the options parsed from them.

    Messages name the `caller`.
    """
    from bench.sweep.parser import parse, words_of
    from bench.terminal.paths import check_path_types

    check_path_types(options)
    values: dict[str, Any] = {}
    for name, value in options.items():
        plain = _plain(value) if name == "set" else _plain(_assignments(value))
        if plain is not None and plain is not False:
            values[name] = plain
    words = words_of(values, caller)
    return words, _parsed(lambda: parse(words))


def _compare_arguments(options: Mapping[str, Any]) -> Any:
    """Return the arguments of `bench.compare` for options of Python."""
    from bench.compare.boards import with_board
    from bench.compare.command import make_parser

    parser = make_parser()
    known = vars(parser.parse_args([]))
    words: list[str] = []
    for name, value in options.items():
        if name not in known:
            raise unknown("option for bench.api.compare", name, known)
        plain = _plain(_assignments(value))
        if plain is None or plain is False:
            continue
        words.append(flag(name))
        if plain is not True:
            words += [str(text) for text in (plain if isinstance(plain, list) else [plain])]
    return _parsed(lambda: with_board(parser, parser.parse_args(words), words))


def _assignments(value: Any) -> Any:
    """Return a mapping of fields as the texts `name=value` or `name=value,value`."""
    if not isinstance(value, Mapping):
        return value
    texts = []
    for name, wanted in value.items():
        plain = _plain(wanted)
        values = plain if isinstance(plain, list) else [plain]
        texts.append(f"{name}={','.join(map(str, values))}")
    return texts


def _plain(value: Any) -> Any:
    """Return a value as TOML could have it: lists for sequences and arrays, text for paths."""
    if isinstance(value, Mapping):
        return {name: _plain(part) for name, part in value.items()}
    if hasattr(value, "tolist"):  # of numpy, pandas or torch
        value = value.tolist()
    if isinstance(value, list | tuple | set | frozenset | range):
        return [_plain(part) for part in value]
    return str(value) if isinstance(value, Path) else value


def _parsed(parse: Callable[[], T]) -> T:
    """Parse, with an exception for what a command would print before it exits.

    Raises:
        UsageError: the words are wrong.
    """
    said = io.StringIO()
    try:
        with redirect_stderr(said):
            return parse()
    except SystemExit:
        text = said.getvalue().strip().removeprefix("error: ")
        raise UsageError(text) from None

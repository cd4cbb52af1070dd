"""Results of one or several folders: runs, curves and leaderboard, and names of runs."""

from __future__ import annotations

import json
import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from algorithms import ALGORITHMS
from bench.errors import UsageError
from bench.execution import default_out
from bench.stored.fields import value_in
from leaderboards.numbers import NUMBERS, Number
from leaderboards.problems import FINETUNED, differing, sortable
from leaderboards.rows.frames import by_run, records
from leaderboards.rows.schema import canonical_json, hyperparameter_columns, own_names
from leaderboards.selection import ALL_RUNS, CLIENTS, Selection, with_protocol
from leaderboards.shell_text import printable, shell_command, typed
from search_spaces import setting_defaults

if TYPE_CHECKING:
    from leaderboards.rows.store import Folders

Run = Mapping[str, Any]  # a row of `runs`; empty values are None
Record = Mapping[str, Any]  # a row of the leaderboard; empty values are None
# The accuracies of pictures and the page.
_ON_TEST_SET = ("selected_accuracy", "best_accuracy", "final_accuracy")
_ON_CLIENTS = ("selected_client_accuracy", "amp", "best_client_accuracy")
ACCURACIES = tuple(
    number
    for number in NUMBERS.values()
    if number.quantity == NUMBERS["final_accuracy"].quantity
    or number.name in (*_ON_CLIENTS, "mean_last10_client_accuracy")
)
_BY_NAME = {number.short: number for number in ACCURACIES}
_BY_NAME |= {number.name: number for number in ACCURACIES}
COMPARED = (*ACCURACIES, NUMBERS["seconds"])  # numbers of which records have every seed's value
_PLACE = ("dataset", "model")  # named by their values alone
_AXES = ("alpha", "participation")  # always named, if a run has them
_MAIN = (*_PLACE, *_AXES)


@dataclass(frozen=True)
class Results:
    """The content of some folders, as read.

    Args:
        source: the store that they come from.
        runs: one per run key, in the order of their end.
        records: the rows of the leaderboard. `runs` of a row are the runs of its configuration that
            it counts, in any status, sorted by seed; `run_of_seed` maps a seed to the finished run.
            Replicates of a partition are one run there, with their means and the run key of the
            first. `seeds` has metric -> seed -> value of the numbers in `COMPARED`. `chosen_by` is
            the rule that selected configurations.
        replicates: run key of such a run -> run keys of all its replicates.
    """

    source: Folders
    runs: tuple[Run, ...]
    records: tuple[Record, ...]
    replicates: Mapping[str, tuple[str, ...]]

    @cached_property
    def curves(self) -> Mapping[str, Mapping[str, Mapping[int, float]]]:
        """Run key -> metric -> round -> value."""
        return by_run(self.source.curves())

    def curve(self, run: Run, metric: str) -> Mapping[int, float]:
        """Return round -> value; empty if the run has no such curve.

        Of a partition with replicates it is their mean, in the rounds that all have.
        """
        keys = self.replicates.get(run["run_key"], (run["run_key"],))
        curves = [self.curves.get(key, {}).get(metric, {}) for key in keys]
        if len(curves) == 1:
            return curves[0]
        means = {}
        for at in sorted(set.intersection(*map(set, curves))):
            means[at] = math.fsum(curve[at] for curve in curves) / len(curves)
        return means


def read(
    outs: Sequence[Path],
    selection: Selection = ALL_RUNS,
) -> Results:
    """Read result folders.

    Args:
        outs: the folders.
        selection: of configurations and their runs. Records have tuned fields among their
            hyper-parameters (`hp_json`, by `own_name`), not in their setting (`setting_json`).

    Raises:
        UsageError: there is no run in any of them, or none that confirms.
        leaderboards.StoreError: a file is broken, foreign, or of a newer schema.
    """
    return results_of(source_of(outs, selection), selection)


def results_of(source: Folders, selection: Selection) -> Results:
    """Choose and rank among the runs of a source; arguments and errors are those of `read`."""
    from leaderboards.board import current, leaderboard, with_seeds
    from leaderboards.replicates import by_partition, replicate_keys

    frame = source.runs()
    runs = sorted(records(frame), key=lambda run: (run["finished"], run["run_key"]))
    members: dict[tuple[str, str, str], list[Run]] = {}
    counted_runs = current(frame, selection.tuned)
    for run in records(by_partition(counted_runs, NUMBERS)):
        members.setdefault(_configuration(run), []).append(run)
    table = leaderboard(frame, tuned=selection.tuned, chosen_by=selection.chosen_by)
    table = with_seeds(table, frame, COMPARED, selection.tuned)
    table = table.assign(chosen_by=selection.chosen_by)
    table = table.drop(columns=hyperparameter_columns(table.columns))  # `hp_json` has them
    board = []
    for record in records(table):
        own_runs = sorted(members[_configuration(record)], key=lambda run: run["seed"])
        finished = {run["seed"]: run for run in own_runs if run["status"] == "finished"}
        record["runs"] = tuple(own_runs)
        record["run_of_seed"] = finished
        board.append(_with_tuned(record, selection.tuned))
    return Results(source, tuple(runs), tuple(board), replicate_keys(counted_runs))


def source_of(outs: Sequence[Path], selection: Selection) -> Folders:
    """Open result folders, or only the confirming runs in them.

    Raises:
        UsageError: there is no run in any of them, none that confirms, or, with `select_on`
            clients, none that was measured on clients' own tests.
    """
    from leaderboards.confirmed import SEARCH_SEED, chosen, confirmed
    from leaderboards.rows.store import Folders

    folders = Folders(outs)
    names = ", ".join(map(str, outs))
    if folders.runs().empty:
        named_folders = [out for out in outs if not out.is_file() and not out.suffix]
        folder = named_folders[0] if named_folders else default_out()
        command = shell_command(
            "bench.sweep", "--algo", "fedavg,fedprox", "--dataset", "digits", "--out", folder
        )
        raise UsageError(
            f"no results in {names}: a sweep such as `{command}` makes some, or name another folder"
        )
    if selection.select_on is not None:
        runs = with_protocol(folders.runs(), selection.select_on)
        if selection.select_on == CLIENTS and runs["amp"].isna().all():
            raise UsageError(
                f"--select-on clients: no run in {names} was measured on clients' own tests; "
                "runs with `--set local_test_fraction=0.25 local_validation_fraction=0.1` are"
            )
        folders = folders.only(runs)
    at = selection.confirmed_at
    if at is None:
        return folders
    rules = (selection.tuned, at, setting_defaults(), selection.chosen_by)
    source = folders.only(confirmed(folders.runs(), *rules))
    if source.runs().empty:
        if chosen(folders.runs(), *rules).empty:
            values = [f" with {name}={typed(value)}" for name, value in at.items()]
            where = "".join(values)
            raise UsageError(
                f"nothing was tuned in {names}: no finished run of seed {SEARCH_SEED}{where}, "
                "or none selected"
            )
        raise UsageError(
            f"nothing is confirmed in {names}: "
            "`python -m bench.sweep --confirm 3` and its search do that"
        )
    return source


def _with_tuned(record: Record, tuned: Sequence[str]) -> Record:
    setting = json.loads(record["setting_json"])
    values = own_names(record["algorithm"], json.loads(record["hp_json"]))
    for name in tuned:
        values[name] = value_in(name, setting)
        setting.pop(name, None)
    return {**record, "hp_json": canonical_json(values), "setting_json": canonical_json(setting)}


def _configuration(row: Mapping[str, Any]) -> tuple[str, str, str]:
    return row["algorithm"], row["hp_json"], row["setting_json"]


def shown_accuracies(records: Sequence[Record], stated: Sequence[str] | None) -> tuple[Number, ...]:
    """List the test accuracies that pictures and the page show, the primary one first.

    Args:
        records: rows of the leaderboard.
        stated: names of the board's metrics, the primary one first; None if it states none.

    Numbers that the board states and that are no such accuracies are left out.

    If the board states none, the accuracy of the round that validation selects comes first, which
    does not look at the test samples. Without a validation split, that of the best round does. If
    all records are selected on clients, accuracies on clients' own tests come before all others.

    Raises:
        UsageError: the primary metric is none of them, or no record has it.
    """
    stated = stated or ()
    if stated:
        _check_primary(stated[0], records)
    finished = [record for record in records if record["n"]]
    validated = all(record["selected_accuracy_mean"] is not None for record in finished)
    usual: tuple[str, ...] = _ON_TEST_SET
    if not validated:
        usual = ("best_accuracy", "final_accuracy", "selected_accuracy")
    if any(record["amp_mean"] is not None for record in records):
        of_clients = {record["selected_on"] for record in records} == {CLIENTS}
        usual = (*_ON_CLIENTS, *usual) if of_clients else (*usual, *_ON_CLIENTS)
    order = [_BY_NAME[text].name for text in stated if text in _BY_NAME]
    return tuple(NUMBERS[name] for name in dict.fromkeys((*order, *usual)))


def _check_primary(text: str, records: Sequence[Record]) -> None:
    """Raise UsageError unless pictures and the page can show a board's primary metric."""
    primary = _BY_NAME.get(text)
    if primary is None:
        names = ", ".join(number.short for number in ACCURACIES)
        raise UsageError(
            f"the primary metric here is {text}, but pictures and the page compare one of {names}: "
            f"name one first in board.toml; bench.compare prints any metric"
        )
    if all(record[f"{primary.name}_mean"] is None for record in records):
        raise UsageError(
            f"the primary metric here is {text}, which no run has: name another one first in "
            "board.toml"
        )


@dataclass(frozen=True)
class Named:
    """A stored run with a readable name.

    Args:
        row: its columns.
        name: such as `fedcad digits mlp alpha=0.1 participation=0.5 gamma=0.5 seed 0`.
        order: a sort key: data set, model, algorithm, values, seed.
    """

    row: Mapping[str, Any]
    name: str
    order: tuple[Any, ...]


def named_runs(rows: Sequence[Mapping[str, Any]]) -> Iterator[Named]:
    """Yield the runs of a folder, each under a name that no other has.

    Args:
        rows: with the columns `algorithm`, `setting_json`, `hp_json` and `seed`.
    """
    settings = {row["setting_json"]: json.loads(row["setting_json"]) for row in rows}
    values: dict[tuple[str, str], dict[str, Any]] = {}
    for row in rows:
        algorithm = row["algorithm"]
        values[algorithm, row["hp_json"]] = own_names(algorithm, json.loads(row["hp_json"]))
    fields = differing((setting["dataset"], setting) for setting in settings.values())
    names = differing((algorithm, params) for (algorithm, _), params in values.items())
    for row in rows:
        setting = settings[row["setting_json"]]
        params = values[row["algorithm"], row["hp_json"]]
        worth = worth_saying(row["algorithm"], params, names)
        differing_fields = fields[setting["dataset"]]
        shown = [(name, setting[name]) for name in _AXES if setting.get(name) is not None]
        for name, value in setting.items():
            if name in differing_fields and name not in _MAIN:
                shown.append((name, value))
        shown += [(name, value) for name, value in params.items() if name in worth]
        place = [str(setting[name]) for name in _PLACE]
        values_shown = [f"{name}={typed(value)}" for name, value in shown]
        words = [row["algorithm"], *place, *values_shown, f"seed {row['seed']}"]
        order = (*place, row["algorithm"], [sortable(value) for _, value in shown], row["seed"])
        yield Named(row, printable(" ".join(words)), order)


def worth_saying(
    algorithm: str, own: Mapping[str, Any], differing: Mapping[str, Collection[str]]
) -> set[str]:
    """Select the hyper-parameters that tell an algorithm's runs apart, by `own_name`.

    Runs differ in them, or their value is not the default.
    """
    entry = ALGORITHMS.get(algorithm.removesuffix(FINETUNED))
    defaults = own_names(algorithm, entry.defaults()) if entry else {}
    off_default = {name for name, value in own.items() if defaults.get(name) != value}
    return off_default.union(differing[algorithm])

"""The leaderboard: a pure function from one row per run to one row per configuration."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from math import inf
from typing import Any

import pandas as pd

from leaderboards.data_copies import on_other_data
from leaderboards.numbers import ANY, FRACTION, NUMBERS, Number
from leaderboards.problems import CONFIGURATION, FINETUNED, PERSONAL, REFERENCES, cell_of
from leaderboards.replicates import by_partition, keyed_by_partition
from leaderboards.rows.frames import by_text
from leaderboards.rows.schema import (
    ENVIRONMENT,
    HP_PREFIX,
    PLATFORM,
    SETTING_COLUMNS,
    hyperparameter_columns,
    place_key,
)
from leaderboards.selection import CLIENTS, DEFAULT_RULE, selectable, selecting_number
from leaderboards.stats.best import from_best
from leaderboards.stats.seeds import INTERVAL_FROM, Seeds, t_limits, to_compare

CONTEST = ["cell", "algorithm", "model"]  # the configurations among which one is selected
# Metrics in which it is tested whether a row can be the best of its cell.
TESTED = ("best_accuracy", "final_accuracy", "selected_accuracy")
HASHED_VERSIONS = 10_000  # from here on a version is a hash of code, not a number given by hand
# Columns that `confirmed.confirmed` adds to runs.
CHOICE = ("configurations", "configurations_diverged", "chosen_on")


def leaderboard(
    runs: pd.DataFrame,
    extra: Sequence[Number] = (),
    tuned: Collection[str] = (),
    chosen_by: str = DEFAULT_RULE,
) -> pd.DataFrame:
    """Make the leaderboard of `runs`.

    A *cell* holds results that are compared with each other. They have one setting, alpha and
    participation included; the variants of a model that some algorithms need (`cnn+head`,
    `cnn+bn`) are in the cell of the model.

    A *contest* is one algorithm with one variant in one cell. `selected` marks its configuration
    with the best mean of the number of `chosen_by`, on the samples that `selected_on` names
    (`best_accuracy` if that is `test`), and among equals the first by hp_json. Configurations that
    diverged on a seed take part only if all did. Of the other configurations only those with the
    most seeds take part, so that a lucky single seed does not beat three. If nothing was held out
    to select on, a lone configuration is selected, and none of several.

    Replicates of a partition are averaged first (`by_partition`): a seed is then that of a
    partition.

    Args:
        runs: as `Store.runs()` returns them. Runs of earlier versions of an algorithm do not count
            (`current`). If a configuration has two runs of one seed, the later finished run counts.
            Columns that `confirmed.confirmed` adds are passed on: `configurations`, and a further
            column `chosen_on`.
        extra: numbers beside `NUMBERS`; `runs` must have their columns.
        tuned: fields of the setting that were tuned like hyper-parameters, such as `lr`: settings
            that differ only in them are one cell.
        chosen_by: rule of `selection.RULES`: the validation accuracy by which configurations are
            selected.

    Returns:
        One row per algorithm, configuration and setting, sorted, with the identity columns and

        - `cell`: 16 hexadecimal digits;
        - `n`, `failed`, `stopped`: numbers of seeds by status;
        - `configurations`: number of configurations in the contest that finished a run or were
          stopped by the search; `configurations_diverged`: number of these of which a run diverged;
        - `selected`;
        - `validation_gap`: mean `best_val_accuracy` minus mean `selected_accuracy`, which is of the
          same rounds, or those of the clients' own samples;
        - `diverged`, `shortened`, `uncertified`: true of any finished run; `diverged_count`: number
          of finished runs that diverged;
        - `personal`: whether a run's accuracies are of each client's own model;
        - `platforms`: the platforms of the finished runs, 8 hexadecimal digits each, separated by
          commas (`PLATFORM`);
        - `platforms_mixed`: these are several;
        - `data_mixed`: a finished run has other data than most of the cell (`on_other_data`).

        For each metric of `NUMBERS` there are statistics over finished runs:

        - `_mean`, and `_std` (n - 1; empty for one seed);
        - `_low`, `_high`: 95 % interval by Student's t, from 3 seeds on; not below 0, of accuracies
          not above 1;
        - `_rank`: by means among the selected rows of the cell; 1 is best, ties share the smaller
          rank, and rows with a diverged run share the last one. Reference rows have none. Except
          for costs, rows of fewer than 3 seeds have none beside others with 3;
        - `_excluded`, for metrics in `TESTED`: whether a test over seeds excludes the row from
          being the best of its cell (`stats.best.from_best`); empty for rows without a rank by
          their mean;
        - `_count`, if a finished run may lack the metric: the number of runs that have it. The
          other statistics are empty unless all runs do.
    """
    metrics = {**NUMBERS, **{metric.name: metric for metric in extra}}
    runs = _one_run_per_seed(current(runs, tuned))
    flags = _flags(keyed_by_partition(runs), tuned)
    runs = by_partition(runs, metrics)
    statistics = _statistics(runs[runs["status"] == "finished"], metrics)
    board = _identity(runs, tuned).join([_counts(runs), flags, *statistics])
    board = board.copy().reset_index()  # copied, because pandas warns of frames made of many parts
    if "configurations" not in board:
        tried = board["n"] + board["stopped"] > 0
        contest = [board[name] for name in CONTEST]
        board["configurations"] = tried.astype("int64").groupby(contest).transform("sum")
        diverged = board["diverged"].astype("int64")
        board["configurations_diverged"] = diverged.groupby(contest).transform("sum")
    board["validation_gap"] = _validation_gap(board)
    selected = _selected_configurations(board[board["n"] > 0], chosen_by)
    board["selected"] = board.index.isin(selected)
    board = pd.concat([board, _rank_columns(board, runs, metrics)], axis=1)
    order = ["dataset", "alpha", "participation", "setting_json", "algorithm", "hp_json"]
    return board.sort_values(order, ignore_index=True)[_column_order(board, metrics)]


def current(runs: pd.DataFrame, tuned: Collection[str] = ()) -> pd.DataFrame:
    """Select the runs of a single version in each contest of `leaderboard`.

    It is the version with the most finished seeds, and among equals the highest. The versions of
    algorithms from outside are hashes of code, which have no order: among equals it is the version
    whose run ended last. Results of another version count as another algorithm's: they are neither
    averaged with these results nor selected.
    """
    runs = runs.sort_values("finished", kind="stable", na_position="first")
    frame = runs[["algorithm", "model", "algorithm_version", "finished"]]
    frame = frame.assign(cell=_cells(runs["setting_json"], tuned))
    frame["done"] = runs["seed"].where(runs["status"] == "finished")
    groups = frame.groupby([*CONTEST, "algorithm_version"])
    frame["seeds"] = groups["done"].transform("nunique")
    frame["ended"] = groups["finished"].transform("max")
    numbered = frame["algorithm_version"] < HASHED_VERSIONS
    frame["number"] = frame["algorithm_version"].where(numbered, 0)
    ordered = frame.sort_values(["seeds", "number", "ended"], kind="stable", na_position="first")
    shown = ordered.groupby(CONTEST)["algorithm_version"].transform("last")
    return runs[runs["algorithm_version"] == shown.reindex(runs.index)]


def with_seeds(
    board: pd.DataFrame, runs: pd.DataFrame, metrics: Sequence[Number], tuned: Collection[str] = ()
) -> pd.DataFrame:
    """Add four columns on its finished runs to `board`.

    - `seeds`: metric -> seed -> value. A run that diverged has the accuracy of its last model.
    - `platforms_by_seed`: seed -> keys of the platforms of its replicates.
    - `shortest`: key of an environment -> seconds of the shortest run there.
    - `shares_runs`: whether a run yields a row of another algorithm, too.

    `board` is the leaderboard of `runs` and `tuned`, or some of its rows; `runs` must have the
    columns of `metrics`.
    """
    wanted = pd.MultiIndex.from_frame(board[CONFIGURATION])
    metrics = list(dict.fromkeys(metrics))
    runs = _one_run_per_seed(current(with_sharing(runs), tuned))
    every = _finished_on(keyed_by_partition(runs), wanted)
    ended = {metric.name: _with_diverged_as_they_ended(runs, metric) for metric in metrics}
    runs = by_partition(runs.assign(**ended), ended)
    runs = _finished_on(runs, wanted)
    seeds: dict[tuple[str, ...], dict[str, dict[int, float]]] = {key: {} for key in wanted}
    keys = pd.MultiIndex.from_frame(runs[CONFIGURATION])
    for metric in metrics:
        for key, seed, value in zip(keys, runs["seed"], runs[metric.name], strict=True):
            if pd.notna(value):
                seeds[key].setdefault(metric.name, {})[int(seed)] = float(value)
    columns = {}
    added: dict[str, Mapping[tuple[str, ...], Any]]
    added = {"seeds": seeds, "platforms_by_seed": _platforms(every), "shortest": _shortest(every)}
    for name, by_key in added.items():
        in_order = [by_key.get(key, {}) for key in wanted]
        columns[name] = pd.Series(in_order, index=board.index, dtype=object)
    sharing = pd.MultiIndex.from_frame(every.loc[every["shares_run"], CONFIGURATION])
    columns["shares_runs"] = pd.Series(wanted.isin(sharing), index=board.index)
    return board.assign(**columns)


def _platforms(runs: pd.DataFrame) -> dict[tuple[str, ...], dict[int, set[str]]]:
    """Return configuration -> seed -> keys of platforms."""
    platforms: dict[tuple[str, ...], dict[int, set[str]]] = {}
    keys = pd.MultiIndex.from_frame(runs[CONFIGURATION])
    for key, seed, place in zip(keys, runs["seed"], _place_keys(runs, PLATFORM), strict=True):
        platforms.setdefault(key, {}).setdefault(int(seed), set()).add(place)
    return platforms


def with_sharing(runs: pd.DataFrame) -> pd.DataFrame:
    """Add the column `shares_run`: whether a row's run yields a row of another algorithm, too.

    Rows of one run have one start. Rows after fine-tuning are of the same algorithm. The column is
    added before any algorithm's rows are left out; `with_seeds` adds it where it is missing.
    """
    if "shares_run" in runs:
        return runs
    names = runs["algorithm"].str.removesuffix(FINETUNED)
    counts = names.groupby([runs["started"], runs["seed"]]).transform("nunique")
    return runs.assign(shares_run=counts > 1)


def _shortest(runs: pd.DataFrame) -> dict[tuple[str, ...], dict[str, float]]:
    """Return configuration -> key of an environment -> seconds of the shortest run there."""
    shortest: dict[tuple[str, ...], dict[str, float]] = {}
    keys = pd.MultiIndex.from_frame(runs[CONFIGURATION])
    places = _place_keys(runs, ENVIRONMENT)
    for key, place, seconds in zip(keys, places, runs["seconds"], strict=True):
        times = shortest.setdefault(key, {})
        times[place] = min(float(seconds), times.get(place, inf))
    return shortest


def _finished_on(runs: pd.DataFrame, wanted: pd.MultiIndex) -> pd.DataFrame:
    """Select the finished runs of some configurations."""
    on_board = pd.MultiIndex.from_frame(runs[CONFIGURATION]).isin(wanted)
    return runs[(runs["status"] == "finished") & on_board]


def of_last_model(metric: Number) -> Number | None:
    """Return the accuracy of the last model that a metric has for diverged runs.

    They count in pooled comparisons: leaving them out would favour a method that diverges where it
    is bad. Metrics other than accuracies have no such number.
    """
    for last in (NUMBERS["final_accuracy"], NUMBERS["amp"]):
        if metric.quantity == last.quantity and metric.unit == last.unit:
            return last
    return None


def _with_diverged_as_they_ended(runs: pd.DataFrame, metric: Number) -> pd.Series:
    last = of_last_model(metric)
    if not last:
        return runs[metric.name]
    finite = ~runs["diverged"].fillna(False).astype(bool)  # empty for a failed run
    return runs[metric.name].astype("float64").where(finite, runs[last.name])


def _one_run_per_seed(runs: pd.DataFrame) -> pd.DataFrame:
    runs = runs.assign(done=runs["status"] == "finished")
    runs = runs.sort_values(["done", "finished"], kind="stable")
    runs = runs.drop_duplicates([*CONFIGURATION, "seed"], keep="last")
    return runs.sort_values([*CONFIGURATION, "seed"], kind="stable").drop(columns="done")


def _identity(runs: pd.DataFrame, tuned: Collection[str]) -> pd.DataFrame:
    columns = [*CONFIGURATION, *SETTING_COLUMNS, *_choice_columns(runs)]
    board = runs[columns].drop_duplicates(CONFIGURATION)
    board = board.join(_hyperparameters(board["hp_json"]))
    return board.assign(cell=_cells(board["setting_json"], tuned)).set_index(CONFIGURATION)


def _cells(settings: pd.Series, tuned: Collection[str]) -> pd.Series:
    return by_text(settings, lambda text: cell_of(text, tuned)).astype(str)


def _hyperparameters(texts: pd.Series) -> pd.DataFrame:
    """Make a column `hp_<name>` of each hyper-parameter.

    It is text unless all values are numbers, or all are booleans.
    """
    configurations = {text: json.loads(text) for text in texts.unique()}
    names = sorted(set().union(*configurations.values()))
    columns = {}
    for name in names:
        values = [configurations[text].get(name) for text in texts]
        columns[HP_PREFIX + name] = _typed_column(values, texts.index)
    return pd.DataFrame(columns, index=texts.index)


def _typed_column(values: list[Any], index: pd.Index) -> pd.Series:
    kinds = {type(value) for value in values if value is not None}
    if kinds == {bool}:
        return pd.Series(values, index, "boolean")
    if kinds <= {int, float}:
        return pd.Series(values, index, "float64" if float in kinds else "Int64")
    texts = [value if isinstance(value, str | None) else json.dumps(value) for value in values]
    return pd.Series(texts, index)


def _choice_columns(frame: pd.DataFrame) -> list[str]:
    return [name for name in CHOICE if name in frame]


def _counts(runs: pd.DataFrame) -> pd.DataFrame:
    status_of = {"n": "finished", "failed": "failed", "stopped": "stopped"}
    frame = runs[CONFIGURATION].copy()
    for name, status in status_of.items():
        frame[name] = (runs["status"] == status).astype("int64")
    diverged = (runs["status"] == "finished") & runs["diverged"].astype(bool)
    frame["diverged_count"] = diverged.astype("int64")
    counts = frame.groupby(CONFIGURATION).sum()
    rules = runs.groupby(CONFIGURATION)["selected_on"].agg(["nunique", "first"])
    return counts.assign(selected_on=rules["first"].where(rules["nunique"] == 1, "mixed"))


def _flags(runs: pd.DataFrame, tuned: Collection[str]) -> pd.DataFrame:
    """Flag each configuration by all of its runs, those that `by_partition` averages included."""
    finished = (runs["status"] == "finished").astype(bool)
    flags = {name: runs[name].astype(bool) & finished for name in ("diverged", "shortened")}
    flags["uncertified"] = runs["certified"].eq(False) & finished
    # Rows of earlier versions do not say whose models they are.
    personal_by_name = runs["algorithm"].isin(PERSONAL)
    personal = runs["personal"].astype("boolean").fillna(personal_by_name)
    flags["personal"] = personal.astype(bool)
    cells = _cells(runs["setting_json"], tuned)
    other_data = on_other_data(runs[finished], cells[finished])
    flags["data_mixed"] = other_data.reindex(runs.index, fill_value=False)
    platforms = _place_keys(runs, PLATFORM).where(finished)
    groups = runs[CONFIGURATION].assign(**flags, platforms=platforms).groupby(CONFIGURATION)
    any_run = groups[list(flags)].any()
    return any_run.assign(
        platforms=groups["platforms"].agg(lambda names: ", ".join(sorted(names.dropna().unique()))),
        platforms_mixed=groups["platforms"].nunique() > 1,
    )


def _statistics(finished: pd.DataFrame, metrics: Mapping[str, Number]) -> list[pd.DataFrame]:
    values = finished[[*CONFIGURATION, *metrics]]
    values = values.astype(dict.fromkeys(metrics, "float64"))
    groups = values.groupby(CONFIGURATION)
    tables = {"mean": groups.mean(), "std": groups.std(ddof=1)}
    count = groups.count()
    signed = [name for name, metric in metrics.items() if metric.unit == ANY]
    shares = [name for name, metric in metrics.items() if metric.unit == FRACTION]
    both_limits = t_limits(tables["mean"], tables["std"], count)
    for side, limits in zip(("low", "high"), both_limits, strict=True):
        unclipped = pd.DataFrame(limits, index=count.index, columns=count.columns)
        clipped = unclipped.clip(lower=0.0)
        clipped[signed] = unclipped[signed]
        clipped[shares] = clipped[shares].clip(upper=1.0)  # true means lie there, too
        tables[side] = clipped
    complete = count.eq(groups.size(), axis=0)  # there is no mean over some of the seeds
    partial = _may_lack(metrics)
    statistics = []
    for name, table in tables.items():
        statistics.append(table.where(complete).add_suffix(f"_{name}"))
    return [*statistics, count[partial].add_suffix("_count")]


def _may_lack(metrics: Mapping[str, Number]) -> list[str]:
    """Select the numbers that a finished run may lack."""
    return [name for name, metric in metrics.items() if metric.optional]


def _place_keys(runs: pd.DataFrame, columns: Sequence[str]) -> pd.Series:
    """Compute the `place_key` of each run, once for equal values."""
    key_of: dict[str, str] = {}
    keys = []
    for values in runs[list(columns)].astype(object).itertuples(index=False, name=None):
        text = str(values)
        if text not in key_of:
            key_of[text] = place_key(dict(zip(columns, values, strict=True)), columns)
        keys.append(key_of[text])
    return pd.Series(keys, index=runs.index, dtype=object)


def _validation_gap(board: pd.DataFrame) -> pd.Series:
    """Return mean validation minus mean test accuracy, in the rounds that validation selects."""
    gap = board["best_val_accuracy_mean"] - board["selected_accuracy_mean"]
    of_clients = board["best_client_val_accuracy_mean"] - board["selected_client_accuracy_mean"]
    return gap.where(board["selected_on"] != CLIENTS, of_clients)


def _selected_configurations(board: pd.DataFrame, chosen_by: str) -> list[int]:
    """Return the positions of the selected configurations; each row of `board` has a finished run.

    `chosen_by`: rule of `selection.RULES`.
    """
    contests = board.groupby(CONTEST)
    alone = contests["n"].transform("size") == 1
    single_rule = contests["selected_on"].transform("nunique") == 1
    rule = contests["selected_on"].transform("first").where(single_rule)
    score = board["best_accuracy_mean"].where(rule == "test")
    for samples in ("validation", CLIENTS):
        number = selecting_number(chosen_by, samples)
        score = score.where(rule != samples, board[f"{number}_mean"])
    able = selectable(board, CONTEST)
    seeds = board["n"].where(able)
    most = seeds.groupby([board[name] for name in CONTEST]).transform("max")
    score = score.where(seeds == most)
    names = ["hp_json", "setting_json"]
    tried = board[names].assign(score=score.map(to_compare), contest=contests.ngroup())
    tried = tried[score.notna() & ~alone]
    # Of equals the first is selected, hence the sorting by name.
    tried = tried.sort_values(names).sort_values("score", ascending=False, kind="stable")
    return [*board.index[alone], *tried.drop_duplicates("contest").index]


def _rank_columns(
    board: pd.DataFrame, runs: pd.DataFrame, metrics: Mapping[str, Number]
) -> pd.DataFrame:
    """Make the columns `_rank` of all metrics, and `_excluded` of those in `TESTED`."""
    rivals = board["selected"] & ~board["algorithm"].isin(REFERENCES)
    ranked = rivals & ~board["diverged"]
    last = rivals & board["diverged"]
    tested = ranked & (board["n"] >= INTERVAL_FROM)  # `seeds.rankable`, of all cells at once
    enough = ranked & (tested | ~tested.groupby(board["cell"]).transform("any"))
    columns = {}
    for metric in metrics.values():
        competing = enough if metric.differs_by_seed else ranked
        columns[f"{metric.name}_rank"] = _ranks(board, competing, last, metric)
    for name in TESTED:
        columns[f"{name}_excluded"] = _excluded(board[enough], runs, metrics[name])
    return pd.DataFrame(columns, index=board.index)


def _ranks(board: pd.DataFrame, ranked: pd.Series, last: pd.Series, metric: Number) -> pd.Series:
    """Rank the rows in `ranked` by their means in their cells.

    The rows in `last` share the next rank.
    """
    if not metric.better:
        return pd.Series(pd.NA, index=board.index, dtype="Int64")
    means = board[f"{metric.name}_mean"].where(ranked).map(to_compare).groupby(board["cell"])
    ranks = means.rank(method="min", ascending=not metric.higher_is_better)
    after_all = means.transform("count") + 1
    return ranks.mask(last, after_all).astype("Int64")


def _excluded(ranked: pd.DataFrame, runs: pd.DataFrame, metric: Number) -> pd.Series:
    """Test in each cell which rows can be its best.

    `runs` has one run for each configuration and seed.
    """
    ranked = ranked[ranked[f"{metric.name}_mean"].notna()]
    places = ranked[[*CONFIGURATION, "cell"]].assign(place=ranked.index)
    finished = runs.loc[runs["status"] == "finished", [*CONFIGURATION, "seed", metric.name]]
    places = places.merge(finished)
    excluded: dict[Any, bool] = {}
    for _, rows in places.groupby("cell"):
        values: dict[str, Seeds] = {}
        for position, group in rows.groupby("place"):
            values[str(position)] = dict(zip(group["seed"], group[metric.name], strict=True))
        for distance in from_best(values, metric.higher_is_better):
            excluded[int(distance.algorithm)] = distance.excluded
    return pd.Series(excluded, dtype="boolean")


def _column_order(board: pd.DataFrame, metrics: Mapping[str, Number]) -> list[str]:
    columns = ["cell", *CONFIGURATION, *hyperparameter_columns(board.columns), *SETTING_COLUMNS]
    columns += ["selected_on", "n", "failed", "stopped"]
    columns += [*_choice_columns(board), "selected", "validation_gap"]
    columns += ["diverged", "diverged_count", "shortened"]
    columns += ["uncertified", "platforms", "platforms_mixed", "data_mixed", "personal"]
    for name in metrics:
        columns += [f"{name}_{part}" for part in ("mean", "std", "low", "high", "rank")]
    columns += [f"{name}_excluded" for name in TESTED]
    columns += [f"{name}_count" for name in _may_lack(metrics)]
    return columns

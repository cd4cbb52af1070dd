"""Our runs beside printed numbers: which runs correspond to a number, and whole tables of them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from board import assert_approved
from rows import Pair, failed_row, sound_row, write

from bench.compare.command import main
from bench.planning.tables import TablePlace, places_of
from leaderboards import Store
from leaderboards.published import Counterpart, printed_cells
from leaderboards.replication import Replication, replications, shortened_by

# Of each place in turn: the seeds that finished, and what is unlike print in them.
CASES: tuple[tuple[tuple[int, ...], dict[str, Any]], ...] = (
    ((0, 1, 2), {}),
    ((0, 1), {"rounds": 20}),
    ((), {"status": "failed"}),
    ((), {"status": "stopped", "error": None}),
    ((0, 1, 2), {"diverged": True}),
    ((0, 1), {"failed": 2}),
    ((0, 1), {"other_copy": 1}),
    ((0,), {"model": "mlp", "fraction": 0.5}),
    ((), {}),
)


def finished(place: TablePlace, seed: int, level: float, **told: Any) -> Pair:
    """A run of a place; `told` are fields of its setting, or columns."""
    (run_spec, *_) = place.run_specs
    setting = run_spec.setting.as_dict()
    fields = {name: told.pop(name) for name in list(told) if name in setting}
    if fields.get("model"):
        setting.pop("model_version", None)
    curve = []
    for at, share in enumerate((0.5, 0.8, 1.0, 0.98), 1):
        curve += [(at, "accuracy", round(level * share, 4)), (at, "communications", 2.0 * at)]
        curve += [(at, "train_steps", 20.0 * at), (at, "val_accuracy", level * share)]
    hyperparameters = dict(run_spec.hyperparameters)
    columns = {"shortened": bool(fields), **told}
    row = sound_row(curve, run_spec.algorithm, hyperparameters, setting | fields, seed, **columns)
    return row, curve


def runs_of(place: TablePlace, case: int) -> Iterator[Pair]:
    """The runs of a place in one of `CASES`."""
    seeds, unlike = CASES[case]
    fields = {
        name: value for name, value in unlike.items() if name in ("rounds", "model", "fraction")
    }
    level = min(0.95, place.printed.value if place.printed.value < 1 else 0.9)
    for seed in seeds:
        told = dict(fields)
        if unlike.get("diverged") and seed == 1:
            told["diverged"] = True
        if unlike.get("other_copy") == seed:
            told["dataset_hash"] = "ef56"
        yield finished(place, seed, level + (seed - 1) / 50, **told)
    status = unlike.get("status") or ("failed" if "failed" in unlike else None)
    if status:
        row, _ = finished(place, 2, level)
        kept = ("algorithm", "hp_json", "setting_json", "run_key")
        ended = failed_row(status=status, error=unlike.get("error", "out of memory"))
        same = {name: value for name, value in row.items() if ended[name] is not None}
        identity = {name: row[name] for name in (*kept, "seed")}
        yield {**ended, **same, **identity, "status": status, "error": ended["error"]}, []


@pytest.mark.parametrize(
    ("paper", "table", "words"),
    [
        ("fedgkd", "3", "--dataset cifar10"),
        ("fedgkd", "3", "--dataset cifar10 --alpha 0.1 --format json"),
        ("fedcad", "1", ""),
        ("feddkd", "III", "--format csv"),
    ],
)
def test_a_papers_table(
    paper: str, table: str, words: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    places = [place for place in places_of(paper, table) if place.run_specs]
    pairs: dict[str, Pair] = {}
    for at, place in enumerate(places):
        for row, curve in runs_of(place, at % len(CASES)):
            pairs[row["run_key"]] = row, curve
    write(tmp_path, list(pairs.values()))
    assert main(["--out", str(tmp_path), "--paper", paper, "--table", table, *words.split()]) == 0
    shown = capsys.readouterr()
    form = words.rpartition("--format ")[2] if "--format" in words else "table"
    assert_approved(f"print/{paper}_{table}_{form}.txt", f"{shown.out}\n{shown.err}", tmp_path)


# Which runs correspond to a number

ASKED = {"rounds": 100, "local_epochs": 5, "fraction": 1.0, "model": "cnn", "lr": 0.1}


@pytest.mark.parametrize(
    ("changed", "shortened"),
    [
        ({}, {}),
        ({"rounds": 20}, {"rounds": 20}),
        ({"fraction": 0.5, "local_epochs": 1}, {"fraction": 0.5, "local_epochs": 1}),
        ({"model": "mlp", "model_version": 2}, {"model": "mlp", "model_version": 2}),
        ({"rounds": 200}, None),
        ({"rounds": 20, "local_epochs": 6}, None),
        ({"lr": 0.2}, None),
        ({"momentum": 0.9}, None),
    ],
)
def test_shorter_runs_of_a_setting(
    changed: dict[str, Any], shortened: dict[str, Any] | None
) -> None:
    assert shortened_by(ASKED, ASKED | changed) == shortened
    assert shortened_by({**ASKED, "later": 1}, ASKED) is None


PLACE = next(place for place in places_of("fedgkd", "3") if place.printed.dataset == "cifar10")
FULL = PLACE.run_specs[0].setting.rounds


def found(tmp_path: Path, pairs: list[Pair], *others: dict[str, Any]) -> Replication:
    """What is taken for the first number of FedGKD's Table 3; `others` are numbers beside it."""
    write(tmp_path, pairs)
    run_spec = PLACE.run_specs[0]
    row, _ = finished(PLACE, 0, 0.5)
    setting = run_spec.setting.as_dict()
    asked = [Counterpart(PLACE.printed, run_spec.algorithm, row["hp_json"], setting, "")]
    for fields in others:
        asked.append(Counterpart(PLACE.printed, "fedavg", row["hp_json"], setting | fields, ""))
    return replications(asked, Store(tmp_path))[0]


def failed(pair: Pair) -> Pair:
    row, _ = pair
    return {**row, "status": "failed", "error": "out of memory"}, []


def test_a_finished_run_precedes_a_nearer_failed_one(tmp_path: Path) -> None:
    pairs = [failed(finished(PLACE, 0, 0.9)), finished(PLACE, 0, 0.5, rounds=FULL // 2)]
    result = found(tmp_path, pairs)
    assert (result.state, result.n, result.incomplete) == ("value", 1, 0)
    assert result.shortened == {"rounds": FULL // 2}
    assert result.values == (0.5,)


def test_the_printed_model_precedes_more_rounds(tmp_path: Path) -> None:
    pairs = [finished(PLACE, 0, 0.4, rounds=2), finished(PLACE, 0, 0.9, model="mlp")]
    assert found(tmp_path, pairs).values == (0.4,)


@pytest.mark.parametrize(
    ("nearer", "further"),
    [
        ({"rounds": 30}, {"rounds": 20}),
        ({"rounds": 30, "fraction": 0.1}, {"rounds": 20, "fraction": 1.0}),
        ({"local_epochs": 3}, {"local_epochs": 2}),
        ({}, {"fraction": 0.5}),
    ],
)
def test_the_longest_run_is_taken(
    nearer: dict[str, Any], further: dict[str, Any], tmp_path: Path
) -> None:
    pairs = [finished(PLACE, 0, 0.8, **further), finished(PLACE, 0, 0.4, **nearer)]
    assert found(tmp_path, pairs).values == (0.4,)
    longer = finished(PLACE, 1, 0.9, rounds=2 * FULL)
    assert found(tmp_path / "more", [*pairs, longer]).values == (0.4,)


def test_a_full_run_of_another_number_is_no_short_one(tmp_path: Path) -> None:
    pairs = [finished(PLACE, 0, 0.4, local_epochs=10)]
    assert found(tmp_path, pairs).state == "value"
    assert found(tmp_path, pairs, {"local_epochs": 10}).state == "missing"


def test_seeds_that_ended_otherwise_are_counted(tmp_path: Path) -> None:
    pairs = [finished(PLACE, 0, 0.4), failed(finished(PLACE, 1, 0.4))]
    pairs.append(finished(PLACE, 2, 0.6, dataset_hash="ef56"))
    pairs.append(finished(PLACE, 3, 0.5, dataset_hash=None, diverged=True))
    result = found(tmp_path, pairs)
    assert (result.state, result.n, result.incomplete) == ("diverged", 3, 1)
    assert (result.copies, result.diverged, sorted(result.values)) == (2, 1, [0.4, 0.5, 0.6])
    assert result.shortened == {}


def test_states_without_a_value(tmp_path: Path) -> None:
    cell = next(cell for cell in printed_cells() if cell.rule == "to_target")
    counterpart = Counterpart(cell, "fedavg", "{}", {}, "")
    reached = Replication(counterpart, "unreached", (3.0,), n=2)
    assert (reached.mean, reached.std, reached.difference, reached.overlap) == (None,) * 4
    single = Replication(counterpart, "value", (3.0,), n=1)
    assert (single.mean, single.std) == (3.0, None)
    assert single.difference == 3.0 - cell.value
    assert Replication(counterpart, "missing") == Replication(
        counterpart, "missing", (), n=0, incomplete=0, shortened={}, copies=1, diverged=0
    )

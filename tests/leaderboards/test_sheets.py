"""Tables and sheets by themselves: states, marks, captions and notes, beside no rendered page."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pandas as pd
import pytest
from rows import make_row, tables_of

from leaderboards import problems
from leaderboards.board import leaderboard, with_seeds
from leaderboards.flags import FLAGS, STATES
from leaderboards.numbers import NUMBERS
from leaderboards.problems import Problem
from leaderboards.published import Counterpart, PrintedCell, printed_cells
from leaderboards.replication import Replication, replication_sheet
from leaderboards.tables.captions import _LOCAL, captions, local_training
from leaderboards.tables.model import Sheet, TableCell, flat, number_text
from leaderboards.tables.sheets import against, against_best
from search_spaces import setting_defaults


def printed(**where: Any) -> list[PrintedCell]:
    """The printed numbers of FedGKD's Table 3 on CIFAR-10 with these values."""
    where = {"paper": "fedgkd", "table": "3", "dataset": "cifar10", **where}
    matching = [cell for cell in printed_cells() if where.items() <= vars(cell).items()]
    assert matching
    return matching


def counterpart(cell: PrintedCell) -> Counterpart:
    """A configuration of ours for it."""
    return Counterpart(cell, "fedavg", "{}", {"rounds": 100, "fraction": 1.0}, "")


def sheet_of(*replications: Replication) -> Sheet:
    """The sheet of some numbers beside print."""
    return replication_sheet(list(replications), "a title")


def words(sheet: Sheet) -> list[str]:
    """The texts of its cells, row by row."""
    texts: list[str] = []
    for row in sheet.table.rows:
        texts += [cell.text() for cell in row.cells]
    return texts


# Numbers beside print


def test_a_number_stands_beside_print() -> None:
    cell = printed(printed="FedAvg")[0]
    ours = (cell.value + 0.01, cell.value + 0.03)
    sheet = sheet_of(Replication(counterpart(cell), "value", ours, n=2))
    (record,) = sheet.records
    assert record["ours"] == pytest.approx(cell.value + 0.02)
    assert record["difference"] == pytest.approx(0.02)
    assert record["ours_std"] == pytest.approx(0.02 / 2**0.5)
    texts = words(sheet)
    assert texts[0].startswith(f"{100 * (cell.value + 0.02):.2f} ± 1.41 (2)")
    assert texts[1].startswith(f"{100 * cell.value:.2f}")
    assert texts[2].startswith("+2.00")


@pytest.mark.parametrize(
    ("state", "text", "explained"),
    [("missing", "not run", False), ("failed", "failed", True), ("stopped", "stopped", True)],
)
def test_a_state_without_number(state: str, text: str, explained: bool) -> None:
    sheet = sheet_of(Replication(counterpart(printed()[0]), state))
    assert words(sheet)[0] == text
    assert any(note.startswith(text) for note in sheet.table.notes) == explained
    assert sheet.records[0]["ours"] is None


MARKS: dict[str, Mapping[str, Any]] = {
    "†": {"shortened": {"rounds": 3}},
    "§": {"incomplete": 1},
    FLAGS["data"].mark: {"copies": 2},
}


@pytest.mark.parametrize("mark", MARKS)
def test_a_mark_is_explained_once(mark: str) -> None:
    first, second = printed()[:2]
    plain = Replication(counterpart(first), "value", (0.5,), n=1)
    marked = Replication(counterpart(second), "value", (0.5,), n=1, **MARKS[mark])
    sheet = sheet_of(plain, marked)
    assert sum(mark in text for text in words(sheet)) == 1
    assert sum(note.startswith(mark) for note in sheet.table.notes) == 1
    assert not any(note.startswith(mark) for note in sheet_of(plain).table.notes)
    absent = sheet_of(Replication(counterpart(first), "missing", **MARKS[mark]))
    assert words(absent)[0] == f"not run{mark}", "what was not run may have been tried"


def test_shortened_fields_are_named_with_both_values() -> None:
    shortened = Replication(
        counterpart(printed()[0]), "value", (0.5,), n=1, shortened={"rounds": 3, "other": 1}
    )
    (note,) = [note for note in sheet_of(shortened).table.notes if note.startswith("†")]
    assert "rounds 3 for 100" in note
    assert "other" not in note
    assert shortened.overlap is None


def test_fields_common_to_all_places_are_captions() -> None:
    cells = printed(printed="FedAvg", participation=0.2)
    assert len({cell.alpha for cell in cells}) > 1
    sheet = sheet_of(*(Replication(counterpart(cell), "missing") for cell in cells))
    shared = sheet.table.captions[0]
    assert "cifar10" in shared
    assert "C = 0.2" in shared
    assert "α" not in shared
    labels = {head.label for head in sheet.table.heads}
    assert labels == {f"α = {cell.alpha:g}" for cell in cells}


def test_cells_with_runs_are_counted() -> None:
    first, second, third = printed()[:3]
    sheet = sheet_of(
        Replication(counterpart(first), "value", (0.5,), n=1),
        Replication(counterpart(second), "value", (0.5,), n=1, shortened={"rounds": 3}),
        Replication(counterpart(third), "missing"),
    )
    assert sheet.table.captions[-1].startswith("2 of 3 printed cells have runs, 1 of them")


def test_intervals_overlap_or_lie_apart() -> None:
    cell = replace(printed()[0], value=0.5, std=0.01)
    near = Replication(counterpart(cell), "value", (0.50, 0.52), n=2)
    far = Replication(counterpart(cell), "value", (0.60, 0.62), n=2)
    lone = Replication(counterpart(replace(cell, std=None)), "value", (0.6,), n=1)
    assert (near.overlap, far.overlap, lone.overlap) == (True, False, None)
    assert far.difference == pytest.approx(0.11)
    touching = Replication(counterpart(replace(cell, std=0.25)), "value", (0.75,), n=1)
    assert touching.overlap
    partial = Replication(counterpart(cell), "unreached", (0.5,), n=2)
    assert (partial.mean, partial.std, partial.difference) == (None, None, None)
    assert words(sheet_of(partial))[0] == "reached 1 of 2"


# Captions of a table


def table_with(*metrics: str, rows: list[dict[str, Any]] | None = None) -> Any:
    """The one table of some rows, with these metrics."""
    runs = pd.DataFrame(rows or [make_row("fedavg"), make_row("fedprox", {"mu": 0.1})])
    numbers = [NUMBERS[name] for name in metrics]
    (table,) = tables_of(with_seeds(leaderboard(runs), runs, numbers), numbers)
    return table


def test_alike_metrics_share_a_caption() -> None:
    caption = table_with("best_accuracy", "final_accuracy").captions[0]
    quantity = NUMBERS["best_accuracy"].quantity
    assert caption.lower().count(quantity.lower()) == 1


def test_unlike_metrics_are_described_one_by_one() -> None:
    metrics = ("best_accuracy", "fm", "bytes_up")
    caption = table_with(*metrics).captions[0]
    for name in metrics:
        described = NUMBERS[name]
        assert f"{described.short}: {described.quantity}" in caption
        assert described.unit.shown in caption


def test_columns_of_unlike_seeds_are_told_from_algorithms() -> None:
    """Where each column's algorithms share seeds, comparing by seed has nothing to add."""
    rows = []
    for name, hyperparameters in (("fedavg", {}), ("fedprox", {"mu": 0.1})):
        for alpha, seeds in ((0.1, 3), (1.0, 4)):
            for seed in range(seeds):
                rows.append(make_row(name, hyperparameters, {"alpha": alpha}, seed))
    notes = table_with("best_accuracy", rows=rows).notes
    assert "columns are of different seeds" in notes
    assert not any("algorithms ran on different seeds" in note for note in notes)
    notes = table_with("best_accuracy", rows=rows[1:]).notes
    assert "algorithms ran on different seeds: --reference compares seed by seed" in notes
    assert "columns are of different seeds" not in notes


def test_a_constant_difference_of_few_seeds_has_its_reason() -> None:
    rows = []
    for seed in range(3):
        rows.append(make_row("fedavg", seed=seed))
        rows.append(make_row("ditto", {"lam": 0.1}, seed=seed, personal=True))
    sheet = against_best(table_with("best_accuracy", rows=rows))
    assert sheet is not None
    assert any("same difference at all of too few seeds" in note for note in sheet.table.notes)
    assert any("ditto: of each client's own" in caption for caption in sheet.table.captions)


def test_exclusion_is_marked_without_an_interval() -> None:
    """A third algorithm without common seeds bounds no interval, and hides no exclusion."""
    rows = []
    for seed in range(5):
        rows.append(make_row("fedavg", seed=seed, best_accuracy=0.4 + seed / 100))
        rows.append(make_row("fedprox", {"mu": 0.1}, seed=seed, best_accuracy=0.6 + seed / 90))
        rows.append(make_row("ditto", {"lam": 0.1}, seed=10 + seed, best_accuracy=0.5))
    sheet = against_best(table_with("best_accuracy", rows=rows))
    assert sheet is not None
    texts = {row.label: row.cells[0].text() for row in sheet.table.rows}
    assert texts["fedavg"].endswith("no interval×")
    assert texts["fedprox"].endswith("no interval")
    notes = " ".join(sheet.table.notes)
    assert "× excluded" in notes
    assert "no interval: with some rival fewer than 3 common seeds" in notes
    assert "algorithms ran on different seeds" in notes


def test_marks_that_do_not_occur_are_not_explained() -> None:
    rows = []
    for seed in range(3):
        rows.append(make_row("fedavg", seed=seed, best_accuracy=0.4 + seed / 100))
        rows.append(make_row("ditto", {"lam": 0.1}, seed=seed, best_accuracy=0.41))
    sheet = against_best(table_with("best_accuracy", rows=rows))
    assert sheet is not None
    notes = " ".join(sheet.table.notes)
    assert "×" not in notes
    assert "no interval" not in notes
    assert "different seeds" not in notes


def test_numbers_in_brackets_are_common_seeds() -> None:
    rows = []
    for seed in range(4):
        rows.append(make_row("fedavg", seed=seed))
        rows.append(make_row("fedprox", {"mu": 0.1}, seed=seed + 1))
    sheet = against(table_with("best_accuracy", "bytes_up", rows=rows), "fedavg")
    assert sheet is not None
    texts = next(words(sheet) for row in sheet.table.rows if row.label == "fedprox")
    assert sum("(3)" in text for text in texts) == 2
    assert "(n) common seeds" in sheet.table.notes


@pytest.mark.parametrize("diverged", [False, True])
def test_a_dash_for_a_difference_is_explained(diverged: bool) -> None:
    rows = []
    for seed in range(3):
        rows.append(make_row("fedavg", seed=seed))
        rows.append(make_row("fedgkd", seed=seed))
        rows.append(make_row("fedprox", {"mu": 0.1}, seed=seed, diverged=diverged))
    sheet = against(table_with("best_accuracy", rows=rows), "fedavg")
    assert sheet is not None
    assert ("–" in words(sheet)) == diverged
    assert any(note.startswith("– no difference") for note in sheet.table.notes) == diverged


def test_local_training_leaves_out_usual_values() -> None:
    setting = {"optimizer": "sgd", "lr": 0.1, "momentum": 0.0, "lr_decay": 0.9, "batch_size": 8}
    assert local_training(setting) == "sgd, lr 0.1, lr decay 0.9, batch size 8"
    assert local_training(setting, ["momentum", "rounds"]).endswith("momentum 0")
    assert "clip_norm 5" in local_training({**setting, "clip_norm": 5.0}, ["clip_norm"])


def test_what_captions_leave_out_is_the_settings_default() -> None:
    defaults = setting_defaults()
    left_out = {name: usual for name, _, usual in _LOCAL if usual is not None}
    assert left_out == {name: defaults[name] for name in left_out}
    assert "clip_norm 1" in local_training({**defaults, "clip_norm": 1.0})


def test_numbers_of_configurations_are_ranges() -> None:
    rows = [make_row("fedprox", {"mu": mu}, best_val_accuracy=0.5 + mu) for mu in (0.1, 0.2, 0.3)]
    rows += [make_row("fedprox", {"mu": 0.1}, {"participation": 0.5})]
    table = table_with("best_accuracy", rows=[make_row("fedavg"), *rows])
    (tried,) = [line for line in table.captions if line.startswith("Configurations tried")]
    assert tried.endswith("fedavg 1, fedprox 1-3")


def test_gaps_are_ordered_by_value() -> None:
    gaps = {"fedavg": 0.02, "fedprox": -0.01, "moon": 0.005}
    records = [
        {
            **{"algorithm": name, "model": "mlp", "n": 1, "diverged": False},
            **{"configurations": 2, "configurations_diverged": 0, "personal": False},
            **{"chosen_on": "seed 0", "validation_gap": gap, "selected_on": "validation"},
        }
        for name, gap in gaps.items()
    ]
    problem = Problem({"lr": 0.1}, ("alpha",), (problems.Cell((0.5,), tuple(records)),))
    gap_line = captions(problem, [NUMBERS["best_accuracy"]])[-1]
    assert gap_line.endswith(": -1.00 (fedprox) to 2.00 (fedavg)")


# Cells


def test_cells_are_told_by_state() -> None:
    metric = NUMBERS["best_accuracy"]
    for state in ("missing", "failed", "stopped", "diverged"):
        assert TableCell(state, metric).text() == STATES[state][0]
        assert not TableCell(state, metric).competes
    record = {"n": 3, "selected": True, "best_accuracy_count": 2}
    unreached = TableCell("unreached", metric, record)
    assert unreached.text() == "2 of 3"
    assert (unreached.competes, unreached.is_pooled) == (False, False)
    assert TableCell("diverged", metric, record).is_pooled
    assert not TableCell("value", metric, {**record, "selected": False}).competes


def test_intervals_stand_in_brackets() -> None:
    metric = NUMBERS["best_accuracy"]
    record = {"n": 3, "selected": True}
    parts = {"mean": 0.5, "std": 0.01, "low": 0.48, "high": 0.52}
    record |= {f"best_accuracy_{part}": value for part, value in parts.items()}
    assert TableCell("value", metric, record).text() == "50.00 ± 1.00 (3)"
    assert TableCell("value", metric, record, interval=True).text() == "50.00 [48.00, 52.00] (3)"
    assert TableCell("value", metric, record, marks=("partial",)).text() == "50.00 ± 1.00 (3)§"


def test_numbers_have_a_sign_on_request() -> None:
    metric = NUMBERS["best_accuracy"]
    assert number_text(0.123456, metric) == "12.35"
    assert number_text(0.123456, metric, sign=True) == "+12.35"
    assert number_text(-0.00001, metric) == "0.00", "no negative zero"
    assert number_text(None, metric) == ""


def test_flat_records_carry_the_stored_numbers() -> None:
    rows = [make_row("fedavg", seed=seed, best_accuracy=0.4 + seed / 10) for seed in (0, 1)]
    (record,) = flat(table_with("best_accuracy", rows=rows))
    assert (record["mean"], record["n"], record["with_value"]) == (pytest.approx(0.45), 2, 2)
    assert (record["state"], record["algorithm"], record["metric"]) == (
        "value",
        "fedavg",
        "best_accuracy",
    )


@pytest.mark.parametrize(
    ("metric", "values"),
    [
        ("final_accuracy", {"fedavg": (0.6, 0.7), "fedprox": (0.5, 0.9)}),
        ("seconds", {"fedavg": (10.0, 20.0), "fedprox": (12.0, 9.0)}),
    ],
)
def test_of_equal_places_the_better_mean_comes_first(
    metric: str, values: Mapping[str, tuple[float, float]]
) -> None:
    rows = []
    for name, pair in values.items():
        for alpha, value in zip((0.1, 1.0), pair, strict=True):
            for seed in range(3):
                rows.append(make_row(name, {}, {"alpha": alpha}, seed, **{metric: value}))
    metrics = [NUMBERS[metric]]
    (table,) = tables_of(leaderboard(pd.DataFrame(rows)), metrics)
    assert [row.label for row in table.rows] == ["fedprox", "fedavg"]

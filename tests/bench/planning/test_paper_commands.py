"""Tables as commands: what `--paper P --table T` runs, what its dry run says, and ours beside print."""

from __future__ import annotations

import json
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

import pytest
from rows import failed_row, make_row
from test_published import COUNTS, TABLES

from algorithms import entry
from bench.compare import command as compare
from bench.planning.options import SweepOptions
from bench.planning.planner import make_plan
from bench.planning.run_spec import RunSpec, distinct_runs
from bench.planning.tables import TablePlace, counterparts_of, places_of, table_of
from bench.sweep import command as sweep
from leaderboards import Store, identity_columns
from leaderboards.published import Counterpart, PrintedCell, printed_cells
from leaderboards.replication import Replication
from search_spaces import SETTINGS
from search_spaces import TABLES as SPACES_TABLES

CIFAR = ("--paper", "fedgkd", "--table", "3", "--dataset", "cifar10")


def plan_of(paper: str, table: str, **options: Any) -> Any:
    values = {name: tuple(texts) for name, texts in options.pop("values", {}).items()}
    asked = {"algo": (), "dataset": "", "seeds": 1} | options
    return make_plan(SweepOptions(paper=paper, table=table, values=values, **asked))


def run(*arguments: str) -> int:
    return sweep.main([*arguments, "--executor", "inline", "-q"])


# What a table runs.


@pytest.mark.parametrize(("paper", "table"), TABLES)
def test_every_printed_cell_has_runs(paper: str, table: str) -> None:
    cells = places_of(paper, table)
    assert [cell.printed for cell in cells] == [
        c for c in printed_cells() if (c.paper, c.table) == (paper, table)
    ]
    for cell in cells:
        printed, setting = cell.printed, cell.setting
        assert (setting.dataset, setting.alpha, setting.num_clients) == (
            printed.dataset,
            printed.alpha,
            printed.num_clients,
        )
        assert (setting.participation, setting.local_epochs) == (
            printed.participation,
            printed.local_epochs,
        )
        assert setting.rounds == (
            printed.rounds if printed.rounds and not printed.read_to else setting.rounds
        )
        assert {run_spec.algorithm for run_spec in cell.run_specs} == {printed.algorithm}
        for run_spec in cell.run_specs:
            assert printed.variant.items() <= run_spec.hyperparameters.items()


def test_cells_that_are_read_off_one_run() -> None:
    def figures(paper: str, table: str) -> tuple[int, int, int]:
        run_specs = [run_spec for cell in places_of(paper, table) for run_spec in cell.run_specs]
        return (
            len(places_of(paper, table)),
            len({run_spec.key for run_spec in run_specs}),
            len(distinct_runs(run_specs)),
        )

    assert figures("fedgkd", "5") == (64, 32, 32), "best and final of one run"
    assert figures("fedgkd", "6") == (32, 8, 8), "four rounds of one run"
    assert figures("feddkd", "II") == (84, 30, 30), "FedDKD@60 is read off the run of 660 rounds"
    assert figures("fedkf", "3") == (72, 24, 15), "T1 evaluates another model of the same run"


def test_the_papers_choices() -> None:
    buffers = {
        (cell.printed.dataset, cell.printed.alpha): cell.run_specs[0].hyperparameters["buffer"]
        for cell in places_of("fedgkd", "3")
        if cell.printed.algorithm == "fedgkd" and cell.printed.dataset != "tiny_imagenet"
    }
    assert buffers == dict(
        zip(product(("cifar10", "cifar100"), (1.0, 0.5, 0.1)), (5, 1, 5, 5, 7, 5), strict=True)
    )
    weights = {
        cell.printed.alpha: cell.run_specs[0].hyperparameters["gamma"]
        for cell in places_of("fedkf", "3")[-9:]
    }
    assert weights == {1.0: 0.001, 0.1: 1.0, 0.01: 1.0}


def test_unstated_choices_run_all_configurations() -> None:
    cells = {
        cell.printed.algorithm: cell
        for cell in places_of("fedcad", "2")
        if cell.printed.alpha == 0.5
    }
    assert {name: len(cell.run_specs) for name, cell in cells.items()} == {
        "fedavg": 1,
        "fedprox": 3,
        "fedlsd": 3,
        "fedcad": 10,
    }
    assert cells["fedcad"].tried == ("beta", "gamma")
    assert all(
        run_spec.hyperparameters["beta"] <= run_spec.hyperparameters["gamma"]
        for run_spec in cells["fedcad"].run_specs
    )


def test_cells_are_runs_of_ordinary_sweeps() -> None:
    values = {"alpha": ("0.1",), "buffer": ("5",)}
    own = make_plan(SweepOptions(("fedgkd",), "cifar10", "fedgkd", values=values, seeds=2))
    table = plan_of(
        "fedgkd", "3", algo=("fedgkd",), dataset="cifar10", values={"alpha": ["0.1"]}, seeds=2
    )
    assert [run_spec.key for run_spec in table.run_specs] == [
        run_spec.key for run_spec in own.run_specs
    ]


def test_a_table_runs_the_rate_that_was_chosen() -> None:
    """FedGKD tuned FedAvg's lr and set it as 0.05; another one is beside no printed number."""
    narrow = {"algo": ("fedavg",), "dataset": "cifar10"}
    plan = plan_of("fedgkd", "3", values={"alpha": ["0.1"]}, **narrow)
    assert [run_spec.setting.lr for run_spec in plan.run_specs] == [0.05]
    assert [one.label for one in counterparts_of(plan.places[0])] == [""]
    other = plan_of("fedgkd", "3", values={"alpha": ["0.1"], "lr": ["0.1"]}, **narrow)
    assert [run_spec.setting.lr for run_spec in other.run_specs] == [0.1]
    assert any("beside no cell" in note for note in other.notes)


def test_local_epochs_narrow_or_shorten_tables() -> None:
    narrowed = plan_of("fedcad", "4", values={"local_epochs": ["1"]})
    assert len(narrowed.places) == 4
    assert not any(run_spec.shortened for run_spec in narrowed.run_specs)
    shortened = plan_of("fedcad", "2", values={"local_epochs": ["1"]})
    assert len(shortened.places) == 16
    assert all(
        run_spec.shortened and run_spec.setting.local_epochs == 1
        for run_spec in shortened.run_specs
    )


def test_runs_are_shortened() -> None:
    short = {"rounds": ["2"], "local_epochs": ["1"], "fraction": ["0.1"]}
    plan = plan_of("fedgkd", "3", dataset="cifar10", values=short)
    assert len(plan.run_specs) == 3 * 8
    assert all(run_spec.shortened for run_spec in plan.run_specs)
    assert {
        (u.setting.rounds, u.setting.local_epochs, u.setting.fraction) for u in plan.run_specs
    } == {(2, 1, 0.1)}
    assert plan.origins == dict.fromkeys(short, "command line")
    full = plan_of("fedgkd", "3", dataset="cifar10", values={"rounds": ["100"]})
    assert not any(run_spec.shortened for run_spec in full.run_specs), "as many as printed"


def test_hyperparameters_choose_among_the_configurations() -> None:
    plan = plan_of(
        "fedcad",
        "1",
        dataset="cifar10",
        algo=("fedcad",),
        values={"beta": ["0.3"], "gamma": ["0.5"]},
    )
    assert [(u.hyperparameters["beta"], u.hyperparameters["gamma"]) for u in plan.run_specs] == [
        (0.3, 0.5)
    ]
    assert not plan.notes
    other = plan_of(
        "fedcad", "1", dataset="cifar10", algo=("fedcad",), values={"temperature": ["1"]}
    )
    assert len(other.run_specs) == 10
    assert "beside no cell" in other.notes[0]


BAD = {
    "table": (["--paper", "fedgkd", "--table", "10"], ["'10'", "3, 4, 5, 6, 7, 8, 9, fig2"]),
    "data set": ([*CIFAR[:4], "--dataset", "sst5"], ["sst5", "cifar10, cifar100, tiny_imagenet"]),
    "algorithm": ([*CIFAR, "--algo", "fedkf"], ["fedkf", "fedavg, fedprox, moon"]),
    "longer": ([*CIFAR, "--rounds", "200"], ["rounds=200", "100"]),
    "out of range": ([*CIFAR, "--lr", "-1"], ["error: lr must be > 0, got -1.0"]),
    "relation": (
        ["--paper", "fedcad", "--table", "1", "--set", "beta=0.9", "gamma=0.1"],
        ["beta <= gamma"],
    ),
    "search": ([*CIFAR, "--search", "random"], ["--search"]),
    "unfit": (
        [*CIFAR[:4], "--rounds", "2", "--model", "lenet5"],
        ["FedAvg on tiny_imagenet", "lenet5"],
    ),
}


@pytest.mark.parametrize("name", BAD)
def test_mistakes_end_with_status_2(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments, said = BAD[name]
    assert run(*arguments, "--dry-run", "--out", str(tmp_path)) == 2
    complaint = capsys.readouterr().err
    assert all(part in complaint for part in said), complaint


# What the dry run says.


def test_a_dry_run_begins_with_a_line_on_the_table(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FEDKD_DATA", str(tmp_path))
    arguments = ["--paper", "fedcad", "--table", "3", "--dry-run", "--out", str(tmp_path)]
    assert run(*arguments) == 0
    line = capsys.readouterr().out.splitlines()[0]
    assert line.startswith("Table 3 of fedcad: 12 printed cells, ")
    assert line.endswith("that the paper tried is run"), "in one line, on any terminal"


@pytest.mark.parametrize(
    ("paper", "table"), [("fedgkd", "fig2"), ("feddkd", "III"), ("fedcad", "2"), ("fedkf", "3")]
)
def test_dry_runs_count_cells_models_and_runs(
    paper: str,
    table: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv(
        "FEDKD_DATA", str(tmp_path)
    )  # counts need no data, and drawing partitions takes a while
    assert (
        run(
            "--paper",
            paper,
            "--table",
            table.lower(),
            "--dry-run",
            "--json",
            "--out",
            str(tmp_path),
        )
        == 0
    )
    said = json.loads(capsys.readouterr().out)
    assert said["printed_cells"] == COUNTS[paper][table]
    assert said["runs"] == said["to_do"] <= said["models_evaluated"]
    assert said["seeds"] == table_of(paper, table)[1].runs


# Ours beside print.


def cell(
    algorithm: str = "fedavg", paper: str = "fedgkd", table: str = "9", **where: Any
) -> TablePlace:
    where = {"dataset": "cifar10", "algorithm": algorithm} | where
    found = [
        c
        for c in places_of(paper, table)
        if all(getattr(c.printed, k) == v for k, v in where.items())
    ]
    return found[0]


def store_run(
    out: Path, run_spec: RunSpec, seed: int = 0, curve: list[Any] | None = None, **columns: Any
) -> None:
    found = entry(run_spec.algorithm)
    setting = columns.pop("setting", {})
    make = failed_row if columns.get("status") == "failed" else make_row
    row = make(
        run_spec.algorithm,
        dict(run_spec.hyperparameters),
        run_spec.setting.as_dict() | setting,
        seed,
        found.version,
        **columns,
    )
    Store(out).write(row, curve or [(1, "accuracy", columns.get("best_accuracy", 0.5))])


def beside_of(
    out: Path,
    capsys: pytest.CaptureFixture[str],
    *arguments: str,
    paper: str = "fedgkd",
    table: str = "9",
) -> list[dict[str, Any]]:
    assert (
        compare.main(
            ["--paper", paper, "--table", table, "--format", "json", "--out", str(out), *arguments]
        )
        == 0
    )
    (document,) = json.loads(capsys.readouterr().out)["tables"]
    return list(document["cells"])


def test_ours_stand_beside_print(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for seed, accuracy in enumerate((0.69, 0.70, 0.71)):
        store_run(tmp_path, cell().run_specs[0], seed, best_accuracy=accuracy)
    found = beside_of(tmp_path, capsys, "--dataset", "cifar10")
    assert [(one["printed_as"], one["state"]) for one in found] == [
        ("FedAvg", "value"),
        ("FedGKD-MSE[M=1]", "missing"),
        ("FedGKD[M=1]", "missing"),
    ]
    ours = found[0]
    assert (ours["n"], ours["printed"], ours["printed_std"]) == (3, 0.6922, 0.0091)
    assert (ours["ours"], ours["ours_std"], ours["difference"]) == pytest.approx(
        (0.70, 0.01, 0.0078)
    )
    assert ours["overlap"] is True
    assert ours["shortened"] == ""
    assert found[1]["ours"] is None, "what was not run is not made up"


def test_the_table_in_its_own_layout(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    store_run(tmp_path, cell().run_specs[0], best_accuracy=0.80)
    assert compare.main(["--paper", "fedgkd", "--table", "9", "--out", str(tmp_path)]) == 0
    lines = capsys.readouterr().out.splitlines()
    (fedavg,) = [
        line.split("  ") for line in lines if line.startswith("FedAvg") and "80.00" in line
    ]
    assert [word.strip() for word in fedavg if word.strip()][:4] == [
        "FedAvg",
        "80.00 (1)",
        "69.22 ± 0.91 [1]",
        "+10.78 apart",
    ]
    text = "\n".join(lines)
    assert text.index("FedGKD-MSE[M=1]") < text.index("FedGKD[M=1]"), "rows in the order of print"


@pytest.mark.parametrize(
    ("style", "row"), [("md", "| FedAvg | 80.00 (1) |"), ("latex", "FedAvg & 80.00 (1) &")]
)
def test_the_table_in_other_formats(
    style: str, row: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    store_run(tmp_path, cell().run_specs[0], best_accuracy=0.80)
    assert (
        compare.main(
            ["--paper", "fedgkd", "--table", "9", "--format", style, "--out", str(tmp_path)]
        )
        == 0
    )
    assert row in capsys.readouterr().out


def test_full_runs_replace_shortened_runs(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run_spec = cell().run_specs[0]
    short = {"rounds": 2, "local_epochs": 1, "fraction": 0.1}
    store_run(tmp_path, run_spec, 0, setting=short, best_accuracy=0.2, shortened=True)
    store_run(
        tmp_path, run_spec, 1, setting=short | {"rounds": 5}, best_accuracy=0.3, shortened=True
    )
    found = beside_of(tmp_path, capsys)[0]
    assert (found["ours"], found["n"]) == (0.3, 1), (
        "runs of unlike length are not averaged: the longer counts"
    )
    assert found["shortened"] == "fraction=0.1, local_epochs=1, rounds=5"
    assert compare.main(["--paper", "fedgkd", "--table", "9", "--out", str(tmp_path)]) == 0
    assert "30.00 (1)†" in capsys.readouterr().out
    store_run(tmp_path, run_spec, 0, best_accuracy=0.7)
    found = beside_of(tmp_path, capsys)[0]
    assert (found["ours"], found["n"], found["shortened"]) == (0.7, 1, "")


def test_outside_models_are_marked_by_name(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run_spec, version = cell().run_specs[0], entry("fedavg").version
    setting = run_spec.setting.as_dict() | {"model": "mine:net", "model_version": "1"}
    row = make_row("fedavg", {}, run_spec.setting.as_dict(), best_accuracy=0.3)
    Store(tmp_path).write(
        row | identity_columns("fedavg", version, {}, setting, 0), [(1, "accuracy", 0.5)]
    )
    assert compare.main(["--paper", "fedgkd", "--table", "9", "--out", str(tmp_path)]) == 0
    assert "model mine:net for resnet8" in capsys.readouterr().out


def test_other_problems_stand_for_no_cell(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for setting in ({"lr": 0.01}, {"rounds": 200}, {"alpha": 0.2}, {"augmentation": "none"}):
        store_run(tmp_path, cell().run_specs[0], setting=setting)
    run_spec = cell("fedgkd").run_specs[0]
    store_run(
        tmp_path, replace(run_spec, hyperparameters={**run_spec.hyperparameters, "buffer": 3})
    )
    assert {one["state"] for one in beside_of(tmp_path, capsys, "--dataset", "cifar10")} == {
        "missing"
    }


def test_what_went_wrong_is_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    store_run(tmp_path, cell().run_specs[0], 0, best_accuracy=0.1, diverged=True)
    store_run(tmp_path, cell("fedgkd").run_specs[0], 0, status="failed", error="out of memory")
    store_run(tmp_path, cell("fedgkd_mse").run_specs[0], 0, best_accuracy=0.7)
    store_run(tmp_path, cell("fedgkd_mse").run_specs[0], 1, status="failed", error="out of memory")
    found = beside_of(tmp_path, capsys, "--dataset", "cifar10")
    assert [one["state"] for one in found] == ["diverged", "value", "failed"]
    assert compare.main(["--paper", "fedgkd", "--table", "9", "--out", str(tmp_path)]) == 0
    out = capsys.readouterr().out
    assert "DIVERGED 1/1 10.00 (1)" in out
    assert "70.00 (1)§" in out


def test_seeds_on_several_copies_are_marked(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    store_run(tmp_path, cell().run_specs[0], 0, best_accuracy=0.3)
    store_run(tmp_path, cell().run_specs[0], 1, best_accuracy=0.5, dataset_hash="ef56")
    assert compare.main(["--paper", "fedgkd", "--table", "9", "--out", str(tmp_path)]) == 0
    assert "40.00 ± 14.14 (2)‖" in capsys.readouterr().out


def curve_of(accuracy: list[float], per_round: int) -> list[tuple[int, str, float]]:
    points = [(at, "accuracy", value) for at, value in enumerate(accuracy, 1)]
    points += [(at, "val_accuracy", value) for at, value in enumerate(accuracy, 1)]
    return points + [
        (at, "communications", float(per_round * at)) for at in range(1, len(accuracy) + 1)
    ]


def test_missed_targets_are_not_averaged(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run_spec = cell("feddkd", "feddkd", "III").run_specs[0]
    store_run(tmp_path, run_spec, 0, curve_of([0.5, 0.75, 0.8], 4))
    one = ("--algo", "feddkd")
    found = {
        (c["printed_as"], c["metric"]): c
        for c in beside_of(tmp_path, capsys, *one, paper="feddkd", table="III")
    }
    assert found["FedDKD", "rounds_to_acc_0.74"]["ours"] == 2
    assert found["FedDKD", "comm_rounds_to_acc_0.74"]["ours"] == 8
    assert found["FedDKD@87", "rounds_to_acc_0.74"]["ours"] == 2
    store_run(tmp_path, run_spec, 1, curve_of([0.5, 0.6, 0.7], 4))
    found = {
        (c["printed_as"], c["metric"]): c
        for c in beside_of(tmp_path, capsys, *one, paper="feddkd", table="III")
    }
    missed = found["FedDKD", "rounds_to_acc_0.74"]
    assert (missed["state"], missed["ours"], missed["with_value"], missed["n"]) == (
        "unreached",
        None,
        1,
        2,
    )
    assert compare.main(["--paper", "feddkd", "--table", "III", *one, "--out", str(tmp_path)]) == 0
    assert "reached 1 of 2" in capsys.readouterr().out


def test_compare_refuses_unknown_parts_of_tables(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for arguments, said in (
        (["--paper", "fedgkd", "--table", "10"], "it has: 3, 4"),
        (["--paper", "fedgkd"], "go together"),
        (["--paper", "fedgkd", "--table", "3", "--alpha", "7"], "1, 0.5, 0.1"),
        (["--paper", "fedgkd", "--table", "3", "--where", "lr=0.1"], "--where"),
        (["--paper", "fedgkd", "--table", "3", "--over-cells"], "--over-cells"),
        (["--paper", "fedgkd", "--table", "3", "--confirmed"], "--confirmed"),
        (["--paper", "fedgkd", "--table", "3", "--board", "reference"], "leave out --board\n"),
    ):
        assert (
            compare.main(
                [*arguments, *([] if "--board" in arguments else ["--out", str(tmp_path)])]
            )
            == 2
        )
        assert said in capsys.readouterr().err


@pytest.mark.parametrize(
    ("values", "printed_std", "expected"),
    [
        ((0.69, 0.71), None, True),
        ((0.60, 0.61), None, False),
        ((0.72,), 0.03, True),
        ((0.72,), 0.01, False),
        ((0.72,), None, None),
        ((0.64, 0.66), 0.05, True),
    ],
)
def test_overlap(
    values: tuple[float, ...], printed_std: float | None, expected: bool | None
) -> None:
    printed: PrintedCell = replace(printed_cells()[0], value=0.70, std=printed_std)
    asked = Counterpart(printed, "fedavg", "{}", {}, "")
    assert Replication(asked, "value", values, len(values)).overlap is expected


def test_every_papers_setting_has_a_table() -> None:
    """So that none can be wrong without a printed cell to be held against."""
    used = {
        (paper, cell.dataset)
        for (paper, table) in SPACES_TABLES
        for cell in SPACES_TABLES[paper, table].settings
    }
    subsets = {("fedcad", "femnist_letters"), ("fedcad", "femnist_digits")}
    others = {
        key for key in SETTINGS if key[0] in ("fedkd", "fedkf_printed")
    }  # printed, but not as a table
    assert used == set(SETTINGS) - others - subsets
    for key in subsets:
        assert replace(SETTINGS[key], dataset="femnist") == SETTINGS["fedcad", "femnist"]

"""`--confirm N`: configurations chosen on seed 0, reported by other seeds alone, in a sweep and of what is stored."""

from __future__ import annotations

import csv
import io
import json
import random
import shutil
from datetime import timedelta
from itertools import product
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from commands import ROOT
from rows import CURVE, failed_row, make_row, write

from algorithms import ALGORITHMS, entry
from bench.compare.command import main as compare
from bench.planning.confirm import confirmation, stand_ins, tuned_at
from bench.planning.options import SweepOptions
from bench.planning.plan import Plan
from bench.planning.planner import make_plan
from bench.planning.run_spec import row_entry
from bench.report.command import main as report
from bench.status import main as status
from bench.stored.results import read
from bench.sweep.command import main as sweep
from leaderboards import Store
from leaderboards.board import leaderboard
from leaderboards.confirmed import chosen, confirmed
from leaderboards.selection import Selection

SHORT = (
    "--dataset",
    "digits",
    "--rounds",
    "1",
    "--local-epochs",
    "1",
    "--executor",
    "inline",
    "-q",
)
TOLD = {"best_val_accuracy", "selected_accuracy", "final_accuracy"}


def grid_of_rows(seeds: int = 4) -> list[dict[str, Any]]:
    """Two algorithms, four configurations each, in three cells of which one was tuned: every seed of all, at random."""
    generator = random.Random(0)
    rows = []
    for mu, lr, participation, seed in product(
        (0.1, 1.0), (0.01, 0.1), (0.2, 0.5, 1.0), range(seeds)
    ):
        for algorithm, values in (("fedprox", {"mu": mu}), ("fedgkd", {"gamma": mu})):
            told = {name: generator.random() for name in sorted(TOLD)}
            rows.append(
                make_row(
                    algorithm, values, {"lr": lr, "participation": participation}, seed, **told
                )
            )
    return rows


def test_the_choice_is_that_of_a_recomputation_by_hand_and_no_run_of_the_search_is_reported():
    runs = pd.DataFrame(grid_of_rows())
    kept = confirmed(runs, ["lr"], {"participation": 0.2}, {})
    assert set(kept["seed"]) == {1, 2, 3}
    board = leaderboard(kept, tuned=["lr"])

    lr = runs["setting_json"].map(lambda text: json.loads(text)["lr"])
    frame = runs.assign(lr=lr)[["algorithm", "hp_json", "lr", "participation", "seed", *TOLD]]
    for algorithm, own in frame.groupby("algorithm"):
        searched = own[(own["seed"] == 0) & (own["participation"] == 0.2)]
        best = searched.loc[searched["best_val_accuracy"].idxmax()]
        reported = own[
            (own["hp_json"] == best["hp_json"]) & (own["lr"] == best["lr"]) & (own["seed"] > 0)
        ]
        means = reported.groupby("participation")[sorted(TOLD)].mean()
        rows = board[board["algorithm"] == algorithm].set_index("participation").sort_index()
        assert list(rows.index) == [0.2, 0.5, 1.0]
        assert rows["final_accuracy_mean"].to_list() == pytest.approx(
            means["final_accuracy"].to_list()
        )
        gaps = means["best_val_accuracy"] - means["selected_accuracy"]
        assert rows["validation_gap"].to_list() == pytest.approx(gaps.to_list())
        assert rows["selected"].all()
        assert set(rows["configurations"]) == {4}
        assert set(rows["chosen_on"]) == {"seed 0 at participation=0.2"}
        assert set(rows["n"]) == {3}


def test_a_configuration_diverged_on_seed_0_confirms_nothing():
    values = {0.1: 0.3, 1.0: 0.6}
    rows = [
        make_row("fedprox", {"mu": mu}, {}, seed, best_val_accuracy=value)
        for mu, value in values.items()
        for seed in range(3)
    ]
    rows[3]["diverged"] = True  # seed 0 of mu = 1
    kept = confirmed(pd.DataFrame(rows), [], {}, {})
    assert kept["hp_json"].unique().tolist() == ['{"mu":0.1}']
    counts = leaderboard(kept)[["configurations", "configurations_diverged"]]
    assert counts.to_numpy().tolist() == [[2, 1]]
    rows[3]["diverged"] = False
    rows[2]["diverged"] = True  # seed 2 of mu = 0.1, which does not select
    assert confirmed(pd.DataFrame(rows), [], {}, {})["hp_json"].unique().tolist() == ['{"mu":1.0}']


def test_failed_searches_choose_nothing_and_failed_confirmations_are_counted():
    setting = {"participation": 0.2}
    good, better = (
        make_row("fedprox", {"mu": 0.1}, setting),
        failed_row("fedprox", {"mu": 1.0}, setting),
    )
    others = [
        make_row("fedprox", {"mu": 0.1}, setting, 1),
        failed_row("fedprox", {"mu": 0.1}, setting, 2),
    ]
    (row,) = leaderboard(confirmed(pd.DataFrame([good, better, *others]), [], {}, {})).to_dict(
        "records"
    )
    assert (json.loads(row["hp_json"]), row["n"], row["failed"]) == ({"mu": 0.1}, 1, 1)
    assert confirmed(pd.DataFrame([better, *others]), [], {}, {}).empty


def test_another_version_of_the_algorithm_confirms_nothing():
    rows = [
        make_row("fedprox", {"mu": 0.1}, seed=0, version=2),
        make_row("fedprox", {"mu": 0.1}, seed=1, version=1),
    ]
    assert confirmed(pd.DataFrame(rows), [], {}, {}).empty


def test_an_earlier_version_with_other_hyper_parameters_confirms_nothing():
    plan = plan_of("fedprox", values={"mu": ("0.1",)})
    setting = plan.run_specs[0].setting.as_dict()
    old = make_row("fedprox", {"mu": 0.1, "old_name": 1.0}, setting, version=0)
    assert confirmation(plan, pd.DataFrame([old])).run_specs == ()


def test_an_earlier_version_is_not_chosen_by_another_learning_rate():
    old, new = (
        make_row("fedprox", {"mu": 0.1}, {"lr": lr}, version=version, best_val_accuracy=score)
        for lr, version, score in ((0.3, 1, 0.9), (0.1, 2, 0.4))
    )
    rows = [old | {"finished": new["finished"] - timedelta(hours=1)}, new]
    (winner,) = chosen(pd.DataFrame(rows), ["lr"], {}, {}).to_dict("records")
    assert winner["run_key"] == new["run_key"]
    assert len(chosen(pd.DataFrame(rows), [], {}, {})) == 2, (
        "two cells, each with a version of its own"
    )


def test_a_variant_of_a_model_confirms_its_own_choice():
    models = ("mlp", "mlp+head", "mlp+bn", "cnn_digits", "cnn_digits+head")
    rows = [
        make_row("moon", {"mu": 1.0}, {"model": model}, seed) for model in models for seed in (0, 1)
    ]
    rows = [row for row in rows if row["seed"] or row["model"] != "cnn_digits"]
    kept = confirmed(pd.DataFrame(rows), [], {"model": "mlp"}, {})
    assert sorted(kept["model"]) == sorted(models)
    with pytest.raises(KeyError, match="new_clients"):
        confirmed(pd.DataFrame(rows), [], {"new_clients": 0.0}, {})
    assert "cnn_digits" not in set(confirmed(pd.DataFrame(rows), [], {}, {})["model"])


def plan_of(*algorithms: str, confirm: tuple[int, ...] = (1, 2), **options: Any) -> Plan:
    return make_plan(SweepOptions(algo=algorithms, confirm=confirm, **options))


def stored(out: Path, plan: Plan, score: dict[str, Any]) -> pd.DataFrame:
    """The runs of a search with validation accuracies by row name and value of mu, as if they had been trained."""
    for run_spec in plan.run_specs:
        for name in run_spec.row_names.values():
            known = {field: run_spec.hyperparameters[field] for field in entry(name).defaults()}
            setting, version = run_spec.setting.as_dict(), entry(name).version
            value = score[name][known["mu"]]
            Store(out).write(
                make_row(name, known, setting, run_spec.seed, version, best_val_accuracy=value),
                CURVE,
            )
    return Store(out).runs()


def test_rows_of_one_run_confirm_a_choice_each(tmp_path):
    plan = plan_of(
        "fedprox",
        "fedprox_t1",
        values={"mu": ("0.1", "1")},
        confirm_at={"participation": ("0.5", "1")},
    )
    assert {run_spec.algorithm for run_spec in plan.run_specs} == {"fedprox_t1"}
    alike = {"fedprox": {0.1: 0.5, 1.0: 0.4}, "fedprox_t1": {0.1: 0.5, 1.0: 0.4}}
    run_specs = confirmation(plan, stored(tmp_path / "alike", plan, alike)).run_specs
    assert [
        (u.algorithm, u.hyperparameters["mu"], u.setting.participation, u.seed) for u in run_specs
    ] == [
        ("fedprox_t1", 0.1, participation, seed) for participation in (0.5, 1.0) for seed in (1, 2)
    ]
    unlike = alike | {"fedprox_t1": {0.1: 0.5, 1.0: 0.6}}
    run_specs = confirmation(plan, stored(tmp_path / "unlike", plan, unlike)).run_specs
    assert {(u.algorithm, u.hyperparameters["mu"]) for u in run_specs} == {
        ("fedprox", 0.1),
        ("fedprox_t1", 1.0),
    }
    assert len(run_specs) == len(stand_ins(plan)) == 2 * 2 * 2


def test_a_second_row_confirms_its_own_choice(tmp_path):
    """Those of `fedproto`, of `fedproto_proto` and of both after further steps have runs."""
    weights = ("0.1", "0.3", "1", "3")
    plan = plan_of(
        "fedproto", values={"proto_weight": weights, "finetune_steps": ("2",)}, confirm=(1,)
    )
    names = [*plan.run_specs[0].row_names.values()]
    assert sorted(names) == ["fedproto", "fedproto_ft", "fedproto_proto", "fedproto_proto_ft"]
    for run_spec in plan.run_specs:
        weight = run_spec.hyperparameters["proto_weight"]
        for suffix, name in run_spec.row_names.items():
            row = row_entry("fedproto", suffix)
            values = row.identifying(run_spec.hyperparameters)
            best = weight == float(weights[names.index(name)])
            setting = run_spec.setting.as_dict()
            Store(tmp_path).write(
                make_row(
                    name, values, setting, 0, row.version, best_val_accuracy=0.9 if best else 0.5
                ),
                CURVE,
            )
    run_specs = confirmation(plan, Store(tmp_path).runs()).run_specs
    assert {run_spec.algorithm for run_spec in run_specs} == {"fedproto"}
    chosen_weights = [run_spec.hyperparameters["proto_weight"] for run_spec in run_specs]
    assert sorted(chosen_weights) == [0.1, 0.3, 1.0, 3.0]
    assert len(stand_ins(plan)) == 4


def test_a_second_row_from_outside_is_confirmed(tmp_path, monkeypatch):
    (tmp_path / "my_prototypes.py").write_text(
        "from algorithms.entry import About\n"
        "from algorithms.fedproto import FedProto\n"
        "class Mine(FedProto):\n"
        "    about = About(paper='mine')\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    plan = plan_of(
        "my_prototypes:Mine", values={"proto_weight": ("0.1", "1")}, confirm=(1,), uncertified=True
    )
    assert len(plan.run_specs[0].row_names) == 2
    assert [run_spec.algorithm for run_spec in stand_ins(plan)] == ["my_prototypes:Mine"] * 2


def test_all_algorithms_can_be_confirmed():
    plan = plan_of("all")
    assert {run_spec.algorithm for run_spec in stand_ins(plan)} <= ALGORITHMS.keys()


def test_the_runs_are_those_that_a_sweep_of_the_choice_would_make(tmp_path):
    plan = plan_of("fedprox", values={"mu": ("0.1", "1")})
    found = confirmation(plan, stored(tmp_path, plan, {"fedprox": {0.1: 0.4, 1.0: 0.5}}))
    sweep_of_it = make_plan(SweepOptions(("fedprox",), values={"mu": ("1",)}, seeds=3))
    assert [run_spec.key for run_spec in found.run_specs] == [
        run_spec.key for run_spec in sweep_of_it.run_specs if run_spec.seed
    ]
    assert found.options.scheduler == "none"


def test_a_field_that_another_one_makes_meaningless_is_named_too():
    plan = plan_of("fedavg", values={"alpha": ("0.1",)}, confirm_at={"partition": ("iid",)})
    assert tuned_at(plan) == {"partition": "lda", "alpha": 0.1}
    assert [run_spec.setting.alpha for run_spec in stand_ins(plan)] == [None, None]


def test_shorter_runs_than_the_papers_are_marked_as_such(tmp_path):
    plan = plan_of(
        "fedprox", values={"mu": ("0.1",), "rounds": ("2",)}, confirm_at={"rounds": ("3", "500")}
    )
    assert {run_spec.shortened for run_spec in plan.run_specs} == {True}
    found = confirmation(plan, stored(tmp_path, plan, {"fedprox": {0.1: 0.5}}))
    assert {run_spec.setting.rounds: run_spec.shortened for run_spec in found.run_specs} == {
        3: True,
        500: False,
    }


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ("--seeds 3", "--seeds"),
        ("--confirm-at lr=1", "--confirm 3"),
        ("--confirm-at participation=2", "--confirm-at"),
        ("--confirm-at dataset=mnist", "dataset"),
        ("--budget 2 --confirm-at lr=0.1", "lr"),
        ("--participation 0.2 0.3 --confirm-at participation=0.5", "participation"),
        ("--paper fedgkd --table 3", "--table"),
        ("--confirm-at precision=tf32", "tf32"),
    ],
)
def test_what_cannot_be_confirmed_is_refused_before_anything_runs(
    tmp_path, capsys, options, problem
):
    confirm = (
        [] if "--confirm " in options or options == "--confirm-at lr=1" else ["--confirm", "2"]
    )
    command = [
        "--algo",
        "fedavg",
        "--device",
        "cpu",
        *confirm,
        *options.split(),
        "--out",
        str(tmp_path / "out"),
    ]
    assert sweep(command) == 2
    assert problem in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


@pytest.fixture(scope="module")
def swept(tmp_path_factory) -> tuple[Path, list[str]]:
    """A folder of a sweep that tuned at one participation and confirmed at two, and its command."""
    out = tmp_path_factory.mktemp("swept")
    what = ["--algo", "fedavg", "fedprox", "--budget", "2", "--lr", "1e-5", "0.1", "--alpha", "5"]
    command = [
        *what,
        "--confirm",
        "2",
        "--confirm-at",
        "participation=0.5,1",
        *SHORT,
        "--out",
        str(out),
    ]
    assert sweep(command) == 0
    return out, command


def test_a_sweep_searches_on_seed_0_and_confirms_on_others(swept, capsys):
    out, command = swept
    runs = Store(out).runs()
    counts = runs.groupby(["algorithm", "participation", "seed"]).size()
    assert counts.to_dict() == {
        (algorithm, participation, seed): 2 if seed == 0 else 1
        for algorithm in ("fedavg", "fedprox")
        for participation, seed in [(0.5, 0), (0.5, 1), (0.5, 2), (1.0, 1), (1.0, 2)]
    }
    assert sweep([*command, "--json"]) == 0
    shown = capsys.readouterr()
    assert "8 runs, 8 already stored, 0 to do" in shown.err
    assert json.loads(shown.out)
    assert len(Store(out).runs()) == len(runs), "the same command again runs nothing"


@pytest.mark.slow
def test_tables_and_page_show_the_confirming_seeds(swept, capsys, tmp_path):
    out, command = swept
    assert sweep(command) == 0
    shown = capsys.readouterr()
    assert "Configurations tried: fedavg 2, fedprox 2" in shown.out
    assert "(2)" in shown.out
    assert "(3)" not in shown.out, "no table counts the search's seed"
    assert "--confirmed participation=0.5" in shown.err

    select = ["--tuned", "lr", "--confirmed", "participation=0.5", "--out", str(out)]
    assert compare([*select, "--metric", "final", "--format", "csv"]) == 0
    runs = Store(out).runs()
    for row in csv.DictReader(io.StringIO(capsys.readouterr().out)):
        own = runs[
            (runs["algorithm"] == row["algorithm"])
            & (runs["participation"] == float(row["participation"]))
        ]
        assert float(row["mean"]) == pytest.approx(
            own.loc[own["seed"] > 0, "final_accuracy"].mean()
        )
        assert (row["n"], row["configurations"], row["chosen_on"]) == (
            "2",
            "2",
            "seed 0 at participation=0.5",
        )

    results = read([out], Selection(("lr",), {"participation": 0.5}))
    assert {run["seed"] for record in results.records for run in record["runs"]} == {1, 2}
    assert set(results.curves) == {run["run_key"] for run in results.runs}
    assert {json.loads(record["hp_json"])["lr"] for record in results.records} == {0.1}
    assert report([*select, "--to", str(tmp_path / "page.html")]) == 0
    assert "participation=0.5" in (tmp_path / "page.html").read_text()


def test_the_page_tells_a_methods_own_lr_from_that_of_local_training(tmp_path):
    rows = [
        make_row("feddkd", {"lr": own, "steps": 1}, {"lr": lr})
        for own, lr in ((0.05, 0.1), (0.2, 0.1), (0.2, 0.3))
    ]
    write(tmp_path, [(row, CURVE) for row in rows])
    assert (
        report(["--tuned", "lr", "--out", str(tmp_path), "--to", str(tmp_path / "page.html")]) == 0
    )
    page = (tmp_path / "page.html").read_text()
    for own, lr in ((0.05, 0.1), (0.2, 0.1), (0.2, 0.3)):
        assert f"feddkd.lr={own} lr={lr}" in page


def test_a_filter_does_not_take_the_search_away(swept, capsys):
    out, _ = swept
    select = [
        "--tuned",
        "lr",
        "--confirmed",
        "participation=0.5",
        "--out",
        str(out),
        "--format",
        "csv",
    ]
    assert compare([*select, "--participation", "1"]) == 0
    rows = list(csv.DictReader(io.StringIO(capsys.readouterr().out)))
    assert {(row["participation"], row["configurations"]) for row in rows} == {("1.0", "2")}


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ("--confirmed participation=0.7", "participation=0.7"),
        ("--confirmed particip=1", "did you mean participation?"),
        ("--confirmed lr=0.1", "--tuned"),
        ("--confirmed --paper fedgkd --table 3", "leave out --tuned, --confirmed"),
    ],
)
def test_compare_refuses_what_was_not_tuned(swept, capsys, options, problem):
    assert compare(["--out", str(swept[0]), "--tuned", "lr", *options.split()]) == 2
    assert problem in capsys.readouterr().err


@pytest.mark.slow
def test_what_is_missing_of_either_half_is_run_again(tmp_path, capsys):
    command = [
        "--algo",
        "fedprox",
        "--set",
        "mu=0.1,1",
        "--confirm",
        "3",
        *SHORT,
        "--out",
        str(tmp_path),
    ]
    assert sweep([*command, "--time-budget", "0"]) == 130
    assert not Store(tmp_path).status(), "an interrupted search confirms nothing"
    assert sweep(command) == 0
    whole = Store(tmp_path).runs().set_index("run_key")["final_accuracy"].to_dict()
    assert len(whole) == 5
    files = sorted((tmp_path / "runs").glob("*.parquet"))
    for file in files[::2]:
        file.unlink()
    capsys.readouterr()
    assert status([*command, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["counts"]["missing"] >= 1
    assert sweep(command) == 0
    assert Store(tmp_path).runs().set_index("run_key")["final_accuracy"].to_dict() == whole


def test_a_dry_run_after_the_search_counts_what_is_left_to_confirm(swept, tmp_path, capsys):
    out, command = swept
    shutil.copytree(out / "runs", tmp_path / "runs")
    shutil.copytree(out / "curves", tmp_path / "curves")
    for seeds, to_do in (("2", 0), ("3", 4)):
        more = ["--confirm", seeds, "--out", str(tmp_path), "--dry-run", "--json"]
        assert sweep([*command, *more]) == 0
        assert json.loads(capsys.readouterr().out)["confirming_runs_to_do"] == to_do


def test_a_dry_run_says_how_many_runs_may_follow(tmp_path, capsys):
    command = [
        "--algo",
        "fedavg",
        "fedprox",
        "--budget",
        "4",
        "--confirm",
        "3",
        "--confirm-at",
        "participation=0.5,1",
    ]
    assert sweep([*command, "--out", str(tmp_path), "--dry-run", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["runs"], found["confirming_runs_at_most"]) == (8, 2 * 2 * 3)
    assert sweep([*command, "--out", str(tmp_path), "--dry-run"]) == 0
    assert "at most 12 runs" in capsys.readouterr().out
    assert sweep([*command, "num_clients=5000", "--out", str(tmp_path), "--dry-run"]) == 0
    assert "NOT feasible" in capsys.readouterr().out


def test_the_converged_board_confirms_one_rate(tmp_path, capsys):
    words = ["--config", str(ROOT / "docs" / "converged.toml"), "--out", str(tmp_path)]
    assert sweep([*words, "--confirm", "101-104", "--dry-run", "--json"]) == 0
    planned = json.loads(capsys.readouterr().out)
    rows = ("fedavg", "fedavg_t1", "fedgkd", "fedgkd_vote", "fedlsd")
    assert planned["runs"] == (len(rows) - 1) * 2
    assert planned["confirming_runs_at_most"] == len(rows) * 4


@pytest.mark.parametrize(
    "search",
    [
        "--executor inline --search optuna --num-samples 2",
        "--executor inline --pack 2 --backend stacked",
        pytest.param("--executor ray --scheduler asha", marks=pytest.mark.slow),
    ],
)
def test_every_kind_of_search_sees_seed_0_alone(tmp_path, search, request):
    if "ray" in search:
        request.getfixturevalue("shared_ray")
    command = [
        "--algo",
        "fedprox",
        "--set",
        "mu=0.1,1",
        "--confirm",
        "2",
        *search.split(),
        "--rounds",
        "3",
    ]
    assert sweep([*command, "--local-epochs", "1", "-q", "--out", str(tmp_path)]) == 0
    runs = Store(tmp_path).runs()
    assert set(runs.loc[runs["seed"] == 0, "status"]) <= {"finished", "stopped"}
    kept = confirmed(runs, [], {}, {})
    assert sorted(kept["seed"]) == [1, 2]
    assert sorted(runs["seed"]) == [0, 0, 1, 2]
    assert set(kept["status"]) == {"finished"}


def test_a_field_that_rows_omit_can_be_confirmed_elsewhere(tmp_path: Path) -> None:
    words = "--algo fedavg --dataset digits --rounds 1 --local-epochs 1 --confirm 1"
    words += " --set local_test_fraction=0.2 --confirm-at finetune_steps=2"
    assert sweep([*words.split(), "--executor", "inline", "--out", str(tmp_path), "-q"]) == 0
    runs = Store(tmp_path).runs()
    assert sorted(runs["seed"]) == [0, 1, 1]
    assert set(runs.loc[runs["seed"] == 1, "algorithm"]) == {"fedavg", "fedavg_ft"}

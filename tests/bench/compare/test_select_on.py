"""`--select-on`: whose accuracy selects, ranks and is shown; what captions say of it."""

from __future__ import annotations

import csv
import io
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from rows import make_row, sound_row, write

from algorithms import ALGORITHMS
from bench.compare.command import main as compare
from bench.figures.command import main as figures
from bench.planning.confirm import confirmation
from bench.planning.cost_model import evaluated_samples
from bench.planning.options import SweepOptions
from bench.planning.planner import make_plan
from bench.planning.run_spec import RunSpec
from bench.report.command import main as report
from bench.stored.results import source_of
from bench.sweep.command import main as sweep
from leaderboards import Store
from leaderboards.board import leaderboard
from leaderboards.numbers import curve_of, number_named, numbers_of
from leaderboards.selection import Selection, selected_on, selecting_number, shown_of
from search_spaces import Setting

OWN = {"local_test_fraction": 0.25, "local_validation_fraction": 0.1}
# By the global model's validation accuracy mu=0.1 is better, by the clients' own mu=1.
CURVES = {
    0.1: {"accuracy": 0.8, "val_accuracy": 0.8, "amp": 0.5, "client_val_accuracy": 0.5},
    1.0: {"accuracy": 0.6, "val_accuracy": 0.6, "amp": 0.7, "client_val_accuracy": 0.7},
}


def rows(personal: bool = False, algorithm: str = "fedprox") -> list[Any]:
    pairs = []
    for mu, values in CURVES.items():
        for seed in range(3):
            curve = [(1, name, value + seed / 100) for name, value in values.items()]
            columns = {"selected_on": "clients", "personal": personal}
            row = sound_row(curve, algorithm, {"mu": mu}, OWN, seed, **columns)
            pairs.append((row, curve))
    return pairs


@pytest.mark.parametrize(
    ("options", "mu", "shown"),
    [
        ((), 1.0, "client_selected"),
        (("--select-on", "clients"), 1.0, "client_selected"),
        (("--select-on", "global"), 0.1, "best"),
    ],
)
def test_the_samples_that_are_asked_for_select(
    options: tuple[str, ...],
    mu: float,
    shown: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    write(tmp_path, rows())
    assert compare(["--out", str(tmp_path), "--format", "csv", *options]) == 0
    records = list(csv.DictReader(io.StringIO(capsys.readouterr().out)))
    assert {json.loads(record["hyperparameters"])["mu"] for record in records} == {mu}
    assert records[0]["metric"] == number_named(shown).name


@pytest.mark.parametrize(("select_on", "mu"), [(None, 1.0), ("global", 0.1)])
def test_a_plan_confirms_what_these_samples_select(
    select_on: str | None, mu: float, tmp_path: Path
) -> None:
    values = {name: (str(value),) for name, value in OWN.items()} | {"mu": ("0.1", "1")}
    options = SweepOptions(("fedprox",), values=values, confirm=(1,), select_on=select_on)
    plan = make_plan(options)
    pairs = []
    for run_spec in plan.run_specs:
        given = dict(run_spec.hyperparameters)
        curve = [(1, name, value) for name, value in CURVES[float(given["mu"])].items()]
        setting = run_spec.setting.as_dict()
        pairs.append((sound_row(curve, "fedprox", given, setting, 0, selected_on="clients"), curve))
    write(tmp_path, pairs)
    confirming = confirmation(plan, Store(tmp_path).runs()).run_specs
    assert [run_spec.hyperparameters["mu"] for run_spec in confirming] == [mu]


def test_captions_name_the_samples_and_the_models(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write(tmp_path, [*rows(), *rows(personal=True, algorithm="mine")])
    assert compare(["--out", str(tmp_path)]) == 0
    text = " ".join(capsys.readouterr().out.split())
    assert "clients' own tests" in text
    assert "clients' own validation samples" in text
    assert "°: of each client's own" in text
    assert compare(["--out", str(tmp_path), "--algo", "mine", "--metric", "best"]) == 0
    text = capsys.readouterr().out
    assert "of each client's own model on the test set" in " ".join(text.split())
    assert "global model" not in text
    assert compare(["--out", str(tmp_path), "--algo", "fedprox", "--metric", "best"]) == 0
    assert "°" not in capsys.readouterr().out


def test_rows_from_before_they_said_so_are_personal_by_name() -> None:
    stored = [make_row(name, personal=None) for name in ("local", "fedbn", "fedavg")]
    stored.append(make_row("mine", personal=True))
    board = leaderboard(pd.DataFrame(stored)).set_index("algorithm")
    assert board["personal"].to_dict() == {
        "local": True,
        "fedbn": True,
        "fedavg": False,
        "mine": True,
    }


def test_the_number_that_selects_follows_setting_and_option() -> None:
    plain = {"validation_fraction": 0.1}
    own = {**plain, **OWN}
    assert [selected_on(plain), selected_on(own), selected_on({})] == [
        "validation",
        "clients",
        "none",
    ]
    assert selected_on(own, "global") == "validation"
    assert selected_on(OWN, "global") == "none"
    assert selected_on(plain, "clients") == "none"
    assert selecting_number("last10", "clients") == "mean_last10_client_val_accuracy"
    assert selecting_number("best", "validation") == "best_val_accuracy"
    runs = pd.DataFrame({"selected_on": ["clients", "validation"]})
    assert shown_of(runs) == ("best", "final")
    assert shown_of(runs[:1]) == ("client_selected", "client_final")


def test_numbers_of_clients_are_read_off_their_curves() -> None:
    amp = {1: 0.4, 2: 0.9, 3: 0.5}
    validation = {1: 0.8, 2: 0.2, 3: 0.7}
    points = [(at, "amp", value) for at, value in amp.items()]
    points += [(at, "client_val_accuracy", value) for at, value in validation.items()]
    points += [(at, "client_worst10", value / 2) for at, value in amp.items()]
    points += [(3, "accuracy", 0.3)] + [(at, "train_loss", 1.0) for at in amp]
    numbers = numbers_of(curve_of(points))
    assert numbers["best_client_accuracy"] == 0.9
    assert numbers["selected_client_accuracy"] == 0.4
    assert numbers["selected_client_round"] == 1
    assert numbers["amp"] == 0.5
    assert numbers["mean_last10_client_accuracy"] == pytest.approx(0.6)
    assert numbers["best_client_val_accuracy"] == 0.8
    assert number_named("client_worst10@selected").value(curve_of(points)) == 0.2
    assert number_named("client_final").name == "amp"
    early = curve_of([point for point in points if point[0] < 3])
    assert numbers_of(early)["amp"] == 0.9, "without the test set before the last round"
    assert numbers_of(early)["final_accuracy"] is None


def test_folders_without_own_tests_cannot_be_selected_on_clients(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write(tmp_path, [(make_row(amp=None), [])])
    assert compare(["--out", str(tmp_path), "--select-on", "clients"]) == 2
    assert "local_validation_fraction" in capsys.readouterr().err
    asked = ["--algo", "fedavg", "--dataset", "digits", "--select-on", "clients", "--dry-run"]
    assert sweep(asked) == 2
    assert "local_validation_fraction" in capsys.readouterr().err


def test_a_scheduler_needs_what_it_compares_in_every_round(
    capsys: pytest.CaptureFixture[str],
) -> None:
    asked = ["--algo", "fedprox", "--dataset", "digits", "--dry-run", "--scheduler", "asha"]
    asked += ["--set", "evaluate_personal=last"]
    assert sweep(asked) == 2
    assert "evaluate_personal" in capsys.readouterr().err
    assert sweep([*asked, *(f"{name}={value}" for name, value in OWN.items())]) == 0


def test_a_presets_runs_keep_their_protocol() -> None:
    for paper in ("fedkf", "fedgkd", "fedcad"):
        plan = make_plan(SweepOptions(algo=("fedavg",), paper=paper, dataset="cifar10"))
        chosen_on = {selected_on(run_spec.setting.as_dict()) for run_spec in plan.run_specs}
        assert chosen_on <= {"validation", "none"}


@pytest.mark.slow
def test_a_sweep_says_whose_accuracy_it_selects_and_shows(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out"
    asked = [
        "--algo",
        "local,fedavg",
        "--dataset",
        "digits",
        "--rounds",
        "2",
        "--local-epochs",
        "1",
    ]
    asked += ["--set", *(f"{name}={value}" for name, value in OWN.items()), "finetune_steps=2"]
    asked += ["--executor", "inline", "--out", str(out)]
    assert sweep(asked) == 0
    printed = capsys.readouterr()
    assert "clients' own tests" in " ".join(printed.out.split())
    assert "--select-on global" in printed.err
    runs = Store(out).runs().set_index("algorithm")
    assert set(runs.index) == {"local", "local_ft", "fedavg", "fedavg_ft"}
    assert runs["personal"].to_dict() == {
        "local": True,
        "local_ft": True,
        "fedavg": False,
        "fedavg_ft": True,
    }
    assert set(runs["selected_on"]) == {"clients"}
    assert sweep([*asked, "-q"]) == 0
    assert len(Store(out).runs()) == 4, "nothing is run again"
    page = tmp_path / "page.html"
    assert report(["--out", str(out), "--to", str(page)]) == 0
    text = page.read_text()
    assert 'data-metric="selected_client_accuracy"' in text
    assert (
        "fedavg_ft, local, local_ft: of each client&#39;s own) on the clients&#39; own tests"
        in text
    )
    assert report(["--out", str(out), "--to", str(page), "--select-on", "global"]) == 0
    assert 'data-metric="best_accuracy"' in page.read_text()
    assert figures(["fedgkd-4", "--out", str(out), "--to", str(tmp_path / "figures")]) in (0, 2)
    assert (
        not source_of([out], Selection(select_on="global"))
        .runs()["selected_on"]
        .eq("clients")
        .any()
    )


def test_a_dry_run_counts_the_clients_without_samples_of_their_own(
    capsys: pytest.CaptureFixture[str],
) -> None:
    asked = ["--algo", "fedavg", "--dataset", "digits", "--dry-run", "--json", "--alpha", "none"]
    fields = {"partition": "iid", "num_clients": 500, **OWN}
    asked += ["--set", *(f"{name}={value}" for name, value in fields.items())]
    assert sweep(asked) == 0
    counted = json.dumps(json.loads(capsys.readouterr().out))
    assert "of 500 clients" in counted


def test_estimates_count_what_is_evaluated() -> None:
    setting = Setting(rounds=10, num_clients=5, alpha=None, partition="iid", **OWN)
    values = ALGORITHMS["local"].defaults()

    def samples(**fields: Any) -> float:
        return evaluated_samples(RunSpec("local", values, replace(setting, **fields), 0))

    own = 0.35 * 1438
    assert samples(evaluate_personal="last") == pytest.approx(
        samples() / 10 + 0.9 * 10 * own, rel=0.1
    )
    further = samples(finetune_steps=3) - samples()
    assert further == pytest.approx(10 * (5 * 359 + own))

"""What is stored and what a sweep would do: `bench.status`, dry runs over packs and mirrors, the list of commands."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

import pytest
from rows import CURVE, failed_row, make_row

from algorithms import entry
from bench import status
from bench.engine.state import StateFolder
from bench.execution import Execution
from bench.planning.options import TWO_STAGE, SweepOptions
from bench.planning.planner import make_plan
from bench.planning.run_spec import RunSpec, row_entry
from bench.state_files import STATE_VERSION
from bench.sweep import command as sweep
from bench.trial.run import Run
from leaderboards import Store, identity_columns

MUS = ("0.01", "0.1")


def run_specs(**values: tuple[str, ...]) -> tuple[RunSpec, ...]:
    """Runs of FedProx with two seeds."""
    return make_plan(SweepOptions(("fedprox",), values={"mu": MUS, **values}, seeds=2)).run_specs


def stored(out: Path, kept: Iterable[RunSpec]) -> Path:
    """A result folder with these runs."""
    for run_spec in kept:
        Store(out).write(
            make_row() | identity_columns(*run_spec.identity(entry(run_spec.algorithm))), CURVE
        )
    return out


def dry_run(out: Path, *arguments: str) -> int:
    """Of the same runs."""
    asked = [
        "--algo",
        "fedprox",
        "--set",
        f"mu={','.join(MUS)}",
        "--seeds",
        "2",
        "--dry-run",
        "--out",
        str(out),
    ]
    return sweep.main([*asked, *arguments])


def test_stored_runs_are_named_in_words(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    stored(tmp_path, run_specs(lr=("0.1", "0.05")))
    assert status.main(["--out", str(tmp_path), "--json"]) == 0
    named = [run["run"] for run in json.loads(capsys.readouterr().out)["runs"]]
    assert named[:3] == [
        "fedprox digits mlp alpha=0.1 participation=0.5 lr=0.05 mu=0.01 seed 0",
        "fedprox digits mlp alpha=0.1 participation=0.5 lr=0.05 mu=0.01 seed 1",
        "fedprox digits mlp alpha=0.1 participation=0.5 lr=0.05 mu=0.1 seed 0",
    ]
    assert len(set(named)) == 8
    assert status.main(["--out", str(tmp_path)]) == 0
    assert "{" not in capsys.readouterr().out


def test_status_says_why_runs_failed_or_diverged(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    planned = make_plan(
        SweepOptions(("fedavg", "fedprox"), values={"mu": ("1",)}, seeds=8)
    ).run_specs
    for run_spec in planned[:8]:
        Store(tmp_path).write(
            failed_row() | identity_columns(*run_spec.identity(entry("fedavg"))), CURVE
        )
    loss = "round 3, client 1: loss of 'a:key:b' [bold]"  # neither an emoji nor markup
    diverged = {"diverged": True, "error": loss}
    Store(tmp_path).write(
        make_row() | identity_columns(*planned[8].identity(entry("fedprox"))) | diverged, CURVE
    )
    keys = [run_spec.key[:16] for run_spec in planned]
    for words in ([], ["--algo", "fedavg,fedprox", "--set", "mu=1", "--seeds", "8"]):
        assert status.main(["--out", str(tmp_path), *words]) == 0
        said = capsys.readouterr().out.splitlines()
        assert f"failed: {', '.join(keys[:5])} and 3 more: out of memory" in said
        assert f"diverged: {keys[8]}: {loss}" in said
        assert status.main(["--out", str(tmp_path), "--json", *words]) == 0
        errors = [run["error"] for run in json.loads(capsys.readouterr().out)["runs"]]
        assert errors[:9] == ["out of memory"] * 8 + [loss]


@pytest.mark.parametrize(
    ("own", "others", "said"),
    [
        ("failed", "finished", "failed"),
        ("finished", "failed", "failed"),
        ("stopped", "finished", "stopped"),
    ],
)
def test_unfinished_rows_decide_a_runs_status(
    own: str, others: str, said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (run_spec,) = make_plan(SweepOptions(("fedavg_t1",), seeds=1)).run_specs
    for suffix, key in run_spec.rows.items():
        status_of = own if key == run_spec.key else others
        row = make_row() if status_of == "finished" else failed_row(status=status_of)
        Store(tmp_path).write(
            row | identity_columns(*run_spec.identity(row_entry("fedavg_t1", suffix))), CURVE
        )
    assert (
        status.main(["--out", str(tmp_path), "--algo", "fedavg_t1", "--seeds", "1", "--json"]) == 0
    )
    assert json.loads(capsys.readouterr().out)["counts"] == {said: 1}


def test_a_dry_run_lists_packs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert dry_run(tmp_path, "--pack", "3", "--json") == 0
    assert json.loads(capsys.readouterr().out)["packs"] == [2, 2]


@pytest.mark.parametrize(
    "search", ["--scheduler asha --set mu=0.1,1", "--search optuna --num-samples 2"]
)
def test_a_dry_run_counts_trials(
    search: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("bench.sweep.plan_report.cpu_count", lambda: 16)
    command = [
        "--algo",
        "fedprox",
        "--seeds",
        "3",
        *search.split(),
        "--dry-run",
        "--json",
        "--out",
        str(tmp_path),
    ]
    assert sweep.main(command) == 0
    assert json.loads(capsys.readouterr().out)["trials_at_once"] == 2


def test_a_dry_run_asks_no_mirror(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FEDKD_MIRROR", "s3://nowhere/at-all")
    assert dry_run(tmp_path) == 0
    assert "s3://nowhere/at-all" in capsys.readouterr().out
    assert dry_run(tmp_path, "--offline") == 2


def test_an_unread_option_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert status.main(["--out", str(tmp_path), "--dataset", "digits"]) == 2
    assert "--dataset describes a sweep" in capsys.readouterr().err


def test_the_time_of_a_sweep_is_estimated(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(
        "XDG_CACHE_HOME", str(tmp_path / "cache")
    )  # this machine's paces may be known

    def said(*more: str) -> str:
        assert dry_run(tmp_path, "--executor", "inline", *more) == 0
        return capsys.readouterr().out

    assert "time unknown" in said()
    assert "Optuna" in said("--search", "optuna")
    stored(tmp_path, run_specs()[:1])
    whole = json.loads(said("--json"))
    assert whole["seconds"] == whole["seconds_at_least"] > 0
    part = json.loads(said("--json", "--model", "mlp", "cnn_digits"))
    assert (part["seconds"], part["models_without_rate"]) == (None, ["cnn_digits"])
    assert part["seconds_at_least"] == whole["seconds"]
    stored(tmp_path, run_specs())
    assert "0 to do" in said()


def test_saved_runs_without_rows_have_names(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    one, two, three, _ = run_specs()
    stored(tmp_path, [one])
    longer = replace(one, setting=replace(one.setting, rounds=50))
    for run_spec in (two, three, longer):
        StateFolder(tmp_path / "state" / run_spec.key, run_spec.named_by).save(3, {}, {}, {})
    StateFolder(tmp_path / "state" / "0000").save(
        5, {}, {}, {}
    )  # of a state that does not say whose it is
    assert status.main(["--out", str(tmp_path), "--json"]) == 0
    lines = json.loads(capsys.readouterr().out)["runs"]
    said = [
        (line["run"].rpartition("participation=0.5 ")[2], line["status"], line["saved_round"])
        for line in lines
    ]
    assert said == [
        ("rounds=20 mu=0.01 seed 0", "finished", None),
        ("rounds=20 mu=0.01 seed 1", "saved", 3),
        ("rounds=20 mu=0.1 seed 0", "saved", 3),
        ("rounds=50 mu=0.01 seed 0", "saved", 3),
        ("(no row yet)", "saved", 5),
    ]


OURS = {"version": STATE_VERSION, "round": 3}
NAMED = {"algorithm": "a", "setting_json": "{}", "hp_json": "{}", "seed": 0}


@pytest.mark.parametrize(
    ("manifest", "status_"),
    [
        (OURS | {"run": {"algorithm": "fedavg"}}, "saved"),
        (OURS | {"run": NAMED | {"hp_json": "nope"}}, "saved"),
        ([], "damaged"),
        (OURS | {"version": STATE_VERSION + 1}, "other version"),
    ],
)
def test_a_damaged_state_hides_no_other(
    manifest: object, status_: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    stored(tmp_path, run_specs()[:1])
    folder = tmp_path / "state" / "f00d"
    folder.mkdir(parents=True)
    (folder / "manifest.json").write_text(json.dumps(manifest))
    assert status.main(["--out", str(tmp_path), "--json"]) == 0
    lines = json.loads(capsys.readouterr().out)["runs"]
    assert [line["status"] for line in lines] == ["finished", status_]
    assert lines[1]["run"] == "(no row yet)"


def listed(
    out: Path, capsys: pytest.CaptureFixture[str], *arguments: str
) -> list[tuple[str, int | None]]:
    """Status and saved round of each run that `bench.status` lists."""
    assert status.main(["--out", str(out), "--json", *arguments]) == 0
    return [
        (run["status"], run["saved_round"]) for run in json.loads(capsys.readouterr().out)["runs"]
    ]


def test_a_claimed_run_is_running(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    one, two = run_specs()[:2]
    row = failed_row() | identity_columns(*one.identity(entry("fedprox")))
    Store(tmp_path).write(row, [])
    assert listed(tmp_path, capsys) == [("failed", None)]
    execution = Execution(out=str(tmp_path))
    again, fresh = Run(one, execution), Run(two, execution)
    again.open()
    fresh.open()
    assert listed(tmp_path, capsys) == [("running", None), ("running", None)]
    again.save()
    asked = ("--algo", "fedprox", "--set", "mu=0.01", "--seeds", "2")
    assert listed(tmp_path, capsys, *asked) == [("running", 0), ("running", None)]
    assert status.main(["--out", str(tmp_path)]) == 0
    said = capsys.readouterr().out
    assert "2 running" in said
    again.release()
    fresh.release()
    assert listed(tmp_path, capsys, *asked) == [("failed", 0), ("missing", None)]


def test_runs_of_a_search_are_listed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The stored ones: which come is not known before."""
    words = ("--algo", "fedprox", "--search", "optuna", "--num-samples", "2")
    assert status.main([*words, "--out", str(tmp_path)]) == 0
    assert capsys.readouterr().out == f"no run of this search is stored in {tmp_path}\n"
    run_specs = make_plan(SweepOptions(("fedprox", "fedavg"), values={"mu": MUS})).run_specs
    stored(tmp_path, run_specs)
    assert listed(tmp_path, capsys, *words) == [("finished", None)] * 2
    confirmed = listed(tmp_path, capsys, *words, "--confirm", "1")
    assert confirmed == [("missing", None), *[("finished", None)] * 2]


def test_second_stages_are_listed_last(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    values = {"lr": ("0.1", "0.2"), "mu": MUS}
    first = make_plan(SweepOptions(("fedprox",), values=values, budget=3, tuning=TWO_STAGE))
    words = ("--algo", "fedprox", "--lr", "0.1", "0.2", "--set", f"mu={','.join(MUS)}")
    words += ("--budget", "3", "--tuning", TWO_STAGE)
    assert listed(tmp_path, capsys, *words) == [("missing", None)] * 2
    stored(tmp_path, first.run_specs)
    ended = [("finished", None)] * 2
    assert listed(tmp_path, capsys, *words) == [*ended, ("missing", None)]


def test_runs_that_confirm_are_listed_once_their_search_is_stored(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["--algo", "fedprox", "--set", f"mu={','.join(MUS)}", "--confirm", "2", "--json"]
    listed = []
    for kept in ((), make_plan(SweepOptions(("fedprox",), values={"mu": MUS})).run_specs):
        stored(tmp_path, kept)
        assert status.main([*words, "--out", str(tmp_path)]) == 0
        listed.append([row["run"] for row in json.loads(capsys.readouterr().out)["runs"]])
    assert len(listed[0]) == 2
    assert len(listed[1]) == 4

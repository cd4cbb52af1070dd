"""`python -m bench.sweep` from the command line to the leaderboard."""

from __future__ import annotations

import errno
import json
import re
import shutil
import subprocess
import sys
import threading
import time
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from commands import assert_equal_results, run
from filelock import FileLock
from keep import stored_row
from rows import CURVE, failed_row, hyperparameter, make_row

from algorithms import ALGORITHMS, entry
from algorithms.fedprox import FedProx
from bench import status
from bench.compare.command import main as compare
from bench.engine.state import StateFolder
from bench.errors import EnvironmentProblem
from bench.execution import Execution
from bench.executors import ray_executor
from bench.executors.optuna_search import PastTries, past_tries
from bench.executors.progress import Events, Plain, Quiet
from bench.executors.ray_callback import Watcher
from bench.executors.ray_cluster import check_address
from bench.executors.trials import Interruption
from bench.planning import planner
from bench.planning.options import SweepOptions
from bench.planning.planner import make_plan
from bench.planning.run_spec import RunSpec
from bench.provenance import command_columns
from bench.sweep import command as sweep
from bench.sweep import preflight, show
from bench.terminal.console import console
from bench.trial.run import Run
from bench.trial.trial import Trial
from leaderboards import Store
from leaderboards.rows.files import write_table
from leaderboards.rows.frames import records, run_table
from leaderboards.rows.schema import identity_columns
from leaderboards.selection import DEFAULT_RULE, RULES
from search_spaces import SETTINGS

QUICK = ("--rounds", "2", "--local-epochs", "1", "--seeds", "2")
SHORT = ("--algo", "fedavg,fedcad", "--set", "beta=0,0.3", "gamma=0.5", *QUICK)


@pytest.fixture(scope="module")
def swept(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("swept")
    assert run(out, *SHORT) == 0
    return out


def test_a_sweep_ends_in_rows_curves_and_a_leaderboard(swept: Path) -> None:
    runs = Store(swept).runs()
    assert len(runs) == 6
    assert set(runs.status) == {"finished"}
    assert set(runs.selected_on) == {"validation"}
    assert runs.partition_hash.nunique() == 2, (
        "one partition per seed, the same for every algorithm"
    )
    assert (runs.auxiliary_per_class == 8).all()
    curves = Store(swept).curves()
    assert set(curves["round"]) == {1, 2}
    assert (swept / "leaderboard.parquet").exists()


def test_the_same_command_again_runs_nothing(
    swept: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("bench.trial.run.Simulation", None)
    assert run(swept, *SHORT) == 0
    assert "6 already stored, 0 to do" in capsys.readouterr().err


def test_a_wider_grid_adds_only_the_new_cells(
    swept: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    wider = (
        "--algo",
        "fedcad",
        "--set",
        "beta=0,0.3,0.5",
        "gamma=0.5",
        *QUICK,
        "--dry-run",
        "--json",
    )
    assert run(swept, *wider) == 0
    plan = json.loads(capsys.readouterr().out)
    assert (plan["runs"], plan["to_do"]) == (6, 2)


def test_the_table_shows_the_rate_that_wins_even_if_an_earlier_sweep_ran_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for lr in ("0.1", "0.000001"):
        assert run(tmp_path, "--algo", "fedavg", *QUICK, "--budget", "1", "--lr", lr, "--json") == 0
        shown = capsys.readouterr().out
        assert '"lr": 0.1' in shown.replace('\\"', '"'), f"the table of lr {lr}"


def test_optuna_goes_on_from_what_is_stored(tmp_path: Path) -> None:
    search = ("--algo", "fedcad", "--search", "optuna", *QUICK)
    assert run(tmp_path, *search, "--num-samples", "2") == 0
    first = set(Store(tmp_path).runs().run_key)
    assert run(tmp_path, *search, "--num-samples", "3") == 0
    runs = Store(tmp_path).runs()
    assert first <= set(runs.run_key)
    assert len(runs) == len(first) + 2
    assert (hyperparameter(runs, "beta") <= hyperparameter(runs, "gamma")).all()


def interrupted_search(out: Path, monkeypatch: pytest.MonkeyPatch, *search: str) -> str:
    """A search that is interrupted after the first round of its third trial, of two rounds each; its key."""
    raised: list[Interruption] = []
    settled: list[Run] = []
    save_or_finish = Run.save_or_finish

    def interrupt(self: Run) -> None:
        settled.append(self)
        if len(settled) == 5:
            raised[0].stop("a test")
        save_or_finish(self)

    with monkeypatch.context() as patch:
        patch.setattr(Interruption, "__enter__", lambda self: raised.append(self) or self)
        patch.setattr(Run, "save_or_finish", interrupt)
        assert run(out, *search) == 130
    (state,) = (out / "state").glob("*/manifest.json")
    return state.parent.name


def test_a_search_is_announced_with_its_algorithms(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """FedAvg has nothing to search, so it is one run."""
    options = ("--rounds", "1", "--local-epochs", "1", "--search", "optuna", "--num-samples", "1")
    assert run(tmp_path, "--algo", "fedavg", "fedprox", *options) == 0
    assert "1 run, 1 to do, and the trials of fedprox\n" in capsys.readouterr().err
    assert sorted(Store(tmp_path).runs().algorithm) == ["fedavg", "fedprox"]


@pytest.mark.parametrize("verbose", [False, True])
def test_failed_runs_have_tracebacks_on_request(
    verbose: bool,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    def fail(*given: Any) -> None:
        raise RuntimeError("a test's own error")

    monkeypatch.setattr(FedProx, "local_loss", fail)
    options = ("--algo", "fedprox", "--set", "mu=0.1", "--rounds", "1", "--uncertified")
    assert run(tmp_path, *options, *(("--verbose",) if verbose else ())) == 1
    said = capsys.readouterr().err
    assert "a test's own error" in said
    assert ("Traceback" in said) == verbose
    assert ("with --verbose" in said) == (not verbose)


@pytest.mark.parametrize(
    ("executor", "number"),
    [
        ("inline", "--num-samples"),
        ("inline", "--budget"),
        pytest.param("ray", "--budget", marks=pytest.mark.slow),
    ],
)
def test_optuna_goes_on_with_the_trial_that_was_interrupted(
    executor: str,
    number: str,
    request: pytest.FixtureRequest,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    if executor == "ray":
        request.getfixturevalue("shared_ray")
    search = (
        "--algo",
        "fedprox",
        "--search",
        "optuna",
        "--rounds",
        "2",
        "--local-epochs",
        "1",
        number,
        "3",
    )
    search = (*search, "--set", "mu=0,0.01,0.02,0.03,0.1,0.2,0.3,0.5,1,3")
    key = interrupted_search(tmp_path, monkeypatch, *search)
    assert sweep.main([*search, "--executor", executor, "--out", str(tmp_path), "-q"]) == 0
    runs = Store(tmp_path).runs()
    assert set(runs.status) == {"finished"}
    assert key in set(runs.run_key)
    assert len(runs) == 3
    assert not list((tmp_path / "state").glob("*/manifest.json"))


def test_optuna_tries_again_what_failed_but_takes_no_other_sweeps_runs_for_its_own(
    tmp_path: Path,
) -> None:
    mu = "mu=0,0.01,0.02,0.03,0.1,0.2,0.3,0.5,1,3"
    search = (
        "--algo",
        "fedprox",
        "--set",
        mu,
        "--rounds",
        "1",
        "--search",
        "optuna",
        "--num-samples",
        "1",
    )
    assert run(tmp_path, "--algo", "fedprox", "--set", "mu=0.5", "--rounds", "1") == 0
    options = SweepOptions(
        ("fedprox",),
        values={"mu": tuple(mu[3:].split(",")), "rounds": ("1",)},
        search="optuna",
        seeds=2,
    )
    plan = make_plan(options)
    assert past_tries(plan, str(tmp_path)) == [PastTries(*plan.searches)], (
        "one seed of another sweep"
    )
    run_spec = make_plan(
        replace(options, values={"mu": ("0.5",), "rounds": ("1",)}, search="grid")
    ).run_specs[1]
    Store(tmp_path).write(failed_row() | identity_columns(*run_spec.identity(entry("fedprox"))), [])
    assert run(tmp_path, *search, "--seeds", "2") == 0
    runs = Store(tmp_path).runs()
    assert (list(hyperparameter(runs, "mu")), set(runs.status)) == ([0.5, 0.5], {"finished"})


def test_what_asha_stopped_of_a_search_is_tried_under_it_and_goes_on_first_without_it(
    tmp_path: Path,
) -> None:
    values = {"mu": ("0", "0.1", "1"), "rounds": ("3",)}
    plan = make_plan(SweepOptions(("fedprox",), values=values, search="optuna", num_samples=2))
    (begun,) = make_plan(SweepOptions(("fedprox",), values=values | {"mu": ("0.1",)})).run_specs
    trial = Trial(
        [begun], Execution(str(tmp_path), rounds_per_report=1, provenance=command_columns("test"))
    )
    trial.step()
    trial.close()
    assert Store(tmp_path).status() == {begun.key: "stopped"}
    assert past_tries(plan, str(tmp_path)) == [PastTries(*plan.searches, begun=[{"mu": 0.1}])]
    under_asha = replace(plan, options=replace(plan.options, scheduler="asha"))
    (found,) = past_tries(under_asha, str(tmp_path))
    assert [chosen for chosen, _ in found.known] == [{"mu": 0.1}]


def test_a_diverged_configuration_is_known_as_worse(tmp_path: Path) -> None:
    values = {"mu": ("0.1", "1"), "rounds": ("1",)}
    for run_spec in make_plan(SweepOptions(("fedprox",), values=values)).run_specs:
        diverged = run_spec.hyperparameters["mu"] == 1
        identity = identity_columns(*run_spec.identity(entry("fedprox")))
        told = {"diverged": diverged, RULES[DEFAULT_RULE]: 0.5 + diverged / 4}
        Store(tmp_path).write(make_row() | identity | told, CURVE)
    plan = make_plan(SweepOptions(("fedprox",), values=values, search="optuna", num_samples=2))
    (found,) = past_tries(plan, str(tmp_path))
    assert found.known == [({"mu": 0.1}, 0.5), ({"mu": 1.0}, -0.25)]


def test_a_sweep_shows_its_own_version(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Of another version more seeds are stored, which ended later."""
    options = ("--algo", "fedprox", "--set", "mu=0.1", "--rounds", "1", "--local-epochs", "1")
    assert run(tmp_path, *options, "--seeds", "2") == 0
    found = Store(tmp_path).runs().iloc[0]
    setting, values = json.loads(found["setting_json"]), json.loads(found["hp_json"])
    version = int(found["algorithm_version"]) + 1
    for seed in range(3):
        other = identity_columns("fedprox", version, values, setting, seed)
        later = {"finished": datetime.now(UTC) + timedelta(hours=1)}
        Store(tmp_path).write(make_row() | other | later, CURVE)
    capsys.readouterr()
    assert run(tmp_path, *options, "--seeds", "2", "--json") == 0
    (table,) = json.loads(capsys.readouterr().out)["tables"]
    assert {cell["n"] for cell in table["cells"]} == {2}
    assert compare(["--out", str(tmp_path), "--format", "json"]) == 0
    (table,) = json.loads(capsys.readouterr().out)["tables"]
    assert {cell["n"] for cell in table["cells"]} == {3}


CROWDED = ("--set", "partition=iid", "--clients", "1200", "--participation", "0.01")


def test_an_unfit_algorithm_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """BatchNorm needs two samples on every client."""
    options = ("--rounds", "1", "--local-epochs", "1", *CROWDED)
    assert run(tmp_path, "--algo", "fedavg,fedbn,feddkd_bn", *options) == 2
    said = capsys.readouterr().err
    assert "fedbn and feddkd_bn need" in said
    assert said.strip().endswith("--algo fedavg")
    assert run(tmp_path, "--algo", "fedbn", *options) == 2
    assert "--algo" not in capsys.readouterr().err
    assert run(tmp_path, "--algo", "fedavg,fedbn", *options, "--dry-run", "--json") == 0
    trials = json.loads(capsys.readouterr().out)["trials"]
    assert [trial["partition"].startswith("NOT") for trial in trials] == [False, True]
    assert run(tmp_path, "--algo", "fedavg,fedbn", "--batch-size", "1") == 2
    assert capsys.readouterr().err.strip().endswith("--algo fedavg")
    assert not Store(tmp_path).status()


@pytest.mark.parametrize("here", [True, False])
def test_all_leaves_unfit_algorithms_out(
    here: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Also if that turns out only when the data have been fetched."""
    few = {name: ALGORITHMS[name] for name in ("fedavg", "fedbn", "feddkd_bn", "centralized")}
    monkeypatch.setattr(planner, "ALGORITHMS", few)
    if not here:
        monkeypatch.setattr(preflight.data, "read", lambda name, folder=None: None)
    options = ("--algo", "all", "--rounds", "1", "--local-epochs", "1", *CROWDED)
    assert run(tmp_path, *options) == 0
    assert "left out: each of fedbn, feddkd_bn" in capsys.readouterr().err
    assert set(Store(tmp_path).runs()["algorithm"]) == {"fedavg", "centralized"}
    if here:
        assert status.main([*options, "--out", str(tmp_path), "--json"]) == 0
        assert json.loads(capsys.readouterr().out)["counts"] == {"finished": 2}


BAD = {
    "algorithm": ("--algo fedcat", ["fedcat", "did you mean fedcad?"]),
    "no algorithm": ("", ["--algo"]),
    "address inline": ("--algo fedavg --address auto", ["--address"]),
    "data set": ("--algo fedavg --dataset cifar1", ["cifar1", "did you mean cifar10?"]),
    "paper without the data set": (
        "--algo fedavg --paper fedcad",
        ["fedcad", "digits", "it has: cifar10"],
    ),
    "setting or hyper-parameter": ("--algo fedcad --set gama=1", ["gama", "did you mean gamma?"]),
    "participation": ("--algo fedavg --participation 1.5", ["participation", "1.5"]),
    "impossible partition": ("--algo fedavg --clients 100 --alpha 0.01", ["alpha", "draws"]),
    "a GPU where there is none": ("--algo fedavg --gpus-per-trial 0.5", ["0.5", "GPU"]),
    "tf32 without a GPU": ("--algo fedavg --precision tf32 --device cpu", ["tf32", "CPU"]),
    "more CPUs than cores": ("--algo fedavg --cpus-per-trial 4096", ["4096"]),
    "flips of digits": ("--algo fedavg --set augmentation=flip_crop", ["mirrors"]),
    "missing file": ("--config nowhere.toml", ["nowhere.toml"]),
}


@pytest.mark.parametrize(("arguments", "words"), BAD.values(), ids=BAD)
def test_bad_input_exits_2_before_anything_runs(
    arguments: str, words: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(tmp_path, *arguments.split()) == 2
    message = capsys.readouterr().err
    assert message.splitlines()[-1].startswith("error: ")
    assert all(word in message for word in words), message
    assert not list(tmp_path.rglob("*.parquet"))


def test_missing_data_offline_exit_3(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert (
        run(
            tmp_path / "out",
            "--algo",
            "fedavg",
            "--dataset",
            "cifar10",
            "--offline",
            "--data-dir",
            str(tmp_path),
        )
        == 3
    )
    message = capsys.readouterr().err
    assert str(tmp_path) in message
    assert "--data-dir" in message


def test_an_output_folder_that_cannot_be_written_exits_3(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").write_text("in the way")
    assert run(tmp_path / "file" / "out", "--algo", "fedavg", "--rounds", "1") == 3
    assert "--out" in capsys.readouterr().err


def test_a_full_disk_exits_3_and_the_same_command_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ("--algo", "fedavg", "--rounds", "4", "--local-epochs", "1", "--save-seconds", "0")
    save, calls = StateFolder.save, []

    def full(self: StateFolder, *given: object, **named: object) -> None:
        calls.append(1)
        if len(calls) > 2:
            raise OSError(errno.ENOSPC, "No space left on device", str(self.path))
        save(self, *given, **named)  # type: ignore[arg-type]

    with monkeypatch.context() as patch:
        patch.setattr(StateFolder, "save", full)
        assert run(tmp_path, *arguments) == 3
    assert "no space left" in capsys.readouterr().err
    assert not Store(tmp_path).status(), "a full disk is no failed run"
    assert run(tmp_path, *arguments) == 0
    assert run(tmp_path / "undisturbed", *arguments) == 0
    assert_equal_results(tmp_path, tmp_path / "undisturbed")


def test_reproduce_gives_the_row_again_from_a_folder_or_a_file_of_rows(
    swept: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (row, *_), file = records(Store(swept).runs()), tmp_path / "kept.parquet"
    write_table(run_table(stored_row(row)), file)
    monkeypatch.setenv("FEDKD_OUT", str(tmp_path / "usual"))
    into = tmp_path / "into"
    for words, made in (
        ([swept, "--into", into], into),
        ([file], tmp_path / "usual" / "reproduced"),
    ):
        assert sweep.main(["reproduce", row["run_key"][:12], "--out", *map(str, words)]) == 0
        assert "bit for bit" in capsys.readouterr().out
        assert Store(made).finished() == {row["run_key"]}


def test_a_saved_state_that_is_damaged_keeps_no_other_run_from_its_end(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    three = ("--algo", "fedavg", "--seeds", "3", "--rounds", "1", "--local-epochs", "1")
    run_specs = make_plan(
        SweepOptions(("fedavg",), seeds=3, values={"rounds": ("1",), "local_epochs": ("1",)})
    ).run_specs
    state = tmp_path / "state" / run_specs[1].key
    state.mkdir(parents=True)
    (state / "manifest.json").write_text("of another world")
    for pack in (("--pack", "3"), ()):
        assert run(tmp_path, *three, *pack) == 3
        assert str(state) in capsys.readouterr().err
        assert Store(tmp_path).status() == {
            run_specs[0].key: "finished",
            run_specs[2].key: "finished",
        }
    assert (state / "manifest.json").exists()
    assert run(tmp_path, *three, "--force") == 0
    assert len(Store(tmp_path).finished()) == 3


@pytest.mark.parametrize("status", ["stopped", "failed"])
def test_only_a_finished_run_is_reproduced(
    status: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    Store(tmp_path).write(make_row(status=status, error=status), [(1, "accuracy", 0.5)])
    (key,) = Store(tmp_path).runs().run_key
    assert sweep.main(["reproduce", key, "--out", str(tmp_path)]) == 2
    assert f"the run {key[:16]} is {status}" in capsys.readouterr().err


def test_a_narrow_terminal_lists_algorithms_in_lines(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(show, "console", lambda: console(80))
    assert sweep.main(["--list"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert max(map(len, lines)) <= 80
    assert "fedprox: Li et al. 2020, Algorithm 2" in lines
    first_words = {line.partition(" ")[0] for line in lines}
    for name in ALGORITHMS:
        assert f"{name}:" in first_words
    assert sweep.main(["--show", "--algo", "fedcad", "--dataset", "cifar10"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("fedcad on cifar10: Class-Wise Adaptive Self Distillation")
    assert "  gamma {0, 0.3, 0.5, 0.7}" in lines
    assert max(map(len, lines)) <= 80


def test_information_needs_neither_torch_nor_ray(tmp_path: Path) -> None:
    asked = (
        ["--help"],
        ["--list"],
        ["--algo", "fedcad", "--dataset", "cifar10", "--dry-run"],
        ["--show"],
    )
    code = (
        "import sys\nfrom bench.sweep.command import main\n"
        f"for words in {[[*words, '--out', str(tmp_path)] for words in asked]!r}:\n"
        "    try:\n        main(words)\n    except SystemExit:\n        pass\n"
        "    assert not {'torch', 'ray'} & set(sys.modules), words\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout


@pytest.mark.slow
@pytest.mark.usefixtures("shared_ray")
def test_ray_gives_the_rows_of_the_inline_executor(
    swept: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """One run is claimed elsewhere until its worker's warning has reached the display."""
    (key,) = Store(swept).runs().query("algorithm == 'fedavg' and seed == 0").run_key
    claim = FileLock(tmp_path / "state" / f"{key}.lock", thread_local=False)
    (tmp_path / "state").mkdir()
    claim.acquire()
    # A test that fails ends; on a busy machine a worker may take minutes to start.
    patience = threading.Timer(1800, claim.release)
    patience.daemon = True
    patience.start()
    said: list[str] = []

    def say(self: Quiet, line: str) -> None:
        said.append(line)
        if "is already running" in line:
            claim.release()

    monkeypatch.setattr(Plain, "say", say)
    ray_sweep = [*SHORT, "--executor", "ray", "--max-concurrent", "2", "--out", str(tmp_path)]
    assert sweep.main(ray_sweep) == 0
    patience.cancel()
    assert_equal_results(swept, tmp_path)
    shown = capfd.readouterr()
    assert "fedcad" in shown.out
    assert "Tune" not in shown.err, "Ray's own chatter stays away"
    waits = [line for line in said if "is already running" in line]
    assert [line.partition(" is ")[0] for line in waits] == ["warning: fedavg seed 0"]
    assert not list((tmp_path / "state").iterdir())


def test_a_sweep_begins_with_what_no_other_has_begun(swept: Path, tmp_path: Path) -> None:
    """Another sweep holds the first run until all others are stored."""
    keys = Store(swept).runs().sort_values("finished").run_key
    (tmp_path / "state").mkdir()
    claim = FileLock(tmp_path / "state" / f"{keys.iloc[0]}.lock", thread_local=False)
    claim.acquire()
    patience = time.monotonic() + 60

    def hold() -> None:
        while len(Store(tmp_path).runs()) < len(keys) - 1 and time.monotonic() < patience:
            time.sleep(0.1)
        claim.release()

    other = threading.Thread(target=hold)
    other.start()
    assert sweep.main([*SHORT, "--executor", "inline", "--out", str(tmp_path)]) == 0
    other.join()
    assert Store(tmp_path).runs().sort_values("finished").run_key.iloc[-1] == keys.iloc[0]
    assert_equal_results(swept, tmp_path)
    assert not list((tmp_path / "state").iterdir())


def test_an_algorithm_is_certified_by_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    remarks = {"algorithms.fedprox:FedProx": ("mu changes nothing",)}
    monkeypatch.setattr(preflight, "_run_self_test", lambda name, _: ((), remarks.get(name, ())))
    names = ["fedavg", "algorithms.fedprox:FedProx", "algorithms.fedmax:FedMAX"]
    asked: Any = [SimpleNamespace(algorithm=name) for name in names]
    assert preflight.check_algorithms(asked) == ("algorithms.fedmax:FedMAX",)


@pytest.mark.parametrize(
    ("address", "words"),
    [("nowhere:abc", "'abc'"), ("127.0.0.1:9", "ray start")],
)
def test_a_cluster_that_cannot_be_reached_is_said_at_once(address: str, words: str) -> None:
    with pytest.raises(EnvironmentProblem, match=re.escape(words)):
        check_address(address)


@pytest.mark.slow  # test_ray_executor.py and test_trainable.py have fast ones of the kind
@pytest.mark.usefixtures("shared_ray")
def test_asha_lets_only_like_compete_with_like(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """At alpha 100 everything learns faster than at 0.05: in one contest the hard cell would lose all its runs."""
    arguments = [
        "--algo",
        "fedprox",
        "--alpha",
        "100",
        "0.05",
        "--set",
        "mu=0,10,15",
        "--local-epochs",
        "1",
    ]
    arguments += [
        "--rounds",
        "20",
        "--scheduler",
        "asha",
        "--executor",
        "ray",
        "--out",
        str(tmp_path),
    ]
    assert sweep.main([*arguments, "--log", "tensorboard"]) == 0
    runs = Store(tmp_path).runs()
    finished = runs.query("status == 'finished'")
    assert set(finished.alpha) == {100.0, 0.05}
    assert "stopped" in set(runs.status)
    assert len(list((tmp_path / "logs" / "tensorboard").glob("fedprox-*/*"))) == len(runs), (
        "each has its curve there"
    )
    capsys.readouterr()
    assert sweep.main(arguments) == 0
    assert "0 to do" in capsys.readouterr().err


def test_a_sweep_whose_results_vanish_exits_3(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "out"
    monkeypatch.setattr(Quiet, "ended", lambda *_: shutil.rmtree(out))
    assert run(out, "--algo", "fedavg", "--rounds", "1") == 3


@pytest.mark.parametrize(
    ("error", "status"), [("", "stopped"), ("round 3, client 1: ...", "failed")]
)
def test_what_a_scheduler_ends_has_failed_if_a_seed_of_it_has(
    error: str, status: str, tmp_path: Path
) -> None:
    execution = Execution(out=str(tmp_path))
    events = Events()
    run_specs = [RunSpec("fedavg", {}, SETTINGS["fedkd", "digits"], seed) for seed in (0, 1)]
    watcher = Watcher(ray_executor.trainable_for([run_specs], [execution]), execution, events)
    report = {"status": "running", "error": error, "round": 3}
    ended = SimpleNamespace(trial_id="a", config={"index": 0}, last_result=report)
    watcher.on_trial_complete(0, [], ended)  # type: ignore[arg-type]
    assert (events.statuses, events.exit_status) == ([status], int(status == "failed"))

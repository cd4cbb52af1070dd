"""`python -m bench.sweep` from the command line to the leaderboard."""

from __future__ import annotations

import errno
import json
import pickle
import re
import subprocess
import sys
import threading
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import optuna
import pytest
from commands import assert_equal_results, command, start
from filelock import FileLock
from rows import failed_row, hyperparameter, make_row

from algorithms import entry
from bench import compare, sweep
from bench.engine.state import StateFolder
from bench.errors import EnvironmentProblem
from bench.execution import Execution
from bench.planning.plan import make_plan
from bench.planning.request import Request
from bench.planning.unit import Unit
from bench.provenance import of_command
from bench.tuning.connect import check_address
from bench.tuning.interruption import Interruption
from bench.tuning.progress import Quiet
from bench.tuning.run import Run
from bench.tuning.search import History, histories
from bench.tuning.trial import Trial
from leaderboards import Store
from leaderboards.files import write_together
from leaderboards.frames import records, run_table
from leaderboards.identity import identity_columns
from leaderboards.reproduced import stored_row
from search_spaces import SETTINGS

SHORT = ("--algo", "fedavg,fedcad", "--set", "beta=0,0.3", "gamma=0.5", "--rounds", "2", "--seeds", "2")


def run(out: Path, *arguments: str) -> int:
    """The command in this process, without Ray."""
    return sweep.main([*arguments, "--executor", "inline", "--out", str(out), "-q"])


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
    assert runs.partition_hash.nunique() == 2, "one partition per seed, the same for every algorithm"
    assert (runs.auxiliary_per_class == 8).all()
    curves = Store(swept).curves()
    assert set(curves["round"]) == {1, 2}
    assert (swept / "leaderboard.parquet").exists()


def test_the_same_command_again_runs_nothing(
    swept: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("bench.tuning.run.Simulation", None)
    assert run(swept, *SHORT) == 0
    assert "6 already stored, 0 to do" in capsys.readouterr().err


def test_a_wider_grid_adds_only_the_new_cells(swept: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    wider = ("--algo", "fedcad", "--set", "beta=0,0.3,0.5", "gamma=0.5", "--rounds", "2", "--seeds", "2")
    assert run(swept, *wider, "--dry-run", "--json") == 0
    plan = json.loads(capsys.readouterr().out)
    assert (plan["runs"], plan["to_do"]) == (6, 2)


def test_lists_take_spaces_or_commas(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    keys = []
    for lists in (
        ("--alpha", "0.1", "0.5", "--participation", "0.5", "1"),
        ("--alpha", "0.1,0.5", "--participation", "0.5,1.0"),
    ):
        assert run(tmp_path, "--algo", "fedavg", *lists, "--dry-run", "--json") == 0
        keys.append([trial["run_keys"] for trial in json.loads(capsys.readouterr().out)["trials"]])
    assert keys[0] == keys[1]
    assert len(keys[0]) == 4


def test_a_configuration_file_lies_under_the_command_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "sweep.toml"
    file.write_text(
        'algo = ["fedavg", "fedcad"]\nrounds = 7\nseeds = 3\nalpha = [0.1, 0.5]\n[set]\ngamma = 0.5\nbeta = [0, 0.3]\n'
    )
    assert run(tmp_path, "--config", str(file), "--rounds", "2", "--dry-run", "--json") == 0
    plan = json.loads(capsys.readouterr().out)
    assert plan["runs"] == 2 * 3 * 3
    assert {trial["setting"]["rounds"] for trial in plan["trials"]} == {2}
    assert plan["origins"]["rounds"] == "command line"
    assert plan["origins"]["alpha"] == str(file)


def test_random_search_draws_distinct_configurations_that_keep_relations(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    command_ = ("--algo", "fedcad", "--search", "random", "--num-samples", "5", "--dry-run", "--json")
    drawn = []
    for _ in range(2):
        assert run(tmp_path, *command_) == 0
        trials = json.loads(capsys.readouterr().out)["trials"]
        drawn.append([(t["hyperparameters"]["beta"], t["hyperparameters"]["gamma"]) for t in trials])
    assert drawn[0] == drawn[1], "the same command asks for the same configurations"
    assert len(set(drawn[0])) == 5
    assert all(beta <= gamma for beta, gamma in drawn[0])


def test_force_removes_a_damaged_state(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    unit = make_plan(Request(("fedavg",), values={"rounds": ("1",)})).units[0]
    state = tmp_path / "state" / unit.key
    state.mkdir(parents=True)
    (state / "manifest.json").write_text("of another world")
    assert run(tmp_path, "--algo", "fedavg", "--rounds", "1") == 3
    assert f"remove the folder {state} to start this run anew" in capsys.readouterr().err
    assert run(tmp_path, "--algo", "fedavg", "--rounds", "1", "--force") == 0
    assert list(Store(tmp_path).status().values()) == ["finished"]


@pytest.mark.parametrize(
    ("function", "words"),
    [
        ("prepare_data", "interrupted before anything ran"),
        ("_compact", "interrupted when the trials had ended: their runs are stored, the same command makes the tables"),
    ],
)
def test_what_an_interruption_left_is_said_by_when_it_came(
    function: str, words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(f"bench.sweep.running.{function}", interrupted)
    assert run(tmp_path, "--algo", "fedavg", "--rounds", "1") == 130
    assert capsys.readouterr().err.endswith(f"error: {words}\n")
    assert len(Store(tmp_path).finished()) == (function == "_compact")


def test_optuna_goes_on_from_what_is_stored(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    search = ("--algo", "fedcad", "--search", "optuna", "--rounds", "2", "--seeds", "2")
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
    settle = Run.settle

    def interrupt(self: Run) -> None:
        settled.append(self)
        if len(settled) == 5:
            raised[0].stop("a test")
        settle(self)

    with monkeypatch.context() as patch:
        patch.setattr(Interruption, "arm", lambda self: raised.append(self))
        patch.setattr(Run, "settle", interrupt)
        assert run(out, *search) == 130
    (state,) = (out / "state").glob("*/manifest.json")
    return state.parent.name


@pytest.mark.parametrize("executor", ["inline", "ray"])
def test_optuna_goes_on_with_the_trial_that_was_interrupted(
    executor: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    search = ("--algo", "fedprox", "--search", "optuna", "--rounds", "2", "--num-samples", "3")
    search = (*search, "--set", "mu=0,0.01,0.02,0.03,0.1,0.2,0.3,0.5,1,3")
    key = interrupted_search(tmp_path, monkeypatch, *search)
    assert "what was under way is saved; the same command goes on from there" in capsys.readouterr().err
    if executor == "inline":
        assert run(tmp_path, *search) == 0
    else:
        assert command(*search, "--out", str(tmp_path)).returncode == 0
    runs = Store(tmp_path).runs()
    assert set(runs.status) == {"finished"}
    assert key in set(runs.run_key)
    assert len(runs) == 3
    assert not list((tmp_path / "state").glob("*/manifest.json"))


def test_optuna_tries_again_what_failed_but_takes_no_other_sweeps_runs_for_its_own(tmp_path: Path) -> None:
    mu = "mu=0,0.01,0.02,0.03,0.1,0.2,0.3,0.5,1,3"
    search = ("--algo", "fedprox", "--set", mu, "--rounds", "1", "--search", "optuna", "--num-samples", "1")
    assert run(tmp_path, "--algo", "fedprox", "--set", "mu=0.5", "--rounds", "1") == 0
    request = Request(("fedprox",), values={"mu": tuple(mu[3:].split(",")), "rounds": ("1",)}, search="optuna", seeds=2)
    plan = make_plan(request)
    assert histories(plan, plan.searches, str(tmp_path)) == [History()], "one seed of another sweep"
    unit = make_plan(replace(request, values={"mu": ("0.5",), "rounds": ("1",)}, search="grid")).units[1]
    Store(tmp_path).write(failed_row() | identity_columns(*unit.identity(entry("fedprox"))), [])
    assert run(tmp_path, *search, "--seeds", "2") == 0
    runs = Store(tmp_path).runs()
    assert (list(hyperparameter(runs, "mu")), set(runs.status)) == ([0.5, 0.5], {"finished"})


def test_what_asha_stopped_of_a_search_is_tried_under_it_and_goes_on_first_without_it(tmp_path: Path) -> None:
    values = {"mu": ("0", "0.1", "1"), "rounds": ("3",)}
    plan = make_plan(Request(("fedprox",), values=values, search="optuna", num_samples=2))
    (begun,) = make_plan(Request(("fedprox",), values=values | {"mu": ("0.1",)})).units
    trial = Trial([begun], Execution(str(tmp_path), rounds_per_report=1, provenance=of_command([])))
    trial.step()
    trial.close()
    assert Store(tmp_path).status() == {begun.key: "stopped"}
    assert histories(plan, plan.searches, str(tmp_path)) == [History(begun=[{"mu": 0.1}])]
    under_asha = replace(plan, request=replace(plan.request, scheduler="asha"))
    (found,) = histories(under_asha, plan.searches, str(tmp_path))
    assert [chosen for chosen, _ in found.known] == [{"mu": 0.1}]


def test_a_row_of_before_an_algorithm_had_all_its_fields_is_no_second_trial(tmp_path: Path) -> None:
    plan = make_plan(Request(("fedprox",), values={"mu": ("0.01", "1")}, search="optuna", num_samples=2))
    (unit,) = make_plan(Request(("fedprox",), values={"mu": ("0.01",)})).units  # 0.01 is the default
    name, version, values, setting, seed = unit.identity(entry("fedprox"))
    for one in (values, {}):
        Store(tmp_path).write(make_row() | identity_columns(name, version, one, setting, seed), [])
    (found,) = histories(plan, plan.searches, str(tmp_path))
    assert found == History(known=[({"mu": 0.01}, 0.5)])


def test_optuna_runs_what_it_proposes_again_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    trials: list[str] = []
    monkeypatch.setattr(Quiet, "started", lambda self, trial: trials.append(trial.name))
    search = ("--algo", "fedprox", "--set", "mu=0,0.01,0.02,0.1,1,3", "--rounds", "1", "--local-epochs", "1")
    proposed: list[object] = []
    asked = optuna.Study.ask
    monkeypatch.setattr(optuna.Study, "ask", lambda *given: proposed.append(1) or asked(*given))
    for again in ((), ("--force",)):
        assert run(tmp_path, *search, "--search", "optuna", "--num-samples", "5", *again) == 0
        assert len(trials) == len(set(trials)) == 5 < len(proposed)
        trials.clear()
        proposed.clear()


BAD = {
    "algorithm": (["--algo", "fedcat"], ["fedcat", "did you mean fedcad?"]),
    "no algorithm": ([], ["--algo is missing"]),
    "budget and search": (["--algo", "fedavg", "--budget", "3", "--search", "optuna"], ["leave out --search\n"]),
    "address inline": (["--algo", "fedavg", "--address", "auto"], ["--executor ray, or leave --address out"]),
    "data set": (["--algo", "fedavg", "--dataset", "cifar1"], ["cifar1", "did you mean cifar10?"]),
    "paper": (["--algo", "fedavg", "--paper", "fedkad"], ["fedkad", "known"]),
    "paper without the data set": (["--algo", "fedavg", "--paper", "fedcad"], ["fedcad", "digits", "it has: cifar10"]),
    "setting or hyper-parameter": (["--algo", "fedcad", "--set", "gama=1"], ["gama", "did you mean gamma?"]),
    "another algorithm's": (["--algo", "fedavg", "--set", "gamma=1"], ["gamma", "fedavg"]),
    "dataset by --set": (["--algo", "fedavg", "--set", "dataset=cifar10"], ["give it as --dataset"]),
    "set without value": (["--algo", "fedavg", "--set", "lr"], ["name=value", "'lr'"]),
    "participation 0": (["--algo", "fedavg", "--participation", "0"], ["participation must be in (0, 1], got 0.0"]),
    "participation 1.5": (["--algo", "fedavg", "--participation", "1.5"], ["participation must be in (0, 1], got 1.5"]),
    "alpha 0": (["--algo", "fedavg", "--alpha", "0"], ["alpha must be > 0, got 0.0"]),
    "alpha nan": (["--algo", "fedavg", "--alpha", "nan"], ["alpha must be > 0, got nan"]),
    "rounds 0": (["--algo", "fedavg", "--rounds", "0"], ["rounds must be >= 1, got 0"]),
    "rounds text": (["--algo", "fedavg", "--rounds", "ten"], ["rounds must be a whole number, got 'ten'"]),
    "seeds 0": (["--algo", "fedavg", "--seeds", "0"], ["--seeds must be >= 1, got 0"]),
    "no pair": (["--algo", "fedcad", "--set", "beta=0.7", "gamma=0.3"], ["beta <= gamma", "{0.7}", "{0.3}"]),
    "gamma out of range": (["--algo", "fedcad", "--set", "gamma=1.5"], ["gamma must be in [0, 1), got 1.5"]),
    "clients over samples": (["--algo", "fedavg", "--clients", "5000"], ["5000", "clients"]),
    "impossible partition": (["--algo", "fedavg", "--clients", "100", "--alpha", "0.01"], ["alpha", "draws"]),
    "unknown partition": (["--algo", "fedavg", "--set", "partition=ldaa"], ["ldaa", "did you mean lda?"]),
    "model": (["--algo", "fedavg", "--model", "resnet9"], ["resnet9", "did you mean resnet8?"]),
    "model of another size": (["--algo", "fedavg", "--model", "cnn_cifar"], ["32x32", "8x8", "models that fit"]),
    "a GPU where there is none": (["--algo", "fedavg", "--gpus-per-trial", "0.5"], ["0.5", "no CUDA GPU"]),
    "no CPU": (["--algo", "fedavg", "--cpus-per-trial", "0"], ["--cpus-per-trial must be >= 1, got 0"]),
    "more CPUs than cores": (["--algo", "fedavg", "--cpus-per-trial", "4096"], ["4096", "cores of this machine"]),
    "scheduler inline": (["--algo", "fedavg", "--scheduler", "asha"], ["--executor ray"]),
    "choice without validation": (
        ["--algo", "fedcad", "--set", "validation_fraction=0"],
        ["validation_fraction is 0", "beta, gamma"],
    ),
    "flips of digits": (["--algo", "fedavg", "--set", "augmentation=flip_crop"], ["mirrors"]),
    "missing file": (["--config", "nowhere.toml"], ["nowhere.toml"]),
    "all and one": (["--algo", "all,fedavg"], ["all stands alone"]),
}


@pytest.mark.parametrize(("arguments", "words"), BAD.values(), ids=BAD)
def test_bad_input_exits_2_before_anything_runs(
    arguments: list[str], words: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(tmp_path, *arguments) == 2
    message = capsys.readouterr().err
    assert message.splitlines()[-1].startswith("error: ")
    assert all(word in message for word in words), message
    assert not list(tmp_path.rglob("*.parquet"))


def test_missing_data_offline_exit_3(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert (
        run(tmp_path / "out", "--algo", "fedavg", "--dataset", "cifar10", "--offline", "--data-dir", str(tmp_path)) == 3
    )
    message = capsys.readouterr().err
    assert str(tmp_path) in message
    assert "--data-dir" in message


def test_an_output_folder_that_cannot_be_written_exits_3(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "file").write_text("in the way")
    assert run(tmp_path / "file" / "out", "--algo", "fedavg", "--rounds", "1") == 3
    assert "--out" in capsys.readouterr().err


def test_a_full_disk_exits_3_and_the_same_command_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ("--algo", "fedavg", "--rounds", "4", "--save-seconds", "0")
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


def test_a_machine_that_is_not_ready_ends_an_inline_sweep_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    writes = []

    def full(*_: object, **__: object) -> None:
        writes.append(1)
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(Store, "write", full)
    assert run(tmp_path, *SHORT) == 3
    assert len(writes) == 1


def test_a_failing_trial_leaves_the_others_and_says_why(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from algorithms.fedcad import FedCAD

    def broken(*_: object) -> None:
        raise ArithmeticError("the auxiliary set is haunted")

    with monkeypatch.context() as patch:
        patch.setattr(FedCAD, "broadcast", broken)
        assert run(tmp_path, "--algo", "fedavg,fedcad", "--set", "beta=0.3", "gamma=0.5", "--rounds", "1") == 1
    assert "haunted" in capsys.readouterr().err
    runs = Store(tmp_path).runs().set_index("algorithm")
    assert runs.status.to_dict() == {"fedavg": "finished", "fedcad": "failed"}
    assert "haunted" in runs.error["fedcad"]
    assert run(tmp_path, "--algo", "fedavg,fedcad", "--set", "beta=0.3", "gamma=0.5", "--rounds", "1") == 0
    assert set(Store(tmp_path).runs().status) == {"finished"}


def test_a_diverging_run_ends_early_and_says_so(tmp_path: Path) -> None:
    assert run(tmp_path, "--algo", "fedavg", "--lr", "1e12", "--rounds", "5") == 0
    row = Store(tmp_path).runs().iloc[0]
    assert row.diverged
    assert row.communications < 5


def test_reproduce_gives_the_row_again(swept: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    key = Store(swept).runs().run_key.iloc[0]
    assert sweep.main(["reproduce", key[:12], "--out", str(swept), "--into", str(tmp_path)]) == 0
    assert "bit for bit" in capsys.readouterr().out
    rows = Store(tmp_path).runs().set_index("run_key")
    assert rows.index.tolist() == [key]
    assert sweep.main(["reproduce", "nothing", "--out", str(swept)]) == 2


def test_reproduce_takes_a_file_of_rows(
    swept: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = Store(swept).runs()
    file = tmp_path / "kept.parquet"
    write_together([(run_table(stored_row(row)), file) for row in records(rows[:1])])
    monkeypatch.setenv("FEDKD_OUT", str(tmp_path / "usual"))
    assert sweep.main(["reproduce", rows.run_key[0], "--out", str(file)]) == 0
    assert "bit for bit" in capsys.readouterr().out
    assert set(Store(tmp_path / "usual" / "reproduced").finished()) == {rows.run_key[0]}


def test_what_is_advised_of_a_broken_curve_brings_it_back(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    once = ("--algo", "fedavg", "--rounds", "1", "--local-epochs", "1")
    assert run(tmp_path, *once) == 0
    before = Store(tmp_path).curves()
    (curve,) = (tmp_path / "curves").glob("*.parquet")
    curve.write_bytes(b"junk")
    row = tmp_path / "runs" / curve.name
    for command_ in (["--metric", "rounds@10"], ["--format", "csv", "--metric", "accuracy@1"]):
        assert compare.main([*command_, "--out", str(tmp_path)]) == 3
        assert f"delete it and {row}, or move both away; its runs are then run again" in capsys.readouterr().err
    curve.unlink()
    row.unlink()
    assert run(tmp_path, *once) == 0
    assert Store(tmp_path).curves().equals(before)


def test_a_saved_state_that_is_damaged_keeps_no_other_run_from_its_end(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    three = ("--algo", "fedavg", "--seeds", "3", "--rounds", "1", "--local-epochs", "1")
    units = make_plan(Request(("fedavg",), seeds=3, values={"rounds": ("1",), "local_epochs": ("1",)})).units
    state = tmp_path / "state" / units[1].key
    state.mkdir(parents=True)
    (state / "manifest.json").write_text("of another world")
    for pack in (("--pack", "3"), ()):
        assert run(tmp_path, *three, *pack) == 3
        assert capsys.readouterr().err.count(f"remove the folder {state} to start this run anew") == 1
        assert Store(tmp_path).status() == {units[0].key: "finished", units[2].key: "finished"}
    assert (state / "manifest.json").exists()


@pytest.mark.parametrize("status", ["stopped", "failed"])
def test_only_a_finished_run_is_reproduced(status: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    Store(tmp_path).write(make_row(status=status, error=status), [(1, "accuracy", 0.5)])
    (key,) = Store(tmp_path).runs().run_key
    assert sweep.main(["reproduce", key, "--out", str(tmp_path)]) == 2
    said = capsys.readouterr().err
    assert f"the run {key[:16]} is {status}" in said
    assert "only a finished row says what a whole one gave; give its command again to finish it" in said


def test_information_needs_neither_torch_nor_ray(tmp_path: Path) -> None:
    for arguments in (
        ["--help"],
        ["--list"],
        ["--algo", "fedcad", "--dataset", "cifar10", "--dry-run"],
        ["--algo", "fedcad", "--show"],
    ):
        code = (
            "import sys\nfrom bench.sweep import main\n"
            f"try:\n    main({[*arguments, '--out', str(tmp_path)]!r})\nexcept SystemExit:\n    pass\n"
            "sys.stderr.write(f\"{'torch' in sys.modules} {'ray' in sys.modules}\")"
        )
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
        assert done.stderr.endswith("False False"), (arguments, done.stderr)
        assert done.stdout


def test_ray_gives_the_rows_of_the_inline_executor(swept: Path, tmp_path: Path) -> None:
    (key,) = Store(swept).runs().query("algorithm == 'fedavg' and seed == 0").run_key
    claim = FileLock(tmp_path / "state" / f"{key}.lock", thread_local=False)
    (tmp_path / "state").mkdir()
    claim.acquire()
    patience = threading.Timer(90, claim.release)
    patience.start()
    said = ""
    with start(*SHORT, "--max-concurrent", "2", "--out", str(tmp_path)) as process:
        assert process.stdout
        assert process.stderr
        for line in process.stderr:
            said += line
            if "at work elsewhere" in line:
                claim.release()
        table = process.stdout.read()
    patience.cancel()
    assert process.returncode == 0, said
    assert_equal_results(swept, tmp_path)
    assert "fedcad" in table
    assert "Tune" not in said, "Ray's own chatter stays away"
    waits = [line for line in said.splitlines() if "at work elsewhere" in line]
    assert [line.partition(" is ")[0] for line in waits] == ["warning: fedavg seed 0"]
    assert not list((tmp_path / "state").iterdir())


@pytest.mark.parametrize(
    ("address", "words"),
    [("nowhere:abc", "its port must be a number, got 'abc'"), ("127.0.0.1:9", "is `ray start` running there?")],
)
def test_a_cluster_that_cannot_be_reached_is_said_at_once(address: str, words: str) -> None:
    with pytest.raises(EnvironmentProblem, match=re.escape(words)):
        check_address(address)


def test_asha_lets_only_like_compete_with_like(tmp_path: Path) -> None:
    """At alpha 100 everything learns faster than at 0.05: in one contest the hard cell would lose all its runs."""
    arguments = ["--algo", "fedprox", "--alpha", "100", "0.05", "--set", "mu=0,0.01,1e3,1e4", "--local-epochs", "1"]
    done = command(*arguments, "--rounds", "20", "--scheduler", "asha", "--out", str(tmp_path))
    assert done.returncode == 0, done.stderr
    finished = Store(tmp_path).runs().query("status == 'finished'")
    assert set(finished.alpha) == {100.0, 0.05}


def test_a_worker_that_dies_is_a_failed_row(tmp_path: Path) -> None:
    arguments = ["--algo", "fedavg,fedcad", "--set", "beta=0.3", "gamma=0.5", "--rounds", "1", "--out", str(tmp_path)]
    code = (
        "import os, sys\nfrom algorithms.fedcad import FedCAD\n"
        "from bench.tuning import cluster\n"
        "original = cluster._listed\n"
        "def deadly(*given):\n"
        "    made = original(*given)\n"
        "    def step(self):\n"
        "        if self.trial.runs[0].unit.algorithm == 'fedcad':\n"
        "            os._exit(9)\n"
        "        return self.trial.step()\n"
        "    made.step = step\n"
        "    return made\n"
        "cluster._listed = deadly\n"
        "from bench.sweep import main\n"
        f"sys.exit(main({arguments!r}))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 1, done.stderr
    runs = Store(tmp_path).runs().set_index("algorithm")
    assert runs.status.to_dict() == {"fedavg": "finished", "fedcad": "failed"}
    assert "worker died" in runs.error["fedcad"]


def test_a_dead_workers_row_that_cannot_be_stored_ends_no_sweep(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from bench.tuning import cluster
    from bench.tuning.events import Events
    from bench.tuning.runner import Outcome
    from bench.tuning.watcher import Watcher

    def full(unit: Unit, *_: object) -> None:
        tried.append(unit.seed)
        raise OSError(errno.ENOSPC, "No space left on device")

    tried: list[int] = []
    monkeypatch.setattr("bench.tuning.run.record_failure", full)
    setting, execution, outcome = SETTINGS["fedkd", "digits"], Execution(out=str(tmp_path)), Outcome()
    units = [Unit("fedavg", {}, setting, seed) for seed in (0, 1)]
    watcher = Watcher(cluster._listed([units], [execution]), execution, Events(), outcome)
    error = tmp_path / "error"
    error.write_bytes(pickle.dumps(RuntimeError("first\nThe actor is dead because its owner has died")))
    dead = SimpleNamespace(trial_id="a", config={"index": 0}, pickled_error_file=error)
    watcher.on_trial_error(0, [], dead)  # type: ignore[arg-type]
    assert tried == [0, 1]
    assert outcome.statuses == ["failed"]
    (problem,) = outcome.problems
    assert "the worker died: The actor is dead because its owner has died; its row cannot be stored" in problem
    assert "No space left" in problem


@pytest.mark.parametrize(("error", "status"), [("", "stopped"), ("round 3, client 1: ...", "failed")])
def test_what_a_scheduler_ends_has_failed_if_a_seed_of_it_has(error: str, status: str, tmp_path: Path) -> None:
    from bench.tuning import cluster
    from bench.tuning.events import Events
    from bench.tuning.runner import Outcome
    from bench.tuning.watcher import Watcher

    execution, outcome = Execution(out=str(tmp_path)), Outcome()
    units = [Unit("fedavg", {}, SETTINGS["fedkd", "digits"], seed) for seed in (0, 1)]
    watcher = Watcher(cluster._listed([units], [execution]), execution, Events(), outcome)
    report = {"status": "running", "error": error, "round": 3}
    ended = SimpleNamespace(trial_id="a", config={"index": 0}, last_result=report)
    watcher.on_trial_complete(0, [], ended)  # type: ignore[arg-type]
    assert (outcome.statuses, outcome.exit_status) == ([status], int(status == "failed"))


# What happens in a worker of Ray, and not in a step: to values, to how the command ends, and what it says.
BESIDE_STEPS = {
    "storing what ASHA stopped": (
        "stop",
        "raise OSError(28, 'No space left on device')",
        ("mu=0,0.01,1e3,1e4", 3, "no space left for"),
    ),
    "beginning": (
        "__init__",
        "raise ImportError('no torch')",
        ("mu=0", 1, "the worker could not begin: ImportError: no t"),
    ),
}


@pytest.mark.parametrize(("method", "body", "expected"), BESIDE_STEPS.values(), ids=BESIDE_STEPS)
def test_what_goes_wrong_beside_the_steps_of_a_worker_is_said(
    method: str, body: str, expected: tuple[str, int, str], tmp_path: Path
) -> None:
    values, status, words = expected
    search = ["--algo", "fedprox", "--set", values, "--local-epochs", "1", "--rounds", "20", "--scheduler", "asha"]
    arguments = [*search, "-q", "--max-concurrent", "2", "--out", str(tmp_path)]
    code = (
        "import sys\nfrom bench.tuning import cluster\n"
        "original = cluster._listed\n"
        "def ill(*given):\n"
        "    made = original(*given)\n"
        "    def setup(self, config):\n"
        "        from bench.tuning.run import Run\n"
        "        def fail(*_):\n"
        f"            {body}\n"
        f"        Run.{method} = fail\n"
        "        return super(made, self).setup(config)\n"
        "    made.setup = setup\n"
        "    return made\n"
        "cluster._listed = ill\n"
        "from bench.sweep import main\n"
        f"sys.exit(main({arguments!r}))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == status, done.stderr
    assert words in done.stderr
    assert "stopped" not in set(Store(tmp_path).status().values())


def test_a_disk_that_is_full_when_an_interruption_saves_exits_3(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    step = Trial.step

    def stopped(self: Trial) -> dict[str, Any]:
        """A stop that comes when the runs have settled."""
        step(self)
        Path(str(self.execution.stop_file)).touch()
        return self.report()

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device", str(tmp_path))

    monkeypatch.setattr(Trial, "step", stopped)
    monkeypatch.setattr(StateFolder, "save", full)
    assert run(tmp_path, "--algo", "fedavg", "--rounds", "2000") == 3
    assert "no space left" in capsys.readouterr().err


def test_runs_that_another_version_ran_after_are_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """As when an edit of an algorithm was tried, and undone."""
    arguments = ["--algo", "fedavg", "--rounds", "1"]
    assert run(tmp_path, *arguments) == 0
    assert "--force" not in capsys.readouterr().err
    (row,) = records(Store(tmp_path).runs())
    identity = identity_columns("fedavg", 99, {}, json.loads(row["setting_json"]), 0)
    edited = stored_row(row) | identity | {"finished": row["finished"] + timedelta(days=1)}
    Store(tmp_path).write(edited, [(1, "accuracy", 0.5)])
    assert run(tmp_path, *arguments) == 0
    said = " ".join(capsys.readouterr().err.split())
    assert "fedavg: 1 run of this command ran before another version of it did" in said
    assert "--force runs this one's again" in said

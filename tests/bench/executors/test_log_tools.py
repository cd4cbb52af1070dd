"""Tools of `--log` without their packages: what each is given, and what is left out."""

from __future__ import annotations

import math
import sys
import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from rows import CURVE, make_row

from algorithms import entry
from bench.errors import EnvironmentProblem
from bench.executors import logs
from bench.executors.logs import LogWriter, Mlflow, TensorBoard, Wandb, _Curve
from bench.executors.progress import watched
from bench.planning.options import SweepOptions
from bench.planning.planner import make_plan
from leaderboards import Store, StoreError, identity_columns

CONFIG = {"algorithm": "mine:My Prox", "run_key": "ab" * 32, "hp_mu": 0.5, "clip_norm": 1.0}


class Tool:
    """A tool that keeps what it is given, and may fail."""

    look = "look here"
    where = "there"

    def __init__(self, fails_at: str = "") -> None:
        self.fails_at = fails_at
        self.calls: list[tuple[Any, ...]] = []

    def _note(self, *call: Any) -> None:
        self.calls.append(call)
        if call[0] == self.fails_at:
            raise OSError("full")

    def begin(self, name: str, config: Any) -> str:
        self._note("begin", name)
        return name

    def write(self, run: str, rounds: Any) -> None:
        self._note("write", run, {at: dict(values) for at, values in rounds.items()})

    def end(self, run: str, status: str) -> None:
        self._note("end", run, status)


(RUN,) = make_plan(SweepOptions(("fedavg",))).run_specs
TRIAL = watched([RUN], {})
NAME = f"fedavg-{RUN.key[:16]}"


def written(out: Path, *tools: Tool) -> LogWriter:
    return LogWriter(dict(zip(("a", "b"), tools, strict=False)), out)


def test_the_best_accuracy_grows(tmp_path: Path) -> None:
    tool = Tool()
    writer = written(tmp_path, tool)
    points = [(2, "accuracy", 0.5), (1, "accuracy", math.nan), (1, "loss", 2.0)]
    later = [(3, "accuracy", 0.25), (4, "accuracy", 0.75), (5, "loss", 1.0)]
    for new in (points, [], later):
        writer.reported(TRIAL, {"curves": {RUN.key: new}})
    writer.ended(TRIAL, {"status": "finished"})
    writer.close()
    begin, first, second, end = tool.calls
    assert begin == ("begin", NAME)
    assert first[2][2] == {"accuracy": 0.5, "best_accuracy": 0.5}
    assert math.isnan(first[2][1]["best_accuracy"])
    assert list(first[2]) == [1, 2]
    assert second[2] == {
        3: {"accuracy": 0.25, "best_accuracy": 0.5},
        4: {"accuracy": 0.75, "best_accuracy": 0.75},
        5: {"loss": 1.0, "best_accuracy": 0.75},
    }
    assert end == ("end", NAME, "finished")
    assert (tmp_path / "logs/a/.written").read_text() == f"{RUN.key} finished there\n"


@pytest.mark.parametrize(
    ("report", "status", "kept"),
    [
        ({"status": "stopped"}, "stopped", True),
        ({"status": "failed"}, "failed", False),
        ({"status": "environment"}, "interrupted", False),
        ({"status": "failed", "statuses": {RUN.key: "finished"}}, "finished", True),
        ({"status": "failed", "statuses": {RUN.key: "running"}}, "failed", False),
        (None, "interrupted", False),
    ],
)
def test_an_end_has_the_runs_status(
    report: dict[str, Any] | None, status: str, kept: bool, tmp_path: Path
) -> None:
    tool = Tool()
    writer = written(tmp_path, tool)
    writer.reported(TRIAL, {"curves": {RUN.key: [(1, "accuracy", 0.5)]}})
    if report:
        writer.ended(TRIAL, report)
    writer.close()
    assert tool.calls[-1] == ("end", NAME, status)
    assert (tmp_path / "logs/a/.written").exists() == kept


def test_a_round_again_begins_anew(tmp_path: Path) -> None:
    tool = Tool()
    writer = written(tmp_path, tool)
    for at in (1, 2, 2, 3):
        writer.reported(TRIAL, {"curves": {RUN.key: [(at, "accuracy", 0.5)]}})
    writer.close()
    kinds = [call[0] for call in tool.calls]
    assert kinds == ["begin", "write", "write", "end", "begin", "write", "write", "end"]
    assert tool.calls[3][2] == "interrupted"


@pytest.mark.parametrize("moment", ["begin", "write", "end"])
def test_a_failing_tool_leaves_the_other(
    moment: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    broken = Tool(moment)
    sound = Tool()
    writer = written(tmp_path, broken, sound)
    for at in (1, 2):
        writer.reported(TRIAL, {"curves": {RUN.key: [(at, "accuracy", 0.5)]}})
    writer.ended(TRIAL, {"status": "finished"})
    writer.close()
    assert [call[0] for call in sound.calls] == ["begin", "write", "write", "end"]
    assert broken.calls[-1][0] == moment
    assert list(writer.tools) == ["b"]
    assert capsys.readouterr().err == (
        "warning: --log a failed and is left out, the runs go on: OSError: full; the same command, "
        "given again, writes what is missing there\n"
    )


def test_stored_rows_are_caught_up(tmp_path: Path) -> None:
    """Finished and stopped ones that a tool lacks, but no failed ones."""
    store = Store(tmp_path)
    rows = [make_row(seed=seed) for seed in range(3)]
    rows[1] |= {"status": "stopped"}
    rows[2] |= {"status": "failed", "error": "e"}
    for row in rows:
        store.write(row, CURVE)
    keys = [row["run_key"] for row in rows]
    first = Tool()
    second = Tool()
    writer = written(tmp_path, first)
    assert writer.catch_up(store, keys) == 2
    writer.close()
    ends = {call[1]: call[2] for call in first.calls if call[0] == "end"}
    assert ends == {f"fedavg-{keys[0][:16]}": "finished", f"fedavg-{keys[1][:16]}": "stopped"}
    grown = {
        1: {"accuracy": 0.25, "best_accuracy": 0.25},
        2: {"accuracy": 0.5, "loss": 1.5, "best_accuracy": 0.5},
    }
    assert [call[2] for call in first.calls if call[0] == "write"] == [grown] * 2
    again = written(tmp_path, first, second)
    first.calls.clear()
    assert again.catch_up(store, keys[:1]) == 1
    again.close()
    assert first.calls == []
    assert [call[0] for call in second.calls] == ["begin", "write", "end"]
    assert again.catch_up(store, keys[:1]) == 0


def test_stored_rows_of_searches_are_logged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Beside those of runs that are not to do; the tool is closed at the end."""
    tool = Tool()
    monkeypatch.setattr(logs, "make_tools", lambda names, out, offline: {"a": tool})
    plan = make_plan(SweepOptions(("fedavg", "fedprox"), search="optuna"))
    stored = make_plan(SweepOptions(("fedprox",))).run_specs[0]
    store = Store(tmp_path)
    for run_spec, name in ((RUN, "fedavg"), (stored, "fedprox")):
        identity = identity_columns(*run_spec.identity(entry(name)))
        store.write(make_row() | identity, CURVE)
    for to_do, names in ((plan.run_specs, ["fedprox"]), ((), ["fedavg"])):
        tool.calls.clear()
        with logs.logged(plan, to_do, store) as (writer,):
            assert isinstance(writer, LogWriter)
            assert writer._thread.daemon, "it keeps no process from its end"
        begun = [call[1].partition("-")[0] for call in tool.calls if call[0] == "begin"]
        assert begun == names
        notes = "note: curves of 1 stored run are logged, too\nnote: curves: look here\n"
        assert capsys.readouterr().err == notes


def test_a_tool_that_hangs_is_abandoned(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    released = threading.Event()
    tool = Tool()
    tool.begin = lambda name, config: released.wait()  # type: ignore[assignment,method-assign]
    writer = written(tmp_path, tool)
    writer.reported(TRIAL, {"curves": {RUN.key: [(1, "accuracy", 0.5)]}})
    monkeypatch.setattr(logs, "CLOSE_SECONDS", 0.01)
    writer.close()
    assert capsys.readouterr().err == (
        "warning: --log a did not finish in time and is abandoned; the same command, given again, "
        "writes what is missing there\n"
    )
    released.set()


def test_names_are_files() -> None:
    assert _Curve(CONFIG).name == f"mine_My_Prox-{'ab' * 8}"
    row = make_row("fedprox", {"mu": 0.5}, {"lr": 0.25}, seed=3)
    config = logs._config(row)
    assert (config["hp_mu"], config["lr"], config["seed"]) == (0.5, 0.25, 3)
    assert (config["algorithm"], config["run_key"]) == ("fedprox", row["run_key"])


def test_tools_that_cannot_be_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(error: Exception) -> Any:
        def make(folder: Path, offline: bool) -> None:
            assert folder == tmp_path / "logs"
            raise error

        return make

    for error, text in (
        (
            ImportError("no x"),
            '--log t needs a package that is not here: pip install "fedkd-bench[t',
        ),
        (ValueError("odd"), "--log t cannot be used: ValueError: odd"),
        (EnvironmentProblem("own"), "own"),
    ):
        monkeypatch.setattr(logs, "TOOLS", {"t": fail(error)})
        with pytest.raises(EnvironmentProblem) as refused:
            logs.make_tools(["t"], tmp_path, offline=True)
        assert str(refused.value).startswith(text)
    (tmp_path / "logs").symlink_to(tmp_path)
    with pytest.raises(StoreError):
        logs.make_tools(["t"], tmp_path, offline=True)


# TensorBoard, Weights & Biases, MLflow


def test_tensorboard_gets_a_session_and_columns(tmp_path: Path) -> None:
    tool = TensorBoard(tmp_path, offline=True)
    assert (tool.where, tool.look) == (
        str(tmp_path / "tensorboard"),
        f"tensorboard --logdir {tmp_path / 'tensorboard'}",
    )
    put: list[dict[str, Any]] = []
    tool._put = lambda file, **content: put.append(content)  # type: ignore[method-assign]
    columns: list[Any] = []

    def hparams(given: dict[str, Any], metrics: list[str]) -> list[str]:
        columns.append((given, metrics))
        return ["experiment", "start", "end"]

    tool._hparams = hparams
    run = tool.begin("name", CONFIG)
    kept = {name: CONFIG[name] for name in ("algorithm", "run_key", "hp_mu")}
    assert columns == [(kept, ["best_accuracy", "accuracy"])]
    session, *contents = put
    assert session["session_log"].status == session["session_log"].START
    assert contents == [{"summary": "experiment"}, {"summary": "start"}]
    assert (tmp_path / "tensorboard" / "name").is_dir()
    flushed: list[bool] = []
    closed: list[bool] = []
    file = SimpleNamespace(flush=lambda: flushed.append(True), close=lambda: closed.append(True))
    tool.write((file, run[1]), {3: {"accuracy": 0.5}, 4: {"accuracy": 0.75}})
    assert [content["step"] for content in put[3:]] == [3, 4]
    (value,) = put[3]["summary"].value
    assert (value.tag, value.simple_value) == ("accuracy", 0.5)
    assert flushed == [True]
    for status, contents in (("finished", [{"summary": "end"}]), ("failed", [])):
        del put[:]
        tool.end((file, run[1]), status)
        assert put == contents
    assert closed == [True, True]


@pytest.fixture
def wandb(monkeypatch: pytest.MonkeyPatch) -> Any:
    """A package with a key, or without."""
    for name in ("WANDB_MODE", "WANDB_PROJECT", "WANDB_ENTITY"):
        monkeypatch.delenv(name, raising=False)
    package = SimpleNamespace(key=True, asked=[])

    def login(**options: Any) -> bool:
        package.asked.append(options)
        return bool(package.key)

    package.login = login
    package.Settings = lambda **options: options
    package.init = lambda **options: options
    monkeypatch.setitem(sys.modules, "wandb", package)
    return package


def test_wandb_has_a_mode_and_a_place(
    wandb: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    online = Wandb(tmp_path, offline=False)
    assert wandb.asked == [{"prompt": False, "verify": False}]
    assert (online.where, online.look) == ("online:/fedkd-bench", "W&B fedkd-bench")
    monkeypatch.setenv("WANDB_ENTITY", "we")
    monkeypatch.setenv("WANDB_PROJECT", "p")
    offline = Wandb(tmp_path, offline=True)
    synced = f"wandb sync {tmp_path / 'wandb'}/offline-run-*"
    assert (offline.where, offline.look) == ("offline:we/p", synced)
    monkeypatch.setenv("WANDB_MODE", "offline")
    assert Wandb(tmp_path, offline=False).look == synced
    assert len(wandb.asked) == 1
    monkeypatch.delenv("WANDB_MODE")
    wandb.key = False
    with pytest.raises(EnvironmentProblem) as refused:
        Wandb(tmp_path, offline=False)
    assert str(refused.value) == (
        "--log wandb: no API key of Weights & Biases is here; `wandb login` stores one, and "
        f"WANDB_MODE=offline keeps the runs in {tmp_path / 'wandb'}"
    )


def test_wandb_gets_a_run_of_the_row(wandb: Any, tmp_path: Path) -> None:
    folder = tmp_path / "out" / "logs"
    for _ in range(2):  # the folder may be there
        begun = Wandb(folder, offline=True).begin("name", CONFIG)
    assert begun == {
        "project": "fedkd-bench",
        "id": "name",
        "name": "name",
        "group": CONFIG["algorithm"],
        "config": CONFIG,
        "dir": str(folder),
        "mode": "offline",
        "reinit": "create_new",
        "settings": {"silent": True, "console": "off", "x_disable_stats": True},
    }
    assert folder.is_dir()
    logged: list[Any] = []
    run = SimpleNamespace(log=lambda values, step: logged.append((step, values)))
    Wandb(folder, offline=True).write(run, {1: {"a": 0.5}, 2: {"a": 0.25}})
    assert logged == [(1, {"a": 0.5}), (2, {"a": 0.25})]


class Client:
    """MLflow's client, with two older runs."""

    def __init__(self) -> None:
        self.calls: list[Any] = []

    def __getattr__(self, name: str) -> Any:
        def call(*given: Any, **more: Any) -> Any:
            self.calls.append((name, *given, *more.items()))
            info = SimpleNamespace(run_id="new")
            if name == "search_runs":
                return [SimpleNamespace(info=SimpleNamespace(run_id=old)) for old in ("a", "b")]
            return SimpleNamespace(info=info)

        return call


@pytest.fixture
def mlflow(monkeypatch: pytest.MonkeyPatch) -> Mlflow:
    """MLflow without its package."""
    tool = Mlflow.__new__(Mlflow)
    tool._client = Client()
    tool._experiment = "7"
    entities = SimpleNamespace(Param=lambda *given: given, Metric=lambda *given: given)
    tool._entities = entities
    monkeypatch.setattr(logs.time, "time", lambda: 12.5)
    return tool


def test_mlflow_replaces_older_runs(mlflow: Mlflow) -> None:
    assert mlflow.begin("name", CONFIG) == "new"
    key = CONFIG["run_key"]
    tags = {
        "run_key": key,
        "mlflow.source.name": "fedkd-bench",
        "algorithm": CONFIG["algorithm"],
    }
    params = [(name, str(value)) for name, value in CONFIG.items()]
    assert mlflow._client.calls == [
        ("search_runs", ["7"], f"tags.run_key = '{key}'"),
        ("delete_run", "a"),
        ("delete_run", "b"),
        ("create_run", "7", ("run_name", "name"), ("tags", tags)),
        ("log_batch", "new", ("params", params)),
    ]


def test_mlflow_takes_a_thousand_at_once(mlflow: Mlflow) -> None:
    rounds = {at: {"a": 0.5, "b": 0.25} for at in range(1, 602)}
    mlflow.write("run", rounds)
    batches = [dict(call[2:])["metrics"] for call in mlflow._client.calls]
    assert [len(batch) for batch in batches] == [1000, 202]
    assert batches[0][:3] == [("a", 0.5, 12500, 1), ("b", 0.25, 12500, 1), ("a", 0.5, 12500, 2)]
    assert batches[1][-1] == ("b", 0.25, 12500, 601)


@pytest.mark.parametrize(
    ("status", "own"),
    [
        ("finished", "FINISHED"),
        ("stopped", "FINISHED"),
        ("failed", "FAILED"),
        ("interrupted", "KILLED"),
    ],
)
def test_mlflow_has_its_own_statuses(status: str, own: str, mlflow: Mlflow) -> None:
    mlflow.end("run", status)
    assert mlflow._client.calls == [("set_terminated", "run", own)]

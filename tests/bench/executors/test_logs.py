"""`--log`: each row's series in a tool is its stored curve, whatever happened on the way, and no run notices."""

from __future__ import annotations

import json
import logging
import os
import shutil
import signal
import struct
import sys
import threading
from collections.abc import Iterator, Mapping
from itertools import accumulate
from pathlib import Path
from types import ModuleType
from typing import Any
from unittest.mock import Mock

import numpy as np
import pytest
from commands import assert_equal_results, command, kill_all, saved_round, start, wait_for

from bench.errors import EnvironmentProblem, UsageError
from bench.execution import LOGS
from bench.executors import logs
from bench.executors.logs import Config, Rounds
from bench.executors.progress import watched
from bench.planning.options import SweepOptions
from bench.planning.planner import make_plan
from bench.planning.trial_names import Varied
from bench.sweep.command import main
from bench.terminal.values import logs_of
from leaderboards import Store, StoreError

Curves = dict[str, dict[str, dict[int, float]]]  # series -> metric -> round -> value
About = dict[str, dict[str, Any]]  # series -> its configuration and its end

# FedAvg with T1 yields two rows; the configurations of FedCAD differ in beta.
SMALL = ("--algo", "fedavg_t1,fedcad", "--set", "gamma=0.5", "beta=0.3,0.5", "--rounds", "4")
INLINE = (*SMALL, "--executor", "inline", "--quiet")
LONG = (
    "--algo",
    "fedgkd_t1",
    "--set",
    "gamma=0.5",
    "buffer=3",
    "--rounds",
    "40",
    "--local-epochs",
    "2",
)
LONG += ("--save-seconds", "0", "--executor")


def stored(out: Path) -> Curves:
    """What the logs of a results folder must hold: its curves, with the best accuracy so far."""
    found: Curves = {}
    curves = Store(out).curves().sort_values("round")
    for (key, algorithm, metric), points in curves.groupby(["run_key", "algorithm", "metric"]):
        series = found.setdefault(f"{algorithm}-{key[:16]}", {})
        series[metric] = dict(
            zip(points["round"].astype(int), points["value"].astype(float), strict=True)
        )
    for series in found.values():
        accuracy = series["accuracy"]
        series["best_accuracy"] = dict(
            zip(accuracy, accumulate(accuracy.values(), max), strict=True)
        )
    return found


def in_tensorboard(out: Path) -> Curves:
    """What TensorBoard reads of its folder. A step that is there twice is an error."""
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    found: Curves = {}
    for folder in (out / "logs" / "tensorboard").glob("*-*"):
        events = EventAccumulator(str(folder), size_guidance={"scalars": 0})
        events.Reload()
        points = {
            tag: [(point.step, point.value) for point in events.Scalars(tag)]
            for tag in events.Tags()["scalars"]
        }
        assert all(len(values) == len(dict(values)) for values in points.values()), (
            "a step is there twice"
        )
        found[folder.name] = {tag: dict(values) for tag, values in points.items()}
    return found


def assert_same(logged: Curves, expected: Curves) -> None:
    """Equal names, metrics and rounds, and values but for single precision."""
    assert logged.keys() == expected.keys()
    for name, metrics in expected.items():
        assert logged[name].keys() == metrics.keys()
        for metric, points in metrics.items():
            assert list(logged[name][metric]) == list(points), f"{name} {metric}"
            np.testing.assert_array_equal(
                np.float32(list(logged[name][metric].values())), np.float32(list(points.values()))
            )


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The small sweep without any log."""
    out = tmp_path_factory.mktemp("plain")
    assert main([*INLINE, "--out", str(out)]) == 0
    return out


@pytest.fixture(scope="module")
def followed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The small sweep with TensorBoard."""
    out = tmp_path_factory.mktemp("followed")
    assert main([*INLINE, "--out", str(out), "--log", "tensorboard"]) == 0
    return out


def test_every_row_is_a_series_and_no_result_changes(plain: Path, followed: Path) -> None:
    assert_equal_results(plain, followed)
    logged = in_tensorboard(followed)
    assert sorted(name.rpartition("-")[0] for name in logged) == [
        "fedavg",
        "fedavg_t1",
        "fedcad",
        "fedcad",
    ]
    assert_same(logged, stored(followed))


@pytest.mark.slow
def test_a_sweep_that_is_interrupted_then_killed_has_every_step_once(tmp_path: Path) -> None:
    long = (*LONG, "inline", "--out", str(tmp_path), "--log", "tensorboard")
    process = start(*long)
    wait_for(lambda: saved_round(tmp_path) >= 4)
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 130, err
    interrupted = in_tensorboard(tmp_path)
    assert len(interrupted) == 2
    assert all(
        list(one["accuracy"]) == list(range(1, saved_round(tmp_path) + 1))
        for one in interrupted.values()
    )
    process = start(*long)
    wait_for(lambda: saved_round(tmp_path) >= 12)
    kill_all(process)
    assert main([*long]) == 0
    assert_same(in_tensorboard(tmp_path), stored(tmp_path))


def test_a_run_that_another_worker_reports_from_its_beginning_is_logged_anew(
    tmp_path: Path,
) -> None:
    writer = logs.LogWriter(logs.make_tools(["tensorboard"], tmp_path, offline=True), tmp_path)
    (run_spec,) = make_plan(SweepOptions(("fedavg",))).run_specs
    trial = watched([run_spec], {"fedavg": Varied()})
    points = [(at, "accuracy", at / 10) for at in range(1, 7)]
    for reported in (points[:2], points[2:4], points[:3], points[3:]):
        writer.reported(trial, {"curves": {run_spec.key: reported}})
    writer.ended(trial, {"status": "finished"})
    writer.close()
    (series,) = in_tensorboard(tmp_path).values()
    assert series["best_accuracy"] == pytest.approx({at: at / 10 for at in range(1, 7)})


def test_stored_runs_are_logged_when_asked_for_later(plain: Path, tmp_path: Path) -> None:
    out = Path(shutil.copytree(plain, tmp_path / "out"))
    for _ in range(2):
        assert main([*INLINE, "--out", str(out), "--log", "tensorboard"]) == 0
        assert_same(in_tensorboard(out), stored(out))


def test_a_forced_run_is_logged_anew(tmp_path: Path) -> None:
    forced = [
        "--algo",
        "fedavg",
        "--rounds",
        "3",
        "--executor",
        "inline",
        "-q",
        "--out",
        str(tmp_path),
        "--force",
    ]
    for _ in range(2):
        assert main([*forced, "--log", "tensorboard"]) == 0
        assert_same(in_tensorboard(tmp_path), stored(tmp_path))


def test_configuration_and_end_of_a_series_are_tensorboards_hyperparameters(followed: Path) -> None:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
    from tensorboard.plugins.hparams import plugin_data_pb2

    row = Store(followed).runs().query("algorithm == 'fedcad'").iloc[0]
    events = EventAccumulator(str(followed / "logs" / "tensorboard" / f"fedcad-{row.run_key[:16]}"))
    events.Reload()
    content = events.PluginTagToContent("hparams")
    began = plugin_data_pb2.HParamsPluginData.FromString(content["_hparams_/session_start_info"])
    config = began.session_start_info.hparams
    assert config["run_key"].string_value == row.run_key
    assert config["hp_beta"].number_value == json.loads(row.hp_json)["beta"]
    assert (config["algorithm"].string_value, config["alpha"].number_value) == ("fedcad", row.alpha)
    assert "_hparams_/session_end_info" in content


class Memory:
    """A tool that keeps what it is given, and fails or waits if told to."""

    look = "look into memory"

    def __init__(
        self, fails_at: str = "", waits: threading.Event | None = None, where: str = "here"
    ) -> None:
        self.fails_at, self.waits, self.where = fails_at, waits, where
        self.given: dict[str, dict[int, Mapping[str, float]]] = {}
        self.ends: dict[str, str] = {}
        self.asked_of: list[str] = []

    def begin(self, name: str, config: Config) -> str:
        self._do("begin")
        self.given[name] = {}
        return name

    def write(self, run: str, rounds: Rounds) -> None:
        self._do("write")
        self.given[run].update(rounds)

    def end(self, run: str, status: str) -> None:
        self._do("end")
        assert run not in self.ends
        self.ends[run] = status

    def _do(self, what: str) -> None:
        self.asked_of.append(what)
        if self.waits:
            self.waits.wait()
        if what == self.fails_at:
            raise OSError(28, "No space left on device")


@pytest.fixture
def in_memory(monkeypatch: pytest.MonkeyPatch) -> Any:
    def use(*tools: Memory) -> None:
        made = dict(zip(LOGS, tools, strict=False))
        monkeypatch.setattr(
            logs, "make_tools", lambda names, out, offline: {name: made[name] for name in names}
        )

    return use


@pytest.mark.slow
@pytest.mark.parametrize("moment", ["begin", "write"])
def test_a_tool_that_fails_loses_no_run(
    moment: str, plain: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], in_memory: Any
) -> None:
    broken, sound = Memory(fails_at=moment), Memory()
    in_memory(broken, sound)
    assert main([*INLINE, "--out", str(tmp_path), "--log", "tensorboard,wandb"]) == 0
    err = capsys.readouterr().err
    assert err.count("--log tensorboard failed") == 1
    assert broken.asked_of[-1] == moment, "it is not asked again"
    assert broken.asked_of.count(moment) == 1
    assert_equal_results(plain, tmp_path)
    assert sound.ends == dict.fromkeys(stored(tmp_path), "finished")

    mended = Memory()
    in_memory(mended, sound)
    assert main([*INLINE, "--out", str(tmp_path), "--log", "tensorboard,wandb"]) == 0
    assert mended.given.keys() == sound.given.keys() == stored(tmp_path).keys()


def test_another_destination_is_given_the_stored_runs(
    plain: Path, tmp_path: Path, in_memory: Any
) -> None:
    out = Path(shutil.copytree(plain, tmp_path / "out"))
    first, again, elsewhere = Memory(), Memory(), Memory(where="elsewhere")
    for tool in (first, again, elsewhere):
        in_memory(tool)
        assert main([*INLINE, "--out", str(out), "--log", "tensorboard"]) == 0
    assert first.given.keys() == elsewhere.given.keys() == stored(out).keys()
    assert not again.given


@pytest.mark.slow
def test_a_tool_that_hangs_does_not_keep_the_sweep(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    in_memory: Any,
) -> None:
    monkeypatch.setattr(logs, "CLOSE_SECONDS", 0.2)
    released = threading.Event()
    in_memory(Memory(waits=released))
    assert main([*INLINE, "--out", str(tmp_path), "--log", "tensorboard"]) == 0
    released.set()
    assert "--log tensorboard" in capsys.readouterr().err
    assert len(Store(tmp_path).finished()) == 4


def test_names() -> None:
    assert logs_of(["mlflow,tensorboard", "mlflow"]) == ("tensorboard", "mlflow")
    with pytest.raises(UsageError, match="tensorbord"):
        logs_of(["tensorbord"])


@pytest.mark.parametrize(
    ("tool", "module"),
    [("tensorboard", "tensorboardX"), ("wandb", "wandb"), ("mlflow", "mlflow")],
)
def test_a_missing_package_is_exit_3_and_says_how_to_get_it(
    tool: str,
    module: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setitem(sys.modules, module, None)
    assert main([*INLINE, "--out", str(tmp_path), "--log", tool]) == 3
    assert f'pip install "fedkd-bench[{tool}]"' in capsys.readouterr().err
    assert not Store(tmp_path).status(), "nothing ran"


def in_mlflow(out: Path) -> tuple[Curves, About]:
    """Read MLflow's store of a results folder. A run or a step that is there twice is an error."""
    from mlflow.tracking import MlflowClient

    found: Curves = {}
    about: About = {}
    client = MlflowClient(f"sqlite:///{out / 'logs' / 'mlflow' / 'mlflow.db'}")
    for run in client.search_runs([client.get_experiment_by_name("fedkd-bench").experiment_id]):
        name = run.info.run_name
        assert name not in found, "a run is there twice"
        series = found.setdefault(name, {})
        for metric in run.data.metrics:
            points = [
                (point.step, point.value)
                for point in client.get_metric_history(run.info.run_id, metric)
            ]
            assert len(points) == len(dict(points)), f"{metric}: a step is there twice"
            series[metric] = dict(sorted(points))
        about[name] = {**run.data.params, **run.data.tags, "status": run.info.status.lower()}
    return found, about


def records(content: bytes) -> Iterator[bytes]:
    """The records of a file of Weights & Biases: LevelDB's log format, its magic number in front."""
    at, parts = 7, b""
    while at + 7 <= len(content):
        if 32768 - at % 32768 < 7:  # the rest of a block that holds no header
            at += 32768 - at % 32768
            continue
        size, kind = struct.unpack_from("<HB", content, at + 4)
        parts += content[at + 7 : at + 7 + size]
        at += 7 + size
        if kind in (1, 4):  # whole, or the last part
            yield parts
            parts = b""


def in_wandb(out: Path) -> tuple[Curves, About]:
    """The history of each offline run, and its last summary with its configuration."""
    from wandb.proto import wandb_internal_pb2

    found: Curves = {}
    about: About = {}
    for file in (out / "logs" / "wandb").glob("offline-run-*/run-*.wandb"):
        name = file.stem.removeprefix("run-")
        assert name not in found, "a run is there twice"
        series, known = found.setdefault(name, {}), about.setdefault(name, {})
        for data in records(file.read_bytes()):
            record = wandb_internal_pb2.Record.FromString(data)
            items = {
                item.key or item.nested_key[0]: json.loads(item.value_json)
                for item in record.history.item
            }
            for metric in items.keys() - {"_step", "_runtime", "_timestamp"}:
                series.setdefault(metric, {})[items["_step"]] = items[metric]
            known |= {item.key: json.loads(item.value_json) for item in record.summary.update}
            known |= {item.key: json.loads(item.value_json) for item in record.run.config.update}
    return found, about


READERS = {"mlflow": ("mlflow", in_mlflow), "wandb": ("wandb.sdk", in_wandb)}
# WANDB_SERVICE: where a test in this process has left its helper, which commands would share.
VARIABLES = (
    "MLFLOW_TRACKING_URI",
    "MLFLOW_EXPERIMENT_NAME",
    "WANDB_API_KEY",
    "WANDB_MODE",
    "WANDB_PROJECT",
)
VARIABLES += ("WANDB_ENTITY", "WANDB_SERVICE")


@pytest.fixture(params=READERS)
def tool(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """MLflow and Weights & Biases, where they are installed, without variables of the user."""
    name = str(request.param)
    pytest.importorskip(
        READERS[name][0], reason=f"needs the package: pip install 'fedkd-bench[{name}]'"
    )
    for variable in VARIABLES:
        monkeypatch.delenv(variable, raising=False)
    return name


def test_a_tool_has_the_curves_the_configuration_and_the_end(
    tool: str, plain: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WANDB_MODE", "offline")
    assert main([*INLINE, "--out", str(tmp_path), "--log", tool]) == 0
    assert_equal_results(plain, tmp_path)
    logged, about = READERS[tool][1](tmp_path)
    assert_same(logged, stored(tmp_path))
    for row in Store(tmp_path).runs().itertuples():
        known = about[f"{row.algorithm}-{row.run_key[:16]}"]
        assert (known["run_key"], known["algorithm"], known["status"]) == (
            row.run_key,
            row.algorithm,
            "finished",
        )
        assert float(known["alpha"]) == row.alpha


@pytest.mark.parametrize(
    ("status", "code"), [("finished", 0), ("stopped", 0), ("failed", 1), ("interrupted", 1)]
)
def test_exit_code_of_a_run_in_wandb(status: str, code: int) -> None:
    run = Mock(summary={})
    logs.Wandb.end(Mock(), run, status)
    assert run.summary == {"status": status}
    run.finish.assert_called_once_with(exit_code=code)


@pytest.mark.parametrize(("mode", "left"), [("offline", ["b"]), ("online", ["a", "b"])])
def test_a_run_in_wandb_replaces_the_one_on_disk(
    mode: str, left: list[str], tmp_path: Path
) -> None:
    for name in ("a", "b"):
        (tmp_path / "wandb" / f"offline-run-1-{name}").mkdir(parents=True)
    tool = Mock(_mode=mode, _folder=tmp_path)
    logs.Wandb.begin(tool, "a", {"algorithm": "fedavg"})
    assert tool._wandb.init.call_args.kwargs["mode"] == mode
    names = [folder.name[-1] for folder in (tmp_path / "wandb").iterdir()]
    assert sorted(names) == left


def test_a_tool_has_a_killed_run_anew(tool: str, tmp_path: Path) -> None:
    long = (*LONG, "inline", "--offline", "--out", str(tmp_path), "--log", tool)
    process = start(*long)
    wait_for(lambda: saved_round(tmp_path) >= 12)
    kill_all(process)
    done = command(*long)
    assert done.returncode == 0, done.stderr
    logged, about = READERS[tool][1](tmp_path)
    assert_same(logged, stored(tmp_path))
    assert [known["status"] for known in about.values()] == ["finished", "finished"]


@pytest.mark.parametrize("tool", ["mlflow"], indirect=True)
def test_offline_reaches_no_server_of_mlflow(
    tool: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://127.0.0.1:9")
    with pytest.raises(EnvironmentProblem, match="unset MLFLOW_TRACKING_URI"):
        logs.make_tools([tool], tmp_path, offline=True)


@pytest.mark.parametrize("tool", ["wandb"], indirect=True)
def test_wandb_online_needs_a_key_at_once(
    tool: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("NETRC", str(tmp_path / "none"))
    with pytest.raises(EnvironmentProblem, match="WANDB_MODE=offline"):
        logs.make_tools([tool], tmp_path, offline=False)


def test_mlflow_sends_nothing_and_stores_where_it_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without the package: what it is called with."""
    client = Mock()
    package = ModuleType("mlflow")
    package.entities = Mock()  # type: ignore[attr-defined]
    tracking = ModuleType("mlflow.tracking")
    tracking.MlflowClient = Mock(return_value=client)  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "mlflow", package)
    monkeypatch.setitem(sys.modules, "mlflow.tracking", tracking)
    for name in ("MLFLOW_TRACKING_URI", "MLFLOW_EXPERIMENT_NAME", "MLFLOW_DISABLE_TELEMETRY"):
        monkeypatch.setenv(name, "")  # so that it is as before afterwards
        monkeypatch.delenv(name)
    client.get_experiment_by_name.return_value = None
    folder = tmp_path / "out" / "logs"
    for name in ("alembic", "mlflow"):
        monkeypatch.setattr(logging.getLogger(name), "level", logging.INFO)
    logs.Mlflow(folder, offline=True)
    assert [logging.getLogger(name).level for name in ("alembic", "mlflow")] == [30, 30]
    store = f"sqlite:///{folder / 'mlflow' / 'mlflow.db'}"
    tracking.MlflowClient.assert_called_once_with(store)
    artifacts = (folder / "mlflow" / "artifacts").as_uri()
    client.create_experiment.assert_called_once_with(logs.PROJECT, artifacts)
    assert os.environ["MLFLOW_DISABLE_TELEMETRY"] == "true"
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "https://me:secret@host")
    with pytest.raises(EnvironmentProblem, match="offline"):
        logs.Mlflow(folder, offline=True)
    online = logs.Mlflow(folder, offline=False)
    assert online.look == "https://host"
    assert "secret" not in online.where
    (folder / "mlflow" / "mlflow.db").symlink_to(tmp_path)
    with pytest.raises(StoreError):
        logs.Mlflow(folder, offline=False)

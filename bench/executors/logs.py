"""`--log`: growing curves in TensorBoard, Weights & Biases or MLflow.

A thread of the driver writes them. Every result row is one run of a tool: steps are rounds, keys
are the curve's metrics and `best_accuracy`, the best test accuracy so far. Ray Tune's own callbacks
would make one run of all seeds of a trial and all rows of a run, with steps that count reports
instead of rounds. The stored curves remain the source: a run that goes on after an interruption
reports its whole curve again, and the tool's run is replaced.
"""

from __future__ import annotations

import json
import logging
import math
import os
import queue
import re
import shutil
import sys
import threading
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from bench.errors import EnvironmentProblem, with_its_kind
from bench.executors.progress import Observer, Watched
from bench.executors.trials import searched_rows
from bench.planning.plan import Plan
from bench.planning.run_spec import RunSpec, row_entry
from bench.terminal.console import say
from bench.terminal.words import counted
from leaderboards import Store, StoreError, identity_columns
from leaderboards.rows.files import append_line, part_of, read_regular
from leaderboards.rows.frames import records

if TYPE_CHECKING:
    from bench.engine.counters import MeasuredPoint

PROJECT = "fedkd-bench"  # in Weights & Biases and MLflow, unless their own variables name another
# Columns in TensorBoard's HPARAMS besides the hyper-parameters, because all fields of the setting
# would be too many.
HPARAMS = (
    "algorithm",
    "dataset",
    "model",
    "partition",
    "alpha",
    "participation",
    "rounds",
    "lr",
    "seed",
    "run_key",
)
MLFLOW_BATCH = 1000  # metrics that MLflow takes at once
MLFLOW_STATUS = {
    "finished": "FINISHED",
    "stopped": "FINISHED",
    "failed": "FAILED",
    "interrupted": "KILLED",
}
CLOSE_SECONDS = 60.0  # a tool that hangs must not keep a finished sweep from ending
WRITTEN_BYTES = 2**28  # of a million rows in `.written`
WHOLE = ("finished", "stopped")  # statuses of rows with a curve

Rounds = Mapping[int, Mapping[str, float]]  # round -> metric -> value, rounds ascending
# Of a row, named like the columns of `runs`; `hp_*` are hyper-parameters.
Config = Mapping[str, Any]


class Tool(Protocol):
    """A logging tool with one run for each row.

    `where` identifies its destination; `look` tells how to view it.
    """

    where: str
    look: str

    def begin(self, name: str, config: Config) -> Any:
        """Open the run of a row, replacing one that the tool has; return the tool's handle."""

    def write(self, run: Any, rounds: Rounds) -> None:
        """Write the values of some rounds so that they are visible at once."""

    def end(self, run: Any, status: str) -> None:
        """Close a run: finished, failed, stopped or interrupted."""


class TensorBoard:
    """TensorBoard, with a folder of event files for each row, and its columns of `HPARAMS`.

    `SummaryWriter` is not used, because a full disk kills its thread, after which its callers wait
    for ever.
    """

    def __init__(self, folder: Path, offline: bool) -> None:
        from tensorboardX import event_file_writer, summary
        from tensorboardX.proto import event_pb2, summary_pb2

        self._writer = event_file_writer.EventsWriter
        self._hparams = summary.hparams
        self._event = event_pb2
        self._summary = summary_pb2.Summary
        self._folder = folder / "tensorboard"
        self.where = str(self._folder)
        self.look = f"tensorboard --logdir {self._folder}"

    def begin(self, name: str, config: Config) -> Any:
        """Begin a new file.

        Older ones stay, because an open TensorBoard may not look beyond them.
        """
        folder = part_of(self._folder, name)
        folder.mkdir(parents=True, exist_ok=True)
        file = self._writer(str(folder / "events"))
        # At this event, readers drop the values of older files from step 0 on.
        self._put(file, session_log=self._event.SessionLog(status=self._event.SessionLog.START))
        columns = {
            name: value
            for name, value in config.items()
            if name in HPARAMS or name.startswith("hp_")
        }
        *first, last = self._hparams(columns, ["best_accuracy", "accuracy"])
        for content in first:
            self._put(file, summary=content)
        return file, last

    def write(self, run: Any, rounds: Rounds) -> None:
        """Write one event for each round."""
        for at, values in rounds.items():
            named = [
                self._summary.Value(tag=name, simple_value=value) for name, value in values.items()
            ]
            self._put(run[0], step=at, summary=self._summary(value=named))
        run[0].flush()

    def end(self, run: Any, status: str) -> None:
        """Close the file; TensorBoard only distinguishes sessions that have ended from others."""
        file, last = run
        if status in WHOLE:
            self._put(file, summary=last)
        file.close()

    def _put(self, file: Any, **content: Any) -> None:
        file.write_event(self._event.Event(wall_time=time.time(), **content))


class Wandb:
    """Weights & Biases, with a run for each row, whose id is the row's name.

    wandb's variables set entity, project and mode. Raises EnvironmentProblem if it is to go online,
    and there is no API key.
    """

    def __init__(self, folder: Path, offline: bool) -> None:
        import wandb

        mode = "offline" if offline else os.environ.get("WANDB_MODE", "online")
        if mode == "online" and not wandb.login(prompt=False, verify=False):
            raise EnvironmentProblem(
                "--log wandb: no API key of Weights & Biases is here; `wandb login` stores one, "
                f"and WANDB_MODE=offline keeps the runs in {folder / 'wandb'}"
            )
        self._wandb = wandb
        self._mode = mode
        self._folder = folder
        self._project = os.environ.get("WANDB_PROJECT", PROJECT)
        self.where = f"{mode}:{os.environ.get('WANDB_ENTITY', '')}/{self._project}"
        synced = f"wandb sync {folder / 'wandb'}/offline-run-*"
        self.look = synced if mode == "offline" else f"W&B {self._project}"

    def begin(self, name: str, config: Config) -> Any:
        """Begin a run anew: without `resume`, the server drops its data of the same id."""
        self._folder.mkdir(parents=True, exist_ok=True)
        if self._mode == "offline":
            for old in (self._folder / "wandb").glob(f"offline-run-*-{name}"):
                shutil.rmtree(old)
        return self._wandb.init(
            project=self._project,
            id=name,
            name=name,
            group=config["algorithm"],
            config=dict(config),
            dir=str(self._folder),
            mode=self._mode,
            reinit="create_new",
            settings=self._wandb.Settings(silent=True, console="off", x_disable_stats=True),
        )

    def write(self, run: Any, rounds: Rounds) -> None:
        """Log a step for each round."""
        for at, values in rounds.items():
            run.log(dict(values), step=at)

    def end(self, run: Any, status: str) -> None:
        """Set status and exit code."""
        run.summary["status"] = status
        run.finish(exit_code=0 if status in WHOLE else 1)


class Mlflow:
    """MLflow, with a run for each row, identified by the tag `run_key`.

    MLflow's variables set store and experiment. Raises EnvironmentProblem if the store needs the
    network and `offline` is set.
    """

    def __init__(self, folder: Path, offline: bool) -> None:
        # Nothing is sent anywhere that the user has not named.
        os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")
        from mlflow import entities
        from mlflow.tracking import MlflowClient

        for logger in ("alembic", "mlflow"):
            logging.getLogger(logger).setLevel(logging.WARNING)
        folder = folder / "mlflow"
        folder.mkdir(parents=True, exist_ok=True)
        part_of(folder, "mlflow.db")
        uri = os.environ.get("MLFLOW_TRACKING_URI")
        store = uri or f"sqlite:///{folder / 'mlflow.db'}"
        if offline and not store.startswith(("sqlite:", "file:", "/")):
            raise EnvironmentProblem(
                f"--offline: MLflow's store is {store}; unset MLFLOW_TRACKING_URI, or log online"
            )
        # Without a password, which must be neither printed nor stored.
        shown = re.sub("//[^/]*@", "//", store)
        self.look = shown if shown.startswith("http") else f"mlflow ui --backend-store-uri {shown}"
        self._client = MlflowClient(store)
        self._entities = entities
        experiment = os.environ.get("MLFLOW_EXPERIMENT_NAME", PROJECT)
        self.where = f"{shown} {experiment}"
        existing = self._client.get_experiment_by_name(experiment)
        if existing:
            self._experiment = existing.experiment_id
        else:
            artifacts = None if uri else (folder / "artifacts").as_uri()
            self._experiment = self._client.create_experiment(experiment, artifacts)

    def begin(self, name: str, config: Config) -> Any:
        """Begin a run that replaces any older run of the same row in the store."""
        key = config["run_key"]
        for old in self._client.search_runs([self._experiment], f"tags.run_key = '{key}'"):
            self._client.delete_run(old.info.run_id)
        tags = {"run_key": key, "mlflow.source.name": PROJECT, "algorithm": config["algorithm"]}
        run: str = self._client.create_run(self._experiment, run_name=name, tags=tags).info.run_id
        params = [self._entities.Param(name, str(value)) for name, value in config.items()]
        self._client.log_batch(run, params=params)
        return run

    def write(self, run: Any, rounds: Rounds) -> None:
        """Write the rounds in batches."""
        now = int(1000 * time.time())
        metrics = []
        for at, values in rounds.items():
            metrics += [self._entities.Metric(*point, now, at) for point in values.items()]
        for start in range(0, len(metrics), MLFLOW_BATCH):
            self._client.log_batch(run, metrics=metrics[start : start + MLFLOW_BATCH])

    def end(self, run: Any, status: str) -> None:
        """Set MLflow's own status."""
        self._client.set_terminated(run, MLFLOW_STATUS[status])


TOOLS: Mapping[str, Callable[[Path, bool], Tool]] = {
    "tensorboard": TensorBoard,
    "wandb": Wandb,
    "mlflow": Mlflow,
}


def make_tools(names: Iterable[str], out: Path, offline: bool) -> dict[str, Tool]:
    """Make the tools of some `names` in `bench.execution.LOGS`; their files are in `OUT/logs`.

    Raises EnvironmentProblem if a package is not installed, there is no key, or the store cannot be
    used.
    """
    tools: dict[str, Tool] = {}
    for name in names:
        try:
            part_of(part_of(out, "logs"), name)
            tools[name] = TOOLS[name](out / "logs", offline)
        except (EnvironmentProblem, StoreError):
            raise
        except ImportError as error:
            advice = f'pip install "fedkd-bench[{name}]"'
            raise EnvironmentProblem(
                f"--log {name} needs a package that is not here: {advice} ({error})"
            ) from error
        except Exception as error:
            raise EnvironmentProblem(
                f"--log {name} cannot be used: {with_its_kind(error)}"
            ) from error
    return tools


@dataclass
class _Curve:
    """A growing curve: the handles of the tools that have begun it, best accuracy, last round."""

    config: Config
    runs: dict[str, Any] = field(default_factory=dict)
    best: float = math.nan
    last: int = field(init=False)  # set with the first points

    @property
    def name(self) -> str:
        """The algorithm, and the first characters of the key, as in the row's own files.

        Such as `fedavg-0123456789abcdef`.
        """
        algorithm = re.sub(r"[^A-Za-z0-9_.-]", "_", self.config["algorithm"])
        return f"{algorithm}-{self.config['run_key'][:16]}"


class LogWriter(Observer):
    """An observer that writes the curves of a sweep to logging tools.

    A tool that fails is dropped with one warning: runs are not affected, and the next command with
    the same `--log` writes the missing rows from the stored curves. `OUT/logs/NAME/.written` lists
    the rows that a tool has completely, and their destination.
    """

    def __init__(self, tools: Mapping[str, Tool], out: Path) -> None:
        self.tools = dict(tools)
        self._files = {name: out / "logs" / name / ".written" for name in tools}
        self._curves: dict[str, _Curve] = {}
        self._jobs: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._work, name="logs", daemon=True)
        self._thread.start()

    def reported(self, trial: Watched, report: Mapping[str, Any]) -> None:
        """Write the new points of a report."""
        self._jobs.put(partial(self._write, trial.run_specs, report["curves"]))

    def ended(self, trial: Watched, report: Mapping[str, Any]) -> None:
        """Close the trial's rows; a run that was still running gets the status of the trial."""
        statuses = {
            key: status for key, status in report.get("statuses", {}).items() if status != "running"
        }
        for run_spec in trial.run_specs:
            for key in run_spec.rows.values():
                self._jobs.put(partial(self._end, key, statuses.get(key, report["status"])))

    def catch_up(self, store: Store, keys: Collection[str]) -> int:
        """Write the stored rows of `keys` that a tool lacks; return their number.

        Rows without a curve are left out.
        """
        written = {name: _lines_of(file) for name, file in self._files.items()}
        runs = store.runs(keys=keys)
        lacking: dict[str, tuple[Mapping[str, Any], list[str]]] = {}
        for row in records(runs[runs["status"].isin(WHOLE)]):
            names = []
            for name, tool in self.tools.items():
                line = _written_line(tool, row["run_key"], row["status"])
                if line not in written[name]:
                    names.append(name)
            if names:
                lacking[row["run_key"]] = row, names
        curves = store.curves(lacking).groupby("run_key")
        for key, frame in curves[["round", "metric", "value"]]:
            points = list(frame.itertuples(index=False, name=None))
            self._jobs.put(partial(self._write_stored, *lacking[str(key)], points))
        return len(curves)

    def close(self) -> None:
        """End the open runs as interrupted, and wait until everything is written."""
        self._jobs.put(None)
        with suppress(KeyboardInterrupt):
            self._thread.join(CLOSE_SECONDS)
        if self._thread.is_alive():
            _warn(f"--log {','.join(self.tools)} did not finish in time and is abandoned")

    def _work(self) -> None:
        while job := self._jobs.get():
            job()
        for key in list(self._curves):
            self._end(key, "interrupted")

    def _write(
        self, run_specs: Sequence[RunSpec], curves: Mapping[str, Sequence[MeasuredPoint]]
    ) -> None:
        for run_spec in run_specs:
            for suffix, key in run_spec.rows.items():
                points = curves.get(key)
                if not points:
                    continue
                if key in self._curves and min(points)[0] <= self._curves[key].last:
                    # A worker died: another reports the run from its first round.
                    self._end(key, "interrupted")
                if key not in self._curves:
                    identity = run_spec.identity(row_entry(run_spec.algorithm, suffix))
                    row = {**identity_columns(*identity), "paper": run_spec.paper}
                    self._curves[key] = _Curve(_config(row))
                self._add(self._curves[key], points, list(self.tools))

    def _write_stored(
        self, row: Mapping[str, Any], names: Sequence[str], points: Sequence[MeasuredPoint]
    ) -> None:
        """Write the whole stored curve of a row to some tools."""
        curve = _Curve(_config(row))
        self._add(curve, points, names)
        self._close(curve, row["status"])

    def _add(self, curve: _Curve, points: Iterable[MeasuredPoint], names: Sequence[str]) -> None:
        """Give new points to some tools, with the number `best_accuracy` so far."""
        rounds: dict[int, dict[str, float]] = {}
        for at, metric, value in sorted(points):
            rounds.setdefault(at, {})[metric] = value
        for metrics in rounds.values():
            accuracy = metrics.get("accuracy", math.nan)
            if math.isnan(curve.best) or accuracy > curve.best:
                curve.best = accuracy
            metrics["best_accuracy"] = curve.best
        curve.last = max(rounds)
        for name, tool in self._usable(names):
            with self._guarded(name):
                if name not in curve.runs:
                    curve.runs[name] = tool.begin(curve.name, curve.config)
                tool.write(curve.runs[name], rounds)

    def _end(self, key: str, status: str) -> None:
        curve = self._curves.pop(key, None)
        if curve:
            self._close(curve, status if status in (*WHOLE, "failed") else "interrupted")

    def _close(self, curve: _Curve, status: str) -> None:
        for name, tool in self._usable(curve.runs):
            with self._guarded(name):
                tool.end(curve.runs[name], status)
                if status in WHOLE:
                    line = _written_line(tool, curve.config["run_key"], status)
                    self._files[name].parent.mkdir(parents=True, exist_ok=True)
                    append_line(self._files[name], line)

    def _usable(self, names: Iterable[str]) -> list[tuple[str, Tool]]:
        """List the tools among `names` that have not failed."""
        return [(name, self.tools[name]) for name in names if name in self.tools]

    @contextmanager
    def _guarded(self, name: str) -> Iterator[None]:
        """Drop a tool that fails, with a warning."""
        try:
            yield
        except (Exception, SystemExit) as error:
            del self.tools[name]
            _warn(f"--log {name} failed and is left out, the runs go on: {with_its_kind(error)}")


def _lines_of(file: Path) -> list[str]:
    """Read the lines of `.written`; none if it is missing, or no regular file."""
    try:
        return read_regular(file, WRITTEN_BYTES).decode(errors="replace").splitlines()
    except (OSError, StoreError):
        return []


def _written_line(tool: Tool, key: str, status: str) -> str:
    """Format a row's line in `.written`."""
    return f"{key} {status} {tool.where}"


def _config(row: Mapping[str, Any]) -> Config:
    """Expand the hyper-parameters and the setting of a row, and add its identity."""
    columns = {f"hp_{name}": value for name, value in json.loads(row["hp_json"]).items()}
    identity = {
        name: row[name] for name in ("seed", "algorithm", "algorithm_version", "paper", "run_key")
    }
    return {**columns, **json.loads(row["setting_json"]), **identity}


@contextmanager
def logged(plan: Plan, to_do: Sequence[RunSpec], store: Store) -> Iterator[list[Observer]]:
    """Make the observers that `--log` asks for, and close them at the end.

    They write the stored rows that their tools lack. `to_do` are the plan's runs that are not
    stored. Raises EnvironmentProblem if a tool is not installed or cannot be used.
    """
    options = plan.options
    writer = LogWriter(make_tools(options.log, store.out, options.offline), store.out)
    try:
        # Keys of the sweep's rows that no run will make now; some may not be stored.
        pending = {run_spec.key for run_spec in to_do}
        keys: set[str] = set()
        for run_spec in plan.run_specs:
            if run_spec.key not in pending:
                keys.update(run_spec.rows.values())
        if plan.searches:
            keys |= set(searched_rows(plan, store).run_key)
        if count := writer.catch_up(store, keys):
            say(f"curves of {counted(count, 'stored run')} are logged, too")
        yield [writer]
    finally:
        writer.close()
    say(*(f"curves: {tool.look}" for tool in writer.tools.values()))


def _warn(text: str) -> None:
    """Warn on stderr; a live display captures it and shows the line above its bars."""
    sys.stderr.write(
        f"warning: {text}; the same command, given again, writes what is missing there\n"
    )

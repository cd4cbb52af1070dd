"""The tools of `--log`: TensorBoard, Weights & Biases and MLflow, each imported when it is asked for.

Every result row is one run of a tool: steps are rounds, keys are the curve's metrics and `best_accuracy`, the best test
accuracy so far. Ray Tune's own callbacks would give one run for all seeds of a trial and all rows of a run, and steps
that count reports instead of rounds.
"""

from __future__ import annotations

import logging
import math
import os
import re
import shutil
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any, Protocol

from bench.errors import EnvironmentProblem

PROJECT = "fedkd-bench"  # of Weights & Biases and MLflow, unless their own variables name another
# The columns of TensorBoard's HPARAMS besides hyper-parameters: all fields of the setting would be too many.
HPARAMS = ("algorithm", "dataset", "model", "partition", "alpha", "participation", "rounds", "lr", "seed", "run_key")
MLFLOW_BATCH = 1000  # metrics that MLflow takes at once
MLFLOW_STATUS = {"finished": "FINISHED", "stopped": "FINISHED", "failed": "FAILED", "interrupted": "KILLED"}

Rounds = Mapping[int, Mapping[str, float]]  # round -> metric -> value, rounds ascending


@dataclass(frozen=True)
class Series:
    """One result row as a tool's run: its run key, its algorithm's registry name, and its configuration.

    The configuration is named like the columns of `runs`: `hp_*`, every field of the setting, `seed`, `algorithm`,
    `algorithm_version`, `paper`, `run_key`.
    """

    key: str
    algorithm: str
    config: Mapping[str, Any]

    @property
    def name(self) -> str:
        """`fedavg-0123456789abcdef`: the algorithm, and the first characters of the key, as in the row's own files."""
        return f"{re.sub(r'[^A-Za-z0-9_.-]', '_', self.algorithm)}-{self.key[:16]}"


class Writer(Protocol):
    """A tool that series are written to. `where` tells one destination from another; `look` is how a person sees it."""

    where: str
    look: str

    def begin(self, series: Series, fresh: bool) -> int:
        """Open a series, anew if `fresh`; return the last round that the tool has of it, or 0."""

    def write(self, series: Series, rounds: Rounds) -> None:
        """Write the values of some rounds so that they can be seen at once."""

    def end(self, series: Series, status: str, summary: Mapping[str, float]) -> None:
        """Close a series: finished, failed, stopped or interrupted, with its best and final accuracy."""


def make_tools(names: Sequence[str], out: Path, offline: bool) -> dict[str, Writer]:
    """Make the writers of some of `bench.execution.LOGS`, whose files lie in `OUT/logs`.

    Raises EnvironmentProblem if a package is not installed, there is no key, or the store cannot be used.
    """
    classes: dict[str, Any] = {"tensorboard": TensorBoard, "wandb": Wandb, "mlflow": Mlflow}
    return {name: classes[name](out, offline) for name in names}


def _package(log: str, module: str) -> Any:
    try:
        return import_module(module)
    except ImportError as error:
        package = module.partition(".")[0]
        raise EnvironmentProblem(
            f'--log {log} needs the package {package}: pip install "fedkd-bench[{log}]" ({error})'
        ) from error


class TensorBoard:
    """A folder of event files for each series; its usual columns are under HPARAMS, the whole configuration under TEXT.

    Written without `SummaryWriter`, whose thread dies of a full disk, after which its callers wait for ever.
    """

    def __init__(self, out: Path, offline: bool) -> None:
        self._writer = _package("tensorboard", "tensorboardX.event_file_writer").EventsWriter
        self._event, self._summary = (import_module(f"tensorboardX.proto.{name}_pb2") for name in ("event", "summary"))
        self._folder = out / "logs" / "tensorboard"
        self._open: dict[str, tuple[Any, Any]] = {}  # key -> its file, and the summary of a session that ended
        self.where = str(self._folder)
        self.look = f"tensorboard --logdir {self._folder}"

    def begin(self, series: Series, fresh: bool) -> int:
        """Begin a new file beside older ones, beyond which an open TensorBoard may not look."""
        folder = self._folder / series.name
        folder.mkdir(parents=True, exist_ok=True)
        make = import_module("tensorboardX.summary")
        columns = {name: value for name, value in series.config.items() if name in HPARAMS or name.startswith("hp_")}
        *first, last = make.hparams(columns, ["best_accuracy", "accuracy"])
        self._open[series.key] = self._writer(str(folder / "events")), last
        # A reader forgets here the older files' values from step 0 on.
        self._put(series, session_log=self._event.SessionLog(status=self._event.SessionLog.START))
        table = ["| name | value |", "|---|---|", *(f"| {name} | {value} |" for name, value in series.config.items())]
        for summary in (*first, make.text("config", "\n".join(table))):
            self._put(series, summary=summary)
        return 0

    def write(self, series: Series, rounds: Rounds) -> None:
        """Write one event for each round."""
        for at, values in rounds.items():
            named = [self._summary.Summary.Value(tag=name, simple_value=value) for name, value in values.items()]
            self._put(series, step=at, summary=self._summary.Summary(value=named))
        self._open[series.key][0].flush()

    def end(self, series: Series, status: str, summary: Mapping[str, float]) -> None:
        """Close the file; TensorBoard tells only sessions that ended from others."""
        if status in ("finished", "stopped"):
            self._put(series, summary=self._open[series.key][1])
        self._open.pop(series.key)[0].close()

    def _put(self, series: Series, **content: Any) -> None:
        self._open[series.key][0].write_event(self._event.Event(wall_time=time.time(), **content))


class Wandb:
    """A run of Weights & Biases for each series, whose name is its id; entity, project and mode are wandb's variables.

    Raises EnvironmentProblem if it would go online, and there is no key.
    """

    def __init__(self, out: Path, offline: bool) -> None:
        _package("wandb", "wandb.sdk")
        self._wandb = import_module("wandb")
        mode = "offline" if offline else os.environ.get("WANDB_MODE", "online")
        if mode == "online" and not self._wandb.login(prompt=False, verify=False):
            raise EnvironmentProblem(
                "--log wandb: no API key of Weights & Biases is here; `wandb login` stores one, and WANDB_MODE=offline "
                f"keeps the runs in {out / 'logs' / 'wandb'}"
            )
        self._mode, self._folder = mode, out / "logs"
        self._project = os.environ.get("WANDB_PROJECT", PROJECT)
        self._open: dict[str, Any] = {}
        self.where = f"{mode}:{os.environ.get('WANDB_ENTITY', '')}/{self._project}"
        synced = f"wandb sync {self._folder / 'wandb'}/offline-run-*"
        self.look = synced if mode == "offline" else f"W&B {self._project}"

    def begin(self, series: Series, fresh: bool) -> int:
        """Continue a run that the server has; an offline run, which cannot be continued, begins anew."""
        self._folder.mkdir(parents=True, exist_ok=True)
        if self._mode == "offline":
            for old in (self._folder / "wandb").glob(f"offline-run-*-{series.name}"):
                shutil.rmtree(old)
        run = self._wandb.init(
            project=self._project,
            id=series.name,
            name=series.name,
            group=series.algorithm,
            config=dict(series.config),
            dir=str(self._folder),
            mode=self._mode,
            resume=None if fresh or self._mode != "online" else "allow",
            reinit="create_new",
            settings=self._wandb.Settings(silent=True, console="off", x_disable_stats=True),
        )
        self._open[series.key] = run
        return max(0, run.starting_step - 1) if run.resumed else 0

    def write(self, series: Series, rounds: Rounds) -> None:
        """Log a step for each round."""
        for at, values in rounds.items():
            self._open[series.key].log(dict(values), step=at)

    def end(self, series: Series, status: str, summary: Mapping[str, float]) -> None:
        """Set summary and exit code."""
        run = self._open.pop(series.key)
        run.summary.update({**summary, "status": status})
        run.finish(exit_code=0 if status in ("finished", "stopped") else 1)


class Mlflow:
    """A run of MLflow for each series, found again by its tag `run_key`; store and experiment are MLflow's variables.

    Raises EnvironmentProblem if the store cannot be used, or needs the network and `offline` is set.
    """

    def __init__(self, out: Path, offline: bool) -> None:
        # Nothing is sent anywhere that the user has not named.
        os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")
        tracking = _package("mlflow", "mlflow.tracking")
        self._entities = import_module("mlflow.entities")
        for chatty in ("alembic", "mlflow"):
            logging.getLogger(chatty).setLevel(logging.WARNING)
        folder = out / "logs" / "mlflow"
        named = os.environ.get("MLFLOW_TRACKING_URI")
        self.where = named or f"sqlite:///{folder / 'mlflow.db'}"
        if offline and not self.where.startswith(("sqlite:", "file:", "/")):
            raise EnvironmentProblem(
                f"--offline: MLflow's store is {self.where}; unset MLFLOW_TRACKING_URI, or log online"
            )
        self.look = f"mlflow ui --backend-store-uri {self.where}" if "://" in self.where else self.where
        experiment = os.environ.get("MLFLOW_EXPERIMENT_NAME", PROJECT)
        try:
            folder.mkdir(parents=True, exist_ok=True)
            self._client = tracking.MlflowClient(self.where)
            known = self._client.get_experiment_by_name(experiment)
            artifacts = None if named else (folder / "artifacts").as_uri()
            self._experiment = known.experiment_id if known else self._client.create_experiment(experiment, artifacts)
        except Exception as error:
            first = (str(error).splitlines() or [type(error).__name__])[0]
            raise EnvironmentProblem(f"--log mlflow: {self.where} cannot be used: {first}") from error
        self._open: dict[str, str] = {}  # key -> id of MLflow's run

    def begin(self, series: Series, fresh: bool) -> int:
        """Continue the series' run if there is one."""
        stored = self._client.search_runs([self._experiment], f"tags.run_key = '{series.key}'", max_results=1)
        if stored and not fresh:
            run_id = self._open[series.key] = stored[0].info.run_id
            self._client.update_run(run_id, status="RUNNING")
            return max((point.step for point in self._client.get_metric_history(run_id, "accuracy")), default=0)
        if stored:
            self._client.delete_run(stored[0].info.run_id)
        tags = {"run_key": series.key, "mlflow.source.name": PROJECT, "algorithm": series.algorithm}
        run = self._client.create_run(self._experiment, run_name=series.name, tags=tags)
        params = [self._entities.Param(name, str(value)) for name, value in series.config.items()]
        self._client.log_batch(run.info.run_id, params=params)
        self._open[series.key] = run.info.run_id
        return 0

    def write(self, series: Series, rounds: Rounds) -> None:
        """Write many rounds at once."""
        now = int(1000 * time.time())
        metrics = [self._entities.Metric(*point, now, at) for at, values in rounds.items() for point in values.items()]
        for start in range(0, len(metrics), MLFLOW_BATCH):
            self._client.log_batch(self._open[series.key], metrics=metrics[start : start + MLFLOW_BATCH])

    def end(self, series: Series, status: str, summary: Mapping[str, float]) -> None:
        """Set summary and status as tags, and MLflow's own status."""
        run_id = self._open.pop(series.key)
        for name, value in summary.items():
            if not math.isnan(value):
                self._client.set_tag(run_id, name, f"{value:.6f}")
        self._client.set_tag(run_id, "status", status)
        self._client.set_terminated(run_id, MLFLOW_STATUS[status])

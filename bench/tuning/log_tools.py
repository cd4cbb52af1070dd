"""The tools of `--log`, each a thin layer over its own client library. All are optional; imported when asked for."""

from __future__ import annotations

import logging
import math
import os
import shutil
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any

from bench.errors import EnvironmentProblem
from bench.tuning.logs import Log, Rounds, Series, Tool

PROJECT = "fedkd-bench"  # of Weights & Biases and MLflow, unless their own variables name another
# Columns of TensorBoard's HPARAMS, besides hyper-parameters: with every field of the setting, nobody would find any.
HPARAMS = ("algorithm", "dataset", "model", "partition", "alpha", "participation", "rounds", "lr", "seed", "run_key")
MLFLOW_BATCH = 1000  # metrics that MLflow takes at once
MLFLOW_STATUS = {"finished": "FINISHED", "stopped": "FINISHED", "failed": "FAILED", "interrupted": "KILLED"}


def make_tools(names: Sequence[str], out: Path, offline: bool) -> dict[str, Tool]:
    """The tools of these names.

    Args:
        names: of `bench.execution.LOGS`.
        out: results folder; files lie in `OUT/logs`.
        offline: never touch the network.

    Raises:
        EnvironmentProblem: a package is not installed, there is no key, or the store cannot be used.
    """
    makers: dict[str, Callable[[], Tool]] = {
        "tensorboard": partial(TensorBoard, out),
        "wandb": partial(Wandb, out, offline),
        "mlflow": partial(Mlflow, out, offline),
    }
    return {name: makers[name]() for name in names}


def _package(log: str, module: str) -> Any:
    try:
        return import_module(module)
    except ImportError as error:
        package = module.partition(".")[0]
        raise EnvironmentProblem(
            f'--log {log} needs the package {package}: pip install "fedkd-bench[{log}]" ({error})'
        ) from error


class TensorBoard:
    """A folder of one event file per series; what is usually compared is under HPARAMS, the whole of it under TEXT.

    Written without `SummaryWriter`, whose thread dies of a full disk, after which whoever logs waits for ever.
    """

    def __init__(self, out: Path) -> None:
        self._writer = _package("tensorboard", "tensorboardX.event_file_writer").EventsWriter
        self._folder = out / "logs" / "tensorboard"
        self.where = str(self._folder)
        self.look = f"tensorboard --logdir {self._folder}"

    def open(self, series: Series, fresh: bool) -> Log:
        """Always anew: the whole curve comes, and costs less than finding out what a file has of it."""
        folder = self._folder / series.name
        folder.mkdir(parents=True, exist_ok=True)
        return _Events(self._writer(str(folder / "events")), series)


class _Events:
    """An event file. Older ones of the series count for nothing, but stay: who has one open might look no further."""

    begins = 0

    def __init__(self, writer: Any, series: Series) -> None:
        events, summaries = (import_module(f"tensorboardX.proto.{name}_pb2") for name in ("event", "summary"))
        self._event, self._log, self._summary = events.Event, events.SessionLog, summaries.Summary
        self._writer = writer
        made = import_module("tensorboardX.summary")
        table = {n: value for n, value in series.config.items() if n in HPARAMS or n.startswith("hp_")}
        *first, self._last = made.hparams(table, ["best_accuracy", "accuracy"])
        # Whoever reads the files in order forgets here what it had of the series from step 0 on.
        self._put(session_log=self._log(status=self._log.START))
        for summary in (*first, made.text("config", _markdown(series.config))):
            self._put(summary=summary)

    def scalars(self, rounds: Rounds) -> None:
        """One event per round."""
        for at, values in rounds.items():
            named = [self._summary.Value(tag=name, simple_value=value) for name, value in values.items()]
            self._put(step=at, summary=self._summary(value=named))
        self._writer.flush()

    def end(self, status: str, summary: Mapping[str, float]) -> None:
        """Close the file; TensorBoard knows only sessions that ended, and those that did not."""
        if status in ("finished", "stopped"):
            self._put(summary=self._last)
        self._writer.close()

    def _put(self, **content: Any) -> None:
        self._writer.write_event(self._event(wall_time=time.time(), **content))


def _markdown(config: Mapping[str, Any]) -> str:
    """A table, as TEXT shows it."""
    return "\n".join(["| name | value |", "|---|---|", *(f"| {name} | {value} |" for name, value in config.items())])


class Wandb:
    """A run of Weights & Biases per series, whose name is its id. Entity, project and mode are wandb's own variables.

    Raises:
        EnvironmentProblem: it would go online, and there is no key.
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
        project = os.environ.get("WANDB_PROJECT", PROJECT)
        self._project = project
        self.where = f"{mode}:{os.environ.get('WANDB_ENTITY', '')}/{project}"
        self.look = f"wandb sync {self._folder / 'wandb'}/offline-run-*" if mode == "offline" else f"W&B {project}"

    def open(self, series: Series, fresh: bool) -> Log:
        """Online a run goes on where the server has it; offline, where there is no going on, it is written anew."""
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
        return _WandbRun(run)


class _WandbRun:
    """One of its runs."""

    def __init__(self, run: Any) -> None:
        self._run = run
        self.begins = max(0, run.starting_step - 1) if run.resumed else 0

    def scalars(self, rounds: Rounds) -> None:
        """A step per round."""
        for at, values in rounds.items():
            self._run.log(dict(values), step=at)

    def end(self, status: str, summary: Mapping[str, float]) -> None:
        """Summary and exit code."""
        self._run.summary.update({**summary, "status": status})
        self._run.finish(exit_code=0 if status in ("finished", "stopped") else 1)


class Mlflow:
    """A run of MLflow per series, found again by its tag `run_key`. Store and experiment are MLflow's own variables.

    Raises:
        EnvironmentProblem: the store cannot be used, or is elsewhere while nothing may touch the network.
    """

    def __init__(self, out: Path, offline: bool) -> None:
        # Nothing is sent anywhere that the user has not named.
        os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")
        self._client_module = _package("mlflow", "mlflow.tracking")
        self._entities = import_module("mlflow.entities")
        for chatty in ("alembic", "mlflow"):
            logging.getLogger(chatty).setLevel(logging.WARNING)
        folder = out / "logs" / "mlflow"
        self.where = os.environ.get("MLFLOW_TRACKING_URI") or f"sqlite:///{folder / 'mlflow.db'}"
        if offline and not self.where.startswith(("sqlite:", "file:", "/")):
            raise EnvironmentProblem(
                f"--offline: MLflow's store is {self.where}; unset MLFLOW_TRACKING_URI, or log online"
            )
        self.look = f"mlflow ui --backend-store-uri {self.where}" if "://" in self.where else self.where
        self._experiment = self._connect(folder)

    def open(self, series: Series, fresh: bool) -> Log:
        """Go on with the series' run if there is one."""
        found = self._client.search_runs([self._experiment], f"tags.run_key = '{series.key}'", max_results=1)
        if found and fresh:
            self._client.delete_run(found[0].info.run_id)
        elif found:
            return _MlflowRun(self._client, self._entities, found[0].info.run_id, going_on=True)
        tags = {"run_key": series.key, "mlflow.source.name": PROJECT, "algorithm": series.algorithm}
        made = self._client.create_run(self._experiment, run_name=series.name, tags=tags)
        params = [self._entities.Param(name, str(value)) for name, value in series.config.items()]
        self._client.log_batch(made.info.run_id, params=params)
        return _MlflowRun(self._client, self._entities, made.info.run_id, going_on=False)

    def _connect(self, folder: Path) -> str:
        """The experiment's id; made where there is none."""
        name = os.environ.get("MLFLOW_EXPERIMENT_NAME", PROJECT)
        local = self.where.startswith("sqlite:") and not os.environ.get("MLFLOW_TRACKING_URI")
        try:
            folder.mkdir(parents=True, exist_ok=True)
            self._client = self._client_module.MlflowClient(self.where)
            known = self._client.get_experiment_by_name(name)
            if known:
                return str(known.experiment_id)
            return str(self._client.create_experiment(name, (folder / "artifacts").as_uri() if local else None))
        except Exception as error:
            first = (str(error).splitlines() or [type(error).__name__])[0]
            raise EnvironmentProblem(f"--log mlflow: {self.where} cannot be used: {first}") from error


class _MlflowRun:
    """One of its runs."""

    def __init__(self, client: Any, entities: Any, run_id: str, going_on: bool) -> None:
        self._client, self._entities, self._id = client, entities, run_id
        self.begins = 0
        if going_on:
            client.update_run(run_id, status="RUNNING")
            self.begins = max((point.step for point in client.get_metric_history(run_id, "accuracy")), default=0)

    def scalars(self, rounds: Rounds) -> None:
        """Whole rounds at once: what is interrupted between them leaves none half-written."""
        now = int(1000 * time.time())
        for part in _parts(rounds):
            metrics = [self._entities.Metric(name, value, now, at) for at, name, value in part]
            self._client.log_batch(self._id, metrics=metrics)

    def end(self, status: str, summary: Mapping[str, float]) -> None:
        """Summary, and MLflow's own status beside ours."""
        for name, value in summary.items():
            if not math.isnan(value):
                self._client.set_tag(self._id, name, f"{value:.6f}")
        self._client.set_tag(self._id, "status", status)
        self._client.set_terminated(self._id, MLFLOW_STATUS[status])


def _parts(rounds: Rounds) -> Iterator[list[tuple[int, str, float]]]:
    """The points in portions of whole rounds that MLflow takes at once."""
    part: list[tuple[int, str, float]] = []
    for at, values in rounds.items():
        if len(part) + len(values) > MLFLOW_BATCH:
            yield part
            part = []
        part += [(at, name, value) for name, value in values.items()]
    if part:
        yield part

"""The `tune.Trainable` classes: thin shells around a trial."""

from __future__ import annotations

import json
import math
import os
import signal
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import ray
from ray import tune
from ray.tune.search.repeater import TRIAL_INDEX

from algorithms import Entry, entry
from algorithms.plugins import given
from bench import data
from bench.data import own
from bench.errors import EnvironmentProblem, UsageError, refusing_values
from bench.execution import BACKENDS, Execution, default_out
from bench.executors.trials import divert_warnings
from bench.machine import count_gpus
from bench.planning.given import LABEL, PUBLIC
from bench.planning.run_spec import RunSpec
from bench.planning.single_run import SPECIAL_KEYS, check_names, name_of, run_spec_of
from bench.planning.trial_names import Varied
from bench.provenance import command_columns
from bench.terminal.paths import check_path_types, whole_path
from bench.terminal.values import tracks_of
from leaderboards.numbers import CLIENT_ACCURACY, Point
from search_spaces import Bounds, Grid, Range, cast, check

if TYPE_CHECKING:
    from bench.trial.trial import Trial

CHOICES = {"device": ("auto", "cpu", "cuda"), "backend": BACKENDS, "offline": (False, True)}
POINTER = "state.json"


class FederatedTrainable(tune.Trainable):
    """Base of all trainables: a thin shell, bound to one algorithm by `make_trainable`."""

    algorithm: str = ""
    method: tuple[Entry, Any] | None = None  # the algorithm, if it was given as an object
    defaults: Mapping[str, Any] = {}
    own_data: Mapping[str, Any] = {}  # `own.defined` of the sweep's driver
    trial: Trial

    @classmethod
    def param_space(cls) -> dict[str, Any]:
        """Return Tune's space of the values that the class states (`hyper(..., search=...)`)."""
        fields = entry(cls.algorithm).fields
        return {field.name: domain_of(field.search) for field in fields if field.search}

    def setup(self, config: dict[str, Any]) -> None:
        """Build the runs of the configuration, which continue from their saved states, if any."""
        in_actor = ray.is_initialized() and ray.get_runtime_context().get_actor_id() is not None
        if in_actor and threading.current_thread() is threading.main_thread():
            # Ctrl-C reaches workers as well, which end by the sweep's stop file.
            signal.signal(signal.SIGINT, signal.SIG_IGN)
        if self.method:
            given[self.algorithm] = self.method
        own.defined.update(self.own_data)
        run_specs, execution = self.resolve(config)
        if execution.notice_file:
            write_warnings(execution.notice_file)
        from bench.trial.trial import Trial  # torch, which the driver of a sweep does without

        self.trial = Trial(run_specs, execution)

    def resolve(self, config: dict[str, Any]) -> tuple[list[RunSpec], Execution]:
        """Return the runs of a configuration, and their execution."""
        config = dict(config)
        repetition = config.pop(TRIAL_INDEX, None)
        if repetition is not None:  # Ray's Repeater averages these
            config.setdefault("seed", repetition)
        execution = execution_of({**self.defaults, **config})
        run_spec = run_spec_of(self.algorithm, *_with_label(self.defaults, config))
        at_hand = data.hashes([run_spec.setting.dataset], execution.data_dir)
        # Tune refuses a report without the metric that it compares, so every report is of a round
        # in which all is measured.
        interval = run_spec.setting.evaluate_every
        if run_spec.setting.evaluate_personal == "last" and entry(self.algorithm).personal:
            interval = run_spec.setting.rounds
        rounds = math.ceil(execution.rounds_per_report / interval) * interval
        return [run_spec], replace(execution, data_hashes=at_hand, rounds_per_report=rounds)

    def step(self) -> dict[str, Any]:
        """Train `rounds_per_report` rounds, up to an evaluated one, and report its numbers.

        With `evaluate_personal=last` a method of clients' own models reports after the last round.

        Returns:
            The trial's report and the last round's metrics, without numbers that the run does not
            have; `training_iteration` is the round, also of a run that goes on from a saved state.

        Raises:
            EnvironmentProblem: data are missing, or a disk is full.
            RuntimeError: the run failed; its row says so, too. Tune counts the trial as failed, and
                may try it again.
        """
        report = self.trial.step()
        if report["status"] == "environment":
            raise EnvironmentProblem(report["error"])
        if report["status"] == "failed":
            raise RuntimeError(report["error"])
        (run,) = self.trial.runs
        numbers = {**last_values(run.curve), **report, "training_iteration": report["round"]}
        return {name: value for name, value in numbers.items() if value == value}  # NaN is not

    def save_checkpoint(self, checkpoint_dir: str) -> None:
        """Save the runs where the engine keeps them; Tune's checkpoint is a pointer there.

        Raises:
            EnvironmentProblem: the runs cannot be saved, unless that was reported before.
        """
        reported = self.trial.problem
        self._save_runs()
        if self.trial.problem and not reported:
            raise EnvironmentProblem(self.trial.problem)
        (Path(checkpoint_dir) / POINTER).write_text(json.dumps(self._pointer()))

    def _pointer(self) -> dict[str, Any]:
        """Return what a checkpoint has: Tune's name of the trial, and its run keys."""
        return {"trial": self.trial_id, "runs": [run.run_spec.key for run in self.trial.runs]}

    def _save_runs(self) -> None:
        self.trial.save()

    # Tune gives the folder that was saved.
    def load_checkpoint(self, checkpoint_dir: str) -> None:  # type: ignore[override]
        """Load nothing, because `setup` has loaded the state; refuse a checkpoint of another trial.

        Raises:
            UsageError: the checkpoint is of other runs, as under population-based training.
        """
        own = self._pointer()
        stored = json.loads((Path(checkpoint_dir) / POINTER).read_text())
        if {**own, **stored} != own:
            raise UsageError(
                f"trial {own['trial']} (run {own['runs'][0][:16]}) was given the checkpoint of "
                f"another trial (run {stored['runs'][0][:16]}), but a run's state belongs to its "
                "configuration: schedulers that copy checkpoints between trials "
                "(PopulationBasedTraining, PB2) are not supported; use ASHAScheduler, "
                "HyperBandScheduler or MedianStoppingRule"
            )

    def reset_config(self, new_config: dict[str, Any]) -> bool:
        """Start the next trial in the same process."""
        self.trial.close()
        self.setup(new_config)
        return True

    def cleanup(self) -> None:
        """End the trial."""
        self.trial.close()


class SweepTrainable(FederatedTrainable):
    """Base of the trainables of `bench.sweep`; `bench.executors.ray_executor` binds a plan."""

    varied: ClassVar[Mapping[str, Varied]] = {}

    def step(self) -> dict[str, Any]:
        """Train some rounds and return a report, whose problems the sweep's callback handles."""
        return self.trial.step()

    def _save_runs(self) -> None:
        # A sweep's trials checkpoint only at their end. Tune waits for that, but not for `cleanup`.
        self.trial.end()


@lru_cache(maxsize=1)  # a worker takes on trial after trial
def write_warnings(path: str) -> None:
    """Append the suite's own warnings in this process to a file from now on, a line each."""

    def append(line: str) -> None:
        with suppress(OSError), Path(path).open("a") as file:
            file.write(f"{line}\n")

    divert_warnings(append)


def make_trainable(algorithm: Any, defaults: Mapping[str, Any]) -> type[FederatedTrainable]:
    """Make a trainable class of one algorithm.

    Paths become absolute here in the driver: workers run elsewhere.

    An algorithm that is no name travels with the class: Ray ships what a script or notebook defines
    by value. Its entry is read here, because a worker has no source of it.

    Raises:
        UsageError: a name or a value is not allowed; it is raised here, not in every worker.
    """
    name = name_of(algorithm)
    bound = {"out": str(default_out()), **defaults}
    check_path_types(bound)
    for key in ("out", "data_dir"):
        if bound.get(key):
            bound[key] = str(whole_path(bound[key]))
    bound = _with_paths(bound, lambda path: str(whole_path(path)))
    check_names(name, bound, {*SPECIAL_KEYS, LABEL}, "configuration key")
    _check_choices(bound)
    run_spec_of(name, *_with_label(bound))
    _tracks(bound)
    _rounds_per_report(bound)
    return type(
        name,
        (FederatedTrainable,),
        {"algorithm": name, "defaults": bound, "method": given.get(name)},
    )


def execution_of(given: Mapping[str, Any]) -> Execution:
    """Make the execution inside a user's own Tuner.

    It has a GPU if Tune assigned one, and a thread for each assigned CPU.

    Raises:
        UsageError: a value is not allowed, or a path is relative: in a worker it would mean a
            folder of Tune's.
    """
    check_path_types(given)
    for name in ("out", "data_dir"):
        if given.get(name) and not Path(given[name]).is_absolute():
            raise UsageError(
                f"{name} must be an absolute path in a trial's configuration, got {given[name]!r}"
            )
    _with_paths(given, _absolute)
    _check_choices(given)
    device = given.get("device")
    if device in (None, "auto"):
        assigned = os.environ.get("CUDA_VISIBLE_DEVICES") and count_gpus()
        device = "cuda" if assigned else "cpu"
    return Execution(
        out=given["out"],
        data_dir=given.get("data_dir"),
        offline=bool(given.get("offline")),
        device=device,
        backend=given.get("backend") or "auto",
        threads=int(os.environ.get("OMP_NUM_THREADS") or 1),
        track=_tracks(given),
        rounds_per_report=_rounds_per_report(given),
        provenance=command_columns("ray.tune.Tuner"),
    )


def _with_paths(given: Mapping[str, Any], change: Callable[[str], str]) -> dict[str, Any]:
    """Return a configuration with the paths of own data changed, also those in `setting`."""
    changed = dict(given)
    for name in ("dataset", PUBLIC):
        text = str(given.get(name) or "")
        prefix, _, path = text.partition(":")
        if data.is_path(text):
            changed[name] = f"{prefix}:{change(path)}"
    if isinstance(given.get("setting"), Mapping):
        changed["setting"] = _with_paths(given["setting"], change)
    return changed


def _with_label(*layers: Mapping[str, Any]) -> Sequence[Mapping[str, Any]]:
    """Return configurations without `label`, unless their data set has a column of labels."""
    dataset = ""
    for layer in layers:
        setting = layer.get("setting")
        if isinstance(setting, Mapping):
            dataset = str(setting.get("dataset") or dataset)
        dataset = str(layer.get("dataset") or dataset)
    if data.is_path(dataset):
        return layers
    without = []
    for layer in layers:
        without.append({name: value for name, value in layer.items() if name != LABEL})
    return without


def _absolute(path: str) -> str:
    """Return an absolute path; raises UsageError for another one."""
    if not Path(path).is_absolute():
        raise UsageError(
            f"folder: or csv: takes an absolute path in a trial's configuration, got {path!r}"
        )
    return path


def _check_choices(given: Mapping[str, Any]) -> None:
    """Raise UsageError if `device`, `backend` or `offline` is none of its values, nor None."""
    for key, choices in CHOICES.items():
        if given.get(key) not in (None, *choices):
            named = ", ".join(map(str, choices))
            raise UsageError(f"{key} must be one of {named}, got {given[key]!r}")


def _tracks(given: Mapping[str, Any]) -> tuple[str, ...]:
    """Parse `track` of a configuration, which is text or a list."""
    words = given.get("track", ())
    several = words if isinstance(words, list | tuple | None) else [words]
    return tracks_of(map(str, several or ()))


def _rounds_per_report(given: Mapping[str, Any]) -> int:
    """Parse `rounds_per_report` of a configuration, 1 by default.

    Raises UsageError if it is not a positive number.
    """
    with refusing_values():
        rounds: Any = cast("rounds_per_report", given.get("rounds_per_report", 1), "int")
        check("rounds_per_report", rounds, Bounds(1))
    return int(rounds)


def last_values(curve: Sequence[Point]) -> dict[str, float]:
    """Return the metrics of a curve's last round, without those of single clients.

    A loss that is not finite is infinite, because Tune refuses a report without its metric.
    """
    last = curve[-1][0] if curve else 0
    values = {}
    for at, metric, value in reversed(curve):
        if at < last:
            break
        if value is None or metric.startswith(CLIENT_ACCURACY):
            continue
        lost = metric.endswith("loss") and not math.isfinite(value)
        values[metric] = math.inf if lost else value
    return values


def domain_of(search: Grid | Range) -> Any:
    """Return Tune's domain of the values to try."""
    if isinstance(search, Grid):
        return tune.choice(list(search.values))
    if search.whole:
        draw = tune.lograndint if search.log else tune.randint
        return draw(int(search.low), int(search.high) + 1)  # Tune leaves the upper end out
    draw = tune.loguniform if search.log else tune.uniform
    return draw(search.low, search.high)

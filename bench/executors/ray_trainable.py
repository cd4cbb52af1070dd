"""The `tune.Trainable` shell around a trial."""

from __future__ import annotations

import json
import os
import signal
import threading
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import ray
from ray import tune

from algorithms import entry
from bench.errors import EnvironmentProblem, UsageError
from bench.execution import BACKENDS, Execution, command_columns, count_gpus, default_out
from bench.executors.trials import divert_warnings
from bench.planning.plan import make_plan
from bench.planning.request import Request, find_algorithm
from bench.planning.run_spec import RunSpec, Varied
from bench.terminal.words import tracks_of, unknown
from search_spaces import cast, setting_fields

if TYPE_CHECKING:
    from bench.trial.trial import RunGroup

SPECIAL_KEYS = frozenset(  # of a configuration, beside hyper-parameters and setting fields
    ("setting", "dataset", "paper", "seed", "out", "data_dir", "offline", "device", "backend", "track")
)
CHOICES = {"device": ("cpu", "cuda"), "backend": BACKENDS}
POINTER = "state.json"


class FederatedTrainable(tune.Trainable):
    """Base of all trainables: a thin shell, bound to one algorithm by `make_trainable`."""

    algorithm: str = ""
    defaults: Mapping[str, Any] = {}
    trial: RunGroup

    def setup(self, config: dict[str, Any]) -> None:
        """Build the runs that the configuration asks for; their saved state is taken up by itself."""
        on_main_thread = threading.current_thread() is threading.main_thread()
        if on_main_thread and ray.is_initialized() and ray.get_runtime_context().get_actor_id() is not None:
            # Ctrl-C reaches workers as well, which end by the sweep's stop file.
            signal.signal(signal.SIGINT, signal.SIG_IGN)
        units, execution = self.resolve(config)
        if execution.notice_file:
            write_warnings(execution.notice_file)
        from bench.trial.trial import RunGroup  # torch, which the driver of a sweep does without

        self.trial = RunGroup(units, execution)

    def resolve(self, config: dict[str, Any]) -> tuple[list[RunSpec], Execution]:
        """The runs of a configuration and how to execute them."""
        return [unit_of(self.algorithm, self.defaults, config)], execution_of({**self.defaults, **config})

    def step(self) -> dict[str, Any]:
        """Some rounds, then a report."""
        return self.trial.step()

    def save_checkpoint(self, checkpoint_dir: str) -> None:
        """Save the runs where the engine keeps them; Tune's checkpoint is a pointer there.

        Raises:
            EnvironmentProblem: they cannot be saved; of what was reported before nothing is raised.
        """
        known = self.trial.problem
        self._keep()
        if self.trial.problem and not known:
            raise EnvironmentProblem(self.trial.problem)
        keys = [run.unit.key for run in self.trial.runs]
        (Path(checkpoint_dir) / POINTER).write_text(json.dumps({"runs": keys}))

    def _keep(self) -> None:
        self.trial.save()

    def load_checkpoint(self, checkpoint_dir: str) -> None:  # type: ignore[override] # Tune gives what was saved
        """Nothing to load: `setup` has taken up the state. Only another trial's checkpoint is refused.

        Raises:
            ValueError: the checkpoint is of other runs, as under population-based training.
        """
        keys = json.loads((Path(checkpoint_dir) / POINTER).read_text())["runs"]
        own = [run.unit.key for run in self.trial.runs]
        if keys != own:
            raise ValueError(
                f"a checkpoint of run {keys[0][:16]} cannot start run {own[0][:16]}: a run's state belongs to its "
                "configuration; use a scheduler that does not copy checkpoints between trials (ASHA, median stopping)"
            )

    def reset_config(self, new_config: dict[str, Any]) -> bool:
        """Take on the next trial in the same process."""
        self.trial.close()
        self.setup(new_config)
        return True

    def cleanup(self) -> None:
        """End the trial."""
        self.trial.close()


class SweepTrainable(FederatedTrainable):
    """Base of what `bench.sweep` gives to Tune; `bench.executors.ray_executor` binds it to a plan."""

    varied: ClassVar[Mapping[str, Varied]] = {}

    def _keep(self) -> None:
        # A sweep's only checkpoints are those at the end, for which Tune waits, as it does not for `cleanup`.
        self.trial.end()


@lru_cache(maxsize=1)  # a worker takes on trial after trial
def write_warnings(path: str) -> None:
    """Let this process append the suite's own warnings to a file from now on, a line each."""

    def append(line: str) -> None:
        with suppress(OSError), Path(path).open("a") as file:
            file.write(f"{line}\n")

    divert_warnings(append)


def make_trainable(algorithm: str, defaults: Mapping[str, Any]) -> type[FederatedTrainable]:
    """Bind a class to one registry entry. Paths are made absolute now, in the driver: workers run elsewhere.

    Raises:
        UsageError: a name or a value that is not allowed, which is said here and not in every worker.
    """
    name = find_algorithm(algorithm).name
    bound = {"out": str(default_out()), **defaults}
    for key in ("out", "data_dir"):
        if bound.get(key):
            bound[key] = str(Path(bound[key]).resolve())
    known = {*SPECIAL_KEYS, *entry(name).defaults(), *setting_fields()}
    for key in bound.keys() - known:
        raise unknown("configuration key", key, known)
    for key, names in CHOICES.items():
        if bound.get(key) not in (None, *names):
            raise UsageError(f"{key} must be one of {', '.join(names)}, got {bound[key]!r}")
    unit_of(name, bound)
    _tracks(bound)
    return type(name, (FederatedTrainable,), {"algorithm": name, "defaults": bound})


def unit_of(algorithm: str, *layers: Mapping[str, Any]) -> RunSpec:
    """Make one run from flat configurations: hyper-parameters and setting fields by name, `dataset`, `paper`, `seed`.

    A later configuration goes over an earlier one, and within one a name over the same one in `setting`. A name that
    both have (FedDKD's lr) means the setting's in `setting`, else the algorithm's.

    Raises:
        UsageError: an unknown name or a value that is not allowed.
    """
    given = {name: value for layer in layers for name, value in layer.items()}
    own = entry(algorithm).defaults()
    values = {f"{algorithm}.{name}": (str(value),) for name, value in own.items()}  # one configuration, never a grid
    for layer in layers:
        setting = layer.get("setting") or {}
        if not isinstance(setting, Mapping):
            raise UsageError(f"setting must be a mapping of fields of the setting, got {setting!r}")
        flat = {name: value for name, value in layer.items() if name not in SPECIAL_KEYS}
        if layer.get("dataset") is not None:
            flat["dataset"] = layer["dataset"]
        for named, of_algorithm in ((setting, own.keys() - setting_fields().keys()), (flat, own.keys())):
            for name, value in named.items():
                values[f"{algorithm}.{name}" if name in of_algorithm else name] = (str(value),)
    (dataset,) = values.pop("dataset", ("digits",))
    plan = make_plan(Request((algorithm,), dataset, given.get("paper"), values))
    try:
        seed: Any = cast("seed", given.get("seed", 0), "int")
    except ValueError as error:
        raise UsageError(str(error)) from None
    if seed < 0:
        raise UsageError(f"seed must be >= 0, got {seed}")
    return replace(plan.units[0], seed=seed)


def execution_of(given: Mapping[str, Any]) -> Execution:
    """Make the execution inside anyone's own Tuner: a GPU if Tune gave one, one thread per CPU that it gave."""
    device = given.get("device") or ("cuda" if os.environ.get("CUDA_VISIBLE_DEVICES") and count_gpus() else "cpu")
    return Execution(
        out=given["out"],
        data_dir=given.get("data_dir"),
        offline=bool(given.get("offline", False)),
        device=device,
        backend=given.get("backend", "auto"),
        threads=int(os.environ.get("OMP_NUM_THREADS") or 1),
        track=_tracks(given),
        provenance={**command_columns([]), "command": "ray.tune.Tuner"},
    )


def _tracks(given: Mapping[str, Any]) -> tuple[str, ...]:
    """Parse `track` of a configuration, text or a list."""
    words = given.get("track", ())
    return tracks_of([words] if isinstance(words, str) else words)

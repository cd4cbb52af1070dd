"""The Ray executor: trials as Tune trials, actors reused, Ray's own chatter kept out of the way."""

from __future__ import annotations

import pickle
import shutil
import uuid
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import ray
from ray import tune
from ray.exceptions import RayTaskError
from ray.tune.experiment import Trial as TuneTrial

from bench.execution import Execution
from bench.planning.labels import Varied, varied_names
from bench.planning.plan import Plan, Search, units_of
from bench.planning.unit import Unit
from bench.tuning.connect import concurrent, start
from bench.tuning.events import Events, Watched, watched
from bench.tuning.logs import Feed
from bench.tuning.runner import Interruption, Outcome, Resources, scheduled
from bench.tuning.search import PATIENCE, History, decode, distributions, history, remaining, varied
from bench.tuning.tune_trial import SweepTrial
from search_spaces import Setting


def run_ray(
    plan: Plan,
    trials: Sequence[Sequence[Unit]],
    execution: Execution,
    resources: Resources,
    events: Events,
    outcome: Outcome,
    interruption: Interruption,
) -> None:
    """Every trial through Ray Tune.

    Raises:
        EnvironmentProblem: Ray cannot start, the cluster cannot be reached, or it cannot place a trial.
    """
    if not trials and not plan.searches:
        return
    try:
        start(resources)
    except SystemExit:  # what Ray makes of a SIGTERM while it starts
        interruption.stop("SIGTERM")
        return
    interruption.arm()  # Ray takes SIGTERM for itself
    try:
        sweep = _Sweep(execution, resources, concurrent(resources), events, outcome)
        _run_trials(plan, trials, sweep)
        for search in plan.searches:
            _search(plan, search, sweep)
    finally:
        ray.shutdown()


def _run_trials(plan: Plan, trials: Sequence[Sequence[Unit]], sweep: _Sweep) -> None:
    """All trials at once; under ASHA one algorithm and setting after another, for only these compare."""
    differing = varied_names([unit for units in trials for unit in units])
    contests: dict[Any, list[Sequence[Unit]]] = {}
    for units in trials:
        contest = (units[0].algorithm, units[0].setting) if plan.request.scheduler == "asha" else None
        contests.setdefault(contest, []).append(units)
    for members in contests.values():
        if sweep.execution.stopping:
            return
        setting = members[0][0].setting
        execution = scheduled(plan, setting, sweep.execution, sweep.resources.pack)
        space = {"index": tune.grid_search(list(range(len(members))))}
        scheduler = None if execution.rungs else _scheduler(plan, setting)
        sweep.run(_listed(members, differing, execution), space, scheduler)


def _listed(
    trials: Sequence[Sequence[Unit]], differing: Mapping[str, Varied], execution: Execution
) -> type[SweepTrial]:
    """A trainable whose configuration is an index into these trials."""

    def resolve(self: SweepTrial, config: dict[str, Any]) -> tuple[list[Unit], Execution]:
        return list(trials[config["index"]]), execution

    return type("federated", (SweepTrial,), {"resolve": resolve, "varied": dict(differing)})


def _sampled(search: Search, seeds: int, execution: Execution) -> type[SweepTrial]:
    """A trainable whose configuration is a sampler's choice."""

    def resolve(self: SweepTrial, config: dict[str, Any]) -> tuple[list[Unit], Execution]:
        return units_of(search, decode(search, config), seeds), execution

    return type(search.algorithm, (SweepTrial,), {"resolve": resolve, "varied": varied(search)})


def _scheduler(plan: Plan, setting: Setting) -> Any:
    if plan.request.scheduler == "none":
        return None
    rounds = setting.rounds
    return tune.schedulers.ASHAScheduler(
        time_attr="round", metric="objective", mode="max", max_t=rounds, grace_period=max(1, rounds // 10)
    )


def _search(plan: Plan, search: Search, sweep: _Sweep) -> None:
    """Sample until enough configurations are stored: on a small grid a sampler repeats itself."""
    failed = sweep.outcome.statuses.count("failed")
    trainable = _sampled(search, plan.request.seeds, scheduled(plan, search.setting, sweep.execution))
    for attempt in range(1 if plan.request.force else PATIENCE):
        past = history(plan, search, sweep.execution.out)
        missing = remaining(plan, search, past.known)
        if not missing or sweep.execution.stopping or sweep.outcome.statuses.count("failed") > failed:
            return
        searcher = _searcher(search, past, seed=len(past.known) + attempt)
        sweep.run(trainable, {}, _scheduler(plan, search.setting), searcher, missing)


def _searcher(search: Search, past: History, seed: int) -> Any:
    """Tune's Optuna sampler, filled with what is stored; it proposes first what was begun."""
    import optuna
    from ray.tune.search.optuna import OptunaSearch

    optuna.logging.set_verbosity(optuna.logging.WARNING)
    made = OptunaSearch(
        space=distributions(search),
        metric="objective",
        mode="max",
        seed=seed,
        points_to_evaluate=past.begun or None,
    )
    for chosen, value in past.known:
        made.add_evaluated_point(chosen, value)
    return made


class _Sweep:
    """Runs spaces through `Tuner.fit`, one after another, and tells their results as they come."""

    def __init__(
        self, execution: Execution, resources: Resources, concurrent: int, events: Events, outcome: Outcome
    ) -> None:
        self.execution, self.resources, self.concurrent = execution, resources, concurrent
        self.events, self.outcome = events, outcome

    def run(
        self,
        trainable: type[SweepTrial],
        space: Mapping[str, Any],
        scheduler: Any,
        searcher: Any = None,
        samples: int = 1,
    ) -> None:
        """Fit, then clear away what Tune wrote: the rows are stored by then."""
        root = Path(self.execution.out) / "state"
        name = f".tune-{uuid.uuid4().hex[:8]}"
        watcher = _Watcher(trainable, self.execution, self.events, self.outcome)
        if self.events.needs_curves:
            trainable = type(trainable.__name__, (_WithCurves, trainable), {})
        tuner = tune.Tuner(
            tune.with_resources(trainable, {"cpu": self.resources.cpus, "gpu": self.resources.gpus}),
            param_space=dict(space),
            tune_config=tune.TuneConfig(
                num_samples=samples,
                max_concurrent_trials=self.concurrent,
                scheduler=scheduler,
                search_alg=searcher,
                reuse_actors=True,
            ),
            run_config=tune.RunConfig(name=name, storage_path=str(root.resolve()), callbacks=[watcher], verbose=0),
        )
        try:
            tuner.fit()
        finally:
            shutil.rmtree(root / name, ignore_errors=True)


class _WithCurves(SweepTrial):
    """Its reports carry what the curves gained."""

    def setup(self, config: dict[str, Any]) -> None:
        """Begin a trial, its curves from the first round on."""
        super().setup(config)
        self._feed = Feed(self.trial)

    def step(self) -> dict[str, Any]:
        """Some rounds, then a report."""
        return self._feed.attach(super().step())


class _Watcher(tune.Callback):
    """Passes Tune's events on."""

    def __init__(self, trainable: type[SweepTrial], execution: Execution, events: Events, outcome: Outcome) -> None:
        self._trainable, self._execution = trainable, execution
        self._events, self._outcome = events, outcome
        self._known: dict[str, Watched] = {}

    def __getstate__(self) -> dict[str, Any]:
        # Tune pickles its callbacks into a checkpoint that is never restored; a live display cannot be pickled.
        return {}

    def on_trial_start(self, iteration: int, trials: list[TuneTrial], trial: TuneTrial, **_: Any) -> None:
        """Tell the display, which shows trials that run."""
        self._events.started(self._watched(trial))

    def on_trial_result(
        self, iteration: int, trials: list[TuneTrial], trial: TuneTrial, result: dict[str, Any], **_: Any
    ) -> None:
        """Show it; a machine that is not ready ends the whole sweep."""
        self._events.reported(self._watched(trial), result)
        if result["status"] == "environment":
            self._stop_all()

    def on_trial_complete(self, iteration: int, trials: list[TuneTrial], trial: TuneTrial, **_: Any) -> None:
        """Count it."""
        report = dict(trial.last_result)
        if report.get("status") == "running":  # the scheduler ended it
            report["status"] = "stopped"
        self._events.ended(self._watched(trial), report)
        self._outcome.note(report)

    def on_trial_error(self, iteration: int, trials: list[TuneTrial], trial: TuneTrial, **_: Any) -> None:
        """What no report said: the machine is not ready, an interruption took the worker, or it failed, as rows say."""
        from bench.tuning.trial import on_this_machine

        told, error = self._watched(trial), _error_of(trial)
        problem = on_this_machine(getattr(error, "cause", error), self._execution.out)
        report = {"status": "interrupted"}
        if problem:
            self._stop_all()
            report = {"status": "environment", "error": problem}
        elif not self._execution.stopping:
            reason = _reason(error)
            report = {"status": "failed", "error": f"{told.name}: {reason}{self._record(told.units, reason)}"}
        self._events.ended(told, report)
        self._outcome.note(report)

    def _stop_all(self) -> None:
        if self._execution.stop_file:
            Path(self._execution.stop_file).touch()

    def _record(self, units: Sequence[Unit], reason: str) -> str:
        """Write the failed rows; what prevents it is returned, to be said: it ends nothing else."""
        from bench.tuning.run import record_failure

        prevented = ""
        for unit in units:
            try:
                record_failure(unit, self._execution, reason)
            except Exception as problem:
                prevented = f"; its row cannot be stored: {problem}"
        return prevented

    def _watched(self, trial: TuneTrial) -> Watched:
        if trial.trial_id not in self._known:
            units = self._trainable.resolve(None, trial.config)[0]  # type: ignore[arg-type]
            self._known[trial.trial_id] = watched(units, self._trainable.varied)
        return self._known[trial.trial_id]


def _error_of(trial: TuneTrial) -> BaseException | None:
    """What Tune keeps of the trial's error, on this machine until the experiment ends; None if it keeps nothing."""
    with suppress(Exception):
        error: BaseException = pickle.loads(Path(trial.pickled_error_file).read_bytes())
        return error
    return None


def _reason(error: BaseException | None) -> str:
    """Why a trial ended without a report: its worker died, could not begin, or failed outside of the runs."""
    line = str(error or "out of memory or killed").strip().splitlines()[-1]
    if isinstance(error, RayTaskError):
        return f"the worker failed: {line}"
    return f"the worker {'could not begin' if getattr(error, 'actor_init_failed', False) else 'died'}: {line}"

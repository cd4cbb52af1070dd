"""The Ray executor: trials as Tune trials, actors reused, Ray's own chatter kept out of the way."""

from __future__ import annotations

import shutil
import uuid
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import ray
from ray import tune

from bench.execution import Execution
from bench.planning.labels import varied_names
from bench.planning.plan import Plan, Search, units_of
from bench.planning.unit import Unit
from bench.tuning.connect import concurrent, start
from bench.tuning.contests import Contests, asha, contests_of
from bench.tuning.events import Events
from bench.tuning.interruption import Interruption
from bench.tuning.logs import Feed
from bench.tuning.runner import Outcome, Resources, scheduled
from bench.tuning.search import PATIENCE, decode, histories, proposed_first, remaining, varied
from bench.tuning.tune_trial import SweepTrial
from bench.tuning.watcher import Watcher


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
        _search(plan, sweep)
    finally:
        ray.shutdown()


def _run_trials(plan: Plan, trials: Sequence[Sequence[Unit]], sweep: _Sweep) -> None:
    """All trials at once. Under ASHA packs compare what is in them, and Tune compares other trials."""
    if not trials or sweep.execution.stopping:
        return
    compared = plan.request.scheduler == "asha" and sweep.resources.pack == 1
    how = [scheduled(plan, units[0].setting, sweep.execution, sweep.resources.pack) for units in trials]
    space = {"index": tune.grid_search(list(range(len(trials))))}
    sweep.run(_listed(trials, how), space, contests_of(trials) if compared else None)


def _listed(trials: Sequence[Sequence[Unit]], how: Sequence[Execution]) -> type[SweepTrial]:
    """A trainable whose configuration is an index into these trials, each with how it is executed."""

    def resolve(self: SweepTrial, config: dict[str, Any]) -> tuple[list[Unit], Execution]:
        return list(trials[config["index"]]), how[config["index"]]

    differing = varied_names([unit for units in trials for unit in units])
    return type("federated", (SweepTrial,), {"resolve": resolve, "varied": differing})


def _sampled(searches: Sequence[Search], seeds: int, how: Sequence[Execution]) -> type[SweepTrial]:
    """A trainable whose configuration is as `Searches` says."""

    def resolve(self: SweepTrial, config: dict[str, Any]) -> tuple[list[Unit], Execution]:
        search = searches[config["search"]]
        return units_of(search, decode(search, config["chosen"]), seeds), how[config["search"]]

    return type("federated", (SweepTrial,), {"resolve": resolve, "varied": varied(searches)})


def _search(plan: Plan, sweep: _Sweep) -> None:
    """Sample until enough configurations of every search are stored: on a small grid a sampler repeats itself."""
    searches = plan.searches
    if not searches:
        return
    from bench.tuning.searches import Searches, sampler  # Optuna, which other sweeps do without

    how = [scheduled(plan, search.setting, sweep.execution) for search in searches]
    trainable = _sampled(searches, plan.request.seeds, how)
    failed: set[int] = set()  # tried again by the next command, not over and over by this one
    for attempt in range(1 if plan.request.force else PATIENCE):
        past = histories(plan, searches, sweep.execution.out)
        counts = [remaining(plan, search, one.known) for search, one in zip(searches, past, strict=True)]
        wanted = {index: count for index, count in enumerate(counts) if count and index not in failed}
        if not wanted or sweep.execution.stopping:
            return
        samplers = {
            index: sampler(search, one, proposed_first(plan, search, one), seed=len(one.known) + attempt)
            for index, (search, one) in enumerate(zip(searches, past, strict=True))
            if index in wanted
        }
        searcher = Searches(samplers, wanted, lambda: sweep.execution.stopping)
        rules = [asha(search.setting.rounds) for search in searches]
        scheduler = Contests("search", rules) if plan.request.scheduler == "asha" else None
        sweep.run(trainable, {}, scheduler, searcher, sum(wanted.values()))
        failed |= searcher.failed


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
        watcher = Watcher(trainable, self.execution, self.events, self.outcome)
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

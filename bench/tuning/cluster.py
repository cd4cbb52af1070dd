"""The Ray executor: trials as Tune trials, actors reused."""

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
from bench.planning.plan import Plan, units_of
from bench.planning.unit import Unit
from bench.tuning.connect import concurrent, start
from bench.tuning.contests import Contests, asha, contests_of
from bench.tuning.events import Events
from bench.tuning.interruption import Interruption
from bench.tuning.runner import Outcome, Resources, scheduled
from bench.tuning.search import Proposer, decode, histories, varied
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
        interruption.over()
    finally:
        ray.shutdown()


def _run_trials(plan: Plan, trials: Sequence[Sequence[Unit]], sweep: _Sweep) -> None:
    """Run all trials side by side. Under ASHA packs compare the configurations in them, and Tune the other trials."""
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


def _search(plan: Plan, sweep: _Sweep) -> None:
    """Sample as many configurations of every search as are wanted and not stored, all searches side by side."""
    searches, seeds = plan.searches, plan.request.seeds
    if not searches or sweep.execution.stopping:
        return
    from bench.tuning.searches import Searches

    past = histories(plan, searches, sweep.execution.out)
    proposers = {index: Proposer(plan, search, past[index]) for index, search in enumerate(searches)}
    wanted = sum(proposer.wanted for proposer in proposers.values())
    if not wanted:
        return
    how = [scheduled(plan, search.setting, sweep.execution) for search in searches]

    def resolve(self: SweepTrial, config: dict[str, Any]) -> tuple[list[Unit], Execution]:
        search = searches[config["search"]]
        return units_of(search, decode(search, config["chosen"]), seeds), how[config["search"]]

    sweep.run(
        type("federated", (SweepTrial,), {"resolve": resolve, "varied": varied(searches)}),
        {},
        Contests("search", [asha(search.setting) for search in searches]) if plan.request.scheduler == "asha" else None,
        Searches(proposers, lambda: sweep.execution.stopping),
        wanted,
    )


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

"""The Ray executor: Tune trials with reused actors, on a local Ray or on a cluster."""

from __future__ import annotations

import io
import math
import shutil
import sys
import threading
import uuid
from collections.abc import Callable, Hashable, Mapping, Sequence
from contextlib import redirect_stdout
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ray import tune
from ray.tune.experiment import Trial
from ray.tune.schedulers import ASHAScheduler, FIFOScheduler, TrialScheduler
from ray.tune.search import Searcher

from bench import state_files
from bench.data import own
from bench.errors import UsageError
from bench.errors import chain as causes
from bench.execution import Execution
from bench.executors.factories import COMPARED, SCHEDULER, make_scheduler, naming
from bench.executors.progress import Events
from bench.executors.ray_callback import Watcher
from bench.executors.ray_cluster import ClusterLost, Watch, concurrent, give_up, leave, start
from bench.executors.ray_trainable import SweepTrainable
from bench.executors.trials import Trials, contest, evaluated_round, scheduled
from bench.planning.plan import Plan
from bench.planning.run_spec import RunSpec
from bench.planning.trial_names import varied_names
from search_spaces import Setting

if TYPE_CHECKING:
    from bench.executors.optuna_search import Proposer

FACTOR = 4  # one configuration in so many goes on, as in Tune's own ASHA
# What a scheduler may decide about a trial. A paused one would end: nobody resumes it.
DECISIONS = ("CONTINUE", "STOP", "NOOP")
WORKER_DEATHS = 3  # deaths that a trial survives: it goes on from its last save, on any worker


def run_ray(plan: Plan, trials: Trials, execution: Execution, events: Events) -> None:
    """Run every trial and search through Ray Tune.

    Raises:
        EnvironmentProblem: Ray cannot start, the cluster cannot be reached, or it cannot place a
            trial.
        UsageError: a sampler or scheduler of the user's raises an error.
    """
    if not trials and not plan.searches:
        return
    started = start(execution)
    try:
        execution = replace(execution, concurrent=concurrent(execution))
        if trials and not execution.stopping:
            _run_trials(plan, trials, execution, events)
        if plan.searches and not execution.stopping:
            _run_searches(plan, execution, events)
    except ClusterLost as problem:
        advice = "runs that ended are stored, others are saved: the same command goes on"
        events.note({"status": "environment", "error": f"{problem}; {advice}"})
        if started:
            give_up()
            started = False
    finally:
        if started:
            leave()


def trainable_for(trials: Trials, executions: Sequence[Execution]) -> type[SweepTrainable]:
    """Make a trainable whose configuration is an `index` into `trials` and `executions`."""

    def resolve(self: SweepTrainable, config: dict[str, Any]) -> tuple[list[RunSpec], Execution]:
        return list(trials[config["index"]]), executions[config["index"]]

    differing = varied_names([*chain.from_iterable(trials)])
    return type("federated", (SweepTrainable,), {"resolve": resolve, "varied": differing})


def _run_trials(plan: Plan, trials: Trials, execution: Execution, events: Events) -> None:
    """Run trials side by side."""
    scheduler = plan.options.scheduler
    executions = [scheduled(plan, run_specs[0].setting, execution) for run_specs in trials]
    space = {"index": tune.grid_search(list(range(len(trials))))}
    rules = None
    if scheduler != "none":
        rules = by_contest(scheduler, trials)
    _fit(execution, events, trainable_for(trials, executions), space, rules)


def _run_searches(plan: Plan, execution: Execution, events: Events) -> None:
    """Sample the wanted configurations of all searches that are not stored, side by side."""
    from bench.executors.optuna_search import Proposer, chosen_run_specs, past_tries, varied

    searches = plan.searches
    options = plan.options
    pasts = past_tries(plan, execution.out, execution.data_hashes)
    proposers = [Proposer(plan, past) for past in pasts]
    wanted = sum(proposer.wanted for proposer in proposers)
    if not wanted:
        return
    executions = [scheduled(plan, search.setting, execution) for search in searches]

    def resolve(self: SweepTrainable, config: dict[str, Any]) -> tuple[list[RunSpec], Execution]:
        index = config["search"]
        return chosen_run_specs(searches[index], config["chosen"], options.seeds), executions[index]

    members = {"resolve": resolve, "varied": varied(searches)}
    trainable = type("federated", (SweepTrainable,), members)
    rules = None
    if options.scheduler != "none":
        of_search = [rule_of(options.scheduler, search.setting) for search in searches]
        rules = ByContest("search", options.scheduler, of_search)
    searcher = ProposerSearcher(proposers, lambda: execution.stopping)
    _fit(execution, events, trainable, {}, rules, searcher, wanted)


def _fit(
    execution: Execution,
    events: Events,
    trainable: type[SweepTrainable],
    space: Mapping[str, Any],
    scheduler: Any,
    searcher: Any = None,
    samples: int = 1,
) -> None:
    """Run the trials by Tune, then remove Tune's own files, because the rows are stored by then."""
    trainable.own_data = dict(own.defined)
    root = Path(execution.out) / state_files.FOLDER
    name = f".tune-{uuid.uuid4().hex[:8]}"
    # Tune's files are pickles: others must not write them.
    (root / name).mkdir(mode=0o700, parents=True)
    watcher = Watcher(trainable, execution, events)
    tuner = tune.Tuner(
        tune.with_resources(trainable, {"cpu": execution.threads, "gpu": execution.gpus}),
        param_space=dict(space),
        tune_config=tune.TuneConfig(
            num_samples=samples,
            max_concurrent_trials=execution.concurrent,
            scheduler=scheduler,
            search_alg=searcher,
            reuse_actors=True,
        ),
        run_config=tune.RunConfig(
            name=name,
            storage_path=str(root.resolve()),
            callbacks=[watcher],
            failure_config=tune.FailureConfig(max_failures=WORKER_DEATHS),
            verbose=0,
        ),
    )
    messages = sys.stderr if execution.verbose else io.StringIO()  # Ray's own
    try:
        with redirect_stdout(messages):
            _fit_while_watched(tuner, execution, events)
    except ClusterLost:
        watcher.close()
        raise
    finally:
        shutil.rmtree(root / name, ignore_errors=True)


def _fit_while_watched(tuner: tune.Tuner, execution: Execution, events: Events) -> None:
    """Run Tune in a thread, so that signals and dead clusters are noticed while Tune waits.

    Raises:
        ClusterLost: no trial can go on; the thread is abandoned.
        UsageError: a sampler or scheduler of the user's raised an error.
    """
    errors: list[BaseException] = []
    before = len(events.statuses)

    def fit() -> None:
        try:
            tuner.fit()
        except BaseException as error:  # raised below, in the calling thread
            errors.append(error)

    thread = threading.Thread(target=fit, name="tune", daemon=True)
    watch = Watch(execution)
    thread.start()
    try:
        while thread.is_alive():
            thread.join(0.2)
            if problem := watch.lost_reason(execution.stopping):
                raise ClusterLost(problem)
    finally:
        watch.close()
    # A full disk fails Tune, too, and is reported by the trials.
    if not errors or "environment" in events.statuses[before:]:
        return
    for cause in causes(errors[0], contexts=True):  # Tune's own error has the text of a traceback
        if isinstance(cause, UsageError):
            raise cause
    raise errors[0]


class ProposerSearcher(Searcher):
    """A Tune searcher over several samplers.

    A configuration has `search`, an index, and `chosen`, its values. One sampler after another
    proposes all its configurations, without waiting for the trials of another to end.
    """

    def __init__(self, proposers: Sequence[Proposer], stopping: Callable[[], bool]) -> None:
        super().__init__(metric="objective", mode="max")
        self._proposers = proposers
        self._stopping = stopping
        # Tune's trial -> index of its search, and Optuna's trial.
        self._proposed: dict[str, Any] = {}

    def suggest(self, trial_id: str) -> Any:
        """Propose the next trial's configuration; `Searcher.FINISHED` if nothing is wanted."""
        for index, proposer in enumerate(self._proposers):
            trial = None if self._stopping() else proposer.propose()
            if trial is not None:
                self._proposed[trial_id] = index, trial
                return {"search": index, "chosen": trial.params}
        return Searcher.FINISHED

    def on_trial_complete(
        self, trial_id: str, result: dict[str, Any] | None = None, error: bool = False
    ) -> None:
        """Tell the sampler the objective of the trial."""
        index, trial = self._proposed[trial_id]
        objective = float(result["objective"]) if result and not error else math.nan
        self._proposers[index].tell(trial, objective)

    def save(self, checkpoint_path: str) -> None:
        """Save nothing: a sweep goes on from its rows and states, never from Tune's own files."""

    def restore(self, checkpoint_path: str) -> None:
        """Restore nothing, because `save` saves nothing."""


def rule_of(scheduler: str, setting: Setting) -> TrialScheduler:
    """Make the scheduler of one contest: Tune's ASHA, or the one that a user names.

    ASHA's first rung is after a tenth of the rounds, where there is an evaluation: trials without a
    value cannot be compared. The next ones are after `FACTOR` times as many rounds each.

    Args:
        scheduler: `asha`, or `module:factory`.
        setting: of the contest.
    """
    if scheduler != "asha":
        return make_scheduler(scheduler)
    first_rung = min(evaluated_round(setting, parts=10), setting.rounds)
    return ASHAScheduler(
        max_t=setting.rounds, grace_period=first_rung, reduction_factor=FACTOR, **COMPARED
    )


def by_contest(scheduler: str, trials: Trials) -> ByContest:
    """Make the scheduler of trials whose configuration is an `index` into `trials`."""
    rules: dict[Hashable, TrialScheduler] = {}
    for run_specs in trials:
        key = contest(run_specs)
        if key not in rules:
            rules[key] = rule_of(scheduler, run_specs[0].setting)
    return ByContest("index", scheduler, [rules[contest(run_specs)] for run_specs in trials])


class ByContest(FIFOScheduler):
    """A scheduler with one rule for each contest; no trial waits for another contest to end.

    A trial's configuration has under `name` an index into `rules`; trials of one contest share one
    rule object. `scheduler` is `asha`, or the `module:factory` that made the rules.
    """

    def __init__(self, name: str, scheduler: str, rules: Sequence[TrialScheduler]) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._name = name
        self._scheduler = scheduler
        self._rules = tuple(rules)

    def on_trial_add(self, tune_controller: Any, trial: Trial) -> None:
        """Add a trial to its contest."""
        with naming(SCHEDULER, self._scheduler):
            self._rule(trial).on_trial_add(tune_controller, trial)

    def on_trial_result(self, tune_controller: Any, trial: Trial, result: Mapping[str, Any]) -> str:
        """Let the contest decide whether the trial goes on."""
        with naming(SCHEDULER, self._scheduler):
            decision = self._rule(trial).on_trial_result(tune_controller, trial, dict(result))
        if decision not in DECISIONS:
            allowed = ", ".join(DECISIONS)
            raise SCHEDULER.error(
                self._scheduler, f"on_trial_result must return {allowed}, got {decision!r}"
            )
        return str(decision)

    def on_trial_complete(
        self, tune_controller: Any, trial: Trial, result: Mapping[str, Any]
    ) -> None:
        """Count the trial's last result in its contest."""
        with naming(SCHEDULER, self._scheduler):
            self._rule(trial).on_trial_complete(tune_controller, trial, dict(result))

    def on_trial_remove(self, tune_controller: Any, trial: Trial) -> None:
        """Remove a trial from its contest."""
        with naming(SCHEDULER, self._scheduler):
            self._rule(trial).on_trial_remove(tune_controller, trial)

    def _rule(self, trial: Trial) -> TrialScheduler:
        index: int = trial.config[self._name]
        return self._rules[index]

"""The inline executor: trials one after another in this process. Needs no Ray."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from bench.execution import Execution
from bench.planning.labels import Varied, varied_names
from bench.planning.plan import Plan, Search, units_of
from bench.planning.unit import Unit
from bench.tuning.events import Events, Watched, watched
from bench.tuning.logs import Feed
from bench.tuning.runner import Interruption, Outcome, Resources, halving
from bench.tuning.search import PATIENCE, decode, distributions, known_results, remaining, study_for, varied
from bench.tuning.trial import Trial
from leaderboards import canonical_json


def run_inline(
    plan: Plan,
    trials: Sequence[Sequence[Unit]],
    execution: Execution,
    resources: Resources,
    events: Events,
    outcome: Outcome,
    interruption: Interruption,
) -> None:
    """Every trial in order, until one finds that the machine is not ready."""
    differing = varied_names([unit for units in trials for unit in units])
    for units in trials:
        how = halving(execution, units[0].setting, resources.pack) if plan.request.scheduler == "asha" else execution
        report = _run(watched(units, differing), how, events, outcome)
        if report["status"] == "environment":
            return
    for search in plan.searches:
        if "environment" not in outcome.statuses:
            _search(plan, search, execution, events, outcome)


def _run(told: Watched, execution: Execution, events: Events, outcome: Outcome) -> dict[str, Any]:
    events.started(told)
    trial = Trial(told.units, execution)
    feed = Feed(trial)
    report = trial.report()
    while not report["done"]:
        report = trial.step()
        events.reported(told, feed.attach(report) if events.needs_curves else report)
    ended = feed.attach(report) if events.needs_curves else report
    trial.close()
    events.ended(told, ended)
    outcome.note(report)
    return report


def _search(plan: Plan, search: Search, execution: Execution, events: Events, outcome: Outcome) -> None:
    """Optuna's ask and tell, the sampler filled with what is stored."""
    known = known_results(plan, search, execution.out)
    study = study_for(search, known)
    tried = {canonical_json(chosen) for chosen, _ in known}
    wanted = len(known) + remaining(plan, search, execution.out)
    for _ in range(PATIENCE * wanted):
        if len(tried) >= wanted or execution.stopping:
            return
        asked = study.ask(distributions(search))
        tried.add(canonical_json(asked.params))
        configuration = decode(search, asked.params)
        units = units_of(search, configuration, plan.request.seeds)
        told = watched(units, {search.algorithm: Varied((), tuple(varied(search)))})
        report = _run(told, execution, events, outcome)
        if report["status"] == "environment":
            return
        if report["status"] == "finished":
            study.tell(asked, report["objective"])
        else:
            study.tell(asked, state=_failed())


def _failed() -> Any:
    from optuna.trial import TrialState

    return TrialState.FAIL

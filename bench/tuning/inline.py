"""The inline executor: trials one after another in this process. Needs no Ray."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from bench.execution import Execution
from bench.planning.labels import varied_names
from bench.planning.plan import Plan, Search, units_of
from bench.planning.unit import Unit
from bench.tuning.events import Events, Watched, watched
from bench.tuning.interruption import Interruption
from bench.tuning.runner import Outcome, Resources, scheduled
from bench.tuning.search import (
    PATIENCE,
    History,
    decode,
    distributions,
    histories,
    proposed_first,
    remaining,
    study_for,
    varied,
)
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
        how = scheduled(plan, units[0].setting, execution, resources.pack)
        if _run(watched(units, differing), how, events, outcome)["ends_sweep"]:
            return
    for search, past in zip(plan.searches, histories(plan, plan.searches, execution.out), strict=True):
        if not _search(plan, search, past, execution, events, outcome):
            return


def _run(told: Watched, execution: Execution, events: Events, outcome: Outcome) -> dict[str, Any]:
    events.started(told)
    trial = Trial(told.units, execution)
    report = trial.report()
    while not report["done"]:
        report = trial.step()
        events.reported(told, report)
    trial.end()
    report = trial.report()  # with the errors of the end
    trial.close()
    events.ended(told, report)
    outcome.note(report)
    return report


def _search(plan: Plan, search: Search, past: History, execution: Execution, events: Events, outcome: Outcome) -> bool:
    """Optuna's ask and tell, the sampler filled with what is stored. What it proposes again is told, not run again.

    Returns:
        Whether the machine is ready for more.
    """
    study = study_for(search, past, proposed_first(plan, search, past))
    space, names = distributions(search), varied(plan.searches)
    tried = {canonical_json(chosen): value for chosen, value in past.known}
    wanted = len(tried) + remaining(plan, search, past.known)
    for _ in range(PATIENCE * wanted):
        if len(tried) >= wanted or execution.stopping:
            break
        asked = study.ask(space)
        proposed = canonical_json(asked.params)
        if proposed not in tried:
            units = units_of(search, decode(search, asked.params), plan.request.seeds)
            report = _run(watched(units, names), execution, events, outcome)
            if report["ends_sweep"]:
                return False
            tried[proposed] = report["objective"] if report["status"] == "finished" else math.nan
        if math.isnan(tried[proposed]):
            study.tell(asked, state=_failed())
        else:
            study.tell(asked, tried[proposed])
    return True


def _failed() -> Any:
    from optuna.trial import TrialState

    return TrialState.FAIL

"""The inline executor: trials one after another in this process. Needs no Ray."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from bench.execution import Execution
from bench.executors.events import Events, Watched, watched
from bench.executors.interruption import Interruption
from bench.executors.optuna_search import Proposer, decode, histories, varied
from bench.executors.trials import Outcome, Resources, scheduled
from bench.planning.labels import varied_names
from bench.planning.plan import Plan, units_of
from bench.planning.run_spec import RunSpec
from bench.trial.trial import RunGroup


def run_inline(
    plan: Plan,
    trials: Sequence[Sequence[RunSpec]],
    execution: Execution,
    resources: Resources,
    events: Events,
    outcome: Outcome,
    interruption: Interruption,
) -> None:
    """Run every trial in order, until one finds that the machine is not ready."""
    differing = varied_names([unit for units in trials for unit in units])
    for units in trials:
        how = scheduled(plan, units[0].setting, execution, resources.pack)
        if _run(watched(units, differing), how, events, outcome)["ends_sweep"]:
            return
    names = varied(plan.searches)
    for search, past in zip(plan.searches, histories(plan, plan.searches, execution.out), strict=True):
        proposer = Proposer(plan, search, past)
        while not execution.stopping and (asked := proposer.propose()):
            units = units_of(search, decode(search, asked.params), plan.request.seeds)
            report = _run(watched(units, names), execution, events, outcome)
            if report["ends_sweep"]:
                return
            proposer.tell(asked, report["objective"] if report["status"] == "finished" else math.nan)


def _run(told: Watched, execution: Execution, events: Events, outcome: Outcome) -> dict[str, Any]:
    events.started(told)
    trial = RunGroup(told.units, execution)
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

"""The inline executor: trials one after another in this process. Needs no Ray."""

from __future__ import annotations

import math
from typing import Any

from bench.execution import Execution
from bench.executors.events import Watched, watched
from bench.executors.trials import Sweep, scheduled
from bench.planning.labels import varied_names
from bench.trial.trial import RunGroup


def run_inline(sweep: Sweep) -> None:
    """Run every trial in order, until one finds that the machine is not ready."""
    plan, execution = sweep.plan, sweep.execution
    differing = varied_names([unit for units in sweep.trials for unit in units])
    for units in sweep.trials:
        how = scheduled(plan, units[0].setting, execution, sweep.resources.pack)
        if _run(watched(units, differing), how, sweep)["ends_sweep"]:
            return
    if plan.searches:
        _run_searches(sweep)


def _run_searches(sweep: Sweep) -> None:
    """Try the configurations of one search after another."""
    from bench.executors.optuna_search import Proposer, chosen_units, histories, varied

    plan, execution = sweep.plan, sweep.execution
    names = varied(plan.searches)
    for search, past in zip(plan.searches, histories(plan, plan.searches, execution.out), strict=True):
        proposer = Proposer(plan, search, past)
        while not execution.stopping and (asked := proposer.propose()):
            units = chosen_units(search, asked.params, plan.request.seeds)
            report = _run(watched(units, names), execution, sweep)
            if report["ends_sweep"]:
                return
            proposer.tell(asked, report["objective"] if report["status"] == "finished" else math.nan)


def _run(trial: Watched, execution: Execution, sweep: Sweep) -> dict[str, Any]:
    sweep.events.started(trial)
    group = RunGroup(trial.units, execution)
    report = group.report()
    while not report["done"]:
        report = group.step()
        sweep.events.reported(trial, report)
    group.end()
    report = group.report()  # with the errors of the end
    group.close()
    sweep.events.ended(trial, report)
    sweep.outcome.note(report)
    return report

"""The inline executor: trials one after another in this process. Needs no Ray."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from bench.errors import UsageError
from bench.execution import Execution
from bench.labels import Varied, trial_name, varied_names
from bench.plan import Plan, Search, units_of
from bench.tuning.progress import Display
from bench.tuning.runner import Interruption, Outcome, Resources
from bench.tuning.search import PATIENCE, decode, distributions, known_results, remaining, study_for, varied
from bench.tuning.trial import Trial
from bench.unit import Unit
from leaderboards import canonical_json


def run_inline(
    plan: Plan,
    trials: Sequence[Sequence[Unit]],
    execution: Execution,
    resources: Resources,
    display: Display,
    outcome: Outcome,
    interruption: Interruption,
) -> None:
    """Every trial in order, until one finds that the machine is not ready.

    Raises:
        UsageError: a scheduler is asked for: one trial at a time leaves nothing to compare.
    """
    if plan.request.scheduler != "none":
        raise UsageError(f"--scheduler {plan.request.scheduler} compares running trials: use --executor ray")
    differing = varied_names([unit for units in trials for unit in units])
    for units in trials:
        report = _run(list(units), trial_name(units, differing), execution, display, outcome)
        if report["status"] == "environment":
            return
    for search in plan.searches:
        if "environment" not in outcome.statuses:
            _search(plan, search, execution, display, outcome)


def _run(units: list[Unit], name: str, execution: Execution, display: Display, outcome: Outcome) -> dict[str, Any]:
    trial = Trial(units, execution)
    report = trial.report()
    while not report["done"]:
        report = trial.step()
        display.update(name, report, report["round"] / units[0].setting.rounds)
    trial.close()
    display.finish(name, report)
    outcome.note(report)
    return report


def _search(plan: Plan, search: Search, execution: Execution, display: Display, outcome: Outcome) -> None:
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
        name = trial_name(units, {search.algorithm: Varied((), tuple(varied(search)))})
        report = _run(units, name, execution, display, outcome)
        if report["status"] == "environment":
            return
        if report["status"] == "finished":
            study.tell(asked, report["objective"])
        else:
            study.tell(asked, state=_failed())


def _failed() -> Any:
    from optuna.trial import TrialState

    return TrialState.FAIL

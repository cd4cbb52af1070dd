"""Feasibility of a plan on the data: its partitions, and the algorithms that can run on them.

Imports neither torch nor ray.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import cache, partial
from typing import TYPE_CHECKING

from algorithms import entry
from bench import data
from bench.errors import EnvironmentProblem, Unfit, UsageError
from bench.execution import Execution
from bench.models import parse
from bench.planning.options import SweepOptions
from bench.planning.plan import Plan
from bench.planning.planner import make_plan
from bench.planning.run_spec import RunSpec
from bench.planning.search import Search
from bench.planning.settings import NEEDED_BY
from search_spaces import Setting

if TYPE_CHECKING:
    from bench.data import Dataset

# Seeds of a configuration whose partitions are drawn, in milliseconds each; a sweep draws all.
CHECKED_SEEDS = 100
ENOUGH = 2  # samples on the smallest client, for BatchNorm


def partition_status(part: RunSpec | Search, seeds: Sequence[int], data_dir: str | None) -> str:
    """Return `feasible`, why not, or `unknown` without the data.

    `seeds`: of partitions; of many only the first are drawn, as it says.
    """
    from bench.data.splits import split_like

    setting = split_like(part.setting)
    pooled = "pooled" in entry(part.algorithm).needs
    normed = not pooled and any(parse(model).has_batchnorm for model in part.setting.models)
    drawn = seeds[:CHECKED_SEEDS]
    status = "feasible"
    if len(drawn) < len(seeds):
        status += f" (first {len(drawn)} of {len(seeds)} seeds)"
    most = 0  # clients with too few samples
    for seed in drawn:
        problem, smallest, count = _draw(setting, seed, data_dir)
        if problem:
            return problem
        if normed and smallest < ENOUGH:
            why = f"BatchNorm takes statistics over a batch, and a client has {smallest} sample"
            return f"NOT feasible: {why}"
        most = max(most, count)
    if most:
        status += (
            f"; too few samples for tests and validation of their own: {most} of "
            f"{setting.num_clients} clients, which train on all and count for neither"
        )
        if len(drawn) > 1:
            status += " (seed with most)"
    return status


@cache
def _draw(setting: Setting, seed: int, data_dir: str | None) -> tuple[str, int, int]:
    """Draw a partition.

    Returns:
        Why it cannot be drawn, or an empty text; the samples of the smallest client; the number of
        clients with too few samples for the tests and the validation of their own that the setting
        asks for, 0 if it does not ask for both.
    """
    from bench.data.splits import split

    dataset = data.read(setting.dataset, data_dir)
    if dataset is None:
        return "unknown: the data are not here", 0, 0
    try:
        drawn = split(setting, dataset.train_y, seed, dataset.train_groups)
    except UsageError as problem:
        return f"NOT feasible: {problem}", 0, 0
    smallest = min(map(len, drawn.clients))
    lacking = 0
    if setting.local_validation_fraction:
        lacking = sum(len(index) == 0 for index in drawn.local_validations)
    return "", smallest, lacking


def prepare_data(plan: Plan, run_specs: Sequence[RunSpec], execution: Execution) -> None:
    """Fetch each data set once, before all workers need it at once, and draw the partitions.

    `run_specs`: the runs to do, and those that may follow.

    Raises Unfit if some algorithms cannot run on these partitions, UsageError if none can;
    EnvironmentProblem if data or weights are missing or altered.
    """
    from bench.models import weights

    parts: list[RunSpec | Search] = [*run_specs, *plan.searches]
    models: dict[str, None] = {}
    publics: dict[str, None] = {}
    for part in parts:
        models |= dict.fromkeys(part.setting.models)
        if part.setting.public_set:
            publics[part.setting.public_set[0]] = None
    for model in models:
        weights.provide(model, execution.data_dir, execution.offline)
    load = partial(data.load, folder=execution.data_dir, offline=execution.offline)
    for name in publics:
        load(name)
    needs = unmet_needs(plan, run_specs, load)
    if needs:
        algorithms = dict.fromkeys(part.algorithm for part in parts)
        raise Unfit(needs, [name for name in algorithms if name not in needs])


def fitting_plan(options: SweepOptions, left_out: Mapping[str, str] | None = None) -> Plan:
    """Make the plan of options; of `--algo all`, without those that cannot run on the data here.

    `left_out`: algorithms that are known not to run, and what each needs.

    Raises UsageError as `make_plan` does.
    """
    plan = make_plan(options, left_out)
    while options.every_algorithm:
        needs: dict[str, str] = {}
        with suppress(UsageError, EnvironmentProblem):  # whoever trains gets the error
            needs = unmet_needs(plan, plan.run_specs, partial(data.read, folder=options.data_dir))
        if not needs:
            break
        plan = make_plan(options, {**plan.left_out, **needs})
    return plan


def unmet_needs(
    plan: Plan,
    run_specs: Sequence[RunSpec],
    read: Callable[[str], Dataset | None],
) -> dict[str, str]:
    """Find the algorithms that cannot run on the data, while others can.

    Args:
        plan: whose searches are checked beside `run_specs`.
        run_specs: the runs to check.
        read: returns a data set, or None if it is not here: then nothing is said about it.

    Returns:
        What each of them needs, by name.

    Raises:
        UsageError: a partition cannot be drawn, or no algorithm can run on it.
    """
    from bench.data.splits import split_like

    cases = [(run_spec.algorithm, run_spec.setting, run_spec.seed) for run_spec in run_specs]
    for search in plan.searches:
        seeds = range(plan.options.seeds)
        cases += [(search.algorithm, search.setting, seed) for seed in seeds]
    cases.sort(key=lambda case: case[1].dataset)  # few are in memory at once
    names = list(dict.fromkeys(name for name, _, _ in cases))
    # Many runs share a partition, which takes milliseconds to draw, or with many samples seconds.
    smallest: dict[tuple[Setting, int], int] = {}
    needs: dict[str, str] = {}
    problems: list[UsageError] = []
    for name, setting, seed in cases:
        key = (split_like(setting), seed)
        if key not in smallest:
            try:
                smallest[key] = _smallest_client(setting, seed, read)
            except UsageError as error:
                smallest[key] = ENOUGH
                owners = _owners_of_auxiliary(plan, names, setting, seed, read)
                if not owners:
                    raise
                needs |= dict.fromkeys(owners, f"the server's own samples, and {error}")
                problems.append(error)
        too_small = smallest[key] < ENOUGH and "pooled" not in entry(name).needs
        normed = [model for model in setting.models if parse(model).has_batchnorm]
        if too_small and normed:
            statistics = f"BatchNorm ({normed[0]}), which takes statistics over a batch"
            needs[name] = f"{statistics}, and a client has {smallest[key]} sample"
            advice = "use fewer clients, a larger alpha, or a model without BatchNorm"
            problems.append(UsageError(f"{name} has {needs[name]}: {advice}"))
    if problems and len(needs) == len(names):
        raise problems[0]
    return needs


def _smallest_client(setting: Setting, seed: int, read: Callable[[str], Dataset | None]) -> int:
    """Count the samples of the smallest client, `ENOUGH` without the data.

    Raises UsageError as `split` does.
    """
    from bench.data.splits import split

    dataset = read(setting.dataset)
    if dataset is None:
        return ENOUGH
    clients = split(setting, dataset.train_y, seed, dataset.train_groups).clients
    return min(len(index) for index in clients)


def _owners_of_auxiliary(
    plan: Plan,
    names: Iterable[str],
    setting: Setting,
    seed: int,
    read: Callable[[str], Dataset | None],
) -> list[str]:
    """List the algorithms for which the server takes samples, if there are too few just for it."""
    if not plan.origins.get("auxiliary_per_class", "").startswith(NEEDED_BY):
        return []
    try:
        _smallest_client(replace(setting, auxiliary_per_class=0), seed, read)
    except UsageError:
        return []
    wanted = {"auxiliary"} if setting.public_set else {"auxiliary", "public"}
    return [name for name in names if wanted & entry(name).needs]

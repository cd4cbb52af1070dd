"""Search by Optuna: distributions under a space's relations, a sampler with stored results."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence, Sized
from contextlib import suppress
from dataclasses import dataclass, field, replace
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Any

from algorithms import entry
from bench.execution import enough
from bench.executors.factories import make_sampler
from bench.planning.plan import Plan
from bench.planning.run_spec import RunSpec, Varied, setting_of, varied_names
from bench.planning.search import Search, run_specs_of
from bench.state_files import STATE_VERSION, saved_runs
from leaderboards import Store, canonical_json
from leaderboards.selection import (
    CLIENT_RULES,
    RULES,
    selected_on,
    selecting_number,
    selection_value,
)
from search_spaces import Grid, Range, Setting, Value, holds, names_in

if TYPE_CHECKING:
    import optuna

_READ = (
    *("algorithm", "setting_json", "hp_json", "run_key"),
    *("status", "diverged", *RULES.values(), *CLIENT_RULES.values()),
)
# Prefix of the name of a setting field, because a hyper-parameter may be called `lr` as well.
FIELD = "setting."
PATIENCE = 20  # proposals per wanted configuration: if few are left, a sampler repeats itself


@dataclass(frozen=True)
class PastTries:
    """The results of earlier commands of a search.

    Args:
        known: (Optuna's values, objective) of configurations that have all their seeds.
        begun: Optuna's values of configurations with a saved run that can go on, or with a failed
            run.
    """

    known: list[tuple[dict[str, Any], float]] = field(default_factory=list)
    begun: list[dict[str, Any]] = field(default_factory=list)


def distributions(search: Search) -> dict[str, Any]:
    """Make Optuna's distributions by name, without the names that have a single value.

    Grids that relations bind become one distribution: its name is theirs joined by commas, its
    values are JSON lists.
    """
    from optuna.distributions import CategoricalDistribution, FloatDistribution, IntDistribution

    space: dict[str, Any] = {}
    choices = _choices(search)
    grids = {name: value.values for name, value in choices.items() if isinstance(value, Grid)}
    bound = _bound_names(search)
    joint = {name: values for name, values in grids.items() if name in bound}
    if joint:
        relations = [relation for relation in search.where if names_in(relation) <= joint.keys()]
        valid = []
        for values in product(*joint.values()):
            named = dict(zip(joint, values, strict=True))
            if all(holds(relation, named) for relation in relations):
                valid.append(json.dumps(values))
        space[",".join(joint)] = CategoricalDistribution(valid)
    for name, value in choices.items():
        if isinstance(value, Range) and value.whole:
            space[name] = IntDistribution(int(value.low), int(value.high), log=value.log)
        elif isinstance(value, Range):
            space[name] = FloatDistribution(value.low, value.high, log=value.log)
        elif name not in joint and len(value.values) > 1:
            space[name] = CategoricalDistribution(value.values)
    return space


def _choices(search: Search) -> dict[str, Grid | Range]:
    """Return the values of all hyper-parameters, and of the tuned fields of the setting.

    The names of these fields begin with `FIELD`. Optuna knows no relations: of a range that one
    binds, these are the values of a grid.
    """
    bound = _bound_names(search)
    choices: dict[str, Grid | Range] = {}
    for name, value in search.values.items():
        choices[name] = Grid(*value.values) if name in bound else value
    for name, value in search.tuned.items():
        choices[FIELD + name] = value
    return choices


def _bound_names(search: Search) -> set[str]:
    """Return the hyper-parameters that relations of the search bind."""
    return set().union(*map(names_in, search.where))


def size(search: Search) -> float:
    """Count the configurations that the search can propose; infinite with an interval."""
    space = distributions(search)
    return math.prod(len(getattr(dist, "choices", ())) or math.inf for dist in space.values())


def decode(search: Search, chosen: Mapping[str, Any]) -> tuple[dict[str, Value], Setting]:
    """Make a full configuration and its setting from Optuna's values."""
    values = {
        name: value.values[0] for name, value in _choices(search).items() if isinstance(value, Grid)
    }
    for name, value in chosen.items():
        names = name.split(",")
        if len(names) > 1:
            values.update(zip(names, json.loads(value), strict=True))
        else:
            values[name] = value
    fields: dict[str, Any] = {name: values.pop(FIELD + name) for name in search.tuned}
    return entry(search.algorithm).resolve(values), replace(search.setting, **fields)


def chosen_run_specs(search: Search, chosen: Mapping[str, Any], seeds: int) -> list[RunSpec]:
    """Make the runs, one for each seed, of the configuration with Optuna's values."""
    configuration, setting = decode(search, chosen)
    return run_specs_of(replace(search, setting=setting), configuration, seeds)


def encode(
    search: Search, space: Mapping[str, Any], configuration: Mapping[str, Value], setting: Setting
) -> dict[str, Any] | None:
    """Convert a configuration to Optuna's values; None if the search cannot choose it.

    `space`: its `distributions`.
    """
    values = dict(configuration)
    for name in search.tuned:
        values[FIELD + name] = getattr(setting, name)
    chosen: dict[str, Any] = {}
    for name, distribution in space.items():
        names = name.split(",")
        value = json.dumps([values[n] for n in names]) if len(names) > 1 else values[name]
        if hasattr(distribution, "choices"):
            possible = value in distribution.choices
        else:
            possible = distribution.low <= value <= distribution.high
        if not possible:
            return None
        chosen[name] = value
    for name, choice in _choices(search).items():
        is_fixed = isinstance(choice, Grid) and len(choice.values) == 1
        if is_fixed and values[name] != choice.values[0]:
            return None
    return chosen


def varied(searches: Sequence[Search]) -> dict[str, Varied]:
    """Find by algorithm what the names of trials state.

    That is the setting fields that differ, and the tuned hyper-parameters.
    """
    fields = varied_names([run_specs_of(search, {}, 1)[0] for search in searches])
    names = {}
    for search in searches:
        differing = (*fields[search.algorithm].fields, *search.tuned)
        several = (name for name, value in search.values.items() if len(value.values) > 1)
        names[search.algorithm] = Varied(differing, tuple(several))
    return names


def remaining(plan: Plan, search: Search, known: Sized) -> int:
    """Count the configurations still to try: wanted, possible, and not in `PastTries.known`."""
    return int(max(0, min(plan.options.configurations, size(search)) - len(known)))


def proposed_first(plan: Plan, search: Search, past: PastTries) -> list[dict[str, Any]]:
    """List the configurations to try before the sampler proposes any.

    These are those that have begun, and all others if all are wanted. A sampler would repeat itself
    on the rest of a small grid. In a larger space with the learning rate in it, the setting's own
    rate is tried with other values from the sampler, so that every algorithm has it among its
    tries.
    """
    first = list(past.begun)
    space = distributions(search)
    if size(search) > plan.options.configurations:
        preset = {
            FIELD + name: getattr(search.setting, name)
            for name in search.tuned
            if not hasattr(space.get(FIELD + name), "choices")
        }
        tried = [*first, *(chosen for chosen, _ in past.known)]
        if preset and not any(preset.items() <= chosen.items() for chosen in tried):
            first.append(preset)
        return first
    columns = [distribution.choices for distribution in space.values()]
    choices = [dict(zip(space, values, strict=True)) for values in product(*columns)]
    seen = [chosen for chosen, _ in past.known] + first
    return first + [chosen for chosen in choices if chosen not in seen]


def past_tries(
    plan: Plan,
    searches: Sequence[Search],
    out: str,
    data_hashes: Mapping[str, str] | None = None,
) -> list[PastTries]:
    """Read the history of each search, empty with `--force`; the store is read only once.

    `data_hashes`: data set -> hash of the copy of the data whose results count, as for `Store`.

    Under ASHA a stopped configuration counts as tried, with the accuracy that it had reached.
    A configuration that diverged on a seed is worse than any that did not (`selection_value`).
    """
    if plan.options.force or not searches:
        return [PastTries() for _ in searches]
    runs = Store(Path(out), data_hashes).runs(columns=_READ)
    names = ("algorithm", "setting_json", "hp_json")
    # Without damaged ones, which the runs that need them report.
    states: dict[str, dict[str, str]] = {}
    for key, manifest in saved_runs(Path(out)).items():
        with suppress(LookupError, TypeError):
            if manifest["version"] == STATE_VERSION:
                states[key] = {name: str(manifest["run"][name]) for name in names}
    by_search = []
    for search in searches:
        frame = runs[runs.algorithm == search.algorithm]
        covered = [text for text in frame.setting_json.unique() if search.covers(text)]
        frame = frame[frame.setting_json.isin(covered)]
        rows = {str(row.run_key): row for row in frame.itertuples()}
        saved = {
            key: run
            for key, run in states.items()
            if run["algorithm"] == search.algorithm and search.covers(run["setting_json"])
        }
        by_search.append(_past_tries(plan, search, rows, saved))
    return by_search


def _past_tries(
    plan: Plan, search: Search, rows: Mapping[str, Any], saved: Mapping[str, Mapping[str, str]]
) -> PastTries:
    needless = enough(stopped=plan.options.scheduler != "none")
    history = PastTries()
    space = distributions(search)
    seen = set[str]()
    texts = {(row.hp_json, row.setting_json) for row in rows.values()}
    texts |= {(run["hp_json"], run["setting_json"]) for run in saved.values()}
    for hp_json, setting_json in sorted(texts):
        try:
            configuration = entry(search.algorithm).resolve(json.loads(hp_json))
        except ValueError:  # of a version of the algorithm with other fields
            continue
        chosen = encode(search, space, configuration, setting_of(setting_json))
        if chosen is None:
            continue
        # An older version's text becomes the same configuration as the current one's.
        if canonical_json(chosen) in seen:
            continue
        seen.add(canonical_json(chosen))
        keys = [run_spec.key for run_spec in chosen_run_specs(search, chosen, plan.options.seeds)]
        stored = [rows[key] for key in keys if key in rows]
        if len(stored) == len(keys) and all(row.status in needless for row in stored):
            samples = selected_on(search.setting.as_dict(), plan.options.select_on)
            number = selecting_number(plan.options.chosen_by, samples)
            accuracies = [getattr(row, number) for row in stored]
            diverged = any(row.status == "finished" and row.diverged for row in stored)
            history.known.append((chosen, selection_value(accuracies, diverged)))
            continue
        resumable = any(
            key in saved and (key not in rows or rows[key].status == "stopped") for key in keys
        )
        if resumable or any(row.status == "failed" for row in stored):
            history.begun.append(chosen)
    return history


class Proposer:
    """Optuna's sampler of a search, filled with the stored results.

    It proposes no configuration twice.
    """

    def __init__(self, plan: Plan, search: Search, past: PastTries) -> None:
        import optuna

        optuna.logging.set_verbosity(optuna.logging.WARNING)
        sampler = make_sampler(plan.options.sampler, seed=len(past.known))
        self.study = optuna.create_study(direction="maximize", sampler=sampler)
        self.wanted = remaining(plan, search, past.known)
        self._space = distributions(search)
        for chosen, value in past.known:
            self.study.add_trial(
                optuna.trial.create_trial(params=chosen, distributions=self._space, value=value)
            )
        for chosen in proposed_first(plan, search, past):
            self.study.enqueue_trial(chosen)
        self._patience = PATIENCE * self.wanted
        # The objective of each configuration that is stored or was proposed; NaN while there is
        # none.
        self._values = {canonical_json(chosen): value for chosen, value in past.known}

    def propose(self) -> optuna.Trial | None:
        """Propose a new configuration.

        None if no more are wanted, or the sampler only repeats itself.
        """
        while self.wanted and self._patience:
            trial = self.study.ask(self._space)
            name = canonical_json(trial.params)
            if name not in self._values:
                self._values[name] = math.nan
                self.wanted -= 1
                return trial
            self._patience -= 1
            self.tell(trial, self._values[name])
        return None

    def tell(self, asked: optuna.Trial, value: float) -> None:
        """Record the objective of a proposal; NaN if it has none."""
        from optuna.trial import TrialState

        self._values[canonical_json(asked.params)] = value
        if math.isnan(value):
            self.study.tell(asked, state=TrialState.FAIL)
        else:
            self.study.tell(asked, value)

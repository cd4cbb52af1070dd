"""Search by Optuna: distributions under a space's relations, a sampler with stored results."""

from __future__ import annotations

import json
import math
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Any

from algorithms import entry
from bench.execution import are_enough
from bench.executors.factories import SAMPLER, make_sampler, naming
from bench.planning.configurations import keeps_relations
from bench.planning.plan import Plan
from bench.planning.run_spec import RunSpec, setting_of
from bench.planning.search import Search, first_run, run_specs_of
from bench.planning.trial_names import Varied, varied_names
from bench.state_files import STATE_VERSION, saved_runs
from leaderboards import Store, canonical_json
from leaderboards.selection import (
    CLIENT_RULES,
    RULES,
    selected_on,
    selecting_number,
    selection_value,
)
from search_spaces import Grid, Range, Setting, Value, combinations, names_in

if TYPE_CHECKING:
    import optuna

_NAMES = ("algorithm", "setting_json", "hp_json")  # of a configuration
_READ = (*_NAMES, "run_key", "status", "diverged", *RULES.values(), *CLIENT_RULES.values())
# Prefix of the name of a setting field, because a hyper-parameter may be called `lr` as well.
FIELD = "setting."
PATIENCE = 20  # proposals per wanted configuration: if few are left, a sampler repeats itself


@dataclass(frozen=True)
class PastTries:
    """The results of earlier commands of a search.

    Args:
        search: whose they are.
        known: (Optuna's values, objective) of configurations that have all their seeds.
        begun: Optuna's values of configurations with a saved run that can go on, or with a failed
            run.
    """

    search: Search
    known: list[tuple[dict[str, Any], float]] = field(default_factory=list)
    begun: list[dict[str, Any]] = field(default_factory=list)

    @cached_property
    def space(self) -> dict[str, Any]:
        """The search's `distributions`."""
        return distributions(self.search)

    @property
    def size(self) -> float:
        """The number of configurations that the search can propose; infinite with an interval."""
        count = 1
        for distribution in self.space.values():
            if not hasattr(distribution, "choices"):
                return math.inf
            count *= len(distribution.choices)
        return count

    def possible(self, wanted: int) -> int:
        """Count the configurations that the search can propose, `wanted` at most."""
        return int(min(wanted, self.size))

    def remaining(self, wanted: int) -> int:
        """Count the configurations still to try: possible ones that are not known."""
        return max(0, self.possible(wanted) - len(self.known))


def distributions(search: Search) -> dict[str, Any]:
    """Make Optuna's distributions by name, without the names that have a single value.

    Optuna knows no relations: the values of names that relations bind, of a range those of a grid,
    become one distribution. Its name is theirs joined by commas, its values are JSON lists.
    """
    from optuna.distributions import CategoricalDistribution, FloatDistribution, IntDistribution

    space: dict[str, Any] = {}
    choices = _choices(search)
    bound = set().union(*map(names_in, search.where))
    joint = {name: value for name, value in choices.items() if name in bound}
    if joint:
        valid = []
        for values in combinations(joint):
            if keeps_relations(search, values):
                valid.append(json.dumps([*values.values()]))
        space[",".join(joint)] = CategoricalDistribution(valid)
    for name, value in choices.items():
        if name in joint:
            continue
        if isinstance(value, Range) and value.whole:
            space[name] = IntDistribution(int(value.low), int(value.high), log=value.log)
        elif isinstance(value, Range):
            space[name] = FloatDistribution(value.low, value.high, log=value.log)
        elif len(value.values) > 1:
            space[name] = CategoricalDistribution(value.values)
    return space


def _choices(search: Search) -> dict[str, Grid | Range]:
    """Return the values of all hyper-parameters, and of the tuned fields of the setting.

    The names of these fields begin with `FIELD`.
    """
    choices = dict(search.values)
    for name, value in search.tuned.items():
        choices[FIELD + name] = value
    return choices


def decode(search: Search, chosen: Mapping[str, Any]) -> tuple[dict[str, Value], Setting]:
    """Make a full configuration and its setting from Optuna's values."""
    values: dict[str, Any] = {}
    for name, choice in _choices(search).items():
        if isinstance(choice, Grid):
            values[name] = choice.values[0]
    for name, value in chosen.items():
        names = name.split(",")
        if len(names) > 1:
            values.update(zip(names, json.loads(value), strict=True))
        else:
            values[name] = value
    fields = {name: values.pop(FIELD + name) for name in search.tuned}
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
    values: dict[str, Any] = dict(configuration)
    for name in search.tuned:
        values[FIELD + name] = getattr(setting, name)
    for name, choice in _choices(search).items():
        is_fixed = isinstance(choice, Grid) and len(choice.values) == 1
        if is_fixed and values[name] != choice.values[0]:
            return None
    chosen: dict[str, Any] = {}
    for name, distribution in space.items():
        if name in values:
            value = values[name]
        else:  # of several names
            value = json.dumps([values[part] for part in name.split(",")])
        if hasattr(distribution, "choices"):
            possible = value in distribution.choices
        else:
            possible = distribution.low <= value <= distribution.high
        if not possible:
            return None
        chosen[name] = value
    return chosen


def varied(searches: Sequence[Search]) -> dict[str, Varied]:
    """Find by algorithm what the names of trials state.

    That is the setting fields that differ, and the tuned hyper-parameters.
    """
    fields = varied_names([first_run(search, {}) for search in searches])
    names = {}
    for search in searches:
        differing = (*fields[search.algorithm].fields, *search.tuned)
        several = (name for name, value in search.values.items() if len(value.values) > 1)
        names[search.algorithm] = Varied(differing, tuple(several))
    return names


def proposed_first(past: PastTries, wanted: int) -> list[dict[str, Any]]:
    """List the configurations to try before the sampler proposes any.

    These are those that have begun, and all others if all are wanted. A sampler would repeat itself
    on the rest of a small grid. In a larger space with the learning rate in it, the setting's own
    rate is tried with other values from the sampler, so that every algorithm has it among its
    tries.
    """
    search = past.search
    first = list(past.begun)
    tried = first + [chosen for chosen, _ in past.known]
    if past.size > wanted:
        preset = {}
        for name in search.tuned:
            if not hasattr(past.space.get(FIELD + name), "choices"):
                preset[FIELD + name] = getattr(search.setting, name)
        if preset and not any(preset.items() <= chosen.items() for chosen in tried):
            first.append(preset)
        return first
    columns = [distribution.choices for distribution in past.space.values()]
    for values in product(*columns):
        chosen = dict(zip(past.space, values, strict=True))
        if chosen not in tried:
            first.append(chosen)
    return first


def past_tries(
    plan: Plan, out: str, data_hashes: Mapping[str, str] | None = None
) -> list[PastTries]:
    """Read the history of each search of a plan, empty with `--force`; the store is read once.

    `data_hashes`: data set -> hash of the copy of the data whose results count, as for `Store`.

    Under ASHA a stopped configuration counts as tried, with the accuracy that it had reached.
    A configuration that diverged on a seed is worse than any that did not (`selection_value`).
    """
    pasts = [PastTries(search) for search in plan.searches]
    if plan.options.force or not pasts:
        return pasts
    runs = Store(Path(out), data_hashes).runs(columns=_READ)
    # Without damaged ones, which the runs that need them report.
    states: dict[str, dict[str, str]] = {}
    for key, manifest in saved_runs(Path(out)).items():
        with suppress(LookupError, TypeError):
            if manifest["version"] == STATE_VERSION:
                states[key] = {name: str(manifest["run"][name]) for name in _NAMES}
    for past in pasts:
        search = past.search
        own_runs = runs[runs.algorithm == search.algorithm]
        covered = {text for text in own_runs.setting_json.unique() if search.covers(text)}
        rows = {}
        for row in own_runs.itertuples():
            if row.setting_json in covered:
                rows[str(row.run_key)] = row
        saved = {}
        for key, run in states.items():
            if run["algorithm"] == search.algorithm and search.covers(run["setting_json"]):
                saved[key] = (run["hp_json"], run["setting_json"])
        _fill(past, plan, rows, saved)
    return pasts


def _fill(
    past: PastTries, plan: Plan, rows: Mapping[str, Any], saved: Mapping[str, tuple[str, str]]
) -> None:
    """Add the configurations of a search's stored rows and saved states, both by run key.

    A saved state has its `hp_json` and `setting_json`.
    """
    search = past.search
    options = plan.options
    samples = selected_on(search.setting.as_dict(), options.select_on)
    number = selecting_number(options.chosen_by, samples)
    stopped = options.scheduler != "none"
    statuses = {key: row.status for key, row in rows.items()}
    begun = {key for key, status in statuses.items() if status == "failed"}
    begun |= {key for key in saved if statuses.get(key, "stopped") == "stopped"}
    texts = {*saved.values()}
    for row in rows.values():
        texts.add((row.hp_json, row.setting_json))
    for chosen in _distinct(past, texts):
        keys = [run_spec.key for run_spec in chosen_run_specs(search, chosen, options.seeds)]
        if are_enough(map(statuses.get, keys), stopped):
            stored = [rows[key] for key in keys]
            accuracies = [getattr(row, number) for row in stored]
            diverged = any(row.status == "finished" and row.diverged for row in stored)
            past.known.append((chosen, selection_value(accuracies, diverged)))
        elif begun.intersection(keys):
            past.begun.append(chosen)


def _distinct(past: PastTries, texts: Collection[tuple[str, str]]) -> list[dict[str, Any]]:
    """List Optuna's values of configurations that the search can choose, each once.

    `texts`: their `hp_json` and `setting_json`; that of an older version may have the same values.
    """
    distinct: dict[str, dict[str, Any]] = {}
    for hp_json, setting_json in sorted(texts):
        try:
            configuration = entry(past.search.algorithm).resolve(json.loads(hp_json))
        except ValueError:  # of a version of the algorithm with other fields
            continue
        chosen = encode(past.search, past.space, configuration, setting_of(setting_json))
        if chosen is not None:
            distinct.setdefault(canonical_json(chosen), chosen)
    return list(distinct.values())


class Proposer:
    """Optuna's sampler of a search, filled with the stored results.

    It proposes no configuration twice.
    """

    def __init__(self, plan: Plan, past: PastTries) -> None:
        import optuna

        optuna.logging.set_verbosity(optuna.logging.WARNING)
        sampler = make_sampler(plan.options.sampler, seed=len(past.known))
        self.study = optuna.create_study(direction="maximize", sampler=sampler)
        self.wanted = past.remaining(plan.options.configurations)
        self._path = plan.options.sampler or "optuna"
        self._space = past.space
        for chosen, value in past.known:
            self.study.add_trial(
                optuna.trial.create_trial(params=chosen, distributions=self._space, value=value)
            )
        for chosen in proposed_first(past, plan.options.configurations):
            self.study.enqueue_trial(chosen)
        self._patience = PATIENCE * self.wanted
        # The objective of each configuration that is stored or was proposed; NaN while there is
        # none.
        self._values = {canonical_json(chosen): value for chosen, value in past.known}

    def propose(self) -> optuna.Trial | None:
        """Propose a new configuration.

        None if no more are wanted, or the sampler only repeats itself.

        Raises:
            UsageError: the sampler raises an error.
        """
        while self.wanted and self._patience:
            with naming(SAMPLER, self._path):
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
        """Record the objective of a proposal; NaN if it has none. Raises as `propose`."""
        from optuna.trial import TrialState

        self._values[canonical_json(asked.params)] = value
        with naming(SAMPLER, self._path):
            if math.isnan(value):
                self.study.tell(asked, state=TrialState.FAIL)
            else:
                self.study.tell(asked, value)

"""`make_plan`: resolution of options into a plan of runs. Imports neither torch nor ray.

The command line overrides the preset, and the preset the defaults; the plan records the origin of
each value.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from itertools import product

from algorithms import ALGORITHMS, Entry, entry
from bench.errors import UsageError
from bench.planning.common_tries import bases_of, notes_on_tries, with_common_draws
from bench.planning.configurations import REACH, TUNED, configurations_of, too_few, tries
from bench.planning.given import HyperTexts, check_names, given_grids, sort_values, with_named_data
from bench.planning.options import TWO_STAGE, SweepOptions, Texts
from bench.planning.plan import Plan
from bench.planning.run_spec import RunSpec, distinct_runs, shortened, with_replicates
from bench.planning.search import Search, TwoStages, run_specs_of
from bench.planning.settings import choose_setting, settings_of, supply
from bench.planning.two_stage import first_stage, two_stages, with_common_values
from bench.terminal.words import text
from leaderboards.selection import CLIENTS, selected_on
from search_spaces import SPACES, Grid, Range, Setting, Space, Value, crossed, own_space

Fields = Mapping[str, tuple[Value, ...]]


def make_plan(options: SweepOptions, left_out: Mapping[str, str] | None = None) -> Plan:
    """Resolve options into a plan.

    `left_out`: algorithms of `all` that cannot run, and what each needs.

    Raises:
        UsageError: an unknown name, a value out of range, or nothing to run.
    """
    if options.table:
        from bench.planning.table_plan import make_table_plan

        return make_table_plan(options)
    left_out = left_out or {}
    notes: list[str] = []
    options = with_named_data(options, notes)
    check_names(options)
    entries = _entries_of(options, left_out)
    names_by_reason: dict[str, list[str]] = {}  # of algorithms that are left out
    for name, need in left_out.items():
        names_by_reason.setdefault(f" needs {need}", []).append(name)
    paper, base = choose_setting(entries, options, notes)
    fields, hyper = sort_values(options, entries)
    rates = _tuned_rates(options, fields)
    settings, origins = settings_of(base, fields, entries, options, notes)
    if options.budget:
        drawn = f"--budget {options.budget}, within a factor of {REACH:g} of {base.lr:g}"
        origins["lr"] = options.origin_of("lr") if rates else drawn
    tuned = dict.fromkeys(TUNED if options.budget else ())
    given_names = {*fields, *tuned}
    run_specs: list[RunSpec] = []
    searches: list[Search] = []
    stages: list[TwoStages] = []
    for setting, algorithm in product(settings, entries):
        own_fields = _own_fields(algorithm, setting, paper, given_names)
        try:
            fitted = [supply(algorithm, variant) for variant in crossed(setting, **own_fields)]
        except UsageError as error:
            if not options.every_algorithm:
                raise _refusal(error, algorithm, entries, setting) from None
            reason = _naming(error, algorithm).removeprefix(algorithm.name)
            names_by_reason.setdefault(reason, []).append(algorithm.name)
            continue
        spaces = [_space_of(algorithm, fit, paper, hyper, base) for fit in fitted]
        if options.budget:
            runs, found = _budget_runs(algorithm, spaces[0], rates, options, notes, stages)
        else:
            several = {name: values for name, values in own_fields.items() if len(values) > 1}
            runs, found = _grid_runs(algorithm, spaces, several, base, options, notes)
            tuned |= dict.fromkeys(several)
        run_specs += runs
        searches += found
    notes += _left_out(names_by_reason)
    _check_select_on(options, settings, notes)
    bases = bases_of(entries, hyper)
    stages = with_common_values(stages, bases)
    for own_stages in stages:
        run_specs += first_stage(own_stages, options.seeds)
    run_specs = with_common_draws(run_specs, options, bases)
    notes += notes_on_tries(options, [*run_specs, *searches], stages, bases_of(entries, {}))
    run_specs = _without_repeats(run_specs, notes)
    run_specs = _replicated(run_specs, options, notes)
    if not run_specs and not searches:
        reasons = dict.fromkeys(notes) or ["no algorithm fits the setting"]
        raise UsageError(f"nothing to run: {'; '.join(reasons)}")
    return Plan(
        options=options,
        paper=paper,
        run_specs=tuple(run_specs),
        searches=tuple(searches),
        settings=tuple(settings),
        origins=origins,
        notes=tuple(dict.fromkeys(notes)),
        left_out=left_out,
        tuned=tuple(tuned),
        stages=tuple(stages),
    )


def _entries_of(options: SweepOptions, left_out: Collection[str]) -> list[Entry]:
    """Return the entries of the algorithms that are asked for, of `all` without those left out."""
    names: Iterable[str] = options.algo
    if options.every_algorithm:
        names = [name for name in ALGORITHMS if name not in left_out]
    return [entry(name) for name in names]


def _check_select_on(options: SweepOptions, settings: Sequence[Setting], notes: list[str]) -> None:
    """Raise UsageError if a setting does not measure what is selected on, or too late.

    A note says if clients' own samples select without being asked to.
    """
    for setting in settings:
        on_clients = selected_on(setting.as_dict(), options.select_on) == CLIENTS
        if setting.evaluate_personal == "last" and options.scheduler != "none" and not on_clients:
            raise UsageError(
                f"--scheduler {options.scheduler} compares runs before their last round, and "
                "evaluate_personal=last measures clients' own models on the server's samples in "
                "that alone: select on clients (local_validation_fraction > 0), or leave out one"
            )
    keeping = [setting for setting in settings if setting.local_validation_fraction]
    if options.select_on is None and keeping:
        notes.append(
            "configurations are selected and ranked on the clients' own samples "
            "(local_validation_fraction > 0); --select-on global selects on the server's"
        )
    if options.select_on == CLIENTS and len(keeping) < len(settings):
        raise UsageError(
            "--select-on clients needs clients that keep samples to select on, got "
            "local_validation_fraction=0: --set local_test_fraction=0.25 "
            "local_validation_fraction=0.1"
        )


def _replicated(run_specs: list[RunSpec], options: SweepOptions, notes: list[str]) -> list[RunSpec]:
    """Add the replicates of runs that are reported; those of a search have none."""
    if options.confirm:
        return run_specs
    if options.tuning == TWO_STAGE:
        if options.replicates:
            notes.append("--replicates are of the runs that --confirm reports; tuning has none")
        return run_specs
    return distinct_runs(with_replicates(run_specs, options.replicates))


def _left_out(names_by_reason: Mapping[str, Sequence[str]]) -> Iterator[str]:
    """Yield a note for each reason why algorithms are left out; it follows their names."""
    for reason, repeated in names_by_reason.items():
        names = ", ".join(dict.fromkeys(repeated))
        each = "each of " if "," in names and not reason.startswith(":") else ""
        yield f"left out: {each}{names}{reason}"


def _naming(error: UsageError, algorithm: Entry) -> str:
    """Return the text of an error, with the algorithm that it is of."""
    said = str(error)
    return said if said.startswith(f"{algorithm.name} ") else f"{algorithm.name}: {said}"


def _refusal(
    error: UsageError,
    algorithm: Entry,
    entries: Sequence[Entry],
    setting: Setting,
) -> UsageError:
    """Return an algorithm's error; if others fit the setting, with the advice to leave it out."""
    others = []
    for other in entries:
        with suppress(UsageError):
            supply(other, setting)
            others.append(other.name)
    if not others:
        return error
    advice = f"leave {algorithm.name} out with --algo {','.join(others)}"
    return UsageError(f"{_naming(error, algorithm)}; {advice}")


def _tuned_rates(options: SweepOptions, fields: dict[str, Texts]) -> list[float]:
    """Remove the learning rates from `fields` under `--budget`, and return them.

    They do not make separate settings then.
    """
    if not options.budget:
        return []
    rates = []
    for value in fields.pop("lr", ()):
        try:
            rates.append(Setting(lr=float(value)).lr)
        except ValueError as error:
            raise UsageError(f"--lr {value}: {error}") from None
    return list(dict.fromkeys(rates))


def _budget_runs(
    algorithm: Entry,
    search: Search,
    rates: list[float],
    options: SweepOptions,
    notes: list[str],
    stages: list[TwoStages],
) -> tuple[list[RunSpec], list[Search]]:
    """Return the runs of an algorithm under `--budget`, over all seeds, or under Optuna its search.

    Two-stage tuning returns neither: it adds to `stages`.
    """
    setting = search.setting
    budget = options.budget
    if budget > 1 and not setting.validation_fraction:
        raise UsageError(
            f"--budget {budget} chooses among configurations and validation_fraction is 0: "
            "selecting on the test set is not supported; set validation_fraction above 0"
        )
    if options.tuning == TWO_STAGE:
        stages.append(two_stages(algorithm, search, rates, budget))
        return [], []
    if options.by_optuna:
        count = len(configurations_of(algorithm, search, options, notes)) * len(rates)
        if rates and count < budget:
            raise too_few(algorithm, count, budget)
        lr = Grid(*rates) if rates else Range(setting.lr / REACH, setting.lr * REACH)
        return [], [replace(search, tuned={"lr": lr})]
    run_specs: list[RunSpec] = []
    for values, tuned in tries(algorithm, search, rates, budget):
        run_specs += run_specs_of(replace(search, setting=tuned), values, options.seeds)
    return run_specs, []


def _grid_runs(
    algorithm: Entry,
    spaces: Sequence[Search],
    several: Fields,
    base: Setting,
    options: SweepOptions,
    notes: list[str],
) -> tuple[list[RunSpec], list[Search]]:
    """Return the runs of an algorithm's configurations over all seeds; under Optuna its searches.

    `spaces`: equal but for the fields of the setting in `several`, which its paper tuned; `base`
    is the paper's setting.
    """
    first = spaces[0]
    configurations = configurations_of(algorithm, first, options, notes)
    _check_selectable(algorithm, first.setting, configurations, several, options)
    for name, values in several.items():
        preset = text(getattr(base, name))
        notes.append(
            f"{algorithm.name}: {name} is selected among {Grid(*values)}, as {first.paper} tuned "
            f"it; --set {name}={preset} runs the value that it reports with"
        )
    if options.by_optuna and len(configurations) > 1:
        return [], list(spaces)
    run_specs: list[RunSpec] = []
    for space, configuration in product(spaces, configurations):
        run_specs += run_specs_of(space, configuration, options.seeds)
    return run_specs, []


def _without_repeats(run_specs: list[RunSpec], notes: list[str]) -> list[RunSpec]:
    """Drop the run specs whose rows another run spec yields as well, with a note on them."""
    runs = distinct_runs(run_specs)
    remaining = {run_spec.algorithm for run_spec in runs}
    yielding: dict[str, str] = {}
    for run_spec in runs:
        yielding |= dict.fromkeys(run_spec.rows.values(), run_spec.algorithm)
    others: dict[str, dict[str, None]] = {}
    for run_spec in run_specs:
        owner = yielding[run_spec.key]
        if owner != run_spec.algorithm:
            others.setdefault(run_spec.algorithm, {})[f"{owner}'s"] = None
    for name, owners in others.items():
        which = "some of its runs" if name in remaining else "its runs"
        notes.append(f"{name}: {which} are part of {' and '.join(owners)} and are not repeated")
    return runs


def _space_of(
    algorithm: Entry, setting: Setting, paper: str | None, hyper: HyperTexts, base: Setting
) -> Search:
    """Make an algorithm's search; `base` is the paper's setting.

    Values are as given, else of the setting's or its own paper, its class, or defaults.
    """
    space = _papers_space(algorithm, setting, paper)
    space = space or own_space(algorithm.name, setting.dataset, algorithm.paper)
    values: dict[str, Grid | Range] = {}
    for field in algorithm.fields:
        values[field.name] = field.search or Grid(field.default)
    stated = any(field.search for field in algorithm.fields)
    source = algorithm.factory if stated else "defaults"
    if space:
        for name, value in space.fixed.items():
            values[name] = Grid(value)
        values |= space.grid
        source = space.source
    given = given_grids(algorithm, hyper)
    if given:
        source += f"; given: {', '.join(given)}"
    short = paper is not None and shortened(setting, base)
    values |= given
    return Search(algorithm.name, setting, values, algorithm.where, paper, short, source)


def _papers_space(algorithm: Entry, setting: Setting, paper: str | None) -> Space | None:
    """Return what the paper of the setting tried of an algorithm there, if anything."""
    return SPACES.get((paper or "", setting.dataset, algorithm.name))


def _own_fields(
    algorithm: Entry, setting: Setting, paper: str | None, given: Collection[str]
) -> Fields:
    """Return the setting fields that the paper sets for this algorithm alone, unless `given`."""
    space = _papers_space(algorithm, setting, paper)
    if space is None:
        return {}
    own: dict[str, tuple[Value, ...]] = {}
    if not setting.client_models:  # else `model` is the first of these, or the user's
        own["model"] = (space.setting.model,)
    for name, grid in space.tuned.items():
        own[name] = grid.values
    return {name: values for name, values in own.items() if name not in given}


def _check_selectable(
    algorithm: Entry,
    setting: Setting,
    configurations: list[dict[str, Value]],
    tuned: Fields,
    options: SweepOptions,
) -> None:
    """Raise UsageError if there are no validation samples to choose among several with."""
    if options.scheduler != "none" and not setting.validation_fraction:
        raise UsageError(
            f"--scheduler {options.scheduler} compares validation accuracies: set "
            "validation_fraction above 0"
        )
    count = len(configurations) * math.prod(map(len, tuned.values()))
    if count == 1 or setting.validation_fraction:
        return
    varied = []
    for name in configurations[0]:
        if len({configuration[name] for configuration in configurations}) > 1:
            varied.append(name)
    raise UsageError(
        f"{algorithm.name} has {count} configurations to choose among and validation_fraction is "
        "0: selecting on the test set is not supported; set validation_fraction above 0, or give "
        f"one value to each of {', '.join([*varied, *tuned])}"
    )

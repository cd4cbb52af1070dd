"""Resolution of a request into a plan of runs. Imports neither torch nor ray.

The command line overrides the preset, and the preset the defaults; the plan records the origin of
each value.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from itertools import product

from algorithms import ALGORITHMS, Entry, entry
from bench.errors import UsageError
from bench.planning.configurations import REACH, TUNED, configurations_of, too_few, tries
from bench.planning.request import (
    TWO_STAGE,
    Request,
    check_names,
    choose_setting,
    given_grids,
    settings_of,
    sort_values,
    supply,
    with_named_data,
)
from bench.planning.run_spec import (
    Plan,
    RunSpec,
    Search,
    TwoStages,
    distinct_runs,
    run_specs_of,
    shortened,
    with_replicates,
)
from bench.planning.two_stage import first_stage, two_stages
from bench.terminal.words import text
from leaderboards.selection import CLIENTS, selected_on
from search_spaces import SPACES, Grid, Range, Setting, Value, crossed, own_space

Fields = Mapping[str, tuple[Value, ...]]


def make_plan(request: Request) -> Plan:
    """Resolve a request into a plan; raises UsageError for an unknown name, a value out of range, or nothing to run."""
    if request.table:
        from bench.planning.table_plan import make_table_plan

        return make_table_plan(request)
    read_notes: list[str] = []
    request = with_named_data(request, read_notes)
    check_names(request)
    skip_unfit = request.algorithms == ("all",)
    entries = [entry(name) for name in _names(request)]
    left_out = [f"left out: {name} needs {need}" for name, need in request.left_out.items()]
    notes = [*read_notes, *left_out]
    paper, base = choose_setting(entries, request, notes)
    fields, hyper = sort_values(request, entries)
    rates = _tuned_rates(request, fields)
    settings, origins = settings_of(base, fields, entries, request, notes)
    tuned = dict.fromkeys(TUNED if request.budget else ())
    origins = {**origins, **_origin_of_rates(request, rates, base)}
    given_names = {*fields, *tuned}
    run_specs: list[RunSpec] = []
    searches: list[Search] = []
    stages: list[TwoStages] = []
    for setting, algorithm in product(settings, entries):
        own_fields = _own_fields(algorithm, setting, paper, given_names)
        try:
            fitted = [supply(algorithm, variant) for variant in crossed(setting, **own_fields)]
        except UsageError as error:
            if not skip_unfit:
                raise _refusal(error, algorithm, entries, setting) from None
            notes.append(f"left out: {_naming(error, algorithm)}")
            continue
        spaces = [
            _space_of(algorithm, fit, paper, hyper, paper is not None and shortened(fit, base))
            for fit in fitted
        ]
        if request.budget:
            runs, budget_searches = _budget_runs(
                algorithm, spaces[0], rates, request, notes, stages
            )
            run_specs += runs
            searches += budget_searches
            continue
        configurations = configurations_of(algorithm, spaces[0], request, notes)
        several = {name: values for name, values in own_fields.items() if len(values) > 1}
        _check_selectable(algorithm, fitted[0], configurations, several, request)
        for name, values in several.items():
            tuned[name] = None
            advice = f"--set {name}={text(getattr(base, name))} runs the value that it reports with"
            notes.append(
                f"{algorithm.name}: {name} is selected among {Grid(*values)}, as {paper} tuned it; {advice}"
            )
        if request.search == "optuna" and len(configurations) > 1:
            searches += spaces
        else:
            cases = product(spaces, configurations)
            run_specs += [
                run_spec
                for space, values in cases
                for run_spec in run_specs_of(space, values, request.seeds)
            ]
    _check_select_on(request, settings)
    if request.select_on is None and any(setting.local_validation_fraction for setting in settings):
        notes.append(
            "configurations are selected and ranked on the clients' own samples "
            "(local_validation_fraction > 0); --select-on global selects on the server's"
        )
    run_specs = _without_repeats(_with_common_draws(run_specs, request, hyper), notes)
    run_specs = _replicated(run_specs, request, notes)
    if not run_specs and not searches:
        raise UsageError(
            "nothing to run: "
            + "; ".join(dict.fromkeys(notes) or ["no algorithm fits the setting"])
        )
    distinct_notes = tuple(dict.fromkeys(notes))
    return Plan(
        request,
        paper,
        tuple(run_specs),
        tuple(searches),
        tuple(settings),
        origins,
        distinct_notes,
        tuned=tuple(tuned),
        stages=tuple(stages),
    )


def _check_select_on(request: Request, settings: Sequence[Setting]) -> None:
    """Raise UsageError if a setting does not measure what is selected on, or too late."""
    for setting in settings:
        on_clients = selected_on(setting.as_dict(), request.select_on) == CLIENTS
        if setting.evaluate_personal == "last" and request.scheduler != "none" and not on_clients:
            raise UsageError(
                f"--scheduler {request.scheduler} compares runs before their last round, and "
                "evaluate_personal=last measures clients' own models on the server's samples in "
                "that alone: select on clients (local_validation_fraction > 0), or leave out one"
            )
    if request.select_on == CLIENTS and not all(
        setting.local_validation_fraction for setting in settings
    ):
        raise UsageError(
            "--select-on clients needs clients that keep samples to select on, got "
            "local_validation_fraction=0: --set local_test_fraction=0.25 "
            "local_validation_fraction=0.1"
        )


def _replicated(run_specs: list[RunSpec], request: Request, notes: list[str]) -> list[RunSpec]:
    """Add the replicates of runs that are reported; those of a search have none."""
    if request.confirm:
        return run_specs
    if request.tuning == TWO_STAGE:
        if request.replicates:
            notes.append("--replicates are of the runs that --confirm reports; tuning has none")
        return run_specs
    return distinct_runs(with_replicates(run_specs, request.replicates))


def _names(request: Request) -> list[str]:
    """List the algorithms of a request; those of `all` without `left_out`."""
    if request.algorithms != ("all",):
        return list(request.algorithms)
    return [name for name in ALGORITHMS if name not in request.left_out]


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
    others = [other.name for other in entries if _fits(other, setting)]
    if not others:
        return error
    advice = f"leave {algorithm.name} out with --algo {','.join(others)}"
    return UsageError(f"{_naming(error, algorithm)}; {advice}")


def _fits(algorithm: Entry, setting: Setting) -> bool:
    """Return whether a setting gives an algorithm what it needs."""
    try:
        supply(algorithm, setting)
    except UsageError:
        return False
    return True


def _with_common_draws(
    run_specs: list[RunSpec], request: Request, hyper: Collection[tuple[str | None, str]]
) -> list[RunSpec]:
    """Give an algorithm whose runs yield rows of another one here the draws of that one, so that it gets no more tries.

    Fields that the other lacks keep their draws, and so do all fields of an algorithm with given
    values of its own in `hyper`.
    """
    if request.tuning == TWO_STAGE or (not request.budget and request.search != "random"):
        return run_specs
    run_specs_of_algorithm: dict[str, list[RunSpec]] = {}
    for run_spec in run_specs:
        run_specs_of_algorithm.setdefault(run_spec.algorithm, []).append(run_spec)
    common: list[RunSpec] = []
    for name, own in run_specs_of_algorithm.items():
        base = next(
            (
                row
                for row in entry(name).rows.values()
                if row != name and row in run_specs_of_algorithm
            ),
            name,
        )
        drawn = run_specs_of_algorithm[base]
        if len(drawn) == len(own) and not any(
            (name, field) in hyper for field in entry(base).defaults()
        ):
            values = [
                {**run_spec.hyperparameters, **other.hyperparameters}
                for run_spec, other in zip(own, drawn, strict=True)
            ]
            own = [
                replace(run_spec, hyperparameters=merged)
                for run_spec, merged in zip(own, values, strict=True)
            ]
        common += own
    return common


def _origin_of_rates(request: Request, rates: list[float], base: Setting) -> dict[str, str]:
    """Return where the learning rates of `--budget` are from, under their field's name."""
    if not request.budget:
        return {}
    drawn = f"--budget {request.budget}, within a factor of {REACH:g} of {base.lr:g}"
    return {"lr": request.origins.get("lr", "command line") if rates else drawn}


def _tuned_rates(request: Request, fields: dict[str, tuple[str, ...]]) -> list[float]:
    """Remove the learning rates from `fields` under `--budget`, and return them: they do not make separate settings."""
    if not request.budget:
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
    request: Request,
    notes: list[str],
    stages: list[TwoStages],
) -> tuple[list[RunSpec], list[Search]]:
    """Return the runs of an algorithm under `--budget`, over all seeds, or under Optuna its search.

    Of two-stage tuning these are the runs of the first stage; both stages are added to `stages`.
    """
    setting, budget = search.setting, request.budget
    if budget > 1 and not setting.validation_fraction:
        raise UsageError(
            f"--budget {budget} chooses among configurations and validation_fraction is 0: selecting on the test set "
            "is not supported; set validation_fraction above 0"
        )
    if request.tuning == TWO_STAGE:
        stages.append(two_stages(algorithm, search, rates, budget))
        return first_stage(stages[-1], request.seeds), []
    if request.search != "optuna":
        cases = tries(algorithm, search, rates, budget)
        return [
            run_spec
            for values, tuned in cases
            for run_spec in run_specs_of(replace(search, setting=tuned), values, request.seeds)
        ], []
    count = len(configurations_of(algorithm, search, request, notes)) * len(rates)
    if rates and count < budget:
        raise too_few(algorithm, count, budget)
    lr = Grid(*rates) if rates else Range(setting.lr / REACH, setting.lr * REACH)
    return [], [replace(search, tuned={"lr": lr})]


def _without_repeats(run_specs: list[RunSpec], notes: list[str]) -> list[RunSpec]:
    """Drop the run specs whose rows another run spec yields as well, with a note on them."""
    runs = distinct_runs(run_specs)
    yielding = {key: run_spec.algorithm for run_spec in runs for key in run_spec.rows.values()}
    others: dict[str, dict[str, None]] = {}
    for run_spec in run_specs:
        if yielding[run_spec.key] != run_spec.algorithm:
            others.setdefault(run_spec.algorithm, {})[f"{yielding[run_spec.key]}'s"] = None
    for name, owners in others.items():
        which = (
            "some of its runs"
            if any(run_spec.algorithm == name for run_spec in runs)
            else "its runs"
        )
        notes.append(f"{name}: {which} are part of {' and '.join(owners)} and are not repeated")
    return runs


def _space_of(
    algorithm: Entry,
    setting: Setting,
    paper: str | None,
    hyper: Mapping[tuple[str | None, str], tuple[str, ...]],
    shortened: bool,
) -> Search:
    """Make an algorithm's search: values as given, else of the setting's or its own paper, its class, or defaults."""
    space = SPACES.get((paper or "", setting.dataset, algorithm.name)) or own_space(
        algorithm.name, setting.dataset, algorithm.paper
    )
    values: dict[str, Grid | Range] = {
        field.name: field.search or Grid(field.default) for field in algorithm.fields
    }
    relations = algorithm.where
    if space:
        values |= {**{name: Grid(value) for name, value in space.fixed.items()}, **space.grid}
        relations = tuple(dict.fromkeys((*algorithm.where, *space.where)))
    given = given_grids(algorithm, hyper)
    stated = algorithm.factory if any(field.search for field in algorithm.fields) else "defaults"
    sources = [
        space.source if space else stated,
        *([f"given: {', '.join(given)}"] if given else []),
    ]
    return Search(
        algorithm.name,
        setting,
        {**values, **given},
        relations,
        paper,
        shortened,
        "; ".join(sources),
    )


def _own_fields(
    algorithm: Entry, setting: Setting, paper: str | None, given: Collection[str]
) -> Fields:
    """Return the setting fields that the paper sets for this algorithm alone, with their values, unless `given`."""
    space = SPACES.get((paper or "", setting.dataset, algorithm.name))
    if space is None:
        return {}
    own = {
        "model": (space.setting.model,),
        **{name: grid.values for name, grid in space.tuned.items()},
    }
    if setting.client_models:  # `model` is then the first of these, or the user's
        del own["model"]
    return {name: values for name, values in own.items() if name not in given}


def _check_selectable(
    algorithm: Entry,
    setting: Setting,
    configurations: list[dict[str, Value]],
    tuned: Fields,
    request: Request,
) -> None:
    if request.scheduler != "none" and not setting.validation_fraction:
        raise UsageError(
            f"--scheduler {request.scheduler} compares validation accuracies: set "
            "validation_fraction above 0"
        )
    count = len(configurations) * math.prod(map(len, tuned.values()))
    if count > 1 and not setting.validation_fraction:
        varied = [name for name in configurations[0] if len({c[name] for c in configurations}) > 1]
        raise UsageError(
            f"{algorithm.name} has {count} configurations to choose among and validation_fraction is 0: "
            "selecting on the test set is not supported; set validation_fraction above 0, or give one value to each of "
            + ", ".join([*varied, *tuned])
        )

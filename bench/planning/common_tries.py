"""Tries that two algorithms have in common: a run of FedAvg-T1 yields FedAvg's row as well.

FedAvg is the *base* there. Both try the same values where tries are counted, or the base would be
chosen from more of them than all others. Imports neither torch nor ray.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import groupby
from operator import attrgetter

from algorithms import Entry, entry
from bench.planning.given import HyperTexts
from bench.planning.options import TWO_STAGE, SweepOptions
from bench.planning.run_spec import RunSpec
from bench.planning.search import Search, TwoStages
from search_spaces import Value


def bases_of(entries: Sequence[Entry], hyper: HyperTexts) -> dict[str, str]:
    """Return algorithm -> the other one of `entries` whose rows its runs yield as well.

    They try the same values, as FedAvg-T1 and FedAvg do; the other one would get more tries
    otherwise. An algorithm with values of its own in `hyper` is left out.
    """
    names = {algorithm.name for algorithm in entries}
    bases = {}
    for algorithm in entries:
        others = [row for row in algorithm.rows.values() if row != algorithm.name and row in names]
        shared = entry(others[0]).defaults() if others else {}
        if others and not any((algorithm.name, field) in hyper for field in shared):
            bases[algorithm.name] = others[0]
    return bases


def counts_tries(options: SweepOptions) -> bool:
    """Tell whether a sweep asks for a number of configurations of each algorithm."""
    return bool(options.budget) or options.search != "grid"


def with_common_draws(
    run_specs: list[RunSpec], options: SweepOptions, bases: Mapping[str, str]
) -> list[RunSpec]:
    """Let FedAvg-T1 reuse FedAvg's sampled configurations: an algorithm those of its base.

    Fields that the base lacks keep their draws.
    """
    if options.tuning == TWO_STAGE or options.by_optuna or not counts_tries(options):
        return run_specs
    of_algorithm: dict[str, list[RunSpec]] = {}
    for run_spec in run_specs:
        of_algorithm.setdefault(run_spec.algorithm, []).append(run_spec)
    common: list[RunSpec] = []
    for name, own in of_algorithm.items():
        drawn = of_algorithm.get(bases.get(name, name), [])
        if len(drawn) < len(own):  # it has values that the base lacks
            common += own
        elif len(drawn) > len(own):
            common += _with_values_of(own, drawn)
        else:
            for run_spec, other in zip(own, drawn, strict=True):
                values = {**run_spec.hyperparameters, **other.hyperparameters}
                common.append(replace(run_spec, hyperparameters=values))
    return common


def _with_values_of(own: Sequence[RunSpec], drawn: Sequence[RunSpec]) -> list[RunSpec]:
    """Run each drawn configuration wherever `own` run, with their further values in turn.

    Without `--budget` all runs of a configuration have the fields of its setting.
    """
    further = _distinct([run_spec.hyperparameters for run_spec in own])
    configurations = _distinct([run_spec.hyperparameters for run_spec in drawn])
    places = [run_spec for run_spec in own if run_spec.hyperparameters == further[0]]
    run_specs = []
    for _, members in groupby(places, key=attrgetter("setting")):
        seeds = list(members)
        for number, configuration in enumerate(configurations):
            values = {**further[number % len(further)], **configuration}
            run_specs += [replace(run_spec, hyperparameters=values) for run_spec in seeds]
    return run_specs


def _has_part(configurations: Sequence[Mapping[str, Value]], values: Mapping[str, Value]) -> bool:
    """Tell whether one of the configurations is a part of these values."""
    return any(configuration.items() <= values.items() for configuration in configurations)


def _distinct(mappings: Iterable[Mapping[str, Value]]) -> list[Mapping[str, Value]]:
    """Return mappings in their order, each once."""
    distinct: list[Mapping[str, Value]] = []
    for mapping in mappings:
        if mapping not in distinct:
            distinct.append(mapping)
    return distinct


def notes_on_tries(
    options: SweepOptions,
    parts: Sequence[RunSpec | Search],
    stages: Sequence[TwoStages],
    bases: Mapping[str, str],
) -> Iterator[str]:
    """Yield notes on algorithms that get tries from runs of another one beside their own.

    There are none for whole grids, in which each algorithm has its own number of tries.
    """
    if not counts_tries(options):
        return
    tries: dict[str, set[str]] = {}  # run keys of seed 0, by row
    own_tries: dict[str, set[str]] = {}  # by algorithm
    searched = set()
    for part in parts:
        if isinstance(part, Search):
            searched.add(part.algorithm)
        elif part.seed == 0:
            own_tries.setdefault(part.algorithm, set()).add(part.key)
            for suffix, row in part.row_names.items():
                tries.setdefault(row, set()).add(part.rows[suffix])
    own = {each.search.algorithm: each.own for each in stages}
    for name, base in bases.items():
        if own.keys() >= {name, base}:
            more = not all(_has_part(own[base], values) for values in own[name])
        elif own_tries.keys() >= {name, base}:
            planned = max(len(tries[name]), len(own_tries[base]))
            more = len(tries[base]) > planned
        else:
            more = searched >= {name, base}
        if more:
            yield (
                f"{base} gets more tries than others: runs of {name} are tries of {base}, too, and "
                "their values are chosen apart"
            )

"""From a request to the runs it asks for, each fully resolved. Imports neither torch nor ray.

Command line goes over preset, preset over default; the plan remembers where each value came from.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from difflib import get_close_matches
from functools import cached_property
from itertools import product
from typing import Any

from algorithms import ALGORITHMS, Entry, entry
from bench.configurations import configurations_of
from bench.data import DATASETS
from bench.errors import UsageError
from bench.names import unknown
from bench.needs import shared_supplies, supply
from leaderboards import run_key
from search_spaces import (
    PAPERS,
    SETTINGS,
    Grid,
    Range,
    Setting,
    Value,
    cast,
    combinations,
    find,
    own_space,
    setting_fields,
)

FALLBACK_PAPER = "fedgkd"
EMBEDDED_DATASET = "digits"


@dataclass(frozen=True)
class Request:
    """What a user asked for.

    Args:
        algorithms: registry names, or `all`.
        dataset: registry name.
        paper: whose setting and grids to use; None chooses.
        values: setting fields and hyper-parameters given, each with its values as text.
        origins: where each of `values` was given.
        seeds: how many; they count from 0.
        search: `grid`, `random` or `optuna`.
        num_samples: configurations per algorithm, for random and Optuna.
        scheduler: `none` or `asha`.
        force: run again what is stored.
    """

    algorithms: tuple[str, ...]
    dataset: str = EMBEDDED_DATASET
    paper: str | None = None
    values: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    origins: Mapping[str, str] = field(default_factory=dict)
    seeds: int = 1
    search: str = "grid"
    num_samples: int = 10
    scheduler: str = "none"
    force: bool = False


@dataclass(frozen=True)
class Unit:
    """One run: an algorithm with its hyper-parameters in a setting, with a seed."""

    algorithm: str
    hyperparameters: Mapping[str, Value]
    setting: Setting
    seed: int
    paper: str | None = None
    shortened: bool = False

    @cached_property
    def key(self) -> str:
        """The run key: SHA-256 of everything that decides the numbers."""
        return run_key(*self.identity(entry(self.algorithm)))

    @cached_property
    def rows(self) -> dict[str, str]:
        """Suffix -> key of every result row that the run yields: the one it would have as a run of its own."""
        return {suffix: run_key(*self.identity(row_entry(self.algorithm, suffix))) for suffix in self.row_names}

    @property
    def row_names(self) -> dict[str, str]:
        """Suffix -> registry name of every result row that the run yields."""
        return dict(entry(self.algorithm).rows)

    @property
    def own_suffix(self) -> str:
        """The suffix of the row that the run was asked for."""
        return next((suffix for suffix, name in self.row_names.items() if name == self.algorithm), "")

    def identity(self, found: Entry) -> tuple[str, int, dict[str, Value], dict[str, Value], int]:
        """What `run_key` and `identity_columns` take, of this run under the name of one of its rows."""
        known = {name: self.hyperparameters[name] for name in found.defaults()}
        return found.name, found.version, known, self.setting.as_dict(), self.seed

    @property
    def label(self) -> str:
        """Short and readable: what this run varies is in its hyper-parameters."""
        values = ", ".join(f"{name}={value}" for name, value in self.hyperparameters.items())
        return f"{self.algorithm}({values}) seed {self.seed}"


def row_entry(algorithm: str, suffix: str) -> Entry:
    """The entry under whose name a row stands: an algorithm from outside gives all its rows under names of its own."""
    found = entry(algorithm)
    name = found.rows[suffix]
    return ALGORITHMS.get(name) or replace(found, name=name)


@dataclass(frozen=True)
class Search:
    """One algorithm's space in one setting: the values of every hyper-parameter and the relations they keep."""

    algorithm: str
    setting: Setting
    values: Mapping[str, Grid | Range]
    where: tuple[str, ...]
    paper: str | None
    shortened: bool


@dataclass(frozen=True)
class Plan:
    """Everything a sweep will run.

    Args:
        request: what was asked.
        paper: whose setting it is, None if nobody's.
        units: the runs; for Optuna none in advance.
        searches: for Optuna, the spaces.
        settings: the distinct problems, before an algorithm's own needs.
        origins: setting field -> where its value came from, where not the preset.
        notes: what was left out or added, in sentences.
    """

    request: Request
    paper: str | None
    units: tuple[Unit, ...]
    searches: tuple[Search, ...]
    settings: tuple[Setting, ...]
    origins: Mapping[str, str]
    notes: tuple[str, ...]


def make_plan(request: Request) -> Plan:
    """Resolve a request.

    Raises:
        UsageError: an unknown name, a value out of range, or nothing left to run.
    """
    _check_names(request)
    skip_unfit = request.algorithms == ("all",)
    entries = [entry(name) for name in (ALGORITHMS if skip_unfit else request.algorithms)]
    paper, base = choose_setting(entries, request)
    fields, hyper = _sort_values(request, entries)
    notes = Notes()
    settings, origins = _settings(base, fields, entries, request, notes)
    units: list[Unit] = []
    searches: list[Search] = []
    for setting, found in product(settings, entries):
        try:
            fitted = supply(found, setting)
        except UsageError as error:
            if not skip_unfit:
                raise
            notes.add(f"left out: {error}")
            continue
        search = _space_of(found, fitted, paper, hyper, _shortened(fitted, base))
        configurations = configurations_of(found, search, request, notes)
        _check_selectable(found, fitted, configurations, request)
        if request.search == "optuna" and len(configurations) > 1:
            searches.append(search)
        else:
            units += [unit for values in configurations for unit in units_of(search, values, request.seeds)]
    units = _without_repeats(units, notes)
    if not units and not searches:
        raise UsageError("nothing to run: " + "; ".join(notes.lines or ["no algorithm fits the setting"]))
    return Plan(request, paper, tuple(units), tuple(searches), tuple(settings), origins, tuple(notes.lines))


def _without_repeats(units: list[Unit], notes: Notes) -> list[Unit]:
    """The units less those whose row another unit yields beside its own."""
    beside = {key: unit.algorithm for unit in units for key in unit.rows.values() if key != unit.key}
    repeated = {unit.algorithm: beside[unit.key] for unit in units if unit.key in beside}
    for algorithm, other in repeated.items():
        notes.add(f"{algorithm}: runs that {other} yields as well are made once")
    return [unit for unit in units if unit.key not in beside]


def units_of(search: Search, configuration: Mapping[str, Value], seeds: int) -> list[Unit]:
    """All seeds of a configuration."""
    return [
        Unit(search.algorithm, configuration, search.setting, seed, search.paper, search.shortened)
        for seed in range(seeds)
    ]


class Notes:
    """Sentences for the user, each said once."""

    def __init__(self) -> None:
        self.lines: list[str] = []

    def add(self, line: str) -> None:
        """Say it, unless it was said."""
        if line not in self.lines:
            self.lines.append(line)


def choose_setting(entries: list[Entry], request: Request) -> tuple[str | None, Setting]:
    """The one setting of a command and whose it is.

    `--paper`'s; else that of the first algorithm whose own paper has the data set; else FedGKD's; the embedded digits
    have one of their own.

    Raises:
        UsageError: the paper has no setting for the data set, or nobody has.
    """
    if request.paper:
        having = [dataset for paper, dataset in SETTINGS if paper == request.paper]
        if request.dataset not in having:
            raise UsageError(
                f"paper {request.paper!r} has no setting for data set {request.dataset!r}; it has: {', '.join(having)}"
            )
        return request.paper, SETTINGS[request.paper, request.dataset]
    own = [found.paper for found in entries if (found.paper, request.dataset) in SETTINGS]
    anybody = [paper for paper, dataset in SETTINGS if dataset == request.dataset]
    for paper in [*own, FALLBACK_PAPER, *anybody]:
        if (paper, request.dataset) in SETTINGS:
            return paper, SETTINGS[paper, request.dataset]
    raise UsageError(
        f"no paper here has a setting for data set {request.dataset!r}; add --paper, or choose another set"
    )


def _check_names(request: Request) -> None:
    _check_algorithms(request.algorithms)
    if "dataset" in request.values:
        raise UsageError("the data set decides whose setting is used: give it as --dataset, not with --set")
    if request.dataset not in DATASETS:
        raise unknown("data set", request.dataset, DATASETS)
    if request.paper and request.paper not in PAPERS:
        raise unknown("paper", request.paper, PAPERS)
    for name, value in (("--seeds", request.seeds), ("--num-samples", request.num_samples)):
        if value < 1:
            raise UsageError(f"{name} must be >= 1, got {value}")


def find_algorithm(name: str) -> Entry:
    """The registry's entry, or that of an algorithm from outside.

    Raises:
        UsageError: there is none, or it cannot be imported.
    """
    try:
        return entry(name)
    except KeyError:
        from algorithms import outside

        raise unknown("algorithm", name, [*ALGORITHMS, *outside.names()]) from None
    except ValueError as error:
        raise UsageError(str(error)) from error


def _check_algorithms(names: tuple[str, ...]) -> None:
    if "all" in names and len(names) > 1:
        raise UsageError("--algo all stands alone: name the algorithms, or all of them")
    if len(set(names)) != len(names):
        raise UsageError(f"--algo names an algorithm twice: {', '.join(names)}")
    for name in names:
        if name not in ALGORITHMS and name != "all":
            find_algorithm(name)


def _sort_values(
    request: Request, entries: list[Entry]
) -> tuple[dict[str, tuple[str, ...]], dict[tuple[str | None, str], tuple[str, ...]]]:
    """The given values as setting fields, and as hyper-parameters by (algorithm or None for any, name).

    Raises:
        UsageError: a name that neither the setting nor a chosen algorithm has.
    """
    fields: dict[str, tuple[str, ...]] = {}
    hyper: dict[tuple[str | None, str], tuple[str, ...]] = {}
    having = {found.name: set(found.defaults()) for found in entries}
    for name, values in request.values.items():
        algorithm, dot, short = name.rpartition(".")
        if name in setting_fields():
            fields[name] = values
        elif dot and short in having.get(algorithm, set()):
            hyper[algorithm, short] = values
        elif not dot and any(name in names for names in having.values()):
            hyper[None, name] = values
        else:
            known = [*setting_fields(), *sorted(set().union(*having.values()))]
            near = get_close_matches(short if dot else name, known, n=1)
            hint = f" (did you mean {near[0]}?)" if near else ""
            raise UsageError(
                f"no setting, and no hyper-parameter of {', '.join(having)}, is called {name!r}{hint}; settings are "
                "listed by --dry-run, hyper-parameters by --list"
            )
    return fields, hyper


def _settings(
    base: Setting, fields: Mapping[str, tuple[str, ...]], entries: list[Entry], request: Request, notes: Notes
) -> tuple[list[Setting], dict[str, str]]:
    """Every combination of the given setting values, with what the command's algorithms need."""
    kinds = setting_fields()
    given = {name: _distinct(name, values, str(kinds[name].type)) for name, values in fields.items()}
    origins = {name: request.origins.get(name, "command line") for name in fields if name in request.values}
    supplies = shared_supplies(entries, base, frozenset(given))
    origins |= {name: why for name, (_, why) in supplies.items()}
    extra: dict[str, Any] = {name: value for name, (value, _) in supplies.items()}
    try:
        made = [replace(base, **{**extra, **cell}) for cell in combinations(given)]
    except ValueError as error:
        raise UsageError(str(error)) from None
    checked = [_checked(setting) for setting in made]
    for name in given:
        if all(getattr(a, name) != getattr(b, name) for a, b in zip(made, checked, strict=True)):
            notes.add(f"{name} has no effect with the other settings: it is left at {getattr(checked[0], name)}")
    return list(dict.fromkeys(checked)), origins


def _checked(setting: Setting) -> Setting:
    """The setting with its names known, and fields that have no effect in it at one value: equal runs get equal keys.

    Raises:
        UsageError: the data set has no such normalisation or no mirror image, or there is no such partition.
    """
    from bench.data.partition import partition  # numpy, which `--help` does without

    info = DATASETS[setting.dataset]
    info.normalization(setting.normalization)
    if setting.augmentation != "none" and not info.flip:
        raise UsageError(
            f"augmentation={setting.augmentation} mirrors images, which {info.title} do not bear: use none"
        )
    default = Setting()
    inert: dict[str, Any] = {"alpha": None} if not partition(setting.partition).needs_alpha else {}
    if setting.optimizer == "adam":
        inert |= {"momentum": 0.0, "nesterov": False}
    else:
        inert |= {name: getattr(default, name) for name in ("adam_beta1", "adam_beta2", "adam_eps")}
    if not setting.weight_decay:
        inert["decay_exempt"] = default.decay_exempt
    if not setting.validation_fraction:
        inert["validation_rule"] = default.validation_rule
    return replace(setting, **inert)


def _distinct(name: str, values: Iterable[str], kind: str) -> Grid:
    """The values cast to their type, each once."""
    try:
        return Grid(*dict.fromkeys(cast(name, value, kind) for value in values))
    except ValueError as error:
        raise UsageError(str(error)) from None


def _space_of(
    found: Entry,
    setting: Setting,
    paper: str | None,
    given: Mapping[tuple[str | None, str], tuple[str, ...]],
    shortened: bool,
) -> Search:
    """What every hyper-parameter may be: as given, else the command's paper's, its own paper's, or the default."""
    space = (find(found.name, setting.dataset, paper) if paper else None) or own_space(
        found.name, setting.dataset, found.paper
    )
    values: dict[str, Grid | Range] = {field.name: Grid(field.default) for field in found.fields}
    relations = found.where
    if space:
        values |= {**{name: Grid(value) for name, value in space.fixed.items()}, **space.grid}
        relations = tuple(dict.fromkeys((*found.where, *space.where)))
    for field_ in found.fields:
        texts = given.get((found.name, field_.name)) or given.get((None, field_.name))
        if texts:
            values[field_.name] = _distinct(f"{found.name}.{field_.name}", texts, field_.kind)
    return Search(found.name, setting, values, relations, paper, shortened)


def _shortened(setting: Setting, base: Setting) -> bool:
    """Whether a run has fewer rounds, fewer epochs or less data than the paper's."""
    return any(getattr(setting, name) < getattr(base, name) for name in ("rounds", "local_epochs", "fraction"))


def _check_selectable(found: Entry, setting: Setting, configurations: list[dict[str, Value]], request: Request) -> None:
    if request.scheduler == "asha" and not setting.validation_fraction:
        raise UsageError("--scheduler asha compares validation accuracies: set validation_fraction above 0")
    if len(configurations) > 1 and not setting.validation_fraction:
        raise UsageError(
            f"{found.name} has {len(configurations)} configurations to choose among and validation_fraction is 0: "
            "a choice on the test set is not offered; set validation_fraction above 0, or give one value to each of "
            + ", ".join(name for name in configurations[0] if len({c[name] for c in configurations}) > 1)
        )

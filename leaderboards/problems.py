"""The problem that a row belongs to, and the rows of a leaderboard by problem.

A *problem* is a setting in which the variants that some algorithms need of a model (`cnn+head`,
`cnn+bn`) count as the model itself. It may leave out the fields whose values are laid out side by
side, and the tuned fields.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import chain
from typing import Any, TypeVar

from leaderboards.numbers import is_number
from leaderboards.rows.schema import canonical_json, digest

Record = Mapping[str, Any]  # one row of a leaderboard; empty values are None
Place = tuple[Any, ...]  # values of the fields that are laid out side by side
K = TypeVar("K", bound=Hashable)

# Identifies a row of a leaderboard: all but the seed.
CONFIGURATION = ["algorithm", "hp_json", "setting_json"]
# Fields of a setting that, with the seed, decide which client has which samples.
SPLIT_FIELDS = (
    "dataset",
    "partition",
    "alpha",
    "num_clients",
    "fraction",
    "validation_fraction",
    "validation_rule",
    "auxiliary_per_class",
    "local_test_fraction",
    "local_validation_fraction",
    "classes_per_client",
)
BY = ("alpha", "participation")  # the fields that are laid out side by side by default
FINETUNED = "_ft"  # ends the name of a row of the models after each client's own further steps
# Bounds to compare algorithms with; they are not ranked.
REFERENCES = frozenset(("centralized", "local", f"centralized{FINETUNED}", f"local{FINETUNED}"))
# Algorithms whose rows are of each client's own model, for rows that do not say so.
PERSONAL = frozenset(("fedbn", "feddkd_bn", "local"))
# Forms that methods need of a model: pooled features, a projection head, BatchNorm.
_OF_METHODS = re.compile(r"(\+fd\d+)?(\+head)?(\+bn)?$")
_FIRST = ("dataset", "model", "partition", "num_clients")


def base_model(model: str) -> str:
    """Strip the forms that methods need of a model.

    `cnn+head` and `cnn+fd64` become `cnn`, and `bert+lora8+head` becomes `bert+lora8`.
    """
    return _OF_METHODS.sub("", model)


def label_of(record: Record) -> str:
    """Label a record's algorithm as tables do, with the variant of its model: `moon (+head)`."""
    variant = record["model"].removeprefix(base_model(record["model"]))
    return f"{record['algorithm']} ({variant})" if variant else str(record["algorithm"])


def model_words(setting: Mapping[str, Any]) -> str:
    """Name the models of a setting: `mlp`, or `mlp, clients' models mlp/cnn_digits`."""
    own = setting.get("client_models")
    return f"{setting['model']}, clients' models {own}" if own else str(setting["model"])


@lru_cache(maxsize=4096)
def setting_of(setting_json: str) -> Mapping[str, Any]:
    """Parse a row's setting, without the partition's seed and the variant of its model."""
    setting = with_base_models(json.loads(setting_json))
    setting.pop("partition_seed", None)
    return setting


def with_base_models(fields: Mapping[str, Any]) -> dict[str, Any]:
    """Return fields of a setting, their models without the forms that methods need."""
    stripped = dict(fields)
    for name in {"model", "client_models"} & fields.keys():
        models = fields[name].split("/")
        stripped[name] = "/".join(base_model(model) for model in models)
    return stripped


def problem_of(setting_json: str, without: Collection[str] = ()) -> dict[str, Any]:
    """Return the problem of a row: its setting without some fields."""
    return {name: value for name, value in setting_of(setting_json).items() if name not in without}


def cell_of(setting_json: str, tuned: Collection[str] = ()) -> str:
    """Compute the key of a setting's cell: 16 hexadecimal digits.

    It ignores the fields in `tuned`.
    """
    return digest(problem_of(setting_json, tuned))[:16]


@dataclass(frozen=True)
class Cell:
    """Rows of a leaderboard that are compared with each other, all at one place."""

    place: Place
    records: tuple[Record, ...]

    @property
    def selected(self) -> tuple[Record, ...]:
        """The selected configuration of every algorithm that has one, by label."""
        selected = [record for record in self.records if record["selected"]]
        return tuple(sorted(selected, key=label_of))


@dataclass(frozen=True)
class Problem:
    """Cells that share a problem: a `setting` without the fields `by`.

    These fields are laid out side by side. Cells are in ascending order of their places.
    `differing` has the names, sorted, of the fields in which this problem and its neighbours
    differ.
    """

    setting: Mapping[str, Any]
    by: tuple[str, ...]
    cells: tuple[Cell, ...]
    differing: tuple[str, ...] = ()

    @property
    def places(self) -> tuple[Place, ...]:
        """The places of all cells."""
        return tuple(cell.place for cell in self.cells)

    @property
    def records(self) -> tuple[Record, ...]:
        """The rows of all cells."""
        return tuple(chain.from_iterable(cell.records for cell in self.cells))


def problems(
    records: Iterable[Record],
    by: Sequence[str],
    *,
    tuned: Collection[str] = (),
    only: Collection[str] | None = None,
    beside: Sequence[str] = (),
    first: Sequence[str] = _FIRST,
) -> list[Problem]:
    """Group rows of a leaderboard by problem.

    Args:
        records: the rows.
        by: the fields whose values are laid out side by side.
        tuned: fields left out of the problem.
        only: the fields that make a problem; None for all.
        beside: fields in which neighbouring problems agree (`Problem.differing`).
        first: fields to sort by, before all others.
    """
    grouped: dict[str, dict[Place, list[Record]]] = {}
    for record in records:
        setting = setting_of(record["setting_json"])
        problem = problem_of(record["setting_json"], (*by, *tuned))
        if only is not None:
            problem = {name: value for name, value in problem.items() if name in only}
        shared = canonical_json(problem)
        place = values_of(setting, by)
        grouped.setdefault(shared, {}).setdefault(place, []).append(record)
    settings: dict[str, dict[str, Any]] = {shared: json.loads(shared) for shared in grouped}
    unlike = differing((values_of(setting, beside), setting) for setting in settings.values())
    fields = [*first, *sorted(set().union(*settings.values()))]

    def in_order(values: Place) -> list[Any]:
        return [sortable(value) for value in values]

    result = []
    for shared in sorted(settings, key=lambda text: in_order(values_of(settings[text], fields))):
        setting = settings[shared]
        places = sorted(grouped[shared], key=in_order)
        cells = [Cell(place, tuple(grouped[shared][place])) for place in places]
        fields_unlike = tuple(sorted(unlike[values_of(setting, beside)]))
        result.append(Problem(setting, tuple(by), tuple(cells), fields_unlike))
    return result


def values_of(setting: Mapping[str, Any], names: Iterable[str]) -> Place:
    """Return the values of some fields; None for a field that the setting lacks."""
    return tuple(setting.get(name) for name in names)


def differing(mappings: Iterable[tuple[K, Mapping[str, Any]]]) -> dict[K, set[str]]:
    """Find, for each group, the names whose values differ between its mappings."""
    groups: dict[K, list[Mapping[str, Any]]] = {}
    for group, mapping in mappings:
        groups.setdefault(group, []).append(mapping)
    return {group: _names_that_differ(members) for group, members in groups.items()}


def _names_that_differ(mappings: Sequence[Mapping[str, Any]]) -> set[str]:
    names: set[str] = set()
    for name in set().union(*mappings):
        values = {repr(mapping.get(name)) for mapping in mappings}
        if len(values) > 1:
            names.add(name)
    return names


def sortable(value: Any) -> tuple[bool, bool, float, str]:
    """Return a key that sorts None first, then numbers, then text."""
    number = float(value) if is_number(value) else 0.0
    return value is not None, not is_number(value), number, str(value)

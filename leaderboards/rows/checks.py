"""Checks of rows: columns, types, ranges, identity; and of a row against its curve.

`table_problems` has the rules for values; every reader calls it. `check_row` applies them to a row
before it is stored, after its columns and their types. `curve_problems` compares a row with its
curve, when folders are validated or merged.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import datetime
from typing import TYPE_CHECKING, Any

from leaderboards.numbers import FRACTION, Curve, Point, metric_named, numbers_of
from leaderboards.rows.frames import run_table
from leaderboards.rows.schema import (
    COLUMNS,
    CURVE_COLUMNS,
    READ_OFF_CURVES,
    SCHEMA_VERSION,
    SELECTED_ON,
    SETTING_COLUMNS,
    STATUSES,
    Column,
    canonical_json,
)
from leaderboards.shell_text import printable

if TYPE_CHECKING:
    import pyarrow as pa

_ALLOWED: dict[str, tuple[Any, ...]] = {
    "status": STATUSES,
    "selected_on": SELECTED_ON,
    "schema_version": (SCHEMA_VERSION,),
}
_RUN_KEY = "[0-9a-f]{64}"
_LONGEST = 200  # characters of a text in a message


def check_row(row: Mapping[str, Any]) -> None:
    """Check one row of `runs`, as a mapping from every column to a Python value (None is empty).

    A number that is read off curves may be empty or missing: readers compute it.

    Raises:
        ValueError: a column is missing, unknown, of another type, empty or out of range; the status
            is unknown; or hp_json or setting_json disagrees with its columns. The message names all
            faults of one kind, not only the first.
    """
    message = f"the row of {row.get('algorithm')!r}, seed {row.get('seed')!r}, cannot be stored"
    _raise_if_any(message, _form_problems(row))
    _raise_if_any(message, (problem for _, problem in table_problems(run_table(row))))


def check_curve(curve: Iterable[Point]) -> None:
    """Check the points `(round, metric, value)` of a curve.

    A value may be None if it is not a number.

    Raises:
        ValueError: a point has another shape or type, or two points have the same round and metric.
    """
    _raise_if_any("the curve cannot be stored", _point_problems(curve))


def _raise_if_any(message: str, problems: Iterable[str]) -> None:
    phrases = list(problems)
    if phrases:
        raise ValueError(f"{message}: {'; '.join(phrases)}")


def _form_problems(row: Mapping[str, Any]) -> Iterator[str]:
    """Yield the columns that are missing, unknown or of another type; and a failure without reason.

    Readers do not ask for the reason of a failure.
    """
    missing = [
        column.name
        for column in COLUMNS
        if column.name not in row and column.name not in READ_OFF_CURVES
    ]
    if missing:
        yield f"missing columns {', '.join(missing)} (give None if there is no value)"
    unknown = sorted(row.keys() - {column.name for column in COLUMNS})
    if unknown:
        yield f"unknown columns {', '.join(unknown)}; known are those of leaderboards.COLUMNS"
    for column in COLUMNS:
        value = row.get(column.name)
        if value is not None and not _TYPES[column.type](value):
            kind = type(value).__name__
            yield f"{column.name} must be of type {column.type}, got {value!r} ({kind})"
    if row.get("status") == "failed" and not row.get("error"):
        yield "error is empty in a failed row: say why it failed"


def table_problems(rows: pa.Table) -> Iterator[tuple[int, str]]:
    """Yield the position and the fault of rows.

    Numbers are finite and in their range, texts are allowed ones, and no required value is empty.
    Each distinct text of JSON is read once. Columns that the table lacks are not checked.
    """
    import pyarrow.compute as pc

    names = {*rows.column_names}
    finished = pc.equal(rows["status"], "finished") if "status" in names else None
    for column in COLUMNS:
        if column.name not in names:
            continue
        values = rows[column.name]
        for faulty, problem in _column_problems(column, values, finished):
            for at in pc.indices_nonzero(faulty).to_pylist():
                value = values[at].as_py()
                got = "" if value is None else f", got {value!r}"
                yield at, f"{column.name} {problem}{got}"
    yield from _distinct_json_problems(rows)


def _column_problems(
    column: Column, values: pa.ChunkedArray, finished: pa.ChunkedArray | None
) -> Iterator[tuple[pa.ChunkedArray, str]]:
    """Yield which values of a column break a rule, as booleans, and the rule."""
    import pyarrow as pa
    import pyarrow.compute as pc

    if not column.empty_allowed:
        yield pc.is_null(values), "is empty"
    elif not column.nullable and column.group == "cost" and finished is not None:
        yield pc.and_(pc.is_null(values), finished), "is empty in a finished row"
    if pa.types.is_floating(values.type):
        yield pc.invert(pc.is_finite(values)), "must be finite"
    if pa.types.is_floating(values.type) or pa.types.is_integer(values.type):
        if column.unit != "any":
            yield pc.less(values, 0), "must be >= 0"
        if column.unit == "fraction":
            yield pc.greater(values, 1), "must be a fraction in [0, 1]"
    if column.name in _ALLOWED:
        allowed = _ALLOWED[column.name]
        is_allowed = pc.is_in(values, pa.array(allowed))
        yield pc.invert(is_allowed), f"must be one of {', '.join(map(str, allowed))}"
    if column.name == "run_key":
        is_key = pc.match_substring_regex(values, f"^{_RUN_KEY}$")
        yield pc.invert(is_key), "must be 64 lower-case hexadecimal digits"


def _distinct_json_problems(rows: pa.Table) -> Iterator[tuple[int, str]]:
    """Yield the position of each row whose JSON has a fault, and the fault."""
    import numpy as np
    import pyarrow as pa

    for name, columns in (("hp_json", ()), ("setting_json", SETTING_COLUMNS)):
        if name not in rows.column_names:
            continue
        present = [column for column in columns if column in rows.column_names]
        fields = [name, *present]
        positions = pa.array(np.arange(rows.num_rows))
        groups = rows.select(fields).append_column("place", positions).group_by(fields)
        for distinct in groups.aggregate([("place", "list")]).to_pylist():
            places = distinct.pop("place_list")
            text = distinct.pop(name)
            for problem in _json_problems(name, text, distinct):
                for at in places:
                    yield at, problem


def curve_problems(row: Mapping[str, Any], curve: Curve) -> Iterator[str]:
    """Yield the numbers of a row that its curve contradicts, and the curve's wrong points.

    A number that is empty or missing in the row is no fault.
    """
    for name, value in numbers_of(curve).items():
        stored = row.get(name)
        if stored is not None and stored != value:
            yield f"{name} is {stored}, not {value}"
    last = row.get("rounds")
    for metric, values in curve.items():
        late = [at for at in values if last is not None and at > last]
        if late:
            yield f"{metric} has a value in round {late[0]}, of {last} rounds"
        early = [at for at in values if at < 0]
        if early:
            yield f"{metric} has a value in round {early[0]}, and rounds begin with 0"
        outside = [at for at, value in values.items() if not 0 <= value <= 1]
        if outside and metric_named(metric).unit == FRACTION:
            value = values[outside[0]]
            place = f"in round {outside[0]}"
            yield f"{metric} is {value} {place}, which must be a fraction in [0, 1]"


def _json_problems(name: str, text: Any, columns: Mapping[str, Any]) -> Iterator[str]:
    """Yield the faults of `text`: it is not canonical JSON, or disagrees with `columns`."""
    try:
        values = json.loads(text)
        canonical = isinstance(values, dict) and canonical_json(values) == text
        columns_json = {key: canonical_json({key: value}) for key, value in columns.items()}
    except (TypeError, ValueError, RecursionError) as error:
        yield f"{name} must be canonical JSON of its columns, got {_cut(text)!r} ({error})"
        return
    if not canonical:
        yield f"{name} must be canonical JSON (sorted keys, no spaces), got {_cut(text)!r}"
        return
    if not all(map(_is_plain, (*values, *values.values()))):
        yield (
            f"{name} must hold numbers of 64 bits, booleans, null "
            f"and text without control characters, got {_cut(text)!r}"
        )
        return
    if name == "hp_json" and "json" in values:
        yield (
            "hp_json has a hyper-parameter named json: "
            "its column would be hp_json, which holds all of them"
        )
    for key, (is_allowed, allowed) in _OF_SETTINGS.items():
        if name == "setting_json" and key in values and not is_allowed(values[key]):
            yield f"{key} in setting_json must be {allowed}, got {values[key]!r}"
    differ = []
    for key in columns:
        if key not in values or columns_json[key] != canonical_json({key: values[key]}):
            differ.append(key)
    if differ:
        yield f"{name} and the columns disagree about {', '.join(differ)}: {name} is {_cut(text)}"


def _cut(text: Any) -> Any:
    """Cut a text that is too long for a message."""
    if isinstance(text, str) and len(text) > _LONGEST:
        return f"{text[:_LONGEST]} …"
    return text


def _is_plain(value: Any) -> bool:
    if isinstance(value, str):
        return value == printable(value)
    if isinstance(value, int):  # so is a boolean
        return _has_64_bits(value)
    return isinstance(value, float | None)


def _point_problems(curve: Iterable[Point]) -> Iterator[str]:
    seen = set()
    names = [column.name for column in CURVE_COLUMNS[2:]]
    for point in curve:
        if len(point) != len(names):
            yield f"a point is ({', '.join(names)}), got {point!r}"
            continue
        at, metric, value = point
        if not _is_count(at) or not _is_text(metric) or not (value is None or _is_float(value)):
            yield f"a point is (int >= 0, str, float or None), got {point!r}"
        elif (at, metric) in seen:
            yield f"two points for round {at} and metric {metric!r}"
        seen.add((at, metric))


def _is_int(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and _has_64_bits(value)


def _is_count(value: Any) -> bool:
    return _is_int(value) and value >= 0


def _has_64_bits(value: int) -> bool:
    return -(2**63) <= value < 2**63


def _is_float(value: Any) -> bool:
    return _is_int(value) or isinstance(value, float)


def _is_text(value: Any) -> bool:
    return isinstance(value, str)


def _is_map_of_texts(value: Any) -> bool:
    return isinstance(value, Mapping) and all(map(_is_text, (*value, *value.values())))


# What readers take from `setting_json` alone: whether a value is allowed, and how that is said.
_OF_SETTINGS: dict[str, tuple[Callable[[Any], bool], str]] = {
    "partition_seed": (_is_count, "a whole number >= 0"),
    "client_models": (_is_text, "text"),
}
_TYPES: dict[str, Callable[[Any], bool]] = {
    "string": _is_text,
    "float64": _is_float,
    "int64": _is_int,
    "bool": lambda value: isinstance(value, bool),
    "timestamp": lambda value: isinstance(value, datetime) and value.tzinfo is not None,
    "map<string,string>": _is_map_of_texts,
}

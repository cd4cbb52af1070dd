"""Checks of a row before it is stored: every column, its type and range, a consistent identity."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import datetime
from typing import TYPE_CHECKING, Any

from leaderboards.rows.schema import (
    COLUMNS,
    CURVE_COLUMNS,
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

CurvePoint = tuple[int, str, float | None]


def check_row(row: Mapping[str, Any]) -> None:
    """Check one row of `runs`, as a mapping from every column to a Python value (None is empty).

    Raises:
        ValueError: a column is missing, unknown, of another type, empty or out of range; the status is unknown; or
            hp_json or setting_json disagrees with its columns. The message names all of these, not only the first.
    """
    _raise_if_any(f"the row of {row.get('algorithm')!r}, seed {row.get('seed')!r}, cannot be stored", row_problems(row))


def check_curve(curve: Iterable[CurvePoint]) -> None:
    """Check the points `(round, metric, value)` of a curve; a value may be None if it is not a number.

    Raises:
        ValueError: a point has another shape or type, or two points have the same round and metric.
    """
    _raise_if_any("the curve cannot be stored", _curve_problems(curve))


def _raise_if_any(message: str, problems: Iterable[str]) -> None:
    phrases = list(problems)
    if phrases:
        raise ValueError(f"{message}: {'; '.join(phrases)}")


def row_problems(row: Mapping[str, Any]) -> Iterator[str]:
    """Yield everything that `check_row` refuses about a row, one phrase each."""
    names = {column.name for column in COLUMNS}
    missing = [column.name for column in COLUMNS if column.name not in row]
    if missing:
        yield f"missing columns {', '.join(missing)} (give None if there is no value)"
    unknown = sorted(set(row) - names)
    if unknown:
        yield f"unknown columns {', '.join(unknown)}; known are those of leaderboards.COLUMNS"
    finished = row.get("status") == "finished"
    for column in COLUMNS:
        if column.name in row:
            yield from _value_problems(column, row[column.name], finished)
    if not missing:
        yield from _relation_problems(row)


def _value_problems(column: Column, value: Any, finished: bool) -> Iterator[str]:
    if value is None:
        if finished and not column.nullable:
            yield f"{column.name} is empty in a finished row"
        elif not column.empty_allowed:
            yield f"{column.name} is empty"
    elif not _TYPES[column.type](value):
        yield f"{column.name} must be of type {column.type}, got {value!r} ({type(value).__name__})"
    else:
        values = value.values() if isinstance(value, Mapping) else [value]
        yield from (f"{column.name} {why}, got {value!r}" for v in values if (why := _out_of_range(column, v)))


def _out_of_range(column: Column, value: Any) -> str:
    if not isinstance(value, int | float) or isinstance(value, bool):
        return ""
    if not math.isfinite(value):
        return "must be finite (None if there is no value)"
    if column.unit == "fraction" and not 0 <= value <= 1:
        return "must be a fraction in [0, 1]"
    return "must be >= 0" if column.unit != "any" and value < 0 else ""


def _relation_problems(row: Mapping[str, Any]) -> Iterator[str]:
    for name, allowed in (("status", STATUSES), ("selected_on", SELECTED_ON), ("schema_version", (SCHEMA_VERSION,))):
        if row[name] not in allowed:
            yield f"{name} must be one of {', '.join(map(str, allowed))}, got {row[name]!r}"
    if not re.fullmatch("[0-9a-f]{64}", str(row["run_key"])):
        yield f"run_key must be 64 lower-case hexadecimal digits, got {row['run_key']!r}"
    if row["status"] == "failed" and not row["error"]:
        yield "error is empty in a failed row: say why it failed"
    yield from _json_problems("hp_json", row["hp_json"], {})
    yield from _json_problems("setting_json", row["setting_json"], {name: row[name] for name in SETTING_COLUMNS})


def identity_problems(rows: pa.Table) -> Iterator[str]:
    """Yield the faults in identity columns of a table, as `check_row` finds them; each distinct text is read once."""
    names = {*rows.column_names}
    for column in COLUMNS:
        if column.group == "identity" and not column.empty_allowed and column.name in names:
            yield from [f"{column.name} is empty"] * bool(rows[column.name].null_count)
    if "hp_json" in names:
        for text in rows["hp_json"].unique().to_pylist():
            yield from _json_problems("hp_json", text, {})
    if "setting_json" in names:
        fields = ["setting_json", *(name for name in SETTING_COLUMNS if name in names)]
        for setting in rows.select(fields).group_by(fields).aggregate([]).to_pylist():
            yield from _json_problems("setting_json", setting.pop("setting_json"), setting)


def _json_problems(name: str, text: Any, columns: Mapping[str, Any]) -> Iterator[str]:
    """Yield the faults of `text`: it is not canonical JSON, or disagrees with `columns`."""
    try:
        values = json.loads(text)
        canonical = isinstance(values, dict) and canonical_json(values) == text
        columns_json = {key: canonical_json({key: value}) for key, value in columns.items()}
    except (TypeError, ValueError, RecursionError) as error:
        yield f"{name} must be canonical JSON of its columns, got {text!r} ({error})"
        return
    if not canonical:
        yield f"{name} must be canonical JSON (sorted keys, no spaces), got {text!r}"
        return
    if not all(map(_is_plain, (*values, *values.values()))):
        yield f"{name} must hold numbers, booleans, null and text without control characters, got {text!r}"
        return
    differ = [key for key in columns if key not in values or columns_json[key] != canonical_json({key: values[key]})]
    if differ:
        yield f"{name} and the columns disagree about {', '.join(differ)}: {name} is {text}"


def _is_plain(value: Any) -> bool:
    return value == printable(value) if isinstance(value, str) else isinstance(value, bool | int | float | None)


def _curve_problems(curve: Iterable[CurvePoint]) -> Iterator[str]:
    seen = set()
    names = [column.name for column in CURVE_COLUMNS[2:]]
    for point in curve:
        if len(point) != len(names):
            yield f"a point is ({', '.join(names)}), got {point!r}"
            continue
        step, metric, value = point
        if not _is_int(step) or step < 0 or not isinstance(metric, str) or not (value is None or _is_float(value)):
            yield f"a point is (int >= 0, str, float or None), got {point!r}"
        elif (step, metric) in seen:
            yield f"two points for round {step} and metric {metric!r}"
        seen.add((step, metric))


def _is_int(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _is_float(value: Any) -> bool:
    return _is_int(value) or isinstance(value, float)


def _is_map_of(key: Callable[[Any], bool], item: Callable[[Any], bool]) -> Callable[[Any], bool]:
    return lambda value: isinstance(value, Mapping) and all(key(k) and item(v) for k, v in value.items())


def _is_text(value: Any) -> bool:
    return isinstance(value, str)


_TYPES: dict[str, Callable[[Any], bool]] = {
    "string": _is_text,
    "float64": _is_float,
    "int64": _is_int,
    "bool": lambda value: isinstance(value, bool),
    "timestamp": lambda value: isinstance(value, datetime) and value.tzinfo is not None,
    "map<int32,double>": _is_map_of(_is_int, _is_float),
    "map<double,int32>": _is_map_of(_is_float, _is_int),
    "map<string,string>": _is_map_of(_is_text, _is_text),
}

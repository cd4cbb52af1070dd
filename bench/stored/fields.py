"""Fields of stored settings, which leave out a later field at its default.

Imports neither torch nor ray.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from bench.errors import UsageError
from bench.terminal.words import unknown
from search_spaces import setting_fields
from search_spaces.bounds import cast


def field_named(option: str, name: str) -> str:
    """Return the name of a field that an option takes; raises UsageError for any other."""
    if name not in setting_fields():
        raise unknown(f"field of a setting for {option}", name, setting_fields())
    return name


def field_value(name: str, text: str) -> Any:
    """Read a typed value of a field; raises UsageError for one of another type."""
    try:
        return cast(name, text, str(setting_fields()[name].type))
    except ValueError as error:
        raise UsageError(str(error)) from None


def value_in(name: str, setting: Mapping[str, Any]) -> Any:
    """Return the value of a field of `Setting` in a row's setting."""
    return setting.get(name, setting_fields()[name].default)


def worth_telling(name: str, setting: Mapping[str, Any]) -> Any:
    """Return the value of a field in a row's setting, or None where there is nothing to tell.

    That is where the partition does not use the field, where its default is none (no public
    samples), and where it is no field of `Setting` (`model_version`, of models from outside).
    """
    if name in setting:
        return setting[name]
    if name not in setting_fields() or not _is_used(name, setting):
        return None
    value = value_in(name, setting)
    return None if value == "" else value


def _is_used(name: str, setting: Mapping[str, Any]) -> bool:
    """Tell whether a field matters in a setting; partitions from outside may use any."""
    from bench.data.partition import PARTITIONS

    entry = PARTITIONS.get(setting.get("partition", ""))
    return name != "classes_per_client" or entry is None or entry.needs_classes

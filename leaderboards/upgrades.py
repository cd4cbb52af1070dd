"""Files of older schema versions as tables of the present one.

`UPGRADES` has, for a kind of file and a version, the function that makes a table of the version after it. Reading
takes as many of these steps as there are; a version from which they do not lead up to the present one is refused.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from leaderboards import schema

if TYPE_CHECKING:
    import pyarrow as pa

# Version 1 is the first: there is nothing to upgrade yet. (kind, version) -> table of that version -> of the next.
UPGRADES: dict[tuple[str, int], Callable[[pa.Table], pa.Table]] = {}


def can_upgrade(kind: str, version: int) -> bool:
    """Whether a file of that version can be read: it is the present one, or every step up to it is there."""
    return all((kind, step) in UPGRADES for step in range(version, schema.SCHEMA_VERSION))


def upgraded(table: pa.Table, kind: str, version: int) -> pa.Table:
    """A table of an older version as one of the present version; rows of `runs` say so in `schema_version`."""
    import pyarrow as pa

    for step in range(version, schema.SCHEMA_VERSION):
        table = UPGRADES[kind, step](table)
    if "schema_version" in table.column_names:
        at = table.column_names.index("schema_version")
        now = pa.array([schema.SCHEMA_VERSION] * table.num_rows, pa.int64())
        table = table.set_column(at, table.schema.field(at), now)
    return table.replace_schema_metadata(schema.file_metadata(kind))

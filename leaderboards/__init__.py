"""Results: their schema, a store that several writers may share, and leaderboards made from it.

A leaf: it knows rows and columns, no algorithm and no engine. Importing it is cheap; pandas and
pyarrow are imported by the functions that need them (and by `leaderboards.board`).
"""

from leaderboards.numbers import NUMBERS
from leaderboards.rows.files import StoreError
from leaderboards.rows.schema import (
    COLUMNS,
    SCHEMA_VERSION,
    canonical_json,
    identity_columns,
    run_key,
)
from leaderboards.rows.store import Store

__all__ = [
    "COLUMNS",
    "NUMBERS",
    "SCHEMA_VERSION",
    "Store",
    "StoreError",
    "canonical_json",
    "identity_columns",
    "run_key",
]

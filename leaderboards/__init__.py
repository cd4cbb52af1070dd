"""Results: the schema of results, a store that several writers may share, and leaderboards made from it.

A leaf: it knows rows and columns, no algorithm and no engine. Importing it is cheap; pandas and pyarrow are imported
by the functions that need them (and by `leaderboards.board`).
"""

from leaderboards.metrics import METRICS, find_metric
from leaderboards.rows.checks import check_curve, check_row
from leaderboards.rows.files import BrokenFileError, NewerSchemaError, StoreError
from leaderboards.rows.schema import COLUMNS, SCHEMA_VERSION, canonical_json, environment_key, identity_columns, run_key
from leaderboards.rows.store import Store

__all__ = [
    "COLUMNS",
    "METRICS",
    "SCHEMA_VERSION",
    "BrokenFileError",
    "NewerSchemaError",
    "Store",
    "StoreError",
    "canonical_json",
    "check_curve",
    "check_row",
    "environment_key",
    "find_metric",
    "identity_columns",
    "run_key",
]

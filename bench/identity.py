"""A setting's part in a run key: its fields, and the version of each data set, model and partition from outside.

Those of this suite have none, because their results change with the suite's own versions.
"""

from __future__ import annotations

import json

from bench import data, models
from leaderboards.rows.identity import canonical_json
from search_spaces import Setting, Value, setting_fields


def identity(setting: Setting) -> dict[str, Value]:
    """`Setting.as_dict`, and `dataset_version`, `model_version`, `partition_version` if there is one.

    Raises:
        UsageError: something from outside that cannot be imported any more.
    """
    from bench.data.partition import version  # numpy

    versions: dict[str, Value] = {
        "dataset_version": data.version(setting.dataset),
        "model_version": models.version(setting.model),
        "partition_version": version(setting.partition),
    }
    return setting.as_dict() | {name: value for name, value in versions.items() if value is not None}


def identity_json(setting: Setting) -> str:
    """The same as canonical JSON: the column `setting_json` of its rows."""
    return canonical_json(identity(setting))


def setting_of(text: str) -> Setting:
    """The setting of a row, from its `setting_json`."""
    fields = setting_fields()
    return Setting(**{name: value for name, value in json.loads(text).items() if name in fields})

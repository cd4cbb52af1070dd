"""Identity of a run: canonical JSON, the run key, and the key of the environment it ran in."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any

from leaderboards.rows.schema import SETTING_COLUMNS


def canonical_json(mapping: Mapping[str, Any]) -> str:
    """Write `mapping` as JSON with sorted keys and no spaces: equal mappings give equal text.

    `1` and `1.0` give different text: cast each value to its declared type first.

    Raises:
        ValueError: a value is NaN or infinite, or no JSON value.
    """
    try:
        return json.dumps(dict(mapping), sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)
    except (TypeError, ValueError) as error:
        raise ValueError(f"values must be finite numbers, strings, booleans or None, got {dict(mapping)!r}") from error


def digest(mapping: Mapping[str, Any]) -> str:
    """SHA-256 of the canonical JSON of `mapping`: 64 lower-case hexadecimal digits."""
    return hashlib.sha256(canonical_json(mapping).encode()).hexdigest()


def run_key(
    algorithm: str, version: int, hyperparameters: Mapping[str, Any], setting: Mapping[str, Any], seed: int
) -> str:
    """Compute the identity of a run, 64 lower-case hexadecimal digits: equal for runs that must give equal numbers.

    The caller has cast all values to their declared types: `gamma=1` (an int) and `gamma=1.0` are different keys.

    Args:
        algorithm: registry name.
        version: of the algorithm; raised when its results change.
        hyperparameters: every one of the algorithm by name, defaults included.
        setting: as `setting_identity` of `bench.planning.run_spec` gives it: fields by name, later ones only off their
            default, and the versions of data set, partition and model.
        seed: of the run.
    """
    return digest(
        {
            "algorithm": algorithm,
            "version": version,
            "hyperparameters": dict(hyperparameters),
            "setting": dict(setting),
            "seed": seed,
        }
    )


def environment_key(row: Mapping[str, Any]) -> str:
    """Name the environment of a row by 8 hexadecimal digits: runs of one key that agree in it agree in every digit."""
    parts = {name: row[name] for name in ("device", "cpu", "threads", "backend", "pack")}
    return digest({**parts, "versions": dict(row["versions"])})[:8]


def identity_columns(
    algorithm: str, version: int, hyperparameters: Mapping[str, Any], setting: Mapping[str, Any], seed: int
) -> dict[str, Any]:
    """The identity columns of a row: run key, hyper-parameters, setting and seed. Arguments are those of `run_key`."""
    return {
        "run_key": run_key(algorithm, version, hyperparameters, setting, seed),
        "algorithm": algorithm,
        "algorithm_version": version,
        "hp_json": canonical_json(hyperparameters),
        "setting_json": canonical_json(setting),
        **{name: setting[name] for name in SETTING_COLUMNS},
        "seed": seed,
    }

"""The columns of `runs` and `curves`, and the keys of a run and its environment.

`COLUMNS` and `CURVE_COLUMNS` are the single source: the pyarrow schemas, the checks (`rows.checks`)
and the documentation come from them; columns of numbers come from `leaderboards.numbers`.
Accuracies are fractions in [0, 1], times seconds, sizes bytes. A stored row has three more columns:

- `written`: the time of storing;
- `forced`: whether it replaces all earlier rows of its key and environment (`leaderboards.rows`);
- `tracked`: the names of its files in the folder `tracked`, separated by spaces, or nothing.

What is stored can grow. A column that is added later must be a number that curves tell, or must be
allowed to be empty, because files written before lack it. A column of a file that is not listed
here is ignored.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Literal

from leaderboards.numbers import NUMBERS, Number

if TYPE_CHECKING:
    import pyarrow as pa

SCHEMA_VERSION = 1
HP_PREFIX = "hp_"  # of hyper-parameters' columns in `leaderboard.parquet`
STATUSES = ("finished", "failed", "stopped")
SELECTED_ON = ("validation", "clients", "test", "none")
WHEN_DIVERGED = (
    "a loss or a model became NaN or infinite, or a run ends no better than guessing "
    "(a shortened one: worse than guessing)"
)
CERTIFIED = (
    "the algorithm is built in, or passed the quick part of the self-test before it ran; "
    "a model from outside always passes a check that its runs can be repeated"
)

ColumnGroup = Literal["identity", "results", "cost", "state", "provenance"]


@dataclass(frozen=True)
class Column:
    """A column of `runs` or `curves`.

    Args:
        name: of the column.
        type: `string`, `float64`, `int64`, `bool`, `timestamp` (microseconds, UTC) or
            `map<string,string>`.
        unit: of its numbers. `fraction` is checked to lie in [0, 1]; every unit but `any` forbids
            negative numbers.
        meaning: one phrase.
        group: identity, results, cost, state or provenance.
        nullable: whether it may be empty in a finished row; results and cost may always be in
            failed and stopped ones.
    """

    name: str
    type: str
    unit: str
    meaning: str
    group: ColumnGroup
    nullable: bool = False

    @property
    def empty_allowed(self) -> bool:
        """Return whether the column may be empty in some rows."""
        return self.nullable or self.group in ("results", "cost")


def number_column(number: Number) -> Column:
    """Return the column of a number: a result if it is read off the curve, otherwise a cost."""
    group: ColumnGroup = "results" if number.rule else "cost"
    meaning = ", ".join(filter(None, (number.quantity, number.of)))
    kind = "int64" if number.whole else "float64"
    return Column(number.name, kind, number.unit.name, meaning, group, number.optional)


_identity = partial(Column, group="identity")
_results = partial(Column, group="results")
_cost = partial(Column, group="cost")
_state = partial(Column, group="state")
_provenance = partial(Column, group="provenance")

COLUMNS: tuple[Column, ...] = (
    _identity(
        "run_key",
        "string",
        "",
        "SHA-256 of algorithm, its version, hyper-parameters, setting and seed",
    ),
    _identity("algorithm", "string", "", "registry name"),
    _identity("algorithm_version", "int64", "1", "in the registry; raised when its results change"),
    _identity("hp_json", "string", "", "all hyper-parameters as canonical JSON"),
    _identity("setting_json", "string", "", "every field of the setting as canonical JSON"),
    _identity("dataset", "string", "", "data set"),
    _identity(
        "model", "string", "", "model; `+head`, `+bn` name its variants, `+lora8` LoRA's rank"
    ),
    _identity("partition", "string", "", "how training samples are given to clients"),
    _identity(
        "alpha",
        "float64",
        "1",
        "Dirichlet concentration; empty for partitions without it",
        nullable=True,
    ),
    _identity("participation", "float64", "fraction", "share of the clients that train in a round"),
    _identity("num_clients", "int64", "clients", "clients in all"),
    _identity("rounds", "int64", "rounds", "communication rounds"),
    _identity(
        "local_epochs",
        "int64",
        "epochs",
        "passes over a client's data in a round, or what `step_rule` counts",
    ),
    _identity("batch_size", "int64", "examples", "examples in a local step"),
    _identity("optimizer", "string", "", "local optimiser"),
    _identity("lr", "float64", "1", "local learning rate of round 1"),
    _identity("lr_decay", "float64", "1", "factor on lr after each round"),
    _identity("momentum", "float64", "1", "SGD momentum"),
    _identity("weight_decay", "float64", "1", "L2 coefficient added to the gradient"),
    _identity("clip_norm", "float64", "1", "largest gradient norm of a step; 0 is no clipping"),
    _identity("augmentation", "string", "", "augmentation of training images"),
    _identity("fraction", "float64", "fraction", "share of the training data that is used at all"),
    _identity("validation_fraction", "float64", "fraction", "share of it held out to select on"),
    _identity("auxiliary_per_class", "int64", "examples", "server's labelled samples per class"),
    _identity("precision", "string", "", "arithmetic of training"),
    _identity(
        "seed",
        "int64",
        "1",
        "seed of the run's random streams; "
        "`partition_seed` of the setting may have those of data and w_0",
    ),
    *(number_column(number) for number in NUMBERS.values() if number.rule),
    _results("partition_hash", "string", "", "hash of the clients' sample indices"),
    *(number_column(number) for number in NUMBERS.values() if not number.rule),
    _cost(
        "samples_per_second",
        "float64",
        "examples/second",
        "training examples per second",
        nullable=True,
    ),
    _cost(
        "peak_memory_bytes",
        "int64",
        "bytes",
        "largest memory of the process, or of its accelerator",
        nullable=True,
    ),
    _state("status", "string", "", "finished, failed, or stopped early by the search"),
    _state("error", "string", "", "why it failed, or what stopped being finite", nullable=True),
    _state("diverged", "bool", "", WHEN_DIVERGED),
    _state(
        "selected_on",
        "string",
        "",
        "what configurations are selected on: validation, clients (their own samples), none; "
        "test in old rows",
    ),
    _state(
        "shortened",
        "bool",
        "",
        "run with fewer rounds, fewer local epochs, or less data than its preset",
    ),
    _state(
        "personal",
        "bool",
        "",
        "each client's own model is evaluated, not a global one; empty in old rows",
        nullable=True,
    ),
    _provenance("paper", "string", "", "paper whose setting was asked for", nullable=True),
    _provenance("certified", "bool", "", CERTIFIED, nullable=True),
    _provenance("schema_version", "int64", "1", "version of these columns"),
    _provenance("package_version", "string", "", "version of this package"),
    _provenance("git_commit", "string", "", "commit of the source tree", nullable=True),
    _provenance("git_dirty", "bool", "", "source files differed from the commit", nullable=True),
    _provenance("versions", "map<string,string>", "", "package -> version"),
    _provenance(
        "device", "string", "", "`cpu`, or the accelerator's model, `cuda` where its process died"
    ),
    _provenance("cpu", "string", "", "processor model"),
    _provenance("threads", "int64", "threads", "threads of the process"),
    _provenance("backend", "string", "", "how clients were executed"),
    _provenance("pack", "int64", "runs", "runs trained together in one program; 1 is alone"),
    _provenance("host", "string", "", "machine name, or a hash of it"),
    _provenance("dataset_hash", "string", "", "hash of the prepared data set", nullable=True),
    _provenance("command", "string", "", "command line"),
    _provenance("started", "timestamp", "UTC", "when the run began"),
    _provenance("finished", "timestamp", "UTC", "when the run ended, in whatever status"),
)

CURVE_COLUMNS: tuple[Column, ...] = (
    _identity("run_key", "string", "", "run that the value belongs to"),
    _identity("algorithm", "string", "", "registry name"),
    _identity("round", "int64", "rounds", "finished rounds, from 1"),
    _identity("metric", "string", "", "name of the metric"),
    _results(
        "value",
        "float64",
        "any",
        "accuracies are fractions, losses nats; empty if not a number",
        nullable=True,
    ),
)

# Only runs that were asked to track it have a value; their other results are the same.
TRACKED_COLUMN = "local_accuracy_mean"
FILE_COLUMNS = {"runs": COLUMNS, "curves": CURVE_COLUMNS}
# Columns of rows that a file may lack, as one of an earlier version does: numbers are then
# computed, others are empty.
READ_OFF_CURVES = tuple(number.name for number in NUMBERS.values() if number.rule)
REQUIRED = {
    "runs": tuple(
        column.name
        for column in COLUMNS
        if not column.nullable and column.name not in READ_OFF_CURVES
    ),
    "curves": tuple(column.name for column in CURVE_COLUMNS),
}
# Columns that together are the environment of a run.
ENVIRONMENT = ("device", "cpu", "threads", "backend", "pack", "versions")
# Columns that together are the platform of a run. `versions` has the processor's arithmetic, in
# rows that know it.
PLATFORM = ("device", "package_version", "versions")
# Fields of a setting: a run with less of one than its preset or printed cell is a shortened run.
SHORTENING = ("rounds", "local_epochs", "fraction")
_NOT_SETTING = {"run_key", "algorithm", "algorithm_version", "hp_json", "setting_json", "seed"}
SETTING_COLUMNS = tuple(
    c.name for c in COLUMNS if c.group == "identity" and c.name not in _NOT_SETTING
)


def own_name(algorithm: str, name: str) -> str:
    """Name a hyper-parameter as the command line does.

    FedDKD's `lr` is `feddkd.lr`, because settings have an `lr`.
    """
    return f"{algorithm}.{name}" if name in SETTING_COLUMNS else name


def own_names(algorithm: str, values: Mapping[str, Any]) -> dict[str, Any]:
    """Name the hyper-parameters of an algorithm by `own_name`."""
    return {own_name(algorithm, name): value for name, value in values.items()}


def hyperparameter_columns(names: Iterable[str]) -> list[str]:
    """Select the columns of hyper-parameters from `names`: `hp_<name>`, but not `hp_json`."""
    return [name for name in names if name.startswith(HP_PREFIX) and name != "hp_json"]


def runs_schema(stored: bool = False) -> pa.Schema:
    """Make the pyarrow schema of `runs`.

    `stored` adds `written`, `forced` and `tracked`, which files have.
    """
    import pyarrow as pa

    fields = _fields(COLUMNS)
    if stored:
        fields += [
            pa.field("written", pa.timestamp("us", tz="UTC"), False),
            pa.field("forced", pa.bool_(), False),
            pa.field("tracked", pa.string()),
        ]
    return pa.schema(fields, metadata=file_metadata("runs"))


def curves_schema() -> pa.Schema:
    """Make the pyarrow schema of a `curves` file: one row per run, round and metric."""
    import pyarrow as pa

    return pa.schema(_fields(CURVE_COLUMNS), metadata=file_metadata("curves"))


def file_metadata(kind: str) -> dict[str, str]:
    """Make the parquet metadata of our files: kind, version, and units of the columns.

    `kind`: `runs`, `curves` or `leaderboard`.
    """
    metadata = {"fedkd_kind": kind, "fedkd_schema_version": str(SCHEMA_VERSION)}
    units = {column.name: column.unit for column in FILE_COLUMNS.get(kind, ()) if column.unit}
    if units:
        metadata["fedkd_units"] = json.dumps(units)
    return metadata


def _fields(columns: Iterable[Column]) -> list[pa.Field]:
    import pyarrow as pa

    types = {
        "string": pa.string(),
        "float64": pa.float64(),
        "int64": pa.int64(),
        "bool": pa.bool_(),
        "timestamp": pa.timestamp("us", tz="UTC"),
        "map<string,string>": pa.map_(pa.string(), pa.string()),
    }
    return [pa.field(c.name, types[c.type], nullable=c.empty_allowed) for c in columns]


# Identity: canonical JSON, the run key, and the key of the environment that a run had.


def canonical_json(mapping: Mapping[str, Any]) -> str:
    """Write `mapping` as JSON with sorted keys and no spaces: equal mappings give equal text.

    `1` and `1.0` give different text: cast each value to its declared type first.

    Raises:
        ValueError: a value is NaN, infinite or not a JSON value, or a key is not a string.
    """
    wrong = [key for key in mapping if not isinstance(key, str)]
    if wrong:
        raise ValueError(f"keys must be strings, got {wrong[0]!r} in {dict(mapping)!r}")
    try:
        return json.dumps(
            dict(mapping),
            sort_keys=True,
            separators=(",", ":"),
            ensure_ascii=False,
            allow_nan=False,
        )
    except (TypeError, ValueError) as error:
        raise ValueError(
            f"values must be finite numbers, strings, booleans or None, got {dict(mapping)!r}"
        ) from error


def digest(mapping: Mapping[str, Any]) -> str:
    """Compute the SHA-256 of the canonical JSON of `mapping`: 64 lower-case hexadecimal digits."""
    return hashlib.sha256(canonical_json(mapping).encode()).hexdigest()


def run_key(
    algorithm: str,
    version: int,
    hyperparameters: Mapping[str, Any],
    setting: Mapping[str, Any],
    seed: int,
) -> str:
    """Compute the identity of a run, 64 lower-case hexadecimal digits.

    Runs that must give equal numbers have equal keys.

    The caller must cast all values to their declared types: `gamma=1` (an int) and `gamma=1.0` are
    different keys.

    Args:
        algorithm: registry name.
        version: of the algorithm; raised when its results change.
        hyperparameters: all of the algorithm's by name, defaults included.
        setting: as `setting_identity` of `bench.planning.run_spec` returns it: fields by name,
            later ones only off their default, and the versions of data set, partition and model.
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
    """Compute a row's environment key, 8 hexadecimal digits.

    Runs that are equal in it and in run key agree in every digit.
    """
    return place_key(row, ENVIRONMENT)


def place_key(row: Mapping[str, Any], columns: Iterable[str]) -> str:
    """Compute the key of where a row was made, 8 hexadecimal digits.

    `columns`: `ENVIRONMENT` or `PLATFORM`.
    """
    parts = {name: row[name] for name in columns}
    return digest({**parts, "versions": dict(row["versions"])})[:8]


def identity_columns(
    algorithm: str,
    version: int,
    hyperparameters: Mapping[str, Any],
    setting: Mapping[str, Any],
    seed: int,
) -> dict[str, Any]:
    """Make the identity columns of a row from the arguments of `run_key`."""
    return {
        "run_key": run_key(algorithm, version, hyperparameters, setting, seed),
        "algorithm": algorithm,
        "algorithm_version": version,
        "hp_json": canonical_json(hyperparameters),
        "setting_json": canonical_json(setting),
        **{name: setting[name] for name in SETTING_COLUMNS},
        "seed": seed,
    }

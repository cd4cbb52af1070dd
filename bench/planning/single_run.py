"""One run from flat values: hyper-parameters and setting fields by name.

Imports neither torch nor ray.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any

from algorithms import ALGORITHMS, entry
from algorithms.plugins import define, path_of
from bench.errors import UsageError, refusing_values
from bench.planning.given import find_algorithm
from bench.planning.options import EMBEDDED_DATASET, SweepOptions, Texts
from bench.planning.plan import Plan
from bench.planning.planner import make_plan
from bench.planning.run_spec import RunSpec
from bench.terminal.words import unknown
from search_spaces import SPACES, cast, setting_fields

# Names of a flat configuration that are neither hyper-parameters nor fields of the setting.
SPECIAL_KEYS = frozenset(
    {
        "setting",
        "dataset",
        "paper",
        "seed",
        "out",
        "data_dir",
        "offline",
        "device",
        "backend",
        "track",
        "rounds_per_report",
    }
)


def name_of(algorithm: Any) -> str:
    """Return the name of an algorithm, given by its name or as a class.

    A class that is none of ours is registered.

    Raises:
        UsageError: there is no such algorithm, or Python does not know the source of a class.
    """
    if isinstance(algorithm, str):
        return find_algorithm(algorithm).name
    try:
        path = path_of(algorithm)
        registered = [known.name for known in ALGORITHMS.values() if known.factory == path]
        return registered[0] if registered else define(algorithm).name
    except ValueError as error:
        raise UsageError(str(error)) from error


def check_names(algorithm: str, names: Iterable[str], others: Iterable[str], kind: str) -> None:
    """Raise UsageError for a name that one run does not take.

    It takes hyper-parameters, also as `feddkd.lr`, fields of the setting, and `others`. `kind` says
    what a name is, for the message.
    """
    own = entry(algorithm).defaults()
    allowed = dict.fromkeys([*own, *setting_fields(), *others])
    for name in names:
        if name not in allowed and name.removeprefix(f"{algorithm}.") not in own:
            raise unknown(kind, name, allowed)


def plan_of_one(
    algorithm: str, *layers: Mapping[str, Any], options: SweepOptions | None = None
) -> Plan:
    """Plan one run from flat configurations, with the other options of a sweep.

    Configurations have hyper-parameters and setting fields by name, `dataset`, `paper` and `seed`.
    A later configuration overrides an earlier one. A name of both a setting field and a
    hyper-parameter (FedDKD's lr) means the former, and `feddkd.lr` the latter, as on the command
    line. Hyper-parameters that no configuration has are those of the paper's results in the setting
    of `paper`, else the algorithm's defaults.

    Raises:
        UsageError: an unknown name, a value that is not allowed, or two values of one name in one
            configuration.
    """
    merged: dict[str, Any] = {}
    values: dict[str, Texts] = {}
    for layer in layers:
        merged.update(layer)
        values |= _texts_of(algorithm, layer)
    (dataset,) = values.pop("dataset", (EMBEDDED_DATASET,))
    paper = str(merged.get("paper") or "")
    space = SPACES.get((paper, dataset, algorithm))
    alpha = None
    with suppress(ValueError):  # which planning refuses with a message
        alpha = float(values["alpha"][0]) if "alpha" in values else None
    reported = space.reported(alpha) if space else {}
    own = {**entry(algorithm).defaults(), **reported}
    for name, value in own.items():  # one configuration, never a grid
        values.setdefault(f"{algorithm}.{name}", (str(value),))
    options = replace(
        options or SweepOptions(),
        algo=(algorithm,),
        dataset=dataset,
        paper=paper or None,
        values=values,
    )
    plan = make_plan(options)
    with refusing_values():
        seed: Any = cast("seed", merged.get("seed", 0), "int")
    if seed < 0:
        raise UsageError(f"seed must be >= 0, got {seed}")
    # A field that a paper tuned for this algorithm, such as FedGKD FedAvg's lr, has the preset's
    # value here.
    preset = {name: getattr(plan.settings[0], name) for name in plan.tuned}
    run_spec = plan.run_specs[0]
    run_spec = replace(run_spec, setting=replace(run_spec.setting, **preset), seed=seed)
    return replace(plan, run_specs=(run_spec,), tuned=())


def _texts_of(algorithm: str, layer: Mapping[str, Any]) -> dict[str, Texts]:
    """Return the values of a configuration as a sweep has them; raises as `plan_of_one`."""
    setting = layer.get("setting") or {}
    if not isinstance(setting, Mapping):
        raise UsageError(f"setting must be a mapping of fields of the setting, got {setting!r}")
    flat = {name: value for name, value in layer.items() if name not in SPECIAL_KEYS}
    if layer.get("dataset") is not None:
        flat["dataset"] = layer["dataset"]
    hyper = entry(algorithm).defaults()
    for name, value in setting.items():
        if name in flat and str(value) != str(flat[name]):
            hint = f"; the hyper-parameter is {algorithm}.{name}" if name in hyper else ""
            raise UsageError(
                f"{name} is given twice: {value!r} in `setting` and {flat[name]!r} by itself{hint}"
            )
    only_hyper = hyper.keys() - setting_fields().keys()
    texts: dict[str, Texts] = {}
    given = {**setting, **flat}
    for name, value in given.items():
        full_name = f"{algorithm}.{name}" if name in only_hyper else name
        if full_name != name and str(given.get(full_name, value)) != str(value):
            raise UsageError(
                f"{name} is given twice: {value!r}, and {given[full_name]!r} as {full_name}"
            )
        if isinstance(value, list | tuple):
            raise UsageError(f"{name} takes one value, got {value!r}{_as_text(name, value)}")
        texts[full_name] = (str(value),)
    return texts


def _as_text(name: str, values: Sequence[Any]) -> str:
    """Return how several models are written; empty for other fields."""
    joined = "/".join(map(str, values))
    return f": write {joined!r}" if name == "client_models" else ""


def run_spec_of(algorithm: str, *layers: Mapping[str, Any]) -> RunSpec:
    """Make the run of `plan_of_one`."""
    (run_spec,) = plan_of_one(algorithm, *layers).run_specs
    return run_spec

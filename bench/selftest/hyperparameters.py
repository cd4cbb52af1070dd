"""The `hyperparameters` check: each has an effect, and none accepts a value out of range."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Iterator
from typing import Any

import torch

from algorithms import Field
from algorithms.base import layers
from bench.engine.simulation import Simulation
from bench.errors import describe
from bench.selftest.candidate import Candidate, Values
from bench.selftest.certify import Finding, NotApplicable, assignments
from bench.selftest.toy import gap, models_of
from search_spaces import Value, names_in

ROUNDS = 4
SMALLEST_EFFECT = 1e-9
# Some fields act only with BatchNorm, only on clients that are left out, only when all take part,
# or with augmentation.
SETTINGS: tuple[dict[str, Any], ...] = (
    {},
    {"model": "mlp+bn"},
    {"participation": 0.5},
    {"participation": 1.0},
    {"augmentation": "flip_crop"},
)


def hyperparameters(candidate: Candidate, finding: Finding) -> None:
    """Check every field of the entry; raise NotApplicable if there is none."""
    entry = candidate.entry
    _expect_refused(candidate, {"no_such_field": 1}, finding)
    if not entry.fields and not finding.problems:
        raise NotApplicable("it has no hyper-parameters")
    # A text without choices has no other value to try.
    tried = [
        field for field in entry.fields if field.bounds.choices or not field.kind.startswith("str")
    ]
    acting = 0
    refused = 0
    for field in tried:
        problem = _effect_problem(candidate, field)
        acting += not problem
        finding.expect(not problem, problem)
    for field in entry.fields:
        for value in forbidden(field):
            refused += _expect_refused(candidate, {field.name: value}, finding)
    defaults = entry.defaults()
    for relation in entry.where:
        left, right = sorted(names_in(relation))
        _expect_refused(candidate, {left: defaults[right], right: defaults[left]}, finding)
    finding.measured = (
        f"{acting} of {len(tried)} change the result; {refused} values out of range are refused"
    )


def _expect_refused(candidate: Candidate, values: Values, finding: Finding) -> bool:
    """Check that the registry and, if a field has bounds, the class refuse these values.

    Returns whether they do.
    """
    bounded = set()
    for layer in layers(candidate.build()):
        bounded |= {field.name for field in dataclasses.fields(layer) if "bounds" in field.metadata}
    ways = {"build": candidate.build}
    if bounded & values.keys():
        ways["the class itself"] = candidate.factory
    refused = True
    for way, make in ways.items():
        try:
            make(**values)
        except ValueError:
            continue
        refused = False
        finding.expect(False, f"{way} takes {assignments(values)}, which is not allowed")
    return refused


def _effect_problem(candidate: Candidate, field: Field) -> str:
    """Return what is wrong with this field, or an empty string."""
    tried = []
    for setting in SETTINGS:
        for values in alternatives(candidate, field):
            try:
                other = candidate.run(ROUNDS, values=values, **setting)
            except Exception as error:  # the algorithm's code may raise anything
                shown = assignments({**values, **setting})
                return f"{shown} is allowed, and fails: {describe(error)}"
            usual = candidate.run(ROUNDS, **setting)
            effect = gap(_models_and_losses(usual), _models_and_losses(other))
            if effect > SMALLEST_EFFECT:
                return ""
            tried.append(f"{values[field.name]}")
    if tried:
        default = candidate.defaults()[field.name]
        shown = ", ".join(dict.fromkeys(tried))
        fault = f"{field.name} changes nothing: the same models with {default} and with {shown}"
        return fault + candidate.place
    return f"{field.name} could not be set to any value but its default"


def _models_and_losses(run: Simulation) -> dict[str, Any]:
    """Return the last round's models and the losses of all rounds."""
    points = itertools.chain(*run.progress.curves.values())
    values = [value for _, metric, value in points if metric == "loss"]
    losses = torch.tensor(values, dtype=torch.float64)
    return {"models": models_of(run), "losses": losses.nan_to_num()}


def alternatives(candidate: Candidate, field: Field) -> Iterator[dict[str, Value]]:
    """Yield allowed configurations that differ from the default in this field alone.

    The most telling come first.
    """
    default = candidate.defaults()[field.name]
    for value in dict.fromkeys(_values_to_try(field, default)):
        if (
            value != default
            and field.bounds.allows(value)
            and candidate.allows({field.name: value})
        ):
            yield {field.name: value}


def _values_to_try(field: Field, default: Value) -> Iterator[Value]:
    if field.bounds.choices:
        yield from field.bounds.choices
    elif field.kind.startswith("bool"):
        yield from (True, False)
    elif not field.kind.startswith("str"):
        start = default or 1
        assert isinstance(start, int | float)
        half = start // 2 if field.kind.startswith("int") else start / 2
        yield from (half, start * 2, start + 1)
        low = field.bounds.low
        high = field.bounds.high
        kind = int if field.kind.startswith("int") else float
        yield from (kind(bound) for bound in (low, high) if bound is not None)
        if low is not None and high is not None and kind is float:
            yield (low + high) / 2
    if field.kind.endswith("| None"):
        yield None


def forbidden(field: Field) -> Iterator[Value]:
    """Yield values outside the range or of the wrong type."""
    low = field.bounds.low
    high = field.bounds.high
    if field.bounds.choices:
        yield "no_such_choice"
    elif field.kind.startswith("bool"):
        yield "perhaps"
    elif not field.kind.startswith("str"):
        yield "many"
        if low is not None:
            yield low if field.bounds.open_low else low - 1
        if high is not None:
            yield high if field.bounds.open_high else high + 1
        if field.kind.startswith("float"):
            yield float("nan")
        else:
            yield 1.5

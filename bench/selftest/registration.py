"""Part of the contract check: the registry's entry and the algorithm say the same of every hyper-parameter."""

from __future__ import annotations

import inspect

from algorithms import ALGORITHMS, Field
from algorithms.base import NEEDS, Algorithm
from bench.selftest.candidate import Candidate, Owner, owners_of
from bench.selftest.outcome import Finding
from bench.selftest.values import alternatives
from search_spaces.bounds import kind_of


def check_registration(candidate: Candidate, made: Algorithm, finding: Finding) -> None:
    """The entry against the factory's signature and against the dataclass that holds each field."""
    _signature(candidate, finding)
    owners = owners_of(made)
    for item in candidate.entry.fields:
        if item.name in owners:
            _field(candidate, owners[item.name], item, finding)
        else:  # a function from outside may call its arguments as it likes
            told = f"the entry's {item.name} is a field of neither the algorithm nor its base"
            finding.expect(not candidate.built_in, told)
    if inspect.isclass(candidate.factory):
        unlisted = sorted(set(owners) - set(candidate.entry.defaults()))
        finding.expect(not unlisted, f"the entry lacks the dataclass's {', '.join(unlisted)}")
    _needs(candidate, made, finding)
    if candidate.built_in:
        unknown = sorted(set(candidate.entry.rows.values()) - set(ALGORITHMS))
        finding.expect(not unknown, f"the entry's rows name {unknown}, which are not registered")


def _signature(candidate: Candidate, finding: Finding) -> None:
    parameters = inspect.signature(candidate.factory).parameters
    if any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters.values()):
        return  # it takes whatever its class takes
    names, listed = set(parameters) - {"base"}, candidate.entry.defaults()
    finding.expect(names == set(listed), f"the factory takes {sorted(names)}, the entry lists {sorted(listed)}")
    for name in sorted(names & set(listed)):
        default = parameters[name].default
        agree = default is inspect.Parameter.empty or default == listed[name]
        finding.expect(agree, f"{name} defaults to {default!r} in the factory, to {listed[name]!r} in the entry")


def _field(candidate: Candidate, owner: Owner, item: Field, finding: Finding) -> None:
    layer, field = owner
    kind = kind_of(field.type)
    finding.expect(kind == item.kind, f"{item.name} is {kind} in the class, {item.kind} in the entry")
    for name, listed in (("bounds", item.bounds), ("packable", item.packable)):
        if candidate.built_in or name in field.metadata:
            said = field.metadata.get(name)
            finding.expect(said == listed, f"{item.name}: {name} is {said} in the class, {listed} in the entry")
    finding.expect(bool(item.meaning) or not candidate.built_in, f"{item.name} has no meaning in the entry")
    value, default = getattr(layer, item.name), item.default
    finding.expect(value == default, f"{item.name} is {value!r} in what the factory makes, {default!r} in the entry")
    other = next(alternatives(candidate, item), None)
    if other is not None:
        reached = owners_of(candidate.build(**other))[item.name][0]
        arrived = getattr(reached, item.name) == other[item.name]
        finding.expect(arrived, f"{item.name}={other[item.name]!r} is lost between factory and algorithm")


def _needs(candidate: Candidate, made: Algorithm, finding: Finding) -> None:
    unknown = sorted((candidate.entry.needs | made.needs) - NEEDS.keys())
    finding.expect(not unknown, f"needs {unknown}, of which the engine knows nothing; it knows {', '.join(NEEDS)}")
    hidden = sorted(made.needs - candidate.entry.needs)
    finding.expect(not hidden, f"the algorithm needs {hidden}, which its entry does not say")

"""The `contract` check: the entry, the class and every hook conform to `algorithms.base`."""

from __future__ import annotations

import ast
import inspect
import pickle
import textwrap

from algorithms.base import Algorithm, Plugin, layers
from algorithms.plugins import methods
from bench.selftest.candidate import Candidate
from bench.selftest.certify import Finding
from bench.selftest.contract_monitor import ContractMonitor, Log
from bench.terminal.words import counted

HOOKS = methods(Algorithm)
ROUNDS = 2


def contract(candidate: Candidate, finding: Finding) -> None:
    """Check the algorithm's classes and values, then watch two rounds of it."""
    algorithm = candidate.build()
    for layer in layers(algorithm):
        _check_class(type(layer), finding)
    _check_value(candidate, algorithm, finding)
    _check_hooks(candidate, finding)
    own_names = set().union(*(vars(type(layer)) for layer in layers(algorithm)))
    overridden = ", ".join(hook for hook in HOOKS if hook in own_names)
    fields = counted(len(candidate.entry.fields), "hyper-parameter")
    finding.measured = f"overrides {overridden or 'nothing'}; {fields}"


def _check_class(kind: type[Algorithm], finding: Finding) -> None:
    """Check a class: one direct base, frozen, the contract's hooks, no calls of its own hooks."""
    if kind is Algorithm:
        return
    direct = kind.__bases__ in ((Algorithm,), (Plugin,))
    bases = ", ".join(base.__name__ for base in kind.__bases__)
    finding.expect(
        direct,
        f"{kind.__name__} extends {bases}: extend Algorithm or Plugin alone, and nothing else",
    )
    # One that is not frozen cannot extend a frozen one.
    finding.expect(
        "__dataclass_params__" in vars(kind), f"{kind.__name__} must itself be a frozen dataclass"
    )
    for name in vars(kind).keys() & set(HOOKS):
        parameters = inspect.signature(getattr(Algorithm, name)).parameters
        try:
            inspect.signature(getattr(kind, name)).bind(*parameters)
        except TypeError:
            finding.expect(False, f"{kind.__name__}.{name} must take ({', '.join(parameters)})")
    try:
        tree = ast.parse(textwrap.dedent(inspect.getsource(kind)))
    except (OSError, TypeError, SyntaxError):  # defined at run time: there is no source to read
        return
    calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call)]
    names = {ast.unparse(call.func) for call in calls}
    called = [hook for hook in sorted(HOOKS) if f"self.{hook}" in names]
    finding.expect(
        not called,
        f"{kind.__name__} calls its own hook {called[:1]}: a plug-in around it would be bypassed",
    )


def _check_value(candidate: Candidate, algorithm: Algorithm, finding: Finding) -> None:
    """Check that an algorithm is a value: equal to another like it, hashable and picklable."""
    other = candidate.build()
    finding.expect(algorithm == other, "two algorithms with equal hyper-parameters are not equal")
    try:
        finding.expect(
            hash(algorithm) == hash(other),
            "two algorithms with equal hyper-parameters differ in hash",
        )
        finding.expect(
            pickle.loads(pickle.dumps(algorithm)) == algorithm,
            "it is not equal to itself after pickling",
        )
    except Exception as error:  # a class's own pickling may raise anything
        state = "keep state in the server or a memory"
        finding.expect(
            False, f"it cannot be hashed and pickled, as Ray's workers need: {error}; {state}"
        )


def _check_hooks(candidate: Candidate, finding: Finding) -> None:
    """Watch two rounds on a model with BatchNorm.

    A careless call would move its running statistics.
    """
    simulation = candidate.simulate(
        wrap=lambda algorithm: ContractMonitor(algorithm, Log(finding)), model="mlp+bn"
    )
    monitor = simulation.algorithm
    assert isinstance(monitor, ContractMonitor)
    before = _attributes(monitor.base)
    with finding.case("two rounds"):
        simulation.advance(ROUNDS)
    finding.expect(
        before == _attributes(monitor.base),
        "a run changes the algorithm itself: keep state in the server",
    )
    suffixes = set(monitor.evaluated(simulation.server))
    listed = set(candidate.entry.rows)
    finding.expect(
        suffixes == listed,
        f"evaluated gives the rows {sorted(suffixes)}, the entry lists {sorted(listed)}",
    )


def _attributes(algorithm: Algorithm) -> str:
    """Return all attributes of the algorithm's layers, fields or not, as text."""
    attributes = []
    for layer in layers(algorithm):
        values = sorted(vars(layer).items(), key=str)
        attributes.append((type(layer).__name__, values))
    return repr(attributes)

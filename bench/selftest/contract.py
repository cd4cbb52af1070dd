"""Check `contract`: the entry, the class and every hook are what `algorithms.base` asks for."""

from __future__ import annotations

import ast
import inspect
import pickle
import textwrap

from algorithms.base import Algorithm, Plugin, layers
from algorithms.plugins import methods
from bench.selftest.candidate import Candidate
from bench.selftest.certify import Finding
from bench.selftest.witness import Witness, watch

HOOKS = methods(Algorithm)
ROUNDS = 2


def contract(candidate: Candidate, finding: Finding) -> None:
    """Check the algorithm by itself, and by watching two rounds."""
    made = candidate.build()
    for layer in layers(made):
        _check_class(type(layer), finding)
    _check_value(candidate, made, finding)
    _check_hooks(candidate, finding)
    overridden = [hook for hook in HOOKS if any(hook in vars(type(layer)) for layer in layers(made))]
    count = len(candidate.entry.fields)
    finding.measured = f"overrides {', '.join(overridden) or 'nothing'}; {count} hyper-parameter{'s' * (count != 1)}"


def _check_class(kind: type[Algorithm], finding: Finding) -> None:
    """Depth one; a frozen dataclass; hooks of the contract's parameters, which call no other hook."""
    if kind is Algorithm:
        return
    direct = kind.__bases__ in ((Algorithm,), (Plugin,))
    bases = ", ".join(base.__name__ for base in kind.__bases__)
    finding.expect(direct, f"{kind.__name__} extends {bases}: extend Algorithm or Plugin alone, and nothing else")
    frozen = vars(kind).get("__dataclass_params__")
    finding.expect(frozen is not None and frozen.frozen, f"{kind.__name__} is no frozen dataclass of its own")
    for name in vars(kind).keys() & set(HOOKS):
        wanted = inspect.signature(getattr(Algorithm, name)).parameters
        try:
            inspect.signature(getattr(kind, name)).bind(*wanted)
        except TypeError:
            finding.expect(False, f"{kind.__name__}.{name} must take ({', '.join(wanted)})")
    try:
        tree = ast.parse(textwrap.dedent(inspect.getsource(kind)))
    except (OSError, TypeError, SyntaxError):  # made at run time: there is no text to read
        return
    calls = {ast.unparse(node.func) for node in ast.walk(tree) if isinstance(node, ast.Call)}
    called = [hook for hook in sorted(HOOKS) if f"self.{hook}" in calls]
    finding.expect(
        not called, f"{kind.__name__} calls its own hook {called[:1]}: a plug-in around it would be passed by"
    )


def _check_value(candidate: Candidate, made: Algorithm, finding: Finding) -> None:
    """An algorithm is a value: equal to another of the same hyper-parameters, hashable and picklable."""
    again = candidate.build()
    finding.expect(made == again, "two algorithms made alike are not equal")
    try:
        finding.expect(hash(made) == hash(again), "two algorithms made alike have different hashes")
        finding.expect(pickle.loads(pickle.dumps(made)) == made, "it is not equal to itself after pickling")
    except Exception as error:  # whatever a class's own pickling raises
        state = "state belongs into the server or a memory"
        finding.expect(False, f"it cannot be hashed and pickled, as Ray's workers need: {error}; {state}")


def _check_hooks(candidate: Candidate, finding: Finding) -> None:
    """Two watched rounds on a model with BatchNorm, whose running statistics a careless call would move."""
    simulation = candidate.simulate(wrap=lambda made: watch(made, finding), model="mlp+bn")
    witness = simulation.algorithm
    assert isinstance(witness, Witness)
    held = _contents(witness.base)
    with finding.case("two rounds"):
        simulation.advance(ROUNDS)
    finding.expect(held == _contents(witness.base), "a run changes the algorithm itself: keep state in the server")
    suffixes, listed = set(witness.evaluated(simulation.server)), set(candidate.entry.rows)
    finding.expect(suffixes == listed, f"evaluated gives the rows {sorted(suffixes)}, the entry lists {sorted(listed)}")


def _contents(algorithm: Algorithm) -> str:
    """Everything the algorithm holds, fields or not, as text."""
    return repr([(type(layer).__name__, sorted(vars(layer).items(), key=str)) for layer in layers(algorithm)])

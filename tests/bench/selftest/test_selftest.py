"""The conformance suite certifies what is right, and names the check that what is wrong fails."""

from __future__ import annotations

import inspect
import itertools
import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from textwrap import indent
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from conftest import holds
from torch.utils._python_dispatch import TorchDispatchMode

from algorithms import build, entry
from algorithms.base import Algorithm, Outputs
from bench.engine.pytree import leaves
from bench.engine.server_context import ServerSteps
from bench.engine.simulation import Simulation
from bench.engine.stacked.stack import _Active
from bench.engine.stacked.steps import Steps
from bench.selftest import whole_runs
from bench.selftest.candidate import Candidate, candidate
from bench.selftest.certify import CHECKS, Finding, compared, run_check
from bench.selftest.command import main
from bench.selftest.communication import ROUNDS, _traffic_by_round
from bench.selftest.contract import HOOKS
from bench.selftest.contract_monitor import ContractMonitor
from bench.selftest.equations.checks import ONE_CLIENT, Limit

HEAD = """
from dataclasses import dataclass, field
import torch
from algorithms.base import Algorithm, Server, hyper
from algorithms.losses import cross_entropy, kl, masked_mean
from algorithms.params import squared_distance

"""
RIGHT = '''
@dataclass(frozen=True)
class Anchor(Algorithm):
    """Distils from the received model, and stays near the client's own last one.

    Args:
        weight: of the distillation.
        pull: of the anchor.
        form: of the distillation.
    """

    weight: float = hyper(0.5, 0)
    pull: float = 0.1
    form: str = hyper("kl", choices=("kl", "mse"), packable=False)

    def init_client(self, fed, params):
        return {"last": params}

    def teachers(self, message, memory):
        return {"global": message["params"]}

    def local_loss(self, net, local, batch, message, memory, plan):
        logits, teacher = net(local["params"], batch.x).logits, batch.teacher["global"].logits
        term = kl(teacher, logits) if self.form == "kl" else (teacher - logits).square().mean(-1)
        anchor = self.pull * squared_distance(local["params"], memory["last"], net.trainable)
        return cross_entropy(logits, batch.y) + self.weight * term + anchor

    def upload(self, net, local, data, message, memory, plan):
        return {"params": local["params"]}, {"last": local["params"]}
'''
CROSS_ENTROPY = 'cross_entropy(net(local["params"], batch.x).logits, batch.y)'
WEIGHT = "weight: float = hyper(0.5, 0)"
MEAN = 'cohort.mean(uploads["params"])'
HOOKS_OF = {
    name: f"def {name}({', '.join(inspect.signature(getattr(Algorithm, name)).parameters)}):"
    for name in HOOKS
}


def method(field: str = "pass", first: str = "pass", loss: str = CROSS_ENTROPY, **more: str) -> str:
    """The source of an algorithm: a field, what its loss begins with and returns, and the bodies of further hooks."""
    hooks = {"local_loss": f"{first}\nreturn {loss}", **more}
    bodies = [
        f"{HOOKS_OF.get(name, f'def {name}(self):')}\n{indent(body, '    ')}"
        for name, body in hooks.items()
    ]
    return "@dataclass(frozen=True)\nclass Method(Algorithm):\n" + indent(
        "\n".join([field, *bodies]), "    "
    )


# What is wrong -> its source, the check that fails, and words of the reason.
WRONG = {
    "draws in the loss": (
        method(first="torch.rand(())", loss=CROSS_ENTROPY + " * (1 + 0.1 * torch.rand(()))"),
        {"backends": "random", "resume": "2 + 2", "contract": "generator"},
    ),
    "a field that does nothing": (method(WEIGHT), {"hyperparameters": "weight"}),
    "a range that is not checked": (
        method(WEIGHT, loss=CROSS_ENTROPY + " * self.weight", __post_init__="pass"),
        {"hyperparameters": "weight=-1"},
    ),
    "state in itself": (
        method(
            "seen: dict = field(default_factory=dict, init=False)",
            server_step=(
                'self.seen["rounds"] = self.seen.get("rounds", 0) + 1\n'
                f'return server.next({{n: w * (1 - 0.01 * self.seen["rounds"]) for n, w in {MEAN}.items()}})'
            ),
        ),
        {"contract": "hash", "resume": "2 + 2"},
    ),
    "a hook that calls another": (
        method(server_step=f"self.evaluated(server)\nreturn server.next({MEAN})"),
        {"contract": "'evaluated'"},
    ),
    "an upload without the head": (
        method(
            upload='return {"params": {"head.bias": local["params"]["head.bias"]}}, memory',
            server_step='return server.next({**server.params, **cohort.mean(uploads["params"])})',
        ),
        {"contract": "uploads_model = False"},
    ),
    "a gradient that cannot be mapped": (
        method(
            before_step=(
                'w = {n: v.detach().clone() for n, v in local["params"].items()}\n'
                "leaves = [w[n].requires_grad_() for n in net.trainable]\n"
                "loss = cross_entropy(net(w, batch.x).logits, batch.y).sum()\n"
                "torch.autograd.grad(loss, leaves)\n"
                "return local"
            )
        ),
        {"contract": "take gradients by torch.func.grad"},
    ),
    "no value": (
        method("__eq__ = lambda self, other: self is other\n__hash__ = lambda self: 0"),
        {"contract": "two algorithms with equal hyper-parameters are not equal"},
    ),
    "a hook that takes too little": (
        method().replace("memory, plan):", "memory):"),
        {"contract": "must take (self, net, local, batch, message, memory, plan)"},
    ),
    "a changed model before the step": (
        method(
            before_step='return {"params": {n: w * 0.9 for n, w in local["params"].items()}}',
        ),
        {"contract": "before_step replaces body.1.weight of params, which has no effect"},
    ),
    "a teacher that is computed": (
        method(teachers='return {"half": {n: w / 2 for n, w in message["params"].items()}}'),
        {"contract": "'half'"},
    ),
    "a text in the memory": (
        method(init_client='return {"state": "new"}'),
        {"contract": "init_client"},
    ),
    "asks a packable number": (
        method(WEIGHT, loss=CROSS_ENTROPY + " * (2 if self.weight > 0.3 else 1)"),
        {"backends": "weight"},
    ),
    "climbs": (method(loss="-" + CROSS_ENTROPY), {"learns": "0.33"}),
    "the server's labels in a memory": (
        method(init_client='return {"seen": fed.auxiliary.y}'),
        {"contract": "fed.auxiliary.y"},
    ),
    "the server's samples in a local": (
        method(start='return {"params": message["params"], "seen": fed.validation.x}'),
        {"contract": "fed.validation.x"},
    ),
    "the server's weights in the noise": (
        method(noise="return fed.auxiliary.weight[:batch_size]"),
        {"contract": "fed.auxiliary.weight"},
    ),
    "padding counts": (method(loss=f"({CROSS_ENTROPY}).mean()"), {"backends": "sample"}),
}


@pytest.fixture
def outside(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> Callable[[str], str]:
    """Writes a module, and gives its name, which no other test uses: modules stay imported."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))

    def write(source: str) -> str:
        name = f"outside_{abs(hash(request.node.name))}"
        (tmp_path / f"{name}.py").write_text(HEAD + source)
        return name

    return write


def certificate(captured: pytest.CaptureFixture[str], *arguments: str) -> SimpleNamespace:
    """The exit status, the only certificate's outcomes by check, and what was said on stderr."""
    status = main([*arguments, "--json"])
    out, err = captured.readouterr()
    found = json.loads(out)["certificates"][0]
    return SimpleNamespace(
        status=status, checks={o["check"]: o for o in found["outcomes"]}, err=err, **found
    )


def test_an_algorithm_from_outside_is_certified(
    outside: Callable[[str], str], capsys: pytest.CaptureFixture[str]
) -> None:
    found = certificate(capsys, f"{outside(RIGHT)}:Anchor")
    assert found.status == 0, found
    assert found.passed
    statuses = {name: outcome["status"] for name, outcome in found.checks.items()}
    unknown = {"reductions", "equations", "unlike_models"}
    assert statuses == {name: "not applicable" if name in unknown else "passed" for name in CHECKS}
    assert "1 P" in found.checks["communication"]["measured"]
    assert "1 P" in found.checks["memory"]["measured"]


@pytest.mark.parametrize("case", WRONG)
def test_what_is_wrong_fails_the_check_for_it(
    case: str, outside: Callable[[str], str], capsys: pytest.CaptureFixture[str]
) -> None:
    source, expected = WRONG[case]
    found = certificate(capsys, f"{outside(source)}:Method", "--only", *expected)
    assert found.status == 1
    for check, words in expected.items():
        outcome = found.checks[check]
        assert outcome["status"] == "failed", outcome
        assert any(words in problem for problem in outcome["problems"]), outcome["problems"]
        assert outcome["look"]


FAILING = method(WEIGHT, loss=CROSS_ENTROPY + " * local['no such thing']")


def test_nothing_more_is_checked_after_an_error_of_the_algorithms_own(
    outside: Callable[[str], str], capsys: pytest.CaptureFixture[str]
) -> None:
    name = f"{outside(FAILING)}:Method"
    found = certificate(capsys, name)
    assert {check: outcome["status"] for check, outcome in found.checks.items()} == {
        "contract": "failed"
    }
    assert (found.status, found.passed) == (1, False)
    assert main([name]) == 1
    assert capsys.readouterr().out.count("no such thing") == 1


@pytest.mark.parametrize(
    "change", [{"mu": 0.02}, {"prox_reduction": "mean_per_tensor"}], ids=["limits", "formulas"]
)
def test_a_wrong_built_in_is_found_out(change: dict, monkeypatch: pytest.MonkeyPatch) -> None:
    """FedProx that ignores a value: at mu=0 it is not FedAvg, or its term is not the printed one."""

    def deaf(self: Candidate, **values: Any) -> Algorithm:
        return build(self.name, **values | (change if self.name == "fedprox" else {}))

    monkeypatch.setattr(Candidate, "build", deaf)
    outcome = run_check(
        Candidate("fedprox", entry("fedprox")), "reductions" if "mu" in change else "equations"
    )
    assert outcome.status == "failed"
    assert all("differ" in problem for problem in outcome.problems)


class OtherRounding(TorchDispatchMode):
    """Another processor: every float32 result may be off by a unit in the last place, up or down."""

    def __init__(self, seed: int) -> None:
        super().__init__()
        self.generator = torch.Generator().manual_seed(seed)

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        if func.is_view:
            return result
        for tensor in leaves(result):
            if tensor.dtype == torch.float32:
                run_specs = torch.randint(-1, 2, tensor.shape, generator=self.generator)
                tensor.mul_(1 + 2.0**-23 * run_specs)
        return result


@pytest.mark.parametrize(
    "seed", [0, *(pytest.param(seed, marks=pytest.mark.slow) for seed in (1, 2))]
)
@pytest.mark.parametrize("name", ["fedavg", "fedbn", "feddf"])
def test_rounding_differently_is_no_fault(
    name: str, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """FedDF's Adam turns the rounding of a gradient near zero into a whole step."""
    advance = Simulation.advance

    def advance_elsewhere(run: Simulation, rounds: int = 1) -> None:
        if run.backend == "loop":
            return advance(run, rounds)
        with OtherRounding(seed):
            advance(run, rounds)

    monkeypatch.setattr(Simulation, "advance", advance_elsewhere)
    difference, bound = whole_runs.float32_distance(candidate(name), Finding())
    assert 0 < difference <= bound


def scaled_loss(right: Any, active: Any, **parts: Any) -> Any:
    return {name: value * 1.02 for name, value in right(active, **parts).items()}


def half_precise_inputs(right: Any, active: Any) -> Any:
    (x, *rest), keys = right(active)
    return (x.bfloat16().to(x.dtype), *rest), keys


def counted_padding(right: Any, active: Any) -> Any:
    (x, y, weight, *rest), keys = right(active)
    return (x, y, torch.ones_like(weight), *rest), keys


def sharper_teachers(right: Any, steps: Any) -> Any:
    return {
        name: Outputs(1.5 * out.logits, out.features) for name, out in right.fget(steps).items()
    }


def one_step_less(right: Any, steps: Any, *arguments: Any) -> Any:
    *others, count = arguments
    return right(steps, *others, count - 1)


FAULTS = [
    ("fedprox", _Active, "_loss", scaled_loss),
    ("fedbn", _Active, "_batch", half_precise_inputs),
    ("scaffold", _Active, "_batch", counted_padding),
    ("fedcad", Steps, "stored", sharper_teachers),
    ("feddf", ServerSteps, "_replayed", one_step_less),
]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "place", "part", "fault"), FAULTS, ids=[fault[-1].__name__ for fault in FAULTS]
)
def test_a_fault_of_one_backend_shows_in_float32(
    name: str, place: Any, part: str, fault: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    right = getattr(place, part)
    wrong: Any = lambda *arguments, **parts: fault(right, *arguments, **parts)  # noqa: E731
    monkeypatch.setattr(place, part, property(wrong) if isinstance(right, property) else wrong)
    difference, bound = whole_runs.float32_distance(candidate(name), Finding())
    assert 0 < bound < difference


@pytest.mark.parametrize(("name", "momentum"), [("fedavg", True), ("scaffold", False)])
def test_backends_are_compared_with_momentum_where_it_is_allowed(name: str, momentum: bool) -> None:
    cases = [fields for _, fields in whole_runs._backend_cases(candidate(name))]
    assert any(fields.get("momentum") for fields in cases) == momentum


@pytest.mark.parametrize("found", [[0.1], [1.0], [2.0, 0.1, 0.2], [2.0, 0.1, 3.0, 4.0, 0.2]])
def test_most_seeds_decide_in_float32(found: list[float], monkeypatch: pytest.MonkeyPatch) -> None:
    """Distances by seed, all with a bound of 1; seeds that cannot change the verdict are left out."""
    distances = itertools.chain.from_iterable((value, 1.0) for value in found)
    monkeypatch.setattr(whole_runs, "distance", lambda *_: next(distances))
    difference, bound = whole_runs.float32_distance(candidate("fedavg"), Finding())
    within = sum(value <= 1 for value in found)
    assert (difference <= bound) == (within > len(found) / 2)
    assert next(distances, None) is None


def test_a_figure_says_on_which_side_it_is() -> None:
    assert compared(1e-11, 1e-10) == "1.0e-11 <= 1e-10"
    assert compared(3.3e-5, 1e-5) == "3.3e-05 > 1e-05"
    assert compared(float("nan"), 1e-5) == "nan > 1e-05"


def test_a_failed_check_claims_no_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    right = _Active._loss
    monkeypatch.setattr(_Active, "_loss", lambda *one, **parts: scaled_loss(right, *one, **parts))
    outcome = run_check(Candidate("fedavg", entry("fedavg")), "backends")
    assert outcome.status == "failed"
    assert "<=" not in outcome.measured
    assert outcome.measured.count(" > ") == 3


@pytest.mark.parametrize(
    ("fields", "check", "words"),
    [
        ({"down": "2P"}, "communication", "8518 down, where '2P' is 17030 (P = 8515, C = 3)"),
        ({"down": "P + X"}, "communication", "P + X"),
        ({"keeps": "its model, P"}, "memory", "it keeps nothing"),
    ],
    ids=["amount", "letters", "keeps"],
)
def test_an_entry_that_is_wrong_is_told(fields: dict, check: str, words: str) -> None:
    outcome = run_check(Candidate("fedcad", replace(entry("fedcad"), **fields)), check)
    assert outcome.status == "failed"
    assert words in " ".join(outcome.problems)


def test_traffic_is_counted_in_every_round() -> None:
    rounds = _traffic_by_round(candidate("fedavg").simulate())
    assert len(rounds) == ROUNDS
    assert {counts["communications"] for counts in rounds} == {1}


def test_twelve_hooks_are_watched() -> None:
    assert len(HOOKS) == 12
    assert set(HOOKS) <= set(vars(ContractMonitor)), "each is forwarded by the monitor itself"


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ([], "--all"),
        (["fedavg", "--all"], "--all"),
        (["fedcat"], "fedcad"),
        (["fedavg", "--only", "resumes"], "resume"),
        (["nowhere:Method"], "'nowhere'"),
    ],
)
def test_a_wrong_request_is_refused(
    arguments: list[str], words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(arguments) == 2
    assert words in capsys.readouterr().err


READS_PUBLIC = """
from dataclasses import dataclass

from algorithms.base import Algorithm, hyper
from algorithms.losses import cross_entropy


@dataclass(frozen=True)
class Readers(Algorithm):
    needs = frozenset({"public"})
    weight: float = hyper(0.1, 0)

    def local_loss(self, net, local, batch, message, memory, plan):
        loss = cross_entropy(net(local["params"], batch.x).logits, batch.y)
        return loss + self.weight * net(local["params"], plan.public.x).logits.square().mean()
"""


def test_public_samples_in_a_pure_hook_are_no_fault_of_packs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "readers.py").write_text(READS_PUBLIC)
    monkeypatch.syspath_prepend(tmp_path)
    outcome = run_check(Candidate("readers:Readers", entry("readers:Readers")), "backends")
    assert outcome.status == "passed", outcome.problems


@pytest.mark.parametrize(
    ("limit", "text"),
    [
        (Limit({"mu": 0}), "mu=0 = fedavg"),
        (Limit({}, rows=("_t1", "")), "row _t1 = fedavg"),
        (Limit.of_equal_clients(mu=0), "mu=0, equal clients = fedavg"),
        (Limit({}, sizes=ONE_CLIENT, rounds=1), "one client, round 1 = fedavg"),
        (
            Limit({}, "feddkd", {"steps": 0}, without_batchnorm=True),
            "no BatchNorm = feddkd steps=0",
        ),
        (Limit({}), "as it is = fedavg"),
    ],
)
def test_a_limit_is_described(limit: Limit, text: str) -> None:
    assert str(limit) == text


@pytest.mark.parametrize("name", ["fedcad", "fedgkd_vote"])
def test_an_algorithm_is_another_with_values(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Limits that state the other's values, on one model; `make test-slow` has all on each."""
    monkeypatch.setattr(whole_runs, "LIMIT_MODELS", ("mlp",))
    holds(name, "reductions")


def test_fedbn_is_fedavg_on_models_without_batchnorm() -> None:
    holds("fedbn", "reductions")

"""The conformance suite certifies what is right, and names the check that what is wrong fails."""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from textwrap import indent
from types import SimpleNamespace
from typing import Any

import pytest

from algorithms import build, entry
from algorithms.base import Algorithm
from bench.selftest.candidate import Candidate
from bench.selftest.certify import CHECKS, run_check
from bench.selftest.command import main
from bench.selftest.contract import HOOKS
from bench.selftest.contract_monitor import ContractMonitor

HEAD = """
from dataclasses import dataclass, field
import torch
from algorithms.base import Algorithm, Server, hyper
from algorithms.losses import cross_entropy, kl
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
HOOKS_OF = {name: f"def {name}({', '.join(inspect.signature(getattr(Algorithm, name)).parameters)}):" for name in HOOKS}


def method(field: str = "pass", first: str = "pass", loss: str = CROSS_ENTROPY, **more: str) -> str:
    """The source of an algorithm: a field, what its loss begins with and returns, and the bodies of further hooks."""
    hooks = {"local_loss": f"{first}\nreturn {loss}", **more}
    bodies = [f"{HOOKS_OF.get(name, f'def {name}(self):')}\n{indent(body, '    ')}" for name, body in hooks.items()]
    return "@dataclass(frozen=True)\nclass Method(Algorithm):\n" + indent("\n".join([field, *bodies]), "    ")


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
    "writes to the message": (method(first='message["params"]["head.bias"] *= 0.9'), {"contract": "message"}),
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
    "not frozen": (method().replace("@dataclass(frozen=True)\n", ""), {"contract": "frozen"}),
    "a hook that takes too little": (
        method().replace("memory, plan):", "memory):"),
        {"contract": "must take (self, net, local, batch, message, memory, plan)"},
    ),
    "a teacher that is computed": (
        method(teachers='return {"half": {n: w / 2 for n, w in message["params"].items()}}'),
        {"contract": "'half'"},
    ),
    "a text in the memory": (method(init_client='return {"state": "new"}'), {"contract": "init_client"}),
    "asks a packable number": (
        method(WEIGHT, loss=CROSS_ENTROPY + " * (2 if self.weight > 0.3 else 1)"),
        {"backends": "weight"},
    ),
    "asks for the round": (method(loss=CROSS_ENTROPY + " * (2 if plan.round > 1 else 1)"), {"contract": "local_loss"}),
    "climbs": (method(loss="-" + CROSS_ENTROPY), {"learns": "0.33"}),
    "does not end": (
        method(
            init_server='return Server(params, extra={"all": ()})',
            server_step=f'return server.next({MEAN}, all=(*server.extra["all"], {MEAN}))',
        ),
        {"memory": "server"},
    ),
    "sends data": (
        method(upload='return {"params": local["params"], "sample": data.x[0]}, memory'),
        {"memory": "sample"},
    ),
    "padding counts": (method(loss=f"({CROSS_ENTROPY}).mean()"), {"backends": "sample"}),
}


@pytest.fixture
def outside(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> Callable[[str], str]:
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
    return SimpleNamespace(status=status, checks={o["check"]: o for o in found["outcomes"]}, err=err, **found)


def test_an_algorithm_from_outside_is_certified(
    outside: Callable[[str], str], capsys: pytest.CaptureFixture[str]
) -> None:
    found = certificate(capsys, f"{outside(RIGHT)}:Anchor")
    assert found.status == 0, found
    assert found.passed
    statuses = {name: outcome["status"] for name, outcome in found.checks.items()}
    unknown = {"reductions", "equations"}
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
    assert {check: outcome["status"] for check, outcome in found.checks.items()} == {"contract": "failed"}
    assert (found.status, found.passed) == (1, False)
    assert main([name]) == 1
    assert capsys.readouterr().out.count("no such thing") == 1


@pytest.mark.parametrize("change", [{"mu": 0.02}, {"prox_reduction": "mean_per_tensor"}], ids=["limits", "formulas"])
def test_a_wrong_built_in_is_found_out(change: dict, monkeypatch: pytest.MonkeyPatch) -> None:
    """FedProx that ignores a value: at mu=0 it is not FedAvg, or its term is not the printed one."""

    def deaf(self: Candidate, **values: Any) -> Algorithm:
        return build(self.name, **values | (change if self.name == "fedprox" else {}))

    monkeypatch.setattr(Candidate, "build", deaf)
    outcome = run_check(Candidate("fedprox", entry("fedprox")), "reductions" if "mu" in change else "equations")
    assert outcome.status == "failed"
    assert all("differ" in problem for problem in outcome.problems)


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


def test_eleven_hooks_are_watched() -> None:
    assert len(HOOKS) == 11
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
def test_a_wrong_request_is_refused(arguments: list[str], words: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(arguments) == 2
    assert words in capsys.readouterr().err

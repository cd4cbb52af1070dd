"""Certificates in print and as JSON, what the command refuses, and how checks end."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from importlib.metadata import version
from types import SimpleNamespace

import pytest
import torch

from algorithms import ALGORITHMS, entry
from bench import __version__
from bench.selftest import certify as certifying
from bench.selftest import command
from bench.selftest.candidate import Candidate, candidate
from bench.selftest.certify import (
    CHECKS,
    Certificate,
    CheckOutcome,
    Finding,
    NotApplicable,
    certify,
    run_check,
)
from bench.selftest.equations import CHECKS as COMPARISONS
from bench.selftest.equations import Check, equations

Patch = pytest.MonkeyPatch
Captured = pytest.CaptureFixture[str]

PASSED = CheckOutcome("resume", "passed", "2 + 2 rounds equal 4 bit for bit, 3 cases", 1.26)
LEFT_OUT = CheckOutcome(
    "equations", "not applicable", "no paper of this suite has its equations", 0
)
FAILED = CheckOutcome(
    "memory",
    "failed",
    "server 2 P, a client keeps 0 P",
    0.04,
    ("the server grows every round, from 10 to 40 floats", "an upload [bold]holds[/] a sample"),
    "server.extra and what `upload` returns",
)
VERSIONS = f"fedkd-bench {__version__}, torch {version('torch')}, CPU"


@pytest.fixture
def certificates(monkeypatch: Patch) -> dict[str, tuple[CheckOutcome, ...]]:
    """Outcomes by algorithm; what the command asks for is under `asked`."""
    outcomes: dict[str, tuple[CheckOutcome, ...]] = {}

    def certified(tested: Candidate, checks: tuple[str, ...], verbose: bool) -> Certificate:
        outcomes["asked"] = (*outcomes.get("asked", ()), (tested.name, checks, verbose))
        given = outcomes[tested.name]
        return Certificate(tested.name, tested.entry.factory, tested.entry.version, given)

    monkeypatch.setattr(command, "certify", certified)
    return outcomes


WHOLE = f"""\
fedavg (algorithms.fedavg:FedAvg, version 1): 1 passed, 1 failed, 1 not applicable
check      result          measured                                     s
─────────────────────────────────────────────────────────────────────────────
resume     passed          2 + 2 rounds equal 4 bit for bit, 3 cases    1.3
memory     failed          server 2 P, a client keeps 0 P               0.0
equations  not applicable  no paper of this suite has its equations     0.0
memory failed:
  the server grows every round, from 10 to 40 floats
  an upload [bold]holds[/] a sample
  look at: server.extra and what `upload` returns
NOT certified: fedavg (1 passed, 1 failed, 1 not applicable; {VERSIONS})
"""
LINES = f"""\
fedprox (algorithms.fedprox:FedProx, version 1): 1 passed
fedavg (algorithms.fedavg:FedAvg, version 1): 1 passed, 1 not applicable
Certified (2 passed, 1 not applicable; {VERSIONS})
"""
SOME_FAILED = f"""\
fedprox (algorithms.fedprox:FedProx, version 1): 1 failed
memory failed:
  the server grows every round, from 10 to 40 floats
  an upload [bold]holds[/] a sample
  look at: server.extra and what `upload` returns
fedavg (algorithms.fedavg:FedAvg, version 1): 1 passed
NOT certified: fedprox (1 passed, 1 failed; {VERSIONS})
"""


def in_words(printed: str) -> list[str]:
    """The words of a text: its lines break at 80 columns."""
    return [word for word in printed.split() if not word.startswith("─")]


def test_one_certificate_in_print(certificates: dict, capsys: Captured) -> None:
    certificates["fedavg"] = (PASSED, FAILED, LEFT_OUT)
    assert command.main(["fedavg", "-v"]) == 1
    printed = capsys.readouterr()
    assert in_words(printed.out) == in_words(WHOLE)
    assert printed.err == "[1/1] fedavg\n"
    assert certificates["asked"] == (("fedavg", tuple(CHECKS), True),)


def test_a_table_has_a_line_for_each_check(certificates: dict, capsys: Captured) -> None:
    certificates["fedavg"] = (PASSED, LEFT_OUT)
    command.main(["fedavg"])
    assert capsys.readouterr().out.splitlines()[1:-1] == [
        "check       result           measured                                    s  ",
        "─" * 76,
        "resume      passed           2 + 2 rounds equal 4 bit for bit, 3 cases   1.3",
        "equations   not applicable   no paper of this suite has its equations    0.0",
    ]


@pytest.mark.parametrize(
    ("of_fedprox", "of_fedavg", "status", "expected"),
    [
        ((PASSED,), (PASSED, LEFT_OUT), 0, LINES),
        ((FAILED,), (PASSED,), 1, SOME_FAILED),
    ],
)
def test_several_certificates_in_print(
    of_fedprox: tuple,
    of_fedavg: tuple,
    status: int,
    expected: str,
    certificates: dict,
    capsys: Captured,
) -> None:
    certificates |= {"fedprox": of_fedprox, "fedavg": of_fedavg}
    names = ["fedprox,fedavg", "fedprox", "--only", "memory", "resume"]
    assert command.main(names) == status
    printed = capsys.readouterr()
    assert in_words(printed.out) == in_words(expected)
    assert printed.err == "[1/2] fedprox\n[2/2] fedavg\n"
    asked = ("resume", "memory")
    assert certificates["asked"] == (("fedprox", asked, False), ("fedavg", asked, False))


def test_lines_are_as_long_as_80_columns(certificates: dict, capsys: Captured) -> None:
    long = " ".join(["a"] * 90)
    certificates["fedavg"] = (replace(FAILED, problems=(long,)),)
    command.main(["fedavg"])
    lines = capsys.readouterr().out.splitlines()
    assert max(map(len, lines[2:-1])) == 80


def test_certificates_as_json(certificates: dict, capsys: Captured) -> None:
    certificates |= {"fedprox": (PASSED, FAILED), "fedavg": (PASSED, LEFT_OUT)}
    assert command.main(["fedprox", "fedavg", "--json"]) == 1
    report = json.loads(capsys.readouterr().out)
    of_fedprox, of_fedavg = report.pop("certificates")
    assert report == {
        "package_version": __version__,
        "torch": version("torch"),
        "passed": False,
    }
    assert (of_fedprox["passed"], of_fedavg["passed"]) == (False, True)
    assert (of_fedprox["seconds"], of_fedavg["seconds"]) == (1.3, 1.26)
    assert of_fedprox["outcomes"][1] == {
        "check": "memory",
        "status": "failed",
        "measured": "server 2 P, a client keeps 0 P",
        "seconds": 0.04,
        "problems": list(FAILED.problems),
        "look": "server.extra and what `upload` returns",
        "raised": False,
    }


def test_all_is_every_registered_algorithm(certificates: dict, capsys: Captured) -> None:
    certificates |= dict.fromkeys(ALGORITHMS, (PASSED,))
    torch.set_num_threads(2)
    assert command.main(["--all"]) == 0
    assert torch.get_num_threads() == 1
    assert [name for name, *_ in certificates["asked"]] == list(ALGORITHMS)
    printed = capsys.readouterr()
    verdict = in_words(f"Certified ({len(ALGORITHMS)} passed; {VERSIONS})")
    assert in_words(printed.out)[-len(verdict) :] == verdict
    assert printed.err.startswith(f"[1/{len(ALGORITHMS)}] ")


def test_an_own_algorithm_is_named_once(certificates: dict, capsys: Captured) -> None:
    name = "algorithms.fedprox:FedProx"
    certificates[name] = (PASSED,)
    assert command.main([name]) == 0
    shown = f"{name} (version {entry(name).version}): 1 passed"
    assert in_words(capsys.readouterr().out)[: len(shown.split())] == shown.split()


NO_NAMES = "name the algorithms to certify, or --all; `python -m bench.sweep --list` shows them"


@pytest.mark.parametrize("words", [[], ["fedavg", "--all"]])
def test_names_or_all_but_not_both(words: list[str], capsys: Captured) -> None:
    assert command.main(words) == 2
    assert NO_NAMES in " ".join(capsys.readouterr().err.split())


def test_the_command_is_a_module() -> None:
    words = [sys.executable, "-m", "bench.selftest", "--help"]
    shown = subprocess.run(words, capture_output=True, text=True, check=True)
    assert shown.stdout.startswith("usage: python -m bench.selftest")
    for option in ("NAME", "--all", "--only CHECK", "--json", "-v, --verbose"):
        assert option in shown.stdout


# How checks end


def passes(candidate: Candidate, finding: Finding) -> None:
    finding.measured = "a figure"


def fails(candidate: Candidate, finding: Finding) -> None:
    finding.measured = "a figure"
    finding.expect(True, "a")
    finding.expect(False, "b")
    finding.expect(False, "c")
    finding.expect(False, "b")


def raises(candidate: Candidate, finding: Finding) -> None:
    finding.expect(False, "before")
    with finding.case("one"):
        raise ValueError("e")
    with finding.case():
        raise KeyError("f")
    raise RuntimeError("g")


def left_out(candidate: Candidate, finding: Finding) -> None:
    finding.expect(False, "before")
    with finding.case("one"):
        raise NotApplicable("no such thing")


@pytest.fixture
def invented(monkeypatch: Patch) -> Iterator[Callable[..., None]]:
    """Replaces the checks."""

    def replace_checks(**checks: Callable[..., None]) -> None:
        monkeypatch.setitem(sys.modules, "bench.selftest.invented", SimpleNamespace(**checks))
        places = {name: ("invented", f"the {name}") for name in checks}
        monkeypatch.setattr(certifying, "CHECKS", places)

    clock = iter(range(100, 200, 3))
    monkeypatch.setattr(certifying.time, "perf_counter", lambda: next(clock))
    return replace_checks


FEDAVG = candidate("fedavg")


def without_places(outcome: CheckOutcome) -> CheckOutcome:
    """The outcome without the places of errors, ` (file.py:12)`."""
    problems = [problem.partition(" (test_")[0] for problem in outcome.problems]
    return replace(outcome, problems=tuple(problems))


def test_how_a_check_ends(invented: Callable[..., None]) -> None:
    invented(resume=passes, memory=fails, contract=raises, learns=left_out, backends=raises)
    assert run_check(FEDAVG, "resume") == CheckOutcome("resume", "passed", "a figure", 3)
    assert run_check(FEDAVG, "memory") == CheckOutcome(
        "memory", "failed", "a figure", 3, ("b", "c"), "the memory"
    )
    problems = ("before", "one: ValueError: e", "KeyError: 'f'", "RuntimeError: g")
    last = "the contract; no further checks run after an error here"
    outcome = run_check(FEDAVG, "contract")
    assert without_places(outcome) == CheckOutcome(
        "contract", "failed", "", 3, problems, last, True
    )
    outcome = run_check(FEDAVG, "backends")
    assert without_places(outcome) == CheckOutcome(
        "backends", "failed", "", 3, problems, "the backends", True
    )
    assert run_check(FEDAVG, "learns") == CheckOutcome(
        "learns", "not applicable", "no such thing", 3
    )


def test_tracebacks_are_shown_if_asked_for(invented: Callable[..., None]) -> None:
    invented(backends=raises, memory=fails)
    outcome = run_check(FEDAVG, "backends", verbose=True)
    assert len(outcome.problems) == 4 + 3
    for problem, error in zip(outcome.problems[4:], ("e", "'f'", "g"), strict=True):
        assert problem.startswith("Traceback (most recent call last):\n")
        assert problem.endswith(f"Error: {error}")
    assert run_check(FEDAVG, "memory", verbose=True).problems == ("b", "c")


@pytest.mark.parametrize(
    ("checks", "run"),
    [
        ({"contract": raises, "resume": passes}, ["contract"]),
        ({"contract": fails, "resume": passes}, ["contract", "resume"]),
        ({"resume": raises, "memory": passes}, ["resume", "memory"]),
        ({"resume": passes, "contract": raises, "memory": passes}, ["resume", "contract"]),
    ],
)
def test_an_error_in_the_contract_is_the_end(
    checks: dict, run: list[str], invented: Callable[..., None]
) -> None:
    invented(**checks)
    certificate = certify(FEDAVG, checks)
    assert [outcome.check for outcome in certificate.outcomes] == run
    assert not certificate.passed
    assert (certificate.algorithm, certificate.factory, certificate.version) == (
        *("fedavg", "algorithms.fedavg:FedAvg"),
        entry("fedavg").version,
    )


def test_the_checks_of_the_module_are_run() -> None:
    assert run_check(FEDAVG, "unlike_models").status == "not applicable"
    assert tuple(CHECKS) == certify.__defaults__[0]  # type: ignore[index]


# The `equations` check


def of_gap(*gaps: float) -> Check:
    """A comparison with these gaps."""
    return Check("a title", "a source", lambda run: iter(gaps))


@pytest.mark.parametrize(
    ("checks", "measured", "problems"),
    [
        ((), "largest gap 0.0e+00 <= 1e-10; 0 compared", ["no formula is written for it"]),
        ((of_gap(1e-10, 0.0), of_gap(0.0)), "largest gap 1.0e-10 <= 1e-10; 2 compared", []),
        (
            (of_gap(0.0, 2e-10),),
            "largest gap 2.0e-10 > 1e-10; 1 compared",
            ["a title (a source): differs by 2.0e-10 > 1e-10"],
        ),
    ],
)
def test_gaps_from_formulas_have_a_bound(
    checks: tuple[Check, ...], measured: str, problems: list[str], monkeypatch: Patch
) -> None:
    monkeypatch.setitem(COMPARISONS, "fedavg", checks)
    finding = Finding()
    equations(FEDAVG, finding)
    assert finding.measured == measured
    assert finding.problems == problems


def test_an_error_is_told_of_its_comparison(monkeypatch: Patch) -> None:
    def gaps(run: object) -> Iterator[float]:
        raise ValueError("e")

    broken = Check("broken", "a source", gaps)
    monkeypatch.setitem(COMPARISONS, "fedavg", (broken, of_gap(1.0)))
    finding = Finding()
    equations(FEDAVG, finding)
    assert [problem.partition(" (test")[0] for problem in finding.problems] == [
        "broken (a source): ValueError: e",
        "a title (a source): differs by 1.0e+00 > 1e-10",
    ]

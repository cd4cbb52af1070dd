"""The `communication` and `memory` checks: what words of traffic mean, and what is noticed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from test_selftest import CROSS_ENTROPY, method, outside

from algorithms import entry
from bench.selftest.candidate import Candidate, candidate
from bench.selftest.certify import CheckOutcome, run_check
from bench.selftest.communication import amount, symbol_values

__all__ = ["outside"]

SYMBOLS = {"P": 100, "Pn": 90, "C": 3, "D": 5, "M": 2, "J": 4}
ONE_MODEL = {**SYMBOLS, "M": 1}


@pytest.mark.parametrize(
    ("words", "in_rounds"),
    [
        ("nothing in round 1, then P", None),
        ("0", (0, 0, 0)),
        ("P", (100, 100, 100)),
        ("2 P + 1", (201, 201, 201)),
        ("C(D + 1)", (18, 18, 18)),
        ("C D^2", (75, 75, 75)),
        ("P without BatchNorm", (90, 90, 90)),
        ("P in round 1, then 2 P", (100, 200, 200)),
        ("P + C in round 1, then P", (103, 100, 100)),
        ("P from round 2", (0, 100, 100)),
        ("C; P from round 3", (3, 3, 100)),
        ("P; P + C from round 2 if M > 1", (100, 103, 103)),
        ("min(t-1, M) (P + 1)", (0, 101, 202)),
        ("P +", None),
        ("P + X", None),
    ],
)
def test_words_of_traffic_are_numbers(words: str, in_rounds: tuple[int, ...] | None) -> None:
    if in_rounds is None:
        with pytest.raises(ValueError, match="cannot read"):
            amount(words, SYMBOLS, 1)
        return
    assert tuple(amount(words, SYMBOLS, number) for number in (1, 2, 3)) == in_rounds


def test_a_condition_on_the_buffer_needs_two_models() -> None:
    assert amount("P; P + C from round 2 if M > 1", ONE_MODEL, 2) == 100


def test_symbols_are_those_of_the_run() -> None:
    tested = candidate("fedgkd")
    plain = symbol_values(tested, {}, tested.simulate(model="mlp"))
    values = symbol_values(tested, {"buffer": 3}, tested.simulate(model="mlp+bn"))
    assert values["Pn"] == plain["P"] == plain["Pn"] == 8515
    assert values["P"] == 8515 + 2 * 4 * 64
    assert {name: values[name] for name in "CDMJS"} == {"C": 3, "D": 64, "M": 3, "J": 0, "S": 0}


def outcome_of(name: str, check: str, **fields: Any) -> CheckOutcome:
    """The outcome of a check of an algorithm whose entry says something else."""
    return run_check(Candidate(name, replace(entry(name), **fields)), check)


@pytest.mark.parametrize(
    ("name", "fields", "problem"),
    [
        ("fedavg", {"down": "at most 2P"}, ""),
        ("fedavg", {"down": "at most P"}, ""),
        (
            "fedavg",
            {"down": "at most C"},
            "round=1: 8515 down, where 'at most C' is 3 (P = 8515, C = 3)",
        ),
        (
            "fedavg",
            {"up": "P + 1 in round 1, then P"},
            "round=1: 8515 up, where 'P + 1 in round 1, then P' is 8516 (P = 8515, C = 3)",
        ),
        (
            "fedgkd",
            {"down": "P in round 1, then 2P"},
            "round=2, buffer=1: 8515 down, where 'P in round 1, then 2P' is 17030 "
            "(P = 8515, C = 3)",
        ),
        (
            "fedgkd_vote",
            {"down": "P in round 1, then min(t-1, 5) (P + 1)"},
            "round=4, buffer=2: 17032 down, where 'P in round 1, then min(t-1, 5) (P + 1)' is "
            "25548 (P = 8515, C = 3)",
        ),
        (
            "fedavg",
            {"down": "0", "up": "0"},
            "round=1: 8515 down, where '0' is 0 (P = 8515, C = 3)\n"
            "round=1: 8515 up, where '0' is 0 (P = 8515, C = 3)\n"
            "round=1: 1 communications, where 'one exchange and J requests' is 0 "
            "(P = 8515, C = 3)",
        ),
    ],
)
def test_traffic_is_compared_with_the_entry(name: str, fields: dict, problem: str) -> None:
    outcome = outcome_of(name, "communication", **fields)
    first = [said for said in outcome.problems if said in problem]
    assert "\n".join(first) == problem
    assert outcome.status == ("failed" if problem else "passed")
    assert outcome.measured.endswith("in round 4" if problem else "in round 4, all as declared")


@pytest.mark.parametrize("name", ["feddkd", "fedgen", "fedmd"])
def test_traffic_of_servers_of_their_own_is_as_declared(name: str) -> None:
    assert run_check(candidate(name), "communication").status == "passed"


@pytest.mark.parametrize(
    ("name", "keeps", "problem"),
    [
        ("scaffold", "nothing", "the entry says a client keeps nothing, it keeps 8515 numbers"),
        (
            "scaffold",
            "its model, 2P",
            "a client keeps 8515 numbers, where 'its model, 2P' is 17030",
        ),
        ("scaffold", "its model", ""),
        ("fedavg", "its model", "the entry says a client keeps 'its model', it keeps nothing"),
        ("fedavg", "nothing", ""),
    ],
)
def test_memory_is_compared_with_the_entry(name: str, keeps: str, problem: str) -> None:
    outcome = outcome_of(name, "memory", keeps=keeps)
    assert "\n".join(outcome.problems).partition(" (")[0] == problem
    measured = {
        "scaffold": "server 2 P, a client keeps 1 P",
        "fedavg": "server 1 P, a client keeps 0 P",
    }
    assert outcome.measured == measured[name]


GROWING = method(
    init_server='return Server(params, extra={"all": ()})',
    server_step=(
        'mean = cohort.mean(uploads["params"])\n'
        'return server.next(mean, all=(*server.extra["all"], torch.zeros(5).double()))'
    ),
)
SAMPLES = {
    "one": ("data.x[0]", True),
    "all": ("data.x[:3]", True),
    "flat, in other words": ("data.x[:3].flatten() + 1e-12", True),
    "their mean": ("data.x.mean(0)", False),
    "halves of them": ("data.x[:3, :, :4]", False),
}


@pytest.mark.parametrize("case", SAMPLES)
def test_samples_in_an_upload_are_noticed(case: str, outside: Callable[[str], str]) -> None:
    sent, is_sample = SAMPLES[case]
    source = method(upload=f'return {{"params": local["params"], "sent": {sent}}}, memory')
    name = f"{outside(source)}:Method"
    problems = run_check(Candidate(name, entry(name)), "memory").problems
    told = "an upload holds a client's sample: data must stay with its client"
    assert problems == ((told,) if is_sample else ())


def test_a_growing_server_is_noticed(outside: Callable[[str], str]) -> None:
    name = f"{outside(GROWING)}:Method"
    outcome = run_check(Candidate(name, entry(name)), "memory")
    assert outcome.problems == ("the server grows every round, from 8520 to 8575 floats",)


def test_what_an_own_algorithm_sends_is_measured(outside: Callable[[str], str]) -> None:
    name = f"{outside(method(loss=CROSS_ENTROPY))}:Method"
    outcome = run_check(Candidate(name, entry(name)), "communication")
    assert outcome.measured == "down 1 P; up 1 P in round 4"

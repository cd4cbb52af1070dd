"""Titles of comparisons tell the values that are compared; limits hold to rounding."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import chain

import pytest

from algorithms import ALGORITHMS
from bench.selftest.equations import CHECKS, LIMITS, Check
from bench.selftest.equations.checks import ROUNDING

ALIASES = {
    "T": ("temperature", "era_temperature"),
    "M": ("buffer",),
    "J": ("steps",),
    "a": ("distillation_weight",),
    "alpha": ("missing_scale",),
    "lambda": ("mu", "distillation_weight", "proto_weight"),
    "tau": ("tau", "temperature"),
    "gamma": ("gamma", "distillation_weight"),
}


def told(name: str, check: Check) -> Iterator[tuple[str, str, list[str]]]:
    """What a title says: a hyper-parameter, its value, and the values that the check gives."""
    values = {**ALGORITHMS[name].defaults(), **check.options, "momentum": check.momentum}
    for word, value in re.findall(r"(\w+)=([\w.-]+)", check.title):
        names = ALIASES.get(word, (word,))
        yield word, value, [str(values[own]) for own in names if own in values]


@pytest.mark.parametrize("name", CHECKS)
def test_titles_tell_the_values_compared(name: str) -> None:
    for check in CHECKS[name]:
        for word, value, given in told(name, check):
            is_told = value in given or f"{value}.0" in given
            assert is_told, f"{check.title}: {word} is {given}"


def test_titles_tell_values_at_all() -> None:
    assert sum(len(list(told(name, check))) for name in CHECKS for check in CHECKS[name]) > 80


OF_WORDS = {
    "without weight decay": {"generator_weight_decay": 0.0},
    "without momentum": {"server_momentum": 0.0},
    "the head alone": {"head_share": 1.0},
    "the body alone": {"head_share": 0.0},
    "steps on single prototypes": {"server_batch_size": 1, "server_epochs": 1},
    "two batches of four samples": {"public_samples": 4, "digest_batch_size": 2},
    "8 batches of 5 auxiliary samples": {"max_steps": 8, "server_batch_size": 5},
    "validated every 4th step": {"check_every": 4},
    "without a better checkpoint for 5 steps": {"patience": 5},
    "12 steps": {"max_steps": 12},
    "6 steps": {"max_steps": 6},
    "requests of 64 samples": {"batch_size": 64},
    "2 of 3 rounds without requests": {"warmup_rounds": 2},
    "7 of 10 answers": {"dkd_dropout": 0.7},
    "the same, weighted by examples": {"dkd_dropout": 0.7, "dkd_weights": "examples"},
    "own table included": {"fd_exclude_self": False},
    "adversarial": {"adversarial": True},
    "phi at its own temperature 1": {"phi_temperature": 1.0},
    "times T^2": {"kd_t_squared": True},
    "the last two models": {"buffer": 2},
    "the last three models": {"buffer": 3},
    "without BatchNorm": {"norm": False},
    "with BatchNorm": {"norm": True},
    "both models, loss and gradient": {"norm": True},
    "round 1 is without": {"momentum": 0.0},
    "with momentum": {"momentum": 0.9},
    "augmented requests": {"dkd_augmented": True},
}


@pytest.mark.parametrize("words", OF_WORDS)
def test_titles_say_what_is_compared(words: str) -> None:
    for check in chain(*CHECKS.values()):
        if words in check.title:
            values = {**check.options, "norm": check.norm, "momentum": check.momentum}
            expected = OF_WORDS[words]
            assert {name: values[name] for name in expected} == expected, check.title


def test_limits_hold_to_rounding() -> None:
    assert pytest.approx(1e-12) == ROUNDING
    for limit in chain(*LIMITS.values()):
        assert limit.tolerance in (0, ROUNDING)
        assert 0 < limit.rounds <= 3
    assert {limit.rounds for limit in LIMITS["scaffold"]} == {1}

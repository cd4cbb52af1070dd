"""Words of all commands: durations, counts, lists, near names."""

from __future__ import annotations

import pytest

from bench.charts.theme import TICKS, whole_numbers
from bench.terminal.words import (
    counted,
    duration,
    flag,
    folded,
    listed,
    no_effect,
    run_keys,
    seeds_in_words,
    span,
    text,
    unknown,
)

MINUTE = 60
HOUR = 60 * MINUTE
DAY = 24 * HOUR


@pytest.mark.parametrize(
    ("seconds", "printed"),
    [
        (0, "1 s"),
        (119, "119 s"),
        (2 * MINUTE, "2 min"),
        (2 * HOUR - 31, "119 min"),
        (2 * HOUR, "2.0 h"),
        (3.4 * HOUR, "3.4 h"),
        (2 * DAY - HOUR, "47.0 h"),
        (2 * DAY, "2.0 days"),
        (2.1 * DAY, "2.1 days"),
    ],
)
def test_a_duration_has_one_unit(seconds: float, printed: str) -> None:
    assert duration(seconds) == printed


@pytest.mark.parametrize(
    ("low", "high", "printed"),
    [
        (4 * MINUTE, 9 * MINUTE, "4 to 9 min"),
        (90, 3 * MINUTE, "90 s to 3 min"),
        (4 * MINUTE, 4 * MINUTE + 1, "4 min"),
    ],
)
def test_a_span_names_a_shared_unit_once(low: float, high: float, printed: str) -> None:
    assert span(low, high) == printed


@pytest.mark.parametrize("last", [3, 100, 10**9, 2**62])
def test_an_axis_has_few_ticks(last: int) -> None:
    assert 2 <= len(whole_numbers(1, last)) <= TICKS + 1


def test_a_noun_has_its_number() -> None:
    texts = [counted(number, "run") for number in (0, 1, 2, 1200)]
    assert texts == ["0 runs", "1 run", "2 runs", "1,200 runs"]
    assert listed("seed", [0]) == "seed 0"
    assert listed("seed", {1, 0}) == "seeds 0, 1"
    assert listed("seed", []) == "seeds "


@pytest.mark.parametrize(
    ("seeds", "words"),
    [
        ([], ""),
        ([7], "7"),
        ([1, 2], "1 to 2"),
        ([1, 2, 3, 5, 7, 8], "1 to 3, 5, 7 to 8"),
        ([3, 2, 1], "3, 2, 1"),
    ],
)
def test_ranges_of_seeds_are_shortened(seeds: list[int], words: str) -> None:
    assert seeds_in_words(seeds) == words


def test_of_many_keys_five_are_listed() -> None:
    keys = [f"{number:064}" for number in range(7)]
    short = [key[:16] for key in keys]
    assert run_keys(keys[:5]) == ", ".join(short[:5])
    assert run_keys(keys[:6]) == ", ".join(short[:5]) + " and 1 more"
    assert run_keys(keys) == ", ".join(short[:5]) + " and 2 more"


@pytest.mark.parametrize(
    ("value", "typed"),
    [(0.1, "0.1"), (1.0, "1"), (1 / 3, "0.333333"), (True, "true"), (None, "none"), ("a", "a")],
)
def test_a_value_is_written_as_typed(value: object, typed: str) -> None:
    assert text(value) == typed
    kept = f"f has no effect with the other settings: it is left at {typed}"
    assert no_effect("f", value) == kept


def test_an_empty_value_is_the_default() -> None:
    assert no_effect("f", "").endswith("it is left at its default")


def test_a_name_is_answered_with_the_nearest() -> None:
    near = "no data set 'digit' (did you mean digits?); known: cifar10, digits"
    assert str(unknown("data set", "digit", ["digits", "cifar10"])) == near
    far = str(unknown("data set", "xyz", ["digits"]))
    assert far == "no data set 'xyz'; known: digits"
    file = str(unknown("algorithm", "mine.py", ["fedavg"], importable=True))
    assert file.startswith("no algorithm 'mine.py': ")
    assert "known" not in file
    assert "known" in str(unknown("algorithm", "mine.py", ["fedavg"]))


def test_options_are_flags() -> None:
    assert [flag(name) for name in ("pack", "import_", "data_dir")] == [
        "--pack",
        "--import",
        "--data-dir",
    ]


def test_hyperparameters_are_folded_between_values() -> None:
    short = "beta=0.3 gamma=0.7"
    assert folded(short) == [short]
    assert folded(f"{short} temperature=2") == [short, "temperature=2"]
    by_column = "distillation_weight=0.1|0.3|0.5|0.7"
    assert folded(by_column) == ["distillation_weight=0.1|0.3|", "0.5|0.7"]
    uncut = "a_hyperparameter_with_a_long_name=0.25"
    assert folded(f"beta=1 {uncut} mu=2") == ["beta=1", uncut, "mu=2"]

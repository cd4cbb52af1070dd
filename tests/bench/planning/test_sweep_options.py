"""`SweepOptions`: texts of the command line, limits of numbers, and what follows from options."""

from __future__ import annotations

from argparse import ArgumentTypeError

import pytest

from bench.errors import UsageError
from bench.planning.options import SweepOptions, named_or_own, parse_replicates, parse_set
from bench.sweep.parser import make_parser, parse


@pytest.mark.parametrize(
    ("words", "values"),
    [
        (["mu=0.1,1", "mu=1,2", "a= b ,c"], {"mu": ("0.1", "1", "2"), "a": ("b", "c")}),
        (['a="x,y",z'], {"a": ("x,y", "z")}),
        (["a=1,,2", " b =1"], {"a": ("1", "2"), "b": ("1",)}),
        ([], {}),
    ],
)
def test_values_are_separated_by_commas(
    words: list[str], values: dict[str, tuple[str, ...]]
) -> None:
    assert parse_set(words) == values


@pytest.mark.parametrize("word", ["a", "=1", "a=", 'a="x', "a=x\ny", "a=,"])
def test_words_without_name_or_value(word: str) -> None:
    with pytest.raises(UsageError) as refused:
        parse_set([word], "--confirm-at")
    assert str(refused.value) == f"--confirm-at takes name=value[,value...], got {word!r}"


def test_replicates_are_from_one_to_hundred() -> None:
    assert parse_replicates(["a=1", "b=100"]) == {"a": 1, "b": 100}
    for word in ("101", "0", "01", "1,2"):
        with pytest.raises(UsageError) as refused:
            parse_replicates([f"a={word}"])
        problem = f"--replicates a= takes a whole number from 1 to 100, got {word}"
        assert str(refused.value) == problem


def test_a_factory_has_a_colon() -> None:
    assert named_or_own(("grid", "random"), "grid") == "grid"
    assert named_or_own(("grid", "random"), "mine:make") == "mine:make"
    with pytest.raises(ArgumentTypeError) as refused:
        named_or_own(("grid", "random"), "mine")
    assert str(refused.value) == "choose grid, random or module:factory, got 'mine'"


COUNTS = ("seeds", "num_samples", "budget", "max_concurrent", "cpus_per_trial", "pack")
AMOUNTS = ("gpus_per_trial", "time_budget", "save_seconds")


@pytest.mark.parametrize("name", COUNTS)
def test_counts_are_from_one_to_many(name: str) -> None:
    flag = f"--{name.replace('_', '-')}"
    for allowed in (1, 100_000):
        assert getattr(parse([flag, str(allowed)]), name) == allowed
    for refused in (0, 100_001):
        with pytest.raises(UsageError, match=rf"{flag} must be in \[1, 100000\], got {refused}"):
            parse([flag, str(refused)])


@pytest.mark.parametrize("name", AMOUNTS)
def test_amounts_are_not_negative(name: str) -> None:
    flag = f"--{name.replace('_', '-')}"
    assert getattr(parse([flag, "0"]), name) == 0
    with pytest.raises(UsageError, match=f"{flag} must be >= 0"):
        parse([flag, "-0.5"])


SWITCHES = ("offline", "force", "uncertified", "dry_run", "show", "list", "json", "quiet")


def test_a_command_without_options() -> None:
    plain = parse([])
    assert plain == SweepOptions()
    assert (plain.algo, plain.dataset, plain.paper, plain.table) == ((), "digits", None, None)
    assert (plain.seeds, plain.num_samples, plain.budget, plain.cpus_per_trial) == (1, 10, 0, 1)
    assert (plain.search, plain.scheduler, plain.tuning) == ("grid", "none", "at-once")
    assert (plain.executor, plain.device, plain.backend) == ("ray", "auto", "auto")
    assert (plain.pack, plain.save_seconds, plain.confirm) == ("auto", 15.0, ())
    unlimited = (plain.max_concurrent, plain.gpus_per_trial, plain.time_budget, plain.address)
    assert unlimited == (None,) * 4
    for name in (*SWITCHES, "verbose"):
        assert getattr(plain, name) is False
        assert getattr(parse([f"--{name.replace('_', '-')}"]), name) is True
    assert parse(["-q", "-v"]).quiet
    assert parse(["-q", "-v"]).verbose


def test_help_shows_defaults() -> None:
    words = " ".join(make_parser().format_help().split())
    for text in (
        "configurations per algorithm, for random and optuna (10)",
        "seeds 0 to N-1; for a table as many as the paper used (1)",
        "shortest time between saves of a run's state (15)",
        "cores and threads of a trial (1)",
        "where to train (auto)",
        "middle value of the grid, then other values at the best rate (at-once)",
        "auto: 32 on a GPU (docs/sweeps.md, Packs), 1 on a CPU or with --scheduler (auto)",
        "GPUs of a trial, may be a fraction (default: 1 for packs, else 0.25)",
        "lr is drawn within 10x of the preset --",
        "never use the network --",
    ):
        assert text in words


def test_what_follows_from_options() -> None:
    every = SweepOptions(("all",))
    assert every.every_algorithm
    assert every.asks_for("fedavg")
    assert not every.asks_for("fedproto_proto")
    some = SweepOptions(("mine:Mine", "fedavg"), search="mine:sampler", num_samples=7)
    asked = [some.asks_for(name) for name in ("fedavg", "mine:Mine", "fedprox")]
    assert asked == [True, True, False]
    assert not some.every_algorithm
    assert (some.sampler, some.by_optuna, some.configurations) == ("mine:sampler", True, 7)
    optuna = SweepOptions(search="optuna", budget=5)
    assert (optuna.sampler, optuna.by_optuna, optuna.configurations) == ("", True, 5)
    assert not SweepOptions(search="random").by_optuna
    placed = SweepOptions(origins={"lr": "a.toml"})
    assert (placed.origin_of("lr"), placed.place_of("lr")) == ("a.toml", " (from a.toml)")
    assert (placed.origin_of("mu"), placed.place_of("mu")) == ("command line", "")

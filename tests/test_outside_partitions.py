"""A partition of another package: found, asked, what it gives looked at, and refused with a reason."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from commands import command
from outside_world import place, world

from bench.data.partition import PartitionError, Wanted, partition
from bench.errors import UsageError

__all__ = ["place", "world"]
OWN = ("--dataset", "my_world:SHAPES", "--model", "my_world:NET")


def ask(code: str, world: Path, name: str, alpha: float | None = None, clients: int = 4) -> list[np.ndarray]:
    """What a partition with this code gives for 20 samples."""
    (world / f"{name}.py").write_text("import numpy as np\nfrom bench.data.partition import Partition\n" + code)
    wanted = Wanted(np.arange(20) % 3, clients, alpha)
    return partition(f"{name}:own").function(wanted, np.random.RandomState(0))


def test_positions_come_ascending_and_some_may_be_left(world: Path) -> None:
    code = (
        "def own(wanted, rng):\n    return [rng.permutation(20)[4 * k : 4 * k + 4].astype('int32') for k in range(1)]\n"
    )
    (found,) = ask(code, world, "one", clients=1)
    assert found.dtype == np.int64
    np.testing.assert_array_equal(found, np.sort(np.random.RandomState(0).permutation(20)[:4]))


def test_alpha_is_given_to_those_that_say_so(world: Path) -> None:
    function = (
        "def deal(wanted, rng):\n"
        "    ends = np.cumsum(rng.dirichlet([wanted.concentration()] * wanted.num_clients))[:-1]\n"
        "    return np.split(np.arange(20), 1 + (16 * ends).astype(int) + np.arange(wanted.num_clients - 1))\n"
    )
    entry = "own = Partition(deal, needs_alpha=True, summary='', source='')\n"
    assert len(ask(function + entry, world, "with_alpha", alpha=0.5)) == 4
    assert partition("with_alpha:own").needs_alpha
    with pytest.raises(
        UsageError, match=r"alpha must be a number > 0.*given only to a Partition with needs_alpha=True"
    ):
        ask(function + "own = deal\n", world, "without_alpha")


WRONG_CLIENTS = {
    "number": ("np.split(np.arange(20), 2)", "must give a list of 4 arrays, one for each client, got 2 of them"),
    "array": ("np.arange(20).reshape(4, 5)", "must give a list of 4 arrays, one for each client, got ndarray"),
    "empty": ("[np.arange(20), [], [], []]", "leaves client 1 without a sample"),
    "mask": ("[np.ones(20, bool)] * 4", "whole numbers in one axis, got bool with 1 axes for client 0"),
    "float": ("[np.arange(4.0)] * 4", "whole numbers in one axis, got float64"),
    "range": ("[[20]] * 4", r"positions in \[0, 19\], got 20 to 20 for client 0"),
    "negative": ("[[-1], [1], [2], [3]]", r"got -1 to -1 for client 0"),
    "twice": ("[[1], [2], [3], [3, 4]]", "gives position 3 2 times: a sample has one owner"),
    "chance": ("np.split(np.random.permutation(20), 4)", "other clients when asked again"),
    "raises": ("1 / 0", r"its function raises ZeroDivisionError: division by zero"),
}


@pytest.mark.parametrize("mistake", WRONG_CLIENTS)
def test_wrong_clients_are_refused(world: Path, mistake: str) -> None:
    code, words = WRONG_CLIENTS[mistake]
    with pytest.raises(UsageError, match=f"partition 'clients_{mistake}:own': .*{words}"):
        ask(f"def own(wanted, rng):\n    return {code}\n", world, f"clients_{mistake}")


NO_PARTITION = {
    "own = 3\n": r"is int; it must be a function \(wanted: Wanted, rng",
    "def own(wanted): ...\n": "its function must take .*: too many positional arguments",
    "def other(wanted, rng): ...\n": "has no 'own'; it defines: other",
    "own = Partition(len, False, '', '', groups='user')\n": "groups must be one of '', 'source', 'writer', got 'user'",
}


@pytest.mark.parametrize("code", NO_PARTITION)
def test_what_is_no_partition_is_refused(world: Path, code: str) -> None:
    with pytest.raises(UsageError, match=NO_PARTITION[code]):
        ask(code, world, f"none_{list(NO_PARTITION).index(code)}")


def test_a_dry_run_says_what_is_wrong_with_a_partition(world: Path) -> None:
    (world / "short.py").write_text("def own(wanted, rng):\n    return [[0]]\n")
    options = ("--algo", "fedavg", *OWN, "--set", "partition=short:own")
    planned = command(*options, "--dry-run", "--json", cwd=world)
    assert "NOT feasible: partition 'short:own': must give a list of 10" in planned.stdout
    done = command(*options, "--out", "o", cwd=world)
    assert done.returncode == 2
    assert "must give a list of 10 arrays" in done.stderr


def test_the_partition_error_is_that_of_the_others(world: Path) -> None:
    with pytest.raises(PartitionError, match="one for each client"):
        ask("def own(wanted, rng):\n    return []\n", world, "nobody")

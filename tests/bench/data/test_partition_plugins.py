"""A partition of another package: found, asked, what it gives looked at, and refused with a reason."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from outside_world import place, world

from bench.data.partition import Wanted, partition
from bench.errors import UsageError
from bench.sweep import command as sweep

__all__ = ["place", "world"]
OWN = ("--dataset", "my_world:SHAPES", "--model", "my_world:NET")


def ask(
    code: str, world: Path, name: str, alpha: float | None = None, clients: int = 4
) -> list[np.ndarray]:
    """What a partition with this code gives for 20 samples."""
    (world / f"{name}.py").write_text(
        "import numpy as np\nfrom bench.data.partition import Partition\n" + code
    )
    wanted = Wanted(np.arange(20) % 3, clients, alpha)
    return partition(f"{name}:own").function(wanted, np.random.RandomState(0))


def test_positions_come_in_ascending_order(world: Path) -> None:
    code = (
        "def own(wanted, rng):\n"
        "    return [rng.permutation(20)[4 * k : 4 * k + 4].astype('int32') for k in range(1)]\n"
    )
    (found,) = ask(code, world, "one", clients=1)
    assert found.dtype == np.int64
    np.testing.assert_array_equal(found, np.sort(np.random.RandomState(0).permutation(20)[:4]))


def test_alpha_is_given_on_request(world: Path) -> None:
    function = (
        "def deal(wanted, rng):\n"
        "    ends = np.cumsum(rng.dirichlet([wanted.concentration()] * wanted.num_clients))[:-1]\n"
        "    return np.split(np.arange(20), 1 + (16 * ends).astype(int) + np.arange(wanted.num_clients - 1))\n"
    )
    entry = "own = Partition(deal, needs_alpha=True, summary='')\n"
    assert len(ask(function + entry, world, "with_alpha", alpha=0.5)) == 4
    assert partition("with_alpha:own").needs_alpha
    with pytest.raises(UsageError, match="needs_alpha=True"):
        ask(function + "own = deal\n", world, "without_alpha")


WRONG_CLIENTS = {
    "number": ("np.split(np.arange(20), 2)", "list of 4"),
    "array": ("np.arange(20).reshape(4, 5)", "list of 4"),
    "empty": ("[np.arange(20), [], [], []]", "client 1"),
    "mask": ("[np.ones(20, bool)] * 4", "bool"),
    "float": ("[np.arange(4.0)] * 4", "float64"),
    "range": ("[[20]] * 4", "client 0"),
    "negative": ("[[-1], [1], [2], [3]]", "client 0"),
    "twice": ("[[1], [2], [3], [3, 4]]", "twice"),
    "chance": ("np.split(np.random.permutation(20), 4)", "asked again"),
    "raises": ("1 / 0", "ZeroDivisionError"),
}


@pytest.mark.parametrize("mistake", WRONG_CLIENTS)
def test_wrong_clients_are_refused(world: Path, mistake: str) -> None:
    code, words = WRONG_CLIENTS[mistake]
    with pytest.raises(UsageError, match=f"partition 'clients_{mistake}:own': .*{words}"):
        ask(f"def own(wanted, rng):\n    return {code}\n", world, f"clients_{mistake}")


NO_PARTITION = {
    "def own(wanted): ...\n": "TypeError",
    "def other(wanted, rng): ...\n": "no 'own'",
    "own = Partition(len, False, '', groups='user')\n": "groups must be one of .* got 'user'",
    "own = 3\n": "none_3:own is int; it must be a function",
    "class own: ...\n": "none_4:own is type; it must be a function",
}


@pytest.mark.parametrize("code", NO_PARTITION)
def test_what_is_no_partition_is_refused(world: Path, code: str) -> None:
    name = f"none_{list(NO_PARTITION).index(code)}"
    with pytest.raises(UsageError, match=f"partition '{name}:own'.*{NO_PARTITION[code]}"):
        ask(code, world, name)


def test_the_command_explains_a_bad_partition(
    world: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (world / "short.py").write_text("def own(wanted, rng):\n    return [[0]]\n")
    options = ["--algo", "fedavg", *OWN, "--set", "partition=short:own"]
    assert sweep.main([*options, "--dry-run", "--json"]) == 0
    assert "NOT feasible: partition 'short:own'" in capsys.readouterr().out
    assert sweep.main([*options, "--out", "o"]) == 2
    assert "short:own" in capsys.readouterr().err

"""Values of Python and TOML as words of a command line, and what is refused of them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from bench.errors import UsageError
from bench.sweep.parser import parse, words_of


def test_each_kind_of_value_has_words() -> None:
    values = {
        "algo": ["a", "b"],
        "seeds": 3,
        "set": {"mu": [0.1, "x,y"], "fedcad": {"gamma": 1, "deeper": {"still": "z"}}},
        "quiet": True,
        "force": False,
        "local-epochs": [1, -2],
        "import_": "x",
        "lr": "-inf",
    }
    words = '--algo a b --seeds 3 --set mu=0.1,"x,y" fedcad.gamma=1 fedcad.deeper.still=z --quiet'
    words += " --local-epochs 1 -2 --import x --lr -inf"
    assert words_of(values, "here") == words.split()
    assert words_of({"set": {}}, "here") == []


@pytest.mark.parametrize(
    ("values", "problem"),
    [
        ({"algoo": 1}, "no option for here 'algoo' (did you mean algo?); known: address, algo, "),
        ({"seeds": [1, 2]}, "here: seeds takes one value, got [1, 2]"),
        ({"seeds": True}, "here: seeds takes a value, got true"),
        ({"quiet": "yes"}, "here: quiet takes true or false, got 'yes'"),
        ({"quiet": 1}, "here: quiet takes true or false, got 1"),
        (
            {"set": 3},
            "here: values for --set stand under [set], and only there; got set = 3",
        ),
        (
            {"algo": {"a": 1}},
            "here: algo takes values as on the command line; only [set] is a table; got {'a': 1}",
        ),
        ({"algo": []}, "here: algo has no value: give one, or leave it out"),
        ({"algo": [[1]]}, "here: algo takes texts or numbers, got [1]"),
        ({"algo": [{"a": 1}]}, "here: algo takes texts or numbers, got {'a': 1}"),
        ({"paper": "-x"}, "here: paper takes a value, got the option -x"),
        ({"set": {"-a": 1}}, "here: set takes names of fields, got '-a'"),
        ({"set": {"a": []}}, "here: a has no value: give one, or leave it out"),
        ({"set": {"a": "-b"}}, "here: a takes a value, got the option -b"),
        (
            {"local-epochs": 1, "local_epochs": 2},
            "here: local_epochs is given twice, with - and with _: leave one out",
        ),
    ],
)
def test_other_values_are_refused(values: dict[str, Any], problem: str) -> None:
    with pytest.raises(UsageError) as refused:
        words_of(values, "here")
    text = str(refused.value)
    assert text.startswith(problem)
    assert text == problem or "known" in problem
    assert "config" not in text


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        ("--paper=", "--paper takes a value, and got an empty one"),
        ("--algo ,", "--algo takes a value, and got an empty one"),
        (
            "--clients 1 --set num_clients=2",
            "--clients and --set num_clients= are the same thing, and both are given: leave one ",
        ),
    ],
)
def test_words_without_meaning_are_refused(words: str, problem: str) -> None:
    with pytest.raises(UsageError) as refused:
        parse(words.split())
    assert str(refused.value).startswith(problem)


def test_an_empty_mirror_is_none() -> None:
    assert parse(["--mirror", ""]).mirror == ""
    assert parse(["--clients", "3"]).values == {"num_clients": ("3",)}


def test_a_file_has_a_limit(tmp_path: Path) -> None:
    file = tmp_path / "a.toml"
    begun = b"rounds = 7\n#"
    file.write_bytes(begun + b"x" * (2**16 - len(begun)))
    assert parse(["--config", str(file)]).values == {"rounds": ("7",)}
    file.write_bytes(begun + b"x" * (2**16 - len(begun) + 1))
    with pytest.raises(UsageError, match="is no TOML file of options: it has more than 65,536"):
        parse(["--config", str(file)])
    with pytest.raises(UsageError, match=r"--config .* cannot be read: No such file or directory"):
        parse(["--config", str(tmp_path / "none.toml")])


def test_layers_keep_their_origins(tmp_path: Path) -> None:
    file = tmp_path / "a.toml"
    file.write_text("seeds = 2\nlr = 0.1\nquiet = true\n[set]\nmomentum = 0.5\n")
    options = parse(["--config", str(file), "--lr", "0.2", "--seeds", "3"])
    assert options.values == {"lr": ("0.2",), "momentum": ("0.5",)}
    assert options.origins == {"lr": "command line", "momentum": str(file)}
    typed = dict.fromkeys(("config", "lr", "seeds"), "command line")
    assert options.given == dict.fromkeys(("quiet", "set"), str(file)) | typed
    assert (options.seeds, options.quiet) == (3, True)

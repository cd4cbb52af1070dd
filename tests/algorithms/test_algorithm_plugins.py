"""An algorithm of another package: found by an entry point or a path, read, run, and refused with a reason."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest
from commands import ROOT, command
from conftest import largest_gap, simulate
from outside_world import install, place
from rows import hyperparameter

import algorithms
from algorithms import build, entry, plugins
from bench.errors import UsageError
from bench.planning.given import find_algorithm
from bench.planning.run_spec import RunSpec
from leaderboards import Store
from search_spaces import Setting

__all__ = ["place"]
README = (ROOT / "README.md").read_text()
HEAD = "from dataclasses import dataclass\nfrom algorithms.base import Algorithm, hyper\n"


def readme_example() -> str:
    """The module that the README shows in full."""
    found = re.search(r"```python\n(# my_methods\.py\n.*?)```", README, re.DOTALL)
    assert found, "the README shows my_methods.py"
    return found[1]


def test_the_readmes_example_is_fedprox(place: Path) -> None:
    (place / "my_methods.py").write_text(readme_example())
    found = entry("my_methods:MyProx")
    (field,) = found.fields
    assert (field.name, field.kind, field.default, str(field.bounds)) == (
        "mu",
        "float",
        0.01,
        ">= 0",
    )
    own, built_in = simulate(build("my_methods:MyProx", mu=0.5)), simulate(build("fedprox", mu=0.5))
    own.advance(2)
    built_in.advance(2)
    assert largest_gap(own, built_in) == 0
    assert len([line for line in readme_example().splitlines() if line.strip()]) <= 20


@pytest.mark.slow
def test_the_command_takes_it_by_its_path(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("FEDKD_OUT", raising=False)
    (place / "my_methods.py").write_text(readme_example())
    names = ["fedprox", "my_methods:MyProx"]
    options = ("--rounds", "2", "--set", "mu=0.5", "--executor", "inline")
    done = command("--algo", *names, *options, cwd=place)
    assert done.returncode == 0, done.stderr
    assert command(module="bench.compare", cwd=place).returncode == 0, (
        "results in ./leaderboards are no package"
    )
    runs = Store(place / "leaderboards").runs().set_index("algorithm")
    assert runs.loc["fedprox", "final_accuracy"] == runs.loc["my_methods:MyProx", "final_accuracy"]
    assert set(hyperparameter(runs, "mu")) == {0.5}


@pytest.mark.slow
def test_a_failing_hook_is_shown_with_its_traceback_on_request(place: Path) -> None:
    wrong = "    def local_loss(self, net, local, batch, message, memory, plan):\n        return batch.labels\n"
    (place / "wrong.py").write_text(
        f"{HEAD}@dataclass(frozen=True)\nclass Wrong(Algorithm):\n{wrong}"
    )
    (place / "my_methods.py").write_text(readme_example())
    options = (
        "--rounds",
        "1",
        "--seeds",
        "2",
        "--executor",
        "inline",
        "--uncertified",
        "--out",
        "o",
    )
    short = command("--algo", "wrong:Wrong", "my_methods:MyProx", *options, cwd=place)
    assert short.returncode == 1
    ended = Store(place / "o").runs().groupby("algorithm").status.agg(list).to_dict()
    assert ended == {"wrong:Wrong": ["failed"] * 2, "my_methods:MyProx": ["finished"] * 2}
    assert "(wrong.py:6)" in short.stderr
    assert "Traceback" not in short.stderr
    long = command("--algo", "wrong:Wrong", *options, "--verbose", cwd=place)
    assert long.returncode == 1
    assert re.search(
        r"Traceback .*wrong\.py\", line 6, in local_loss.*AttributeError", long.stderr, re.DOTALL
    )


LOSS = "    def local_loss(self, net, local, batch, message, memory, plan):\n"
RETURN = '        return torch.nn.functional.cross_entropy(out.logits, batch.y, reduction="none")\n'
OUT = '        out = net(local["params"], batch.x)\n'


@pytest.mark.slow
def test_a_broken_method_is_refused_before_it_runs(place: Path) -> None:
    """The command refuses one mistake; `test_selftest.py` has the others."""
    body = f'{LOSS}        message["params"]["body.1.weight"].mul_(0.9)\n{OUT}{RETURN}'
    (place / "broken.py").write_text(
        f"import torch\n{HEAD}@dataclass(frozen=True)\nclass Wrong(Algorithm):\n{body}"
    )
    done = command(
        "--algo", "broken:Wrong", "--rounds", "1", "--executor", "inline", "--out", "o", cwd=place
    )
    assert done.returncode == 2
    assert "local_loss writes to the message" in done.stderr
    assert "(broken.py:" in done.stderr
    assert not Store(place / "o").status()


@pytest.mark.slow
def test_results_with_an_unread_hyperparameter_are_marked(place: Path) -> None:
    own = f"    mu: float = hyper(0.1, 0, 1)\n{LOSS}{OUT}{RETURN}"
    text = f"import torch\n{HEAD}@dataclass(frozen=True)\nclass Wrong(Algorithm):\n{own}"
    (place / "unread.py").write_text(text)
    options = (
        "--algo",
        "unread:Wrong",
        "--set",
        "mu=0.1",
        "--rounds",
        "1",
        "--executor",
        "inline",
        "--out",
        "o",
    )
    marked = command(*options, cwd=place)
    assert (marked.returncode, "mu changes nothing" in marked.stderr, "¶" in marked.stdout) == (
        0,
        True,
        True,
    )
    assert Store(place / "o").runs().certified.tolist() == [False]


def test_a_file_is_answered_with_its_module(place: Path) -> None:
    (place / "my_methods.py").write_text(readme_example())
    for name in ("my_methods.py:MyProx", "./my_methods.py:MyProx"):
        with pytest.raises(UsageError, match=r" my_methods:MyProx$"):
            find_algorithm(name)
    with pytest.raises(UsageError, match="centralized"):
        find_algorithm("my_method")


MISTAKES = {
    "nowhere:A": ("", "nowhere"),
    "m1:Aa": ("class A: pass", "Aa.*mean A"),
    "m2:A": ("A = 3", "int"),
    "m3:A": ("class A: pass", r"algorithms\.base\.Algorithm"),
    "m4:A": (
        HEAD + "@dataclass(frozen=True)\nclass A(Algorithm):\n    x: list = hyper(None)",
        "list",
    ),
    "m5:A": (HEAD + "@dataclass(frozen=True)\nclass A(Algorithm):\n    x: float", "x"),
    "m6:A": (
        HEAD + "@dataclass(frozen=True)\nclass A(Algorithm):\n    x: float = hyper(-1.0, 0)",
        "x must be >= 0",
    ),
    "m28:A": (
        HEAD + "from dataclasses import field\n@dataclass(frozen=True)\nclass A(Algorithm):\n"
        "    x: str = field(default_factory=str)",
        "'x' is str, and its default is <factory>",
    ),
    "m29:A": (
        HEAD + "def A(x: float = None) -> Algorithm:\n    return Algorithm()",
        "'x' is float, and its default is None",
    ),
    "m30:A": (
        HEAD + "@dataclass(frozen=True)\nclass A(Algorithm):\n    noise: float = hyper(0.1, 0)",
        "'noise', which is a hook",
    ),
    "m31:A": (
        HEAD + "@dataclass(frozen=True)\nclass A(Algorithm):\n    version: int = hyper(1)",
        "'version', which is",
    ),
    "m7:A": ("raise RuntimeError('no')", r"m7\.py, line 1"),
    "m8:A": (HEAD + "def A(json: float = 1.0) -> Algorithm:\n    return Algorithm()", "hp_json"),
    "m9:A": (HEAD + "class A(Algorithm):\n    version = '1.2'", r"version.*1\.2"),
    "m21:A": (HEAD + "class A(Algorithm):\n    version = -1", r"version.*0 on, got -1"),
    "m22:A": (HEAD + "class A(Algorithm):\n    rows = '_x'", r"A\.rows must be a tuple.*'_x'"),
    "m23:A": (HEAD + "class A(Algorithm):\n    predicted = '_x'", r"A\.predicted must be a tuple"),
    "m27:A": (HEAD + "class A(Algorithm):\n    rows = ('', '_p row!')", r"got '_p row!'"),
    "m32:A": (
        HEAD + "class A(Algorithm):\n    rows = ('_x',)",
        "must hold '' and each suffix once",
    ),
    "m33:A": (HEAD + "class A(Algorithm):\n    rows = ('', '_x', '_x')", "each suffix once"),
    "m34:A": (HEAD + "def A(*x: float) -> Algorithm:\n    return Algorithm()", "named parameter"),
    "m35:A": (HEAD + "def A(**x: float) -> Algorithm:\n    return Algorithm()", "named parameter"),
    "m36:A": (
        HEAD + "def A(x: float = 1.0, /) -> Algorithm:\n    return Algorithm()",
        "named parameter",
    ),
    "m24:A": (HEAD + "class A(Algorithm):\n    needs = ['public']", r"A\.needs must be a set"),
    "m25:A": (
        HEAD + "class A(Algorithm):\n    keeps_model = 'no'",
        r"A\.keeps_model must be a bool",
    ),
    "m26:A": (
        HEAD + "class A(Algorithm):\n    def predict(self, net, params, x, server): ...",
        r"A\.predict is called for the rows in `predicted` alone",
    ),
    "m10:A": (HEAD + "class A(Algorithm):\n    needs = frozenset({'auxilary'})", "auxiliary"),
    "m11:A": (HEAD + "class A(Algorithm):\n    def local_los(self): ...", "local_loss"),
    "m16:A": (HEAD + "class A(Algorithm):\n    keep_model = True", "keep_model.*mean keeps_model"),
    "m17:A": (HEAD + "class A(Algorithm):\n    row = ('', '_x')", r"A\.row has no.*mean rows"),
    "m18:A": (
        HEAD + "class A(Algorithm):\n"
        "    def local_loss(self, net, local, batch, memory, message, plan): ...",
        r"local_loss takes .*batch, memory, message, plan\), and gets .*message, memory, plan",
    ),
    "m19:A": (
        HEAD + "from typing import ClassVar\n"
        "class A(Algorithm):\n    need: ClassVar = frozenset({'public'})",
        "mean needs",
    ),
    "m20:A": (
        HEAD + "class A(Algorithm):\n"
        "    def local_loss(self, net, local, batch, memory, message, step): ...",
        r"memory, message, step\), and gets",
    ),
    "m12:A": (HEAD + "class A(Algorithm):\n    mu: float = 1.0", "mu.*dataclass"),
    "m15:A": (HEAD + "class A(Algorithm):\n    server_steps = 'n'", "server_steps.*'n'.*has: none"),
    "m14:A": ("class A: pass\nraise SystemExit", r"SystemExit.*m14\.py, line 2"),
    "m13:A": (HEAD + "@dataclass\nclass A(Algorithm):\n    x: float = 1.0", r"non-frozen.*m13\.py"),
}


def test_attributes_of_ones_own_are_no_mistakes(place: Path) -> None:
    source = (
        HEAD
        + """
from typing import ClassVar

class Sized:
    versions = (1, 2)

@dataclass(frozen=True)
class Parent(Sized, Algorithm):
    server_step_size: float = 1.0
    term = 0.5
    row = 3

    @property
    def terms_of_mine(self):
        return ()

    @property
    def tracker(self):
        return ()

@dataclass(frozen=True)
class A(Parent):
    row_of: ClassVar[str] = "x"
    server_step_size: float = 2.0
"""
    )
    (place / "own.py").write_text(source)
    assert build("own:A").term == 0.5


@pytest.mark.parametrize("name", MISTAKES)
def test_a_mistake_is_named(place: Path, name: str) -> None:
    text, words = MISTAKES[name]
    if text:
        (place / f"{name.partition(':')[0]}.py").write_text(text)
    with pytest.raises(ValueError, match=words):
        entry(name)


@pytest.mark.parametrize("version", [0, 1, 2**63 - 1])
def test_any_whole_number_may_be_its_version(place: Path, version: int) -> None:
    (place / "stated.py").write_text(HEAD + f"class A(Algorithm):\n    version = {version}")
    assert entry("stated:A").version == version


def test_meanings_are_those_of_the_docstrings(place: Path) -> None:
    """Over several lines, also of what is wrapped; the factory's own come first."""
    text = '''
@dataclass(frozen=True)
class A(Algorithm):
    """A method.

    Args:
        mu: weight of a term,
            which is small.
        nu: unused. Yes.

    Attributes:
        rho: none of these.
    """

    mu: float = hyper(0.5, 0, 1, open_low=True)
    nu: int = hyper(3, 1, packable=False)
    rho: bool = hyper(False)


def made(nu: int = 4, mu: float = 0.25, rest: str = "x") -> A:
    """Make it.

    Args:
        nu: of the factory.
    """
    return A(mu, nu)
'''
    (place / "told.py").write_text(HEAD + text)
    fields = entry("told:A").fields
    told = [(field.name, field.kind, field.default, field.meaning) for field in fields]
    assert told == [
        ("mu", "float", 0.5, "weight of a term, which is small"),
        ("nu", "int", 3, "unused. Yes"),
        ("rho", "bool", False, "–"),
    ]
    assert [str(field.bounds) for field in fields] == ["in (0, 1]", ">= 1", "any number"]
    assert [field.packable for field in fields] == [True, False, True]
    found = entry("told:made")
    assert (found.summary, found.paper, found.down) == ("Make it.", "told", "counted")
    told = [(field.name, field.default, field.meaning) for field in found.fields]
    assert told == [
        ("nu", 4, "of the factory"),
        ("mu", 0.25, "weight of a term, which is small"),
        ("rest", "x", "–"),
    ]
    assert found.fields[2].packable is False


def test_an_entry_point_gives_it_a_name(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (place / "my_methods.py").write_text(readme_example())
    install(place, monkeypatch, algorithms="myprox = my_methods:MyProx")
    assert plugins.names() == ("myprox",)
    assert entry("myprox").factory == "my_methods:MyProx"
    assert build("myprox", mu=0.5).mu == 0.5
    with pytest.raises(KeyError, match=r"myprax.*myprox"):
        entry("myprax")


@pytest.mark.parametrize(
    "module", ["edited", "algorithms.edited"]
)  # the second is not registered yet
def test_an_edited_algorithm_is_another_one(
    module: str, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(algorithms, "__path__", [*algorithms.__path__, str(place)])
    file = place / "edited.py"
    file.write_text(HEAD + "@dataclass(frozen=True)\nclass A(Algorithm):\n    pass\n")
    before = RunSpec(f"{module}:A", {}, Setting(), 0).rows[""]
    file.write_text(file.read_text() + "# another thought\n")
    plugins.find.cache_clear()
    assert RunSpec(f"{module}:A", {}, Setting(), 0).rows[""] != before
    file.write_text(file.read_text().replace("    pass", "    version = 3"))
    del sys.modules[module]
    plugins.find.cache_clear()
    assert entry(f"{module}:A").version == 3


def test_what_it_is_made_of_counts_too(place: Path) -> None:
    """A class it extends, and a helper that is imported from beside; another file of the folder does not."""
    (place / "family.py").write_text(
        HEAD + "import weights\n@dataclass(frozen=True)\nclass Parent(Algorithm):\n    pass\n"
    )
    (place / "weights.py").write_text("W = 1\n")
    (place / "child.py").write_text(
        "from family import Parent\n\n\nclass Child(Parent):\n    pass\n"
    )
    versions = [entry("child:Child").version]
    for file, text in (("unrelated.py", "X = 1\n"), ("weights.py", "W = 2\n"), ("family.py", None)):
        (place / file).write_text(text or (place / "family.py").read_text() + "# changed\n")
        plugins.find.cache_clear()
        versions.append(entry("child:Child").version)
    assert versions[0] == versions[1]
    assert len(set(versions)) == 3


def test_a_plugin_from_outside_yields_its_rows(place: Path) -> None:
    (place / "wrapped.py").write_text(
        "from algorithms.moon import MOON\nfrom algorithms.t1 import T1\n\n\n"
        "def moon_t1(mu: float = 5.0, t1_unvisited: str = 'skip') -> T1:\n    return T1(MOON(mu), t1_unvisited)\n"
    )
    found = entry("wrapped:moon_t1")
    assert found.rows == {"": "wrapped:moon_t1", "_t1": "wrapped:moon_t1_t1"}
    assert found.needs == {"projection_head"}
    assert {field.name: str(field.bounds) for field in found.fields}["mu"] == ">= 0", (
        "the range of what is wrapped"
    )
    assert len(set(RunSpec("wrapped:moon_t1", found.defaults(), Setting(), 0).rows.values())) == 2

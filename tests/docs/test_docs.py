"""The documents tell the truth about the code."""

from __future__ import annotations

import json
import re
import runpy
import sys
import tomllib
from pathlib import Path

import make
import pytest
from commands import ROOT

from algorithms import ALGORITHMS, INDEX, Entry, Field, build
from algorithms.base import layers
from algorithms.entry import from_json
from bench import __version__
from bench.cli import COMMANDS, main
from bench.selftest.command import main as selftest
from search_spaces.bounds import Bounds, Grid, Range

README = (ROOT / "README.md").read_text()


def test_generated_pages_are_up_to_date() -> None:
    """`python docs/make.py` writes them."""
    assert INDEX.read_text(encoding="utf-8") == make.index(), "stale: run `python docs/make.py`"
    assert (ROOT / "docs" / "columns.md").read_text() == make.columns_page()
    assert (ROOT / "docs" / "algorithms.md").read_text() == make.algorithms_page()
    assert (ROOT / "docs" / "extending.md").read_text() == make.extending_page()
    assert (ROOT / "docs" / "sweeps.md").read_text() == make.sweeps_page()
    assert (ROOT / "docs" / "reference.md").read_text() == make.reference_page()
    assert (ROOT / "docs" / "usage.md").read_text() == make.usage_page()
    assert (ROOT / "docs" / "papers.md").read_text() == make.papers_page()
    assert make.readme() == README


@pytest.mark.parametrize("search", [None, Grid(0.5, 2), Range(0.1, 1.0), Range(1, 5, False, True)])
def test_an_entry_is_read_as_it_was_written(search: Grid | Range | None) -> None:
    fields = (Field("mu", "float", 1.0, Bounds(0, 2, open_low=True), search=search),)
    written = Entry(name="mine", factory="mine:Mine", needs=frozenset({"sgd"}), fields=fields)
    (read,) = from_json(json.dumps([written], default=make._stated))
    assert read == written


def test_every_list_of_differences_is_on_the_page() -> None:
    """Its heading may name the paper, its code, or another library."""
    sources = [path.read_text() for path in (ROOT / "algorithms").glob("*.py")]
    lists = sum(len(re.findall(r"^    Differences from .+:$", text, re.M)) for text in sources)
    page = (ROOT / "docs" / "algorithms.md").read_text()
    assert page.count("\nDifferences:\n") == lists > 20


def test_every_algorithm_states_its_differences_and_its_file() -> None:
    page = (ROOT / "docs" / "algorithms.md").read_text()
    for entry in ALGORITHMS.values():
        assert f"\n## {entry.name}\n" in page
        assert f"| [`{entry.name}`](#{entry.name}) |" in page
        for kind in () if entry.reference else map(type, layers(build(entry.name))):
            assert "Differences from the paper" in (kind.__doc__ or ""), (
                f"{entry.name}: {kind.__name__}"
            )


def test_the_design_names_files_that_exist() -> None:
    """Each by its path, and in the table of changes with names that stand in it."""
    page = (ROOT / "docs" / "design.md").read_text()
    paths = re.findall(r"[\w./]+\.(?:py|json)\b", page)
    assert len(paths) > 40
    assert [path for path in paths if not (ROOT / path).is_file()] == []
    assert [
        path for path in re.findall(r"`((?!OUT)\w[\w/]+/)`", page) if not (ROOT / path).is_dir()
    ] == []
    for files, names in re.findall(r"^\|[^|]*\|([^|]*\.py[^|]*)\|([^|]*)\|$", page, re.MULTILINE):
        code = "".join((ROOT / file).read_text() for file in re.findall(r"`([\w/]+\.py)`", files))
        for name in re.findall(r"`(?:\w+\.)?(\w+)`", names):
            assert re.search(
                rf"^ *(?:def|class) {name}\b|^ *{name}: |^{name}\b|\b{name}\(", code, re.MULTILINE
            ), f"{name}: {files}"


def test_links_lead_somewhere() -> None:
    for page in [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *(ROOT / "docs").glob("*.md")]:
        for target in re.findall(r"\]\(([^)#]+)\)", page.read_text()):
            assert target.startswith("http") or (page.parent / target).exists(), (
                f"{page.name}: {target}"
            )


def test_the_readme_is_a_front_door() -> None:
    """Installation stands on the first screen, and the whole is read in five minutes."""
    lines = README.splitlines()
    assert lines.index("## Install") < 25
    assert len(README.split()) <= 1300


def test_versions_agree() -> None:
    assert tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"] == __version__
    assert f"version: {__version__}" in (ROOT / "CITATION.cff").read_text()
    assert f"\n## {__version__}\n" in (ROOT / "CHANGELOG.md").read_text()


def test_every_command_is_a_module() -> None:
    for name in COMMANDS:
        assert (ROOT / "bench" / f"{name}.py").exists() or (
            ROOT / "bench" / name / "__main__.py"
        ).exists()


@pytest.mark.filterwarnings("ignore:.*found in sys.modules:RuntimeWarning")
@pytest.mark.parametrize("module", ["bench", "bench.cli", *(f"bench.{name}" for name in COMMANDS)])
def test_a_module_of_a_command_starts_it(
    module: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """`python -m MODULE --help`, in this process."""
    monkeypatch.setattr(sys, "argv", [module, "--help"])
    with pytest.raises(SystemExit) as ended:
        runpy.run_module(module, run_name="__main__", alter_sys=True)
    assert not ended.value.code
    assert "usage:" in capsys.readouterr().out


def test_the_console_script_lists_its_commands_and_hands_over(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main([]) == 0
    listed = capsys.readouterr().out
    assert all(f"  {name} " in listed for name in COMMANDS)
    assert main(["selftest", "fedcat"]) == 2
    assert "did you mean fedcad?" in capsys.readouterr().err


def test_the_compressed_method_of_the_docs_is_certified(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    page = (ROOT / "docs" / "extending.md").read_text()
    (block,) = re.findall(r"```python\n(from[^`]*class TopK.*?)```", page, re.DOTALL)
    (tmp_path / "my_topk.py").write_text(block)
    monkeypatch.syspath_prepend(tmp_path)
    assert selftest(["my_topk:TopK"]) == 0
    assert "up 0.2" in capsys.readouterr().out

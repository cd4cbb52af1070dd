"""The documents tell the truth about the code."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

from algorithms import ALGORITHMS
from bench.cli import COMMANDS
from leaderboards.schema import CURVE_COLUMNS, as_markdown

ROOT = Path(__file__).resolve().parent.parent
README = (ROOT / "README.md").read_text()


def columns_page() -> str:
    """What docs/columns.md must hold; `python tests/test_docs.py` writes it."""
    return (
        "# Columns\n\nMade from `leaderboards/schema.py`. Accuracies are fractions, of the global model on the global "
        "test set unless\nthe name says otherwise. A `runs` row also has `hp_<name>` for each of its hyper-parameters."
        f"\n\n## runs\n\n{as_markdown()}\n## curves\n\n{as_markdown(CURVE_COLUMNS)}"
    )


def test_the_columns_page_is_made_from_the_schema() -> None:
    assert (ROOT / "docs" / "columns.md").read_text() == columns_page()


def test_the_readme_lists_every_algorithm_with_its_file() -> None:
    for entry in ALGORITHMS.values():
        file = entry.factory.partition(":")[0].replace(".", "/") + ".py"
        assert re.search(rf"\| `{entry.name}` \|.*\({file}\)", README), entry.name


def test_links_lead_somewhere() -> None:
    for page in [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *(ROOT / "docs").glob("*.md")]:
        for target in re.findall(r"\]\(([^)#]+)\)", page.read_text()):
            assert target.startswith("http") or (page.parent / target).exists(), f"{page.name}: {target}"


def test_versions_agree() -> None:
    from bench import __version__

    assert tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"] == __version__
    assert f"version: {__version__}" in (ROOT / "CITATION.cff").read_text()


def test_every_command_is_a_module() -> None:
    for name in COMMANDS:
        assert (ROOT / "bench" / f"{name}.py").exists() or (ROOT / "bench" / name / "__main__.py").exists()


if __name__ == "__main__":
    (ROOT / "docs" / "columns.md").write_text(columns_page())

"""The pages of the site: one for each document and algorithm, whose links lead somewhere."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
import site_pages
from commands import ROOT

from algorithms import ALGORITHMS

MEASURED = "largest gap 4.4e-16 <= 1e-10"


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """All pages, with a certificate of FedCAD alone."""
    place = tmp_path_factory.mktemp("site")
    outcome = {"check": "equations", "status": "passed", "measured": MEASURED}
    certificate = {"algorithm": "fedcad", "outcomes": [outcome]}
    report = {"package_version": "9.9.9", "torch": "8.8.8", "certificates": [certificate]}
    (place / "certificates.json").write_text(json.dumps(report))
    site_pages.main(place / "certificates.json", place / "pages")
    return place / "pages"


def test_every_document_is_a_page(pages: Path) -> None:
    for document in (ROOT / "docs").glob("*.md"):
        assert (pages / document.name).is_file()
    assert (pages / "index.md").read_text().startswith("# fedkd-bench")


def test_the_notebook_is_a_page_with_its_outputs(pages: Path) -> None:
    text = (pages / "quickstart.md").read_text()
    assert text.startswith("# Quickstart\n")
    assert "```python\nfrom bench import api\n```" in text
    assert "final_accuracy  bytes_up\n" in text
    assert '<img alt="the figure" src="data:image/svg+xml;base64,' in text
    assert "[Quickstart](quickstart.md)" in (pages / "python.md").read_text()


def test_every_page_stands_in_the_navigation(pages: Path) -> None:
    listed = re.findall(r"\]\((.*?)\)", (pages / ".navigation.md").read_text())
    written = []
    for page in pages.rglob("*.md"):
        path = page.relative_to(pages)
        if path.parts[0] not in ("source", ".navigation.md"):
            written.append(str(path))
    assert sorted(listed) == sorted(written)


def test_links_lead_to_pages(pages: Path) -> None:
    links = 0
    for page in pages.rglob("*.md"):
        prose = site_pages.FENCED.sub("", page.read_text())
        if page.is_relative_to(pages / "source"):
            continue
        for target in re.findall(r"\]\(([^)#\s]+)", prose):
            links += 1
            assert target.startswith("http") or (page.parent / target).is_file(), (page, target)
    assert links > 200


def test_an_algorithms_page_has_its_facts(pages: Path) -> None:
    for name in ALGORITHMS:
        text = (pages / "algorithms" / f"{name}.md").read_text()
        assert text.startswith(f"# {name}\n")
        assert "\n## On the boards\n" in text
    fedcad = (pages / "algorithms" / "fedcad.md").read_text()
    assert "\n## FedCAD\n" in fedcad
    assert "\n### Differences\n" in fedcad
    assert "\n## Hyper-parameters\n" in fedcad
    on_first_board = "| lda | 0.5 | 0.2 | `cnn_cifar` | beta=0.5, lr=0.3 | 38.88 ± 2.44 (5) |"
    assert on_first_board in fedcad
    assert f"| equations | passed | {MEASURED.replace('<', chr(92) + '<')} |" in fedcad.replace(
        r"\>", ">"
    )
    fedproto = (pages / "algorithms" / "fedproto.md").read_text()
    on_exchange = (
        "| k_classes | – | 0.2 | `cnn_cifar+fd84` | lr=0.2 | 72.61 ± 1.00 (5) | 73.32 ± 2.50 (5) |"
    )
    assert on_exchange in fedproto, "beside local on its only model"
    ditto = (pages / "algorithms" / "ditto.md").read_text()
    on_one_model = "| k_classes | – | 0.2 | `cnn_cifar` | lr=0.05 | 71.19 ± 3.65 (5) |"
    assert on_one_model in ditto
    assert "`fedbn` is on no board." in (pages / "algorithms" / "fedbn.md").read_text()


def test_links_are_turned(tmp_path: Path) -> None:
    site = site_pages.Site(tmp_path)
    text = (
        "[docs/usage.md](docs/usage.md#exit-status), [`moon`](docs/algorithms.md#moon), "
        "[this](docs/demo.toml), [there](https://example.org)\n\n- a\n  - b\n"
        "```\n  [kept](docs/usage.md)\n```\n"
    )
    assert site.convert(text, "README.md", "a/b.md") == (
        "[Using the suite](../usage.md#exit-status), [`moon`](../algorithms/moon.md), "
        "[this](../source/docs/demo.toml.md), [there](https://example.org)\n\n- a\n    - b\n"
        "```\n  [kept](docs/usage.md)\n```\n"
    )
    with pytest.raises(FileNotFoundError):
        site.convert("[lost](docs/lost.md)", "README.md", "index.md")

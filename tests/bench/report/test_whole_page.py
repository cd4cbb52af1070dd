"""The whole text of pages: of a board on which every flag and mark occurs, and of smaller ones."""

from __future__ import annotations

import base64
import hashlib
import json
import re
from html.parser import HTMLParser
from pathlib import Path

import pytest
from board import assert_approved, of_clients, on_digits, plain, searched, unselected
from rows import write

from bench.charts.theme import config
from bench.report.command import main

pytest.importorskip(
    "vl_convert", reason="the page needs vl-convert-python: pip install fedkd-bench[report]"
)


TOLD = {"first", "other", "told", "best", "reference", "none"}  # classes that tell something


class Text(HTMLParser):
    """The text of a page, and attributes on which its look depends.

    There is a line for each element, and one for each row of a table and entry of a list.
    """

    def __init__(self, document: str) -> None:
        super().__init__()
        self.lines: list[str] = []
        self.charts = ""
        self._element = ""
        self._row: list[str] | None = None
        self.feed(document)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self._element = tag
        if tag in ("tr", "dt"):
            self._row = []
        told = [f"{name}={value}" for name, value in attrs if name in ("style", "title", "d")]
        told += [f"{name}={value}" for name, value in attrs if name.startswith("data-")]
        told += ["checked" for name, _ in attrs if name == "checked"]
        classes = str(dict(attrs).get("class")).split()
        told += [name for name in classes if name in TOLD or name.startswith(("one-", "no-"))]
        if told:
            self._tell(f"[{' '.join(told)}]")

    def handle_endtag(self, tag: str) -> None:
        if tag in ("tr", "dd") and self._row is not None:
            self.lines.append(" | ".join(self._row))
            self._row = None

    def handle_data(self, data: str) -> None:
        words = " ".join(data.split())
        if self._element == "script":
            self.charts = self.charts or data
        elif words and self._element != "style":
            self._tell(words)

    def _tell(self, text: str) -> None:
        lines = self.lines if self._row is None else self._row
        lines.append(text)


def page_of(out: Path, *options: str) -> tuple[str, str]:
    """The text of a folder's page, and its charts."""
    to = out / "page.html"
    assert main(["--out", str(out), "--to", str(to), *options]) == 0
    document = to.read_text(encoding="utf-8")
    scripts = re.findall("<script>(.*?)</script>", document, re.DOTALL)
    hashes = [base64.b64encode(hashlib.sha256(each.encode()).digest()).decode() for each in scripts]
    assert re.findall("sha256-([^&]+)", document.partition("</head>")[0]) == hashes
    body = document.partition("<body>")[2].partition("<script")[0]
    assert not re.findall("^ +$", body, re.MULTILINE), "what the template leaves of its blocks"
    text = Text(document)
    charts = json.loads(text.charts)
    assert charts.pop("themes") == {"light": config(), "dark": config(dark=True)}
    style, _, _ = document.partition("</style>")
    rules = "\n".join(re.findall(r"^:root.*$", style, re.MULTILINE))
    made = r"fedkd-bench [\d.]+ on [-\d: ]+ UTC"
    words = re.sub(made, "fedkd-bench on a day", "\n".join([rules, *text.lines]))
    return words, plain(charts)


def without_runs(page: str) -> str:
    """Leave the list of runs out of the text of a page."""
    head, _, runs = page.partition("\nFailed runs first")
    _, _, about = runs.rpartition("\nAbout\n")
    return f"{head}\n{about}"


def test_a_boards_page(tmp_path: Path) -> None:
    page, charts = page_of(write(tmp_path, [*on_digits(), *unselected()]))
    assert_approved("report/varied.txt", without_runs(page), tmp_path)
    assert_approved("report/varied_charts.txt", charts, tmp_path)


def test_a_page_of_clients(tmp_path: Path) -> None:
    page, charts = page_of(write(tmp_path, of_clients()), "--title", "Of clients")
    assert_approved("report/clients.txt", page, tmp_path)
    assert_approved("report/clients_charts.txt", charts, tmp_path)


def test_a_page_of_odd_runs(tmp_path: Path) -> None:
    odd = ("moon", "mine:Own", "fedavg_ft", "fednova", "scaffold")
    pairs = {}
    for row, curve in on_digits():
        if row["algorithm"] in odd:
            pairs[row["algorithm"], row["status"], row.get("diverged")] = (row, curve)
    page, _ = page_of(write(tmp_path, list(pairs.values())))
    assert_approved("report/odd.txt", page, tmp_path)


def test_a_page_of_confirming_runs(tmp_path: Path) -> None:
    page, _ = page_of(searched(tmp_path), "--tuned", "lr", "--confirmed")
    assert_approved("report/confirmed.txt", without_runs(page), tmp_path)

"""Writes the pages of the site: `python docs/site_pages.py CERTIFICATES FOLDER`.

CERTIFICATES is what `bench.selftest --all --json` prints. The pages are the documents of the
repository with their links turned to pages, a page for each algorithm, pages of the interfaces that
mkdocstrings fills from docstrings, and each file that a document links to. zensical.toml builds the
site from FOLDER.
"""

from __future__ import annotations

import base64
import json
import os
import re
import shutil
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass
from io import StringIO
from pathlib import Path, PurePosixPath
from typing import Any

from make import DOCS, HEAD, escaped, overview, section

from algorithms import ALGORITHMS, Entry
from bench.compare.command import main as compare
from leaderboards.tables.model import EXCLUDED

ROOT = DOCS.parent


@dataclass(frozen=True)
class Board:
    """A board whose lines the pages of algorithms show, each beside the line of `reference`.

    `metrics` has a heading for each column of numbers. `options` of `bench.compare` print them.
    """

    name: str
    page: str
    reference: str
    accuracy: str
    metrics: Mapping[str, str]
    options: tuple[str, ...] = ()


OF_GLOBAL_MODEL = "Test accuracy of the global model in %"
ON_OWN_TESTS = {
    "mean_last10_client_accuracy": "last ten",
    "client_worst10@last": "worst tenth of the clients, last round",
}
BOARDS = (
    Board(
        "reference-v2",
        "reference-v2.md",
        "fedavg",
        OF_GLOBAL_MODEL,
        {"mean_last10_accuracy": "last ten", "selected_accuracy": "selected"},
    ),
    Board(
        "reference",
        "reference.md",
        "fedavg",
        OF_GLOBAL_MODEL,
        {"selected_accuracy": "selected", "mean_last10_accuracy": "last ten"},
        ("--metric", "selected", "last10"),
    ),
    Board(
        "exchange",
        "exchange.md",
        "local",
        "Accuracy in % on the tests of clients that have models of three architectures",
        ON_OWN_TESTS,
    ),
    Board(
        "exchange-one-model",
        "exchange.md",
        "local",
        "Accuracy in % on the tests of clients that have models of one architecture",
        ON_OWN_TESTS,
    ),
)

# A document of the repository -> its page, in the order of the navigation.
SECTIONS = {
    "Use": {
        "README.md": "index.md",
        "docs/usage.md": "usage.md",
        "docs/sweeps.md": "sweeps.md",
        "docs/comparing.md": "comparing.md",
        "docs/results.md": "results.md",
        "docs/columns.md": "columns.md",
        "docs/figures.md": "figures.md",
        "docs/logging.md": "logging.md",
        "docs/cluster.md": "cluster.md",
        "docs/extending.md": "extending.md",
    },
    "Findings": {
        "docs/reference.md": "reference.md",
        "docs/reference-v2.md": "reference-v2.md",
        "docs/exchange.md": "exchange.md",
        "docs/papers.md": "papers.md",
        "docs/agreement.md": "agreement.md",
        "docs/performance.md": "performance.md",
    },
    "Algorithms": {"docs/algorithms.md": "algorithms.md"},
    "Python": {"docs/python.md": "python.md", "docs/quickstart.ipynb": "quickstart.md"},
    "Project": {
        "docs/design.md": "design.md",
        "CONTRIBUTING.md": "contributing.md",
        "CHANGELOG.md": "changelog.md",
        "SECURITY.md": "security.md",
    },
}
# Interfaces for users, and what they hold.
MODULES = {
    "bench.api": "the commands as functions",
    "algorithms.base": "what an algorithm is written with",
    "algorithms.losses": "losses per example",
    "algorithms.params": "arithmetic of models",
    "bench.executors": "algorithms as trainables of Ray Tune",
    "bench.data": "data sets by name",
    "bench.data.partition": "partitions by name",
    "bench.models": "models by name",
    "bench.artifacts": "tracked files of runs",
    "leaderboards": "rows, curves and boards",
    "leaderboards.board": "leaderboards of rows",
    "leaderboards.confirmed": "choosing on one seed, reporting others",
    "leaderboards.numbers": "numbers of a run",
}
FENCED = re.compile(r"^```.*?^```$", re.DOTALL | re.MULTILINE)
Cell = Mapping[str, Any]  # of a table of `bench.compare --format json`
# Partition, alpha, participation, form of the model.
Place = tuple[str, float | None, float, str]
LINK = re.compile(
    r"(\[[\w/-]+\.(?:md|ipynb))?\]\(([^)\s]+)\)"
)  # with its text, if that is a document's name
CLASS = re.compile(r"^\*\*(\w+)\.\*\* ", re.MULTILINE)
REMARK = re.compile(r"^<!--.*?-->$", re.DOTALL | re.MULTILINE)


class Site:
    """The pages in a folder.

    `page_of` says which page a path of the repository has, `titles` what the documents' pages are
    called.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.page_of: dict[str, str] = {}
        self.titles: dict[str, str] = {}
        for documents in SECTIONS.values():
            for source, page in documents.items():
                self.page_of[source] = page
                self.titles[page] = document(source).splitlines()[0].removeprefix("# ")

    def write(self, page: str, text: str) -> None:
        """Write a page, with links as the site has them."""
        path = self.folder / page
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")

    def convert(self, text: str, source: str, page: str) -> str:
        """Turn a document of the repository into a page: its links, remarks and nested lists.

        `source` is the document that links are relative to, `page` where the text will stand.
        Markdown of the site indents what is nested by four blanks, that of the repository by two.
        """
        text = REMARK.sub("", text)
        converted = []
        end = 0
        for fence in FENCED.finditer(text):
            converted.append(self._prose(text[end : fence.start()], source, page))
            converted.append(fence.group())
            end = fence.end()
        converted.append(self._prose(text[end:], source, page))
        return "".join(converted)

    def _prose(self, text: str, source: str, page: str) -> str:
        text = re.sub(r"^( +)", r"\1\1", text, flags=re.MULTILINE)
        return LINK.sub(lambda link: self._link(link[1], link[2], source, page), text)

    def _link(self, text: str | None, target: str, source: str, page: str) -> str:
        """Return a link of `source` to `target` as it stands on `page`; copy what is no page.

        Raises:
            FileNotFoundError: the link leads to nothing.
        """
        shown = text or ""
        if target.startswith("http"):
            return f"{shown}]({target})"
        path, _, anchor = target.partition("#")
        file = os.path.normpath(PurePosixPath(source).parent / path) if path else source
        if file == "docs/algorithms.md" and anchor in ALGORITHMS:
            leads_to = f"algorithms/{anchor}.md"
            anchor = ""
        else:
            leads_to = self._page(file)
        if text and leads_to in self.titles:
            shown = f"[{self.titles[leads_to]}"
        there = relative(leads_to, page)
        return f"{shown}]({there}#{anchor})" if anchor else f"{shown}]({there})"

    def _page(self, file: str) -> str:
        if file not in self.page_of:
            if (ROOT / file).suffix in (".png", ".svg"):
                self.page_of[file] = self._picture(file)
            else:
                self.page_of[file] = self._listing(file)
        return self.page_of[file]

    def _picture(self, file: str) -> str:
        page = f"images/{Path(file).name}"
        (self.folder / "images").mkdir(parents=True, exist_ok=True)
        shutil.copyfile(ROOT / file, self.folder / page)
        return page

    def _listing(self, file: str) -> str:
        """Write a file of the repository as a page that the search leaves out."""
        page = f"source/{file}.md"
        language = {".py": "python", ".toml": "toml", ".cff": "yaml"}.get(Path(file).suffix, "text")
        head = "---\nsearch:\n  exclude: true\n---\n"
        self.write(page, f"{head}# {file}\n\n````{language}\n{read(file)}````\n")
        return page


def read(file: str) -> str:
    """Return the text of a file of the repository."""
    return (ROOT / file).read_text(encoding="utf-8")


def document(file: str) -> str:
    """Return the Markdown of a document; a notebook's cells have their stored outputs below."""
    text = read(file)
    if not file.endswith(".ipynb"):
        return text
    parts = []
    for cell in json.loads(text)["cells"]:
        source = "".join(cell["source"])
        if cell["cell_type"] == "markdown":
            parts.append(source)
        else:
            parts.append(f"```python\n{source}\n```")
            parts += map(_output, cell["outputs"])
    return "\n\n".join([*parts, ""])


def _output(output: Mapping[str, Any]) -> str:
    """Return an output of a notebook's cell: a picture, or text."""
    data = output.get("data", {})
    picture = "".join(data.get("image/svg+xml", ""))
    if picture:
        encoded = base64.b64encode(picture.encode()).decode()
        return f'<img alt="the figure" src="data:image/svg+xml;base64,{encoded}">'
    text = "".join(data.get("text/plain", output.get("text", "")))
    return f"```text\n{text.rstrip()}\n```"


def relative(target: str, page: str) -> str:
    """Return the path from one page to another."""
    return os.path.relpath(target, PurePosixPath(page).parent)


def algorithm_page(
    entry: Entry, cells: Mapping[str, Sequence[Cell]], certificates: Mapping[str, Any]
) -> str:
    """Write the page of an algorithm: its section of docs/algorithms.md, results, certificate."""
    described = section(entry, {}).replace(f"## {entry.name}", f"# {entry.name}", 1)
    described = CLASS.sub(r"## \1\n\n", described)
    described = described.replace("\nDifferences:\n", "\n### Differences\n")
    table = "| hyper-parameter |"
    described = described.replace(table, f"## Hyper-parameters\n\n{table}")
    lines = [described, "## On the boards", "", *boards_lines(entry, cells)]
    lines += ["", "## Certificate", "", *certificate_lines(entry.name, certificates)]
    return "\n".join([*lines, ""])


def boards_lines(entry: Entry, cells: Mapping[str, Sequence[Cell]]) -> Iterator[str]:
    """Yield the algorithm's lines on all boards that have it."""
    lines: list[str] = []
    for board in BOARDS:
        lines += board_lines(entry, board, cells[board.name])
    if not lines:
        yield f"`{entry.name}` is on no board."
        return
    yield from lines
    yield (
        "Mean ± standard deviation, the number of seeds in brackets. `×`: a test excludes the "
        "algorithm from being the best of its column. Hyper-parameters at their default are not "
        "shown."
    )


def board_lines(entry: Entry, board: Board, cells: Sequence[Cell]) -> Iterator[str]:
    """Yield the algorithm's lines on a board, beside those of the board's reference."""
    own_numbers = _by_place(entry.name, cells)
    if not own_numbers:
        return
    references = _by_place(board.reference, cells)
    yield f"{board.accuracy}, on [the board {board.name}]({board.page}):"
    yield ""
    heads = ["partition", "α", "participation", "model", "hyper-parameters"]
    for metric in board.metrics.values():
        heads += [metric, f"{board.reference}, {metric}"]
    yield f"| {' | '.join(heads)} |"
    yield "|---|---:|---:|---|---|" + "---:|" * 2 * len(board.metrics)
    for place, own in own_numbers.items():
        partition, alpha, participation, model = place
        values = [partition, "–" if alpha is None else f"{alpha:g}", f"{participation:g}"]
        values += [f"`{model}`", _configuration(entry, next(iter(own.values())))]
        beside = _beside(place, references)
        for metric in board.metrics:
            for numbers in (own, beside):
                values.append(_accuracy(numbers[metric]) if metric in numbers else "–")
        yield f"| {' | '.join(values)} |"
    yield ""


def _by_place(algorithm: str, cells: Sequence[Cell]) -> dict[Place, dict[str, Cell]]:
    """Return the cells of an algorithm that have a value, by place and metric."""
    numbers: dict[Place, dict[str, Cell]] = {}
    for cell in cells:
        if cell["algorithm"] == algorithm and cell["mean"] is not None:
            place = (cell["partition"], cell["alpha"], cell["participation"], cell["variant"])
            numbers.setdefault(place, {})[cell["metric"]] = cell
    return numbers


def _beside(place: Place, references: Mapping[Place, dict[str, Cell]]) -> dict[str, Cell]:
    """Return the reference's cells at a place: of the same model, if it ran on several."""
    models = {model for *_, model in references}
    if len(models) == 1:
        place = (*place[:-1], *models)
    return references.get(place, {})


def _configuration(entry: Entry, cell: Cell) -> str:
    """Return the hyper-parameters that are not at their default."""
    defaults = {field.name: field.default for field in entry.fields}
    changed = []
    for field, value in cell["hyperparameters"].items():
        own_name = field.removeprefix(f"{entry.name}.")
        if own_name not in defaults or value != defaults[own_name]:
            changed.append(f"{field}={value}")
    return ", ".join(changed) or "–"


def _accuracy(cell: Cell) -> str:
    if cell["state"] == "diverged":
        return "DIVERGED"
    spread = "" if cell["std"] is None else f" ± {100 * cell['std']:.2f}"
    mark = EXCLUDED if cell["excluded"] else ""
    return f"{100 * cell['mean']:.2f}{spread} ({cell['with_value']}){mark}"


def certificate_lines(name: str, certificates: Mapping[str, Any]) -> Iterator[str]:
    """Yield what `bench.selftest` measured of the algorithm."""
    yield (
        f"What `python -m bench.selftest {name}` measured on a CPU, with version "
        f"{certificates['package_version']} and torch {certificates['torch']}:"
    )
    yield ""
    yield "| check | result | measured |"
    yield "|---|---|---|"
    for certificate in certificates["certificates"]:
        if certificate["algorithm"] == name:
            for outcome in certificate["outcomes"]:
                measured = escaped(outcome["measured"])
                yield f"| {outcome['check']} | {outcome['status']} | {measured} |"


def board_cells(board: Board) -> list[Cell]:
    """Return the cells of a board's tables, as `bench.compare --format json` prints them.

    Raises:
        ValueError: the command fails.
    """
    printed = StringIO()
    words = ["--board", board.name, *board.options, "--format", "json"]
    with redirect_stdout(printed), redirect_stderr(StringIO()):
        status = compare(words)
    if status:
        raise ValueError(f"bench.compare {' '.join(words)} ends with {status}")
    cells: list[Cell] = []
    for table in json.loads(printed.getvalue())["tables"]:
        cells += table["cells"]
    return cells


def navigation(site: Site) -> Iterator[str]:
    """Yield the lines of .navigation.md, which lists the pages in their order."""
    for part, documents in SECTIONS.items():
        yield f"- {part}"
        for page in documents.values():
            yield f"    - [{site.titles[page]}]({page})"
        if part == "Algorithms":
            for name in ALGORITHMS:
                yield f"    - [{name}](algorithms/{name}.md)"
        if part == "Python":
            for module in MODULES:
                yield f"    - [{module}](api/{module}.md)"


def main(certificates_file: Path, folder: Path) -> None:
    """Write all pages into the folder, and remove its earlier pages."""
    certificates = json.loads(certificates_file.read_text(encoding="utf-8"))
    cells = {board.name: board_cells(board) for board in BOARDS}
    shutil.rmtree(folder, ignore_errors=True)
    site = Site(folder)
    for source, page in list(site.page_of.items()):
        text = f"{HEAD}\n{overview()}" if source == "docs/algorithms.md" else document(source)
        site.write(page, site.convert(text, source, page))
    for entry in ALGORITHMS.values():
        text = algorithm_page(entry, cells, certificates)
        page = f"algorithms/{entry.name}.md"
        site.write(page, site.convert(text, "docs/algorithms.md", page))
    for module, subject in MODULES.items():
        text = f"# `{module}`: {subject}\n\n::: {module}\n"
        site.write(f"api/{module}.md", text)
    shutil.copyfile(DOCS / "site.css", folder / "site.css")
    site.write(".navigation.md", "\n".join([*navigation(site), ""]))


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:]))

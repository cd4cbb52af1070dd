"""Writes the generated pages: `python docs/make.py`.

A test holds them against what this would write.

- docs/columns.md: from the leaderboards' schema
- docs/algorithms.md: from the registry, the search spaces and the docstrings of the algorithms
- the fields in docs/sweeps.md: from `Setting`
- the names of data sets, partitions and models in docs/usage.md: from their registries
- the reproduced results in docs/papers.md: from leaderboards/reproduced.parquet and printed numbers
- the hooks in docs/extending.md: from algorithms/base.py
- the tables of boards in README.md and docs/reference.md: what `python -m bench.compare` prints,
  given the words in the marks around them
- leaderboards/published.parquet: from published.csv beside it
"""

from __future__ import annotations

import dataclasses
import importlib
import inspect
import json
import os
import pkgutil
import re
import textwrap
from collections.abc import Iterable, Iterator, Mapping
from contextlib import redirect_stderr, redirect_stdout
from csv import DictReader
from io import StringIO
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pandas as pd
import pyarrow as pa
from first_screen import first_screen
from keep import REPRODUCED
from pyarrow import csv

import algorithms
from algorithms import ALGORITHMS, INDEX, Entry, build
from algorithms.base import NEEDS, Algorithm, layers
from algorithms.entry import About, from_json
from algorithms.plugins import read_entry
from bench.compare.command import main as compare
from bench.data.partition import PARTITIONS
from bench.data.registry import DATASETS
from bench.models.registry import MODELS
from bench.sweep.show import tried
from leaderboards.numbers import FORMS, METRICS, NUMBERS
from leaderboards.published import PUBLISHED, PrintedCell, printed_cells
from leaderboards.rows.files import write_table
from leaderboards.rows.schema import COLUMNS, CURVE_COLUMNS, Column
from leaderboards.rows.store import Store
from search_spaces import PAPERS, SPACES, digits, setting_fields

DOCS = Path(__file__).resolve().parent
README = DOCS.parent / "README.md"
OWN = "fedkd"  # the key of this project's own settings


_COLUMNS_HEAD = """# Columns

Made from `leaderboards/rows/schema.py` and `leaderboards/numbers.py`. Accuracies are fractions.
`leaderboard.parquet` also has `hp_<name>` of each hyper-parameter. Fields of the setting that have
no column, such as `step_rule`, stand in `setting_json`.
"""
_RESULTS = """\
A row stores its *results* other than `partition_hash` only to save time. Each of them is a
number that `leaderboards/numbers.py` reads off the run's curve. If a file lacks such a column,
readers compute the number. If it lacks a column that may be empty, readers take the column as
empty. Columns that are not listed here are ignored, such as `accuracy_at` and `rounds_to` of
earlier files. So files of earlier and later versions lie side by side in one folder.
"""
_METRICS_HEAD = """## Metrics of a curve

The last four are sums over all rounds so far: bytes of all participants; steps as the mean over
each round's clients, gradient requests included. With local test sets, the last round also has
`client_accuracy/0` and so on. An algorithm may report further metrics of its own
([extending.md](extending.md)).

"""
_NUMBERS_HEAD = """## Names for `--metric`

"""
_LEADERBOARD = """## leaderboard

One row for each algorithm, configuration and setting. It has the identity columns of `runs` except
`run_key` and `seed`, and

| column | meaning |
|---|---|
| `cell` | what competes: 16 hexadecimal digits of the setting without what an algorithm itself \
needs of it |
| `n`, `failed`, `stopped` | seeds by status |
| `configurations` | configurations of this algorithm here that finished a run, or were stopped by \
the search |
| `configurations_diverged` | of these, configurations of which a run diverged |
| `validation_gap` | mean `best_val_accuracy` minus mean `selected_accuracy`, which is of the same \
rounds: \
what selecting a round on validation promised beyond the test set |
| `selected` | whether validation selects it among the algorithm's configurations \
([rule](results.md#which-configuration-is-selected)) |
| `diverged_count` | number of finished runs that diverged |
| `diverged`, `shortened`, `uncertified` | of any finished run |
| `platforms` | the [platforms](results.md#platforms) of the finished runs, 8 digits each |
| `platforms_mixed` | whether the finished runs ran on several platforms |
| `data_mixed` | a finished run has another copy of the data, or another partition, than most of \
the cell |
| `<metric>_mean`, `_std` | over finished runs, n - 1; `_std` is empty for one seed |
| `<metric>_low`, `_high` | 95 % interval: Student's t; empty below 3 seeds |
| `<metric>_rank` | by means in the cell among the selected, 1 is best; rows with a diverged run \
share the last; \
accuracy ranks are empty for fewer than 3 seeds where another row has 3 |
| `<metric>_excluded` | of best, final and selected accuracy: whether paired t tests over seeds \
exclude the row from \
being the best of its cell, as tables mark it; empty for a row with a diverged run or without a \
rank |
| `<metric>_count` | of metrics that a finished run may lack: how many have it; unless all do, the \
rest is empty |

`leaderboards.board.leaderboard` makes it of `runs`, also in memory and with further metrics. A
leaderboard of confirmed runs (`leaderboards.confirmed.confirmed`) has a further column,
`chosen_on`: the seed, and the cell if that is another one, on which `configurations` were tried
([sweeps.md](sweeps.md)).
"""


def index() -> str:
    """Return algorithms/index.json: all classes and variants whose `about` has a name.

    They are in the order of digits' spaces.

    Raises:
        ValueError: an algorithm has no space there, or a space has no algorithm.
    """
    entries: dict[str, Entry] = {}
    modules = pkgutil.iter_modules(algorithms.__path__, "algorithms.")
    for module in sorted(info.name for info in modules):
        for key, value in vars(importlib.import_module(module)).items():
            about = getattr(value, "__dict__", {}).get("about")
            if isinstance(about, About) and about.name and value.__module__ == module:
                entries[about.name] = read_entry(about.name, f"{module}:{key}")
    listed = [space.algorithm for space in digits.SPACES]
    unlisted = sorted(entries.keys() ^ set(listed))
    if unlisted:
        raise ValueError(f"{unlisted} must stand in both algorithms/ and search_spaces/digits.py")
    in_order = [entries[name] for name in listed]
    return json.dumps(in_order, default=_stated, indent=1, ensure_ascii=False) + "\n"


def _stated(item: Any) -> Any:
    """A set as a list, a dataclass as what differs from its defaults."""
    if isinstance(item, frozenset):
        return sorted(item)
    defaults = {field.name: field.default for field in dataclasses.fields(item)}
    if isinstance(item, Entry):
        defaults["rows"] = {"": item.name}
    return {name: value for name, value in vars(item).items() if value != defaults[name]}


def columns_page() -> str:
    """docs/columns.md."""
    return "\n".join(
        [
            _COLUMNS_HEAD,
            f"## runs\n\n{_columns_table(COLUMNS)}",
            _RESULTS,
            f"## curves\n\n{_columns_table(CURVE_COLUMNS)}",
            _METRICS_HEAD + _metrics_table(),
            _NUMBERS_HEAD + _numbers_table(),
            _LEADERBOARD,
        ]
    )


def _metrics_table() -> str:
    lines = ["| metric | unit | meaning |", "|---|---|---|"]
    for metric in METRICS.values():
        meaning = ", ".join(filter(None, (metric.quantity, metric.of)))
        lines.append(f"| `{metric.name}` | {metric.unit.name} | {escaped(meaning)} |")
    return "\n".join(lines) + "\n"


def _numbers_table() -> str:
    lines = ["| name | column | printed in | better |", "|---|---|---|---|"]
    for number in NUMBERS.values():
        lines.append(
            f"| `{number.short}` | `{number.name}` | {number.unit.shown} | {number.better} |"
        )
    lines += ["", "Further names, read off curves:", "", *(f"- {form}" for form in FORMS)]
    return "\n".join(lines) + "\n"


def _columns_table(columns: Iterable[Column]) -> str:
    lines = [
        "| column | type | unit | meaning | group | may be empty |",
        "|---|---|---|---|---|---|",
    ]
    for column in columns:
        nullable = "yes" if column.nullable else ""
        cells = [column.type, column.unit, column.meaning, column.group, nullable]
        lines.append(f"| `{column.name}` | {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def algorithms_page() -> str:
    """docs/algorithms.md."""
    documented: dict[type[Algorithm], str] = {}
    sections = [section(entry, documented) for entry in ALGORITHMS.values()]
    return "\n".join([HEAD, overview(), *sections])


def readme() -> str:
    """README.md with its first screen."""
    return _between(README.read_text(encoding="utf-8"), "first-screen", first_screen())


def usage_page() -> str:
    """docs/usage.md with the names of data sets, partitions and models."""
    return _between((DOCS / "usage.md").read_text(encoding="utf-8"), "names", _names())


def papers_page() -> str:
    """docs/papers.md with the reproduced results."""
    text = (DOCS / "papers.md").read_text(encoding="utf-8")
    text = _between(text, "reproduced", _reproduced())
    return _between(text, "fedproto", _fedproto())


def reference_page() -> str:
    """docs/reference.md with its tables."""
    return _with_boards((DOCS / "reference.md").read_text(encoding="utf-8"))


def _with_boards(text: str) -> str:
    """`text` with what each command prints, between the marks `<!-- compare WORDS:begin -->`."""
    for words in re.findall(r"<!-- compare (.*):begin -->", text):
        printed = StringIO()
        with (
            redirect_stdout(printed),
            redirect_stderr(StringIO()),
            patch.dict(os.environ, COLUMNS="120"),
        ):
            status = compare(words.split())
        if status:
            raise ValueError(f"bench.compare {words} ends with {status}")
        text = _between(text, f"compare {words}", f"```\n{printed.getvalue()}```\n")
    return text


def sweeps_page() -> str:
    """docs/sweeps.md with the fields of a setting."""
    lines = ["| field | default | allowed | meaning |", "|---|---|---|---|"]
    for name, field in setting_fields().items():
        free = {"bool": "true or false", "str": "a name"}.get(str(field.type), "any number")
        bounds = str(field.metadata["bounds"])
        default = "none" if field.default == "" else str(field.default)
        cells = (default, free if bounds == "any number" else bounds, field.metadata["meaning"])
        lines.append(f"| `{name}` | {_cells(cells)} |")
    text = (DOCS / "sweeps.md").read_text(encoding="utf-8")
    return _between(text, "fields", "\n".join([*lines, ""]))


def extending_page() -> str:
    """docs/extending.md with the hooks, in the order of a run, and what an algorithm may need."""
    text = (DOCS / "extending.md").read_text(encoding="utf-8")
    text = _between(text, "hooks", "\n".join([*_hooks(), ""]))
    needs = [f"- `{name}`: {meaning}" for name, meaning in NEEDS.items()]
    return _between(text, "needs", "\n".join([*needs, ""]))


def _hooks() -> Iterator[str]:
    yield "| hook | what it does |"
    yield "|---|---|"
    for name, hook in vars(Algorithm).items():
        if inspect.isfunction(hook) and not name.startswith("_"):
            _, *parameters = inspect.signature(hook).parameters
            described = " ".join((inspect.getdoc(hook) or "").split())
            yield f"| `{name}({', '.join(parameters)})` | {escaped(described)} |"


def _between(text: str, name: str, content: str) -> str:
    """`text` with new content between its marks of that name."""
    begin = f"<!-- {name}:begin -->\n"
    end = f"<!-- {name}:end -->"
    before, _, rest = text.partition(begin)
    _, _, after = rest.partition(end)
    return before + begin + content + end + after


def _names() -> str:
    """The data sets by kind, the partitions with and without an alpha, the models with papers."""
    kinds: dict[str, list[str]] = {}
    for info in DATASETS.values():
        embedded = " (embedded)" if info.download == 0 else ""
        kinds.setdefault(info.kind, []).append(f"`{info.name}`{embedded}")
    skewed: list[str] = []
    others: list[str] = []
    for name, partition in PARTITIONS.items():
        names = skewed if partition.needs_alpha else others
        names.append(f"`{name}`")
    models = []
    for name, model in MODELS.items():
        papers = re.match(r"(Fed\w+(?:, Fed\w+)*): ", model.summary)
        models.append(f"`{name}` ({papers[1]})" if papers else f"`{name}`")
    datasets = [f"of {kind}: {', '.join(names)}" for kind, names in kinds.items()]
    lines = [
        f"- Data sets, {'; '.join(datasets)}.",
        f"- Partitions, with an alpha: {', '.join(skewed)}; without one: {', '.join(others)}.",
        f"- Models: {', '.join(models)}; `+head` adds a projection head, "
        "`+bn` is the form with BatchNorm, `+lora8` trains a DistilBERT by factors of rank 8.",
    ]
    wrapped = (
        textwrap.fill(line, 120, subsequent_indent="  ", break_on_hyphens=False) for line in lines
    )
    return "\n".join(wrapped) + "\n"


def _reproduced() -> str:
    """The kept runs beside what their papers print of the same setting, and where they ran."""
    runs = Store(REPRODUCED).runs()
    runs = runs[runs["paper"] != "fedproto"]  # which has a table of its own
    runs = runs.assign(position=runs["algorithm"].map([*ALGORITHMS].index))
    runs = runs.sort_values(
        ["paper", "dataset", "num_clients", "participation", "local_epochs", "position"]
    )
    lines = [
        "| paper, data set | clients, a round | E | algorithm | seeds "
        "| last round | printed | mean of the last ten | hours a run |",
        "|---|---|---:|---|---:|---:|---:|---:|---:|",
    ]
    same = ["paper", "dataset", "num_clients", "participation", "local_epochs", "position"]
    for _, of_seeds in runs.groupby([*same, "hp_json"], sort=False):
        run = of_seeds.iloc[0].to_dict()
        clients = f"{run['num_clients']}, {run['participation'] * run['num_clients']:.0f}"
        cells = [
            f"{run['paper']}, {run['dataset']}",
            clients,
            str(run["local_epochs"]),
            _name_of(run),
            str(len(of_seeds)),
            _over_seeds(of_seeds["final_accuracy"]),
            f"{100 * _printed(run):.2f} %",
            _over_seeds(of_seeds["mean_last10_accuracy"]),
            f"{of_seeds['seconds'].mean() / 3600:.1f}",
        ]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join([*lines, ""])


def _over_seeds(values: pd.Series) -> str:
    """Accuracies as percentages: one, or mean and standard deviation."""
    mean = f"{100 * values.mean():.2f}"
    return f"{mean} %" if len(values) == 1 else f"{mean} ± {100 * values.std():.2f} %"


def _fedproto() -> str:
    """The clients' mean accuracies in FedProto's Table 1: ours with their spread, and print."""
    output = StringIO()
    with redirect_stdout(output), redirect_stderr(StringIO()):
        compare(["--paper=fedproto", "--table=1", f"--out={REPRODUCED}", "--format=csv"])
    cells: dict[tuple[str, str], dict[str, Mapping[str, str]]] = {}
    for cell in DictReader(output.getvalue().splitlines()):
        if cell["metric"] == "client_mean" and cell["state"] == "value":
            row = cells.setdefault((cell["printed_as"], cell["algorithm"]), {})
            row[cell["classes_per_client"]] = cell
    numbers = sorted(set().union(*cells.values()))
    heads = [f"n = {n} | printed" for n in numbers]
    lines = [f"| | {' | '.join(heads)} |", "|---|" + "---:|---:|" * len(numbers)]
    for (printed_as, algorithm), row in cells.items():
        name = f"{printed_as}, by prototype" if algorithm.endswith("_proto") else printed_as
        texts = []
        for n in numbers:
            ours = f"{100 * float(row[n]['ours']):.2f}"
            spread = f"{100 * float(row[n]['ours_std']):.2f}"
            texts.append(f"{ours} ± {spread}")
            texts.append(f"{100 * float(row[n]['printed']):.2f}")
        lines.append(f"| {name} | {' | '.join(texts)} |")
    return "\n".join([*lines, ""])


def _name_of(run: Mapping[str, Any]) -> str:
    """The algorithm, and its values of what the paper varies."""
    space = SPACES.get((run["paper"], run["dataset"], run["algorithm"]))
    values = json.loads(run["hp_json"])
    if space is None or not space.grid:
        return str(run["algorithm"])
    varied = [f"{name} {values[name]:g}" for name in space.grid]
    return f"{run['algorithm']} ({', '.join(varied)})"


def _printed(run: Mapping[str, Any]) -> float:
    """The accuracy of the last round that the paper prints for the same problem."""
    same = (
        "paper",
        "dataset",
        "algorithm",
        "alpha",
        "num_clients",
        "participation",
        "local_epochs",
    )
    for cell in printed_cells():
        if cell.metric == "final_acc" and all(getattr(cell, name) == run[name] for name in same):
            return cell.value
    raise LookupError(f"nothing printed for {run['paper']} {run['dataset']} {run['algorithm']}")


HEAD = """# Algorithms

Made by `python docs/make.py` from the registry, the search spaces and the docstrings in
`algorithms/`.

- *Defaults* says what an algorithm's default values follow: the paper's equations, or its authors'
  code where the two differ. The other is an option.
- *In papers* has what each paper tried or states, on which data set. `own` are this project's
  settings (`--paper fedkd`). `feddkd_emnist` are those of FedDKD's Table V. `fedkf_printed` are
  FedKF's with Algorithm 1 as printed, where `fedkf` has its authors' code. All of these are names
  for `--paper`.
- *Differences* are numbered, from the method's own paper: points on which a paper is silent, or on
  which its authors' code differs.

`python -m bench.selftest NAME` prints an algorithm's certificate. Each formula is implemented a
second time, independently, and compared with the first (loss, gradient, server step; 1e-10 in
float64). Both backends, exact limits, resumption and traffic are checked, too. `--all` prints a
line per algorithm. [Agreement with other libraries](agreement.md) compares whole runs.

Traffic is in floats per active client and round:

- P: the model's size (of FedDKD's gradients and SCAFFOLD's controls without BatchNorm's statistics)
- C: classes
- G: a generator's size
- M: the buffer
- J: the steps
- t: the round
"""


def overview() -> str:
    """The table of all algorithms."""
    rows = ["| name | paper | idea | down | up | client keeps | needs |", "|" + "---|" * 7]
    for entry in ALGORITHMS.values():
        cells = (
            _paper(entry),
            entry.summary,
            entry.down,
            entry.up,
            entry.keeps,
            ", ".join(sorted(entry.needs)),
        )
        rows.append(f"| [`{entry.name}`](#{entry.name}) | {_cells(cells)} |")
    return "\n".join(rows) + "\n"


def section(entry: Entry, documented: dict[type[Algorithm], str]) -> str:
    """Write the section of one algorithm; what its classes say stands where they come up first."""
    file = _file(entry)
    printed = f"{escaped(_paper(entry))}, {escaped(entry.equations)}"
    source = f"{printed} · [{file}](../{file})"
    lines = [f"## {entry.name}", "", source, "", *_published(entry)]
    summary = escaped(entry.summary)
    unlike = (
        " Clients may have models of their own (`client_models`)." if entry.unlike_models else ""
    )
    lines += [f"{summary[:1].upper()}{summary[1:]}.{unlike}", ""]
    for kind in map(type, layers(build(entry.name))):
        if kind in documented:
            lines += [f"{kind.__name__}: see [`{documented[kind]}`](#{documented[kind]}).", ""]
        else:
            documented[kind] = entry.name
            lines += [*_described(kind), ""]
    return "\n".join([*lines, *_hyperparameters(entry)])


def _published(entry: Entry) -> list[str]:
    """Title and links of the papers, from the head of the module."""
    text = inspect.getdoc(importlib.import_module(entry.factory.partition(":")[0])) or ""
    title = text.splitlines()[0].rstrip(".")
    links = re.findall(r"https://\S+[^\s.]", text)
    if not links:
        return []
    return [" ".join([f"*{escaped(title)}*", *(f"<{link}>" for link in links)]), ""]


def _described(kind: type[Algorithm]) -> list[str]:
    """A docstring's text, what its defaults follow, and its numbered differences.

    Its Args are in the table of hyper-parameters.
    """
    text = inspect.getdoc(kind) or ""
    body = re.split(r"\n\n(?:Args|Raises|Differences from .+):\n", text)[0]
    lines = [f"**{kind.__name__}.** {escaped(_joined(body))}"]
    if any("bounds" in field.metadata for field in dataclasses.fields(kind)):
        lines += ["", f"Defaults: {escaped(kind.about.defaults_follow)}."]
    differences = re.search(r"Differences from [^\n]+:\n(.*?)(?:\n\n\S|\Z)", text, re.DOTALL)
    if differences:
        points = re.split(r"\n\s*(?=\d+\. )", inspect.cleandoc(differences[1]))
        lines += ["", "Differences:", "", *(escaped(_joined(point)) for point in points)]
    return lines


def _hyperparameters(entry: Entry) -> list[str]:
    if not entry.fields:
        return []
    lines = [
        "| hyper-parameter | default | allowed | in papers | meaning |",
        "|---|---|---|---|---|",
    ]
    for field in entry.fields:
        default = "none" if field.default is None else str(field.default)
        cells = (default, field.allowed, _in_papers(entry.name, field.name), field.meaning)
        lines.append(f"| `{field.name}` | {_cells(cells)} |")
    return [*lines, ""]


def _in_papers(algorithm: str, field: str) -> str:
    """Each grid, or value without a choice, with the papers and data sets that it stands in."""
    cells = []
    for value, places in tried(algorithm, field, stated=True).items():
        names = []
        for paper, dataset in places:
            names.append(f"{'own' if paper == OWN else paper} {dataset}")
        cells.append(f"{value} ({', '.join(names)})")
    return "; ".join(cells)


def _paper(entry: Entry) -> str:
    paper = PAPERS.get(entry.paper)
    return f"{paper.authors} {paper.year}" if paper else entry.paper


def _file(entry: Entry) -> str:
    return entry.factory.partition(":")[0].replace(".", "/") + ".py"


def _cells(texts: Iterable[str]) -> str:
    return " | ".join(escaped(text) or "–" for text in texts)


def _joined(text: str) -> str:
    """Paragraphs of one line each."""
    return "\n\n".join(" ".join(part.split()) for part in text.split("\n\n"))


def escaped(text: str) -> str:
    """Formulas as they are: Markdown's own signs are escaped, except in code."""
    parts = []
    for part in re.split(r"(`[^`]*`)", text):
        is_code = part.startswith("`")
        parts.append(part if is_code else re.sub(r"([\\<>*_~|])", r"\\\1", part))
    return "".join(parts)


def read_source() -> pa.Table:
    """Read `published.csv` as the typed table that `published.parquet` holds."""
    kinds = {"str": pa.string(), "int": pa.int64(), "float": pa.float64()}
    columns = []
    for field in dataclasses.fields(PrintedCell):
        kind, _, optional = str(field.type).partition(" | ")
        columns.append(pa.field(field.name, kinds[kind], nullable=bool(optional)))
    schema = pa.schema(columns, metadata={"fedkd_kind": "published"})
    options = csv.ConvertOptions(column_types=schema, null_values=[""], strings_can_be_null=True)
    return csv.read_csv(PUBLISHED.with_suffix(".csv"), convert_options=options).cast(schema)


if __name__ == "__main__":
    write_table(read_source(), PUBLISHED)
    INDEX.write_text(index(), encoding="utf-8")
    ALGORITHMS.clear()
    ALGORITHMS.update((entry.name, entry) for entry in from_json(INDEX.read_text(encoding="utf-8")))
    (DOCS / "columns.md").write_text(columns_page(), encoding="utf-8")
    README.write_text(readme(), encoding="utf-8")
    (DOCS / "algorithms.md").write_text(algorithms_page(), encoding="utf-8")
    (DOCS / "extending.md").write_text(extending_page(), encoding="utf-8")
    (DOCS / "sweeps.md").write_text(sweeps_page(), encoding="utf-8")
    (DOCS / "reference.md").write_text(reference_page(), encoding="utf-8")
    (DOCS / "usage.md").write_text(usage_page(), encoding="utf-8")
    (DOCS / "papers.md").write_text(papers_page(), encoding="utf-8")

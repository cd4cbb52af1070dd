"""The page: its sections, the style sheet and the scripts, all in one file that needs no network."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Sequence
from datetime import datetime
from importlib.resources import files
from itertools import groupby
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined

from bench import __version__
from bench.charts.panels import renderer
from bench.charts.theme import BACKGROUNDS, DARK, DASHES, FAINT, GRIDS, INKS, LIGHT, SHAPES
from bench.planning.tables import counterparts_of, places_of, title_of
from bench.report.board import (
    board_section,
    difference_sections,
    matrix_sections,
    short_text,
)
from bench.report.charts import Charts
from bench.report.learning import COSTS, POINTS, learning_sections
from bench.report.runs import facts, runs_section, states_of
from bench.report.standings import winners_section
from bench.report.tuning import tuning_section
from bench.stored.groups import groups_of, labels_of, number
from bench.stored.results import Record, Results, shown_accuracies
from leaderboards.flags import MEANINGS, flags_of_run, flags_to_show
from leaderboards.numbers import Number
from leaderboards.published import printed_cells
from leaderboards.replication import replication_sheet, replications
from leaderboards.tables.build import tables_of_records
from leaderboards.tables.captions import of_whose_models
from leaderboards.tables.model import EXCLUDED, WHEN_EXCLUDED
from leaderboards.tables.over_cells import BASELINE

TITLE = "Federated learning with knowledge distillation"
_SCRIPTS = ("tables.js", "charts.js", "page.js")
_SHAPE_PATHS = {
    "circle": "M18 4a4 4 0 1 0 .01 0z",
    "square": "M14.3 4.3h7.4v7.4h-7.4z",
    "triangle-up": "M18 3.5l4.6 8h-9.2z",
    "diamond": "M18 3l4 5-4 5-4-5z",
    "cross": "M16.4 3.2h3.2v3.2h3.2v3.2h-3.2v3.2h-3.2v-3.2h-3.2v-3.2h3.2z",
    "triangle-down": "M18 12.5l4.6-8h-9.2z",
    "triangle-right": "M22.5 8l-8 4.6v-9.2z",
}


def page(results: Results, title: str, made: datetime, stated: Sequence[str] | None = None) -> str:
    """Return the HTML document.

    Args:
        results: to show.
        title: heading of the page.
        made: when.
        stated: names of the board's metrics, the primary one first; None if it states none.

    Raises:
        EnvironmentProblem: vl-convert-python is not installed.
    """
    scripts = [javascript_bundle(), *(_wrapped(_file(name)) for name in _SCRIPTS)]
    groups, labels, charts = groups_of(results.records), labels_of(results.records), Charts()
    metrics = shown_accuracies(results.records, stated)
    tables = {group.key: tables_of_records(group.records, metrics)[0] for group in groups}
    present = {key for record in results.records for key, _ in flags_to_show(record)}
    present |= {key for run in results.runs for key, _ in flags_of_run(run)}
    context = {
        "title": title,
        "made": made,
        "version": __version__,
        "policy": _policy(scripts),
        "style": _colours() + _file("page.css") + _metric_rules(metrics),
        "scripts": scripts,
        "metrics": metrics,
        "metric_choices": [(metric.name, metric.short, metric.of) for metric in metrics],
        "baseline": BASELINE,
        "excluded": (EXCLUDED, WHEN_EXCLUDED),
        "quantities": _quantities(metrics, results.records),
        "cost_choices": [(cost, cost, "") for cost in COSTS],
        "groups": groups,
        "states": states_of(results.runs),
        "facts": list(facts(results.runs, groups, labels)),
        "flags": sorted(MEANINGS.items(), key=lambda flag: flag[0] not in present),
        "present": present,
        "keys": [{"name": label, **_sign(position)} for position, label in enumerate(labels)],
        "points": POINTS,
        "differences": difference_sections(groups, tables, metrics),
        "matrices": matrix_sections(groups, tables, metrics),
        "board": board_section(groups, tables, metrics),
        "winners": winners_section(groups, tables, metrics, labels, charts),
        "learning": learning_sections(groups, results, labels, charts),
        "tuning": tuning_section(groups, charts),
        "printed": _printed_section(results),
        "runs": runs_section(results.runs, results.curves),
        "charts": charts.embedded(),
    }
    environment = Environment(
        loader=PackageLoader("bench.report"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    environment.policies["json.dumps_kwargs"] = {
        "separators": (",", ":"),
        "ensure_ascii": False,
        "allow_nan": False,
    }
    environment.globals |= {"number": number, "meanings": MEANINGS, "short": short_text}
    return environment.get_template("page.html").render(context)


def javascript_bundle() -> str:
    """Return Vega, Vega-Lite and vega-embed as one script without global names; raises as `renderer` does."""
    bundle = renderer().javascript_bundle()
    # The HTML parser ends a script at the first of these, even inside a string of JavaScript.
    return _wrapped(bundle.replace("</script", "<\\/script").replace("<!--", "<\\!--"))


def _printed_section(results: Results) -> list[dict[str, Any]]:
    """Return every printed table that has a run in some cell, and the `places` above its columns with their widths."""
    stored = {(run["dataset"], run["algorithm"]) for run in results.runs}
    printed = {
        (cell.paper, cell.table): None
        for cell in printed_cells()
        if (cell.dataset, cell.algorithm) in stored
    }
    tables = [places_of(paper, table) for paper, table in printed]
    groups = [
        [counterpart for cell in cells for counterpart in counterparts_of(cell)] for cells in tables
    ]
    answers = (
        iter(replications([c for group in groups for c in group], results.source))
        if tables
        else iter(())
    )
    sections = []
    for cells, group in zip(tables, groups, strict=True):
        beside_ours = [next(answers) for _ in group]
        if any(answer.state != "missing" for answer in beside_ours):
            table = replication_sheet(beside_ours, title_of(cells[0])).table
            places = [
                (label, len(list(heads)))
                for label, heads in groupby(table.heads, key=lambda head: head.label)
            ]
            sections.append({"title": title_of(cells[0]), "table": table, "places": places})
    return sections


def _sign(position: int) -> dict[str, str]:
    """Return dash, shape and colour of the algorithm in that position, as the charts have them."""
    return {
        "dash": " ".join(map(str, DASHES[position % len(DASHES)])),
        "shape": _SHAPE_PATHS[SHAPES[position % len(SHAPES)]],
        "colour": f"var(--c{position % len(LIGHT)})",
    }


def _colours() -> str:
    """Return the colours of `bench.charts.theme` as CSS custom properties, each for both themes."""
    pairs = {f"c{position}": pair for position, pair in enumerate(zip(LIGHT, DARK, strict=True))}
    pairs |= {"ground": BACKGROUNDS, "ink": INKS, "faint": FAINT, "line": GRIDS}
    return (
        ":root{"
        + "".join(f"--{name}:light-dark({a},{b});" for name, (a, b) in pairs.items())
        + "}\n"
    )


def _metric_rules(metrics: Sequence[Number]) -> str:
    """Return CSS that shows what is of the chosen metric, `data-metric` of the root."""
    rules = []
    for metric in metrics:
        chosen = f':root[data-metric="{metric.name}"]'
        rules.append(f"{chosen} .{metric.name}{{display:revert}}")
        rules.append(f"{chosen} i.whisker.{metric.name}{{display:block}}")
    return "\n".join(rules) + "\n"


def _quantities(metrics: Sequence[Number], records: Sequence[Record]) -> list[str]:
    """Return sentences on the page's accuracies: of which models, on which samples."""
    by_quantity: dict[str, list[str]] = {}
    for metric in metrics:
        by_quantity.setdefault(metric.quantity, []).append(metric.short)
    sentences = []
    for quantity, names in by_quantity.items():
        sentences.append(f"{', '.join(names)}: {of_whose_models(quantity, records)}.")
    return sentences


def _policy(scripts: Sequence[str]) -> str:
    """Return a content security policy that allows only these scripts, and no fetches."""
    hashes = [
        base64.b64encode(hashlib.sha256(script.encode()).digest()).decode() for script in scripts
    ]
    allowed = " ".join(f"'sha256-{text}'" for text in hashes)
    return (
        f"default-src 'none'; script-src {allowed}; style-src 'unsafe-inline'; img-src data: blob:"
    )


def _wrapped(script: str) -> str:
    return f"(()=>{{\n{script}\n}})();"


def _file(name: str) -> str:
    return files("bench.report").joinpath(name).read_text(encoding="utf-8")

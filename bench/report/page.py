"""The page: its sections, the style sheet and the scripts, in one file that needs no network."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Sequence
from datetime import datetime
from importlib.resources import files
from itertools import chain, groupby, islice
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined

from bench import __version__
from bench.charts.lines import BANDED
from bench.charts.panels import renderer
from bench.charts.theme import BACKGROUNDS, DARK, DASHES, FAINT, GRIDS, INKS, LIGHT, SHAPES
from bench.planning.tables import counterparts_of, places_of, title_of
from bench.report.charts import Charts
from bench.report.leaderboard import (
    board_section,
    difference_sections,
    matrix_sections,
    short_text,
)
from bench.report.learning import COSTS, POINTS, learning_sections
from bench.report.run_list import facts, runs_section, seed_spans, states_of
from bench.report.standings import winners_section
from bench.report.tuning import tuning_section
from bench.stored.groups import groups_of, labels_of, number
from bench.stored.results import Record, Results, shown_accuracies
from leaderboards.flags import MEANINGS, flags_of_run, flags_to_show
from leaderboards.numbers import NUMBERS, Number
from leaderboards.published import printed_cells
from leaderboards.replication import replication_sheet, replications
from leaderboards.selection import RULES
from leaderboards.tables import tables_of
from leaderboards.tables.captions import of_whose_models, tried
from leaderboards.tables.model import EXCLUDED, WHEN_EXCLUDED

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
        made: time of writing, in UTC.
        stated: names of the board's metrics, the primary one first; None if it states none.

    Raises:
        EnvironmentProblem: vl-convert-python is not installed.
    """
    scripts = [javascript_bundle(), *(_wrapped(_file(name)) for name in _SCRIPTS)]
    groups = groups_of(results.records)
    labels = labels_of(results.records)
    charts = Charts()
    metrics = shown_accuracies(results.records, stated)
    tables = {group.key: tables_of(group.records, metrics)[0] for group in groups}
    present = _flags_present(results)
    context = {
        "title": title,
        "made": made,
        "version": __version__,
        "policy": _policy(scripts),
        "style": _colours() + _file("page.css") + _metric_rules(metrics),
        "scripts": scripts,
        "metrics": metrics,
        "metric_choices": [(metric.name, metric.short, metric.of) for metric in metrics],
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
        "banded": BANDED,
        "differences": difference_sections(results.records, metrics),
        "matrices": matrix_sections(groups, tables, metrics),
        "board": board_section(groups, tables, metrics),
        "winners": winners_section(groups, tables, metrics, labels, charts),
        "learning": learning_sections(groups, results, labels, charts),
        "tuning": tuning_section(groups, charts),
        "tried": tried(results.records),
        "chosen_by": NUMBERS[RULES[results.records[0]["chosen_by"]]].of,
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
    )
    environment.policies["json.dumps_kwargs"] = {
        "separators": (",", ":"),
        "ensure_ascii": False,
        "allow_nan": False,
    }
    environment.globals |= {
        "number": number,
        "meanings": MEANINGS,
        "short": short_text,
        "seed_spans": seed_spans,
    }
    return environment.get_template("page.html").render(context)


def _flags_present(results: Results) -> set[str]:
    """Return the keys of all flags that some row or run has."""
    flags = chain.from_iterable(map(flags_to_show, results.records))
    flags_of_runs = chain.from_iterable(map(flags_of_run, results.runs))
    return {key for key, _ in chain(flags, flags_of_runs)}


def javascript_bundle() -> str:
    """Return Vega, Vega-Lite and vega-embed as one script without global names.

    Raises EnvironmentProblem if vl-convert-python is not installed.
    """
    bundle = renderer().javascript_bundle()
    # The HTML parser ends a script at the first of these, even inside a string of JavaScript.
    return _wrapped(bundle.replace("</script", "<\\/script").replace("<!--", "<\\!--"))


def _printed_section(results: Results) -> list[dict[str, Any]]:
    """Return `title`, `table` and `places` of every printed table that has a run in some cell.

    The places, with their widths, are above the columns.
    """
    stored = {(run["dataset"], run["algorithm"]) for run in results.runs}
    printed = {
        (cell.paper, cell.table): None
        for cell in printed_cells()
        if (cell.dataset, cell.algorithm) in stored
    }
    titles = []
    counterparts = []  # of each table
    for paper, table_name in printed:
        places = places_of(paper, table_name)
        titles.append(title_of(places[0]))
        counterparts.append(list(chain.from_iterable(map(counterparts_of, places))))
    if not titles:
        return []
    # All tables at once, because the rows are read once for all of them.
    answers = iter(replications(list(chain.from_iterable(counterparts)), results.source))
    sections = []
    for title, counterparts_of_table in zip(titles, counterparts, strict=True):
        beside_ours = list(islice(answers, len(counterparts_of_table)))
        if any(answer.state != "missing" for answer in beside_ours):
            table = replication_sheet(beside_ours, title).table
            widths = []
            for label, heads in groupby(table.heads, key=lambda head: head.label):
                widths.append((label, len(list(heads))))
            sections.append({"title": title, "table": table, "places": widths})
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
    properties = [f"--{name}:light-dark({light},{dark});" for name, (light, dark) in pairs.items()]
    return f":root{{{''.join(properties)}}}\n"


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
    sources = []
    for script in scripts:
        digest = hashlib.sha256(script.encode()).digest()
        sources.append(f"'sha256-{base64.b64encode(digest).decode()}'")
    allowed = " ".join(sources)
    return (
        f"default-src 'none'; script-src {allowed}; style-src 'unsafe-inline'; img-src data: blob:"
    )


def _wrapped(script: str) -> str:
    return f"(()=>{{\n{script}\n}})();"


def _file(name: str) -> str:
    return files("bench.report").joinpath(name).read_text(encoding="utf-8")

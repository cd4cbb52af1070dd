"""The page: its sections, the style sheet and the scripts, all in one file that asks the network for nothing."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Sequence
from datetime import datetime
from importlib.resources import files

from bench import __version__
from bench.charts.theme import BACKGROUNDS, DARK, DASHES, FAINT, GRIDS, INKS, LIGHT, SHAPES
from bench.errors import EnvironmentProblem
from bench.report.board import board_section
from bench.report.embed import Charts
from bench.report.flags import flags_of, flags_of_run
from bench.report.head import legend, method, section, summary
from bench.report.html import Html, join, tag
from bench.report.learning import learning_sections, points_per_line
from bench.report.printed import printed_section
from bench.report.runs import runs_section
from bench.report.standings import SHOWN
from bench.report.tuning import tuning_section
from bench.report.winners import winners_section
from bench.stored.groups import groups_of, labels_of
from bench.stored.results import Results

TITLE = "Federated learning with knowledge distillation"
_SCRIPTS = ("tables.js", "charts.js", "page.js")
_SECTIONS = {
    "leaderboard": "Leaderboard",
    "winners": "Winners",
    "curves": "Learning curves",
    "costs": "Costs",
    "tuning": "Hyper-parameters",
    "print": "Beside print",
    "runs": "Runs",
}


def page(results: Results, title: str, made: datetime) -> str:
    """The whole document.

    Args:
        results: what it shows.
        title: its heading.
        made: when.

    Raises:
        EnvironmentProblem: vl-convert-python is not installed.
    """
    scripts = [javascript_bundle(), *(_wrapped(_file(name)) for name in _SCRIPTS)]
    charts = Charts()
    body = join(
        tag("a", "Skip to the leaderboard", href="#leaderboard", class_="skip"),
        *_body(results, title, made, charts),
        charts.embedded(),
        *(tag("script", Html(script)) for script in scripts),
    )
    head = tag(
        "head",
        tag("meta", charset="utf-8"),
        tag("meta", http_equiv="Content-Security-Policy", content=_policy(scripts)),
        tag("meta", name="viewport", content="width=device-width, initial-scale=1"),
        tag("meta", name="color-scheme", content="light dark"),
        tag("meta", name="generator", content=f"fedkd-bench {__version__}"),
        tag("title", title),
        tag("style", Html(_colours() + _file("page.css"))),
    )
    return f"<!doctype html>\n{tag('html', head, tag('body', body), lang='en')}\n"


def javascript_bundle() -> str:
    """Vega, Vega-Lite and vega-embed as one script that keeps its names to itself.

    Raises:
        EnvironmentProblem: the package that holds them is not installed.
    """
    try:
        import vl_convert
    except ImportError:
        raise EnvironmentProblem(
            'the page needs the package vl-convert-python: pip install "fedkd-bench[report]", '
            "or pip install vl-convert-python"
        ) from None
    bundle = vl_convert.javascript_bundle()  # type: ignore[call-arg] # its stub asks for an optional argument
    # The HTML parser ends a script at the first of these, whatever JavaScript thinks of it.
    return _wrapped(bundle.replace("</script", "<\\/script").replace("<!--", "<\\!--"))


def _body(results: Results, title: str, made: datetime, charts: Charts) -> Sequence[Html]:
    groups = groups_of(results.records)
    labels = labels_of(results.records)
    present = {key for record in results.records for key, _ in flags_of(record)}
    present |= {key for run in results.runs for key, _ in flags_of_run(run)}
    curves, costs = learning_sections(groups, results, labels, charts)
    lines = sum(len(cell.selected) for group in groups for cell in group.cells)
    keys = _line_legend(labels)
    parts = {
        "leaderboard": (
            "The selected configuration of every algorithm in every cell; a click on a heading sorts.",
            _metric_switch(),
            board_section(groups),
        ),
        "winners": (
            "The best algorithm at each α and participation, with its margin over the second. Solid edge: separable "
            "from all others; dashed: it cannot be told from chance, or not all could be tested.",
            winners_section(groups, labels, charts),
        ),
        "curves": (
            "Test accuracy of the selected configurations: mean over seeds; the band reaches from the lowest to the "
            f"highest seed. At most {points_per_line(lines)} evenly spaced rounds of a curve are drawn, the last "
            "among them; values are rounded to 0.01 %.",
            keys,
            curves,
        ),
        "costs": (
            "The same accuracies against what was spent to reach them. Seconds are known for whole runs only, and "
            "compare only between runs of the same machine and load.",
            _cost_switch(),
            keys,
            costs,
        ),
        "tuning": (
            "Validation accuracy, never test accuracy. Points are configurations (mean over seeds), lines the means "
            "at each value. Importance is the main effect of a functional ANOVA on the grid: the share of the "
            "variance of mean validation accuracy between configurations that one hyper-parameter explains alone; "
            "the upright mark is what one without any effect would get.",
            tuning_section(groups, charts),
        ),
        "print": ("What the papers print, and what our runs of the same cells reached.", printed_section(results)),
        "runs": (
            "Failed runs first. Opened, a run shows its results, full configuration and provenance, its error if it "
            "has one, and the command that runs it again and compares every result.",
            runs_section(results.runs, groups),
        ),
    }
    sections = [section(anchor, _SECTIONS[anchor], *own) for anchor, own in parts.items()]
    intro = (summary(results.runs, groups, labels), legend(present), method())
    return [_top(), tag("main", tag("header", tag("h1", title), *intro), *sections), _foot(made)]


def _top() -> Html:
    links = [tag("a", name, href=f"#{anchor}") for anchor, name in _SECTIONS.items()]
    theme = tag("button", "Dark", type="button", id="theme", aria_pressed="false", hidden=True)
    return tag("div", tag("nav", *links, aria_label="Sections"), theme, class_="top")


def _foot(made: datetime) -> Html:
    note = tag("noscript", "Charts, sorting and filters need JavaScript; tables and runs do not.")
    text = f"Made by fedkd-bench {__version__} on {made:%Y-%m-%d %H:%M} UTC. Every number comes from the runs above."
    return tag("footer", tag("p", text), note)


def _metric_switch() -> Html:
    choices = [(metric.name, metric.short, metric.of) for metric in SHOWN]
    return _switch("metric", "Accuracy at", choices)


def _cost_switch() -> Html:
    return _switch("cost", "Against", [(name, name, "") for name in ("bytes", "steps", "seconds")])


def _switch(name: str, title: str, choices: Sequence[tuple[str, str, str]]) -> Html:
    """One of several, as radio buttons."""
    options = [
        tag(
            "label",
            tag("input", type="radio", name=name, value=value, checked=position == 0),
            tag("span", text, title=explained or None),
        )
        for position, (value, text, explained) in enumerate(choices)
    ]
    return tag("fieldset", tag("legend", title), *options, class_="switch", hidden=True)


def _line_legend(labels: Sequence[str]) -> Html:
    """A button per algorithm that shows and hides its lines in all charts, with the sign that it has there."""
    buttons = [
        tag("button", _sign(position), label, type="button", aria_pressed="true", data_algorithm=label)
        for position, label in enumerate(labels)
    ]
    every = tag("button", "all", type="button", class_="all")
    return tag("div", *buttons, every, class_="keys", role="group", aria_label="Algorithms shown", hidden=True)


def _sign(position: int) -> Html:
    """A short line with the dash, shape and colour of a name in that position."""
    dashes = " ".join(map(str, DASHES[position % len(DASHES)]))
    colour = f"var(--c{position % len(LIGHT)})"
    line = tag("path", d="M1 8H35", stroke=colour, stroke_width=2, stroke_dasharray=dashes)
    point = tag("path", d=_SHAPE_PATHS[SHAPES[position % len(SHAPES)]], fill=colour)
    return tag("svg", line, point, width=36, height=16, viewBox="0 0 36 16", aria_hidden="true")


_SHAPE_PATHS = {
    "circle": "M18 4a4 4 0 1 0 .01 0z",
    "square": "M14.3 4.3h7.4v7.4h-7.4z",
    "triangle-up": "M18 3.5l4.6 8h-9.2z",
    "diamond": "M18 3l4 5-4 5-4-5z",
    "cross": "M16.4 3.2h3.2v3.2h3.2v3.2h-3.2v3.2h-3.2v-3.2h-3.2v-3.2h3.2z",
    "triangle-down": "M18 12.5l4.6-8h-9.2z",
    "triangle-right": "M22.5 8l-8 4.6v-9.2z",
}


def _colours() -> str:
    """The colours of `bench.charts.theme` as custom properties, both themes in one."""
    pairs = {f"c{position}": pair for position, pair in enumerate(zip(LIGHT, DARK, strict=True))}
    pairs |= {"ground": BACKGROUNDS, "ink": INKS, "faint": FAINT, "line": GRIDS}
    return ":root{" + "".join(f"--{name}:light-dark({a},{b});" for name, (a, b) in pairs.items()) + "}\n"


def _policy(scripts: Sequence[str]) -> str:
    """Only these very scripts run, and nothing is fetched from anywhere."""
    hashes = [base64.b64encode(hashlib.sha256(script.encode()).digest()).decode() for script in scripts]
    allowed = " ".join(f"'sha256-{text}'" for text in hashes)
    return f"default-src 'none'; script-src {allowed}; style-src 'unsafe-inline'; img-src data: blob:"


def _wrapped(script: str) -> str:
    return f"(()=>{{\n{script}\n}})();"


def _file(name: str) -> str:
    return files("bench.report").joinpath(name).read_text(encoding="utf-8")

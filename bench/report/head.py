"""The head of the page: what was run, when and with what; what the flags mean; how the numbers were made."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from bench.report.flags import MEANINGS, chips
from bench.report.html import Child, Html, join, tag
from bench.stored.groups import Group
from bench.stored.results import Run
from bench.terminal.words import counted

_SHORT_COMMIT = 10


def summary(runs: Sequence[Run], groups: Sequence[Group], labels: Sequence[str]) -> Html:
    """What was run, when, from which commit and versions, on what.

    Args:
        runs: of the page.
        groups: of the page.
        labels: every algorithm.
    """
    pairs = [tag("div", tag("dt", name), tag("dd", value)) for name, value in _facts(runs, groups, labels)]
    return tag("dl", *pairs, class_="facts")


def _facts(runs: Sequence[Run], groups: Sequence[Group], labels: Sequence[str]) -> Iterator[tuple[str, Child]]:
    counts = Counter(run["status"] for run in runs)
    diverged = sum(bool(run["diverged"]) for run in runs)
    states = [f"{count:,} {status}" for status, count in sorted(counts.items())]
    states += [f"{diverged:,} of them DIVERGED"] * bool(diverged)
    yield "runs", f"{len(runs):,}: {', '.join(states)}"
    yield "algorithms", f"{len(labels)}: {', '.join(labels)}"
    yield "settings", tag("ul", *(tag("li", tag("a", group.title, href=f"#{group.key}")) for group in groups))
    seeds = sorted({run["seed"] for run in runs})
    yield "seeds", _some(map(str, seeds), 12)
    if found := sorted(
        {str(r["chosen_on"]) for group in groups for cell in group.cells for r in cell.records if r.get("chosen_on")}
    ):
        yield "chosen on", f"{', '.join(found)}, which is not shown"
    yield "run", _period(runs)
    yield "commits", _some(_commits(runs), 4)
    yield "versions", _some(_versions(runs), 12)
    yield "machines", _some(_machines(runs), 4)
    yield "papers", _some(sorted({run["paper"] for run in runs if run["paper"]}), 8) or "none"


def _period(runs: Sequence[Run]) -> str:
    first, last = min(run["started"] for run in runs), max(run["finished"] for run in runs)
    seconds = sum(run["seconds"] or 0.0 for run in runs)
    return f"{first:%Y-%m-%d %H:%M} to {last:%Y-%m-%d %H:%M} UTC, {time_taken(seconds)} of training in all"


def time_taken(seconds: float) -> str:
    """As printed: `12.5 s`, `3 h 20 min`."""
    if seconds < 60:
        return f"{seconds:.1f} s"
    hours, minutes = divmod(round(seconds / 60), 60)
    return f"{hours:,} h {minutes} min" if hours else f"{minutes} min"


def _commits(runs: Sequence[Run]) -> Iterator[str]:
    found = Counter((run["git_commit"], run["git_dirty"]) for run in runs)
    for (commit, dirty), count in found.most_common():
        name = commit[:_SHORT_COMMIT] if commit else "no checkout"
        yield f"{name}{' with uncommitted changes' if dirty else ''} ({counted(count, 'run')})"


def _versions(runs: Sequence[Run]) -> Iterator[str]:
    found: dict[str, set[str]] = {}
    for run in runs:
        for name, version in {"fedkd-bench": run["package_version"], **run["versions"]}.items():
            found.setdefault(name, set()).add(version)
    yield from (f"{name} {' / '.join(sorted(own))}" for name, own in found.items())


def _machines(runs: Sequence[Run]) -> Iterator[str]:
    found = Counter((run["device"], run["cpu"], run["backend"], run["threads"]) for run in runs)
    for (device, cpu, backend, threads), count in found.most_common():
        processor = cpu if device == "cpu" else f"{device}, {cpu}"
        yield f"{processor}, {backend} backend, {counted(threads, 'thread')} ({counted(count, 'run')})"


def _some(values: Iterable[Any], most: int) -> str:
    found = [str(value) for value in values]
    return ", ".join(found[:most]) + (f", and {len(found) - most} more" if len(found) > most else "")


def legend(present: Iterable[str]) -> Html:
    """What the flags mean, those that occur first. `present`: their keys."""
    found = set(present)
    order = sorted(MEANINGS, key=lambda key: key not in found)
    rows = [
        tag(
            "div",
            tag("dt", chips([(key, MEANINGS[key][0])])),
            tag("dd", MEANINGS[key][1]),
            class_=None if key in found else "none",
        )
        for key in order
    ]
    some = "those that occur here first" if found else "none occurs here"
    title = tag("summary", "What the flags mean ", tag("span", f"({some})", class_="note"))
    return tag("details", title, tag("dl", *rows, class_="legend"), open=bool(found))


def method() -> Html:
    """How the numbers were made."""
    lines = (
        "Accuracies are of the global model on the untouched test set. Best: highest round; final: last round; "
        "selected: the round of the best validation accuracy. Best looks at the test set and is optimistic.",
        "Configurations are selected by their mean validation accuracy over seeds, in each cell (setting, α and "
        "participation) for itself; or as “chosen on” above says. Only the selected are ranked, fewer than three seeds "
        "not beside three and more.",
        "Ranks come from paired t tests on common seeds with Holm's correction: =1 is shared by what cannot be told "
        "from the best of its group; (2) is the plain order of means, where fewer than three common seeds allow no "
        "test.",
        "Intervals are 95 % of the mean: Student's t, from three seeds on.",
        "Failed and stopped runs are counted, never averaged in. What was not run is missing, not zero.",
    )
    return tag("details", tag("summary", "How to read the numbers"), tag("ul", *(tag("li", line) for line in lines)))


def section(anchor: str, title: str, introduction: Child, *parts: Child) -> Html:
    """A section of the page with its heading and the sentence below it."""
    heading = tag("h2", title, id=f"{anchor}-heading")
    intro = tag("p", introduction, class_="intro")
    return tag("section", heading, intro, join(*parts), id=anchor, aria_labelledby=f"{anchor}-heading")

"""Comparisons: the cells of one picture, which differ only in the fields of its panels, and the notes on them."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

from bench.stored.groups import field_words, label_of
from bench.stored.results import Record
from leaderboards.flags import FLAGS, flags_of, why_not_selected
from leaderboards.problems import Problem, problems, setting_of
from leaderboards.shell_text import typed
from leaderboards.tables.captions import IN_TITLE, labels_of

_NAMED = ("dataset", "alpha", "participation", "local_epochs")  # come first in a file's name


def comparisons(
    records: Iterable[Record],
    across: Sequence[str],
    where: Mapping[str, Any] | None = None,
    only: Collection[str] | None = None,
) -> list[Problem]:
    """Group rows of a leaderboard, selected or not, as pictures compare them, without groups that have no finished run.

    Args:
        records: the rows.
        across: the fields in which the cells of one comparison may differ.
        where: only these values of these fields.
        only: the fields that matter; None for all.
    """
    conditions = (where or {}).items()
    chosen = [
        r
        for r in records
        if all(setting_of(r["setting_json"]).get(name) == value for name, value in conditions)
    ]
    finished = [
        record
        for problem in problems(chosen, across, only=only)
        if any(record["run_of_seed"] for record in problem.records)
        for record in problem.records
    ]
    return problems(finished, across, only=only, beside=("dataset",), first=_NAMED)


def others(shown: Problem) -> list[str]:
    """Describe the fields that distinguish a comparison from the others and are not in its title."""
    return [field_words(shown, name) for name in shown.differing if name not in IN_TITLE]


def file_name(figure: str, shown: Problem) -> str:
    """Name a picture of a figure, without its ending: `fedcad-4-digits-alpha0.1-participation0.5`."""
    parts = [str(shown.setting["dataset"])]
    for name in dict.fromkeys((*_NAMED[1:], *shown.differing)):
        at = shown.by.index(name) if name in shown.by else None
        values = [shown.setting.get(name) if at is None else place[at] for place in shown.places]
        has_value = values[0] is not None and name != "local_epochs"
        if len(set(map(repr, values))) == 1 and (
            has_value or (name in shown.differing and name != "alpha")
        ):
            parts.append(f"{name}{typed(values[0])}")
    return "-".join([figure, *(re.sub(r"[^\w.+]", "_", part) for part in parts)])


def further(shown: Problem, drawn: Collection[str], why: str) -> list[str]:
    """Write the notes of a picture, which include all caveats; docs/figures.md has their meaning.

    `drawn` are the labels of the algorithms that it shows; `why` says why it lacks an algorithm
    that has a selected configuration.
    """
    lines = others(shown)
    # The record whose reason counts comes last.
    records = sorted(shown.records, key=lambda record: (record["selected"], record["n"] > 0))
    labels = labels_of(shown)
    seen = [
        (label_of(record), labels[cell.place], flags_of(record))
        for cell in shown.cells
        for record in cell.records
        if record["selected"] and label_of(record) in drawn
    ]
    for key in ("shortened", "diverged", "mixed", "data", "uncertified"):
        flag, places = FLAGS[key], dict[str, list[str]]()
        for name, place, flags in seen:
            if key in flags:
                places.setdefault(name, []).append(place)
        if places:
            word = flag.word[0].upper() + flag.word[1:]
            names = [name + f" ({'; '.join(at)})" * (at != [""]) for name, at in places.items()]
            everywhere = sum(map(len, places.values())) == len(seen) and len(names) > 1
            lines.append(f"{word}: {'all' if everywhere else ', '.join(names)}")
    absent = {}
    for record in records:
        if label_of(record) not in drawn:
            reason = why if record["selected"] else why_not_selected(record)
            absent[label_of(record)] = "diverged" if record["diverged"] else reason
    for reason in dict.fromkeys(absent.values()):
        lines.append(
            f"Not shown: {', '.join(name for name, cause in absent.items() if cause == reason)} ({reason})"
        )
    return lines


def seeds_said(counts: Collection[int]) -> str:
    """Describe how many seeds are behind lines and their bands."""
    fewest, most = min(counts), max(counts)
    if most == 1:
        return "1 seed"
    several = (
        f"{most} seeds" if fewest == most else f"{fewest} to {most} seeds, not the same for all"
    )
    return f"mean of {several}, band from the lowest to the highest"

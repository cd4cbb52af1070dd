"""Comparisons: the cells of one picture, and the notes on them.

The cells differ only in the fields of the picture's panels.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any

from bench.charts.lines import BANDED
from bench.stored.fields import worth_telling
from bench.stored.groups import field_words
from bench.stored.results import Record
from leaderboards.flags import FLAGS, flags_of, why_not_selected
from leaderboards.problems import Problem, label_of, problems, setting_of
from leaderboards.shell_text import typed
from leaderboards.tables.captions import IN_TITLE, labels_of

_NAMED = ("dataset", "alpha", "participation", "local_epochs")  # come first in a file's name


def comparisons(
    records: Iterable[Record],
    across: Sequence[str],
    where: Mapping[str, Any] | None = None,
    only: Collection[str] | None = None,
) -> list[Problem]:
    """Group rows of a leaderboard, selected or not, as pictures compare them.

    Groups that have no finished run are left out.

    Args:
        records: the rows.
        across: the fields in which the cells of one comparison may differ.
        where: only these values of these fields.
        only: the fields that matter; None for all.
    """
    conditions = dict(where or {})
    chosen = []
    for record in records:
        setting = setting_of(record["setting_json"])
        if conditions == {name: setting.get(name) for name in conditions}:
            chosen.append(record)
    finished: list[Record] = []
    for problem in problems(chosen, across, only=only):
        if any(record["run_of_seed"] for record in problem.records):
            finished += problem.records
    return problems(finished, across, only=only, beside=("dataset",), first=_NAMED)


def others(shown: Problem) -> list[str]:
    """Describe the fields that tell a comparison from others, but for those in its title."""
    return field_words(shown, IN_TITLE)


def file_name(figure: str, shown: Problem) -> str:
    """Name a picture, without its ending: `fedcad-4-digits-alpha0.1-participation0.5`."""
    parts = [str(shown.setting["dataset"])]
    for name in dict.fromkeys((*_NAMED[1:], *shown.differing)):
        if name in shown.by:
            position = shown.by.index(name)
            values = [place[position] for place in shown.places]
        elif name in shown.differing:
            values = [worth_telling(name, shown.setting)]
        else:
            values = [shown.setting.get(name)]
        if len(set(map(repr, values))) > 1:
            continue  # the picture's panels tell this field
        always_told = name in shown.differing or name != "local_epochs"
        if values[0] is not None and always_told:
            parts.append(f"{name}{typed(values[0])}")
    return "-".join([figure, *(re.sub(r"[^\w.+]", "_", part) for part in parts)])


def further(shown: Problem, drawn: Collection[str], why: str) -> list[str]:
    """Write the notes of a picture: other fields, caveats, and algorithms that it does not show.

    docs/figures.md has the meaning of the caveats.

    Args:
        shown: the cells of the picture.
        drawn: the labels of the algorithms that it shows.
        why: the reason why it lacks an algorithm that has a selected configuration.
    """
    return [*others(shown), *_caveats(shown, drawn), *_not_shown(shown, drawn, why)]


def _caveats(shown: Problem, drawn: Collection[str]) -> Iterator[str]:
    """Yield each flag that a shown configuration has, with the algorithms and their cells."""
    labels = labels_of(shown)
    configurations = []  # algorithm, cell and flags of each
    for cell in shown.cells:
        for record in cell.records:
            name = label_of(record)
            if record["selected"] and name in drawn:
                configurations.append((name, labels[cell.place], flags_of(record)))
    for key in ("shortened", "diverged", "mixed", "data", "uncertified"):
        cells_of: dict[str, list[str]] = {}
        flagged = 0
        for name, cell_label, flags in configurations:
            if key in flags:
                cells_of.setdefault(name, []).append(cell_label)
                flagged += 1
        if not cells_of:
            continue
        everywhere = flagged == len(configurations) and len(cells_of) > 1
        whose = "all" if everywhere else ", ".join(_with_cells(cells_of))
        word = FLAGS[key].word
        yield f"{word[0].upper()}{word[1:]}: {whose}"


def _with_cells(cells_of: Mapping[str, Sequence[str]]) -> Iterator[str]:
    """Yield algorithms with their cells in brackets; the only cell of a picture has no label."""
    for name, cells in cells_of.items():
        yield name if cells == [""] else f"{name} ({'; '.join(cells)})"


def _not_shown(shown: Problem, drawn: Collection[str], why: str) -> Iterator[str]:
    """Yield the algorithms that a picture lacks, one line for each reason."""
    reasons: dict[str, str] = {}
    # The record whose reason counts comes last.
    for record in sorted(shown.records, key=lambda record: (record["selected"], record["n"] > 0)):
        if label_of(record) not in drawn:
            reason = why if record["selected"] else why_not_selected(record)
            reasons[label_of(record)] = "diverged" if record["diverged"] else reason
    for reason in dict.fromkeys(reasons.values()):
        names = [name for name, cause in reasons.items() if cause == reason]
        yield f"Not shown: {', '.join(names)} ({reason})"


def seeds_said(counts: Collection[int], names: Collection[str]) -> str:
    """Describe how many seeds are behind the lines of some algorithms, and their bands."""
    fewest = min(counts)
    most = max(counts)
    if most == 1:
        return "1 seed"
    several = f"{most} seeds"
    if fewest < most:
        several = f"{fewest} to {most} seeds, not the same for all"
    if len(names) > BANDED:
        return f"mean of {several}; no bands, as of more than {BANDED} algorithms"
    return f"mean of {several}, band from the lowest to the highest"

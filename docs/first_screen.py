"""The README's first screen: what some methods gain over FedAvg, and what they cost.

`python docs/make.py` puts the table between the marks `first-screen`. The picture is made by

    python -m bench.figures board-differences --board reference --format svg --to docs/images
"""

from __future__ import annotations

import json
import textwrap
from collections.abc import Mapping, Sequence
from contextlib import redirect_stderr, redirect_stdout
from io import StringIO
from typing import Any

from bench.compare.command import main as compare

REFERENCE = "fedavg"
ARGUMENTS = f"--board reference --metric selected --reference {REFERENCE} --over-cells"
METHODS = ("fedgkd", "fedgkd_vote", "feddkd", "fedlc", "fedlsd", "fedcad", "scaffold")
ANOTHER_MODEL = ("fedkf", "fedavg_t1")  # evaluate the mean of all clients' latest models
PARTICIPATION = 0.2  # of the columns of alphas

Records = Sequence[Mapping[str, Any]]


def first_screen() -> str:
    """Return the table and how to read it, as Markdown."""
    records = _records()
    by_cell = {}
    alphas = []
    for record in records:
        if record.get("participation") == PARTICIPATION:
            by_cell[record["algorithm"], record["alpha"]] = record
            alphas.append(record["alpha"])
    over_cells = {row["algorithm"]: row for row in records if "partitions" in row}
    columns = sorted(set(alphas))
    heads = ["method", *(f"α = {alpha:g}" for alpha in columns)]
    heads += ["all cells", "traffic", "time", "diverged"]
    alignment = ["---"] + ["---:"] * (len(heads) - 1)
    lines = [_line(heads), _line(alignment)]

    def add(names: Sequence[str]) -> None:
        present = [name for name in names if name in over_cells]
        for name in sorted(present, key=lambda name: -over_cells[name]["difference"]):
            own = [_difference(by_cell.get((name, alpha))) for alpha in columns]
            own += _whole(over_cells[name])
            lines.append(_line([f"`{name}`", *own]))

    add(METHODS)
    lines.append(_line(["*another model is evaluated:*", *[""] * (len(heads) - 1)]))
    add(ANOTHER_MODEL)
    lines.append("")
    for remark in _READING:
        bullet = textwrap.fill(f"- {remark}", 120, subsequent_indent="  ", break_on_hyphens=False)
        lines.append(bullet)
    return "\n".join([*lines, ""])


_READING = (
    f"**α columns**: participation {PARTICIPATION:g}, five partitions (`fedkf`: three). Each "
    "interval is of its own, not corrected for their number. A dash: a run diverged there.",
    "**All cells**: the mean over all α and participations (`fedkf`: over its three cells), as in "
    "the picture. All its intervals hold at once. A diverged run counts with its last model.",
    "**Traffic, time**: multiples of FedAvg's; time where both ran with one version of torch. "
    "**Diverged**: runs, of all.",
    "`fedkf` evaluates the mean of all clients' latest models, the others the round's model.",
    "`python -m bench.compare --board reference --metric selected --over-cells --reference "
    f"{REFERENCE}` prints all methods.",
)


def _records() -> Records:
    """Return the records of all tables that the command prints."""
    printed = StringIO()
    with redirect_stdout(printed), redirect_stderr(StringIO()):
        status = compare([*ARGUMENTS.split(), "--format", "json"])
    if status:
        raise ValueError(f"bench.compare {ARGUMENTS} ends with {status}")
    records = []
    for table in json.loads(printed.getvalue())["tables"]:
        records += table["cells"]
    return records


def _whole(record: Mapping[str, Any]) -> list[str]:
    counts = f"{record['diverged']}/{record['runs']}"
    ratios = (record["traffic_ratio"], record["time_ratio"])
    return [_difference(record), *map(_ratio, ratios), counts]


def _ratio(ratio: float | None) -> str:
    if ratio is None:
        return "–"
    return f"{ratio:.0f}x" if ratio >= 10 else f"{ratio:.1f}x"


def _difference(record: Mapping[str, Any] | None) -> str:
    """Format `+1.0 [+0.1, +2.1]`; a dash where a run diverged or none was made."""
    if record is None:
        return "–"
    numbers = [record["difference"], record["low"], record["high"]]
    texts = ["" if number is None else f"{100 * number:+.1f}" for number in numbers]
    interval = f" [{texts[1]}, {texts[2]}]" if texts[1] else ""
    return texts[0] + interval


def _line(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"

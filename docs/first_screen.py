"""The README's first screen: what some methods gain over FedAvg, and what they cost.

`python docs/make.py` puts the table between the marks `first-screen`. The picture is made by

    python -m bench.figures board-differences --board reference-v2 --format svg --to docs/images \
        --algo fedavg,fedgkd,fedgkd_vote,feddkd,fedlsd
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
BOARD = "--board reference-v2 --metric last10"
COMPARED = f"--reference {REFERENCE} --over-cells"
HYPOTHESES = ("fedgkd", "fedgkd_vote", "feddkd", "fedlsd")
BESIDE = ("fedlc", "fedcad", "fedprox")  # on fewer partitions
ANOTHER_MODEL = ("fedavg_t1",)  # evaluates the mean of all clients' latest models

Records = Sequence[Mapping[str, Any]]


def first_screen() -> str:
    """Return the table and how to read it, as Markdown."""
    family = _records(["--algo", REFERENCE, *HYPOTHESES])
    alphas = sorted({record["alpha"] for record in family if "alpha" in record})
    heads = ["method", *(f"α = {alpha:g}" for alpha in alphas), "all cells", "traffic", "diverged"]
    alignment = ["---"] + ["---:"] * (len(heads) - 1)
    lines = [_line(heads), _line(alignment)]
    lines += _rows(family, HYPOTHESES, alphas)
    everything = _records([])
    for words, names in (("beside them", BESIDE), ("another model is evaluated", ANOTHER_MODEL)):
        lines.append(_line([f"*{words}:*", *[""] * (len(heads) - 1)]))
        lines += _rows(everything, names, alphas)
    lines.append("")
    for remark in _READING:
        bullet = textwrap.fill(f"- {remark}", 120, subsequent_indent="  ", break_on_hyphens=False)
        lines.append(bullet)
    return "\n".join([*lines, ""])


_READING = (
    "**α columns**: 50, 33 and 10 partitions; ten for `fedlc`, `fedcad` and `fedprox`. Each "
    "interval holds by itself. A dash: a run diverged there.",
    "**All cells**: the mean over the three α. The intervals of the four methods, which were named "
    "before the runs, hold at once with 95 %; those of the others are of all ten methods at once.",
    "**Traffic**: multiples of FedAvg's. **Diverged**: runs that did, of all (replicates are one).",
    "`fedavg_t1` is FedAvg, evaluated on the mean of all clients' latest models.",
    f"`python -m bench.compare {BOARD} {COMPARED}` also prints SCAFFOLD and FedNTD, and with "
    f"`--algo fedavg {' '.join(HYPOTHESES)}` the four methods alone, whose intervals these are.",
)


def _rows(records: Records, names: Sequence[str], alphas: Sequence[float]) -> list[str]:
    """Return a line for each algorithm, the best over all cells first."""
    by_cell = {(row["algorithm"], row["alpha"]): row for row in records if "alpha" in row}
    over_cells = {row["algorithm"]: row for row in records if "partitions" in row}
    lines = []
    for name in sorted(names, key=lambda name: -over_cells[name]["difference"]):
        whole = over_cells[name]
        cells = [_difference(by_cell.get((name, alpha))) for alpha in alphas]
        counts = f"{whole['diverged']}/{whole['runs_tried']}"
        cells += [_difference(whole), f"{whole['traffic_ratio']:.1f}x", counts]
        lines.append(_line([f"`{name}`", *cells]))
    return lines


def _records(more: Sequence[str]) -> Records:
    """Return the records of all tables that the command prints."""
    arguments = [*BOARD.split(), *COMPARED.split(), *more]
    printed = StringIO()
    with redirect_stdout(printed), redirect_stderr(StringIO()):
        status = compare([*arguments, "--format", "json"])
    if status:
        raise ValueError(f"bench.compare {' '.join(arguments)} ends with {status}")
    records = []
    for table in json.loads(printed.getvalue())["tables"]:
        records += table["cells"]
    return records


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

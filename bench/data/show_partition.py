"""`python -m bench.data partition`: who holds how many samples of which class, as a table, as JSON, as a picture.

A run with these fields and otherwise default ones gets the same: all training samples, shared out among the clients.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from bench import data
from bench.charts.classes import holdings
from bench.charts.panels import WIDE_SIDE, drawn, picture, renderer
from bench.data.partition import PARTITIONS, partition
from bench.data.splits import split
from bench.errors import EnvironmentProblem, UsageError
from bench.terminal.console import Parser, console, exit_status
from bench.terminal.words import DATA_DIR
from leaderboards.rows.files import atomic_file
from leaderboards.shell_text import shell_command
from search_spaces.setting import Setting

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from rich.table import Table

MOST_ROWS = 100  # of a table
MOST_CLIENTS = 1000  # in a picture


def main(argv: Sequence[str] | None = None) -> int:
    """The command; returns its exit status."""
    given = _parser().parse_args(argv)
    return exit_status(lambda: _show(given))


def _parser() -> Parser:
    parser = Parser(
        prog="python -m bench.data partition",
        description="Show who holds how many samples of which class.",
        epilog="\n".join(["partitions:", *(f"  {name:<14} {entry.summary}" for name, entry in PARTITIONS.items())]),
    )
    parser.add_argument("--dataset", required=True, metavar="NAME", help="data set")
    parser.add_argument("--clients", required=True, type=int, metavar="K", help="number of clients")
    parser.add_argument("--alpha", type=float, metavar="A", help="Dirichlet concentration; small is non-IID")
    parser.add_argument("--partition", default="lda", metavar="NAME", help="how samples are shared out (default lda)")
    parser.add_argument("--seed", type=int, default=0, metavar="S", help="seed of the draws (default 0)")
    parser.add_argument("--plot", type=Path, metavar="FILE", help="also draw it; .svg or .png")
    parser.add_argument("--json", action="store_true", help="machine-readable output")
    parser.add_argument("--data-dir", metavar="DIR", help=DATA_DIR)
    return parser


def _show(given: argparse.Namespace) -> None:
    if given.plot:
        _check_plot(given.plot, given.clients)
    shown = _shared_out(given)
    if given.plot:
        _draw(shown, given.plot)
    if given.json:
        sys.stdout.write(json.dumps(shown) + "\n")
    else:
        _print(shown)


def _shared_out(given: argparse.Namespace) -> dict[str, Any]:
    """The facts that are shown, as JSON has them: `counts` are the samples of each class that each client holds."""
    info = data.info(given.dataset)
    alpha = given.alpha if partition(given.partition).needs_alpha else None
    try:
        setting = Setting(dataset=given.dataset, partition=given.partition, alpha=alpha, num_clients=given.clients)
    except ValueError as error:
        raise UsageError(str(error)) from None
    dataset = data.read(given.dataset, given.data_dir)
    if dataset is None:
        folder = ("--data-dir", given.data_dir) if given.data_dir else ()
        brings = shell_command("bench.data", "prepare", given.dataset, *folder)
        raise EnvironmentProblem(f"{given.dataset} is not in {data.data_dir(given.data_dir)}; run {brings}")
    labels = dataset.train_y
    shares = split(setting, labels, given.seed, dataset.train_groups)
    counts = np.stack([np.bincount(labels[index], minlength=info.num_classes) for index in shares.clients])
    sizes = counts.sum(axis=1)
    return {
        **{name: getattr(setting, name) for name in ("dataset", "partition", "alpha", "num_clients")},
        "seed": given.seed,
        "partition_hash": shares.hash,
        "samples": len(labels),
        "unused": len(labels) - int(sizes.sum()),
        "smallest": {"client": int(sizes.argmin()), "samples": int(sizes.min())},
        "largest": {"client": int(sizes.argmax()), "samples": int(sizes.max())},
        "sizes": sizes.tolist(),
        "distinct_classes": (counts > 0).sum(axis=1).tolist(),
        "counts": counts.tolist(),
    }


def _check_plot(path: Path, clients: int) -> None:
    """Raise UsageError or EnvironmentProblem if a picture cannot be drawn, before anything is shared out."""
    if path.suffix.lower() not in (".svg", ".png"):
        raise UsageError(f"--plot FILE must end in .svg or .png, got {str(path)!r}; try {path.stem}.svg")
    if clients > MOST_CLIENTS:
        raise UsageError(f"--plot draws at most {MOST_CLIENTS:,} clients, got {clients:,}; --json has them all")
    renderer()


def _title(shown: dict[str, Any]) -> str:
    """Data set and partition in one line."""
    alpha = "" if shown["alpha"] is None else f", alpha {shown['alpha']:g}"
    return f"{data.info(shown['dataset']).title}: {shown['partition']}{alpha}, seed {shown['seed']}"


def _draw(shown: dict[str, Any], path: Path) -> None:
    """Write the chart of the papers' figures: a bubble for each client and class, its area the number of samples."""
    counts, sizes, distinct = shown["counts"], shown["sizes"], shown["distinct_classes"]
    samples, classes = f"{min(sizes):,} to {max(sizes):,} samples", f"{min(distinct)} to {max(distinct)} classes"
    panel = holdings(counts, most=max(map(max, counts)), side=WIDE_SIDE)
    spec = picture(_title(shown), [f"{len(sizes):,} clients, {samples} and {classes} each"], [[panel]])
    content = drawn(spec, path.suffix.lower()[1:])
    try:
        with atomic_file(path) as file:
            file.write(content)
    except OSError as error:
        raise EnvironmentProblem(f"--plot {path} cannot be written: {error.strerror or error}; name another") from None


def _print(shown: dict[str, Any]) -> None:
    out, counts = console(), np.array(shown["counts"])
    out.print(_title(shown), style="bold", markup=False)
    # The classes in as many even parts as the width asks for: three columns come first, a space between any two.
    classes = counts.shape[1]
    wide = max(len(str(counts.sum(axis=0).max())), len(str(classes - 1))) + 1
    first = len("client ") + max(len("samples "), len(str(shown["samples"])) + 1) + len("classes ")
    for columns in np.array_split(np.arange(classes), -(-classes // max(1, (out.width - first) // wide))):
        out.print(_table(counts, columns))
    if len(counts) > MOST_ROWS:
        out.print(f"... and {len(counts) - MOST_ROWS:,} more clients; --json has them all")
    smallest, largest, distinct = shown["smallest"], shown["largest"], shown["distinct_classes"]
    lines = [
        f"smallest: client {smallest['client']} with {smallest['samples']:,} samples; largest: client "
        f"{largest['client']} with {largest['samples']:,}; mean {np.mean(shown['sizes']):,.1f}",
        f"classes of a client: {min(distinct)} to {max(distinct)}, mean {np.mean(distinct):.1f}; samples left over: "
        f"{shown['unused']:,}",
        f"partition hash {shown['partition_hash']}",
    ]
    out.print("\n".join(lines), markup=False, soft_wrap=True)


def _table(counts: NDArray[np.int64], columns: NDArray[np.int64]) -> Table:
    """Clients and their samples of some classes."""
    from rich import box
    from rich.table import Column, Table

    heads = ("client", "samples", "classes", *map(str, columns))
    look: dict[str, Any] = {"box": box.SIMPLE_HEAD, "show_edge": False, "padding": 0}
    table = Table(*(Column(head, justify="right", no_wrap=True) for head in heads), **look)
    for client, row in enumerate(counts[:MOST_ROWS]):
        numbers = (str(count) if count else "." for count in row[columns])
        table.add_row(str(client), str(row.sum()), str((row > 0).sum()), *numbers)
    table.add_section()
    totals = counts.sum(axis=0)
    table.add_row("all", str(totals.sum()), str((totals > 0).sum()), *map(str, totals[columns]))
    return table

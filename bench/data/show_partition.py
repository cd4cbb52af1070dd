"""`python -m bench.data partition`: how many samples of each class each client holds.

They are shown as a table, JSON or a picture. A run with these fields, and defaults for the others,
has the same split: all training samples go to the clients.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from bench import data
from bench.charts.class_panels import holdings
from bench.charts.panels import WIDE_SIDE, drawn, picture, renderer
from bench.data.partition import PARTITIONS, partition
from bench.data.splits import split
from bench.errors import EnvironmentProblem, UsageError
from bench.terminal.console import Parser, console, exit_status, say
from bench.terminal.values import nonempty_path, number, whole_number
from bench.terminal.words import DATA_DIR, LABEL, no_effect
from leaderboards.rows.files import typed_file
from leaderboards.shell_text import shell_command
from search_spaces.setting import Setting

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from rich.table import Table

MOST_ROWS = 100  # of a table
MOST_CLIENTS = 1000  # in a picture


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command and return its exit status."""
    args = _parser().parse_args(argv)
    return exit_status(lambda: _show(args))


def _parser() -> Parser:
    partitions = [f"  {name:<14} {entry.summary}" for name, entry in PARTITIONS.items()]
    parser = Parser(
        prog="python -m bench.data partition",
        description="Show who holds how many samples of which class.",
        epilog="\n".join(["partitions:", *partitions]),
    )
    parser.add_argument("--dataset", required=True, metavar="NAME", help="data set")
    parser.add_argument("--label", default="", metavar="COLUMN", help=LABEL)
    parser.add_argument(
        "--clients", required=True, type=whole_number, metavar="K", help="number of clients"
    )
    parser.add_argument(
        "--alpha", type=number, metavar="A", help="Dirichlet concentration; small is non-IID"
    )
    parser.add_argument(
        "--partition",
        default="lda",
        metavar="NAME",
        help="how samples are shared out (default lda)",
    )
    parser.add_argument(
        "--classes-per-client",
        default=Setting().classes_per_client,
        metavar="N",
        help="of partitions shards, k_classes and fedproto (default %(default)s)",
    )
    parser.add_argument(
        "--seed", type=whole_number, default=0, metavar="S", help="seed of the draws (default 0)"
    )
    parser.add_argument(
        "--plot", type=nonempty_path, metavar="FILE", help="also draw it; .svg or .png"
    )
    parser.add_argument("--json", action="store_true", help="machine-readable output")
    parser.add_argument("--data-dir", metavar="DIR", help=DATA_DIR)
    parser.add_argument(
        "--offline",
        action="store_true",
        help="never use the network, which this command never does",
    )
    return parser


def _show(args: argparse.Namespace) -> None:
    if args.plot:
        _check_plot(args.plot, args.clients)
    report = _make_report(args)
    if args.plot:
        _draw(report, args.plot)
        sys.stderr.write(f"{args.plot}\n")
    if args.json:
        sys.stdout.write(json.dumps(report) + "\n")
    else:
        _print(report)


def _make_report(args: argparse.Namespace) -> dict[str, Any]:
    """Return the facts to show, by their JSON keys.

    `counts` are the samples of each class that each client holds.
    """
    setting = _setting(args)
    dataset = data.read(setting.dataset, args.data_dir)
    if dataset is None:
        folder = ("--data-dir", args.data_dir) if args.data_dir else ()
        command = shell_command("bench.data", "prepare", args.dataset, *folder)
        raise EnvironmentProblem(
            f"{args.dataset} is not in {data.data_dir(args.data_dir)}; run {command}"
        )
    labels = dataset.train_y
    shares = split(setting, labels, args.seed, dataset.train_groups)
    counts = shares.class_counts(labels, data.info(setting.dataset).num_classes)
    sizes = counts.sum(axis=1)
    by_classes = partition(setting.partition).needs_classes
    return {
        "dataset": setting.dataset,
        "partition": setting.partition,
        "alpha": setting.alpha,
        "classes_per_client": setting.classes_per_client if by_classes else None,
        "num_clients": setting.num_clients,
        "seed": args.seed,
        "partition_hash": shares.hash,
        "samples": len(labels),
        "unused": len(labels) - int(sizes.sum()),
        "smallest": {"client": int(sizes.argmin()), "samples": int(sizes.min())},
        "largest": {"client": int(sizes.argmax()), "samples": int(sizes.max())},
        "sizes": sizes.tolist(),
        "distinct_classes": (counts > 0).sum(axis=1).tolist(),
        "counts": counts.tolist(),
    }


def _setting(args: argparse.Namespace) -> Setting:
    """Return the setting of a run with these options; raises UsageError for a bad value."""
    entry = partition(args.partition)
    default = Setting().classes_per_client
    try:
        setting = Setting(
            dataset=data.named(args.dataset, args.label),
            partition=args.partition,
            alpha=args.alpha if entry.needs_alpha else None,
            num_clients=args.clients,
            classes_per_client=args.classes_per_client,
        )
    except ValueError as error:
        raise UsageError(str(error)) from None
    if setting.classes_per_client != default and not entry.needs_classes:
        say(no_effect("classes_per_client", default))
        setting = replace(setting, classes_per_client=default)
    return setting


def _check_plot(path: Path, clients: int) -> None:
    """Raise UsageError or EnvironmentProblem if a picture cannot be drawn.

    Samples are dealt only after this check.
    """
    if path.suffix.lower() not in (".svg", ".png"):
        suggestion = path.with_suffix(".svg")
        raise UsageError(
            f"--plot FILE must end in .svg or .png, got {str(path)!r}; try {suggestion}"
        )
    if clients > MOST_CLIENTS:
        raise UsageError(
            f"--plot draws at most {MOST_CLIENTS:,} clients, got {clients:,}; --json has them all"
        )
    renderer()


def _title(report: dict[str, Any]) -> str:
    """Return data set and partition in one line."""
    title = data.info(report["dataset"]).title
    parts = [report["partition"]]
    if report["alpha"] is not None:
        parts.append(f"alpha {report['alpha']:g}")
    if report["classes_per_client"] is not None:
        parts.append(f"classes_per_client {report['classes_per_client']}")
    return f"{title}: {', '.join(parts)}, seed {report['seed']}"


def _draw(report: dict[str, Any], path: Path) -> None:
    """Draw the chart as in the papers: a bubble for each client and class.

    Its area is the number of samples.
    """
    counts = report["counts"]
    sizes = report["sizes"]
    distinct = report["distinct_classes"]
    subtitle = (
        f"{len(sizes):,} clients, {_range(sizes)} samples and {_range(distinct)} classes each"
    )
    panel = holdings(counts, most=max(map(max, counts)), side=WIDE_SIDE)
    spec = picture(_title(report), [subtitle], [[panel]])
    content = drawn(spec, path.suffix.lower()[1:])
    try:
        with typed_file(path) as file:
            file.write(content)
    except OSError as error:
        raise EnvironmentProblem(
            f"--plot {path} cannot be written: {error.strerror or error}; name another"
        ) from None


def _range(counts: Sequence[int]) -> str:
    """Format the least and the most of some counts: `3 to 1,200`; one number if they are equal."""
    low = min(counts)
    high = max(counts)
    return f"{low:,}" if low == high else f"{low:,} to {high:,}"


def _print(report: dict[str, Any]) -> None:
    out = console()
    counts = np.array(report["counts"])
    out.print(_title(report), style="bold")
    for columns in _columns_of_tables(counts, report["samples"], out.width):
        out.print(_table(counts, columns))
    if len(counts) > MOST_ROWS:
        out.print(f"... and {len(counts) - MOST_ROWS:,} more clients; --json has them all")
    smallest = report["smallest"]
    largest = report["largest"]
    distinct = report["distinct_classes"]
    lines = [
        f"smallest: client {smallest['client']} with {smallest['samples']:,} samples; "
        f"largest: client {largest['client']} with {largest['samples']:,}; "
        f"mean {np.mean(report['sizes']):,.1f}",
        f"classes of a client: {_range(distinct)}, mean {np.mean(distinct):.1f}; "
        f"samples left over: {report['unused']:,}",
        f"partition hash {report['partition_hash']}",
        "all training samples are shared out; "
        "a sweep first holds back its validation and auxiliary samples",
    ]
    out.print("\n".join(lines), soft_wrap=True)


def _columns_of_tables(
    counts: NDArray[np.int64], samples: int, width: int
) -> list[NDArray[np.int64]]:
    """Split the classes evenly over as many tables as the width requires.

    Three other columns come first in each table.
    """
    classes = counts.shape[1]
    largest = counts.sum(axis=0).max()
    column_width = max(len(str(largest)), len(str(classes - 1))) + 1
    samples_width = max(len("samples"), len(str(samples))) + 1
    first_width = len("client ") + samples_width + len("classes ")
    fitting = max(1, (width - first_width) // column_width)
    tables = math.ceil(classes / fitting)
    return np.array_split(np.arange(classes), tables)


def _table(counts: NDArray[np.int64], columns: NDArray[np.int64]) -> Table:
    """Return a table of the clients and their samples of some classes."""
    from rich import box
    from rich.table import Column, Table

    heads = ("client", "samples", "classes", *map(str, columns))
    rich_columns = [Column(head, justify="right", no_wrap=True) for head in heads]
    table = Table(*rich_columns, box=box.SIMPLE_HEAD, show_edge=False, padding=0)
    for client, row in enumerate(counts[:MOST_ROWS]):
        numbers = [str(count) if count else "." for count in row[columns]]
        classes = int((row > 0).sum())
        table.add_row(str(client), str(row.sum()), str(classes), *numbers)
    table.add_section()
    totals = counts.sum(axis=0)
    classes = int((totals > 0).sum())
    table.add_row("all", str(totals.sum()), str(classes), *map(str, totals[columns]))
    return table

"""`python -m bench.data partition`: who holds how many samples of which class, as a table, as JSON, as a picture.

A run with these fields and otherwise default ones gets the same: all training samples, shared out among the clients.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from bench import data
from bench.charts.holdings import holdings
from bench.charts.panels import WIDE_SIDE, picture, print_config
from bench.data.partition import PARTITIONS, partition
from bench.data.splits import split
from bench.errors import EnvironmentProblem, UsageError
from bench.terminal.console import Parser, console, exit_status
from bench.terminal.words import DATA_DIR
from bench.whole import whole_file
from leaderboards.commands import shell_command
from search_spaces.setting import Setting

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from rich.table import Table

    Counts = NDArray[np.int64]

MOST_ROWS = 100  # of a table
MOST_CLIENTS = 1000  # in a picture


@dataclass(frozen=True, eq=False)
class Shown:
    """A partition and what it gives.

    Args:
        setting: the problem.
        seed: of the draws.
        samples: training samples N, those left over included.
        hash: of the split, as a run's row has it.
        counts: (K, C) samples of each class that each client holds.
    """

    setting: Setting
    seed: int
    samples: int
    hash: str
    counts: Counts

    @property
    def sizes(self) -> Counts:
        """(K,) samples of each client."""
        return np.asarray(self.counts.sum(axis=1))

    @property
    def distinct(self) -> Counts:
        """(K,) classes of which each client has any."""
        return np.asarray((self.counts > 0).sum(axis=1))

    @property
    def title(self) -> str:
        """Data set and partition in one line."""
        alpha = "" if self.setting.alpha is None else f", alpha {self.setting.alpha:g}"
        return f"{data.info(self.setting.dataset).title}: {self.setting.partition}{alpha}, seed {self.seed}"


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
    parser.add_argument(
        "--plot", nargs="?", const="", metavar="FILE", help="also draw it; .svg or .png (default named after the rest)"
    )
    parser.add_argument("--json", action="store_true", help="machine-readable output")
    parser.add_argument("--data-dir", metavar="DIR", help=DATA_DIR)
    return parser


def _show(given: argparse.Namespace) -> None:
    path = None
    if given.plot is not None:
        alpha = [] if given.alpha is None else [f"{given.alpha:g}"]
        parts = [given.dataset, given.partition, *alpha, f"{given.clients}clients", f"seed{given.seed}"]
        path = Path(given.plot or "-".join(parts).replace(":", "-") + ".svg")  # some file systems have no colon
        _check_plot(path, given.clients)
    shown = _share_out(given)
    if path:
        _draw(shown, path)
    if given.json:
        _print_json(shown)
    else:
        _print(shown)
    if path:
        sys.stderr.write(f"picture: {path}\n")


def _share_out(given: argparse.Namespace) -> Shown:
    info = data.info(given.dataset)
    alpha = given.alpha if partition(given.partition).needs_alpha else None
    try:
        setting = Setting(dataset=given.dataset, partition=given.partition, alpha=alpha, num_clients=given.clients)
    except ValueError as error:
        raise UsageError(str(error)) from None
    labels = data.labels(given.dataset, given.data_dir)
    if labels is None:
        folder = ("--data-dir", given.data_dir) if given.data_dir else ()
        brings = shell_command("bench.data", "prepare", given.dataset, *folder)
        raise EnvironmentProblem(f"{given.dataset} is not in {data.data_dir(given.data_dir)}; run {brings}")
    shares = split(setting, labels, given.seed, data.groups(given.dataset, given.data_dir))
    counts = np.stack([np.bincount(labels[index], minlength=info.num_classes) for index in shares.clients])
    return Shown(setting, given.seed, len(labels), shares.hash, counts)


def _check_plot(path: Path, clients: int) -> None:
    """Raise UsageError or EnvironmentProblem if a picture cannot be drawn, before anything is shared out."""
    if path.suffix.lower() not in (".svg", ".png"):
        raise UsageError(f"--plot FILE must end in .svg or .png, got {str(path)!r}; try {path.stem}.svg")
    if clients > MOST_CLIENTS:
        raise UsageError(f"--plot draws at most {MOST_CLIENTS:,} clients, got {clients:,}; --json has them all")
    try:
        import vl_convert  # noqa: F401
    except ImportError:
        raise EnvironmentProblem(
            '--plot needs the package vl-convert-python: pip install "fedkd-bench[report]", then the same command again'
        ) from None


def _draw(shown: Shown, path: Path) -> None:
    """Write the chart of the papers' figures: a bubble for each client and class, its area the number of samples."""
    import vl_convert

    rows = [
        {"client": int(client), "class": int(label), "samples": int(shown.counts[client, label])}
        for client, label in zip(*shown.counts.nonzero(), strict=True)
    ]
    sizes, distinct = shown.sizes, shown.distinct
    note = (
        f"{len(sizes):,} clients, {sizes.min():,} to {sizes.max():,} samples and {distinct.min()} to {distinct.max()} "
        "classes each"
    )
    panel = holdings(rows, *shown.counts.shape, most=int(shown.counts.max()), side=WIDE_SIDE)
    spec = picture(shown.title, [note], [[panel]])
    if path.suffix.lower() == ".svg":
        content = vl_convert.vegalite_to_svg(spec, config=print_config()).encode()
    else:
        content = vl_convert.vegalite_to_png(spec, config=print_config(), scale=2.0)
    try:
        with whole_file(path) as file:
            file.write(content)
    except OSError as error:
        raise EnvironmentProblem(f"--plot {path} cannot be written: {error.strerror or error}; name another") from None


def _print_json(shown: Shown) -> None:
    setting, sizes = shown.setting, shown.sizes
    content = {
        **{name: getattr(setting, name) for name in ("dataset", "partition", "alpha", "num_clients")},
        "seed": shown.seed,
        "partition_hash": shown.hash,
        "samples": shown.samples,
        "unused": shown.samples - int(sizes.sum()),
        "smallest": {"client": int(sizes.argmin()), "samples": int(sizes.min())},
        "largest": {"client": int(sizes.argmax()), "samples": int(sizes.max())},
        "sizes": sizes.tolist(),
        "distinct_classes": shown.distinct.tolist(),
        "counts": shown.counts.tolist(),
    }
    sys.stdout.write(json.dumps(content) + "\n")


def _print(shown: Shown) -> None:
    out = console()
    sizes, distinct = shown.sizes, shown.distinct
    out.print(shown.title, style="bold", markup=False)
    # The classes in as many even parts as the width asks for: three columns come first, a space between any two.
    classes = shown.counts.shape[1]
    wide = max(len(str(shown.counts.sum(axis=0).max())), len(str(classes - 1))) + 1
    first = len("client ") + max(len("samples "), len(str(shown.samples)) + 1) + len("classes ")
    for columns in np.array_split(np.arange(classes), -(-classes // max(1, (out.width - first) // wide))):
        out.print(_table(shown, columns))
    if len(sizes) > MOST_ROWS:
        out.print(f"... and {len(sizes) - MOST_ROWS:,} more clients; --json has them all")
    lines = [
        f"smallest: client {sizes.argmin()} with {sizes.min():,} samples; largest: client {sizes.argmax()} with "
        f"{sizes.max():,}; mean {sizes.mean():,.1f}",
        f"classes of a client: {distinct.min()} to {distinct.max()}, mean {distinct.mean():.1f}; samples left over: "
        f"{shown.samples - sizes.sum():,}",
        f"partition hash {shown.hash}",
    ]
    out.print("\n".join(lines), markup=False, soft_wrap=True)


def _table(shown: Shown, columns: Counts) -> Table:
    from rich import box
    from rich.table import Column, Table

    heads = (
        Column(head, justify="right", no_wrap=True) for head in ("client", "samples", "classes", *map(str, columns))
    )
    table = Table(*heads, box=box.SIMPLE_HEAD, show_edge=False, padding=0)
    for client, row in enumerate(shown.counts[:MOST_ROWS]):
        numbers = (str(count) if count else "." for count in row[columns])
        table.add_row(str(client), str(row.sum()), str((row > 0).sum()), *numbers)
    table.add_section()
    totals = shown.counts.sum(axis=0)
    table.add_row("all", str(totals.sum()), str((totals > 0).sum()), *map(str, totals[columns]))
    return table

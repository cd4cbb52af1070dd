"""Record what a change that means to change nothing must leave as it is.

`python tests/record.py before.json`, then after the change `python tests/record.py after.json
--against before.json`, both in the repository's root, on one machine and with nothing else running:
CPU results are equal to the last bit only there. It takes about four minutes on two cores. What
differs is printed, and the exit status is then 1. Columns that rows gain, and metrics that curves
gain, are counted beside it and are no difference.

Recorded are result columns and curves of sweeps (all algorithms, the demo, packs), the tables that
`bench.compare` prints of them, the columns of the parquet files, and the run keys of every printed
table, which do not depend on the machine.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from itertools import chain
from pathlib import Path
from typing import Any

import pandas as pd

from bench.planning.tables import places_of
from leaderboards import Store
from leaderboards.rows.schema import COLUMNS, CURVE_COLUMNS
from search_spaces import PAPERS, TABLES

SWEEPS = {
    "all": "--algo all --dataset digits --rounds 5",
    "demo": "--config docs/demo.toml",
    "packs": "--algo fedavg,fedprox,fedcad,fedgkd --dataset digits --rounds 5 --seeds 2 --pack 4 --backend stacked",
}
COMPARISONS = (
    "",
    "--reference fedavg",
    "--over-cells",
    "--all-configurations",
    "--metric final rounds@70 up@70 --format md",
    "--format csv",
)
RESULTS = ("identity", "results")  # groups of columns; `status` and `diverged` beside them
Recording = dict[str, Any]


def record(folder: Path) -> Recording:
    """Run the sweeps into a folder, and give what is to stay by name."""
    found: Recording = {
        "columns/runs": {column.name: str(column.type) for column in COLUMNS},
        "columns/curves": {column.name: str(column.type) for column in CURVE_COLUMNS},
    }
    for paper, table in sorted(TABLES):
        places = places_of(PAPERS[paper].part_of or paper, table)
        run_specs = chain.from_iterable(place.run_specs for place in places)
        found[f"keys/{paper}/{table}"] = sorted({run_spec.key for run_spec in run_specs})
    for name, arguments in SWEEPS.items():
        out = folder / name
        status, _ = _command(
            "bench.sweep", *arguments.split(), "--executor", "inline", "--quiet", "--out", str(out)
        )
        if status:
            raise SystemExit(
                f"the sweep {name!r} ended with exit status {status}: nothing is recorded"
            )
        found |= {f"{name}/{key}": value for key, value in _results(out)}
        for options in COMPARISONS:
            status, said = _command("bench.compare", *options.split(), "--out", str(out))
            found[f"{name}/compare {options}"] = [
                f"exit {status}",
                *said.replace(str(out), "OUT").splitlines(),
            ]
    return found


def _results(out: Path) -> Iterator[tuple[str, Any]]:
    """Each run's result columns, and a digest of each metric of its curve, by its algorithm and run key."""
    runs, curves = Store(out).runs(), Store(out).curves()
    columns = [column.name for column in COLUMNS if column.group in RESULTS]
    digests: dict[str, dict[str, str]] = {}
    for (key, metric), points in curves.groupby(["run_key", "metric"]):
        digests.setdefault(key, {})[f"curve {metric}"] = _digest(points)
    for row in runs.sort_values("run_key").to_dict("records"):
        values = {name: row[name] for name in (*columns, "status", "diverged")}
        yield f"{row['algorithm']} {row['run_key']}", {**values, **digests.get(row["run_key"], {})}


def _digest(points: pd.DataFrame) -> str:
    ordered = points.sort_values("round")[["round", "value"]]
    exact = [(int(at), float(value).hex()) for at, value in ordered.itertuples(index=False)]
    return hashlib.sha256(repr(exact).encode()).hexdigest()


def _command(module: str, *arguments: str) -> tuple[int, str]:
    """Run a command; its exit status (some comparisons need several seeds) and what it prints on its output."""
    done = subprocess.run(
        [sys.executable, "-m", module, *arguments], stdout=subprocess.PIPE, text=True, check=False
    )
    return done.returncode, done.stdout


def main() -> int:
    """Record, and compare with an earlier recording."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("to", type=Path, help="file of the recording")
    parser.add_argument("--against", type=Path, help="an earlier recording")
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        text = json.dumps(record(Path(folder)), indent=1, default=str, sort_keys=True)
    asked.to.write_text(text + "\n", encoding="utf-8")
    if asked.against is None:
        return 0
    before = json.loads(
        asked.against.read_text(encoding="utf-8"), parse_constant=str
    )  # NaN is no difference
    after = json.loads(text, parse_constant=str)
    gained = Counter[str]()
    for name, values in after.items():
        if isinstance(values, dict) and isinstance(before.get(name), dict):
            gained.update(values.keys() - before[name].keys())
            after[name] = {key: value for key, value in values.items() if key in before[name]}
    differing = [name for name in sorted({*before, *after}) if before.get(name) != after.get(name)]
    lines = [f"{name}: {_difference(before.get(name), after.get(name))}" for name in differing]
    lines += [f"gained by {count}: {name}" for name, count in sorted(gained.items())]
    sys.stdout.write(
        "\n".join([*lines, f"{len(differing)} of {len(before)} recorded things differ", ""])
    )
    return 1 if differing else 0


def _difference(before: Any, after: Any) -> str:
    if isinstance(before, dict) and isinstance(after, dict):
        names = [name for name in sorted({*before, *after}) if before.get(name) != after.get(name)]
        return ", ".join(f"{name} {before.get(name)!r} -> {after.get(name)!r}" for name in names)
    if isinstance(before, list) and isinstance(after, list):
        return f"{len([one for one in before if one not in after])} of {len(before)} entries are gone or changed"
    return "gone" if after is None else "new" if before is None else "changed"


if __name__ == "__main__":
    sys.exit(main())

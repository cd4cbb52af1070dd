"""`python -m bench.status`: what is done, failed, stopped, under way or missing, in a folder or of a plan."""

from __future__ import annotations

import argparse
import json
import sys
from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path
from typing import Any

from bench import options as command
from bench.console import Parser, console, report_problem
from bench.errors import EXIT_ENVIRONMENT, EXIT_OK, EXIT_USAGE, EnvironmentProblem, UsageError
from bench.execution import default_out
from bench.identity import identity_json
from bench.labels import trial_name, varied_names
from bench.plan import make_plan
from bench.stored_names import named_runs
from bench.words import OUT
from leaderboards import Store, StoreError

DESCRIPTION = """\
Without --algo: every run stored under --out, and those with saved state.
With --algo and the other options of bench.sweep: the runs of that command, those that are missing included."""


def main(argv: Sequence[str] | None = None) -> int:
    """The command; returns its exit status."""
    argv = list(sys.argv[1:] if argv is None else argv)
    if {"-h", "--help"} & set(argv):
        _help()
        return EXIT_OK
    try:
        given, layers = command.parse(argv)
        out = Path(given.out).resolve() if given.out else default_out().resolve()
        rows = _of_plan(given, layers, out) if (hasattr(given, "algo") or given.table) else _of_folder(out)
    except UsageError as error:
        return report_problem(error, EXIT_USAGE)
    except (EnvironmentProblem, StoreError) as error:
        return report_problem(error, EXIT_ENVIRONMENT)
    _print(rows, out, given.json)
    return EXIT_OK


def _help() -> None:
    parser = Parser(
        prog="python -m bench.status",
        description=DESCRIPTION,
        epilog="Takes the options of `python -m bench.sweep`; see its --help.",
    )
    parser.add_argument("--out", metavar="DIR", help=OUT)
    parser.add_argument("--json", action="store_true", help="machine-readable output")
    parser.print_help()


def _of_plan(given: argparse.Namespace, layers: Sequence[command.Layer], out: Path) -> list[dict[str, Any]]:
    plan = make_plan(command.make_request(given, layers))
    store = Store(out)
    statuses, varied = store.status(), varied_names(plan.units)
    rows = []
    for unit in plan.units:
        found = {statuses.get(key, "missing") for key in unit.rows.values()}
        status = found.pop() if len(found) == 1 else "missing"
        rows.append({"run_key": unit.key, "run": trial_name([unit], varied), **_standing(out, unit.key, status)})
    wanted = {(search.algorithm, identity_json(search.setting)) for search in plan.searches}
    return rows + [row for identity, row in _stored(store, out) if identity in wanted]


def _of_folder(out: Path) -> list[dict[str, Any]]:
    """Every stored run, then the saved states whose run has no row yet.

    Raises:
        UsageError: nothing is there, or a file.
    """
    if out.is_file():
        raise UsageError(f"{out} is a file, and --out takes a folder; `python -m bench.compare --out {out}` reads rows")
    rows = [row for _, row in _stored(Store(out), out)]
    rows += _saved(out, {row["run_key"] for row in rows})
    if not rows:
        raise UsageError(f"no runs in {out}; `python -m bench.sweep` makes some, --out looks elsewhere")
    return rows


def _stored(store: Store, out: Path) -> Iterator[tuple[tuple[str, str], dict[str, Any]]]:
    """(algorithm, setting as JSON) and the line of every stored run, like beside like."""
    if not store.status():
        return
    from leaderboards.frames import records

    named = sorted(named_runs(records(store.runs())), key=lambda one: one.order)
    for one in named:
        line = {"run_key": one.row["run_key"], "run": one.name}
        line |= _standing(out, one.row["run_key"], one.row["status"])
        yield (one.row["algorithm"], one.row["setting_json"]), line


def _saved(out: Path, known: Collection[str]) -> Iterator[dict[str, Any]]:
    """The line of every saved state whose run has no row."""
    keys = [file.parent.name for file in sorted((out / "state").glob("*/manifest.json"))]
    lines = {key: _standing(out, key, "missing") for key in keys if key not in known}
    told = [{"run_key": key, **run} for key in lines if (run := _manifest(out, key).get("run"))]
    names = {str(one.row["run_key"]): one.name for one in sorted(named_runs(told), key=lambda one: one.order)}
    for key in [*names, *(key for key in lines if key not in names)]:
        yield {"run_key": key, "run": names.get(key, "(no row yet)"), **lines[key]}


def _manifest(out: Path, key: str) -> dict[str, Any]:
    """What a saved state says of itself; nothing if it is damaged or gone."""
    try:
        found = json.loads((out / "state" / key / "manifest.json").read_text())
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


def _standing(out: Path, key: str, status: str) -> dict[str, Any]:
    """The status, `saved` where a state waits to be taken up, and its round."""
    manifest = out / "state" / key / "manifest.json"
    rounds = None
    if status != "finished" and manifest.exists():
        try:
            rounds = json.loads(manifest.read_text())["round"]
        except FileNotFoundError:  # finished meanwhile
            return {"status": status, "saved_round": None}
        except (OSError, ValueError, KeyError):
            return {"status": "damaged", "saved_round": None}
        status = "saved" if status == "missing" else status
    return {"status": status, "saved_round": rounds}


def _print(rows: list[dict[str, Any]], out: Path, as_json: bool) -> None:
    counts = Counter(row["status"] for row in rows)
    if as_json:
        sys.stdout.write(json.dumps({"out": str(out), "counts": counts, "runs": rows}, indent=2) + "\n")
        return
    from rich.markup import escape
    from rich.table import Table

    table = Table("run key", "run", "status", "saved round")
    for row in rows:
        saved = "" if row["saved_round"] is None else str(row["saved_round"])
        table.add_row(row["run_key"][:16], escape(row["run"]), row["status"], saved)
    screen = console()
    screen.print(table)
    screen.print(
        ", ".join(f"{count} {status}" for status, count in sorted(counts.items())) + f" in {out}", markup=False
    )


if __name__ == "__main__":
    sys.exit(main())

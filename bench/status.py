"""`python -m bench.status`: runs that are done, failed, stopped, under way or missing, of a folder or a plan."""

from __future__ import annotations

import json
import re
import sys
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from bench.errors import EXIT_OK, UsageError
from bench.execution import STATE_VERSION, default_out, saved_runs
from bench.planning.confirm import confirmation, stand_ins
from bench.planning.plan import make_plan
from bench.planning.run_spec import trial_name, varied_names
from bench.stored.results import Named, named_runs
from bench.sweep.options import SweepOptions, parse
from bench.sweep.preflight import make_request
from bench.terminal.console import Parser, console, exit_status
from bench.terminal.words import KEY_SHOWN, OUT, counted, run_keys
from leaderboards import Store
from leaderboards.shell_text import shell_command

PROG = "python -m bench.status"
DESCRIPTION = """\
Without --algo: every run stored under --out, and those with saved state.
With --algo and the other options of bench.sweep: the runs of that command, those that are missing included, and with
--confirm those of the configurations that are chosen so far."""

_SOUND = {"error": None, "diverged": False}  # of a run in which nothing went wrong
_PLACE = re.compile(r"\bround \d+, clients? [\d\[\], ]+: ")  # differs between failures that are alike
_REASONS = 5  # that are told


@dataclass(frozen=True)
class UnderWay:
    """The states of a result folder, by run key.

    Args:
        manifests: what each state says of itself; empty where that cannot be read.
        running: keys of runs that some sweep on this machine is at.
    """

    manifests: Mapping[str, Any]
    running: frozenset[str]

    def standing(self, key: str, status: str) -> dict[str, Any]:
        """Tell how a run stands whose row says `status`; `missing` where it has none.

        Returns:
            `status`: that of its row; or `running`, `saved`, `damaged`, `missing`, and `other version`, of a state that
            only another version of the suite can go on from; `saved_round`: of a state that can be taken up, or None.
        """
        manifest = self.manifests.get(key)
        at = _round(manifest)
        if status == "finished" or (manifest is None and key not in self.running):
            at = None
        elif key in self.running:
            status = "running"
        elif manifest is None or at is None:
            status = "damaged"
        elif manifest.get("version") != STATE_VERSION:
            status, at = "other version" if status == "missing" else status, None
        elif status == "missing":
            status = "saved"
        return {"status": status, "saved_round": at}


def main(argv: Sequence[str] | None = None) -> int:
    """The command; returns its exit status."""
    argv = list(sys.argv[1:] if argv is None else argv)
    if {"-h", "--help"} & set(argv):
        parser = Parser(
            prog=PROG,
            description=DESCRIPTION,
            epilog="Takes the options of `python -m bench.sweep`; see its --help.",
        )
        parser.add_argument("--out", metavar="DIR", help=OUT)
        parser.add_argument("--json", action="store_true", help="machine-readable output")
        parser.print_help()
        return EXIT_OK
    return exit_status(lambda: _status(argv))


def _status(argv: Sequence[str]) -> None:
    options = parse(argv, PROG)
    out = (Path(options.out) if options.out else default_out()).resolve()
    if out.is_file():
        reads = shell_command("bench.compare", "--out", out)
        raise UsageError(f"{out} is a file, and --out takes a folder; `{reads}` reads rows")
    rows = _of_plan(options, out) if options.algo or options.table else _of_folder(out)
    _print(rows, out, options.json)


def _of_plan(options: SweepOptions, out: Path) -> list[dict[str, Any]]:
    plan = make_plan(make_request(options))
    store = Store(out)
    if plan.request.confirm:
        stand_ins(plan)
        later = confirmation(plan, store.runs()).units if store.status() else ()
        plan = replace(plan, units=(*plan.units, *later))
    statuses, varied, states = store.status(), varied_names(plan.units), _under_way(out)
    stored = _rows(store)
    reasons = {row["run_key"]: reason for row in stored if (reason := _reason(row)) != _SOUND}
    rows = []
    for unit in plan.units:
        status = _status_of({statuses.get(key, "missing") for key in unit.rows.values()})
        named = {"run_key": unit.key, "run": trial_name([unit], varied)}
        reason = next(filter(None, map(reasons.get, unit.rows.values())), _SOUND)
        rows.append(named | states.standing(unit.key, status) | reason)
    searched = plan.of_searches((row["algorithm"], row["setting_json"]) for row in stored)
    planned = {row["run_key"] for row in rows}  # a confirming run's setting is that of the search
    return rows + [
        _line(one, states)
        for one in _in_order(stored)
        if (one.row["algorithm"], one.row["setting_json"]) in searched and one.row["run_key"] not in planned
    ]


def _status_of(rows: Set[str]) -> str:
    """The status of a run, by its rows: that of the unfinished ones, if they agree."""
    unfinished = rows - {"finished"}
    if not unfinished:
        return "finished"
    return next(iter(unfinished)) if len(unfinished) == 1 else "missing"


def _of_folder(out: Path) -> list[dict[str, Any]]:
    """Every stored run, and those at work or saved without a row; states without a name come last."""
    stored, states = _rows(Store(out)), _under_way(out)
    without_row = {*states.manifests, *states.running} - {row["run_key"] for row in stored}
    runs = {key: _named_by(states.manifests.get(key)) for key in sorted(without_row)}
    named = [{"run_key": key, **run} for key, run in runs.items() if run]
    rows = [_line(one, states) for one in _in_order([*stored, *named])]
    rows += [
        {"run_key": key, "run": "(no row yet)", **states.standing(key, "missing"), **_SOUND}
        for key, run in runs.items()
        if not run
    ]
    if not rows:
        raise UsageError(f"no runs in {out}; `python -m bench.sweep` makes some, --out looks elsewhere")
    return rows


def _under_way(out: Path) -> UnderWay:
    """List the saved and the claimed runs of a result folder."""
    claims = sorted((out / "state").glob("*.lock"))
    running = frozenset(file.stem for file in claims if len(file.stem) == 64 and _held(file))
    return UnderWay(saved_runs(out), running)


def _named_by(manifest: Any) -> Mapping[str, Any] | None:
    """The columns that name a saved run (`RunSpec.named_by`); None where its state does not say, or is damaged."""
    try:
        told = manifest["run"]
        run = {name: told[name] for name in ("algorithm", "setting_json", "hp_json")} | {"seed": int(told["seed"])}
        list(named_runs([run]))
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return None
    return run


def _round(manifest: Any) -> int | None:
    """The round that was saved; None of what is damaged."""
    try:
        return int(manifest["round"])
    except (ValueError, KeyError, TypeError, OverflowError):
        return None


def _held(file: Path) -> bool:
    """Tell whether a sweep has claimed the run: its process holds the lock while it lives, the file may stay behind."""
    from filelock import FileLock, Timeout

    try:
        with FileLock(file, timeout=0):
            return False
    except Timeout:
        return True
    except (OSError, NotImplementedError):  # a folder that is only to be read
        return False


def _rows(store: Store) -> Sequence[Mapping[str, Any]]:
    """The rows of a folder; pandas is not imported for an empty one."""
    if not store.status():
        return []
    from leaderboards.rows.frames import records

    return records(store.runs())


def _in_order(rows: Sequence[Mapping[str, Any]]) -> list[Named]:
    return sorted(named_runs(rows), key=lambda one: one.order)


def _line(one: Named, states: UnderWay) -> dict[str, Any]:
    key = one.row["run_key"]
    standing = states.standing(key, one.row.get("status", "missing"))
    return {"run_key": key, "run": one.name, **standing, **_reason(one.row)}


def _reason(row: Mapping[str, Any]) -> dict[str, Any]:
    """The error of a row, and whether it diverged."""
    return {"error": row.get("error"), "diverged": bool(row.get("diverged"))}


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
        table.add_row(row["run_key"][:KEY_SHOWN], escape(row["run"]), row["status"], saved)
    screen = console()
    screen.print(table)
    screen.print(
        ", ".join(f"{count} {status}" for status, count in sorted(counts.items())) + f" in {out}", markup=False
    )
    for line in _reasons(rows):
        screen.print(line, markup=False, soft_wrap=True)


def _reasons(rows: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """List why runs failed or diverged, equal reasons once with all their runs."""
    alike: dict[tuple[str, str], list[Mapping[str, Any]]] = {}
    for row in rows:
        if row["error"]:
            how = "diverged" if row["diverged"] else "failed"
            alike.setdefault((how, _PLACE.sub("", row["error"])), []).append(row)
    for (how, _), runs in list(alike.items())[:_REASONS]:
        yield f"{how}: {run_keys([row['run_key'] for row in runs])}: {runs[0]['error']}"
    if len(alike) > _REASONS:
        yield f"and for {counted(len(alike) - _REASONS, 'other reason')}, which --json tells"


if __name__ == "__main__":
    sys.exit(main())

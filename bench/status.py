"""`python -m bench.status`: the runs of a folder or a plan, by status."""

from __future__ import annotations

import re
import sys
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench import data
from bench.errors import EXIT_OK, UsageError
from bench.execution import default_out
from bench.planning.confirm import confirmation
from bench.planning.options import SweepOptions
from bench.planning.trial_names import trial_name, varied_names
from bench.planning.two_stage import second_stage
from bench.state_files import FOLDER, KEY, STATE_VERSION, saved_runs
from bench.stored.results import Named, named_runs
from bench.sweep.command import prepare
from bench.sweep.parser import parse
from bench.terminal.console import Parser, console, exit_status, print_json
from bench.terminal.paths import whole_path
from bench.terminal.words import KEY_SHOWN, OUT, counted, flag, run_keys
from leaderboards import Store
from leaderboards.rows.frames import records
from leaderboards.shell_text import shell_command

PROG = "python -m bench.status"
DESCRIPTION = """\
Without --algo: every run stored under --out, and those with saved state.
With --algo and the other options of bench.sweep: the runs of that command, also if they are
missing. With --confirm or --tuning two-stage: also the runs of the configurations chosen so far."""

_SOUND = {"error": None, "diverged": False}  # of a run without a problem
_MISSING = {"status": "missing"}  # in place of a row that is not stored
# Part of an error that differs between failures that are alike.
_PLACE = re.compile(r"\bround \d+, clients? [\d\[\], ]+: ")
_REASONS = 5  # at most that many are printed
_READ_WITHOUT_PLAN = ("out", "json", "quiet", "verbose")  # options that describe no sweep


@dataclass(frozen=True)
class UnderWay:
    """The states of a result folder, by run key.

    Args:
        manifests: the manifest of each state, empty if it cannot be read.
        running: keys of the runs that a sweep on this machine is working on.
    """

    manifests: Mapping[str, Any]
    running: frozenset[str]

    def standing(self, key: str, status: str) -> dict[str, Any]:
        """Combine the `status` of a run's row, `missing` without a row, with its saved state.

        Returns:
            `status`: that of its row; or `running`, `saved`, `damaged`, `missing`; `other version`
            if only another version of the suite can go on from the state. `saved_round`: of a state
            that can be used, or None.
        """
        manifest = self.manifests.get(key)
        saved_round = _round(manifest)
        if status == "finished" or (manifest is None and key not in self.running):
            saved_round = None
        elif key in self.running:
            status = "running"
        elif manifest is None or saved_round is None:
            status = "damaged"
        elif manifest.get("version") != STATE_VERSION:
            saved_round = None
            if status == "missing":
                status = "other version"
        elif status == "missing":
            status = "saved"
        return {"status": status, "saved_round": saved_round}


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command and return its exit status."""
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
    out = whole_path(options.out or default_out())
    if out.is_file():
        command = shell_command("bench.compare", "--out", out)
        raise UsageError(f"{out} is a file, and --out takes a folder; `{command}` reads rows")
    if options.algo or options.table:
        rows = _plan_rows(options, out)
    else:
        unread = [name for name in options.given if name not in _READ_WITHOUT_PLAN]
        if unread:
            raise UsageError(
                f"{flag(unread[0])} describes a sweep: add its --algo or --table, or leave it out"
            )
        rows = _folder_rows(out)
    _print(rows, out, options.json)


def _plan_rows(options: SweepOptions, out: Path) -> list[dict[str, Any]]:
    plan = prepare(options)
    store = Store(out, data.hashes(plan.datasets, options.data_dir))
    run_specs = [*plan.run_specs]
    stored: Sequence[Mapping[str, Any]] = []
    if store.begun:
        runs = store.runs()
        stored = records(runs)
        if plan.stages and stored:
            run_specs += second_stage(plan, runs).run_specs
        if options.confirm and stored:
            run_specs += confirmation(plan, runs).run_specs
    row_of_key = {row["run_key"]: row for row in stored}
    varied = varied_names(run_specs)
    states = _under_way(out)
    rows = []
    for run_spec in run_specs:
        own_rows = [row_of_key.get(key, _MISSING) for key in run_spec.rows.values()]
        status = _status_of({row["status"] for row in own_rows})
        reasons = [reason for reason in map(_reason, own_rows) if reason != _SOUND]
        reason = reasons[0] if reasons else _SOUND
        names = {"run_key": run_spec.key, "run": trial_name([run_spec], varied)}
        rows.append(names | states.standing(run_spec.key, status) | reason)
    searched = plan.of_searches((row["algorithm"], row["setting_json"]) for row in stored)
    planned = {row["run_key"] for row in rows}  # a confirming run's setting is that of the search
    for run in _in_order(stored):
        of_search = (run.row["algorithm"], run.row["setting_json"]) in searched
        if of_search and run.row["run_key"] not in planned:
            rows.append(_status_row(run, states))
    return rows


def _status_of(rows: Set[str]) -> str:
    """Return the status of a run: that of its unfinished rows, if they agree."""
    unfinished = rows - {"finished"}
    if not unfinished:
        return "finished"
    if len(unfinished) > 1:
        return "missing"
    return next(iter(unfinished))


def _folder_rows(out: Path) -> list[dict[str, Any]]:
    """List every stored run, and the runs without a row that are running or saved.

    States without a name come last.
    """
    store = Store(out)
    stored = records(store.runs()) if store.begun else []
    states = _under_way(out)
    without_row = {*states.manifests, *states.running} - {row["run_key"] for row in stored}
    named = []
    nameless = []
    for key in sorted(without_row):
        run = _named_by(states.manifests.get(key))
        if run:
            named.append({"run_key": key, **run})
        else:
            nameless.append(key)
    rows = [_status_row(run, states) for run in _in_order([*stored, *named])]
    for key in nameless:
        standing = states.standing(key, "missing")
        rows.append({"run_key": key, "run": "(no row yet)", **standing, **_SOUND})
    if not rows:
        raise UsageError(
            f"no runs in {out}; `python -m bench.sweep` makes some, --out looks elsewhere"
        )
    return rows


def _under_way(out: Path) -> UnderWay:
    """List the saved and the claimed runs of a result folder."""
    locks = (out / FOLDER).glob("*.lock")
    claims = [file for file in locks if KEY.fullmatch(file.stem)]
    running = frozenset(file.stem for file in claims if _is_claimed(file))
    return UnderWay(saved_runs(out), running)


def _named_by(manifest: Any) -> Mapping[str, Any] | None:
    """Return the columns that name a saved run (`RunSpec.named_by`).

    None if the state lacks these columns, or is damaged.
    """
    try:
        fields = manifest["run"]
        run = {name: fields[name] for name in ("algorithm", "setting_json", "hp_json")}
        run["seed"] = int(fields["seed"])
        list(named_runs([run]))
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return None
    return run


def _round(manifest: Any) -> int | None:
    """Return the saved round; None for a damaged manifest."""
    try:
        return int(manifest["round"])
    except (ValueError, KeyError, TypeError, OverflowError):
        return None


def _is_claimed(file: Path) -> bool:
    """Tell whether a sweep has claimed the run.

    Its process holds the lock while it lives; the file may stay behind.
    """
    from filelock import FileLock, Timeout

    try:
        with FileLock(file, timeout=0):
            return False
    except Timeout:
        return True
    except (OSError, NotImplementedError):  # a read-only folder
        return False


def _in_order(rows: Sequence[Mapping[str, Any]]) -> list[Named]:
    return sorted(named_runs(rows), key=lambda run: run.order)


def _status_row(run: Named, states: UnderWay) -> dict[str, Any]:
    key = run.row["run_key"]
    standing = states.standing(key, run.row.get("status", "missing"))
    return {"run_key": key, "run": run.name, **standing, **_reason(run.row)}


def _reason(row: Mapping[str, Any]) -> dict[str, Any]:
    """Return the error of a row, and whether it diverged."""
    return {"error": row.get("error"), "diverged": bool(row.get("diverged"))}


def _print(rows: list[dict[str, Any]], out: Path, as_json: bool) -> None:
    counts = Counter(row["status"] for row in rows)
    if as_json:
        document = {"out": str(out), "counts": counts, "runs": rows}
        print_json(document)
        return
    from rich.table import Column, Table

    key_column = Column("run key", min_width=KEY_SHOWN)  # a key is typed, so it is never cut
    table = Table(key_column, "run", "status", "saved round")
    for row in rows:
        saved = "" if row["saved_round"] is None else str(row["saved_round"])
        table.add_row(row["run_key"][:KEY_SHOWN], row["run"], row["status"], saved)
    screen = console()
    if not rows:
        screen.print(f"no run of this search is stored in {out}")
        return
    screen.print(table)
    by_status = ", ".join(f"{count} {status}" for status, count in sorted(counts.items()))
    screen.print(f"{by_status} in {out}")
    for line in _reasons(rows):
        screen.print(line, soft_wrap=True)


def _reasons(rows: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """Yield why runs failed or diverged, equal reasons once with all their runs."""
    rows_by_reason: dict[tuple[str, str], list[Mapping[str, Any]]] = {}
    for row in rows:
        if row["error"]:
            event = "diverged" if row["diverged"] else "failed"
            reason = _PLACE.sub("", row["error"])
            rows_by_reason.setdefault((event, reason), []).append(row)
    for (event, reason), runs in list(rows_by_reason.items())[:_REASONS]:
        error = runs[0]["error"] if len(runs) == 1 else reason  # the place is of a single run
        keys = run_keys([row["run_key"] for row in runs])
        yield f"{event}: {keys}: {error}"
    further = len(rows_by_reason) - _REASONS
    if further > 0:
        yield f"and for {counted(further, 'other reason')}, which --json tells"


if __name__ == "__main__":
    sys.exit(main())

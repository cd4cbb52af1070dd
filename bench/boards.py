"""`python -m bench.boards`: merge, validate, compact and mirror result folders.

Exit status: 0; 2 if the request is wrong; 3 if a folder is not in order, with the problem and the
next step.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bench.errors import EXIT_ENVIRONMENT, EXIT_OK, UsageError
from bench.execution import default_out
from bench.terminal import words
from bench.terminal.console import Parser, exit_status, print_json, say
from bench.terminal.paths import result_folder, whole_path
from bench.terminal.values import nonempty_path, nonempty_text
from leaderboards import StoreError

if TYPE_CHECKING:
    import pyarrow as pa

    from bench.sync.mirror import Moved
    from leaderboards.rows.index import Folder

_EPILOG = """\
examples:
  python -m bench.boards merge laptop/leaderboards server/leaderboards --out all
  python -m bench.boards validate all
  python -m bench.boards compact all
  python -m bench.boards push s3://bucket/results all

merge reads its sources and changes none. Run twice, it changes nothing the second time.
  - Equal results of one run and one environment: a single row counts.
  - Different results of one run and one environment are an error, because at most one is right.
    --keep-both keeps all: a row from --force or with tracked data counts, otherwise the newest row.
  - Results of different environments stay side by side as replicates, which are no seeds.
  - Statuses: the finished row counts, then the stopped, then the failed one.
  - Data of --track are merged, saved states are not.
  - A board.toml is not merged: copy the one that holds for the merged folder.
compact drops rows that do not count, and changes no other row. A sweep that ends with more than a
few hundred small files compacts its folder itself.
push and pull copy what the other side lacks, as a sweep with --mirror does (docs/cluster.md): rows,
curves, tracked files, and states of runs under way.
exit status: 0; 2 usage or value; 3 a folder that is not in order, or cannot be read or written"""


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command.

    `argv`: arguments, None for those of the process. Returns the exit status.
    """
    arguments = _parser().parse_args(argv)
    return exit_status(lambda: arguments.action(arguments))


def _parser() -> Parser:
    parser = Parser(
        prog="python -m bench.boards",
        description="Keep result folders: merge those of several machines, find what is wrong, "
        "make few files\nof many, keep a copy elsewhere.",
        epilog=_EPILOG,
    )
    actions = parser.add_subparsers(
        required=True, metavar="merge | validate | compact | push | pull"
    )
    merge = actions.add_parser("merge", help="bring the results of several folders into one")
    merge.add_argument(
        "sources", nargs="+", type=nonempty_path, metavar="SRC", help="result folders, only read"
    )
    merge.add_argument(
        "--out",
        type=nonempty_path,
        required=True,
        metavar="DEST",
        help="result folder to write into",
    )
    merge.add_argument(
        "--keep-both", action="store_true", help="keep results that should agree but do not"
    )
    merge.set_defaults(action=_merge)
    for name, action, help_ in (
        ("validate", _validate, "list what is wrong with a folder, and change nothing"),
        ("compact", _compact, "make few files of many, and change no row that counts"),
    ):
        command = actions.add_parser(name, help=help_)
        _add_folder(command)
        command.set_defaults(action=action)
    for name, action, help_ in (
        ("push", _push, "write what a mirror lacks, as sweeps with --mirror do"),
        ("pull", _pull, "bring what a mirror has"),
    ):
        command = actions.add_parser(name, help=help_)
        command.add_argument(
            "url",
            type=nonempty_text,
            metavar="URL",
            help="s3://, gs://, hdfs://, file:/// or a path",
        )
        _add_folder(command)
        command.set_defaults(action=action)
    for command in actions.choices.values():
        command.add_argument("--json", action="store_true", help="machine-readable output")
    return parser


def _add_folder(command: argparse.ArgumentParser) -> None:
    default = "default: $FEDKD_OUT, or leaderboards if that is not set"
    command.add_argument("folder", nargs="?", type=nonempty_path, metavar="DIR", help=default)


def _folder(path: Path | None) -> Path:
    """Return the named result folder, or the default folder.

    Raises UsageError if it holds no results.
    """
    out = whole_path(path or default_out())
    if not (out / "runs").is_dir():
        advice = "" if path else "; name one, or set FEDKD_OUT"
        raise UsageError(f"{out} is no result folder: it has no folder runs{advice}")
    return out


def _merge(arguments: argparse.Namespace) -> int:
    from leaderboards import Store

    sources = [_folder(source) for source in arguments.sources]
    out = result_folder(arguments.out)
    if out in sources:
        raise UsageError(
            f"--out {out} is among the sources, which are only read: its own rows take part anyway"
        )
    merged = merge(sources, out, arguments.keep_both)
    Store(out).rebuild()
    say(*(f"{phrase}; tables mark them" for phrase in merged.copies))
    if arguments.json:
        print_json({"out": str(out), **asdict(merged)})
    else:
        read = f"{words.counted(merged.files, 'file')} read, {words.counted(merged.rows, 'row')}"
        sys.stdout.write(f"{read}\n{words.counted(merged.new, 'new row')} in {out}\n")
    return EXIT_OK


@dataclass(frozen=True)
class Merged:
    """Counts of a merge.

    Args:
        files: files read, also those of the destination.
        rows: rows read, likewise.
        new: rows that count only now.
        copies: a phrase for each data set of which runs are on several copies.
    """

    files: int
    rows: int
    new: int
    copies: tuple[str, ...] = ()


def merge(sources: Sequence[Path], out: Path, keep_both: bool = False) -> Merged:
    """Merge the rows, curves and tracked files of several result folders into `out`.

    The sources are only read. Problems are found before anything is written. Then the files that
    the destination lacks are copied, each row after its curve and its tracked files, so that a
    killed merge leaves a folder in order. With `keep_both`, disagreeing results of one run key and
    environment are copied as well; the result written last counts.

    Raises:
        StoreError: a file or row breaks the schema, or, without `keep_both`, results of one key and
            environment disagree; all such places are named and nothing was written.
        OSError: a folder cannot be read or written.
    """
    import pyarrow as pa

    from bench import artifacts
    from leaderboards.rows.index import Folder
    from leaderboards.rows.verify import copies_read, disagreements, examine

    checks = {folder: examine(folder) for folder in dict.fromkeys([out, *sources])}
    faults = []
    for folder, check in checks.items():
        for fault in check.faults:
            faults.append(replace(fault, file=str(folder / fault.file)))
    index = pa.concat_tables([check.index for check in checks.values()])
    if not keep_both:
        faults += disagreements(index)
    if faults:
        listed = "\n".join(f"  {fault}" for fault in faults)
        raise StoreError(out, f"nothing was merged:\n{listed}")
    artifacts.copy(sources, out)
    for path in sources:
        source = Folder(path)
        source.steady(partial(_copy, source, Folder(out)))
    merged = Folder(out).index()
    new = _counting_rows(merged) - _counting_rows(checks[out].index)
    files = sum(check.files for check in checks.values())
    return Merged(files, index.num_rows, len(new), tuple(copies_read(merged)))


def _copy(source: Folder, target: Folder) -> None:
    """Copy the files that the target lacks, a row's curve before the row."""
    from leaderboards.rows.compaction import Claims
    from leaderboards.rows.file_names import curve_path, shared_name
    from leaderboards.rows.files import copy_file, is_regular, part_of

    present = {shared_name(path) for path in target.paths()}
    claims = Claims(target, target.segments())
    runs = part_of(target.out, "runs")
    curves = part_of(target.out, "curves")
    for path in source.paths():
        name = shared_name(path)
        if name in claims.names and claims.cover(source.index(paths=[path])):
            continue
        if curve_path(path).exists() and not is_regular(curves / name):
            copy_file(curve_path(path), curves / name)
        if name not in present:
            copy_file(path, runs / name)


def _counting_rows(index: pa.Table) -> set[tuple[Any, ...]]:
    """Return the rows that count: run key, environment, status, and time of writing."""
    from leaderboards.rows.counted import counted

    rows = counted(index).select(["run_key", "environment", "status", "written"]).to_pylist()
    return {tuple(row.values()) for row in rows}


def _validate(arguments: argparse.Namespace) -> int:
    from leaderboards.rows.verify import validate

    out = _folder(arguments.folder)
    checked = validate(out)
    if arguments.json:
        faults = [asdict(fault) for fault in checked.faults]
        counts = {"files": checked.files, "rows": checked.rows, "points": checked.points}
        print_json({"out": str(out), **counts, "faults": faults})
    else:
        files = words.counted(checked.files, "file")
        rows = words.counted(checked.rows, "row")
        read = f"{files}, {rows}, {words.counted(checked.points, 'point')}"
        problems = "nothing wrong"
        if checked.faults:
            problems = words.counted(len(checked.faults), "fault")
        for fault in checked.faults:
            sys.stdout.write(f"{fault}\n")
        sys.stdout.write(f"{read} in {out}: {problems}\n")
    return EXIT_ENVIRONMENT if checked.faults else EXIT_OK


def _compact(arguments: argparse.Namespace) -> int:
    from leaderboards.rows.compaction import compact

    out = _folder(arguments.folder)
    compacted = compact(out)
    if arguments.json:
        print_json({"out": str(out), **asdict(compacted)})
    else:
        before = words.counted(compacted.before, "file")
        sys.stdout.write(f"{before} of rows in {out}, {compacted.after} now\n")
    return EXIT_OK


def _push(arguments: argparse.Namespace) -> int:
    from bench.sync.mirror import open_mirror

    out = _folder(arguments.folder)
    moved = open_mirror(arguments.url, out).push()
    return _report_moved(arguments, out, "pushed", moved)


def _pull(arguments: argparse.Namespace) -> int:
    from bench.sync.mirror import open_mirror
    from leaderboards import Store

    out = result_folder(arguments.folder)
    moved = open_mirror(arguments.url, out, read_only=True).pull()
    if Store(out).status():
        Store(out).rebuild()
    return _report_moved(arguments, out, "fetched", moved)


def _report_moved(arguments: argparse.Namespace, out: Path, verb: str, moved: Moved) -> int:
    if arguments.json:
        print_json({"out": str(out), "url": arguments.url, **asdict(moved)})
    else:
        for problem in moved.problems:
            sys.stdout.write(f"{problem}\n")
        way = f"{out} -> {arguments.url}" if verb == "pushed" else f"{arguments.url} -> {out}"
        sys.stdout.write(f"{moved} {verb}: {way}\n")
    return EXIT_OK


if __name__ == "__main__":
    sys.exit(main())

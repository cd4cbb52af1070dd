"""One result folder of several: what `python -m bench.boards merge` does.

Sources are only read. A problem is met before anything is written; then the files that the destination lacks are
copied, each row after its curve, so that a merge that was killed leaves a folder in order.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from leaderboards.rows.files import StoreError, copy_whole
from leaderboards.rows.segments import Folder, counted, judge, shared_name
from leaderboards.rows.verify import Finding, disagreements, examine

if TYPE_CHECKING:
    import pyarrow as pa


class MergeError(StoreError):
    """Folders that cannot be merged as they are. `findings` says why, one each."""

    def __init__(self, out: Path, findings: Sequence[Finding]) -> None:
        super().__init__(out, "nothing was merged:\n" + "\n".join(f"  {finding}" for finding in findings))
        self.findings = tuple(findings)


@dataclass(frozen=True)
class Merged:
    """What was done.

    `files` and `rows` were read, those of the destination included; `new` rows came to the destination and count there,
    `replaced` of them in the place of others; `replicates` run keys have finished rows of several environments now, and
    `unlike` rows stand beside an unlike result of their run key and environment.
    """

    files: int
    rows: int
    new: int
    replaced: int
    replicates: int
    unlike: int


def merge(sources: Sequence[Path], out: Path, keep_both: bool = False) -> Merged:
    """Bring the rows and curves of several result folders, which are only read, into one, whose own rows take part.

    With `keep_both` disagreeing results of one run key and environment come, too; the one written last counts.

    Raises:
        MergeError: a file or row breaks the schema, or, without `keep_both`, results of one key and environment
            disagree; all such places are named and nothing was written.
        StoreError: a source is compacted again and again meanwhile.
        OSError: a folder cannot be read or written.
    """
    import pyarrow as pa

    checked = {folder: examine(folder) for folder in dict.fromkeys([out, *sources])}
    findings = [
        replace(finding, file=str(folder / finding.file))
        for folder, told in checked.items()
        for finding in told.findings
    ]
    index = pa.concat_tables([told.index for told in checked.values()])
    judged = judge(index)
    findings += [] if keep_both else disagreements(judged)
    if findings:
        raise MergeError(out, findings)
    rows = [*zip(index["holder"].to_pylist(), index["row"].to_pylist(), strict=True)]
    needless = {holder for holder, _ in rows} - {row[0] for row in rows if row not in judged.outdated}
    for source in sources:
        folder = Folder(source)
        folder.steady(partial(_copy, folder, Folder(out), needless))
    before, after = _told(checked[out].index), _told(Folder(out).index())
    new = after.items() - before.items()
    finished = [key for (key, _), (status, _) in after.items() if status == "finished"]
    return Merged(
        files=sum(told.files for told in checked.values()),
        rows=len(rows),
        new=len(new),
        replaced=sum(identity in before for identity, _ in new),
        replicates=sum(count > 1 for count in Counter(finished).values()),
        unlike=sum(len(group) - 1 for group in judged.disagreeing),
    )


def _told(index: pa.Table) -> dict[tuple[str, str], tuple[str, datetime]]:
    """Run key and environment of the rows that count -> their status and when they were written."""
    rows = counted(index).select(["run_key", "environment", "status", "written"]).to_pylist()
    return {(row["run_key"], row["environment"]): (row["status"], row["written"]) for row in rows}


def _copy(source: Folder, target: Folder, needless: Collection[str]) -> None:
    """Copy the files that the target lacks, but those of which it is known that no reader needs them."""
    there, files = target.files(), source.files()
    have = {path.name for path in (*there.paths, *there.replaced)} | there.held()
    for path in files.paths:
        name, curve = shared_name(path), source.out / "curves" / path.name
        if name not in have and str(path) not in needless:
            if curve.exists():
                copy_whole(curve, target.out / "curves" / name)
            copy_whole(path, target.out / "runs" / name)

"""The last lines of `--dry-run`: notes, how many runs in which packs, what they take, what a mirror changes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from bench.planning.confirm import confirming_seeds
from bench.planning.plan import Plan
from bench.terminal.console import console
from bench.terminal.words import counted, duration, span

_ESTIMATED = "(estimated from counted steps and a short measurement of this machine)"


def print_summary(plan: Plan, summary: Mapping[str, Any]) -> None:
    """Notes, then what is to be done. `summary`: the figures of `--json`."""
    out = console()
    for note in plan.notes:
        out.print(f"note: {note}", markup=False, soft_wrap=True)
    if not plan.units and not plan.searches:
        return
    for line in [_work(summary, bool(plan.searches)), *_confirming(plan, summary), *_mirror_lines(summary)]:
        out.print(line, markup=False, soft_wrap=True)


def _work(summary: Mapping[str, Any], searches: bool) -> str:
    """What is to be done, and what it takes."""
    runs = f"{counted(summary['runs'], 'run')}, {summary['to_do']} to do"
    if not summary["to_do"] and not searches:
        return f"{runs}: all are stored in {summary['out']}{' or its mirror' if summary['mirror'] else ''}"
    seconds, chosen = summary["seconds"], ", and those that Optuna chooses" if searches else ""
    time = _unknown(summary, searches) if seconds is None else f"about {_span(summary)}"
    trials = len(summary["packs"]) or summary["to_do"]
    at_once = counted(summary["concurrent_trials"] if searches else min(trials, summary["concurrent_trials"]), "trial")
    memory, disk = _size(summary["memory_bytes_per_trial"]), _size(summary["disk_bytes"])
    return (
        f"{runs}{_packed(summary['packs'])}{chosen}; time {time} with {at_once} at once; memory about {memory} a "
        f"trial; disk about {disk} in {summary['out']}"
    )


def _confirming(plan: Plan, summary: Mapping[str, Any]) -> Iterator[str]:
    """What follows the search, which the other figures leave out."""
    most, seeds = summary["confirming_runs_at_most"], plan.request.confirm
    if most:
        choices = counted(most * len(seeds) // sum(seeds), "configuration")
        yield (
            f"then, not counted above, at most {counted(most, 'run')}, stored ones included: {choices} that the search "
            f"chooses (one for each algorithm and cell), on {confirming_seeds(plan.request)}"
        )


def _span(summary: Mapping[str, Any]) -> str:
    """The time of the whole, and whence it is known unless all rates are recorded."""
    time = span(summary["seconds_at_least"], summary["seconds_at_most"])
    return f"{time} {_ESTIMATED}" if summary["estimated"] else time


def _unknown(summary: Mapping[str, Any], searches: bool) -> str:
    """What is known of a time that is not known whole."""
    if searches:
        return "unknown (what Optuna chooses is not known before)"
    least, models = summary["seconds_at_least"], ", ".join(summary["models_without_rate"])
    known = f"at least {duration(least)}" if least else "unknown"
    return f"{known} (no recorded rate for {models} here)"


def _size(count: float) -> str:
    """Bytes, as printed."""
    return f"{count / 2**30:.1f} GiB" if count >= 2**29 else f"{count / 2**20:.1f} MiB"


def _packed(packs: Sequence[int]) -> str:
    """How many packs the runs to do form, and of what sizes: ` in 3 packs (2 × 5 runs, 1 × 4 runs)`."""
    if not packs:
        return ""
    sizes = [f"{number} × {counted(size, 'run')}" for size, number in sorted(Counter(packs).items(), reverse=True)]
    return f" in {counted(len(packs), 'pack')} ({', '.join(sizes)})"


def _mirror_lines(summary: Mapping[str, Any]) -> Iterator[str]:
    """What a mirror has, and that it gets what the sweep makes."""
    url, stored = summary["mirror"], summary["stored_in_mirror"]
    if not url:
        return
    if stored is None:
        found = "a dry run asks nothing of the network; what it has is brought first, and not run again"
    elif stored:
        found = f"it has {stored} of the runs that {summary['out']} lacks, and they are brought first"
    else:
        found = f"it has none of the runs that {summary['out']} lacks"
    yield f"mirror {url}: {found}; the rows and states of this sweep are copied to it as they come"

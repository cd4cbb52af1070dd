"""What a reader must know about a number before trusting it."""

from __future__ import annotations

from collections.abc import Sequence

from bench.report.html import Html, join, tag
from bench.stored.results import Record, Run
from leaderboards import flags

_SHOWN = ("diverged", "failed", "stopped", "shortened", "single", "mixed", "blind", "test")
MEANINGS = {key: (flags.FLAGS[key].word, flags.FLAGS[key].meaning) for key in _SHOWN}


def flags_of(record: Record) -> tuple[tuple[str, str], ...]:
    """The flags of a row of the leaderboard: key, and what to print."""
    holding = flags.flags_of(record)
    counts = {"failed": f"{record['failed']} ", "stopped": f"{record['stopped']} "}
    return tuple((key, counts.get(key, "") + word) for key, (word, _) in MEANINGS.items() if key in holding)


def flags_of_run(run: Run) -> tuple[tuple[str, str], ...]:
    """The flags of one run."""
    found = {
        "failed": run["status"] == "failed",
        "stopped": run["status"] == "stopped",
        "diverged": run["diverged"],
        "shortened": run["shortened"] and run["status"] == "finished",
    }
    return tuple((key, MEANINGS[key][0]) for key, holds in found.items() if holds)


def chips(flags: Sequence[tuple[str, str]]) -> Html:
    """Flags as marked words."""
    return join(*(tag("span", text, class_=f"chip {key}", title=MEANINGS[key][1]) for key, text in flags))

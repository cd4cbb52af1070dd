"""Flags: what a reader must know about a number before trusting it."""

from __future__ import annotations

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
    """Return the flags of one run."""
    holding = {
        "failed": run["status"] == "failed",
        "stopped": run["status"] == "stopped",
        "diverged": run["diverged"],
        "shortened": run["shortened"] and run["status"] == "finished",
    }
    return tuple((key, MEANINGS[key][0]) for key, holds in holding.items() if holds)

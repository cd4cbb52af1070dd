"""Flags: what a reader must know about a number before trusting it."""

from __future__ import annotations

from bench.stored.results import Record, Run
from leaderboards.schema import WHEN_DIVERGED

# Key -> word, meaning.
MEANINGS = {
    "diverged": ("DIVERGED", f"{WHEN_DIVERGED}; the numbers are neither shown nor ranked"),
    "failed": ("failed", "a run ended with an error; failed runs are counted here and enter no mean"),
    "stopped": ("stopped", "a search stopped a run early; such runs enter no mean"),
    "shortened": ("shortened", "fewer rounds or less data than the preset: not the problem that it stands for"),
    "single": ("1 seed", "a single seed: no spread, no interval, no test"),
    "mixed": ("mixed versions", "seeds were run under different package versions"),
    "blind": (
        "none selected",
        "several configurations and no validation split to select on: all are shown, none ranked",
    ),
    "test": ("selected on test", "the configuration was selected on the test set: its number is optimistic"),
}


def flags_of(record: Record) -> tuple[tuple[str, str], ...]:
    """Return the flags of a row of the leaderboard: key, and what to print."""
    several = record["n"] and record["configurations"] > 1
    holding = {
        "diverged": record["diverged"],
        "failed": record["failed"],
        "stopped": record["stopped"],
        "shortened": record["shortened"],
        "single": record["n"] == 1,
        "mixed": record["versions_mixed"],
        "blind": several and record["selected_on"] in ("none", "mixed"),
        "test": several and record["selected_on"] == "test",
    }
    counts = {"failed": f"{record['failed']} ", "stopped": f"{record['stopped']} "}
    return tuple((key, counts.get(key, "") + MEANINGS[key][0]) for key, holds in holding.items() if holds)


def flags_of_run(run: Run) -> tuple[tuple[str, str], ...]:
    """Return the flags of one run."""
    holding = {
        "failed": run["status"] == "failed",
        "stopped": run["status"] == "stopped",
        "diverged": run["diverged"],
        "shortened": run["shortened"] and run["status"] == "finished",
    }
    return tuple((key, MEANINGS[key][0]) for key, holds in holding.items() if holds)

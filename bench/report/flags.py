"""What a reader must know about a number before trusting it."""

from __future__ import annotations

from collections.abc import Sequence

from bench.report.html import Html, join, tag
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
    """The flags of a row of the leaderboard: key, and what to print."""
    several = record["n"] and record["configurations"] > 1
    found = {
        "diverged": record["diverged"],
        "failed": record["failed"],
        "stopped": record["stopped"],
        "shortened": record["shortened"],
        "single": record["n"] == 1,
        "mixed": record["versions_mixed"],
        "blind": several and record["selected_on"] in ("none", "mixed"),
        "test": several and record["selected_on"] == "test",
    }
    counted = {"failed": record["failed"], "stopped": record["stopped"]}
    return tuple(
        (key, f"{counted[key]} {MEANINGS[key][0]}" if key in counted else MEANINGS[key][0])
        for key, holds in found.items()
        if holds
    )


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

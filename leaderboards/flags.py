"""Warnings that a reader needs before trusting a number: flags of rows, states of cells."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from leaderboards.rows.schema import WHEN_DIVERGED


@dataclass(frozen=True)
class Flag:
    """A remark on a row.

    Args:
        word: text on a page.
        meaning: explanation of the word and the mark.
        mark: sign behind a number in a table; empty for none.
    """

    word: str
    meaning: str
    mark: str = ""


FLAGS: dict[str, Flag] = {
    "diverged": Flag("DIVERGED", WHEN_DIVERGED),
    "failed": Flag(
        "failed", "a run ended with an error; failed runs are counted here and enter no mean"
    ),
    "stopped": Flag("stopped", "a search stopped a run early; such runs enter no mean"),
    "shortened": Flag(
        "shortened", "fewer rounds, fewer local epochs or less data than the preset", "†"
    ),
    "uncertified": Flag(
        "not certified",
        "an algorithm from outside whose self-test did not pass, or was left out",
        "¶",
    ),
    "mixed": Flag(
        "mixed platforms", "on unlike platforms (device, versions of packages, processor)", "‡"
    ),
    "data": Flag(
        "other data",
        "trained on another copy of the data, or another partition, than others of its column",
        "‖",
    ),
    "personal": Flag(
        "personal", "personal: of each client's own model (on the test set, the mean of them)", "°"
    ),
    "partial": Flag("partial", "some seeds failed or were stopped", "§"),
    "single": Flag("1 seed", "a single seed: no spread, no interval, no test"),
    "blind": Flag(
        "none selected",
        "several configurations and no validation split to select on: all are shown, none ranked",
    ),
    "test": Flag(
        "selected on test",
        "the configuration was selected on the test set: its number is optimistic",
    ),
    "selected": Flag("selected", "selected", "✓"),
}
# Flags that a page shows -> word and meaning.
MEANINGS = {
    key: (flag.word, flag.meaning)
    for key, flag in FLAGS.items()
    if key not in ("partial", "selected")
}

# State of a cell whose number is missing or means little -> printed word, and its meaning.
STATES: dict[str, tuple[str, str]] = {
    "missing": ("–", "not run, or not measured"),
    "failed": ("failed", "no run finished, and some failed"),
    "stopped": ("stopped", "every run was stopped early by the search"),
    "diverged": ("DIVERGED", WHEN_DIVERGED),
}


def flags_of(record: Mapping[str, Any]) -> list[str]:
    """List the keys of `FLAGS` that hold for a row of a leaderboard."""
    several = record["n"] and record["configurations"] > 1
    holds = {
        "diverged": record["diverged"],
        "failed": record["failed"],
        "stopped": record["stopped"],
        "shortened": record["shortened"],
        "uncertified": record["uncertified"],
        "mixed": record["platforms_mixed"],
        "data": record["data_mixed"],
        "personal": record["personal"],
        "partial": record["n"] and (record["failed"] or record["stopped"]),
        "single": record["n"] == 1,
        "blind": several and record["selected_on"] in ("none", "mixed"),
        "test": several and record["selected_on"] == "test",
        "selected": record["selected"],
    }
    return [key for key, value in holds.items() if value]


def flags_to_show(record: Mapping[str, Any]) -> tuple[tuple[str, str], ...]:
    """List the flags of a row of a leaderboard that a page shows: key, and what to print."""
    holding = flags_of(record)
    counts = {"failed": f"{record['failed']} ", "stopped": f"{record['stopped']} "}
    shown = []
    for key, (word, _) in MEANINGS.items():
        if key in holding:
            shown.append((key, counts.get(key, "") + word))
    return tuple(shown)


def flags_of_run(run: Mapping[str, Any]) -> tuple[tuple[str, str], ...]:
    """List the flags of one run that a page shows: key, and what to print."""
    holds = {
        "failed": run["status"] == "failed",
        "stopped": run["status"] == "stopped",
        "diverged": run["diverged"],
        "shortened": run["shortened"] and run["status"] == "finished",
        "uncertified": str(run["certified"]) == "False",  # it may be empty
    }
    return tuple((key, MEANINGS[key][0]) for key, value in holds.items() if value)


def why_not_selected(record: Mapping[str, Any]) -> str:
    """Say why a row of a leaderboard is not selected."""
    if record["n"]:
        return "none of its configurations could be selected"
    return "no run finished, and some failed" if record["failed"] else "every run was stopped"

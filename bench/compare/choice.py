"""The choice of configurations: `--tuned`, `--confirmed`, `--chosen-by`, `--select-on`."""

from __future__ import annotations

import argparse
import json
from collections.abc import Collection
from typing import TYPE_CHECKING, Any

from bench.errors import UsageError
from bench.stored.fields import field_named, field_value
from bench.terminal.console import say
from bench.terminal.values import some_of, split_list
from bench.terminal.words import CHOSEN_BY, SELECT_ON
from leaderboards.rows.frames import by_text
from leaderboards.rows.schema import canonical_json
from leaderboards.selection import DEFAULT_RULE, PROTOCOLS, RULES, Selection

if TYPE_CHECKING:
    import pandas as pd

TUNABLE = (
    "lr",
    "lr_decay",
    "momentum",
    "weight_decay",
    "clip_norm",
    "batch_size",
    "optimizer",
    "nesterov",
)


def selection_options(parser: argparse.ArgumentParser) -> None:
    """Add the options that `selection` reads.

    They say how configurations are selected, and what is reported of them.
    """
    add = parser.add_argument_group("how configurations are chosen").add_argument
    add(
        "--tuned",
        nargs="+",
        metavar="FIELD",
        help="setting fields selected over on validation, such as lr",
    )
    add(
        "--chosen-by",
        choices=tuple(RULES),
        default=DEFAULT_RULE,
        help=f"{CHOSEN_BY} ({DEFAULT_RULE})",
    )
    add("--select-on", choices=PROTOCOLS, help=SELECT_ON)
    add(
        "--confirmed",
        nargs="*",
        metavar="FIELD=V",
        help="select on seed 0 and show the other seeds (sweep --confirm); with participation=0.5, "
        "use the configurations tuned at 0.5 for all other participations as well",
    )


def selection(arguments: argparse.Namespace) -> Selection:
    """Read `--tuned`, `--confirmed`, `--chosen-by` and `--select-on`.

    Raises:
        UsageError: a name is no field of local training, or no field of a setting with a value.
    """
    tuned = some_of(arguments.tuned, TUNABLE, "field of local training for --tuned")
    if arguments.confirmed is None:
        return Selection(tuned, None, arguments.chosen_by, arguments.select_on)
    tuned_at: dict[str, Any] = {}
    for text in split_list(arguments.confirmed):
        name, _, value = text.partition("=")
        if not value or name in (*tuned_at, *tuned):
            raise UsageError(
                "--confirmed takes FIELD=VALUE, each field once and none of --tuned, got "
                f"{text!r}; other words go before it"
            )
        tuned_at[name] = field_value(field_named("--confirmed", name), value)
    return Selection(tuned, tuned_at, arguments.chosen_by, arguments.select_on)


def note_untuned(runs: pd.DataFrame, told_apart: Collection[str]) -> None:
    """Report on stderr if an algorithm's runs differ in the learning rate alone.

    Each rate then gives results of its own, and nothing is selected among them. `told_apart`:
    fields that are tuned, or laid out side by side.
    """
    if "lr" in told_apart:
        return
    cells = by_text(runs["setting_json"], _without_rate)
    rates = runs["lr"].groupby([runs["algorithm"], cells]).nunique()
    if (rates > 1).any():
        say(
            "note: settings here differ in lr alone: --tuned lr selects it on validation; with "
            "--confirmed, too, what a search on seed 0 chose is shown on the other seeds"
        )


def _without_rate(text: str) -> str:
    setting = json.loads(text)
    setting.pop("lr", None)
    return canonical_json(setting)

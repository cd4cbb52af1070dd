"""The choice of configurations: `--tuned`, `--confirmed`, `--chosen-by`, `--select-on`."""

from __future__ import annotations

import argparse
from typing import Any

from bench.errors import UsageError
from bench.stored.fields import field_named, field_value
from bench.terminal.values import some_of, split_list
from bench.terminal.words import CHOSEN_BY, SELECT_ON
from leaderboards.selection import DEFAULT_RULE, PROTOCOLS, RULES, Selection

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
                f"--confirmed takes FIELD=VALUE, each field once and none of --tuned, got {text!r}"
            )
        tuned_at[name] = field_value(field_named("--confirmed", name), value)
    return Selection(tuned, tuned_at, arguments.chosen_by, arguments.select_on)

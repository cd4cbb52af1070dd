"""How a sweep's options become a `Request`. Imports neither torch nor ray."""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Sequence

from bench.errors import UsageError
from bench.planning.request import Request
from bench.sweep.layers import Layer
from bench.sweep.options import SETTING_OPTIONS
from bench.sweep.start import full_keys
from bench.terminal.values import result_folder, split_list


def make_request(options: argparse.Namespace, layers: Sequence[Layer]) -> Request:
    """What the options ask to run.

    Raises:
        UsageError: no algorithm, no configuration, a malformed `--set`, one value given in two ways, or no stored model
            to start from.
    """
    if options.budget < 1 and any("budget" in layer.options for layer in layers):
        raise UsageError(f"--budget must be >= 1, got {options.budget}; without it the paper's own grid is run")
    _check_samples(options, layers)
    _check_confirm(options, layers)
    if not split_list(getattr(options, "algo", ())) and not options.table:
        raise UsageError("--algo is missing: name an algorithm, several, or all; --list shows them")
    values: dict[str, tuple[str, ...]] = {}
    origins: dict[str, str] = {}
    for layer in layers:
        given = _values_of(layer)
        # A plain name goes over what an earlier layer said of one algorithm's.
        hidden = [name for name in values if name.rpartition(".")[2] in given and name not in given]
        for name in hidden:
            del values[name]
        values |= given
        origins |= dict.fromkeys(given, layer.origin)
    if "start_from" in values:
        values["start_from"] = full_keys(values["start_from"], result_folder(options.out))
    return Request(
        algorithms=split_list(getattr(options, "algo", [])),
        dataset=_dataset(options, layers),
        paper=options.paper,
        values=values,
        origins=origins,
        seeds=_seeds(options, layers),
        search=options.search,
        num_samples=options.num_samples,
        budget=options.budget,
        scheduler=options.scheduler,
        confirm=options.confirm,
        confirm_at=parse_set(options.confirm_at, "--confirm-at"),
        force=options.force,
        table=options.table,
    )


def _check_samples(options: argparse.Namespace, layers: Sequence[Layer]) -> None:
    """A grid is run whole: a number of configurations asks for a search, unless a later layer put the grid over it."""
    named = [layer.options for layer in layers if {"search", "num_samples"} & layer.options.keys()]
    if options.search == "grid" and named and "num_samples" in named[-1]:
        other = "" if options.budget or options.table else "add one of them, or "
        raise UsageError(
            f"--num-samples {options.num_samples} is for --search random or --search optuna: {other}leave it out"
        )


def _check_confirm(options: argparse.Namespace, layers: Sequence[Layer]) -> None:
    """The seeds of a search and of what confirms it are told by `--confirm` alone."""
    seeds = ",".join(map(str, options.confirm))
    if any("confirm" in layer.options for layer in layers) and min(options.confirm, default=0) < 1:
        raise UsageError(f"--confirm must be >= 1, got {seeds}; without it seeds 0 to --seeds - 1 are run")
    if options.confirm_at and not options.confirm:
        raise UsageError("--confirm-at says where --confirm runs what the search chose: give --confirm 3, too")
    if not options.confirm:
        return
    if any("seeds" in layer.options for layer in layers):
        raise UsageError(
            f"--confirm {seeds} searches seed 0 and reports seeds 1 to {max(options.confirm)}: leave --seeds out"
        )
    if options.table:
        raise UsageError("--table runs a paper's own configurations on its own seeds: leave out --confirm, or --table")


def _dataset(options: argparse.Namespace, layers: Sequence[Layer]) -> str:
    """The data set; of a table all, unless some are named."""
    named = not options.table or any("dataset" in layer.options for layer in layers)
    return str(options.dataset) if named else ""


def _seeds(options: argparse.Namespace, layers: Sequence[Layer]) -> int:
    """How many seeds; of a table as many as there were runs, unless a number is given."""
    if not options.table or not options.paper or any("seeds" in layer.options for layer in layers):
        return int(options.seeds)
    from bench.planning.tables import table_of

    return table_of(options.paper, options.table)[1].runs


def _values_of(layer: Layer) -> dict[str, tuple[str, ...]]:
    """One layer's settings and hyper-parameters, by name."""
    options = {name: option for option, name in SETTING_OPTIONS.items() if option in layer.options}
    values = {name: split_list(layer.options[option]) for name, option in options.items()}
    extra = parse_set(layer.options.get("set", []))
    twice = sorted(set(values) & set(extra))
    if twice:
        option = "--" + options[twice[0]].replace("_", "-")
        raise UsageError(f"{option} and --set {twice[0]}= are the same thing, and both are given: leave one out")
    return values | extra


def parse_set(words: Iterable[str], option: str = "--set") -> dict[str, tuple[str, ...]]:
    """`name=v,v name=v` as a mapping; values of a name that comes twice are put together.

    Raises:
        UsageError: a word without `=`, a name or a value.
    """
    values: dict[str, tuple[str, ...]] = {}
    for word in words:
        name, sign, text = word.partition("=")
        parts = split_list([text])
        if not sign or not name.strip() or not parts:
            raise UsageError(f"{option} takes name=value[,value...], got {word!r}")
        values[name.strip()] = tuple(dict.fromkeys((*values.get(name.strip(), ()), *parts)))
    return values

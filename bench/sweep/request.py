"""From a sweep's options to a `Request`. Imports neither torch nor ray."""

from __future__ import annotations

from bench.errors import UsageError
from bench.planning.request import Request
from bench.sweep.options import COMMAND_LINE, SweepOptions
from bench.sweep.preflight import full_keys
from bench.terminal.values import result_folder


def make_request(options: SweepOptions) -> Request:
    """Say what the options ask to run; raises UsageError if they exclude each other or lack an algorithm or model."""
    given = options.given
    # A grid is run whole: a number of configurations asks for a search, unless the command line put a grid over it.
    grid_over = given.get("search") == COMMAND_LINE != given.get("num_samples")
    if options.search == "grid" and "num_samples" in given and not grid_over:
        other = "" if options.budget or options.table else "add one of them, or "
        raise UsageError(
            f"--num-samples {options.num_samples} is for --search random or --search optuna: {other}leave it out"
        )
    if options.budget and "num_samples" in given and not grid_over:
        raise UsageError(f"--budget {options.budget} is the number of configurations: leave --num-samples out")
    _check_confirm(options)
    if not options.algo and not options.table:
        raise UsageError("--algo is missing: name an algorithm, several, or all; --list shows them")
    values = dict(options.values)
    if "start_from" in values:
        values["start_from"] = full_keys(values["start_from"], result_folder(options.out))
    seeds = options.seeds
    if options.table and options.paper and "seeds" not in given:
        from bench.planning.tables import table_of

        seeds = table_of(options.paper, options.table)[1].runs
    return Request(
        algorithms=options.algo,
        dataset=options.dataset if "dataset" in given or not options.table else "",
        paper=options.paper,
        values=values,
        origins=options.origins,
        seeds=seeds,
        search=options.search,
        num_samples=options.num_samples,
        budget=options.budget or 0,
        scheduler=options.scheduler,
        confirm=options.confirm,
        confirm_at=options.confirm_at,
        force=options.force,
        table=options.table,
    )


def _check_confirm(options: SweepOptions) -> None:
    """Refuse what `--confirm` excludes: the seeds of a search and of its confirmation are told by it alone."""
    if options.confirm_at and not options.confirm:
        raise UsageError("--confirm-at says where --confirm runs what the search chose: give --confirm 3, too")
    if options.confirm and "seeds" in options.given:
        seeds = ",".join(map(str, options.confirm))
        raise UsageError(
            f"--confirm {seeds} searches seed 0 and reports seeds 1 to {max(options.confirm)}: leave --seeds out"
        )
    if options.confirm and options.table:
        raise UsageError("--table runs a paper's own configurations on its own seeds: leave out --confirm, or --table")

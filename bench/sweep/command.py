"""`python -m bench.sweep`: plan a sweep, run what is missing of it, print its leaderboard."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from bench.errors import EXIT_INTERRUPTED, EXIT_OK
from bench.planning.confirm import stand_ins
from bench.planning.plan import make_plan
from bench.sweep.layers import Layer, parse
from bench.sweep.ready import check_out
from bench.sweep.request import make_request
from bench.sweep.resolve import pack_notes, resolve
from bench.sweep.start import check_start
from bench.terminal.console import exit_status, report_problem, say
from bench.terminal.values import logs_of, tracks_of


def main(argv: Sequence[str] | None = None) -> int:
    """The command; returns its exit status."""
    argv = list(sys.argv[1:] if argv is None else argv)
    if argv[:1] == ["reproduce"]:
        from bench.sweep.reproduce import main as reproduce

        return reproduce(argv[1:])
    return exit_status(lambda: _sweep(argv), verbose="-v" in argv or "--verbose" in argv)


def _sweep(argv: list[str]) -> int:
    try:
        given, layers = parse(argv)
        return _dispatch(given, layers, argv)
    except KeyboardInterrupt:
        return report_problem(KeyboardInterrupt("interrupted before anything ran"), EXIT_INTERRUPTED)


def _dispatch(given: argparse.Namespace, layers: Sequence[Layer], argv: list[str]) -> int:
    if given.list:
        from bench.sweep.show import print_registry

        print_registry(getattr(given, "algo", []), given.json)
        return EXIT_OK
    if given.show and not hasattr(given, "algo"):
        given.algo = ["all"]
    given.track, given.log = tracks_of(given.track), logs_of(given.log)
    plan = make_plan(make_request(given, layers))
    if given.show:
        from bench.sweep.show import print_spaces

        print_spaces(plan, given.json, any("dataset" in layer.options for layer in layers))
        return EXIT_OK
    resolved = resolve(given, plan)
    check_start(plan, resolved.out)
    stand_ins(plan)  # so that a value of --confirm-at that is not allowed is said before anything runs
    if given.dry_run:
        from bench.sweep.dry_run import print_dry_run

        say(*pack_notes(given, resolved))
        print_dry_run(plan, given, resolved)
        return EXIT_OK
    from bench.sweep.running import run
    from bench.sync.session import mirror_url, mirrored

    mirror = mirror_url(given.mirror, given.offline)
    if mirror:
        check_out(resolved.out)
    keys = None if plan.searches or plan.request.confirm else {unit.key for unit in plan.units}
    with mirrored(mirror, resolved.out, keys):
        return run(plan, given, argv, resolved)

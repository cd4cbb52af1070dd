"""`python -m bench.sweep`: plan a sweep, run what is missing of it, print its leaderboard."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import replace

from bench.errors import EXIT_OK
from bench.planning.plan import make_plan
from bench.planning.run_spec import RunSpec
from bench.sweep.options import SweepOptions, parse
from bench.sweep.preflight import check_out, check_start, make_request, mirror_url, resolve
from bench.terminal.console import exit_status


def main(argv: Sequence[str] | None = None) -> int:
    """The command; returns its exit status."""
    argv = list(sys.argv[1:] if argv is None else argv)
    if argv[:1] == ["reproduce"]:
        from bench.sweep.reproduce import main as reproduce

        return reproduce(argv[1:])
    return exit_status(lambda: _dispatch(parse(argv), argv), verbose="-v" in argv or "--verbose" in argv)


def _dispatch(options: SweepOptions, argv: list[str]) -> int:
    if options.list:
        from bench.sweep.show import print_registry

        print_registry(options.algo, options.json)
        return EXIT_OK
    if options.show:
        from bench.sweep.show import print_spaces

        plan = make_plan(make_request(options if options.algo else replace(options, algo=("all",))))
        print_spaces(plan, options.json, "dataset" in options.given)
        return EXIT_OK
    plan = make_plan(make_request(options))
    resolved = resolve(options, plan)
    check_start(plan, resolved.out)
    confirming: list[RunSpec] = []
    if plan.request.confirm:
        from bench.planning.confirm import stand_ins

        confirming = stand_ins(plan)  # raises before anything runs if a value of --confirm-at is not allowed
    if options.dry_run:
        from bench.sweep.plan_report import print_dry_run

        print_dry_run(plan, options, resolved, len(confirming))
        return EXIT_OK
    from bench.sweep.running import run

    mirror = mirror_url(options.mirror, options.offline)
    if not mirror:
        return run(plan, options, argv, resolved, confirming)
    from bench.sync.mirror import mirrored

    check_out(resolved.out)
    keys = None if plan.searches or plan.request.confirm else {unit.key for unit in plan.units}
    with mirrored(mirror, resolved.out, keys):
        return run(plan, options, argv, resolved, confirming)

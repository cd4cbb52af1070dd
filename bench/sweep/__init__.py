"""The main command: plan a sweep, run what is missing of it, print its leaderboard.

`options` reads the command line, `request` makes a `Request` of it, which `bench.planning` turns into runs; `resolve`
reads options that depend on the machine, `preflight` checks that all is there, and `running` trains. `show`,
`plan_report` (dry runs, with `paces`) and `reproduce` are further commands; `track` has the notes on `--track`.
"""

from bench.sweep.command import main

__all__ = ["main"]

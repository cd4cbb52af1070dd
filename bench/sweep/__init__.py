"""The main command: plan a sweep, run what is missing of it, print its leaderboard.

`python -m bench.sweep` is it. `options` and `layers` read the command line, `request` makes a `Request` of it, which
`bench.planning` turns into runs; `resolve` says what the rest comes to on this machine, `ready` what must be there
before, and `running` does it. `show`, the dry runs and `reproduce` are what else it can be asked, `track` is `--track`.
"""

from bench.sweep.command import main

__all__ = ["main"]

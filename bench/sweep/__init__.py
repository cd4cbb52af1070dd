"""The main command: plan a sweep, run what is missing of it, print its leaderboard.

`options` reads the command line; `resolve` makes a `Request` of it, which `bench.planning` turns into runs, and settles
what depends on the machine; `preflight` checks that all is there, and `running` trains. `show`, `plan_report` (dry
runs) and `reproduce` are further commands.
"""

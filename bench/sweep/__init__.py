"""The main command: plan a sweep, run what is missing of it, print its leaderboard.

`options` reads the command line; `preflight` makes a `Request` of it, which `bench.planning` turns into runs, settles
what depends on the machine, and checks that all is there; `command` trains. `show`, `plan_report` (dry runs) and
`reproduce` are further commands.
"""

"""The main command: plan a sweep, train its missing runs, print its leaderboard.

`options` reads the command line; `preflight` turns it into a `Request`, which `bench.planning`
resolves into runs, resolves options that depend on the machine, and checks data and folders;
`command` trains. `show`, `plan_report` (dry runs) and `reproduce` are further commands.
"""

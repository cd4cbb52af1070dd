"""The main command: plan a sweep, train its missing runs, print its leaderboard.

`parser` reads the options, of which `bench.planning` makes a plan; `preflight` resolves how this
machine executes it, and checks folders; `feasible` checks the data; `command` trains. `plan_report`
collects the figures of a dry run, and `plan_text` prints them. `show` and `reproduce` are further
commands.
"""

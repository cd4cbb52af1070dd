"""Leaderboard tables of result folders.

`python -m bench.compare` prints them. `filters` says which rows, `diff` says in what two runs differ.
"""

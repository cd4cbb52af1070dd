"""Leaderboard tables of result folders.

`python -m bench.compare` prints them. `filters` selects the rows, `diff` shows how two runs differ.
"""

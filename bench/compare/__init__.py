"""Leaderboard tables of result folders.

`python -m bench.compare` prints them. `filters` says which rows, `published` sets ours beside a paper's table, `diff`
says in what two runs differ.
"""

from bench.compare.command import main

__all__ = ["main"]

"""Stored runs, as commands look at them.

`results` reads rows, curves and leaderboard of folders, `groups` says what is compared with what, `names` what runs
are called, and `under_way` which of them are at work or have a saved state.
"""

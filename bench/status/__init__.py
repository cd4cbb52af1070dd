"""Runs that are done, failed, stopped, under way or missing: `python -m bench.status`."""

from bench.status.command import main

__all__ = ["main"]

"""What is done, failed, stopped, under way or missing: `python -m bench.status`; `under_way` looks at saved states."""

from bench.status.command import main

__all__ = ["main"]

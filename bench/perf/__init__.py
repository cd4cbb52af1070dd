"""Benchmarks of the suite itself: start-up, data work, training beside a bare PyTorch loop, Ray Tune, large folders.

`python -m bench.perf` runs them. Targets stand beside the figures and are never asserted: timings belong to a machine.
"""

from bench.perf.command import main

__all__ = ["main"]

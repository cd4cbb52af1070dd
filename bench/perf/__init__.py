"""Benchmarks of the suite itself: start-up, data work, local training beside a bare PyTorch loop, what Ray Tune adds.

`python -m bench.perf` runs them. Targets stand beside the figures and are never asserted: timings belong to a machine.
"""

from bench.perf.command import main

__all__ = ["main"]

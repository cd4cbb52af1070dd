"""Benchmarks of the suite itself, from the start-up of its commands to whole runs against the clock.

`python -m bench.perf` runs them. Targets stand beside the figures and are never asserted: timings belong to a machine.
"""

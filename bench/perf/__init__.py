"""Benchmarks of the suite itself, from the start-up of its commands to whole runs.

`python -m bench.perf` runs them. Targets are printed with figures and never asserted: timings
depend on the machine.
"""

"""The conformance suite, which certifies an algorithm, built in or from outside, on a tiny federation.

`python -m bench.selftest` runs it. The checks are listed in `certify.py`; the project's tests call
the same checks.
"""

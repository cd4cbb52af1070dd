"""The conformance suite, which certifies algorithms, built in or from outside, on tiny data.

`python -m bench.selftest` runs it. The checks are listed in `certify.py`; the project's tests call
the same checks.
"""

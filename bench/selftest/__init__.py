"""The conformance suite: it certifies an algorithm, built in or from outside, on a tiny federation.

`python -m bench.selftest` runs it. The checks are listed in `certify.py`; the tests of this project call the same ones.
"""

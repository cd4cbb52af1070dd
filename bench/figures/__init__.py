"""The papers' figures and two of any board, drawn from stored runs as SVG and PNG.

`python -m bench.figures` does it. `table` says what there is, `runs` reads folders, `comparisons` says what stands in
one picture; a module for each kind of figure finds what can be drawn and makes its specification.
"""

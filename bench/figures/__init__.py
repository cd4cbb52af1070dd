"""The papers' figures and two of any board, drawn from stored runs as SVG and PNG.

`python -m bench.figures` draws them. `catalogue` lists the figures, `stored_runs` reads folders,
`comparisons` says what one picture shows. A module for each kind of figure finds the pictures that
can be drawn, and specifies them.
"""

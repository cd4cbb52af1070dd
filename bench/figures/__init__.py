"""The papers' figures and two of any board, drawn from stored runs as SVG and PNG.

`python -m bench.figures` draws them. `table` lists the figures, `runs` reads folders, `comparisons`
says what is shown in one picture; a module for each kind of figure finds the pictures that can be
drawn and specifies them.
"""

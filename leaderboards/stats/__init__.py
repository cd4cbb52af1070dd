"""Statistics over seeds.

Intervals of one mean, paired tests and shared ranks in a cell, aggregates over cells.
"""

"""Tables of a leaderboard: what is shown beside what, in which words. Their looks are the commands'."""

from leaderboards.tables.build import state_of, tables_of
from leaderboards.tables.model import Cell, Head, Row, Sheet, Table, flat

__all__ = ["Cell", "Head", "Row", "Sheet", "Table", "flat", "state_of", "tables_of"]

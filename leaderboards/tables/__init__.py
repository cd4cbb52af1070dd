"""Tables of a leaderboard: their layout and wording. Commands render them."""

from leaderboards.tables.build import state_of, tables_of
from leaderboards.tables.model import Cell, Head, Row, Sheet, Table, flat

__all__ = ["Cell", "Head", "Row", "Sheet", "Table", "flat", "state_of", "tables_of"]

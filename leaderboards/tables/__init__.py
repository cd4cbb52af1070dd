"""Tables of a leaderboard: their layout and wording. Commands render them."""

from leaderboards.tables.build import state_of, tables_of
from leaderboards.tables.model import Head, ResultTable, Row, Sheet, TableCell, flat

__all__ = ["Head", "ResultTable", "Row", "Sheet", "TableCell", "flat", "state_of", "tables_of"]

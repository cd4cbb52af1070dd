"""Printed results of the papers, and our runs beside them."""

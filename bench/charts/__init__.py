"""Chart specifications, shared by the report's page and the papers' figures: Vega-Lite as plain dicts, no packages.

Each function takes rows (mappings of plain values) and gives a whole specification, its data included. Looks are apart:
`theme.config(dark)` goes beside it into vega-embed or vl-convert. Accuracies come as fractions and are shown in %.
"""

from bench.charts.costs import accuracy_against
from bench.charts.curves import learning_curves
from bench.charts.importance import importance
from bench.charts.response import response
from bench.charts.theme import config
from bench.charts.winners import winners

__all__ = ["accuracy_against", "config", "importance", "learning_curves", "response", "winners"]

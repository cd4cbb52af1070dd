"""Chart specifications in Vega-Lite, as plain dicts, for the report's page and the papers' figures.

Each function takes rows (mappings of plain values) and returns a specification with its data. The
look is separate: `theme.config(dark)` is passed with it to vega-embed or vl-convert. Accuracies
come as fractions and are shown in %.
"""

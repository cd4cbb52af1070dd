"""Chart specifications, shared by the report's page and the papers' figures: Vega-Lite as plain dicts, no packages.

Each function takes rows (mappings of plain values) and gives a specification, its data included. Looks are apart:
`theme.config(dark)` goes beside it into vega-embed or vl-convert. Accuracies come as fractions and are shown in %.
"""

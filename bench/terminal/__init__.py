"""The terminal: values and names parsed from options, and printed text and tables."""

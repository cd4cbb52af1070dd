"""The terminal: values and names read from options, text and tables printed."""

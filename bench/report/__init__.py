"""The report: one self-contained HTML page of a result folder, for browsers, phones, printers and screen readers.

`python -m bench.report` writes it. `bench.stored` reads folders, `standings` ranks algorithms; each
section of the page has its own module, and `page` assembles them.
"""

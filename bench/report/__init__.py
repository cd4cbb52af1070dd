"""The report: one self-contained HTML page of a result folder, for browsers, phones, printers and screen readers.

`python -m bench.report` writes it. `bench.stored` reads folders, `standings` says who is where; each section of the
page is a module of its own, and `page` puts them together.
"""

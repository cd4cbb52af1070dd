"""The report: a result folder as one HTML page.

The page is for browsers, phones, printers and screen readers. `python -m bench.report` writes it.
`bench.stored` reads folders; each section of the page has its own module, and `page` assembles
them.
"""

"""The report: one self-contained HTML page of a result folder, for browsers, phones, printers and screen readers.

`python -m bench.report` writes it. `results` reads folders, `groups` and `standings` say what is compared with what,
each section of the page is a module of its own, and `page` puts them together.
"""

from bench.report.command import main

__all__ = ["main"]

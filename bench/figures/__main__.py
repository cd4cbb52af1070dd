"""`python -m bench.figures`."""

import sys

from bench.figures.command import main

if __name__ == "__main__":
    sys.exit(main())

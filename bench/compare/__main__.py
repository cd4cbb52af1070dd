"""`python -m bench.compare`."""

import sys

from bench.compare.command import main

if __name__ == "__main__":
    sys.exit(main())

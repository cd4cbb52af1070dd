"""`python -m bench.sweep`."""

import sys

from bench.sweep.command import main

if __name__ == "__main__":
    sys.exit(main())

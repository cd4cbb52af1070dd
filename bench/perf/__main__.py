"""`python -m bench.perf`."""

import sys

from bench.perf.command import main

if __name__ == "__main__":
    sys.exit(main())

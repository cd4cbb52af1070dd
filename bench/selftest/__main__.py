"""`python -m bench.selftest`."""

import sys

from bench.selftest.command import main

if __name__ == "__main__":
    sys.exit(main())

"""`python -m bench.status`."""

import sys

from bench.status.command import main

if __name__ == "__main__":
    sys.exit(main())

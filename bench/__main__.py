"""`python -m bench`: the commands, and each of them as a sub-command."""

import sys

from bench.cli import main

if __name__ == "__main__":
    sys.exit(main())

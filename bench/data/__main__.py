"""`python -m bench.data`: list data sets, download and prepare them, and show partitions."""

import sys

from bench.data.command import main

if __name__ == "__main__":
    sys.exit(main())

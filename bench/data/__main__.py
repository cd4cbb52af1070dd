"""`python -m bench.data`: what data sets there are, bringing them here, and looking at partitions."""

import sys

from bench.data.command import main

if __name__ == "__main__":
    sys.exit(main())

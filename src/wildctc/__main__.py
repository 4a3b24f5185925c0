"""`python -m wildctc`, so that torchrun can start it."""

import sys

from wildctc.cli import main

if __name__ == "__main__":
    sys.exit(main())

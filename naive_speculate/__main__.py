"""`python -m naive_speculate`."""

import sys

from naive_speculate.tools.command_line import main

if __name__ == "__main__":
    sys.exit(main())

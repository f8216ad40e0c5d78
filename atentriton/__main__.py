"""`python -m atentriton` is the command `atentriton`."""

from __future__ import annotations

import sys

from atentriton.cli import main

if __name__ == "__main__":
    sys.exit(main())

"""`python -m fairbox_simulation`: see `program`, which worker processes can import."""

from __future__ import annotations

import logging
import sys

from fairbox_simulation.program import main

if __name__ == "__main__":
    logging.disable(logging.ERROR)  # faults are what a world is made of
    sys.exit(main())

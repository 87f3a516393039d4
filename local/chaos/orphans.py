"""Ends a helper process whose parent is gone, however that ended."""

from __future__ import annotations

import os
import threading
import time
from typing import Final

_LOOK_SECONDS: Final = 1.0


def end_with_parent() -> None:
    """Begin to look whether the parent still lives; exit at once when it does not."""
    parent = os.getppid()

    def look() -> None:
        while os.getppid() == parent:
            time.sleep(_LOOK_SECONDS)
        os._exit(1)

    threading.Thread(target=look, name="parent", daemon=True).start()

"""A pause of garbage collection, where many objects are made and none is dropped."""

from __future__ import annotations

import gc
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator


@contextmanager
def gc_paused() -> Iterator[None]:
    """Pause the collector; afterwards it is as it was.

    Making a boto3 client loads a model of some ten thousand objects, all of which stay. The
    collections that this sets off each walk everything imported before: a tenth of a cold start.
    """
    # a caller may have switched it off for good
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()

"""Small trees: limits of a batch so low that a few groups make nodes, and large adds."""

from __future__ import annotations

from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING
from unittest.mock import patch

from fairbox.batches import additions as adding
from fairbox.batches import ids
from fairbox.batches import progress as looking

if TYPE_CHECKING:
    from collections.abc import Iterator


@contextmanager
def small_trees() -> Iterator[None]:
    """Let a root have one group and a node two, and an add of three groups be large.

    Inside of another one it changes nothing, and costs nothing.
    """
    if int(ids.ROOT_GROUPS) == 1:
        yield
        return
    with ExitStack() as stack:
        for module in (ids, adding, looking):
            stack.enter_context(patch.object(module, "ROOT_GROUPS", 1))
        for module in (ids, adding):
            stack.enter_context(patch.object(module, "NODE_GROUPS", 2))
        stack.enter_context(patch.object(adding, "SMALL_GROUPS", 2))
        stack.enter_context(patch.object(adding, "CHUNK", 2))
        yield

"""Small trees: limits of a batch so low that a few groups make nodes, and large adds."""

from __future__ import annotations

from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING
from unittest.mock import patch

from fairbox.batches import additions, batch_parts
from fairbox.tables import batch_values

if TYPE_CHECKING:
    from collections.abc import Iterator


@contextmanager
def small_trees() -> Iterator[None]:
    """Let a root have one group and a node two, and an add of three groups be large.

    Inside of another one it changes nothing, and costs nothing.
    """
    if int(batch_values.ROOT_GROUPS) == 1:
        yield
        return
    with ExitStack() as stack:
        for module in (batch_values, additions, batch_parts):
            stack.enter_context(patch.object(module, "ROOT_GROUPS", 1))
        for module in (batch_values, additions):
            stack.enter_context(patch.object(module, "NODE_GROUPS", 2))
        stack.enter_context(patch.object(additions, "SMALL_GROUPS", 2))
        stack.enter_context(patch.object(additions, "CHUNK", 2))
        yield

"""The parts of the batches core that the facades of a batches table share."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fairbox.batches.additions import Additions
from fairbox.batches.batch_lists import BatchLists, ItemPages
from fairbox.batches.cascade import Cascade
from fairbox.batches.cleanup import Cleanup
from fairbox.batches.figures import ProgressReader
from fairbox.batches.item_settlement import Settlement
from fairbox.batches.lifecycle import Lifecycle

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from fairbox.batches.batch_parts import Context
    from fairbox.tables.batch_table import BatchTable
    from fairbox.tables.batch_values import Callbacks


class BatchContext:
    """An open batches table, with the use cases over it.

    Args:
        core: the context that the use cases share.
        callbacks: returns the topics of `on_complete` and its like, by field.
    """

    def __init__(
        self, core: Context, callbacks: Callable[[Mapping[str, str | None]], Callbacks]
    ) -> None:
        self.core = core
        self.callbacks = callbacks
        self.additions = Additions(core)
        self.cascade = Cascade(core)
        self.settlement = Settlement(core, self.cascade)
        self.lifecycle = Lifecycle(core, self.cascade)
        self.progress = ProgressReader(core)
        self.cleanup = Cleanup(core, self.cascade, self.lifecycle, self.progress)
        self.pages = ItemPages(core.store)
        self.lists = BatchLists(core.store)


class BatchPart:
    """A part of `Batches`: methods over the shared context, and no state of its own."""

    store: BatchTable
    _context: BatchContext

    def _open(self, context: BatchContext) -> None:
        self._context = context
        self.store = context.core.store

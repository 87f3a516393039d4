"""The objects that every route works with."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING

from fairbox.api.publish_routes import Publisher

if TYPE_CHECKING:
    from collections.abc import Callable

    from fairbox.client.batches import Batches
    from fairbox.client.feeds import Feeds
    from fairbox.client.outbox import Outbox
    from fairbox.client.queue import Queue
    from fairbox.model.clock import Clock
    from fairbox.model.ids import IdGenerator


class Api:
    """The outbox, the queue, the batches and the feeds that requests are answered from.

    Args:
        outbox: the outbox.
        ids: makes message ids.
        clock: the time.
        batches: opens the batches, when a request first needs them.
        feeds: opens the feeds, likewise; it returns None where there are none.
    """

    def __init__(
        self,
        outbox: Outbox,
        ids: IdGenerator,
        clock: Clock,
        batches: Callable[[], Batches],
        feeds: Callable[[], Feeds | None] = lambda: None,
    ) -> None:
        self.outbox = outbox
        self.clock = clock
        self.publisher = Publisher(outbox, ids)
        self._open_batches = batches
        self._open_feeds = feeds

    @cached_property
    def batches(self) -> Batches:
        """The batches."""
        return self._open_batches()

    @cached_property
    def feeds(self) -> Feeds | None:
        """The feeds; None: there are none."""
        return self._open_feeds()

    @cached_property
    def queue(self) -> Queue:
        """The queue over the same tables."""
        # imported where it is used: no other request pays for it
        from fairbox.client.queue import Queue  # noqa: PLC0415

        return Queue.over(self.outbox)

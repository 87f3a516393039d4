"""The data behind the fuzzed API, made again from time to time under the same names."""

from __future__ import annotations

import uuid
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Final

from fairbox.errors import FairboxError
from fairbox.model.messages import Message
from fairbox.model.topics import Subscription, Topic

if TYPE_CHECKING:
    from collections.abc import Callable

    from fairbox.testing.application import MemoryApplication

TOPICS: Final = ("orders", "jobs", "keyed", "pushed")
_MESSAGES: Final = 6
_GROUPS: Final = 3


@dataclass(frozen=True)
class Names:
    """Names of what is there."""

    refs: tuple[str, ...]
    batches: tuple[str, ...]
    items: tuple[str, ...]


class Seeded:
    """Topics of every kind, messages in every lane, batches with settled and pending items.

    Args:
        application: where it is made.
    """

    def __init__(self, application: MemoryApplication) -> None:
        self._application = application
        self._ids = [application.ids.next() for _ in range(len(TOPICS) * _MESSAGES)]
        self._batches = [str(uuid.UUID(int=n + (4 << 76) + (2 << 62))) for n in range(4)]
        self._refs: dict[str, None] = {}
        self.fill()

    @property
    def names(self) -> Names:
        """The names, as they were first."""
        items = (f"{b}:{g}:{i}" for b in self._batches for g in range(_GROUPS) for i in range(3))
        return Names(tuple(self._refs), tuple(self._batches), tuple(items))

    def fill(self) -> None:
        """Make what is missing; what cannot be made, for it is being deleted or ended, is not."""
        outbox = self._application.outbox
        for number, name in enumerate(TOPICS):
            topic = Topic(
                name,
                shards=2,
                ordering="key" if name == "keyed" else "none",
                dedup_window=300 if name == "orders" else None,
            )
            _tried(partial(outbox.create_topic, topic))
            ids = self._ids[number * _MESSAGES : (number + 1) * _MESSAGES]
            for place, message_id in enumerate(ids):
                self._add(name, place, message_id)
        _tried(
            lambda: outbox.add_subscription(
                Subscription("pushed", "billing", "sqs:http://q/billing")
            )
        )
        self._bury()
        for number, batch in enumerate(self._batches):
            _tried(partial(self._batch, number, batch))

    def _add(self, topic: str, place: int, message_id: str) -> None:
        message = Message(
            topic=topic,
            body=b'{"n": 1}',
            partition_key=f"key-{place % 2}" if topic == "keyed" else None,
            headers={"place": str(place)},
            delay=86_400.0 if place == 1 and topic != "keyed" else 0,
            id=message_id,
        )

        def add() -> None:
            self._refs[str(self._application.outbox.add(message))] = None

        _tried(add)

    def _bury(self) -> None:
        queue = self._application.queue

        def bury() -> None:
            for held in queue.receive("jobs", 2, 30):
                queue.bury(held.receipt, "it failed")

        _tried(bury)

    def _batch(self, number: int, batch: str) -> None:
        batches = self._application.batches
        batches.open(f"catalog-{number}", {"n": number}, id=batch)
        batches.add(batch, 3 * _GROUPS, request_id="r1", group_size=3)
        batches.fail([f"{batch}:0:1"], "no")
        batches.ack([f"{batch}:0:0"])


def _tried(make: Callable[[], object]) -> None:
    with suppress(FairboxError):
        make()

"""The shipped doorbells over a model of their queues."""

from __future__ import annotations

import random
import uuid
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final, overload

from fairbox.aws.sqs_queues import SqsDoorbells, decode
from fairbox.model.topics import GROUPS
from fairbox.testing.memory_sqs import MemorySqs, SqsTrigger, redrive

if TYPE_CHECKING:
    from collections.abc import Callable

    from fairbox.dispatch.ports import Doorbell
    from fairbox.model.clock import Clock
    from fairbox.testing.sqs_queue import MemoryQueue

NOW: Final = "doorbells.fifo"
APART: Final = "doorbells-apart.fifo"
LATER: Final = "doorbells-later"
_FIFO: Final = {
    "FifoQueue": "true",
    "ContentBasedDeduplication": "false",
    "DeduplicationScope": "messageGroup",
    "FifoThroughputLimit": "perMessageGroupId",
}
_LIMITS: Final = {"VisibilityTimeout": "90", "MessageRetentionPeriod": "86400"}
_DEAD: Final = {"VisibilityTimeout": "90", "MessageRetentionPeriod": "1209600"}
QUEUES: Final = {
    "doorbells-dead.fifo": {**_FIFO, **_DEAD},
    "doorbells-apart-dead.fifo": {**_FIFO, **_DEAD},
    "doorbells-later-dead": _DEAD,
    NOW: {**_FIFO, **_LIMITS, "RedrivePolicy": redrive("doorbells-dead.fifo", 5)},
    APART: {**_FIFO, **_LIMITS, "RedrivePolicy": redrive("doorbells-apart-dead.fifo", 5)},
    LATER: {**_LIMITS, "RedrivePolicy": redrive("doorbells-later-dead", 5)},
}
"""Attributes of the queues, as they are deployed."""


class DoorbellQueues(SqsDoorbells):
    """The doorbells of functions, and a test's view of the queues that they use.

    Args:
        groups: gives how many visits of a topic run at a time.
        groups_apart: gives how many visits apart of a topic's subscription run at a time.

    Attributes:
        sqs: the service, with its faults.
        visits: invokes the function that visits, with one doorbell that is due.
        forwards: invokes the function with doorbells that have waited.
    """

    def __init__(
        self,
        clock: Clock,
        *,
        groups: Callable[[str], int] = lambda _: GROUPS,
        groups_apart: Callable[[str, str], int] = lambda *_: GROUPS,
    ) -> None:
        self.sqs = MemorySqs(clock, random.Random(0))  # noqa: S311 - ids of a test
        urls = {
            name: self.sqs.create_queue(QueueName=name, Attributes=attributes)["QueueUrl"]
            for name, attributes in QUEUES.items()
        }

        self._urls = urls[NOW], urls[LATER]
        self._settings: dict[str, Any] = {
            "new_id": self._id,
            "groups": groups,
            "apart_url": urls[APART],
            "groups_apart": groups_apart,
        }
        super().__init__(self.sqs, *self._urls, clock=clock, **self._settings)

        self.visits = SqsTrigger(self.sqs, urls[NOW], urls[APART], batch=1)
        self.forwards = SqsTrigger(self.sqs, urls[LATER])

    def of(self, clock: Clock, wrap: Callable[[MemorySqs], Any] = lambda sqs: sqs) -> SqsDoorbells:
        """Return the doorbells of another process.

        Args:
            clock: its clock.
            wrap: puts something around its client.
        """
        return SqsDoorbells(wrap(self.sqs), *self._urls, clock=clock, **self._settings)

    @property
    def now(self) -> WaitingDoorbells:
        """The doorbells in the FIFO queues, in their order, those in flight among them."""
        return WaitingDoorbells(self.sqs.queues[NOW], self.sqs.queues[APART])

    @property
    def later(self) -> WaitingDoorbells:
        """The doorbells in the queue for later, in the order of ringing."""
        return WaitingDoorbells(self.sqs.queues[LATER])

    def _id(self) -> str:
        return str(uuid.UUID(int=self.sqs.rng.getrandbits(128), version=4))


class WaitingDoorbells(Sequence["Doorbell"]):
    """The doorbells that lie in some queues."""

    def __init__(self, *queues: MemoryQueue) -> None:
        self._queues = queues

    @overload
    def __getitem__(self, index: int) -> Doorbell: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[Doorbell]: ...
    def __getitem__(self, index: int | slice) -> Doorbell | Sequence[Doorbell]:
        """Return one, or some, of them."""
        lying = [message for queue in self._queues for message in queue.messages.values()]
        return [decode(message.body) for message in lying][index]

    def __len__(self) -> int:
        """Return how many there are."""
        return sum(len(queue.messages) for queue in self._queues)

    def __repr__(self) -> str:
        """Return them as a list shows itself."""
        return repr(list(self))

    def clear(self) -> None:
        """Take all out."""
        for queue in self._queues:
            queue.clear()

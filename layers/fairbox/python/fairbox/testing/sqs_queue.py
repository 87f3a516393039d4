"""One queue of the model of SQS: its messages, groups, deduplication and visibility."""

from __future__ import annotations

import hashlib
import itertools
import json
import uuid
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    import random
    from collections.abc import Callable, Iterator, Mapping

    from fairbox.model.clock import Clock

DEDUPLICATION_SECONDS: Final = 300
IN_FLIGHT: Final = 120_000
"""Messages of a queue that were received and not deleted, at most."""


@dataclass(frozen=True, slots=True)
class Settings:
    """The attributes of a queue; times are seconds.

    Attributes:
        by_group: whether deduplication ids count by message group, not by queue.
        by_content: whether a message without a deduplication id gets the hash of its body.
        target: ARN of the dead-letter queue; empty: there is none.
        receives: how often a message is given before it goes there.
    """

    fifo: bool = False
    by_group: bool = False
    by_content: bool = False
    visibility: int = 30
    delay: int = 0
    retention: int = 345_600
    target: str = ""
    receives: int = 0

    @classmethod
    def of(cls, attributes: Mapping[str, str]) -> Settings:
        """Return the settings of the attributes of `CreateQueue`."""
        policy = json.loads(attributes.get("RedrivePolicy", "{}"))
        return cls(
            fifo=attributes.get("FifoQueue") == "true",
            by_group=attributes.get("DeduplicationScope") == "messageGroup",
            by_content=attributes.get("ContentBasedDeduplication") == "true",
            visibility=int(attributes.get("VisibilityTimeout", 30)),
            delay=int(attributes.get("DelaySeconds", 0)),
            retention=int(attributes.get("MessageRetentionPeriod", 345_600)),
            target=policy.get("deadLetterTargetArn", ""),
            receives=int(policy.get("maxReceiveCount", 0)),
        )


@dataclass(slots=True, eq=False)
class QueueMessage:
    """A message in a queue; times are seconds since 1970 UTC.

    Attributes:
        visible_at: when it may be received (again).
        receipt: the latest one; empty: it was not received.
    """

    id: str
    body: str
    sent: float
    visible_at: float
    group: str = ""
    deduplication: str = ""
    sequence: str = ""
    attributes: dict[str, Any] = field(default_factory=dict)
    receives: int = 0
    first_received: float = 0.0
    receipt: str = ""

    @property
    def md5(self) -> str:
        """The digest that the service tells of the body."""
        return hashlib.md5(self.body.encode(), usedforsecurity=False).hexdigest()


class MemoryQueue:
    """A queue in memory.

    Attributes:
        messages: the messages in the queue, by message id, in the order of arrival.
    """

    def __init__(self, name: str, settings: Settings, clock: Clock, rng: random.Random) -> None:
        self.name = name
        self.settings = settings
        self.messages: dict[str, QueueMessage] = {}
        self._clock = clock
        self._rng = rng
        self._sequence = itertools.count(1)
        self._received: dict[str, QueueMessage] = {}  # by message id, some visible again
        # by group, where that is the scope, and deduplication id
        self._known: dict[tuple[str, str], tuple[float, QueueMessage]] = {}

    def send(self, entry: Mapping[str, Any]) -> QueueMessage:
        """Put in a checked entry of `SendMessage`; return its message, or the one it repeats."""
        now = self._clock.now()
        body = entry["MessageBody"]
        delay = entry.get("DelaySeconds", self.settings.delay)
        message = QueueMessage(
            id=self._new_id(),
            body=body,
            sent=now,
            visible_at=now + delay,
            group=entry.get("MessageGroupId", ""),
            attributes=dict(entry.get("MessageAttributes", {})),
        )

        if self.settings.fifo:
            by_content = hashlib.sha256(body.encode()).hexdigest()
            message.deduplication = entry.get("MessageDeduplicationId") or by_content
            scope = message.group if self.settings.by_group else ""
            # a deleted message is remembered too: its repetition within five minutes is dropped
            known = scope, message.deduplication
            if (first := self._first(known, now)) is not None:
                # the service acknowledges a repetition, and drops it
                return first
            self._known[known] = now, message
            message.sequence = f"{next(self._sequence):020}"

        self.messages[message.id] = message
        return message

    def take_in(self, message: QueueMessage) -> None:
        """Put in a message that another queue gave up; in a FIFO queue its retention restarts."""
        now = self._clock.now()
        sent = now if self.settings.fifo else message.sent
        moved = QueueMessage(
            id=message.id,
            body=message.body,
            sent=sent,
            visible_at=now,
            group=message.group,
            deduplication=message.deduplication,
            sequence=message.sequence,
            attributes=message.attributes,
        )
        self.messages[moved.id] = moved

    def receive(
        self,
        most: int,
        visibility: int | None,
        *,
        disorder: bool,
        repeats: Callable[[], bool],
        bury: Callable[[QueueMessage, str], None],
    ) -> list[QueueMessage]:
        """Take visible messages, and hide them (for seconds; None: as the queue says).

        A standard queue takes them at random in `disorder`, and leaves one visible that `repeats`.
        `bury` takes a message that was received too often, and the ARN of where it goes.
        """
        now = self._clock.now()
        self._expire(now)
        # a standard queue refuses the call instead, with an error
        if self.settings.fifo and self.full:
            return []

        hidden = now + (self.settings.visibility if visibility is None else visibility)
        found = self._of_free_groups(now) if self.settings.fifo else self._visible(now)
        if disorder and not self.settings.fifo:
            chosen = list(found)
            self._rng.shuffle(chosen)
            found = iter(chosen)

        taken: list[QueueMessage] = []
        given_up: list[QueueMessage] = []
        for message in found:
            # moved by the next receive, not after the last one: it may lie here for long
            if self.settings.target and message.receives >= self.settings.receives:
                given_up.append(message)
                continue
            if len(taken) == most:
                break
            taken.append(message)

        # behind the loop, which still reads the queue that this changes
        for message in given_up:
            self._remove(message)
            bury(message, self.settings.target)

        for message in taken:
            message.receives += 1
            message.first_received = message.first_received or now
            # each receive has a receipt of its own; older ones then change nothing
            message.receipt = f"{message.id}/{self._new_id()}"
            self._received[message.id] = message
            # a standard queue promises a message at least once
            if self.settings.fifo or not repeats():
                message.visible_at = hidden

        return taken

    def by_receipt(self, receipt: str) -> QueueMessage | None:
        """Return the message of a latest receipt; None if it was deleted or received again."""
        message = self._received.get(receipt.partition("/")[0])
        return message if message is not None and message.receipt == receipt else None

    def delete(self, receipt: str) -> bool:
        """Delete a message; return False if the queue refuses the receipt.

        An older receipt deletes nothing. A FIFO queue refuses one whose visibility has ended.
        """
        message = self.by_receipt(receipt)
        if message is None:
            return True
        if self.settings.fifo and message.visible_at <= self._clock.now():
            return False
        self._remove(message)
        return True

    @property
    def full(self) -> bool:
        """Whether as many messages are in flight as may be."""
        # cheap first: counting goes through all messages
        if len(self.messages) < IN_FLIGHT:
            return False
        return self.counts()[2] >= IN_FLIGHT

    def counts(self) -> tuple[int, int, int]:
        """Return how many messages are visible, delayed and in flight."""
        now = self._clock.now()
        self._expire(now)
        hidden = [m for m in self.messages.values() if m.visible_at > now]
        flying = sum(1 for m in hidden if m.receives)
        return len(self.messages) - len(hidden), len(hidden) - flying, flying

    def _first(self, wanted: tuple[str, str], now: float) -> QueueMessage | None:
        """Return the message that had this deduplication id within five minutes."""
        while self._known:
            oldest = next(iter(self._known))
            # from the first sending: a repetition does not make the five minutes begin again
            if now - self._known[oldest][0] < DEDUPLICATION_SECONDS:
                break
            del self._known[oldest]
        found = self._known.get(wanted)
        return None if found is None else found[1]

    def _visible(self, now: float) -> Iterator[QueueMessage]:
        return (m for m in self.messages.values() if m.visible_at <= now)

    def _of_free_groups(self, now: float) -> Iterator[QueueMessage]:
        """Return the messages of groups of which none is in flight, in their order."""
        # also of a message behind a visible one: of two received together, the first was given back
        blocked = {m.group for m in self._received.values() if m.visible_at > now}
        for message in self.messages.values():
            if message.visible_at > now:
                blocked.add(message.group)  # what comes behind it waits
            if message.group not in blocked:
                yield message

    def _expire(self, now: float) -> None:
        while self.messages:
            oldest = next(iter(self.messages.values()))
            # in the order of arrival: those behind are younger
            if now - oldest.sent < self.settings.retention:
                return
            self._remove(oldest)

    def _remove(self, message: QueueMessage) -> None:
        self.messages.pop(message.id, None)
        self._received.pop(message.id, None)

    def clear(self) -> None:
        """Delete all messages; deduplication ids stay known."""
        self.messages.clear()
        self._received.clear()

    def _new_id(self) -> str:
        return str(uuid.UUID(int=self._rng.getrandbits(128), version=4))


def size(entry: Mapping[str, Any]) -> int:
    """Return the bytes of an entry: its body, and its attributes' names, types and values."""
    total = len(entry.get("MessageBody", "").encode())
    for name, value in entry.get("MessageAttributes", {}).items():
        total += len(name.encode()) + len(value["DataType"].encode())
        total += len(value.get("StringValue", "").encode()) + len(value.get("BinaryValue", b""))
    return total

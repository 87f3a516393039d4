"""Queues for moto's server that lose no message under concurrency and stay fast when they fill.

Moto scans all messages of a queue for each call, without a lock: a receive from a queue of a
thousand takes a second, and a send concurrent with a delete can be lost. These keep the interface
of moto's model, because SNS and EventBridge send through it as well, and index the messages by
receipt, by due time and by group.
"""

from __future__ import annotations

import copy
import heapq
import itertools
import time
from typing import Any

from moto.sqs import models
from moto.sqs.exceptions import ReceiptHandleIsInvalid

DEDUPLICATION_SECONDS = 300
WAIT_SECONDS = 0.2  # a waiting receive polls for messages that become visible by time alone


def install() -> None:
    """Replace moto's queues by these, for this process."""
    models.Queue = LocalQueue  # type: ignore[misc] # moto makes queues by this name
    models.SQSBackend.receive_message = _receive_message  # type: ignore[method-assign]
    models.SQSBackend.change_message_visibility = _change_visibility  # type: ignore[method-assign]


class LocalQueue(models.Queue):
    """A queue whose calls cost only the messages they touch. Times are milliseconds."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        self._count = itertools.count()
        self._clear()
        super().__init__(*args, **kwargs)

    def _clear(self) -> None:
        self._store: dict[str, models.Message] = {}
        self._receipts: dict[str, models.Message] = {}
        self._due: list[tuple[float, int, models.Message]] = []
        self._groups: dict[str, dict[str, models.Message]] = {}
        self._out: dict[str, models.Message] = {}  # received; possibly visible again
        self._delayed: dict[str, models.Message] = {}
        self._recent: dict[tuple[str, str], float] = {}

    @property
    def _messages(self) -> list[models.Message]:
        return list(self._store.values())

    @_messages.setter
    def _messages(self, messages: list[models.Message]) -> None:
        self._clear()
        for message in messages:
            self._insert(message)

    @property
    def approximate_number_of_messages_delayed(self) -> int:
        """Messages whose delay is not over."""
        now = _now()
        self._delayed = {k: m for k, m in list(self._delayed.items()) if m.delayed_until > now}
        return len(self._delayed)

    @property
    def approximate_number_of_messages_not_visible(self) -> int:
        """Messages in flight."""
        now = _now()
        return sum(message.visible_at > now for message in list(self._out.values()))

    @property
    def approximate_number_of_messages(self) -> int:
        """Messages that a receive could return now."""
        away = self.approximate_number_of_messages_delayed
        return len(self._store) - away - self.approximate_number_of_messages_not_visible

    def add_message(self, message: models.Message) -> None:
        """Add a message; a FIFO queue drops a repeated deduplication id for 5 minutes."""
        with self._messages_lock:
            if self.fifo_queue and message.deduplication_id and self._is_repeated(message):
                return
            self._insert(message)
            self._messages_lock.notify_all()

    def _is_repeated(self, message: models.Message) -> bool:
        now = time.monotonic()
        for key, sent in list(self._recent.items()):  # oldest first
            if now - sent < DEDUPLICATION_SECONDS:
                break
            del self._recent[key]
        per_group = getattr(self, "deduplication_scope", "queue") == "messageGroup"
        key = (str(message.group_id) if per_group else "", str(message.deduplication_id))
        if key in self._recent:
            return True
        self._recent[key] = now
        return False

    def _insert(self, message: models.Message) -> None:
        self._store[message.id] = message
        if message.delayed_until > _now():
            self._delayed[message.id] = message
        if self.fifo_queue:
            self._groups.setdefault(str(message.group_id), {})[message.id] = message
        else:
            self._push(message)

    def _push(self, message: models.Message) -> None:
        heapq.heappush(self._due, (_due(message), next(self._count), message))

    def _remove(self, message: models.Message) -> None:
        self._store.pop(message.id, None)
        self._out.pop(message.id, None)
        self._delayed.pop(message.id, None)
        group = self._groups.get(str(message.group_id))
        if group:
            group.pop(message.id, None)
            if not group:
                del self._groups[str(message.group_id)]

    def take(self, count: int, visibility: int) -> list[models.Message]:
        """Receive up to `count` messages, in flight for `visibility` seconds. Hold the lock."""
        taken = self._take_grouped(count) if self.fifo_queue else self._take_due(count)
        for message in taken:
            message.mark_received(visibility_timeout=visibility)
            self._receipts[str(message.receipt_handle)] = message
            self._out[message.id] = message
            if not self.fifo_queue:
                self._push(message)
        return taken

    def _take_due(self, count: int) -> list[models.Message]:
        now = _now()
        taken: list[models.Message] = []
        while self._due and self._due[0][0] <= now and len(taken) < count:
            due, _, message = heapq.heappop(self._due)
            stale = due != _due(message) or self._store.get(message.id) is not message
            if not stale and message not in taken and not self._buried(message):
                taken.append(message)
        return taken

    def _take_grouped(self, count: int) -> list[models.Message]:
        """Receive in the order of each group; skip groups that have a message in flight."""
        now = _now()
        busy = {str(m.group_id) for m in self._out.values() if m.visible_at > now}
        taken: list[models.Message] = []
        for group, messages in list(self._groups.items()):
            if group in busy:
                continue
            for message in list(itertools.islice(messages.values(), count)):
                if len(taken) == count:
                    return taken
                if message.delayed_until > now:
                    break
                if not self._buried(message):
                    taken.append(message)
        return taken

    def _buried(self, message: models.Message) -> bool:
        """Move a message that was received too often to the dead-letter queue."""
        dead = self.dead_letter_queue
        if not isinstance(dead, LocalQueue) or not self.redrive_policy:
            return False
        if message.approximate_receive_count < self.redrive_policy["maxReceiveCount"]:
            return False
        self._remove(message)
        with dead._messages_lock:  # noqa: SLF001 - a queue of the same class
            message.visible_at = 0.0
            dead._insert(message)  # noqa: SLF001
            dead._messages_lock.notify_all()  # noqa: SLF001
        return True

    def delete_message(self, receipt_handle: str) -> None:
        """Delete by any receipt of the message; a repetition changes nothing."""
        with self._messages_lock:
            if receipt_handle in self.deleted_messages:
                return
            message = self._receipts.pop(receipt_handle, None)
            if message is None:
                raise ReceiptHandleIsInvalid
            self._remove(message)
            for handle in message.all_receipt_handles:
                self._receipts.pop(str(handle), None)
                self.deleted_messages.add(str(handle))

    def hide(self, receipt_handle: str, seconds: int) -> None:
        """Make a message visible again so many seconds from now."""
        with self._messages_lock:
            message = self._receipts.get(receipt_handle)
            if message is None or message.id not in self._store:
                raise ReceiptHandleIsInvalid
            message.visible_at = _now() + seconds * 1000
            if not self.fifo_queue:
                self._push(message)
            self._messages_lock.notify_all()


def _now() -> float:
    return time.time() * 1000


def _due(message: models.Message) -> float:
    return float(max(message.visible_at, message.delayed_until))


def _receive_message(  # noqa: PLR0917 - the signature is moto's
    self: models.SQSBackend,
    queue_name: str,
    count: int,
    wait_seconds_timeout: int,
    visibility_timeout: int,
    message_attribute_names: list[str] | None = None,
) -> list[models.Message]:
    """Receive messages; wait for the first one up to the given time."""
    queue = self.get_queue(queue_name)
    deadline = time.monotonic() + int(wait_seconds_timeout or 0)
    with queue._messages_lock:  # noqa: SLF001 - this stands in for a method of moto's
        while True:
            taken = queue.take(count, int(visibility_timeout))  # type: ignore[attr-defined]
            left = deadline - time.monotonic()
            if taken or left <= 0:
                break
            queue._messages_lock.wait(min(left, WAIT_SECONDS))  # noqa: SLF001
        copies = [copy.copy(message) for message in taken]
    for message in copies:
        models._filter_message_attributes(message, message_attribute_names or [])  # noqa: SLF001
    return copies


def _change_visibility(
    self: models.SQSBackend, queue_name: str, receipt_handle: str, visibility_timeout: int
) -> None:
    """Change the time in flight; moto itself checks the limit of 12 hours."""
    self.get_queue(queue_name).hide(receipt_handle, int(visibility_timeout))  # type: ignore[attr-defined]

"""A queue for tests of consumers: messages in a list, a clock that is set, and planned faults."""

from __future__ import annotations

import threading
from collections import Counter, defaultdict, deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from fairbox import Message, Received, StaleReceipt, Topic
from fairbox.model.epochs import Epoch
from fairbox.model.topic_states import TopicState

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from fairbox.model.topics import Ordering


@dataclass
class Entry:
    message: Message
    visible_at: float = 0.0
    count: int = 0
    receipt: str = ""
    history: list[str] = field(default_factory=list)


class ScriptedQueue:
    """Receives and settles as the real queue does; `faults` names what calls raise, in order.

    `takes` is told the name of each ack, nack and extend as it begins, and may wait.

    Args:
        now: the clock.
    """

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self._lock = threading.RLock()
        self.entries: list[Entry] = []
        self.acked: list[bytes] = []
        self.dead: dict[bytes, str] = {}
        self.calls: Counter[str] = Counter()
        self.sizes: dict[str, list[int]] = defaultdict(list)
        self.extensions: list[tuple[bytes, float]] = []
        self.takes: Callable[[str], None] = lambda _: None
        self.faults: dict[str, deque[BaseException]] = defaultdict(deque)
        self.backoff = 77.0
        self.ordered_topics: set[str] = set()
        self.consumers: list[str] = []
        self._receipts = 0

    def send(self, *bodies: bytes, topic: str = "jobs", key: str | None = None) -> None:
        with self._lock:
            self.entries += [
                Entry(Message(topic=topic, body=body, partition_key=key)) for body in bodies
            ]

    @property
    def left(self) -> list[bytes]:
        with self._lock:
            return [entry.message.body for entry in self.entries]

    @property
    def expired(self) -> list[bytes]:
        """The messages that another consumer could receive although they are held."""
        with self._lock:
            now = self._now()
            return [e.message.body for e in self.entries if e.receipt and e.visible_at <= now]

    def entry(self, body: bytes) -> Entry:
        return next(entry for entry in self.entries if entry.message.body == body)

    def steal(self, body: bytes) -> None:
        """Let another consumer receive a message that is held."""
        with self._lock:
            self._claim(self.entry(body), 30)

    def receive(
        self,
        topic: str,
        max_messages: int = 10,
        visibility_timeout: float = 30,
        wait: float = 0,
        *,
        consumer: str = "",
    ) -> list[Received]:
        with self._lock:
            self.consumers.append(consumer)
            self._call("receive", max_messages)
            assert wait == 0
            due = [
                entry
                for entry in self.entries
                if entry.message.topic == topic and entry.visible_at <= self._now()
            ]
            if topic in self.ordered_topics:
                due = self._heads(due)
            return [self._claim(entry, visibility_timeout) for entry in due[:max_messages]]

    def ack(self, receipts: Iterable[str]) -> None:
        self.takes("ack")
        with self._lock:
            given = list(receipts)
            self._call("ack", len(given))
            stale = []
            for receipt in given:
                entry = self._held(receipt)
                if entry is None:
                    stale.append(receipt)
                else:
                    self.entries.remove(entry)
                    self.acked.append(entry.message.body)
            if stale:
                raise StaleReceipt(stale)

    def nack(self, receipt: str, delay: float | None = 0, reason: str = "") -> None:
        self.takes("nack")
        with self._lock:
            self._call("nack", 1)
            entry = self._mine(receipt)
            entry.history.append(reason)
            wait = self.backoff if delay is None else delay
            entry.visible_at, entry.receipt = self._now() + wait, ""

    def extend(self, receipt: str, seconds: float) -> None:
        self.takes("extend")
        with self._lock:
            self._call("extend", 1)
            entry = self._mine(receipt)
            entry.visible_at = self._now() + seconds
            self.extensions.append((entry.message.body, self._now()))

    def release(self, receipts: Iterable[str]) -> None:
        with self._lock:
            given = list(receipts)
            self._call("release", len(given))
            for receipt in given:
                entry = self._mine(receipt)
                entry.visible_at, entry.receipt = self._now(), ""
                entry.count -= 1

    def bury(self, receipt: str, reason: str) -> None:
        with self._lock:
            self._call("bury", 1)
            entry = self._mine(receipt)
            self.entries.remove(entry)
            self.dead[entry.message.body] = reason

    def topic(self, name: str) -> TopicState:
        ordering: Ordering = "key" if name in self.ordered_topics else "none"
        return TopicState(Topic(name, shards=1, ordering=ordering), (Epoch(0, 1, 0),))

    def _call(self, name: str, size: int) -> None:
        self.calls[name] += 1
        self.sizes[name].append(size)
        if self.faults[name]:
            raise self.faults[name].popleft()

    def _claim(self, entry: Entry, seconds: float) -> Received:
        self._receipts += 1
        entry.count += 1
        entry.visible_at, entry.receipt = self._now() + seconds, f"receipt-{self._receipts}"
        visible_at = int(entry.visible_at * 1000)
        return Received(entry.message, entry.receipt, entry.count, visible_at)

    def _heads(self, due: list[Entry]) -> list[Entry]:
        """The first of each key, where it is not held."""
        firsts: dict[str | None, Entry] = {}
        for entry in self.entries:
            firsts.setdefault(entry.message.partition_key, entry)
        return [entry for entry in due if entry in firsts.values()]

    def _held(self, receipt: str) -> Entry | None:
        return next((entry for entry in self.entries if entry.receipt == receipt), None)

    def _mine(self, receipt: str) -> Entry:
        entry = self._held(receipt)
        if entry is None:
            raise StaleReceipt([receipt])
        return entry


class BulkQueue(ScriptedQueue):
    """Extends many messages in a call."""

    def extend_many(self, receipts: Iterable[str], seconds: float) -> None:
        given = list(receipts)
        self.takes("extend_many")
        with self._lock:
            self._call("extend_many", len(given))
            there = {entry.receipt: entry for entry in self.entries}
            for receipt in given:
                if receipt in there:
                    entry = there[receipt]
                    entry.visible_at = self._now() + seconds
                    self.extensions.append((entry.message.body, self._now()))
            if stale := [receipt for receipt in given if receipt not in there]:
                raise StaleReceipt(stale)


class Lines:
    """A log that keeps its lines."""

    def __init__(self) -> None:
        self.lines: list[tuple[str, str, dict[str, Any]]] = []

    def info(self, msg: str, *, extra: Mapping[str, Any]) -> None:
        self.lines.append(("info", msg, dict(extra)))

    def warning(self, msg: str, *, extra: Mapping[str, Any]) -> None:
        self.lines.append(("warning", msg, dict(extra)))

    def error(self, msg: str, *, extra: Mapping[str, Any]) -> None:
        self.lines.append(("error", msg, dict(extra)))

    def told(self, sentence: str) -> list[dict[str, Any]]:
        """The fields of the lines with this sentence."""
        return [fields for _, text, fields in self.lines if text == sentence]

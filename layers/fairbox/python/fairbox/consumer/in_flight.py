"""The messages in flight of a consumer: waiting for a worker, being handled, or done."""

from __future__ import annotations

import heapq
import itertools
import math
import threading
from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal

from fairbox.consumer.handler_outcomes import RELEASE, Outcome
from fairbox.consumer.options import CALL_SIZE, ORDERED_CALL_SIZE

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from fairbox.model.receipts import Received

    _Entry = tuple[float, int, "InFlightMessage"]

ENOUGH: Final = 10
"""Number of acks that do not wait for others."""
_TOGETHER: Final = ("ack", "release")
_OLD: Final = 10


@dataclass(slots=True, eq=False)
class InFlightMessage:
    """One message in hand; times are seconds of the consumer's clock.

    Attributes:
        received: the message and its receipt.
        until: the earliest end of its visibility.
        since: the time of its last change of state.
        state: it waits for a worker, is being handled, or is to be settled.
        outcome: the outcome of its handler.
        lost: its receipt is stale: another consumer may hold it.
        hangs: its handler took too long, and it is no longer extended.
    """

    received: Received
    until: float
    since: float
    state: Literal["waiting", "running", "done"] = "waiting"
    outcome: Outcome | None = None
    lost: bool = False
    hangs: bool = False

    @property
    def receipt(self) -> str:
        """Its receipt."""
        return self.received.receipt


class InFlight:
    """The messages in hand; every method may be called from any thread.

    Args:
        concurrency: maximum number handled at a time.
        prefetch: maximum number that wait in addition.
        now: seconds that never go back.

    Attributes:
        heartbeats: their next extensions.
        unsettled: the messages that are done.
        ended: its threads are to end.
        version: grows with every change that the receiver waits for.
    """

    def __init__(self, concurrency: int, prefetch: int, now: Callable[[], float]) -> None:
        self._concurrency = concurrency
        self._prefetch = prefetch
        self.now = now
        self.heartbeats = Heartbeats(now)
        self.unsettled = Unsettled(now)

        self._waiting: deque[InFlightMessage] = deque()
        self._messages: set[InFlightMessage] = set()
        self._running: dict[InFlightMessage, None] = {}  # the longest first, those given up not
        self._hung: set[InFlightMessage] = set()
        self._late: set[InFlightMessage] = set()
        self._done = 0

        lock = threading.RLock()
        self._changed = threading.Condition(lock)
        self._work = threading.Condition(lock)
        self._closing = threading.Event()
        self.ended = False
        self.version = 0

    def __len__(self) -> int:
        """Return the number of messages in hand."""
        return len(self._messages)

    @property
    def closed(self) -> bool:
        """Whether nothing more is taken in hand."""
        return self._closing.is_set()

    @property
    def late(self) -> int:
        """The number of handlers that still run after their time limit."""
        return len(self._late)

    @property
    def waiting(self) -> int:
        """The number of messages that wait for a worker."""
        return len(self._waiting)

    @property
    def busy(self) -> bool:
        """Whether messages wait for a worker or are being handled."""
        return len(self._messages) > self._done

    def room(self, soon: float = math.inf) -> int:
        """Return the number of messages wanted: 0 until half of the prefetch is used up.

        If every worker hangs, none are wanted.

        Args:
            soon: maximum number that may wait: at most so many can begin soon.
        """
        with self._changed:
            waiting = len(self._waiting)
            if self.closed or waiting * 2 > min(self._prefetch, soon) or self._all_hang():
                return 0
            # a late message that is not settled yet is in hand, and its worker is not free either
            free = self._concurrency - len(self._late)
            wanted = free + self._prefetch - len(self._messages) + len(self._late & self._messages)
            return int(max(0, min(wanted, soon - waiting)))

    def put(self, received: Received, until: float, extend_at: float) -> None:
        """Take a message in hand; once closed, to release it."""
        with self._changed:
            message = InFlightMessage(received, until, self.now())
            self._messages.add(message)
            self._waiting.append(message)
            self.heartbeats.set(message, extend_at)
            if self.closed:
                self._release_waiting()
            else:
                self._work.notify()

    def take(self) -> InFlightMessage | None:
        """Return the next message to handle; None if none waits."""
        with self._changed:
            if not self._waiting:
                return None
            message = self._waiting.popleft()
            message.state, message.since = "running", self.now()
            self._running[message] = None
            if len(self._running) == 1:
                self.heartbeats.wake()  # whose thread watches time limits
            self._note()
            return message

    def finish(self, message: InFlightMessage, outcome: Outcome) -> None:
        """Note the outcome of a message, unless it was settled without its handler."""
        with self._changed:
            if message in self._late:
                # the time limit has settled it: only its worker comes back
                self._late.discard(message)
                self._note()
            self._finish(message, outcome)

    def take_overdue(self, seconds: float) -> list[InFlightMessage]:
        """Return messages whose handlers have run for so long; each is returned once."""
        with self._changed:
            now = self.now()
            found = list(itertools.takewhile(lambda h: now - h.since >= seconds, self._running))
            for message in found:
                del self._running[message]
            return found

    def next_overdue(self, seconds: float) -> float:
        """Return when the first handler will have run for so long; infinity: none runs."""
        with self._changed:
            return next((message.since + seconds for message in self._running), math.inf)

    def time_out(self, message: InFlightMessage, outcome: Outcome) -> None:
        """Settle a message whose handler still runs; its worker is busy until that returns."""
        with self._changed:
            if message.state == "running":
                self._late.add(message)
                self._finish(message, outcome)
                # no worker will come for them: other consumers can take them
                if self._all_hang():
                    self._release_waiting()

    def give_up(self, message: InFlightMessage) -> None:
        """Stop extending a message; if every worker hangs, release the waiting messages."""
        with self._changed:
            if message.state == "running":
                # its claim is left to end, so that others receive the message
                message.hangs = True
                self.heartbeats.set(message, math.inf)
                self._hung.add(message)
                if self._all_hang():
                    self._release_waiting()

    def extended(self, message: InFlightMessage, until: float, extend_at: float) -> None:
        """Note the new end of a message's visibility, and the time of the next extension."""
        with self._changed:
            message.until = until
            if message in self._messages and not message.hangs and not message.lost:
                self.heartbeats.set(message, extend_at)

    def lose(self, message: InFlightMessage) -> bool:
        """Drop a message with a stale receipt; its worker is free when its handler returns.

        Returns:
            Whether it is lost by this; False: it was before, or it is done, and its settlement
            tells the outcome.
        """
        with self._changed:
            self.heartbeats.set(message, math.inf)
            if message.state == "done" or message.lost:
                return False
            message.lost = True
            if message.state == "waiting":
                # one that runs stays in hand: its worker is not free before
                self._waiting.remove(message)
                self._messages.discard(message)
            self._note()
            return True

    def settled(self, message: InFlightMessage) -> None:
        """Drop a settled message."""
        with self._changed:
            self.heartbeats.set(message, math.inf)
            self._messages.discard(message)
            self._done -= 1
            self._note()

    def close(self) -> None:
        """Stop taking messages; release the waiting ones."""
        with self._changed:
            self._closing.set()
            self._release_waiting()
            self._note()

    def abandon(self, outcome: Outcome) -> list[InFlightMessage]:
        """Settle the messages being handled without their handlers; return them."""
        with self._changed:
            # not those of `_running`: handlers that hang are taken off there
            running = [message for message in self._messages if message.state == "running"]
            for message in running:
                self._finish(message, outcome)
            return running

    def end(self) -> None:
        """Tell every thread to end."""
        with self._changed:
            self._closing.set()
            self.ended = True
            self._work.notify_all()
            self._note()
        self.heartbeats.wake(everyone=True)

    def wait(self, timeout: float, seen: int) -> None:
        """Wait for a change since version `seen`, so many seconds at most."""
        with self._changed:
            if self.version == seen and not self.ended:
                self._changed.wait(timeout)

    def wait_for_work(self, timeout: float) -> bool:
        """Wait until a message waits for a worker; return whether one does."""
        with self._work:
            if not self._waiting and not self.ended:
                self._work.wait(timeout)
            return bool(self._waiting)

    def wait_for_close(self, timeout: float) -> None:
        """Wait until it is closed, so many seconds at most."""
        self._closing.wait(timeout)

    def _finish(self, message: InFlightMessage, outcome: Outcome) -> None:
        if message.state == "running":
            self._running.pop(message, None)
            self._hung.discard(message)
            self._settle(message, outcome)

    def _settle(self, message: InFlightMessage, outcome: Outcome) -> None:
        message.state, message.since, message.outcome = "done", self.now(), outcome
        if message.lost:
            self._messages.discard(message)
            self._note()
        else:
            self._done += 1
            self.unsettled.put(message)

    def _note(self) -> None:
        self.version += 1
        self._changed.notify_all()
        # at the end a settler looks whether anything is left
        if self.closed:
            self.unsettled.wake()

    def _all_hang(self) -> bool:
        return len(self._hung) + len(self._late) >= self._concurrency

    def _release_waiting(self) -> None:
        while self._waiting:
            self._settle(self._waiting.popleft(), RELEASE)


class Unsettled:
    """Messages to be settled, by kind of call; every method may be called from any thread.

    Args:
        now: seconds that never go back.

    Attributes:
        ordered: they are of an ordered topic. Calls for several messages are made one at a time,
            and for more messages, because those of a shard write the same row.
    """

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self.ordered = False
        self._calls = 0
        self._kinds: dict[str, deque[InFlightMessage]] = {}
        self._later: list[tuple[float, int, InFlightMessage]] = []
        self._numbers = itertools.count()
        self._changed = threading.Condition()

    def put(self, message: InFlightMessage) -> None:
        """Add a message to be settled."""
        with self._changed:
            # one settler is enough: a call takes all of a kind
            self._of(message).append(message)
            self._changed.notify()

    def put_back(self, message: InFlightMessage, at: float) -> None:
        """Add a message to be settled again at a time, because a call failed."""
        with self._changed:
            heapq.heappush(self._later, (at, next(self._numbers), message))

    def take(self, linger: float) -> list[InFlightMessage]:
        """Return messages that one call settles, the oldest first; empty: there are none.

        Acks wait `linger` seconds for others, until there are ten. Tell `called` after the call.
        """
        with self._changed:
            now = self._now()
            while self._later and self._later[0][0] <= now:
                message = heapq.heappop(self._later)[2]
                # the first of its kind again: it has waited longest
                self._of(message).appendleft(message)

            ready = [kind for kind in self._kinds if self._at(kind, linger) <= now]
            if not ready:
                return []
            kind = min(ready, key=lambda kind: self._kinds[kind][0].since)

            count = 1
            if kind in _TOGETHER:
                # two such calls at once would write the same row of an ordered shard
                self._calls += 1
                count = ORDERED_CALL_SIZE if self.ordered else CALL_SIZE

            there = self._kinds[kind]
            return [there.popleft() for _ in range(min(count, len(there)))]

    def called(self, messages: Sequence[InFlightMessage]) -> None:
        """Note the end of the call for messages that were taken."""
        with self._changed:
            if messages[0].outcome is not None and messages[0].outcome.kind in _TOGETHER:
                self._calls -= 1
                self._changed.notify()

    def next(self, linger: float) -> float:
        """Return when the next message can be settled; infinity: there is none."""
        with self._changed:
            later = self._later[0][0] if self._later else math.inf
            return min([later, *(self._at(kind, linger) for kind in self._kinds)])

    def wait(self, linger: float, timeout: float) -> None:
        """Wait until a message can be settled or `wake`; so many seconds at most."""
        with self._changed:
            pause = self.next(linger) - self._now()
            if pause > 0:
                self._changed.wait(min(pause, timeout))

    def wake(self) -> None:
        """End the wait of all threads."""
        with self._changed:
            self._changed.notify_all()

    def _of(self, message: InFlightMessage) -> deque[InFlightMessage]:
        kind = "" if message.outcome is None else message.outcome.kind
        return self._kinds.setdefault(kind, deque())

    def _at(self, kind: str, linger: float) -> float:
        """Return when messages of a kind can be settled."""
        there = self._kinds[kind]
        if not there or (self.ordered and self._calls and kind in _TOGETHER):
            return math.inf
        # the others make messages visible, for which consumers may be waiting
        waits = kind == "ack" and len(there) < ENOUGH
        return there[0].since + linger if waits else there[0].since


class Heartbeats:
    """The next extension of each message; every method may be called from any thread.

    Args:
        now: seconds that never go back.
    """

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self._entries: dict[InFlightMessage, _Entry] = {}
        self._heap: list[_Entry] = []  # old ones among them
        self._numbers = itertools.count()
        self._changed = threading.Condition()

    @property
    def next(self) -> float:
        """The time of the next one; infinity: there is none."""
        with self._changed:
            while self._heap and not self._is_current(self._heap[0]):
                heapq.heappop(self._heap)
            return self._heap[0][0] if self._heap else math.inf

    def set(self, message: InFlightMessage, at: float) -> None:
        """Set the time of a message's next extension; infinity: never."""
        with self._changed:
            # asked before the change: only an earlier first one is news for the thread that waits
            first = self.next
            self._entries.pop(message, None)
            if at < math.inf:
                self._entries[message] = entry = (at, next(self._numbers), message)
                heapq.heappush(self._heap, entry)

            if len(self._heap) > 2 * len(self._entries) + _OLD:  # they keep bodies in memory
                self._heap = [entry for entry in self._heap if self._is_current(entry)]
                heapq.heapify(self._heap)

            if at < first:
                # a thread waits for the first of all: it looks again
                self._changed.notify()

    def take(self, count: int, ahead: float, again: float) -> list[InFlightMessage]:
        """Return messages to extend in one call, earliest end first; empty: none is due.

        If one is due, messages due within `ahead` seconds are included. All are due again after
        `again` seconds: another thread extends them if the call has not returned by then.
        """
        with self._changed:
            now = self._now()
            if self.next > now:
                return []

            found: list[InFlightMessage] = []
            while self.next <= (now + ahead if len(found) < count else now):
                found.append(heapq.heappop(self._heap)[2])

            # messages whose claims end first are extended first
            found.sort(key=lambda message: message.until)
            # too many for one call: the others keep their times
            for message in found[count:]:
                self.set(message, self._entries[message][0])
            for message in found[:count]:
                self.set(message, now + again)
            return found[:count]

    def wait(self, until: float, timeout: float) -> None:
        """Wait until a time, or until one is due or `wake`; so many seconds at most."""
        with self._changed:
            pause = min(until, self.next) - self._now()
            if pause > 0:
                self._changed.wait(min(pause, timeout))

    def wake(self, *, everyone: bool = False) -> None:
        """End the wait of one thread, or of all."""
        with self._changed:
            self._changed.notify_all() if everyone else self._changed.notify()

    def _is_current(self, entry: _Entry) -> bool:
        return self._entries.get(entry[2]) is entry

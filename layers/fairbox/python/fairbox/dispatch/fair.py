"""Fair dispatch, without AWS: the next calls, from pending work, readiness and limits.

Turns go by deficit round-robin over bytes, without the rounds in which no waiter could send. Each
round credits all waiters with a quantum times their weight, and they send when the credit, the
*deficit*, covers their next message (Shreedhar and Varghese, 1996). A quantum of one kilobyte lets
small messages alternate one by one, but a message of 256 KiB would wait for 256 rounds. So a waiter
that cannot send yet is put down for the round in which it can, and rounds without waiters are
skipped. For any number of waiters, a turn costs O(log r), where r is the number of different rounds
that are waited for.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from functools import partial
from heapq import heappop, heappush
from typing import TYPE_CHECKING, Final, Generic, TypeVar

from fairbox.dispatch.ports import Limits

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterable, Iterator

D = TypeVar("D", bound="Hashable")
K = TypeVar("K", bound="Hashable")
T = TypeVar("T")

QUANTUM: Final = 1024
"""Bytes that weight 1 is credited with in a round."""
_SCALE: Final = 1000  # weights are counted in thousandths, so that all sums are exact


@dataclass(frozen=True, slots=True)
class Work(Generic[T]):
    """One message to send.

    Attributes:
        item: the object that is handed back when its turn has come.
        topic: the topic whose turn it takes; work keeps the order in which it was added, by tenant.
        size: bytes that it counts for when turns are planned; an estimate is enough.
        tenant: the tenant whose turn it takes inside the topic; None is a tenant too.
        weight: the topic's share among other topics.
        tenant_weight: the tenant's share among others of its topic.
        batch: messages that the topic sends in one turn, if its deficit covers them.
        key: a call carries at most one message of a key; None: no limit.
        direct: it goes before all topics, up to half of each call while topics wait.
    """

    item: T
    topic: str
    size: int = 0
    tenant: str | None = None
    weight: float = 1.0
    tenant_weight: float = 1.0
    batch: int = 1
    key: Hashable | None = None
    direct: bool = False


class Pending(Generic[T]):
    """One destination's pending work.

    Args:
        size: bytes that an item takes of a call; by default its work's size.
    """

    def __init__(self, size: Callable[[T], int] | None = None) -> None:
        self._size = size
        self._share = DirectShare()
        self._direct: deque[Work[T]] = deque()
        self._topics: dict[str, TopicQueue[T]] = {}
        self._round_robin: DeficitRoundRobin[str] = DeficitRoundRobin()
        self._newcomers: list[str] = []
        self._topics_first = False
        self._count = 0

    def __len__(self) -> int:
        """The number of messages that wait."""
        return self._count

    def add(self, work: Work[T]) -> None:
        """Add work. A topic is pending once, however many messages it has."""
        self._count += 1
        if work.direct:
            self._direct.append(work)
            return
        topic = self._topics.get(work.topic)
        if topic is None:
            topic = self._topics[work.topic] = TopicQueue()
            self._newcomers.append(work.topic)
        topic.add(work)

    def next_call(
        self, limits: Limits, *, fill: bool = True, skip: Callable[[T], bool] | None = None
    ) -> list[T]:
        """Return the items of the next call, in order; empty: nothing waits.

        Direct messages first, up to half of the call while topics wait; then topics in turn. An
        item that does not fit ends the call and begins the next one; alone in a call any item fits.

        Args:
            limits: of this call; at least one message.
            fill: go round again while there is room; False: one turn for each topic.
            skip: says which items are not to be sent; they are forgotten.
        """
        for name in self._newcomers:
            topic = self._topics[name]
            self._round_robin.enter(name, topic.plan() or 0, topic.weight)
        self._newcomers.clear()

        call = _Call(limits, self._size, skip)
        topics_wait = len(self._round_robin) > 0
        self._share.begin(limits)

        if not (self._topics_first and topics_wait):
            self._send_direct(call, bounded=topics_wait)
        sent = self._send_topics(call, fill=fill)
        # direct messages may leave too little room for a large one: then it goes first next time
        self._topics_first = call.full and not sent
        if not call.full:
            self._send_direct(call, bounded=False)

        self._count -= call.gone
        return call.items

    def _send_direct(self, call: _Call[T], *, bounded: bool) -> None:
        while self._direct and (self._share.left or not bounded):
            size = call.offer(self._direct[0])
            if size is None:
                return
            self._direct.popleft()
            if bounded and size:
                self._share.use(size)

    def _send_topics(self, call: _Call[T], *, fill: bool) -> bool:
        """Take from topics until the call is full; return whether any gave something."""
        kept: list[str] = []  # their turn is not over: first next time, in this order
        visited: set[str] = set()
        sent = False

        while not call.full and (name := self._round_robin.take()) is not None:
            if name in visited and not fill:
                self._round_robin.put_back([name])
                break
            visited.add(name)
            used = self._visit(self._topics[name], call)
            sent = sent or used > 0

            if self._topics[name].block:
                self._round_robin.charge(name, used)
                kept.append(name)
                continue

            following = self._topics[name].plan()
            self._round_robin.serve(name, used, following)
            if following is None:
                del self._topics[name]

        self._round_robin.put_back(kept)
        return sent

    def _visit(self, topic: TopicQueue[T], call: _Call[T]) -> int:
        """Take a topic's block as far as the call has room; return the bytes it is charged."""
        used = 0
        while topic.block:
            work = topic.block[0]
            if work.key is not None and work.key in call.keys and not call.skips(work):
                break
            size = call.offer(work)
            if size is None:
                call.full = True
                break
            topic.block.popleft()
            used += charge(size) if size else 0
        return used


class _Call(Generic[T]):
    """A call that is being filled.

    Attributes:
        items: its content.
        keys: the keys of its content.
        gone: the number of works in it or skipped.
        full: it has no room left.
    """

    def __init__(
        self, limits: Limits, size: Callable[[T], int] | None, skip: Callable[[T], bool] | None
    ) -> None:
        self.items: list[T] = []
        self.keys: set[Hashable] = set()
        self.gone = 0
        self.full = False
        self._limits = limits
        self._room = limits.bytes
        self._size = size
        self._skip = skip

    def skips(self, work: Work[T]) -> bool:
        """Whether the work is not to be sent."""
        return self._skip is not None and self._skip(work.item)

    def offer(self, work: Work[T]) -> int | None:
        """Take work in, and return its bytes, 1 at least; 0: it is skipped; None: no room."""
        if self.skips(work):
            self.gone += 1
            return 0
        size = work.size if self._size is None else self._size(work.item)
        if self.items and (len(self.items) >= self._limits.messages or size > self._room):
            return None

        self.items.append(work.item)
        self.keys.add(work.key)
        self.gone += 1
        self._room -= size
        self.full = len(self.items) >= self._limits.messages
        return max(size, 1)


class TopicQueue(Generic[T]):
    """The pending work of one topic, by tenant.

    Attributes:
        block: the messages of its next turn, planned when the turn before was over.
        weight, batch: as its newest work says.
    """

    __slots__ = ("_queues", "_round_robin", "batch", "block", "weight")

    def __init__(self) -> None:
        self._round_robin: DeficitRoundRobin[str | None] = DeficitRoundRobin()
        self._queues: dict[str | None, deque[Work[T]]] = {}
        self.block: deque[Work[T]] = deque()
        self.weight = 1.0
        self.batch = 1

    def add(self, work: Work[T]) -> None:
        """Add work behind that of its tenant."""
        self.weight, self.batch = work.weight, work.batch
        queue = self._queues.get(work.tenant)
        if queue is None:
            queue = self._queues[work.tenant] = deque()
            self._round_robin.enter(work.tenant, charge(work.size), work.tenant_weight)
        queue.append(work)

    def plan(self) -> int | None:
        """Fill the block of the next turn; return its bytes as charged, None: nothing is left."""
        while len(self.block) < self.batch and (work := self._next()) is not None:
            self.block.append(work)
        return sum(charge(work.size) for work in self.block) if self.block else None

    def _next(self) -> Work[T] | None:
        tenant = self._round_robin.take()
        queue = self._queues.get(tenant)
        if queue is None:
            return None
        work = queue.popleft()
        if not queue:
            del self._queues[tenant]
        following = charge(queue[0].size) if queue else None
        self._round_robin.serve(tenant, charge(work.size), following)
        return work


def charge(size: int) -> int:
    """Return the bytes charged for a message: a quantum at least, because it takes a place too."""
    return max(size, QUANTUM)


class DirectShare:
    """The share of direct messages: up to half of the content of calls while topics wait.

    It is counted in half messages and half bytes. Each call adds half of its own limits; the unused
    part is kept for one call, so that a destination of one message a call alternates. A message
    larger than half a call may go, and leaves a debt. So in any k calls with waiting topics direct
    messages take at most half, and once half a call and one message more.
    """

    def __init__(self) -> None:
        self._messages: int | None = None
        self._bytes = 0

    def begin(self, limits: Limits) -> None:
        """Add half of a call that begins."""
        most = limits.messages + limits.messages % 2
        if self._messages is None:
            self._messages, self._bytes = most, limits.bytes
        else:
            self._messages = min(most, self._messages + limits.messages)
            self._bytes = min(limits.bytes, self._bytes + limits.bytes)

    @property
    def left(self) -> bool:
        """Whether one more may go before the topics."""
        return (self._messages or 0) >= 2 and self._bytes > 0

    def use(self, size: int) -> None:
        """Count a direct message that goes before waiting topics."""
        self._messages = (self._messages or 0) - 2
        self._bytes -= 2 * size


@dataclass(slots=True)
class _Account:
    rate: int  # thousandths of a byte that a round credits
    round: int  # the round of its turn; credited up to there
    deficit: int = 0  # thousandths of a byte


class DeficitRoundRobin(Generic[K]):
    """The order of waiters.

    In one round, waiters that were put back come first, then waiters with more work after a turn,
    then newcomers. Each goes to the end of its round, or to the beginning if it is put back.
    """

    def __init__(self) -> None:
        self._round = 0
        self._rounds: list[int] = []
        self._lines: dict[int, deque[K]] = {}
        self._accounts: dict[K, _Account] = {}

    def __len__(self) -> int:
        return len(self._accounts)

    def enter(self, who: K, size: int, weight: float = 1.0) -> None:
        """Add a waiter without credit, for a turn of `size` bytes."""
        account = self._accounts[who] = _Account(max(1, round(QUANTUM * weight * _SCALE)), 0)
        account.round = self._round
        self._put_down(who, account, size)

    def take(self) -> K | None:
        """Return the waiter whose turn it is, and take it out of the line; None: nobody waits.

        `serve` or `put_back` must follow.
        """
        while self._rounds:
            number = self._rounds[0]
            line = self._lines[number]
            if line:
                self._round = max(self._round, number)
                return line.popleft()
            del self._lines[heappop(self._rounds)]
        return None

    def serve(self, who: K, sent: int, size: int | None) -> None:
        """Charge the bytes sent, and put the waiter down for its next turn.

        Args:
            who: as `take` gave it.
            sent: bytes of this turn, in all.
            size: bytes of the next turn; None: it has nothing left.
        """
        self.charge(who, sent)
        if size is None:
            del self._accounts[who]
        else:
            self._put_down(who, self._accounts[who], size)

    def charge(self, who: K, sent: int) -> None:
        """Charge bytes of a turn that is not over: `put_back` must follow."""
        self._accounts[who].deficit -= sent * _SCALE

    def put_back(self, those: Iterable[K]) -> None:
        """Put waiters whose turn is not over at the head of their round, in the order of `take`."""
        for who in reversed(list(those)):
            self._line(self._accounts[who].round).appendleft(who)

    def _put_down(self, who: K, account: _Account, size: int) -> None:
        lacking = size * _SCALE - account.deficit
        if lacking > 0:
            rounds = -(-lacking // account.rate)
            account.round += rounds
            account.deficit += rounds * account.rate
        self._line(account.round).append(who)

    def _line(self, number: int) -> deque[K]:
        line = self._lines.get(number)
        if line is None:
            line = self._lines[number] = deque()
            heappush(self._rounds, number)
        return line


class Cycles(Generic[D, T]):
    """The next calls, over many destinations.

    A destination is ready when work waits for it and it has room for another call. All others cost
    nothing, however many they are. In a cycle each ready destination gets one call, so that a
    message reaches all of them in the same cycle.

    Args:
        limits: of a destination's next call.
        size: bytes that an item takes of a destination's call; by default its work's size.
        skip: says which items are not to be sent; they are forgotten.
        fill: see `Pending.next_call`.
        in_flight: messages of a destination that may be unanswered at once, in as many calls as it
            takes; None: one call at a time.
    """

    def __init__(
        self,
        *,
        limits: Callable[[D], Limits],
        size: Callable[[D, T], int] | None = None,
        skip: Callable[[T], bool] | None = None,
        fill: bool = True,
        in_flight: Callable[[D], int | None] = lambda _: None,
    ) -> None:
        self._limits = limits
        self._size = size
        self._skip = skip
        self._fill = fill
        self._in_flight = in_flight
        self._pending: dict[D, Pending[T]] = {}
        self._ready: dict[D, None] = {}  # in the order in which they became ready
        self._unanswered: dict[D, int] = {}  # messages

    def __len__(self) -> int:
        """The number of messages that wait."""
        return sum(len(pending) for pending in self._pending.values())

    def add(self, destination: D, work: Work[T]) -> None:
        """Add pending work of a destination."""
        pending = self._pending.get(destination)
        if pending is None:
            size = None if self._size is None else partial(self._size, destination)
            pending = self._pending[destination] = Pending(size)
        pending.add(work)
        self._offer(destination)

    def drop(self, destination: D) -> None:
        """Forget the pending work of a destination."""
        self._pending.pop(destination, None)
        self._ready.pop(destination, None)

    def cycle(self) -> Iterator[tuple[D, list[T]]]:
        """Yield one call for each ready destination, the longest waiting first.

        A destination at its limit in flight gets no other call before `answered`.
        """
        ready = list(self._ready)
        self._ready = dict.fromkeys(ready)  # to walk a dict that was large once takes long for ever

        for destination in ready:
            pending = self._pending.get(destination)
            if pending is None or destination not in self._ready:
                continue
            limits = self._room(destination)
            call = pending.next_call(limits, fill=self._fill, skip=self._skip)
            del self._ready[destination]
            if not len(pending):
                del self._pending[destination]
                self._pending = self._pending or {}

            if call:
                unanswered = self._unanswered.get(destination, 0)
                self._unanswered[destination] = unanswered + len(call)
            self._offer(destination)
            if call:
                yield destination, call

    def answered(self, destination: D, messages: int | None = None) -> None:
        """Settle a call of so many messages (None: all): its destination may have calls again."""
        left = 0 if messages is None else self._unanswered.get(destination, 0) - messages
        if left > 0:
            self._unanswered[destination] = left
        else:
            self._unanswered.pop(destination, None)
        self._offer(destination)

    def idle(self, destination: D) -> bool:
        """Whether nothing waits for a destination, and all its calls are answered."""
        return destination not in self._pending and destination not in self._unanswered

    def has_room(self, destination: D) -> bool:
        """Whether a destination may have another call unanswered."""
        return not self._busy(destination)

    def _room(self, destination: D) -> Limits:
        """Return the limits of a destination's next call: at most its room in flight."""
        limits, most = self._limits(destination), self._in_flight(destination)
        if most is None:
            return limits
        room = most - self._unanswered.get(destination, 0)
        return Limits(min(limits.messages, room), limits.bytes)

    def _busy(self, destination: D) -> bool:
        unanswered = self._unanswered.get(destination)
        if unanswered is None:
            return False
        most = self._in_flight(destination)
        return most is None or unanswered >= most

    def _offer(self, destination: D) -> None:
        """Add a destination to the ready ones, if it is ready."""
        if destination in self._pending and not self._busy(destination):
            self._ready.setdefault(destination)

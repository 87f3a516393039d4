"""What waits for one destination, and what its next call carries."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Generic, TypeVar

from fairbox.dispatch.fair.deficit_round_robin import Turns
from fairbox.dispatch.fair.direct_share import DirectShare
from fairbox.dispatch.fair.topic_queue import TopicQueue, charge

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable

    from fairbox.dispatch.fair.work_item import Work
    from fairbox.dispatch.ports import Limits

T = TypeVar("T")


class Pending(Generic[T]):
    """One destination's pending work.

    Args:
        size: bytes that an item takes of a call; by default what its work says.
    """

    def __init__(self, size: Callable[[T], int] | None = None) -> None:
        self._size = size
        self._share = DirectShare()
        self._direct: deque[Work[T]] = deque()
        self._topics: dict[str, TopicQueue[T]] = {}
        self._turns: Turns[str] = Turns()
        self._newcomers: list[str] = []
        self._topics_first = False
        self._count = 0

    def __len__(self) -> int:
        """How many messages wait."""
        return self._count

    def add(self, work: Work[T]) -> None:
        """Let work wait. A topic is pending once, however many messages it has."""
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
        """Return what goes next, in order; empty: nothing waits.

        Direct messages first, up to half of the call while topics wait; then topics in turn. What
        does not fit ends the call and begins the next one; alone in a call everything fits.

        Args:
            limits: of this call; at least one message.
            fill: go round again while there is room; False: one turn a topic and call.
            skip: says what is not to be sent; it is forgotten.
        """
        for name in self._newcomers:
            topic = self._topics[name]
            self._turns.enter(name, topic.plan() or 0, topic.weight)
        self._newcomers.clear()
        call = _Call(limits, self._size, skip)
        topics_wait = len(self._turns) > 0
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
        """Let topics send until the call is full; return whether any did."""
        kept: list[str] = []  # their turn is not over: first next time, in this order
        visited: set[str] = set()
        sent = False
        while not call.full and (name := self._turns.take()) is not None:
            if name in visited and not fill:
                self._turns.put_back([name])
                break
            visited.add(name)
            used = self._visit(self._topics[name], call)
            sent = sent or used > 0
            if self._topics[name].block:
                self._turns.charge(name, used)
                kept.append(name)
                continue
            following = self._topics[name].plan()
            self._turns.serve(name, used, following)
            if following is None:
                del self._topics[name]
        self._turns.put_back(kept)
        return sent

    def _visit(self, topic: TopicQueue[T], call: _Call[T]) -> int:
        """Let a topic send its block as far as the call takes it; return what that counts for."""
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
        items: what it carries.
        keys: of what it carries.
        gone: how many works it carries or has skipped.
        full: it takes no more.
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

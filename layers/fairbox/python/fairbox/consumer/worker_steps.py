"""What a consumer's threads do, step by step: receive, work, keep. No step waits."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final

from fairbox.consumer.options import MAX_RECEIVE
from fairbox.consumer.outcomes import Outcome
from fairbox.consumer.settlement import AGAIN_SECONDS, Settling
from fairbox.errors import StaleReceipt, Throttled, Unavailable

if TYPE_CHECKING:
    from collections.abc import Callable

    from fairbox.consumer.event_log import Journal
    from fairbox.consumer.in_flight import Held, Hold
    from fairbox.consumer.options import Limits
    from fairbox.consumer.ports import Received, Source
    from fairbox.model.topics import TopicState

_EXPIRED: Final = Outcome("release", reason="its visibility ran out before a worker was free")


class Shift:
    """The steps of one consumer's work.

    Args:
        queue: where messages come from.
        topic: its topic.
        handle: returns what becomes of a message.
        limits: bounds.
        hold: the messages in hand.
        journal: counts and tells.
        now: seconds that never go back.
    """

    def __init__(
        self,
        queue: Source,
        topic: str,
        handle: Callable[[Received], Outcome],
        *,
        limits: Limits,
        hold: Hold,
        journal: Journal,
        now: Callable[[], float],
    ) -> None:
        self._queue = queue
        self._topic = topic
        self._handle = handle
        self._limits = limits
        self._hold = hold
        self._journal = journal
        self._now = now
        self._settling = Settling(queue, hold, journal, now)
        self._topic_state: TopicState | None = None

    @property
    def freed(self) -> int:
        """How many messages were settled for which others may have waited: those with a key."""
        state = self._topic_state
        return self._settling.keyed if state is not None and state.topic.ordering == "key" else 0

    @property
    def receives_to_see_all(self) -> int:
        """How many receives that find nothing say that nothing is there.

        One looks into eight shards of an unordered topic, four of an ordered one, but where much is
        in flight into one alone.
        """
        state = self._topic_state
        return 1 if state is None else len(state.shards())

    def receive(self, limit: int = MAX_RECEIVE) -> int:
        """Receive what there is room for, ten at most; return how many came.

        Raises:
            FairboxError: the topic cannot be received from.
        """
        room = min(self._hold.room(), limit, MAX_RECEIVE)
        if room <= 0:
            return 0
        asked = self._now()
        try:
            if self._topic_state is None:
                self._topic_state = self._queue.topic(self._topic)
            found = self._queue.receive(
                self._topic,
                max_messages=room,
                visibility_timeout=self._limits.visibility_timeout,
                wait=0,
            )
        except (Throttled, Unavailable) as error:
            self._journal.failed("receive", error)
            return 0
        self._journal.received(len(found))
        for received in found:
            self._hold.put(
                received,
                asked + self._limits.visibility_timeout,
                asked + self._limits.heartbeat,
            )
        return len(found)

    def work(self) -> bool:
        """Handle one message that waits; return whether one did."""
        held = self._hold.take()
        if held is None:
            return False
        if self._now() >= held.until and not self._extend(held):
            self._hold.finish(held, _EXPIRED)
            return True
        self._hold.finish(held, self._handle(held.received))
        return True

    def keep(self, *, flush: bool = False) -> None:
        """Extend what is due, and settle what is done; `flush`: acks wait for no others."""
        for held in self._hold.all():
            now = self._now()
            worked = now - held.since if held.state == "running" and not held.hangs else 0
            if worked >= self._limits.processing_limit:
                self._hold.give_up(held)
                self._journal.hung(held, round(worked, 3))
            if now >= held.extend_at:
                self._extend(held)
        self._settling.settle(linger=0.0 if flush else self._limits.linger)

    def next_step(self) -> float:
        """Return when `keep` is due next, in seconds of the clock; infinity: after a change."""
        due = math.inf
        for held in self._hold.all():
            due = min(due, held.extend_at)
            if held.state == "running" and not held.hangs:
                due = min(due, held.since + self._limits.processing_limit)
            elif held.state == "done":
                due = min(due, max(held.settle_at, held.since + self._limits.linger))
        return due

    def _extend(self, held: Held) -> bool:
        """Extend a message; return whether it is ours."""
        asked = self._now()
        try:
            self._queue.extend(held.receipt, self._limits.visibility_timeout)
        except StaleReceipt:
            self._journal.lost(held)
            self._hold.lose(held)
            return False
        except (Throttled, Unavailable) as error:
            self._journal.failed("extend", error)
            self._hold.extended(held, held.until, self._now() + AGAIN_SECONDS)
            return self._now() < held.until
        self._hold.extended(
            held, asked + self._limits.visibility_timeout, asked + self._limits.heartbeat
        )
        return True

"""Which messages go in which call: one message of each pending topic a cycle, within limits."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from fairbox.dispatch.ports import Limits
    from fairbox.stored import StoredMessage
    from fairbox.topics import Subscription


@dataclass(frozen=True, slots=True)
class Job:
    """One message for one subscription; `in_order` holds back others of its key in its call."""

    subscription: Subscription
    stored: StoredMessage
    in_order: bool = False

    @property
    def hold(self) -> tuple[str, str]:
        """What the job is in order with: others of its topic's subscription and partition key."""
        subscription = f"{self.stored.ref.topic}#{self.subscription.name}"
        return subscription, self.stored.message.shard_key


def rounds(jobs: Sequence[Job]) -> list[Job]:
    """Return the jobs with the first of every key before the second of any; unordered ones first.

    The order within a key stays, and a call can carry many keys.
    """
    seen: dict[tuple[str, str], int] = {}
    ranked = []
    for job in jobs:
        rank = 0
        if job.in_order:
            rank = seen[job.hold] = seen.get(job.hold, 0) + 1
        ranked.append((rank, job))
    return [job for _, job in sorted(ranked, key=lambda pair: pair[0])]


def cycles(jobs: Sequence[Job]) -> Iterator[Job]:
    """Yield one job of each pending topic in turn, each topic's in the order given."""
    topics: dict[str, deque[Job]] = {}
    for job in rounds(jobs):
        topics.setdefault(job.stored.ref.topic, deque()).append(job)
    turn = deque(topics.values())
    while turn:
        pending = turn.popleft()
        yield pending.popleft()
        if pending:
            turn.append(pending)


def calls(
    jobs: Sequence[Job], limits: Limits, size: Callable[[StoredMessage], int]
) -> Iterator[list[Job]]:
    """Yield the jobs of a destination in calls that its limits allow.

    A message that is over the bytes alone goes alone, for the destination to refuse. Of ordered
    topics a call carries at most one message of a key.
    """
    call: list[Job] = []
    used = 0
    keys: set[tuple[str, str]] = set()
    for job in cycles(jobs):
        bytes_ = size(job.stored)
        full = len(call) >= limits.messages or used + bytes_ > limits.bytes
        if call and (full or (job.in_order and job.hold in keys)):
            yield call
            call, used, keys = [], 0, set()
        call.append(job)
        used += bytes_
        keys.add(job.hold)
    if call:
        yield call

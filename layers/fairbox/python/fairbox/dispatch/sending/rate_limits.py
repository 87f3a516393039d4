"""Rates: messages a second that a subscription gets, from all invocations together.

A token bucket, kept in the subscription's row as the time until which it is used up (a generic cell
rate algorithm). A sender takes as many tokens as it has messages, a second's at most, by one
compare-and-set: 1 WRU for up to a second's messages, at a rate of 100 a second 0.01 each. A sender
that finds the bucket empty writes nothing, and learns when to come again: visits scan its shards at
that time, for a query of a page a second and shard at most. The relay leaves such subscriptions to
visits.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final, Protocol

from fairbox.model.clock import milliseconds

if TYPE_CHECKING:
    from fairbox.dispatch.sending.jobs import Job
    from fairbox.model.clock import Clock

BURST_MS: Final = 1000
_TRIES: Final = 4


class RateStore(Protocol):
    """The table rows that keep until when rates are used up."""

    def spend(self, topic: str, name: str, until: int, before: int) -> int:
        """Write until when a rate is used up (ms) if it is as in `before`; return the row's."""
        ...


def take(spent: int, now: int, rate: float, wanted: int) -> tuple[int, int]:
    """Take tokens of a bucket.

    Args:
        spent: until when it is used up (ms).
        now: milliseconds since 1970 UTC.
        rate: tokens a second.
        wanted: how many at most.

    Returns:
        The number of tokens taken, and until when the bucket is used up then.
    """
    each = 1000 / rate
    begin = max(spent, now)
    room = now + max(BURST_MS, math.ceil(each)) - begin
    tokens = min(wanted, int(room / each))
    return (0, spent) if tokens <= 0 else (tokens, begin + math.ceil(tokens * each))


class Rates:
    """Takes tokens for jobs.

    Args:
        store: where buckets are kept.
        clock: the time.
    """

    def __init__(self, store: RateStore, clock: Clock) -> None:
        self._store = store
        self._clock = clock
        self._spent: dict[tuple[str, str], int] = {}

    def admit(self, line: list[Job]) -> tuple[list[Job], int | None]:
        """Return the jobs of one subscription that have a token, and when others may get one (ms).

        Raises:
            FairboxError: the bucket could not be written.
        """
        rate = line[0].subscription.rate if line else None
        if rate is None:
            return line, None
        tokens = self._take(line[0], rate, len(line))
        if tokens == len(line):
            return line, None
        name = (line[0].subscription.topic, line[0].subscription.name)
        return line[:tokens], max(milliseconds(self._clock), self._spent.get(name, 0))

    def _take(self, job: Job, rate: float, wanted: int) -> int:
        name = (job.subscription.topic, job.subscription.name)
        before = self._spent.get(name, 0)
        for _ in range(_TRIES):
            tokens, until = take(before, milliseconds(self._clock), rate, wanted)
            if not tokens:
                return 0
            there = self._spent[name] = self._store.spend(*name, until, before)
            if there == until:
                return tokens
            before = there
        return 0

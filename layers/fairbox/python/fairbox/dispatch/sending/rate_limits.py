"""Rates: messages a second that a subscription gets, from all invocations together.

A token bucket, kept in the subscription's row as the time until which it is used up (a generic cell
rate algorithm). A sender takes as many tokens as it has messages, or all that there are, by one
compare-and-set: 1 WRU, at a rate of 100 a second 0.01 a message. The relay leaves such
subscriptions to visits.

A visit whose messages found no token rings for its shard's next turn. A shard that was served
comes again after a second; so one shard at a time is emptied, for a visit a second or less often. A
shard that found too few tokens waits for a turn of its own: others are served now. Turns are whole
seconds, the same for all visits of the shard, so that their doorbells are one.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final

from fairbox.model.clock import Clock, milliseconds

if TYPE_CHECKING:
    from fairbox.dispatch.delivery import Job
    from fairbox.model.topic_states import TopicState
    from fairbox.model.topics import Subscription
    from fairbox.tables.tables import Tables

BURST_MS: Final = 1000
LATE_MS: Final = 3000
"""Time for which a bucket keeps its tokens beyond a second's: visits for it are under way."""
_TURN_MS: Final = 1000
"""Time from a visit until its shard's next turn at least. Clocks may differ by less."""
_TURNS_A_MESSAGE: Final = 0.2
"""Turns of all shards that find too few tokens, for a message of the rate: one a second, or one for
each message where these are fewer."""
_LEAST_TURN: Final = 2
_LONGEST_TURN: Final = 600
_WORTH: Final = 0.75
_ENOUGH: Final = 50
_TRIES: Final = 4
PAGE: Final = 100
_LEAST_PAGE: Final = 5


def take(spent: int, now: int, rate: float, wanted: int) -> tuple[int, int]:
    """Take tokens of a bucket.

    It fills for a second, and for three more if it was used up before that: visits for its tokens
    are under way then, and come late.

    Args:
        spent: until when it is used up (ms).
        now: milliseconds since 1970 UTC.
        rate: tokens a second.
        wanted: how many at most.

    Returns:
        The number of tokens taken, and until when the bucket is used up then.
    """
    each = 1000 / rate
    begin = spent if spent >= now - LATE_MS else now
    room = now + max(BURST_MS, math.ceil(each)) - begin
    tokens = min(wanted, int(room / each))
    return (0, spent) if tokens <= 0 else (tokens, begin + math.ceil(tokens * each))


def worth(rate: float) -> int:
    """Return the number of tokens from which a visit takes them, at a rate a second.

    Fewer are left for the shard that is being served, so that its visits find many.
    """
    return max(1, min(int(_WORTH * rate), _ENOUGH))


def next_turn(earliest: int, rate: float, shard: int, shards: int, *, served: bool) -> int:
    """Return when a shard's messages get their next turn, a whole second (ms).

    Args:
        earliest: a time (ms) not before which it comes.
        rate: messages a second.
        shard: its number.
        shards: of its topic.
        served: whether it had tokens just now.
    """
    second = -(-earliest // 1000)
    if not served:
        a_second = max(min(rate, 1), rate * _TURNS_A_MESSAGE)
        period = round(min(max(_LEAST_TURN, shards / a_second), _LONGEST_TURN))
        # a second later with each period, so that no shard's always comes behind another's
        place = period * shard // shards
        period_of, since = divmod(second, period)
        if (place + period_of) % period < since:
            period_of += 1
        second = period_of * period + (place + period_of) % period
    return second * 1000


class Rates:
    """Takes tokens for jobs.

    Args:
        tables: where buckets are kept.
    """

    def __init__(self, tables: Tables, clock: Clock) -> None:
        self._tables = tables
        self._clock = clock
        self._spent: dict[tuple[str, str], int] = {}

    def room(self, subscription: Subscription) -> int:
        """Return how many messages have a token; 0 if they are too few for a visit.

        Costs 0.5 RRU, unless the last answer says that there can be none.

        Raises:
            FairboxError: the bucket could not be read.
        """
        rate, name = subscription.rate or 0, (subscription.topic, subscription.name)
        if self._tokens(name, rate) < worth(rate):
            return 0
        self._spent[name] = max(self._spent.get(name, 0), self._tables.circuits.spent(*name))
        tokens = self._tokens(name, rate)
        return 0 if tokens < worth(rate) else tokens

    def turn(self, subscription: Subscription, shard: int, shards: int, *, served: bool) -> int:
        """Return when a shard's waiting messages have their next turn (ms)."""
        name = (subscription.topic, subscription.name)
        earliest = max(milliseconds(self._clock) + _TURN_MS, self._spent.get(name, 0))
        return next_turn(earliest, subscription.rate or 0, shard, shards, served=served)

    def admit(self, line: list[Job]) -> list[Job]:
        """Return the jobs of one subscription that have a token.

        Raises:
            FairboxError: the bucket could not be written.
        """
        rate = line[0].subscription.rate if line else None
        return line if rate is None else line[: self._take(line[0], rate, len(line))]

    def _tokens(self, name: tuple[str, str], rate: float) -> int:
        return take(self._spent.get(name, 0), milliseconds(self._clock), rate, 1_000_000)[0]

    def _take(self, job: Job, rate: float, wanted: int) -> int:
        name = (job.subscription.topic, job.subscription.name)
        before = self._spent.get(name, 0)
        for _ in range(_TRIES):
            tokens, until = take(before, milliseconds(self._clock), rate, wanted)
            if not tokens:
                return 0
            there = self._tables.circuits.spend(*name, until, before)
            self._spent[name] = until if there is None else there
            if there is None:
                return tokens
            before = there
        return 0


def page_size(audience: TopicState) -> int:
    """Return the size of a page: at most the messages that may be sent in two seconds."""
    rates = [s.rate for s in audience.subscriptions]
    most = max((PAGE if rate is None else math.ceil(2 * rate) for rate in rates), default=PAGE)
    return min(PAGE, max(_LEAST_PAGE, most))

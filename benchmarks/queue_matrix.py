"""Consumers by shards in virtual time: rate, write units and lost claims of a message.

Only the queue's own calls take time, 2.5 to 7.5 ms each: the rate is one of calls in sequence.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from benchmarks import sqs_limits
from benchmarks.baseline_001 import NAME
from benchmarks.figures import Figure
from benchmarks.queue_contention import Contention, SeedContention

if TYPE_CHECKING:
    from collections.abc import Sequence

CONSUMERS: Final = (1, 4, 16)
SHARDS: Final = (1, 8, 64)


def figures(
    *,
    consumers: Sequence[int] = CONSUMERS,
    shards: Sequence[int] = SHARDS,
    messages: int = 1000,
    seed_messages: int = 200,
) -> list[Figure]:
    """Return the figures of each number of consumers on each number of shards.

    Args:
        consumers: numbers of competing consumers.
        shards: numbers of shards.
        messages: acknowledged by all consumers together, of twice as many.
        seed_messages: the same of source 001's pattern.
    """
    found = sqs_limits.figures()
    for number in consumers:
        seed = SeedContention(number, messages=seed_messages, backlog=2 * seed_messages).run()
        for count in shards:
            done = Contention(number, messages=messages, backlog=2 * messages, shards=count).run()
            name = f"queue.matrix.{{}}.{number}_consumers.{count}_shards"
            values = (
                ("messages_per_second", "1/s", done.rate, seed.rate),
                ("wru_per_message", "WRU", done.wru / done.messages, seed.wru / seed.messages),
                ("claims_lost_share", "ratio", done.lost_share, seed.lost_share),
            )
            found += [
                Figure(name.format(what), unit, value, beside, NAME)
                for what, unit, value, beside in values
            ]
    return found

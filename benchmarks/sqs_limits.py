"""Published limits of Amazon SQS, as values beside measured ones; nothing here is measured.

From its developer guide, pages "message quotas" and "FIFO queue quotas", as of November 2026.
"""

from __future__ import annotations

from typing import Final

from benchmarks.figures import Figure

FIFO_MESSAGES_PER_SECOND: Final = 3_000.0
"""Of a queue, ten a call; without batches 300; more with high throughput, by Region."""
IN_FLIGHT: Final = 120_000.0
"""Messages in flight of a queue, standard or FIFO."""
AT_A_CALL: Final = 10.0
LONGEST_POLL_SECONDS: Final = 20.0
LONGEST_DELAY_SECONDS: Final = 900.0


def figures() -> list[Figure]:
    """Return the limits; a standard queue's rate is nearly unlimited, so it is not among them."""
    return [
        Figure("queue.sqs.fifo.messages_per_second", "1/s", FIFO_MESSAGES_PER_SECOND),
        Figure("queue.sqs.in_flight", "messages", IN_FLIGHT),
        Figure("queue.sqs.messages_per_receive", "messages", AT_A_CALL),
        Figure("queue.sqs.longest_poll", "s", LONGEST_POLL_SECONDS),
        Figure("queue.sqs.longest_delay", "s", LONGEST_DELAY_SECONDS),
    ]

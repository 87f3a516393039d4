"""An outage of one destination: cost in the tables, calls, and dead messages.

Real code over a cost meter and a manual clock; the baseline is the same without circuit breakers,
where every due message is tried.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from fairbox import Message, RetryPolicy, Subscription, Topic
from fairbox.dispatch.ports import TAKEN, Outcome
from fairbox.dispatch.sending import circuit_breakers as circuits
from fairbox.testing import CostMeter
from fairbox.testing.application import MemoryApplication

from benchmarks.figures import Figure

if TYPE_CHECKING:
    from collections.abc import Sequence

SECONDS: Final = 3600
RATE: Final = 100
ATTEMPTS: Final = 10
BACK: Final = 1800  # s after which all must have been sent
_WITHOUT: Final = "without circuits, two minutes"
_WITHOUT_SECONDS: Final = 120
_BROKEN: Final = Outcome("refused", "HTTP 500", fault="destination")
_WINDOW: Final = 20  # s of mark_delivered


@dataclass(frozen=True)
class Outage:
    """The result of an outage.

    Attributes:
        messages: published during it.
        wru, rru: of the tables, without the puts of the messages.
        calls: to the destination.
        dead: number of dead messages.
        late: seconds from its end until no message waited.
    """

    messages: int
    wru: float
    rru: float
    calls: int
    dead: int
    late: float


def figures(
    seconds: int = SECONDS, rate: int = RATE, without: int = _WITHOUT_SECONDS
) -> Sequence[Figure]:
    """Return the figures of an outage of so many seconds at so many messages a second."""
    with_ = outage(seconds, rate)
    settings = vars(circuits)
    opens = settings["FAILURES_TO_OPEN"]
    settings["FAILURES_TO_OPEN"] = 1 << 60
    try:
        bare = outage(without, rate, back=False)
    finally:
        settings["FAILURES_TO_OPEN"] = opens
    pairs = (
        ("wru_per_message", "WRU", with_.wru / with_.messages, bare.wru / bare.messages),
        ("rru_per_message", "RRU", with_.rru / with_.messages, bare.rru / bare.messages),
        ("calls_per_minute", "calls", 60 * with_.calls / seconds, 60 * bare.calls / without),
        ("dead", "messages", with_.dead, bare.dead),
    )
    return [
        *(
            Figure(f"outage.{name}", unit, ours, theirs, _WITHOUT)
            for name, unit, ours, theirs in pairs
        ),
        Figure("outage.messages", "messages", with_.messages),
        Figure("outage.calls", "calls", with_.calls),
        Figure("outage.dead_per_call", "messages", with_.dead / with_.calls),
        Figure("outage.recovery", "s", with_.late),
    ]


def outage(seconds: int, rate: int, *, back: bool = True) -> Outage:
    """Let a destination refuse every message for a time, then accept them.

    Args:
        seconds: duration of the refusal.
        rate: messages a second.
        back: whether to measure the time until everything is sent.
    """
    app = MemoryApplication(wrap=CostMeter, rng=random.Random(seconds))
    meter: CostMeter = app.client
    retry = RetryPolicy(max_attempts=ATTEMPTS)
    app.outbox.create_topic(Topic("orders", shards=8, retry=retry))
    app.outbox.add_subscription(Subscription("orders", "hook", "sqs:hook"))
    destination = app.destinations["sqs:hook"]
    destination.answer = lambda _: _BROKEN
    meter.reset()
    for second in range(1, seconds + 1):
        app.outbox.add_many(
            Message(topic="orders", body=b"{}", id=app.ids.next()) for _ in range(rate)
        )
        app.clock.advance(1)
        app.relay()
        if second % _WINDOW == 0:
            app.mark()
        if second % 60 == 0:
            app.sweep()
        app.visit()
    reading = meter.reading()
    calls, dead = destination.calls, _dead(app)
    destination.answer = lambda _: TAKEN
    began = app.clock.now()
    while (
        back and app.outbox.outstanding_count("orders", limit=1) and app.clock.now() - began < BACK
    ):
        app.run(5, step=5)
    puts = seconds * rate
    late = app.clock.now() - began
    return Outage(puts, reading.wru - puts, reading.rru, calls, dead, late)


def _dead(app: MemoryApplication) -> int:
    return sum(1 for _ in app.outbox.dead("orders"))

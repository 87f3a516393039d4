"""A resize under load in the running local application: 8 shards to 32, an ordered topic."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from fairbox import Message, Outbox, Subscription, Topic

from benchmarks.figures import Figure
from benchmarks.latency import drain
from local.application import LocalApplication
from local.synthesis import synthesise
from local.workspace import Workspace

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

BEFORE: Final = 8
AFTER: Final = 32
RATE: Final = 40  # messages a second
KEYS: Final = 64
_PRODUCERS: Final = 4
_WARM_UP: Final = 15.0  # seconds, for the functions' cold starts
_CALM: Final = 15.0  # seconds before the announcement, and as many once the cut is long past
_AROUND_MS: Final = 10_000  # what is added so long before or after the cut may wait for it
_BASELINE: Final = "before it is announced"
_TOPIC: Final = "resized"


@dataclass(frozen=True, slots=True)
class Added:
    """A message that was published: its key, and when, in milliseconds since 1970 UTC."""

    id: str
    key: str
    at: float


def figures() -> list[Figure]:
    """Return what was lost and out of order, and how long a key paused for the cut.

    A pause is added to delivered: from when the producer calls `add` until the queue takes the
    message, by its `SentTimestamp`.
    """
    with LocalApplication(synthesise(Workspace())) as application:
        sqs = application.clients["sqs"]
        queue = sqs.create_queue(QueueName="sink")["QueueUrl"]
        outbox = Outbox(
            application.clients["dynamodb"],
            table=application.env["FAIRBOX_OUTBOX_TABLE"],
            deliveries_table=application.env["FAIRBOX_DELIVERIES_TABLE"],
        )
        outbox.create_topic(Topic(_TOPIC, shards=BEFORE, ordering="key"))
        outbox.add_subscription(Subscription(_TOPIC, "sink", f"sqs:{queue}"))
        _produce(outbox, _WARM_UP)
        calm = _produce(outbox, _CALM)
        cut = outbox.resize(_TOPIC, AFTER).epoch.since
        rest = _produce(outbox, cut / 1000 - time.time() + _AROUND_MS / 1000 + _CALM)
        sent = drain(sqs, queue, round(_WARM_UP * RATE) + len(calm) + len(rest))
    return _figures(calm, rest, sent, cut)


def _figures(
    calm: Sequence[Added], rest: Sequence[Added], sent: Mapping[str, float], cut: float
) -> list[Figure]:
    everything = [*calm, *rest]
    at_cut = [one for one in rest if abs(one.at - cut) < _AROUND_MS]
    after = [one for one in rest if one.at >= cut + _AROUND_MS]
    usual = _longest(calm, sent)
    return [
        Figure("resize.messages", "messages", len(everything)),
        Figure("resize.messages_after_the_cut", "messages", sum(m.at >= cut for m in rest)),
        Figure("resize.lost", "messages", sum(one.id not in sent for one in everything)),
        Figure("resize.out_of_order", "messages", out_of_order(everything, sent)),
        Figure("resize.longest_pause_ms", "ms", _longest(at_cut, sent), usual, _BASELINE),
        Figure("resize.longest_pause_later_ms", "ms", _longest(after, sent), usual, _BASELINE),
    ]


def _longest(messages: Sequence[Added], sent: Mapping[str, float]) -> float:
    return max((sent[one.id] - one.at for one in messages if one.id in sent), default=0.0)


def out_of_order(messages: Sequence[Added], sent: Mapping[str, float]) -> int:
    """Count messages that came after one of their key with a greater id had come.

    Args:
        messages: what was published.
        sent: by id, when each came first (ms).
    """
    by_key: dict[str, list[Added]] = {}
    for one in messages:
        if one.id in sent:
            by_key.setdefault(one.key, []).append(one)
    found = 0
    for own in by_key.values():
        earliest = float("inf")  # of what has a greater id
        for one in sorted(own, key=lambda m: m.id, reverse=True):
            found += earliest < sent[one.id]
            earliest = min(earliest, sent[one.id])
    return found


def _produce(outbox: Outbox, seconds: float) -> list[Added]:
    """Add messages at a steady rate, each key's one after the other; return them."""
    keys = [f"customer-{number}" for number in range(KEYS)]
    start = time.time() + 0.1
    count = round(seconds * RATE / _PRODUCERS)

    def produce(number: int) -> list[Added]:
        own = keys[number::_PRODUCERS]
        added = []
        for n in range(count):
            time.sleep(max(0.0, start + n * _PRODUCERS / RATE - time.time()))
            key, began = own[n % len(own)], time.time() * 1000
            message = Message(topic=_TOPIC, body=b'{"id": 7}', partition_key=key)
            outbox.add(message)
            added.append(Added(message.id, key, began))
        return added

    with ThreadPoolExecutor(_PRODUCERS) as pool:
        return [one for part in pool.map(produce, range(_PRODUCERS)) for one in part]

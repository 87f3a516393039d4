"""Messages that the archive takes for each MiB/s of a Firehose quota, and the CPU of packing them.

Computed: bytes are those of the code's own lines and members; nothing is measured on AWS.
"""

from __future__ import annotations

import base64
import json
import random
import time
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from fairbox import Message, Subscription, Topic
from fairbox.aws.firehose_archive import pack
from fairbox.dispatch.stream.marking import Marking
from fairbox.testing.application import MemoryApplication

from benchmarks.figures import Figure

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

MESSAGES: Final = 2_000
_MIB: Final = 1024 * 1024
_BATCH: Final = 1_000
_TOPIC: Final = "orders"
_BEFORE: Final = "lines as they are"
_GOODS: Final = ("Blue cotton shirt", "Steel bottle 750 ml", "Desk lamp", "Notebook A5, ruled")


def figures(*, messages: int = MESSAGES, rounds: int = 5) -> list[Figure]:
    """Return the figures of so many messages of each kind, delivered to one subscription.

    Args:
        messages: of each kind.
        rounds: of timing; the fastest counts.
    """
    found = []
    for kind, body in KINDS.items():
        rng = random.Random(13)
        mark, lines = _marked([body(rng) for _ in range(messages)])
        plain = sum(len(line) + 1 for part in lines for line in part)
        packed = _pack(lines)
        marking = _microseconds(partial(mark, _Lines()), messages, rounds)
        packing = _microseconds(partial(_pack, lines), messages, rounds)
        per_second = _MIB * messages / packed
        found += [
            Figure(
                f"archive.messages_per_mib.{kind}",
                "messages/s",
                per_second,
                _MIB * messages / plain,
                _BEFORE,
            ),
            Figure(f"archive.ratio.{kind}", "ratio", plain / packed),
            Figure(f"archive.cpu.packing.{kind}", "us/message", packing, marking, "marking"),
        ]
    return found


def order(rng: random.Random, size: int) -> bytes:
    """Return an order of about so many bytes of JSON, whose numbers and ids are random."""
    fields: dict[str, Any] = {
        "order": f"{rng.getrandbits(64):016x}",
        "customer": f"{rng.getrandbits(48):012x}",
        "placed_at": f"2026-11-{rng.randrange(1, 29):02}T{rng.randrange(24):02}:15:00Z",
        "lines": [],
    }
    while len(json.dumps(fields)) < size - 50:
        fields["lines"].append(
            {
                "sku": f"SKU-{rng.randrange(10**6):06}",
                "name": rng.choice(_GOODS),
                "quantity": rng.randrange(1, 9),
                "price": rng.randrange(100, 99_999) / 100,
            }
        )
    return json.dumps(fields).encode()


KINDS: Final[dict[str, Callable[[random.Random], bytes]]] = {
    "json_1k": lambda rng: order(rng, 1_000),
    "json_10k": lambda rng: order(rng, 10_000),
    "random_10k": lambda rng: base64.b64encode(rng.randbytes(7_500)),
}
"""Bodies by kind; the last is a ciphertext as text, which nothing compresses further."""


def _marked(
    bodies: Sequence[bytes],
) -> tuple[Callable[[_Lines], None], list[list[bytes]]]:
    """Add and deliver messages; return what marks their records again, and lines by invocation."""
    app = MemoryApplication()
    app.outbox.create_topic(Topic(_TOPIC, shards=8))
    app.outbox.add_subscription(Subscription(_TOPIC, "billing", "sqs:billing"))
    for start in range(0, len(bodies), 100):
        part = bodies[start : start + 100]
        app.outbox.add_many(
            [Message(topic=_TOPIC, body=b, content_type="application/json") for b in part]
        )
    while app.relay():
        pass
    records = app.records()
    parts = [records[start : start + _BATCH] for start in range(0, len(records), _BATCH)]

    def mark(archive: _Lines) -> None:
        marking = Marking(app.store_of(app.clock), archive, app.clock)
        for part in parts:
            marking.handle(part)

    kept = _Lines()
    mark(kept)
    return mark, kept.writes


def _pack(writes: Sequence[Sequence[bytes]]) -> int:
    return sum(len(member) for lines in writes for member in pack(lines))


class _Lines:
    """An archive that keeps the lines of each invocation."""

    def __init__(self) -> None:
        self.writes: list[list[bytes]] = []

    def write(self, lines: Sequence[bytes]) -> None:
        self.writes.append(list(lines))


def _microseconds(work: Callable[[], object], messages: int, rounds: int) -> float:
    """Return the least CPU time of several rounds, for a message."""

    def once() -> float:
        began = time.process_time()
        work()
        return (time.process_time() - began) / messages * 1e6

    return min(once() for _ in range(rounds))

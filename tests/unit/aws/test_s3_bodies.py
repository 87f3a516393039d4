"""Bodies that would fill a function's memory, or are another message's, are not read."""

from __future__ import annotations

import io
import tracemalloc
import zlib
from typing import Any

import pytest
from fairbox import Message, Unreadable
from fairbox.aws import s3_bodies as adapter
from fairbox.aws.s3_bodies import S3Bodies
from fairbox.errors import InvalidInput, Unavailable
from fairbox.model.bodies import compress, decompress
from fairbox.model.messages import MAX_BODY_BYTES, MessageRef
from fairbox.tables.stored_messages import OFFLOADED, message_item, read_message

MIB = 1024 * 1024


class Bucket:
    """Holds one object, and counts what is read of it."""

    def __init__(self, size: int) -> None:
        self.size = size
        self.asked: list[int] = []

    def get_object(self, **_: Any) -> dict[str, Any]:
        return {"Body": self}

    def read(self, amount: int = -1) -> bytes:
        self.asked.append(amount)
        return b"x" * (self.size if amount < 0 else min(amount, self.size))


def offloaded(address: str) -> dict[str, Any]:
    message = Message(topic="orders", body=b"x" * 700_000)
    ref = MessageRef("orders", 0, 0, message.id)
    item, body = message_item(message, ref, bucket="bodies")
    assert body is not None
    return item | {OFFLOADED: {"S": address.format(id=message.id)}}


@pytest.mark.parametrize(
    "address", ["bodies/bodies/orders/{id}", "old-bucket/bodies/orders/{id}-2-00ff"]
)
def test_a_message_s_own_offloaded_body_is_read(address: str) -> None:
    stored = read_message(offloaded(address))
    assert stored.offloaded is not None
    assert stored.offloaded.uri == "s3://" + address.format(id=stored.ref.id)


@pytest.mark.parametrize(
    "address",
    [
        "bodies/bodies/payroll/{id}",
        "bodies/bodies/orders/0199c82c-c000-7611-a29f-000000000000",
        "bodies/bodies/orders/../payroll/{id}",
        "bodies/bodies/orders/{id}/more",
        "bodies/archive/dt=2026-11-21/a.json.gz",
        "bodies/",
    ],
)
def test_an_item_that_names_another_message_s_body_is_unreadable(address: str) -> None:
    with pytest.raises(Unreadable, match="another message's"):
        read_message(offloaded(address))


def test_of_an_object_larger_than_any_body_no_more_is_read_than_shows_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(adapter, "MAX_BODY_BYTES", 1000)
    bucket = Bucket(5000)
    with pytest.raises(Unavailable):
        S3Bodies(bucket, "bodies").get("bodies", "key")
    assert bucket.asked == [1001]
    assert S3Bodies(Bucket(1000), "bodies").get("bodies", "key") == b"x" * 1000


def test_a_packed_body_is_unpacked_to_the_size_it_tells_and_never_over_a_body_s_limit() -> None:
    packed, compressed = compress(b"0" * 10_000)
    assert compressed
    assert decompress(packed, 10_000) == b"0" * 10_000
    bomb = zlib.compress(b"0" * (100 * MIB), 9)
    tracemalloc.start()
    for size in (10, 10_000, MAX_BODY_BYTES + 1, 100 * MIB, 10**12):
        with pytest.raises(InvalidInput):
            decompress(bomb, size)
    assert tracemalloc.get_traced_memory()[1] < MIB
    tracemalloc.stop()
    assert io.BytesIO(bomb).getbuffer().nbytes < MIB

"""The queue over both engines: unordered topics."""

from __future__ import annotations

from typing import Any

import pytest
from fairbox import (
    Queue,
    Received,
    RetryPolicy,
    StaleReceipt,
)

from tests.contract.rig import Rig


class QueueRig(Rig):
    """A rig with a queue over its outbox."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.queue = Queue.over(self.outbox)

    def send(self, count: int = 1, topic: str = "jobs", **more: Any) -> list[str]:
        """Send messages and let a second pass; return their ids."""
        refs = self.queue.send_many([self.message(topic, b"%d" % n, **more) for n in range(count)])
        self.clock.advance(1)
        return [ref.id for ref in refs]

    def receive(
        self, max_messages: int = 10, timeout: float = 30, topic: str = "jobs"
    ) -> list[Received]:
        """Receive until every shard was asked."""
        found: list[Received] = []
        for _ in range(8):
            left = max_messages - len(found)
            found += self.queue.receive(topic, left, timeout) if left else []
        return found


@pytest.fixture
def rig(client: Any) -> QueueRig:
    rig = QueueRig(client)
    rig.topic("jobs", shards=2, retry=RetryPolicy(max_attempts=3))
    return rig


class TestReceiving:
    def test_a_message_is_received_once_and_gone_when_acknowledged(self, rig: QueueRig) -> None:
        (sent,) = rig.send(headers={"a": "b"}, content_type="text/plain")
        (received,) = rig.receive()
        assert received.message.id == sent
        assert received.message.headers == {"a": "b"}
        assert received.receive_count == 1
        assert rig.receive() == []
        rig.queue.ack(received.receipt)
        assert rig.items() == [i for i in rig.items() if i["sk"]["S"] == "!"]
        rig.clock.advance(3600)
        assert rig.receive() == []

    def test_what_is_not_acknowledged_in_time_is_received_again(self, rig: QueueRig) -> None:
        (sent,) = rig.send()
        (first,) = rig.receive(timeout=30)
        rig.clock.advance(29)
        assert rig.receive() == []
        rig.clock.advance(1)
        (second,) = rig.receive()
        assert (second.message.id, second.receive_count) == (sent, 2)
        with pytest.raises(StaleReceipt) as stale:
            rig.queue.ack(first.receipt)
        assert stale.value.receipts == (first.receipt,)
        for call in (
            lambda: rig.queue.nack(first.receipt),
            lambda: rig.queue.extend(first.receipt, 99),
            lambda: rig.queue.release(first.receipt),
            lambda: rig.queue.bury(first.receipt),
        ):
            with pytest.raises(StaleReceipt):
                call()
        assert rig.receive() == []
        rig.queue.ack(second.receipt)
        assert rig.outbox.outstanding_count("jobs") == 0

"""Doorbells: their texts, their queues, and how many messages one names."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from botocore.exceptions import ClientError
from fairbox import InvalidInput, MessageRef, NotConfigured, Unavailable
from fairbox.aws.sqs_doorbells import SqsDoorbells, decode, encode
from fairbox.dispatch.ports import Doorbell
from fairbox.testing import ManualClock
from hypothesis import given
from hypothesis import strategies as st

ID = "0198f3c2-7d7e-7abc-8def-{:012x}"
refs = st.builds(
    lambda n, due: (ID.format(n), due),
    st.integers(0, 2**48 - 1),
    st.none() | st.integers(0, 10**14),
)


class Queue:
    """SQS as far as doorbells see it; entries at the positions named fail once."""

    def __init__(self, failing: int = 0) -> None:
        self.sent: list[tuple[str, dict[str, Any]]] = []
        self.failing = failing
        self.calls: list[int] = []

    def send_message_batch(self, *, QueueUrl: str, Entries: list[dict[str, Any]]) -> dict[str, Any]:  # noqa: N803 - the SDK's
        self.calls.append(len(Entries))
        failed, self.failing = min(self.failing, len(Entries)), max(0, self.failing - len(Entries))
        self.sent += [(QueueUrl, entry) for entry in Entries[failed:]]
        return {"Failed": [{"Id": entry["Id"]} for entry in Entries[:failed]]}


def bells(queue: Queue, later: str | None = "later") -> SqsDoorbells:
    return SqsDoorbells(queue, "now.fifo", later, clock=ManualClock())


@given(st.integers(0, 99), st.integers(0, 999), st.lists(refs, max_size=9), st.integers(0, 10**14))
def test_a_doorbell_is_what_its_text_says(
    epoch: int, shard: int, named: list[tuple[str, int | None]], not_before: int
) -> None:
    messages = tuple(MessageRef("orders", epoch, shard, i, due) for i, due in named)
    doorbell = Doorbell("orders", epoch, shard, messages, not_before)
    assert decode(encode(doorbell)) == doorbell


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "null",
        "{}",
        '"x"',
        '{"topic": "a b", "epoch": 0, "shard": 0, "ids": [], "not_before": 0}',
        '{"topic": "a", "epoch": "x", "shard": 0, "ids": [], "not_before": 0}',
        '{"topic": "a", "epoch": Infinity, "shard": 0, "ids": [], "not_before": 0}',
        '{"topic": "a", "epoch": 0, "shard": 0, "ids": ["x"], "not_before": 0}',
        '{"topic": "a", "epoch": 0, "shard": 0, "ids": 7, "not_before": 0}',
    ],
)
def test_any_other_text_is_refused(text: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        decode(text)
    assert caught.value.field == "doorbell"


def test_250_messages_are_split_over_doorbells_that_fit_and_none_is_left_out() -> None:
    queue = Queue()
    named = tuple(MessageRef("orders", 0, 11, ID.format(n)) for n in range(250))
    bells(queue).ring([Doorbell("orders", 0, 11, named)])
    texts = [entry["MessageBody"] for _, entry in queue.sent]
    assert [len(json.loads(t)["ids"]) for t in texts] == [100, 100, 50]
    assert [r for t in texts for r in decode(t).refs] == list(named)
    assert all(len(t) < 256 * 1024 for t in texts)


def test_shards_of_a_topic_share_eight_groups_and_every_doorbell_is_its_own() -> None:
    queue = Queue()
    bells(queue).ring([Doorbell("orders", 0, n) for n in range(20)])
    assert {e["MessageGroupId"] for _, e in queue.sent} == {f"orders#{n}" for n in range(8)}
    assert len({e["MessageDeduplicationId"] for _, e in queue.sent}) == 20
    assert queue.calls == [10, 10]


@pytest.mark.parametrize(("seconds", "delay"), [(0.5, 1), (1, 1), (30, 30), (5000, 900)])
def test_later_doorbells_wait_15_minutes_at_most(seconds: float, delay: int) -> None:
    queue = Queue()
    not_before = round((ManualClock().now() + seconds) * 1000)
    bells(queue).ring([Doorbell("orders", 0, 1, (), not_before)])
    ((url, entry),) = queue.sent
    assert (url, entry["DelaySeconds"]) == ("later", delay)
    assert decode(entry["MessageBody"]).not_before == not_before


def test_doorbells_for_one_shard_and_second_are_passed_on_as_one_visit() -> None:
    queue, clock = Queue(), ManualClock(1_760_000_000)
    waiting = SqsDoorbells(queue, "now.fifo", "later", clock=clock)
    due = Doorbell("orders", 1, 3, (), 1_760_000_000_000)
    named = Doorbell("orders", 1, 3, (MessageRef("orders", 1, 3, ID.format(1)),), due.not_before)
    for doorbell in (due, due, replace(due, shard=4), named, named):
        waiting.pass_on(doorbell)
    clock.advance(1)
    waiting.pass_on(due)  # a visit that came too early rang for it again
    assert {decode(e["MessageBody"]).not_before for _, e in queue.sent} == {0}
    ids = [e["MessageDeduplicationId"] for _, e in queue.sent]
    assert ids[0] == ids[1]
    assert len(set(ids)) == 5


def test_a_doorbell_that_is_not_due_waits_on() -> None:
    queue = Queue()
    bells(queue).pass_on(Doorbell("orders", 0, 1, (), round(ManualClock().now() * 1000) + 5_000))
    ((url, entry),) = queue.sent
    assert (url, entry["DelaySeconds"]) == ("later", 5)


def test_entries_that_failed_are_sent_again_and_only_these() -> None:
    queue = Queue(failing=3)
    bells(queue).ring([Doorbell("orders", 0, n) for n in range(10)])
    assert queue.calls == [10, 3]
    assert {decode(e["MessageBody"]).shard for _, e in queue.sent} == set(range(10))


def test_a_queue_that_takes_nothing_is_told() -> None:
    class Gone(Queue):
        def send_message_batch(self, **_: Any) -> dict[str, Any]:
            raise ClientError({"Error": {"Code": "InternalError"}}, "SendMessageBatch")

    with pytest.raises(Unavailable):
        bells(Queue(failing=1000)).ring([Doorbell("orders", 0, 1)])
    with pytest.raises(Unavailable):
        bells(Gone()).ring([Doorbell("orders", 0, 1)])


def test_without_a_queue_for_later_nothing_is_rung_for_later() -> None:
    with pytest.raises(NotConfigured, match="LATER"):
        bells(Queue(), later=None).ring([Doorbell("orders", 0, 1, (), 10**14)])

"""Doorbells: their texts, their queues, and how many messages one names."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from fairbox import InvalidInput, MessageRef, NotConfigured, Unavailable
from fairbox.aws.sqs_queues import SqsDoorbells, decode, encode
from fairbox.dispatch.ports import Doorbell
from fairbox.testing import ManualClock
from fairbox.testing.doorbell_queues import LATER, NOW, DoorbellQueues
from hypothesis import given
from hypothesis import strategies as st

ID = "0198f3c2-7d7e-7abc-8def-{:012x}"
refs = st.builds(
    lambda n, due: (ID.format(n), due),
    st.integers(0, 2**48 - 1),
    st.none() | st.integers(0, 10**14),
)


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
    queues = DoorbellQueues(ManualClock())
    named = tuple(MessageRef("orders", 0, 11, ID.format(n)) for n in range(250))
    queues.ring([Doorbell("orders", 0, 11, named)])
    texts = [message.body for message in queues.sqs.queues[NOW].messages.values()]
    assert [len(json.loads(t)["ids"]) for t in texts] == [100, 100, 50]
    assert [r for t in texts for r in decode(t).refs] == list(named)
    assert all(len(t) < 256 * 1024 for t in texts)


def test_shards_of_a_topic_share_eight_groups_and_every_doorbell_is_its_own() -> None:
    queues = DoorbellQueues(ManualClock())
    queues.ring([Doorbell("orders", 0, n) for n in range(20)])
    sent = queues.sqs.queues[NOW].messages.values()
    assert {message.group for message in sent} == {f"orders#{n}" for n in range(8)}
    assert len({message.deduplication for message in sent}) == 20
    assert queues.sqs.calls["SendMessageBatch"] == 2


@pytest.mark.parametrize(
    ("seconds", "delay", "slot"),
    [(0.5, 1, 1), (1, 1, 1), (1.2, 2, 2), (30, 30, 30), (5000, 900, 5000)],
)
def test_later_doorbells_wait_15_minutes_at_most(seconds: float, delay: int, slot: int) -> None:
    queues, now = DoorbellQueues(ManualClock()), round(ManualClock().now() * 1000)
    not_before = now + round(seconds * 1000)
    named = (MessageRef("orders", 0, 1, ID.format(1)),)
    queues.ring([Doorbell("orders", 0, 1, refs, not_before) for refs in ((), named)])
    assert [d.not_before for d in queues.later] == [now + slot * 1000, not_before]
    assert not queues.sqs.receive_message(QueueUrl=LATER)
    queues.sqs.clock.sleep(delay)
    taken = queues.sqs.receive_message(QueueUrl=LATER, MaxNumberOfMessages=10)
    assert len(taken["Messages"]) == 2


def test_doorbells_for_one_shard_and_second_are_passed_on_as_one_visit() -> None:
    queues = DoorbellQueues(clock := ManualClock(1_760_000_000))
    due = Doorbell("orders", 1, 3, (), 1_760_000_005_000)
    named = replace(due, refs=(MessageRef("orders", 1, 3, ID.format(1)),))
    others = [replace(due, shard=4), replace(due, subscription="a"), replace(due, after="ready:x")]
    queues.ring([due, due, *others, named, named])
    clock.advance(5)
    for doorbell in queues.later:
        queues.pass_on(doorbell)
    assert {d.not_before for d in queues.now} == {0}
    assert len(queues.now) == 1 + len(others) + 2
    queues.now.clear()
    queues.pass_on(due)  # a repetition, after the visit
    assert not queues.now
    clock.advance(1)
    queues.pass_on(replace(due, not_before=due.not_before + 1000))  # rung after it began
    assert len(queues.now) == 1


def test_a_doorbell_that_is_not_due_waits_on() -> None:
    queues = DoorbellQueues(ManualClock())
    queues.pass_on(Doorbell("orders", 0, 1, (), round(ManualClock().now() * 1000) + 5_000))
    assert (len(queues.now), len(queues.later)) == (0, 1)


def test_entries_that_failed_are_sent_again_and_only_these() -> None:
    queues = DoorbellQueues(ManualClock())
    queues.sqs.failing = 3
    queues.ring([Doorbell("orders", 0, n) for n in range(10)])
    assert queues.sqs.calls["SendMessageBatch"] == 2
    assert sorted(d.shard for d in queues.now) == list(range(10))


def test_a_queue_that_takes_nothing_is_told() -> None:
    queues = DoorbellQueues(ManualClock())
    queues.sqs.failing = 1000
    with pytest.raises(Unavailable):
        queues.ring([Doorbell("orders", 0, 1)])
    queues = DoorbellQueues(ManualClock())
    queues.sqs.queues.clear()
    with pytest.raises(Unavailable, match="does not exist"):
        queues.ring([Doorbell("orders", 0, 1)])


def test_without_a_queue_for_later_nothing_is_rung_for_later() -> None:
    bells = SqsDoorbells(DoorbellQueues(ManualClock()).sqs, NOW, None, clock=ManualClock())
    with pytest.raises(NotConfigured, match="LATER"):
        bells.ring([Doorbell("orders", 0, 1, (), 10**14)])

"""Packing: calls stay within limits, keep order, and carry one message of a key."""

from __future__ import annotations

from itertools import pairwise

from fairbox import Message, MessageRef, Subscription
from fairbox.dispatch.packing import Job, calls
from fairbox.dispatch.ports import Limits
from fairbox.stored import StoredMessage
from hypothesis import given
from hypothesis import strategies as st

LIMITS = Limits(5, 100)


def job(number: int, topic: str, key: str | None, size: int, in_order: bool) -> Job:
    message = Message(
        topic=topic,
        body=b"x" * size,
        partition_key=key,
        id=f"0198f3c2-7d7e-7abc-8def-{number:012x}",
    )
    stored = StoredMessage(message, MessageRef(topic, 0, 0, message.id), "ready", size)
    return Job(Subscription(topic, "billing", "sqs:x"), stored, in_order)


@st.composite
def work(draw: st.DrawFn) -> list[Job]:
    ordered = {"a": True, "b": False, "c": False}
    parts = st.tuples(
        st.sampled_from(sorted(ordered)),
        st.sampled_from([None, "k", "l", "m"]),
        st.integers(0, 130),
    )
    drawn = draw(st.lists(parts, max_size=40))
    return [job(n, t, k, size, ordered[t]) for n, (t, k, size) in enumerate(drawn)]


@given(work())
def test_every_job_goes_out_once_and_no_call_is_over_its_limits(jobs: list[Job]) -> None:
    made = list(calls(jobs, LIMITS, lambda stored: stored.size))
    assert sorted(j.stored.ref.id for call in made for j in call) == [j.stored.ref.id for j in jobs]
    for call in made:
        assert call
        assert len(call) <= LIMITS.messages
        assert sum(j.stored.size for j in call) <= LIMITS.bytes or len(call) == 1


@given(work())
def test_the_order_within_a_key_and_within_unordered_topics_stays(jobs: list[Job]) -> None:
    sent = [j for call in calls(jobs, LIMITS, lambda stored: stored.size) for j in call]
    for topic in "abc":
        mine = [j for j in sent if j.stored.ref.topic == topic]
        keys = {j.stored.message.shard_key for j in mine} if topic == "a" else {None}
        for key in keys:
            ids = [
                j.stored.ref.id for j in mine if key is None or j.stored.message.shard_key == key
            ]
            assert ids == sorted(ids)


@given(work())
def test_a_call_carries_one_message_of_an_ordered_key(jobs: list[Job]) -> None:
    for call in calls(jobs, LIMITS, lambda stored: stored.size):
        held = [j.hold for j in call if j.in_order]
        assert len(held) == len(set(held))


def test_topics_take_turns() -> None:
    jobs = [job(n, "b", None, 0, in_order=False) for n in range(20)]
    jobs += [job(n, "c", None, 0, in_order=False) for n in range(100, 103)]
    sent = [j.stored.ref.topic for call in calls(jobs, LIMITS, lambda _: 0) for j in call]
    assert sent[:6] == ["b", "c"] * 3
    assert all(one == "b" for one in sent[6:])


def test_an_ordered_backlog_of_many_keys_fills_its_calls() -> None:
    jobs = [job(n, "a", f"k{n // 4}", 0, in_order=True) for n in range(20)]
    sizes = [len(call) for call in calls(jobs, LIMITS, lambda _: 0)]
    assert sizes == [5, 5, 5, 5]
    assert all(one == other for one, other in pairwise(sizes))

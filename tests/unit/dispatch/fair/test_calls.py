"""The messages of a call: each once, in order, full while work waits, at most half direct."""

from __future__ import annotations

from collections import defaultdict
from itertools import pairwise
from typing import TYPE_CHECKING

import pytest
from fairbox.dispatch.fair import Pending, Work
from fairbox.dispatch.ports import Limits
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.dispatch.fair.cases import KB, Note

if TYPE_CHECKING:
    from collections.abc import Sequence

LIMITS = Limits(5, 100)


@st.composite
def works(draw: st.DrawFn) -> list[Work[Note]]:
    kinds = st.tuples(
        st.sampled_from("abcd"),
        st.sampled_from([None, "x", "y"]),
        st.integers(0, 130),
        st.booleans(),
        st.integers(1, 3),
    )
    return [
        Work(
            Note(topic, number, size, direct, tenant),
            topic,
            size=size,
            tenant=tenant,
            direct=direct,
            batch=batch,
        )
        for number, (topic, tenant, size, direct, batch) in enumerate(
            draw(st.lists(kinds, max_size=50))
        )
    ]


def drained(pending: Pending[Note], limits: Limits = LIMITS) -> list[list[Note]]:
    calls = []
    while len(pending):
        calls.append(pending.next_call(limits))
        assert calls[-1], "a call is empty while work waits"
    assert pending.next_call(limits) == []
    return calls


def filled(these: Sequence[Work[Note]]) -> Pending[Note]:
    pending: Pending[Note] = Pending()
    for work in these:
        pending.add(work)
    return pending


@given(works())
def test_everything_goes_out_once_and_no_call_is_over_its_limits(these: list[Work[Note]]) -> None:
    calls = drained(filled(these))
    assert sorted(note.number for call in calls for note in call) == list(range(len(these)))
    for call in calls:
        assert len(call) <= LIMITS.messages
        assert sum(note.size for note in call) <= LIMITS.bytes or len(call) == 1


@given(works())
def test_a_tenants_messages_of_a_topic_keep_their_order(these: list[Work[Note]]) -> None:
    numbers = defaultdict(list)
    for note in (note for call in drained(filled(these)) for note in call):
        numbers[note.topic, note.tenant, note.direct].append(note.number)
    assert all(found == sorted(found) for found in numbers.values())


@given(works())
def test_a_call_ends_only_when_it_is_full_or_nothing_waits(these: list[Work[Note]]) -> None:
    calls = drained(filled([work for work in these if not work.direct]))
    for call, following in pairwise(calls):
        room = LIMITS.bytes - sum(note.size for note in call)
        assert len(call) == LIMITS.messages or following[0].size > room


@given(works(), st.integers(0, 50))
def test_what_is_skipped_is_not_sent_and_delays_nobody(these: list[Work[Note]], of: int) -> None:
    pending = filled(these)
    sent = []
    while len(pending):
        sent += pending.next_call(LIMITS, skip=lambda note: note.number % 3 == of % 3)
    kept = [work.item.number for work in these if work.item.number % 3 != of % 3]
    assert sorted(note.number for note in sent) == kept


def test_unserved_topics_go_before_served_ones_with_more_and_both_before_newcomers() -> None:
    def two(topic: str) -> list[Work[Note]]:
        return [Work(Note(topic, n, KB), topic, size=KB) for n in range(2)]

    pending = filled([*two("a"), *two("b"), *two("c"), *two("d")])
    first = pending.next_call(Limits(2, 1 << 20))
    for work in two("new"):
        pending.add(work)
    rest = [note.topic for call in drained(pending, Limits(2, 1 << 20)) for note in call]
    assert [note.topic for note in first] == ["a", "b"]
    assert rest == ["c", "d", "a", "b", "new", "c", "d", "new"]


def test_a_topic_is_pending_once_however_many_messages_came() -> None:
    pending = filled([Work(Note("busy", n, KB), "busy", size=KB) for n in range(100)])
    pending.add(Work(Note("quiet", 0, KB), "quiet", size=KB))
    assert [note.topic for note in pending.next_call(Limits(3, 1 << 20))] == [
        "busy",
        "quiet",
        "busy",
    ]


def test_a_topic_that_opted_in_sends_its_mini_batch_in_one_turn() -> None:
    these = [Work(Note("a", n, KB), "a", size=KB, batch=3) for n in range(6)]
    these += [Work(Note("b", n, KB), "b", size=KB) for n in range(6)]
    sent = "".join(note.topic for note in filled(these).next_call(Limits(12, 1 << 20)))
    assert "aaa" in sent
    assert sent[:2] == "bb"  # what it sends at once it has waited for


def test_without_filling_each_topic_has_one_turn_a_call() -> None:
    these = [Work(Note(t, n, KB), t, size=KB) for n in range(5) for t in "ab"]
    call = filled(these).next_call(Limits(10, 1 << 20), fill=False)
    assert [note.topic for note in call] == ["a", "b"]


def test_a_call_carries_one_message_of_a_key_and_goes_on_with_other_topics() -> None:
    these = [Work(Note("o", n, KB), "o", size=KB, key="k") for n in range(2)]
    these += [Work(Note("u", n, KB), "u", size=KB) for n in range(3)]
    calls = drained(filled(these), Limits(10, 1 << 20))
    assert ["".join(note.topic for note in call) for call in calls] == ["ouuu", "o"]


def direct_and_topics(limits: Limits, sizes: tuple[int, int], calls: int) -> list[list[Note]]:
    """A flood of direct messages beside a topic that always waits."""
    pending: Pending[Note] = Pending()
    for n in range(calls * limits.messages + 1):
        direct = Note("d", n, sizes[0], direct=True)
        pending.add(Work(direct, "d", size=sizes[0], direct=True))
        pending.add(Work(Note("t", n, sizes[1]), "t", size=sizes[1]))
    return [pending.next_call(limits) for _ in range(calls)]


def check_direct(limits: Limits, sizes: tuple[int, int]) -> None:
    made = direct_and_topics(limits, sizes, 20)
    for first in range(20):
        for last in range(first, 20):
            window = [note for call in made[first : last + 1] for note in call if note.direct]
            half = (last - first + 1) / 2
            assert len(window) <= half * limits.messages + (limits.messages + 1) / 2
            most = half * limits.bytes + limits.bytes / 2 + sizes[0]
            assert sum(note.size for note in window) <= most
    topics = [any(not note.direct for note in call) for call in made]
    assert all(one or other for one, other in pairwise(topics)), "topics wait for two calls"


@pytest.mark.guarantee("direct-share")
@given(st.integers(1, 11), st.integers(0, 120), st.integers(0, 120))
def test_direct_messages_take_at_most_half_while_topics_wait(
    messages: int, direct: int, other: int
) -> None:
    check_direct(Limits(messages, 100), (direct, other))


def test_direct_messages_go_first_and_take_all_where_no_topic_waits() -> None:
    these = [Work(Note("t", 0, 1), "t", size=1)]
    these += [Work(Note("d", n, 1, direct=True), "d", size=1, direct=True) for n in range(20)]
    first, second, third = drained(filled(these), Limits(10, 100))
    assert [note.topic for note in first] == ["d"] * 5 + ["t"] + ["d"] * 4
    assert (len(second), len(third)) == (10, 1)

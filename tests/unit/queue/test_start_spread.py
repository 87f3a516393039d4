"""Starts of receives while consumers compete: spread ahead, but nothing old waits for ever."""

from __future__ import annotations

import random

import pytest
from fairbox import Message, MessageRef
from fairbox.model.ids import IdGenerator
from fairbox.model.stored_messages import StoredMessage
from fairbox.queue.start_spread import FROM_HINT, LOST, REACH, RECEIVES, StartSpread
from fairbox.testing import ManualClock

SHARD = "jobs", 1, 3
OTHER = "jobs", 1, 4
PAGE = 15
SELDOMEST = 16  # of so many receives of a shard one at the least begins at the hint


@pytest.fixture
def seen() -> list[StoredMessage]:
    """A page as it was read at the hint: a message a millisecond."""
    clock = ManualClock()
    ids = IdGenerator(clock, random.Random(1).getrandbits)
    found = []
    for _ in range(PAGE):
        clock.advance(0.001)
        ref = MessageRef("jobs", 1, 3, ids.next())
        found.append(StoredMessage(Message(topic="jobs", body=b"", id=ref.id), ref, "ready", 0))
    return found


def beginnings(ahead: StartSpread, count: int, lost: int) -> list[str]:
    """Begin so many receives that lose so many claims each."""
    found = []
    for _ in range(count):
        found.append(ahead.start(SHARD, "", 0))
        ahead.claimed(SHARD, lost)
    return found


def longest_run(starts: list[str]) -> int:
    """Return how many receives in a row did not begin at the hint."""
    most = run = 0
    for start in starts:
        run = run + 1 if start else 0
        most = max(most, run)
    return most


def test_who_loses_no_claims_begins_at_the_hint_each_time(seen: list[StoredMessage]) -> None:
    ahead = StartSpread(random.Random(1))
    ahead.read(SHARD, seen, jumped=False)
    assert set(beginnings(ahead, 50, LOST - 1)) == {""}


@pytest.mark.parametrize("seed", range(5))
def test_who_loses_claims_each_time_still_begins_at_the_hint_now_and_then(
    seen: list[StoredMessage], seed: int
) -> None:
    ahead = StartSpread(random.Random(seed))
    ahead.read(SHARD, seen, jumped=False)
    ahead.claimed(SHARD, LOST)
    starts = beginnings(ahead, 10 * SELDOMEST, LOST)
    assert FROM_HINT <= longest_run(starts) < SELDOMEST
    assert starts.count("") >= 9


def test_receives_ahead_begin_behind_the_first_page_and_within_reach(
    seen: list[StoredMessage],
) -> None:
    ahead = StartSpread(random.Random(1))
    ahead.read(SHARD, seen, jumped=False)
    ahead.claimed(SHARD, LOST)
    jumps = [start for start in beginnings(ahead, 40, LOST) if start]
    assert len(set(jumps)) == len(jumps) > 0
    assert min(jumps) >= seen[-1].ref.id
    first, last = (int(seen[at].ref.id.replace("-", ""), 16) for at in (0, -1))
    assert max(int(j.replace("-", ""), 16) for j in jumps) <= first + REACH * (last - first)


def test_what_one_shard_taught_holds_for_the_topics_others(seen: list[StoredMessage]) -> None:
    ahead = StartSpread(random.Random(1))
    ahead.read(SHARD, seen, jumped=False)
    ahead.claimed(SHARD, LOST)
    assert any(ahead.start(OTHER, "", 0) for _ in range(FROM_HINT))
    assert not any(ahead.start(("mails", 1, 3), "", 0) for _ in range(FROM_HINT))


def test_a_while_after_the_last_lost_claim_receives_begin_at_the_hint_again(
    seen: list[StoredMessage],
) -> None:
    ahead = StartSpread(random.Random(1))
    ahead.read(SHARD, seen, jumped=False)
    ahead.claimed(SHARD, LOST)
    starts = beginnings(ahead, RECEIVES + 20, 0)
    assert any(starts[:RECEIVES])
    assert not any(starts[RECEIVES:])


def test_receives_begin_nearer_when_nothing_lies_ahead(seen: list[StoredMessage]) -> None:
    def furthest(empty: int) -> str:
        ahead = StartSpread(random.Random(1))
        ahead.read(SHARD, seen, jumped=False)
        for _ in range(empty):
            ahead.read(SHARD, [], jumped=True)
        ahead.read(SHARD, seen, jumped=False)
        ahead.claimed(SHARD, LOST)
        return max(ahead.start(SHARD, "", 0) for _ in range(40))

    assert furthest(5) < furthest(0)

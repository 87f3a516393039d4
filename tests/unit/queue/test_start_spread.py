"""Starts of receives while consumers compete: ranges of their own, but nothing old is left."""

from __future__ import annotations

import itertools
import random
from typing import TYPE_CHECKING, cast

import pytest
from fairbox import Message, MessageRef, Queue, Topic
from fairbox.model.ids import IdGenerator, time_of
from fairbox.model.stored_messages import Hint, StoredMessage
from fairbox.queue.start_spread import FROM_HINT, LOST, RECEIVES, SELDOMEST, StartSpread
from fairbox.testing import ManualClock
from fairbox.testing.application import DELIVERIES, OUTBOX, MemoryApplication

if TYPE_CHECKING:
    from fairbox.queue.ports import ClaimStore
    from fairbox.queue.read_window import Window

SHARD = "jobs", 1, 3
OTHER = "jobs", 1, 4
PAGE = 15
NOW = 1_760_000_100_000


class Reservations:
    """The reservations of one shard, as the table keeps them."""

    def __init__(self) -> None:
        self.end: int | None = None
        self.calls = 0

    def reserve(self, _shard: object, low: int, width: int, high: int) -> int | None:
        self.calls += 1
        start = low if self.end is None or not low <= self.end <= high else self.end
        self.end = start + width
        return start


def spread(reservations: Reservations, seed: int = 1) -> StartSpread:
    return StartSpread(cast("ClaimStore", reservations), random.Random(seed))


@pytest.fixture
def table() -> Reservations:
    return Reservations()


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


@pytest.fixture
def ahead(table: Reservations, seen: list[StoredMessage]) -> StartSpread:
    """A spread of a consumer that has just lost claims."""
    made = spread(table)
    made.read(SHARD, seen)
    made.claimed(SHARD, LOST)
    return made


def beginnings(ahead: StartSpread, count: int, lost: int) -> list[Window | None]:
    """Begin so many receives that lose so many claims each, and work off what they reserve."""
    found = []
    for _ in range(count):
        window = ahead.start(SHARD, "", NOW)
        found.append(window)
        if window is not None:
            window.ended = True
        ahead.claimed(SHARD, lost)
    return found


def longest_run(starts: list[Window | None]) -> int:
    """Return how many receives in a row did not begin at the hint."""
    most = run = 0
    for start in starts:
        run = run + 1 if start is not None else 0
        most = max(most, run)
    return most


def test_who_loses_no_claims_begins_at_the_hint_each_time(
    table: Reservations, seen: list[StoredMessage]
) -> None:
    ahead = spread(table)
    ahead.read(SHARD, seen)
    assert set(beginnings(ahead, 50, LOST - 1)) == {None}
    assert table.calls == 0


@pytest.mark.parametrize("seed", range(5))
def test_who_loses_claims_each_time_still_begins_at_the_hint_now_and_then(
    table: Reservations, seen: list[StoredMessage], seed: int
) -> None:
    ahead = spread(table, seed)
    ahead.read(SHARD, seen)
    ahead.claimed(SHARD, LOST)
    starts = beginnings(ahead, 10 * SELDOMEST, LOST)
    assert FROM_HINT // 2 <= longest_run(starts) < SELDOMEST
    assert starts.count(None) >= 9


def test_no_two_receives_ahead_have_a_message_in_common(
    table: Reservations, seen: list[StoredMessage]
) -> None:
    consumers = [spread(table, seed) for seed in range(4)]
    ranges = []
    for ahead in consumers:
        ahead.read(SHARD, seen)
        ahead.claimed(SHARD, LOST)
    for _ in range(10):
        for ahead in consumers:
            ranges += [window for window in beginnings(ahead, 1, LOST) if window is not None]
    bounds = sorted((window.cursor, window.upto or "") for window in ranges)
    assert len(bounds) > 30
    assert all(end <= begin for (_, end), (begin, _) in itertools.pairwise(bounds))


def test_a_range_is_worked_off_before_the_next_is_reserved(
    ahead: StartSpread, table: Reservations, seen: list[StoredMessage]
) -> None:
    windows = [ahead.start(SHARD, "", NOW) for _ in range(FROM_HINT)]
    ranges = [window for window in windows if window is not None]
    assert len({id(window) for window in ranges}) == 1
    assert table.calls == 1
    first = ranges[0]
    assert first.cursor > seen[0].ref.id


def test_a_range_that_the_hint_has_passed_is_given_up(
    ahead: StartSpread, seen: list[StoredMessage]
) -> None:
    first = next(w for w in (ahead.start(SHARD, "", NOW) for _ in range(3)) if w is not None)
    after = str(seen[0].ref.id).replace(seen[0].ref.id[:8], "ffffffff")
    again = [ahead.start(SHARD, after, NOW) for _ in range(2)]
    assert first not in again


def test_what_one_shard_taught_holds_for_the_topics_others(ahead: StartSpread) -> None:
    assert any(ahead.start(OTHER, "", NOW) for _ in range(FROM_HINT))
    assert not any(ahead.start(("mails", 1, 3), "", NOW) for _ in range(FROM_HINT))


def test_a_while_after_the_last_lost_claim_receives_begin_at_the_hint_again(
    ahead: StartSpread,
) -> None:
    starts = beginnings(ahead, RECEIVES + 20, 0)
    assert any(starts[:RECEIVES])
    assert not any(starts[RECEIVES:])


def test_ranges_without_messages_end_the_spread(ahead: StartSpread) -> None:
    reserved = 0
    for _ in range(10):
        window = ahead.start(SHARD, "", NOW)
        if window is not None:
            reserved += 1
            window.ended = True
            ahead.read_ahead(SHARD, window)
    assert reserved == 2


def test_the_width_of_ranges_follows_what_they_hold(
    table: Reservations, seen: list[StoredMessage]
) -> None:
    def width(found: int) -> int:
        ahead = spread(table)
        ahead.read(SHARD, seen)
        ahead.claimed(SHARD, LOST)
        ends = []
        for _ in range(12):
            window = ahead.start(SHARD, "", NOW)
            if window is None:
                continue
            ends.append(int((window.upto or "").replace("-", ""), 16))
            ends.append(int(window.cursor.replace("-", ""), 16))
            window.seen = seen[:1] * found
            window.ended = True
            ahead.read_ahead(SHARD, window)
        return ends[-2] - ends[-1]

    assert width(1) > 40 > width(400)


def test_a_receive_at_the_hint_leaves_reserved_messages_but_not_for_ever(
    table: Reservations, seen: list[StoredMessage]
) -> None:
    ahead = spread(table)
    hint = Hint(reserved=time_of(seen[9].ref.id))
    chosen = [len(ahead.unreserved(SHARD, hint, seen)) for _ in range(40)]
    assert set(chosen) == {PAGE, PAGE - 9}
    assert len(spread(table).unreserved(SHARD, Hint(), seen)) == PAGE


def test_reserved_messages_of_a_consumer_that_died_are_received() -> None:
    application = MemoryApplication()
    application.outbox.create_topic(Topic("jobs", shards=1))
    for _ in range(8):
        made = [Message(topic="jobs", body=b"x", id=application.ids.next()) for _ in range(25)]
        application.queue.send_many(made)
        application.clock.advance(0.02)
    application.clock.advance(1)
    hints = application.queue._context.store
    now = int(application.clock.now() * 1000)
    assert hints.reserve(("jobs", 0, 0), now - 1500, 1000, now) == now - 1500  # and is gone
    other = Queue(
        application.client,
        table=OUTBOX,
        deliveries_table=DELIVERIES,
        clock=application.clock,
        rng=random.Random(3),
    )
    found: set[str] = set()
    for _ in range(60):
        found |= {r.message.id for r in other.receive("jobs", 10, 600)}
    assert len(found) == 200


def test_ranges_of_the_table_follow_each_other_and_begin_anew_behind_the_newest() -> None:
    application = MemoryApplication()
    application.outbox.create_topic(Topic("jobs", shards=1))
    application.queue.receive("jobs")
    store, shard = application.queue._context.store, ("jobs", 0, 0)
    assert [store.reserve(shard, 1000, 50, 1200) for _ in range(3)] == [1000, 1050, 1100]
    assert store.reserve(shard, 1500, 50, 2000) == 1500  # the hint has passed the others
    assert store.reserve(shard, 1000, 50, 1200) == 1000  # nothing is newer

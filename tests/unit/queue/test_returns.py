"""Messages come back in time: ended claims and delays beside much that is in flight."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

import pytest
from fairbox import Message, Queue, StaleReceipt, Topic
from fairbox.errors import Throttled, Unreadable
from fairbox.model.ids import IdGenerator
from fairbox.model.messages import MessageRef
from fairbox.tables.hints import SHARDS_A_ROW, Hint, hint_values, read_hint
from fairbox.tables.item_size import item_size
from fairbox.tables.keys import hint_key
from fairbox.tables.segments import (
    MOST,
    ClaimEnd,
    Segment,
    SegmentRows,
    joined,
    read_segment,
    segment_item,
    segment_of,
    segments_of,
)
from fairbox.testing import CostMeter, ManualClock
from fairbox.testing.application import DELIVERIES, OUTBOX, MemoryApplication

if TYPE_CHECKING:
    from collections.abc import Callable

    from fairbox import Received

LATE_SECONDS: Final = 2.0
LONG: Final = 3600.0


class Overtaken:
    """A client whose next claims come after somebody else's work."""

    by: Callable[[], object] | None = None

    def __init__(self, client: Any) -> None:
        self._client = client

    def __getattr__(self, name: str) -> Any:
        return getattr(self._client, name)

    def batch_execute_statement(self, **request: Any) -> Any:
        work, self.by = self.by, None
        if work is not None:
            work()
        return self._client.batch_execute_statement(**request)


class Shop(MemoryApplication):
    """An application with a topic, whose consumer polls and sees time pass."""

    def __init__(self, shards: int = 1) -> None:
        super().__init__(wrap=CostMeter)
        self.outbox.create_topic(Topic("jobs", shards=shards))

    def send(self, count: int, **more: Any) -> None:
        made = [
            Message(topic="jobs", body=b"x" * 500, id=self.ids.next(), **more) for _ in range(count)
        ]
        for start in range(0, count, 25):
            self.queue.send_many(made[start : start + 25])
        self.clock.advance(1)

    def hold(self, count: int, seconds: float = LONG) -> list[Received]:
        held: list[Received] = []
        for _ in range(count):  # shards that are empty by now give nothing
            held += self.queue.receive("jobs", min(100, count - len(held)), seconds)
            if len(held) == count:
                return held
        raise AssertionError(f"{len(held)} of {count}")

    def wait_for(self, count: int, seconds: float = 60, timeout: float = LONG) -> list[Received]:
        """Poll until so many messages came; nothing is acknowledged."""
        found: list[Received] = []
        end = self.clock.now() + seconds
        while len(found) < count and self.clock.now() < end:
            found += self.queue.receive("jobs", 10, timeout)
            self.clock.advance(0.1)
        return found

    def other(self, clock: ManualClock | None = None, client: Any = None, seed: int = 7) -> Queue:
        return Queue(
            client or self.client,
            table=OUTBOX,
            deliveries_table=DELIVERIES,
            clock=clock or self.clock,
            rng=random.Random(seed),
        )


def crash_among(shop: Shop, held: int, visibility: float = 30) -> Received:
    """Hold so many, crash with one of them, and let all ids be old."""
    shop.send(held + 1)
    shop.hold(held // 2)
    (crashed,) = shop.hold(1, visibility)
    shop.hold(held - held // 2)
    return crashed


@pytest.mark.parametrize(
    ("held", "shards"),
    [(20, 1), (300, 1), (1000, 1), (1000, 8), pytest.param(10_000, 1, marks=pytest.mark.extended)],
)
def test_a_crashed_consumers_message_comes_back_in_time(held: int, shards: int) -> None:
    shop = Shop(shards)
    crashed = crash_among(shop, held)
    shop.clock.set(crashed.visible_at / 1000 - 1)
    assert shop.wait_for(1, seconds=0.9) == []
    shop.client.reset()
    (back,) = shop.wait_for(1)
    assert back.message.id == crashed.message.id
    assert shop.clock.now() - crashed.visible_at / 1000 <= LATE_SECONDS


@pytest.mark.parametrize("held", [20, 300, 1000])
def test_a_return_reads_little(held: int) -> None:
    shop = Shop()
    crashed = crash_among(shop, held)
    shop.clock.set(crashed.visible_at / 1000 + LATE_SECONDS)
    empty = 0.5 + 0.5 + 1  # the hint row, the lane behind it, the version of the topics
    shop.client.reset()
    assert len(shop.queue.receive("jobs", 10, LONG)) == 1
    reading = shop.client.reading()
    assert reading.rru <= empty + 5
    assert reading.wru <= 5  # a claim, lease and end of the look, a segment or two


def test_many_that_crash_at_once_come_back_in_time() -> None:
    shop = Shop()
    shop.send(600)
    shop.hold(200)
    crashed = shop.hold(200, 30)
    shop.hold(200)
    shop.clock.set(crashed[-1].visible_at / 1000)
    back = shop.wait_for(200, seconds=30)
    assert {r.message.id for r in back} == {r.message.id for r in crashed}
    assert shop.clock.now() - crashed[-1].visible_at / 1000 <= 20 * 0.1 + LATE_SECONDS


def test_a_message_that_was_extended_comes_back_when_its_extension_ends() -> None:
    shop = Shop()
    shop.send(300)
    held = shop.hold(300, 30)
    shop.queue.extend(held[150].receipt, 50)
    for received in held[:150] + held[151:]:
        shop.queue.extend(received.receipt, LONG)
    ends = shop.clock.now() + 50
    shop.clock.advance(48)
    assert shop.wait_for(1, seconds=1.5) == []
    (back,) = shop.wait_for(1)
    assert back.message.id == held[150].message.id
    assert shop.clock.now() - ends <= LATE_SECONDS


def test_a_message_that_is_held_shorter_than_before_comes_back_in_time() -> None:
    shop = Shop()
    shop.send(300)
    held = shop.hold(300)
    shop.queue.extend(held[150].receipt, 5)
    shop.clock.advance(5)
    (back,) = shop.wait_for(1)
    assert back.message.id == held[150].message.id
    with pytest.raises(StaleReceipt):
        shop.queue.extend(held[150].receipt, 5)


@pytest.mark.parametrize(("delay", "least"), [(0, 0), (20, 20)])
def test_a_message_that_was_given_back_comes_in_time_and_little_is_read(
    delay: float, least: float
) -> None:
    shop = Shop()
    shop.send(1000)
    held = shop.hold(1000)
    shop.queue.nack(held[500].receipt, delay)
    began = shop.clock.now()
    shop.client.reset()
    (back,) = shop.wait_for(1)
    assert back.message.id == held[500].message.id
    assert least <= shop.clock.now() - began <= least + LATE_SECONDS
    polls = 10 * (least + 2)
    assert shop.client.reading().rru <= 5 + 2 * polls  # the hint and the lane behind it, each time


def test_messages_that_were_released_come_back_at_once() -> None:
    shop = Shop()
    shop.send(300)
    held = shop.hold(300)
    shop.queue.release([r.receipt for r in held[100:110]])
    back = shop.queue.receive("jobs", 10, LONG)
    assert {r.message.id for r in back} == {r.message.id for r in held[100:110]}


def test_delayed_messages_come_in_time_behind_many_that_are_in_flight() -> None:
    shop = Shop()
    shop.send(500, delay=30)
    shop.clock.advance(40)
    assert len(shop.wait_for(500)) == 500
    shop.send(1, delay=20)
    due = shop.clock.now() + 19
    shop.clock.advance(18)
    assert len(shop.wait_for(1)) == 1
    assert shop.clock.now() - due <= LATE_SECONDS
    shop.client.reset()
    assert shop.queue.receive("jobs", 10, LONG) == []
    assert shop.client.reading().rru <= 6


def test_a_delayed_message_that_commits_behind_others_is_found_within_two_minutes() -> None:
    """No relay saw it, and its sender's clock is late."""
    shop = Shop()
    shop.send(500, delay=30)
    shop.clock.advance(40)
    assert len(shop.wait_for(500)) == 500
    slow = ManualClock(shop.clock.now() - 60)
    ids = IdGenerator(slow, random.Random(1).getrandbits)
    late = Message(topic="jobs", body=b"", id=ids.next(), delay=1)
    shop.other(slow).send(late)
    (back,) = shop.wait_for(1, seconds=120)
    assert back.message.id == late.id


def test_a_scan_of_much_that_is_in_flight_writes_little() -> None:
    shop = Shop()
    shop.send(2000)
    shop.hold(2000)
    shop.clock.advance(61)
    shop.client.reset()
    for _ in range(100):
        assert shop.queue.receive("jobs", 10, LONG) == []
        shop.clock.advance(0.05)
    assert shop.client.reading().wru <= 15
    shop.client.reset()
    for _ in range(600):
        shop.queue.receive("jobs", 10, LONG)
        shop.clock.advance(0.05)
    reading = shop.client.reading()
    assert reading.wru <= 30


def test_a_crash_with_a_delayed_message_is_over_in_time() -> None:
    shop = Shop()
    shop.send(500, delay=30)
    shop.clock.advance(40)
    held = shop.wait_for(490)
    crashed = shop.queue.receive("jobs", 10, 30)
    assert len(held) + len(crashed) == 500
    shop.wait_for(1, seconds=5)
    shop.clock.set(crashed[0].visible_at / 1000)
    back = shop.wait_for(10)
    assert {r.message.id for r in back} == {r.message.id for r in crashed}
    assert shop.clock.now() - crashed[0].visible_at / 1000 <= LATE_SECONDS


def test_a_look_that_dies_is_done_by_another_process() -> None:
    shop = Shop()
    crashed = crash_among(shop, 300)
    shop.clock.set(crashed.visible_at / 1000 + 1)

    class Dead(Exception):
        pass

    class Dying:
        def __init__(self, client: Any) -> None:
            self.client = client

        def __getattr__(self, name: str) -> Any:
            return getattr(self.client, name)

        def query(self, **request: Any) -> Any:
            if request["ExpressionAttributeValues"][":pk"]["S"].startswith("segments#"):
                raise Dead
            return self.client.query(**request)

    with pytest.raises(Dead):
        shop.other(client=Dying(shop.client)).receive("jobs", 10, LONG)
    (back,) = shop.wait_for(1)
    assert back.message.id == crashed.message.id
    assert shop.clock.now() - crashed.visible_at / 1000 <= 1 + LATE_SECONDS


@pytest.mark.parametrize("fails", [1, 2, 3, 4, 5])
def test_a_look_may_end_behind_any_of_its_calls(fails: int) -> None:
    """The process dies before its n-th call; nothing is lost, all comes back in time."""
    shop = Shop()
    shop.send(300)
    shop.hold(100)
    crashed = shop.hold(20, 30)
    shop.hold(180)
    shop.clock.set(crashed[-1].visible_at / 1000 + 1)

    class Dead(Exception):
        pass

    class Dying:
        left = fails

        def __getattr__(self, name: str) -> Any:
            method = getattr(shop.client, name)

            def call(**request: Any) -> Any:
                if not self.left:
                    raise Dead
                self.left -= 1
                return method(**request)

            return call

    other = shop.other()
    other.topic("jobs")
    dying = Dying()
    other.outbox.tables.calls.client = dying
    try:
        got = other.receive("jobs", 10, 20)
    except Dead:
        got = []
    # claims of the dead process end after 20 s
    back = shop.wait_for(20 - len(got), seconds=40, timeout=LONG)
    assert {r.message.id for r in back} | {r.message.id for r in got} == {
        r.message.id for r in crashed
    }


def test_what_nobody_filed_is_found_within_a_minute(monkeypatch: pytest.MonkeyPatch) -> None:
    """As after a release that files nothing, or writes that were lost."""
    monkeypatch.setattr(SegmentRows, "statements", lambda *_: [])
    shop = Shop()
    crashed = crash_among(shop, 300)
    shop.clock.set(crashed.visible_at / 1000)
    (back,) = shop.wait_for(1, seconds=120)
    assert back.message.id == crashed.message.id
    assert shop.clock.now() - crashed.visible_at / 1000 <= 60 + 2 * 30


def test_a_receive_hands_out_what_it_claimed_though_segments_are_throttled(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    shop = Shop()
    crashed = crash_among(shop, 300)
    shop.clock.set(crashed.visible_at / 1000 + 1)

    def throttled(_rows: Any, _shard: Any, segments: Any) -> None:
        if segments:
            raise Throttled("batch_execute_statement")

    with monkeypatch.context() as patched:
        patched.setattr(SegmentRows, "file", throttled)
        (back,) = shop.queue.receive("jobs", 10, 30)
    assert back.message.id == crashed.message.id
    shop.clock.set(back.visible_at / 1000)
    (again,) = shop.wait_for(1)
    assert again.message.id == crashed.message.id
    assert shop.clock.now() - back.visible_at / 1000 <= LATE_SECONDS


def test_a_claim_that_another_won_for_a_shorter_time_ends_in_time() -> None:
    shop = Shop()
    shop.send(10)
    shop.queue.receive("jobs", 1, LONG)

    client = Overtaken(shop.client)
    slow = shop.other(client=client)
    slow.topic("jobs")
    short: list[Received] = []
    client.by = lambda: short.extend(shop.queue.receive("jobs", 2, 10))
    assert len(slow.receive("jobs", 9, LONG)) == 7
    assert len(short) == 2  # too few for it to move the hint itself
    shop.clock.set(short[0].visible_at / 1000)
    back = shop.wait_for(2)
    assert {r.message.id for r in back} == {r.message.id for r in short}
    assert shop.clock.now() - short[0].visible_at / 1000 <= LATE_SECONDS


def test_messages_come_oldest_first_though_others_won_some() -> None:
    shop = Shop()
    shop.queue.receive("jobs")
    shop.send(15)
    for seed in range(4):
        client = Overtaken(shop.client)
        slow = shop.other(client=client, seed=seed)
        slow.topic("jobs")
        client.by = lambda: shop.queue.receive("jobs", 3, 5)
        ids = [one.message.id for one in slow.receive("jobs", 10, 5)]
        assert len(ids) >= 7  # three were lost, and the rest left to who was faster
        assert ids == sorted(ids)
        shop.clock.advance(8)


def test_who_loses_every_claim_still_gets_what_is_left() -> None:
    shop = Shop()
    shop.queue.receive("jobs")
    shop.send(5)
    client = Overtaken(shop.client)
    slow = shop.other(client=client, seed=1)
    slow.topic("jobs")
    client.by = lambda: shop.queue.receive("jobs", 3, 5)
    assert len(slow.receive("jobs", 3, 5)) == 2


def test_a_message_given_back_under_a_slow_clock_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    shop = Shop()
    shop.send(300)
    held = shop.hold(300, 20)
    for received in held:
        shop.queue.extend(received.receipt, LONG)
    shop.clock.advance(25)
    shop.wait_for(1, seconds=1)  # segments have been checked up to now
    slow = ManualClock(shop.clock.now() - 3)
    shop.other(slow).nack(held[100].receipt, 0)
    (back,) = shop.wait_for(1)
    assert back.message.id == held[100].message.id


def keys(count: int) -> list[str]:
    ids = IdGenerator(ManualClock(), random.Random(1).getrandbits)
    return [ids.next() for _ in range(count)]


def test_claims_that_end_together_are_one_segment() -> None:
    a, b, c, d = keys(4)
    passed = [ClaimEnd(a, 1000), ClaimEnd(b, 1900), ClaimEnd(c, 60_000), ClaimEnd(d, 1000)]
    assert segments_of(passed, "") == [
        Segment(1900, "", b),
        Segment(60_000, b, c),
        Segment(1000, c, d),
    ]


@pytest.mark.parametrize("seed", range(30))
def test_segments_cover_what_is_passed_and_none_is_late(seed: int) -> None:
    rng = random.Random(seed)
    passed = [
        ClaimEnd(key, rng.choice([5, 10, 3000, 90_000])) for key in keys(rng.randrange(1, 60))
    ]
    segments = segments_of(passed, "")
    assert len(segments) <= MOST
    assert [s.after for s in segments] == ["", *(s.last for s in segments[:-1])]
    assert segments[-1].last == passed[-1].key
    for held in passed:
        (of,) = [s for s in segments if s.after < held.key <= s.last]
        assert of.end <= held.until + 1000


def test_segments_that_touch_are_read_as_one() -> None:
    a, b, c, d = keys(4)
    parts = [Segment(5, a, b), Segment(3, "", a), Segment(9, c, d), Segment(4, a, b)]
    assert joined(parts) == [Segment(3, "", b), Segment(9, c, d)]


def test_a_segment_is_read_as_it_was_filed() -> None:
    a, b = keys(2)
    for segment in (Segment(5, "", a), Segment(10**12, a, b)):
        assert read_segment(segment_item(("jobs", 1, 2), segment)) == segment
    ref = MessageRef("jobs", 1, 2, b, due=77)
    one = segment_of(ref, 80)
    assert (one.lane, one.last) == ("later", f"{77:015d}#{b}")
    assert segment_of(replace(ref, due=None), 80).lane == "ready"


@pytest.mark.parametrize("sk", [{"S": "x"}, {"S": "1/2"}, {"S": "a/b/c"}, {"N": "1"}])
def test_a_damaged_segment_is_refused(sk: dict[str, str]) -> None:
    with pytest.raises(Unreadable):
        read_segment({"pk": {"S": "segments#jobs#0#0"}, "sk": sk})


def test_a_hint_is_read_as_it_was_written_and_the_row_of_sixteen_shards_is_a_write_unit() -> None:
    (key,) = keys(1)
    now = 1_800_000_000_000
    hint = Hint(key, now, now + 1, now + 2)
    for one in (hint, Hint(), Hint(next_check=5), replace(hint, later=f"{now:015d}#{key}")):
        assert read_hint(hint_values(one, 3), 3) == one
    row = hint_key("jobs" * 30, 1, 0)
    for shard in range(SHARDS_A_ROW):
        row |= hint_values(hint, shard)
    assert item_size(row) <= 1024


def test_a_hint_with_damaged_times_is_as_one_without() -> None:
    item = hint_values(Hint(next_check=5, scan_at=7), 0)
    for damaged in ({"B": b""}, {"B": b"xx"}, {"B": b"x" * 20}, {"S": "x"}):
        assert read_hint(item | {"g0": damaged}, 0).next_check == 5


def test_a_page_of_damaged_segment_rows_stops_nothing() -> None:
    shop = Shop()
    crashed = crash_among(shop, 300)
    shop.clock.set(crashed.visible_at / 1000)
    for n in range(70):  # a page has sixty
        row = segment_item(("jobs", 0, 0), Segment(crashed.visible_at - 10_000 - n, "", "x"))
        row["sk"]["S"] = row["sk"]["S"].removesuffix("x") + "more/parts"
        shop.engine.put_item(TableName=DELIVERIES, Item=row)
    (back,) = shop.wait_for(1)
    assert back.message.id == crashed.message.id


def test_a_damaged_segment_row_stops_nothing() -> None:
    shop = Shop()
    crashed = crash_among(shop, 300)
    shop.engine.put_item(
        TableName=DELIVERIES, Item={"pk": {"S": "segments#jobs#0#0"}, "sk": {"S": "junk"}}
    )
    shop.clock.set(crashed.visible_at / 1000)
    (back,) = shop.wait_for(1)
    assert back.message.id == crashed.message.id

"""Receivers that wait: what they read, how soon they receive, and what they do without a relay."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import pytest
from fairbox import Consumer, Message, MessageRef, Outbox, Queue, Subscription, Topic
from fairbox.codec.keys import waiting_key
from fairbox.dispatch.waiting_news import COPY_MS, WaitingNews
from fairbox.errors import Throttled, TopicIsPushed
from fairbox.model.ids import time_of
from fairbox.model.waiting import WaitingRow
from fairbox.queue import waiting
from fairbox.queue.lane_heads import LaneHeads
from fairbox.queue.watch import Watch
from fairbox.testing import Fault, FaultyDynamoDB
from fairbox.testing.application import DELIVERIES, OUTBOX, MemoryApplication

from tests.support.timeline import SlowClient, Stage

if TYPE_CHECKING:
    from collections.abc import Callable

    from fairbox import Received
    from fairbox.model.topics import Ordering

WIDTHS = (1, 8, 64, 300)
ORDERINGS = pytest.mark.parametrize("ordering", ["none", "key"])


class Scene(Stage):
    """A stage with one topic: a sender, a relay if it runs, and a receiver in virtual time."""

    def __init__(self, shards: int = 8, ordering: Ordering = "none", *, relay: bool = True) -> None:
        super().__init__()
        self.application.outbox.create_topic(Topic("jobs", shards=shards, ordering=ordering))
        if relay:
            self.relay()

    @property
    def row(self) -> dict[str, Any]:
        """The waiting row."""
        answer = self.application.engine.get_item(TableName=OUTBOX, Key=waiting_key("jobs"))
        return dict(answer.get("Item", {}))

    def send(self, count: int = 1, **more: Any) -> None:
        """Send messages, each under a key of its own."""
        for _ in range(count):
            made = self.application.ids.next()
            self.application.queue.send(
                Message(topic="jobs", body=b"x", id=made, partition_key=made, **more)
            )

    def after(self, seconds: float, event: Callable[[], object]) -> float:
        """Let an event happen in so many seconds; return when that is."""
        at = self.clock.now() + seconds
        self.clock.at(at, event)
        return at

    def wait(self, seconds: float) -> None:
        """Wait for messages in vain."""
        end = self.clock.now() + seconds
        while self.clock.now() < end:
            assert self.queue.receive("jobs", wait=20) == []

    def next(self, seconds: float = 120.0, *, timeout: float = 30) -> list[Received]:
        """Wait for messages; fail if none come in time."""
        end = self.clock.now() + seconds
        while self.clock.now() < end:
            if found := self.queue.receive("jobs", 10, timeout, wait=20):
                return found
        raise AssertionError("nothing was received")

    def other(self) -> Queue:
        """The queue of another process, whose calls take no time."""
        client = self.application.client
        outbox = Outbox(client, table=OUTBOX, deliveries_table=DELIVERIES, clock=self.clock)
        return Queue.over(outbox)


@ORDERINGS
def test_a_long_poll_of_three_hundred_shards_finds_the_one_message(ordering: Ordering) -> None:
    for seed in range(4):
        scene = Scene(300, ordering, relay=False)
        for _ in range(seed):
            scene.application.ids.next()
        scene.send()
        began = scene.clock.now()
        assert len(scene.queue.receive("jobs", wait=20)) == 1
        assert scene.clock.now() - began < 10  # a call takes 5 ms, and nobody has scanned before


@ORDERINGS
def test_a_loop_without_waits_ends_only_when_everything_was_received(ordering: Ordering) -> None:
    scene = Scene(300, ordering, relay=False)
    scene.send(20)
    found: list[str] = []
    while received := scene.queue.receive("jobs"):
        found += [one.message.id for one in received]
        scene.queue.ack([one.receipt for one in received])
    assert len(set(found)) == 20


def test_a_loop_without_waits_does_not_end_before_a_message_behind_many_in_flight() -> None:
    scene = Scene(1, relay=False)
    scene.send(150)  # too young for the hint to pass them
    other = scene.other()
    held = [r for _ in range(30) for r in other.receive("jobs", visibility_timeout=3600)]
    assert len(held) == 150
    scene.send()
    assert len(scene.queue.receive("jobs")) == 1


@pytest.mark.extended  # many worlds
@pytest.mark.parametrize("shards", WIDTHS)
@ORDERINGS
def test_an_idle_receiver_reads_fifteen_units_a_minute(shards: int, ordering: Ordering) -> None:
    scene = Scene(shards, ordering)
    scene.wait(60)
    scene.reset()
    began = scene.clock.now()
    scene.wait(600)
    minutes = (scene.clock.now() - began) / 60
    assert scene.rru / minutes <= 15
    assert scene.calls / minutes <= 30


@pytest.mark.extended  # many worlds
@ORDERINGS
def test_a_receiver_that_waited_for_long_receives_within_seconds(ordering: Ordering) -> None:
    scene = Scene(300, ordering)
    scene.wait(60)
    times = []
    for _ in range(20):
        at = scene.after(scene.rng.uniform(90, 110), scene.send)
        (one,) = scene.next(150)
        times.append(scene.clock.now() - at)
        scene.queue.ack(one.receipt)
    assert max(times) < 3.3  # 1 s until the relay tells, 2.13 s until the row is read again


@pytest.mark.extended  # many worlds
def test_a_message_just_before_news_are_relied_on_is_received() -> None:
    for tenth in range(60):
        scene = Scene(64)
        at = scene.after(0.2 * tenth, scene.send)
        assert len(scene.next(30)) == 1
        assert scene.clock.now() - at < 3


def test_without_a_relay_all_shards_are_read_on() -> None:
    scene = Scene(8, relay=False)
    scene.wait(400)
    at = scene.after(33.3, scene.send)
    assert len(scene.next(60)) == 1
    assert scene.clock.now() - at < 2
    assert "wr" not in scene.row


def test_a_relay_of_the_last_release_is_not_relied_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fairbox.dispatch.waiting_news.WaitingNews.answer", lambda *_: None)
    monkeypatch.setattr("fairbox.dispatch.waiting_news.WaitingNews.tell", lambda *_: None)
    scene = Scene(8)
    scene.wait(60)
    at = scene.after(15.3, scene.send)
    assert len(scene.next(60)) == 1
    assert scene.clock.now() - at < 2


def test_a_relay_that_stops_is_found_out_within_minutes(monkeypatch: pytest.MonkeyPatch) -> None:
    scene = Scene(8)
    scene.wait(60)
    assert "wr" in scene.row
    monkeypatch.setattr(scene.application, "relay", lambda **_: 0)
    at = scene.after(10, scene.send)
    (one,) = scene.next(400)
    assert scene.clock.now() - at < 330
    scene.queue.ack(one.receipt)
    scene.wait(60)
    at = scene.after(15, scene.send)  # from now on it does without
    assert len(scene.next(60)) == 1
    assert scene.clock.now() - at < 2


def test_news_that_were_lost_are_made_up_for_and_trusted_less(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    scene = Scene(1)
    scene.wait(60)
    with monkeypatch.context() as lost:
        lost.setattr("fairbox.dispatch.waiting_news.WaitingNews.tell", lambda *_: None)
        at = scene.after(5, scene.send)
        (one,) = scene.next(300)
        assert scene.clock.now() - at < 200
        scene.queue.ack(one.receipt)
        scene.wait(60)
        at = scene.after(15, scene.send)
        assert len(scene.next(60)) == 1
        assert scene.clock.now() - at < 2


@ORDERINGS
def test_a_claim_that_ends_while_others_wait_is_taken_over(ordering: Ordering) -> None:
    scene = Scene(8, ordering)
    scene.wait(60)
    other = scene.other()

    def crash() -> None:
        scene.send()
        assert len(other.receive("jobs", 10, 50)) == 1

    at = scene.after(10, crash)
    assert len(scene.next(200)) == 1
    assert 50 <= scene.clock.now() - at < 120


@ORDERINGS
def test_what_was_in_flight_before_anybody_waited_is_taken_over(ordering: Ordering) -> None:
    scene = Scene(8, ordering)
    scene.send()
    assert len(scene.other().receive("jobs", 10, 100)) == 1
    at = scene.clock.now() + 100
    assert len(scene.next(400)) == 1
    assert 0 <= scene.clock.now() - at < 62


@ORDERINGS
def test_what_another_waiting_process_gives_back_is_received_soon(ordering: Ordering) -> None:
    scene = Scene(8, ordering)
    scene.wait(60)
    other = scene.other()
    other.receive("jobs", wait=6)  # it knows that somebody waits
    held: list[Received] = []

    def take() -> None:
        scene.send()
        held.extend(other.receive("jobs", 10, 600))

    scene.after(5, take)
    at = scene.after(35, lambda: other.nack(held[0].receipt, 0))
    assert len(scene.next(200)) == 1
    assert scene.clock.now() - at < 3


@pytest.mark.parametrize("delay", [8, 45, 500])
def test_a_delayed_message_is_received_when_it_is_due(delay: float) -> None:
    scene = Scene(64)
    scene.wait(60)
    at = scene.after(5, partial(scene.send, delay=delay))
    assert len(scene.next(600)) == 1
    assert -0.1 <= scene.clock.now() - at - delay < 4


def test_a_paused_topic_gives_nothing_until_it_is_resumed() -> None:
    scene = Scene(8)
    scene.wait(60)
    scene.application.outbox.pause_topic("jobs")
    scene.after(5, scene.send)
    scene.wait(100)
    at = scene.after(7, lambda: scene.application.outbox.resume_topic("jobs"))
    assert len(scene.next()) == 1
    assert scene.clock.now() - at < 6


def test_a_message_in_a_shard_that_a_resize_added_is_received() -> None:
    scene = Scene(1)
    scene.wait(60)
    scene.application.outbox.resize("jobs", 16)
    scene.wait(100)
    at = scene.after(5, partial(scene.send, 30))
    found: set[str] = set()
    while len(found) < 30:
        received = scene.next(60)
        found |= {one.message.id for one in received}
        scene.queue.ack([one.receipt for one in received])
    assert scene.clock.now() - at < 6


def test_a_topic_with_a_subscription_is_refused_after_some_minutes_or_with_its_next_message() -> (
    None
):
    for message in (True, False):
        scene = Scene(8)
        scene.wait(60)
        scene.application.outbox.add_subscription(Subscription("jobs", "s", "sqs:s"))
        at = scene.clock.now()
        if message:
            scene.application.store.refresh()
        with pytest.raises(TopicIsPushed):
            scene.wait(400)
        assert scene.clock.now() - at < 200


def test_two_receivers_share_the_row_and_each_message_goes_to_one() -> None:
    scene = Scene(64)
    other = Queue.over(
        Outbox(
            SlowClient(scene.application.client, scene.clock),
            table=OUTBOX,
            deliveries_table=DELIVERIES,
            clock=scene.clock,
        )
    )
    scene.wait(40)
    assert other.receive("jobs", wait=30) == []
    scene.send(20)
    got: list[str] = []
    for turn in range(200):
        queue = other if turn % 2 else scene.queue
        found = queue.receive("jobs", 2, wait=6)
        got += [one.message.id for one in found]
        queue.ack([one.receipt for one in found])
        if len(got) == 20:
            break
    assert len(set(got)) == len(got) == 20


def test_a_throttled_waiting_row_fails_no_receive() -> None:
    application = MemoryApplication()
    faulty = FaultyDynamoDB(application.engine, application.rng)
    application.outbox.create_topic(Topic("jobs", shards=8))
    queue = Queue(faulty, table=OUTBOX, deliveries_table=DELIVERIES, clock=application.clock)
    refused = {"get": 0}
    get_item, update_item = faulty.get_item, faulty.update_item

    def throttled(call: Any, **request: Any) -> Any:
        if request["Key"] == waiting_key("jobs"):
            refused["get"] += 1
            faulty.next("get_item", Fault.THROTTLED)
            return get_item(**request)
        return call(**request)

    faulty.__dict__["get_item"] = partial(throttled, get_item)
    faulty.__dict__["update_item"] = partial(throttled, update_item)
    assert queue.receive("jobs", wait=20) == []
    application.queue.send(Message(topic="jobs", body=b"x"))
    assert len(queue.receive("jobs", wait=20)) == 1
    assert refused["get"] > 0


def test_while_nobody_waits_the_relay_writes_nothing_and_reads_half_a_unit_a_second() -> None:
    scene = Scene(8, relay=False)
    scene.send(20)
    scene.application.relay()
    assert scene.row == {}


def test_a_deleted_topic_leaves_no_waiting_row() -> None:
    scene = Scene(8)
    scene.wait(30)
    assert scene.row
    scene.application.outbox.delete_topic("jobs")
    assert scene.row == {}


def test_nobody_relies_on_news_too_early() -> None:
    scene = Scene(8)  # its relay's process has just read that nobody waits, and keeps that for 1 s
    news = WaitingNews(scene.application.store, scene.clock)
    news.inserted(MessageRef("jobs", 0, 3, scene.application.ids.next()))
    news.tell()
    scene.queue.receive("jobs", wait=5)
    told = scene.row.get("wn3")
    news.inserted(MessageRef("jobs", 0, 3, scene.application.ids.next()))
    news.tell()
    assert told is None
    assert scene.row["wn3"] == {"N": "1"}
    assert waiting.START_MS > COPY_MS


def test_a_stream_of_messages_is_received_at_the_pace_of_rounds() -> None:
    scene = Scene(8)
    scene.wait(60)
    sent = 300
    for number in range(sent):
        scene.after(5 + 0.05 * number, scene.send)
    began = scene.clock.now() + 5
    times: list[float] = []
    while len(times) < sent:
        received = scene.next(60)
        now = scene.clock.now()
        times += [now - time_of(one.message.id) / 1000 for one in received]
        scene.queue.ack([one.receipt for one in received])
    assert scene.clock.now() - began < 0.05 * sent + 2
    assert sorted(times)[sent // 2] < 0.3  # the relay alone would take twice as long


def test_a_consumer_without_work_reads_fifteen_units_a_minute() -> None:
    scene = Scene(64)
    steps = Consumer(scene.queue, "jobs", lambda _: None)._steps

    def idle(seconds: float) -> int:
        found = 0
        end = scene.clock.now() + seconds
        while scene.clock.now() < end and not found:
            found = steps.receive(waiting=True)
            scene.clock.sleep(0.0 if found else 2.0 if steps.quiet is None else steps.quiet)
        return found

    assert idle(60) == 0
    scene.reset()
    assert idle(600) == 0
    assert (scene.rru / 10, scene.calls / 10) <= (15, 30)
    assert scene.calls / 10 <= 30
    at = scene.after(5, scene.send)
    assert idle(60) == 1
    assert scene.clock.now() - at < 3.3


@pytest.mark.parametrize("shards", WIDTHS)
def test_an_empty_receive_costs_a_whole_round(shards: int) -> None:
    for ordering, lane in (("none", 0.5), ("key", 1.0)):
        scene = Scene(shards, ordering, relay=False)  # type: ignore[arg-type]
        scene.queue.receive("jobs")
        scene.reset()
        assert scene.queue.receive("jobs") == []
        rows = -(-shards // 16) if ordering == "none" else 0
        # eight shards a call at most, each of which reads its hint row; then the version of topics
        assert scene.rru <= lane * shards + 0.5 * max(rows, -(-shards // 8) + rows) + 5


def test_news_are_kept_when_the_call_after_them_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    scene = Scene(8)
    scene.wait(60)
    pulled = scene.queue._context.pulled
    failed: list[str] = []

    def once(name: str) -> Any:
        if not failed and scene.queue._context.now >= 1000 * at:
            failed.append(name)
            raise Throttled("get_item")
        return pulled(name)

    monkeypatch.setattr(scene.queue._context.waiting, "_pulled", once)
    at = scene.after(5, scene.send)
    with pytest.raises(Throttled):
        scene.next(20)
    assert len(scene.next(20)) == 1
    assert scene.clock.now() - at < 4


def test_a_look_that_fails_is_made_again_and_consistent(monkeypatch: pytest.MonkeyPatch) -> None:
    scene = Scene(8)
    scene.wait(60)
    look = LaneHeads.look
    modes: list[bool] = []

    def twice(self: LaneHeads, topic: Any, place: Any, *, consistent: bool) -> Any:
        modes.append(consistent)
        if len(modes) == 1:
            raise Throttled("query")
        return look(self, topic, place, consistent=consistent)

    monkeypatch.setattr(LaneHeads, "look", twice)
    scene.after(5, scene.send)
    with pytest.raises(Throttled):
        scene.next(20)
    assert len(scene.next(20)) == 1
    assert modes == [True, True]


def test_news_that_come_during_a_look_are_not_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    scene = Scene(8, relay=False)
    watch = Watch()
    scene.queue._context.waiting._watches["jobs"] = watch
    topic = scene.queue._context.pulled("jobs")
    watch.begin(WaitingRow(until=scene.queue._context.now + 600_000, answered=1), [(0, 0)])
    look = LaneHeads.look

    def meanwhile(self: LaneHeads, *given: Any, consistent: bool) -> Any:
        time = look(self, *given, consistent=consistent)
        watch.name((0, 0), scene.queue._context.now)  # another thread heard of a message
        return time

    monkeypatch.setattr(LaneHeads, "look", meanwhile)
    scene.queue._context.waiting._look(topic, watch, lambda *_: [])
    assert (0, 0) in watch.looks
    assert (0, 0) in watch.named

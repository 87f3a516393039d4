"""Receivers that wait: rounds of all shards, what they read, and how soon they receive."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import pytest
from fairbox import Consumer, Message, Outbox, Queue, Subscription, Topic
from fairbox.errors import TopicIsPushed
from fairbox.testing.application import DELIVERIES, OUTBOX

from tests.support.timeline import Stage

if TYPE_CHECKING:
    from collections.abc import Callable

    from fairbox import Received
    from fairbox.model.topic_states import TopicState
    from fairbox.model.topics import Ordering
    from fairbox.queue.rotation import Place, Round

WIDTHS = (1, 8, 64, 300)
ORDERINGS = pytest.mark.parametrize("ordering", ["none", "key"])


class Scene(Stage):
    """A stage with one topic: a sender, a relay if it runs, and a receiver in virtual time."""

    def __init__(
        self, shards: int = 8, ordering: Ordering = "none", *, relay: bool = False
    ) -> None:
        super().__init__()
        self.application.outbox.create_topic(Topic("jobs", shards=shards, ordering=ordering))
        if relay:
            self.relay()

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

    def next(self, seconds: float = 120.0) -> list[Received]:
        """Wait for messages; fail if none come in time."""
        end = self.clock.now() + seconds
        while self.clock.now() < end:
            if found := self.queue.receive("jobs", 10, wait=20):
                return found
        raise AssertionError("nothing was received")


@ORDERINGS
def test_a_long_poll_of_three_hundred_shards_finds_the_one_message(ordering: Ordering) -> None:
    for seed in range(4):
        scene = Scene(300, ordering)
        for _ in range(seed):
            scene.application.ids.next()
        scene.send()
        began = scene.clock.now()
        assert len(scene.queue.receive("jobs", wait=20)) == 1
        assert scene.clock.now() - began < 10  # a call takes 5 ms, and nobody has scanned before


@ORDERINGS
def test_a_loop_without_waits_ends_only_when_everything_was_received(ordering: Ordering) -> None:
    scene = Scene(300, ordering)
    scene.send(20)
    found: list[str] = []
    while received := scene.queue.receive("jobs"):
        found += [one.message.id for one in received]
        scene.queue.ack([one.receipt for one in received])
    assert len(set(found)) == 20


def test_a_loop_without_waits_does_not_end_before_a_message_behind_many_in_flight() -> None:
    scene = Scene(1)
    scene.send(150)  # too young for the hint to pass them
    client = scene.application.client
    other = Queue.over(Outbox(client, table=OUTBOX, deliveries_table=DELIVERIES, clock=scene.clock))
    held = [r for _ in range(30) for r in other.receive("jobs", visibility_timeout=3600)]
    assert len(held) == 150
    scene.send()
    assert len(scene.queue.receive("jobs")) == 1


@pytest.mark.parametrize("shards", WIDTHS)
def test_an_empty_receive_costs_a_whole_round(shards: int) -> None:
    lanes: dict[Ordering, float] = {"none": 0.5, "key": 1.0}
    for ordering, lane in lanes.items():
        scene = Scene(shards, ordering)
        scene.queue.receive("jobs")
        scene.reset()
        assert scene.queue.receive("jobs") == []
        rows = -(-shards // 16) if ordering == "none" else 0
        # eight shards a call at most, each of which reads its hint row; then the version of topics
        assert scene.rru <= lane * shards + 0.5 * max(rows, -(-shards // 8) + rows) + 5


@pytest.mark.parametrize(("shards", "most"), [(1, 80), (8, 280), (64, 1_800), (300, 2_300)])
@ORDERINGS
def test_an_idle_receiver_reads_a_round_in_two_seconds_or_fewer_shards_a_second(
    shards: int, most: float, ordering: Ordering
) -> None:
    scene = Scene(shards, ordering)
    scene.wait(70)
    scene.reset()
    began = scene.clock.now()
    scene.wait(60)
    assert scene.rru / ((scene.clock.now() - began) / 60) <= most


@pytest.mark.parametrize(("shards", "soon"), [(8, 2.5), (300, 15)])
def test_a_receiver_that_waited_for_long_receives_within_a_round(shards: int, soon: float) -> None:
    scene = Scene(shards)
    scene.wait(100)
    at = scene.after(33.3, scene.send)
    assert len(scene.next(90)) == 1
    assert scene.clock.now() - at < soon


@pytest.mark.parametrize("delay", [8, 45, 500])
def test_a_delayed_message_is_received_when_it_is_due(delay: float) -> None:
    scene = Scene(8, relay=True)
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


def test_a_topic_with_a_subscription_is_refused_within_seconds() -> None:
    scene = Scene(8)
    scene.wait(60)
    scene.application.outbox.add_subscription(Subscription("jobs", "s", "sqs:http://q/s"))
    at = scene.clock.now()
    with pytest.raises(TopicIsPushed):
        scene.wait(400)
    assert scene.clock.now() - at < 5


def test_a_consumer_of_a_wide_topic_receives_more_seldom_when_nothing_comes() -> None:
    scene = Scene(300)
    steps = Consumer(scene.queue, "jobs", lambda _: None)._steps
    pauses = []
    for _ in range(60):
        assert steps.receive(waiting=True) == 0
        pauses.append(steps.quiet)
        scene.clock.sleep(steps.quiet or 0)
    assert pauses[0] == 0.1
    assert pauses[-1] == 300 / 32


def test_a_round_ends_within_a_second_or_so_of_a_pause() -> None:
    scene = Scene(64)
    seen: list[Place] = []

    def take(_: TopicState, round_: Round) -> list[Received]:
        seen.append(round_.left.pop())
        scene.clock.advance(0.3)
        if len(seen) == 5:
            scene.application.outbox.pause_topic("jobs")
        return []

    assert scene.queue._context.rounds.read("jobs", take) == []
    assert len(seen) <= 5 + 4


def other_queue(scene: Scene) -> Queue:
    """Return the queue of another process, whose calls take no time."""
    client, clock = scene.application.client, scene.clock
    return Queue.over(Outbox(client, table=OUTBOX, deliveries_table=DELIVERIES, clock=clock))


def test_a_place_behind_young_messages_is_forgotten_when_others_pass_it() -> None:
    scene = Scene(1)
    scene.send(150)
    other = other_queue(scene)
    while other.receive("jobs", visibility_timeout=3600):
        pass
    assert scene.queue.receive("jobs") == []  # and remembers where they end
    scene.clock.advance(0.43)
    while other.receive("jobs", visibility_timeout=3600):
        pass  # the hint passes them all
    scene.send()
    assert len(scene.queue.receive("jobs")) == 1


def test_a_copy_of_a_hint_that_others_moved_back_hides_no_message() -> None:
    scene = Scene(1)
    late = scene.application.ids.next()
    scene.clock.advance(1)
    scene.send(20)
    scene.clock.advance(1)
    while scene.queue.receive("jobs", 5, visibility_timeout=3600):
        scene.send()  # so that the copy of the hint stays, and is behind `late`
        if scene.clock.now() > 1_760_000_002.5:
            break
    scene.application.queue.send(Message(topic="jobs", body=b"x", id=late))
    scene.application.queue._context.tables.hints.lower_after(("jobs", 0, 0), late)
    found: list[str] = []
    while received := scene.queue.receive("jobs", visibility_timeout=3600):
        found += [one.message.id for one in received]
    assert late in found

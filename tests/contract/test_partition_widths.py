"""Another number of partitions for a queue while messages flow, over both engines."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any

import pytest
from fairbox import (
    InvalidInput,
    Message,
    PartitionedQueue,
    Queue,
    ResizeUnderway,
    Subscription,
    Topic,
    TopicConflict,
    TopicIsPushed,
    Unavailable,
    UnknownTopic,
)
from fairbox.dispatch.ordered.resize_barrier import Cutover
from fairbox.model.epochs import Epoch
from fairbox.model.sharding import partition_name, partition_number

from tests.contract.rig import Rig

if TYPE_CHECKING:
    from fairbox import Outbox, Received
    from fairbox.client.queue_resize import WidthResult

KEYS = [f"key-{n}" for n in range(12)]


class QueueRig(Rig):
    """A rig with partitioned queue `email` of two partitions, ordered, two shards each."""

    def __post_init__(self) -> None:
        super().__post_init__()
        PartitionedQueue("email", 2).create(self.outbox, shards=2, ordering="key")
        self.process = self.another(self.clock)
        self.emails = PartitionedQueue.registered(self.process, "email")
        self.queue = Queue.over(self.process)

    @property
    def now(self) -> int:
        return int(self.clock.now() * 1000)

    def resize(self, partitions: int) -> WidthResult:
        """Resize, and let the cut pass."""
        result = self.outbox.resize_queue("email", partitions)
        self.clock.advance(result.since / 1000 - self.clock.now() + 0.1)
        return result

    def mail(self, key: str | None = None) -> Message:
        self.clock.advance(0.01)
        return self.message("email", partition_key=key)

    def send(self, *keys: str) -> list[str]:
        """Send a message of each key; return their topics."""
        refs = self.emails.send_many(self.queue, [self.mail(key) for key in keys])
        return [ref.topic for ref in refs]

    def receive(self, most: int = 10) -> list[Received]:
        """Receive once from each partition that the queue has or had."""
        return [one for name in self.emails.names for one in self.queue.receive(name, most, 600)]


@pytest.fixture
def rig(client: Any) -> QueueRig:
    return QueueRig(client)


def at(key: str, partitions: int) -> str:
    return partition_name("email", partition_number(key, partitions))


class TestAnnouncing:
    def test_routes_change_when_it_begins_and_not_before(self, rig: QueueRig) -> None:
        assert rig.send(*KEYS) == [at(key, 2) for key in KEYS]
        result = rig.emails.resize(rig.outbox, 5)
        assert (result.queue, result.before, result.partitions) == ("email", 2, 5)
        assert result.changed
        assert 60_000 <= result.since - rig.now <= 120_000
        rig.clock.advance(31)
        assert rig.send(*KEYS) == [at(key, 2) for key in KEYS]
        assert rig.emails.partitions == 2
        rig.clock.advance((result.since - rig.now) / 1000)
        assert rig.send(*KEYS) == [at(key, 5) for key in KEYS]
        assert rig.emails.partitions == 5
        assert [rig.emails.route_by_key(key)["topic"] for key in KEYS] == [
            at(key, 5) for key in KEYS
        ]
        assert {rig.emails.route_by_index(n)["topic"] for n in range(5)} == set(rig.emails.names)

    def test_new_partitions_have_the_settings_of_the_first(self, rig: QueueRig) -> None:
        rig.resize(3)
        first, new = (rig.outbox.topic(name).topic for name in ("email", "email__p2"))
        assert (new.shards, new.ordering, new.retention) == (2, "key", first.retention)
        assert new.partition is not None
        assert (new.partition.number, new.partition.count) == (2, 3)
        PartitionedQueue("email", 3).create(rig.outbox, shards=2, ordering="key")
        with pytest.raises(TopicConflict, match="resize changes the number"):
            PartitionedQueue("email", 2).create(rig.outbox, shards=2, ordering="key")

    def test_a_message_made_before_and_added_later_goes_where_it_went(self, rig: QueueRig) -> None:
        made = [rig.mail(key) for key in KEYS]
        first = rig.emails.send_many(rig.queue, made)
        rig.resize(5)
        assert rig.emails.send_many(rig.queue, made) == first
        assert len(rig.items()) == len(KEYS)

    def test_a_queue_object_of_another_number_sends_by_the_registered_one(
        self, rig: QueueRig
    ) -> None:
        rig.resize(5)
        fixed = PartitionedQueue("email", 2)
        refs = fixed.send_many(rig.queue, [rig.mail(key) for key in KEYS])
        assert [ref.topic for ref in refs] == [at(key, 5) for key in KEYS]
        actions = fixed.transact_items(rig.process, rig.mail("key-3"))
        assert f"#{at('key-3', 5)}#" in actions[0]["Put"]["Item"]["pk"]["S"]

    def test_the_same_number_changes_nothing_and_may_be_asked_for_again(
        self, rig: QueueRig
    ) -> None:
        assert rig.outbox.resize_queue("email", 2).changed is False
        first = rig.outbox.resize_queue("email", 4)
        again = rig.outbox.resize_queue("email", 4)
        assert (again.since, again.before, again.changed) == (first.since, 2, False)

    def test_another_number_is_refused_until_the_announced_one_has_begun(
        self, rig: QueueRig
    ) -> None:
        first = rig.outbox.resize_queue("email", 4)
        with pytest.raises(ResizeUnderway) as refused:
            rig.outbox.resize_queue("email", 8)
        assert refused.value.since == first.since
        rig.clock.advance(120)
        assert rig.outbox.resize_queue("email", 8).changed

    def test_it_is_refused_while_a_partition_is_resized(self, rig: QueueRig) -> None:
        rig.outbox.resize("email__p1", 4)
        with pytest.raises(ResizeUnderway) as refused:
            rig.outbox.resize_queue("email", 4)
        assert refused.value.topic == "email__p1"
        assert [s.topic.name for s in rig.outbox.topics()] == ["email", "email__p1"]

    @pytest.mark.parametrize("partitions", [0, -1, 1001, True, 2.0, "4", None])
    def test_a_number_that_is_none_is_refused(self, rig: QueueRig, partitions: Any) -> None:
        with pytest.raises(InvalidInput, match="partitions: expected a whole number"):
            rig.outbox.resize_queue("email", partitions)

    def test_what_is_no_pulled_queue_of_partitions_is_refused(self, rig: QueueRig) -> None:
        rig.outbox.create_topic(Topic("plain"))
        with pytest.raises(UnknownTopic):
            rig.outbox.resize_queue("nothing", 2)
        for name in ("plain", "email__p1"):
            with pytest.raises(TopicConflict, match="not the logical name"):
                rig.outbox.resize_queue(name, 4)
        rig.outbox.add_subscription(Subscription("email__p1", "billing", "sqs:billing"))
        with pytest.raises(TopicIsPushed):
            rig.outbox.resize_queue("email", 4)

    def test_one_that_was_cut_off_half_way_does_no_harm_and_is_made_again(
        self, rig: QueueRig, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        change, told = rig.outbox.tables.topics.change, []

        def fails(name: str, decide: Any) -> Any:
            if name == "email":
                raise Unavailable("transact_write_items", "no")
            told.append(name)
            return change(name, decide)

        monkeypatch.setattr(rig.outbox.tables.topics, "change", fails)
        with pytest.raises(Unavailable):
            rig.outbox.resize_queue("email", 4)
        monkeypatch.undo()
        assert told == ["email__p1", "email__p2", "email__p3"]
        rig.clock.advance(100)
        assert rig.send(*KEYS) == [at(key, 2) for key in KEYS]
        rig.resize(4)
        assert rig.send(*KEYS) == [at(key, 4) for key in KEYS]
        assert drain(rig) == dict.fromkeys(KEYS, 2)

    def test_numbers_that_are_done_with_are_forgotten_and_partitions_stay_known(
        self, rig: QueueRig
    ) -> None:
        rig.outbox.create_topic(Topic("sms"))
        PartitionedQueue("sms", 2).create(rig.outbox)
        for partitions in (4, 3):
            rig.outbox.resize_queue("sms", partitions)
            rig.clock.advance(3600)
        rig.outbox.resize_queue("sms", 1)
        widths = rig.outbox.topic("sms").widths
        assert [(w.number, w.shards) for w in widths] == [(2, 3), (3, 1)]
        assert len(PartitionedQueue.registered(rig.outbox, "sms").names) == 4


def drain(rig: QueueRig) -> dict[str, int]:
    """Receive and acknowledge until nothing comes; return how many messages each key had."""
    found: dict[str, int] = {}
    idle = 0
    while idle < 12:
        rig.clock.advance(1.5)
        received = rig.receive()
        for one in received:
            key = one.message.partition_key or ""
            found[key] = found.get(key, 0) + 1
        if received:
            rig.queue.ack(one.receipt for one in received)
        idle = 0 if received else idle + 1
    return found


class TestOrder:
    @pytest.mark.parametrize(("before", "after"), [(2, 5), (5, 2), (1, 3), (3, 1)])
    def test_a_key_goes_on_in_its_new_partition_once_its_old_one_is_done(
        self, rig: QueueRig, before: int, after: int
    ) -> None:
        if before != 2:
            rig.resize(before)
        moving = next(k for k in KEYS if at(k, before) != at(k, after))
        staying = (
            next(k for k in KEYS if k != moving and at(k, before) != at(moving, before))
            if before > 1
            else None
        )
        rig.send(moving)
        rig.clock.advance(3)
        (held,) = [one for _ in range(4) for one in rig.receive()]
        rig.resize(after)
        rig.send(moving, *([staying] if staying else []))
        rig.clock.advance(4)
        found = [one.message.partition_key for _ in range(4) for one in rig.receive()]
        assert moving not in found
        if staying:
            assert found == [staying]
        rig.queue.ack([held.receipt])
        rig.clock.advance(2)
        assert moving in [one.message.partition_key for _ in range(4) for one in rig.receive()]


class Traffic:
    """Producers with views of several ages and consumers that stop half way, by chance."""

    def __init__(self, rig: QueueRig, seed: int) -> None:
        self._rig = rig
        self._rng = random.Random(seed)
        self._views: list[Outbox] = [rig.another(rig.clock) for _ in range(3)]
        self._sent: dict[str, list[str]] = {key: [] for key in KEYS}
        self._done: dict[str, list[str]] = {key: [] for key in KEYS}
        self._holding: list[Received] = []

    def step(self) -> None:
        rig, rng = self._rig, self._rng
        rig.clock.advance(rng.choice((0.1, 1.0, 5.0)))
        if rng.random() < 0.6:
            message = rig.mail(rng.choice(KEYS))
            queue = PartitionedQueue.registered(rng.choice(self._views), "email")
            view = rng.choice(self._views)
            queue.send_many(Queue.over(view), [message])
            self._sent[message.partition_key or ""].append(message.id)
        for one in self._holding:
            rig.queue.ack([one.receipt])
            self._done[one.message.partition_key or ""].append(one.message.id)
        self._holding = []
        if rng.random() < 0.7:
            name = rng.choice(rig.emails.names)
            self._holding = rig.queue.receive(name, rng.choice((1, 3)), 60)

    def end(self) -> None:
        """Let consumers take what is left; check what came, and in which order."""
        idle = 0
        while idle < 10:
            self._rig.clock.advance(2)
            received = self._rig.receive(5) if not self._holding else self._holding
            self._holding = []
            for one in received:
                self._rig.queue.ack([one.receipt])
                self._done[one.message.partition_key or ""].append(one.message.id)
            idle = 0 if received else idle + 1

    @property
    def lost(self) -> int:
        return sum(map(len, self._sent.values())) - sum(map(len, self._done.values()))

    @property
    def out_of_order(self) -> list[str]:
        return [key for key, ids in self._done.items() if ids != self._sent[key]]


def run(rig: QueueRig, seed: int, steps: int) -> Traffic:
    traffic = Traffic(rig, seed)
    for partitions in (5, 3, 6):
        for _ in range(steps):
            traffic.step()
        rig.outbox.resize_queue("email", partitions)
        end = rig.clock.now() + 80
        while rig.clock.now() < end:
            traffic.step()
    traffic.end()
    return traffic


class TestUnderLoad:
    @pytest.mark.parametrize("seed", range(2))
    def test_nothing_is_lost_and_keys_keep_their_order_while_it_grows_and_shrinks(
        self, rig: QueueRig, seed: int
    ) -> None:
        traffic = run(rig, seed, 15)
        assert (traffic.lost, traffic.out_of_order) == (0, [])
        assert [item for item in rig.items() if item["sk"]["S"] != "!"] == []

    def test_a_partition_that_does_not_wait_for_others_would_break_the_order(
        self, rig: QueueRig, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(Cutover, "_partitions", lambda *_: [])
        rig.send(*KEYS)
        rig.clock.advance(3)
        held = rig.receive()
        assert held
        rig.resize(5)
        rig.send(*KEYS)
        rig.clock.advance(4)
        early = {one.message.partition_key for _ in range(20) for one in rig.receive()}
        assert early & {one.message.partition_key for one in held}


def test_the_row_of_the_logical_name_keeps_the_history(rig: QueueRig) -> None:
    result = rig.resize(4)
    state = rig.outbox.topic("email")
    assert state.widths == (Epoch(0, 2, 0), Epoch(1, 4, result.since))
    assert [epoch.since for epoch in state.epochs] == [0, result.since]
    assert rig.outbox.topic("email__p3").widths == ()

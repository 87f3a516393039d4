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
from fairbox.model.epochs import Epoch, partition_name, partition_number

from tests.support.outbox_fixture import Setup

if TYPE_CHECKING:
    from fairbox import Outbox, Received
    from fairbox.client.resize import WidthResult

KEYS = [f"key-{n}" for n in range(12)]


class QueueRig(Setup):
    """A setup with partitioned queue `email` of two partitions, ordered, two shards each."""

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
def setup(client: Any) -> QueueRig:
    return QueueRig(client)


def at(key: str, partitions: int) -> str:
    return partition_name("email", partition_number(key, partitions))


class TestAnnouncing:
    def test_routes_change_when_it_begins_and_not_before(self, setup: QueueRig) -> None:
        assert setup.send(*KEYS) == [at(key, 2) for key in KEYS]
        result = setup.emails.resize(setup.outbox, 5)
        assert (result.queue, result.before, result.partitions) == ("email", 2, 5)
        assert result.changed
        assert 60_000 <= result.since - setup.now <= 120_000
        setup.clock.advance(31)
        assert setup.send(*KEYS) == [at(key, 2) for key in KEYS]
        assert setup.emails.partitions == 2
        setup.clock.advance((result.since - setup.now) / 1000)
        assert setup.send(*KEYS) == [at(key, 5) for key in KEYS]
        assert setup.emails.partitions == 5
        assert [setup.emails.route_by_key(key)["topic"] for key in KEYS] == [
            at(key, 5) for key in KEYS
        ]
        assert {setup.emails.route_by_index(n)["topic"] for n in range(5)} == set(
            setup.emails.names
        )

    def test_new_partitions_have_the_settings_of_the_first(self, setup: QueueRig) -> None:
        setup.resize(3)
        first, new = (setup.outbox.topic(name).topic for name in ("email", "email__p2"))
        assert (new.shards, new.ordering, new.retention) == (2, "key", first.retention)
        assert new.partition is not None
        assert (new.partition.number, new.partition.count) == (2, 3)
        PartitionedQueue("email", 3).create(setup.outbox, shards=2, ordering="key")
        with pytest.raises(TopicConflict, match="resize changes the number"):
            PartitionedQueue("email", 2).create(setup.outbox, shards=2, ordering="key")

    def test_a_message_made_before_and_added_later_goes_where_it_went(
        self, setup: QueueRig
    ) -> None:
        made = [setup.mail(key) for key in KEYS]
        first = setup.emails.send_many(setup.queue, made)
        setup.resize(5)
        assert setup.emails.send_many(setup.queue, made) == first
        assert len(setup.items()) == len(KEYS)

    def test_a_queue_object_of_another_number_sends_by_the_registered_one(
        self, setup: QueueRig
    ) -> None:
        setup.resize(5)
        fixed = PartitionedQueue("email", 2)
        refs = fixed.send_many(setup.queue, [setup.mail(key) for key in KEYS])
        assert [ref.topic for ref in refs] == [at(key, 5) for key in KEYS]
        actions = fixed.transact_items(setup.process, setup.mail("key-3"))
        assert f"#{at('key-3', 5)}#" in actions[0]["Put"]["Item"]["pk"]["S"]

    def test_the_same_number_changes_nothing_and_may_be_asked_for_again(
        self, setup: QueueRig
    ) -> None:
        assert setup.outbox.resize_queue("email", 2).changed is False
        first = setup.outbox.resize_queue("email", 4)
        again = setup.outbox.resize_queue("email", 4)
        assert (again.since, again.before, again.changed) == (first.since, 2, False)

    def test_another_number_is_refused_until_the_announced_one_has_begun(
        self, setup: QueueRig
    ) -> None:
        first = setup.outbox.resize_queue("email", 4)
        with pytest.raises(ResizeUnderway) as refused:
            setup.outbox.resize_queue("email", 8)
        assert refused.value.since == first.since
        setup.clock.advance(120)
        assert setup.outbox.resize_queue("email", 8).changed

    def test_it_is_refused_while_a_partition_is_resized(self, setup: QueueRig) -> None:
        setup.outbox.resize("email__p1", 4)
        with pytest.raises(ResizeUnderway) as refused:
            setup.outbox.resize_queue("email", 4)
        assert refused.value.topic == "email__p1"
        assert [s.topic.name for s in setup.outbox.topics()] == ["email", "email__p1"]

    @pytest.mark.parametrize("partitions", [0, -1, 1001, True, 2.0, "4", None])
    def test_a_number_that_is_none_is_refused(self, setup: QueueRig, partitions: Any) -> None:
        with pytest.raises(InvalidInput, match="partitions: expected a whole number"):
            setup.outbox.resize_queue("email", partitions)

    def test_what_is_no_pulled_queue_of_partitions_is_refused(self, setup: QueueRig) -> None:
        setup.outbox.create_topic(Topic("plain"))
        with pytest.raises(UnknownTopic):
            setup.outbox.resize_queue("nothing", 2)
        for name in ("plain", "email__p1"):
            with pytest.raises(TopicConflict, match="not the logical name"):
                setup.outbox.resize_queue(name, 4)
        setup.outbox.add_subscription(Subscription("email__p1", "billing", "sqs:http://q/billing"))
        with pytest.raises(TopicIsPushed):
            setup.outbox.resize_queue("email", 4)

    def test_one_that_was_cut_off_half_way_does_no_harm_and_is_made_again(
        self, setup: QueueRig, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        change, told = setup.outbox.tables.topics.change, []

        def fails(name: str, decide: Any) -> Any:
            if name == "email":
                raise Unavailable("transact_write_items", "no")
            told.append(name)
            return change(name, decide)

        monkeypatch.setattr(setup.outbox.tables.topics, "change", fails)
        with pytest.raises(Unavailable):
            setup.outbox.resize_queue("email", 4)
        monkeypatch.undo()
        assert told == ["email__p1", "email__p2", "email__p3"]
        setup.clock.advance(100)
        assert setup.send(*KEYS) == [at(key, 2) for key in KEYS]
        setup.resize(4)
        assert setup.send(*KEYS) == [at(key, 4) for key in KEYS]
        assert drain(setup) == dict.fromkeys(KEYS, 2)

    def test_numbers_that_are_done_with_are_forgotten_and_partitions_stay_known(
        self, setup: QueueRig
    ) -> None:
        setup.outbox.create_topic(Topic("sms"))
        PartitionedQueue("sms", 2).create(setup.outbox)
        for partitions in (4, 3):
            setup.outbox.resize_queue("sms", partitions)
            setup.clock.advance(3600)
        setup.outbox.resize_queue("sms", 1)
        widths = setup.outbox.topic("sms").widths
        assert [(w.number, w.shards) for w in widths] == [(2, 3), (3, 1)]
        assert len(PartitionedQueue.registered(setup.outbox, "sms").names) == 4


def drain(setup: QueueRig) -> dict[str, int]:
    """Receive and acknowledge until nothing comes; return how many messages each key had."""
    found: dict[str, int] = {}
    idle = 0
    while idle < 12:
        setup.clock.advance(1.5)
        received = setup.receive()
        for one in received:
            key = one.message.partition_key or ""
            found[key] = found.get(key, 0) + 1
        if received:
            setup.queue.ack(one.receipt for one in received)
        idle = 0 if received else idle + 1
    return found


class TestOrder:
    @pytest.mark.guarantee("partitioned-resize")
    @pytest.mark.parametrize(("before", "after"), [(2, 5), (5, 2), (1, 3), (3, 1)])
    def test_a_key_goes_on_in_its_new_partition_once_its_old_one_is_done(
        self, setup: QueueRig, before: int, after: int
    ) -> None:
        if before != 2:
            setup.resize(before)
        moving = next(k for k in KEYS if at(k, before) != at(k, after))
        staying = (
            next(k for k in KEYS if k != moving and at(k, before) != at(moving, before))
            if before > 1
            else None
        )
        setup.send(moving)
        setup.clock.advance(3)
        (held,) = [one for _ in range(4) for one in setup.receive()]
        setup.resize(after)
        setup.send(moving, *([staying] if staying else []))
        setup.clock.advance(4)
        found = [one.message.partition_key for _ in range(4) for one in setup.receive()]
        assert moving not in found
        if staying:
            assert found == [staying]
        setup.queue.ack([held.receipt])
        assert drain(setup)[moving] == 1


class Traffic:
    """Producers with views of several ages and consumers that stop half way, by chance."""

    def __init__(self, setup: QueueRig, seed: int) -> None:
        self._rig = setup
        self._rng = random.Random(seed)
        self._views: list[Outbox] = [setup.another(setup.clock) for _ in range(3)]
        self._sent: dict[str, list[str]] = {key: [] for key in KEYS}
        self._done: dict[str, list[str]] = {key: [] for key in KEYS}
        self._holding: list[Received] = []

    def step(self) -> None:
        setup, rng = self._rig, self._rng
        setup.clock.advance(rng.choice((0.1, 1.0, 5.0)))
        if rng.random() < 0.6:
            message = setup.mail(rng.choice(KEYS))
            queue = PartitionedQueue.registered(rng.choice(self._views), "email")
            view = rng.choice(self._views)
            queue.send_many(Queue.over(view), [message])
            self._sent[message.partition_key or ""].append(message.id)
        for one in self._holding:
            setup.queue.ack([one.receipt])
            self._done[one.message.partition_key or ""].append(one.message.id)
        self._holding = []
        if rng.random() < 0.7:
            name = rng.choice(setup.emails.names)
            self._holding = setup.queue.receive(name, rng.choice((1, 3)), 60)

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


def run(setup: QueueRig, seed: int, steps: int) -> Traffic:
    traffic = Traffic(setup, seed)
    for partitions in (5, 3, 6):
        for _ in range(steps):
            traffic.step()
        setup.outbox.resize_queue("email", partitions)
        end = setup.clock.now() + 80
        while setup.clock.now() < end:
            traffic.step()
    traffic.end()
    return traffic


class TestUnderLoad:
    @pytest.mark.guarantee("partitioned-resize")
    @pytest.mark.extended  # threads under load, for seconds each
    @pytest.mark.parametrize("seed", range(2))
    def test_nothing_is_lost_and_keys_keep_their_order_while_it_grows_and_shrinks(
        self, setup: QueueRig, seed: int
    ) -> None:
        traffic = run(setup, seed, 15)
        assert (traffic.lost, traffic.out_of_order) == (0, [])
        assert [item for item in setup.items() if item["sk"]["S"] != "!"] == []


def test_the_row_of_the_logical_name_keeps_the_history(setup: QueueRig) -> None:
    result = setup.resize(4)
    state = setup.outbox.topic("email")
    assert state.widths == (Epoch(0, 2, 0), Epoch(1, 4, result.since))
    assert [epoch.since for epoch in state.epochs] == [0, result.since]
    assert setup.outbox.topic("email__p3").widths == ()

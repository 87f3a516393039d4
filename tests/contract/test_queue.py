"""The queue over both engines."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from fairbox import (
    InvalidInput,
    MessageRef,
    MessagesClaimed,
    MessagesNotFound,
    Queue,
    Received,
    RetryPolicy,
    StaleReceipt,
    Subscription,
    TopicIsPushed,
    Unavailable,
    UnknownTopic,
)
from fairbox.client.outbox import Outbox
from fairbox.codec import attributes as names
from fairbox.dynamodb import claims
from fairbox.dynamodb.message_edits import Edits
from fairbox.model.receipts import Receipt
from fairbox.testing.faults import Fault

from tests.contract.rig import Rig

if TYPE_CHECKING:
    from collections.abc import Callable


class QueueRig(Rig):
    """A rig with a queue over its outbox, and topics `none` and `key` of that ordering."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.queue = Queue.over(self.outbox)
        for ordering in ("none", "key"):
            self.topic(ordering, shards=2, ordering=ordering, retry=RetryPolicy(max_attempts=3))

    def send(self, topic: str, count: int = 1, **more: Any) -> list[MessageRef]:
        """Send messages, and let three seconds pass."""
        body = more.pop("body", b"{}")
        made = [self.message(topic, body, **more) for _ in range(count)]
        refs = self.queue.send_many(made)
        self.clock.advance(3)
        return refs

    def receive(self, topic: str, wanted: int = 10, timeout: float = 30) -> list[Received]:
        """Receive until every shard was asked, and asked again."""
        found: list[Received] = []
        for _ in range(4):
            left = wanted - len(found)
            found += self.queue.receive(topic, left, timeout) if left else []
        return found

    def one(self, topic: str, timeout: float = 30) -> Received:
        """Receive the one message that can be received."""
        (received,) = self.receive(topic, timeout=timeout)
        return received

    def lying(self) -> list[str]:
        """Return the ids of the messages in the outbox."""
        keys = [i["sk"]["S"] for i in self.items()]
        return sorted(k.rpartition("#")[2] for k in keys if k != "!")


@pytest.fixture
def rig(client: Any) -> QueueRig:
    return QueueRig(client)


TOPICS = pytest.mark.parametrize("topic", ["none", "key"])


@TOPICS
class TestHolding:
    def test_a_message_is_received_once_and_gone_when_acknowledged(
        self, rig: QueueRig, topic: str
    ) -> None:
        (sent,) = rig.send(topic, headers={"a": "b"}, content_type="text/plain")
        received = rig.one(topic)
        assert received.message.id == sent.id
        assert (received.message.headers, received.message.content_type) == (
            {"a": "b"},
            "text/plain",
        )
        assert received.receive_count == 1
        assert rig.receive(topic) == []
        rig.queue.ack(received.receipt)
        rig.queue.ack([received.receipt])  # again: it is done
        assert rig.lying() == []
        rig.clock.advance(3600)
        assert rig.receive(topic) == []

    def test_what_is_not_acknowledged_in_time_is_received_again(
        self, rig: QueueRig, topic: str
    ) -> None:
        (sent,) = rig.send(topic)
        rig.one(topic, timeout=30)
        rig.clock.advance(29)
        assert rig.receive(topic) == []
        rig.clock.advance(1)
        second = rig.one(topic)
        assert (second.message.id, second.receive_count) == (sent.id, 2)

    def test_a_stale_receipt_is_refused_and_changes_nothing(
        self, rig: QueueRig, topic: str
    ) -> None:
        rig.send(topic)
        first = rig.one(topic)
        rig.clock.advance(30)
        second = rig.one(topic)
        before = rig.items()
        queue = rig.queue
        calls: list[Callable[[], object]] = [
            lambda: queue.ack(first.receipt),
            lambda: queue.nack(first.receipt, 5, "late"),
            lambda: queue.extend(first.receipt, 99),
            lambda: queue.release(first.receipt),
            lambda: queue.bury(first.receipt),
        ]
        for call in calls:
            with pytest.raises(StaleReceipt) as stale:
                call()
            assert stale.value.receipts == (first.receipt,)
            assert rig.items() == before
        queue.ack(second.receipt)
        assert rig.lying() == []

    def test_an_end_that_others_made_of_it_is_not_told_to_be_an_acknowledgement(
        self, rig: QueueRig, topic: str
    ) -> None:
        rig.send(topic)
        first = rig.one(topic)
        rig.clock.advance(30)
        rig.queue.ack(rig.one(topic).receipt)
        assert rig.lying() == []
        with pytest.raises(StaleReceipt):
            rig.queue.ack(first.receipt)

    def test_of_several_receipts_the_good_ones_are_served(self, rig: QueueRig, topic: str) -> None:
        rig.send(topic, 3)
        first, *others = rig.receive(topic)
        rig.queue.nack(first.receipt, 60)
        with pytest.raises(StaleReceipt) as stale:
            rig.queue.ack([first.receipt, *(r.receipt for r in others)])
        assert stale.value.receipts == (first.receipt,)
        assert rig.lying() == [first.message.id]

    def test_a_nack_delays_and_its_reason_is_kept(self, rig: QueueRig, topic: str) -> None:
        (ref,) = rig.send(topic)
        rig.queue.nack(rig.one(topic).receipt, 40, "no database")
        rig.clock.advance(39)
        assert rig.receive(topic) == []
        rig.clock.advance(1)
        assert rig.one(topic).receive_count == 2
        stored = rig.outbox.find(ref)
        assert stored is not None
        assert [(f.attempt, f.error) for f in stored.states["pull"].history] == [(1, "no database")]

    def test_a_nack_without_delay_comes_back_at_once(self, rig: QueueRig, topic: str) -> None:
        rig.send(topic, 8)
        for received in rig.receive(topic):
            rig.queue.nack(received.receipt)
        assert len(rig.receive(topic)) == 8

    def test_extending_holds_longer_even_when_it_comes_late(
        self, rig: QueueRig, topic: str
    ) -> None:
        rig.send(topic)
        received = rig.one(topic, timeout=10)
        rig.clock.advance(12)  # nobody else has it yet
        rig.queue.extend(received.receipt, 20)
        rig.clock.advance(19)
        assert rig.receive(topic) == []
        rig.queue.ack(received.receipt)
        assert rig.lying() == []

    def test_unless_told_otherwise_it_gives_ten_for_thirty_seconds(
        self, rig: QueueRig, topic: str
    ) -> None:
        rig.topic("one", shards=1, ordering=topic)
        rig.receive("one")  # somebody has looked from the head
        rig.send("one", 12)
        received = rig.queue.receive("one")
        assert len(received) == 10
        assert {r.visible_at for r in received} == {round((rig.clock.now() + 30) * 1000)}

    def test_the_topic_s_back_off_grows_with_the_attempts_up_to_its_cap(
        self, rig: QueueRig, topic: str
    ) -> None:
        retry = RetryPolicy(max_attempts=9, base=10, cap=50)
        rig.topic("patient", shards=1, ordering=topic, retry=retry)
        rig.send("patient")
        for attempt, bound in enumerate((20, 40, 50, 50), start=1):
            received = rig.one("patient")
            assert received.receive_count == attempt
            rig.queue.nack(received.receipt, None, "again")
            rig.clock.advance(9.9)
            assert rig.receive("patient") == []
            rig.clock.advance(bound - 9.9)
        assert rig.one("patient").receive_count == 5

    def test_a_release_does_not_count(self, rig: QueueRig, topic: str) -> None:
        rig.send(topic)
        rig.queue.release(rig.one(topic).receipt)
        assert rig.one(topic).receive_count == 1

    def test_after_the_last_attempt_it_is_dead_with_its_history(
        self, rig: QueueRig, topic: str
    ) -> None:
        (ref,) = rig.send(topic)
        rig.queue.nack(rig.one(topic).receipt, 0, "first")
        rig.one(topic, timeout=1)
        rig.clock.advance(1)  # a crash counts as an attempt
        rig.queue.nack(rig.one(topic).receipt, 0, "third")
        assert rig.lying() == []
        (letter,) = rig.outbox.dead(topic)
        assert (letter.id, letter.reason) == (ref.id, "third")
        assert letter.stored is not None
        history = [(f.attempt, f.error) for f in letter.stored.states["pull"].history]
        assert history[0] == (1, "first")
        assert history[-1] == (3, "third")
        assert letter.subscriptions == {"pull"}

    def test_a_consumer_that_always_crashes_fills_the_dead_letters_too(
        self, rig: QueueRig, topic: str
    ) -> None:
        rig.send(topic)
        for _ in range(3):
            rig.one(topic, timeout=1)
            rig.clock.advance(1)
        assert rig.receive(topic) == []
        assert rig.lying() == []
        (letter,) = rig.outbox.dead(topic)
        assert letter.reason == "not acknowledged in time"

    def test_what_is_given_up_is_dead_at_once(self, rig: QueueRig, topic: str) -> None:
        rig.send(topic)
        rig.queue.bury(rig.one(topic).receipt, "hopeless")
        assert rig.lying() == []
        assert [letter.reason for letter in rig.outbox.dead(topic)] == ["hopeless"]

    def test_an_item_that_nobody_can_read_is_dead_and_not_in_the_way(
        self, rig: QueueRig, topic: str
    ) -> None:
        (ref,) = rig.send(topic)
        item = {"pk": {"S": f"ready#{topic}#0#{ref.shard}"}, "sk": {"S": "00-junk"}}
        rig.engine.put_item(TableName=rig.table, Item=item | {"z": {"N": "1"}})
        assert rig.one(topic).message.id == ref.id
        assert [letter.raw != "" for letter in rig.outbox.dead(topic)] == [True]
        assert rig.lying() == [ref.id]

    def test_large_bodies_come_whole(self, rig: QueueRig, topic: str) -> None:
        body = rig.rng.randbytes(400_000)
        message = rig.message(topic, body)
        rig.queue.send(message)
        assert rig.one(topic).message.body == body

    def test_a_body_out_of_reach_is_a_failed_attempt_with_its_reason(
        self, rig: QueueRig, topic: str
    ) -> None:
        (ref,) = rig.send(topic, body=rig.rng.randbytes(400_000))
        fetch = rig.bodies.get

        def out_of_reach(bucket: str, key: str) -> bytes:
            raise Unavailable("get_object", "timed out")

        rig.bodies.get = out_of_reach  # type: ignore[method-assign]  # a broken store
        assert rig.queue.receive(topic) + rig.queue.receive(topic) == []
        stored = rig.outbox.find(ref)
        assert stored is not None
        assert [f.error for f in stored.states["pull"].history] == [
            "its body: get_object failed: timed out"
        ]
        rig.bodies.get = fetch  # type: ignore[method-assign]  # it works again
        rig.clock.advance(60)
        assert len(rig.one(topic).message.body) == 400_000


@TOPICS
class TestRefusals:
    @pytest.mark.parametrize(
        ("field", "arguments"),
        [
            ("max_messages", {"max_messages": 0}),
            ("max_messages", {"max_messages": 1000}),
            ("max_messages", {"max_messages": True}),
            ("max_messages", {"max_messages": 1.5}),
            ("visibility_timeout", {"visibility_timeout": 0}),
            ("visibility_timeout", {"visibility_timeout": -1}),
            ("visibility_timeout", {"visibility_timeout": 12 * 3600 + 1}),
            ("visibility_timeout", {"visibility_timeout": float("nan")}),
            ("visibility_timeout", {"visibility_timeout": "30"}),
            ("wait", {"wait": -1}),
            ("wait", {"wait": float("inf")}),
        ],
    )
    def test_receive_names_the_field(
        self, rig: QueueRig, topic: str, field: str, arguments: dict[str, Any]
    ) -> None:
        rig.send(topic)
        with pytest.raises(InvalidInput) as refused:
            rig.queue.receive(topic, **arguments)
        assert refused.value.field == field
        assert len(rig.receive(topic)) == 1  # and holds nothing

    def test_receipts_that_are_none_are_refused_before_anything_is_done(
        self, rig: QueueRig, topic: str
    ) -> None:
        rig.send(topic, 2)
        good, other = (r.receipt for r in rig.receive(topic))
        forged = str(Receipt.parse(good))[:-2] + ("AA" if good[-2:] != "AA" else "BB")
        for bad in (good[:-1], good[1:], good + "=", "", "x", forged, good.swapcase(), other * 9):
            with pytest.raises(InvalidInput):
                rig.queue.ack([good, bad])
            with pytest.raises(InvalidInput):
                rig.queue.extend(bad, 60)
            with pytest.raises(InvalidInput):
                rig.queue.nack(bad)
        assert len(rig.lying()) == 2

    def test_a_receipt_with_the_token_of_another_message_is_stale(
        self, rig: QueueRig, topic: str
    ) -> None:
        rig.send(topic, 2)
        one, two = (Receipt.parse(r.receipt) for r in rig.receive(topic))
        crossed = str(Receipt(one.ref, one.place, two.token, one.until))
        for call in (rig.queue.ack, rig.queue.nack, rig.queue.release):
            with pytest.raises(StaleReceipt):
                call(crossed)
        assert len(rig.lying()) == 2

    @pytest.mark.parametrize("seconds", [0, -5, 43_201, float("nan"), None])
    def test_extending_by_what_is_no_time_is_refused(
        self, rig: QueueRig, topic: str, seconds: Any
    ) -> None:
        rig.send(topic)
        receipt = rig.one(topic).receipt
        with pytest.raises(InvalidInput) as refused:
            rig.queue.extend(receipt, seconds)
        assert refused.value.field == "seconds"

    def test_a_pushed_topic_is_refused_two_seconds_after_it_became_so(
        self, rig: QueueRig, topic: str
    ) -> None:
        rig.send(topic)
        assert rig.receive(topic, wanted=1)
        rig.outbox.add_subscription(Subscription(topic, "billing", "sqs:q"))
        with pytest.raises(TopicIsPushed):
            rig.queue.receive(topic)

    def test_an_unknown_topic_is_refused(self, rig: QueueRig, topic: str) -> None:
        with pytest.raises(UnknownTopic):
            rig.queue.receive(topic + "x")


@TOPICS
class TestRaces:
    def test_what_another_claims_meanwhile_is_left_to_it(self, rig: QueueRig, topic: str) -> None:
        rig.topic("narrow", shards=1, ordering=topic)
        others = Queue.over(rig.another(rig.clock))
        rig.receive("narrow")  # somebody has looked from the head
        rig.send("narrow", 1)
        rig.queue.ack(rig.one("narrow").receipt)  # and something was held before
        rig.send("narrow", 6)
        name = "batch_execute_statement" if topic == "none" else "update_item"
        write = getattr(rig.engine, name)
        taken: list[Received] = []

        def first_the_other(**request: Any) -> Any:
            rig.client.__dict__.pop(name, None)
            taken.extend(others.receive("narrow", 3))
            return write(**request)

        rig.client.__dict__[name] = first_the_other
        mine = [r for _ in range(3) for r in rig.queue.receive("narrow", 3)]
        assert len(taken) == 3
        assert len(mine) == 3
        assert not {r.message.id for r in mine} & {r.message.id for r in taken}
        rig.queue.ack(r.receipt for r in (*taken, *mine))
        assert rig.lying() == []


class TestUnordered:
    def test_a_delayed_message_is_received_when_it_is_due(self, rig: QueueRig) -> None:
        for delay in (5, 300, 200 * 86_400):
            (ref,) = rig.send("none", delay=delay)
            rig.receive("none")
            rig.clock.advance(delay - 3 - 1)
            assert rig.receive("none") == []
            rig.clock.advance(1)
            received = rig.one("none")
            assert received.message.id == ref.id
            rig.queue.ack(received.receipt)

    def test_a_delayed_send_calls_for_a_look_when_it_is_due(self, rig: QueueRig) -> None:
        rig.receive("none")  # the next look is a minute off
        (ref,) = rig.send("none", delay=5)
        assert rig.receive("none") == []
        rig.clock.advance(2)
        assert rig.one("none").message.id == ref.id

    def test_of_two_consumers_one_looks_from_the_head(self, rig: QueueRig) -> None:
        rig.topic("narrow", shards=1)
        others = Queue.over(rig.another(rig.clock))
        others.receive("narrow")
        rig.clock.advance(60)
        update, query, looks = rig.engine.update_item, rig.engine.query, []

        def first_the_other(**request: Any) -> Any:
            rig.client.__dict__.pop("update_item", None)
            others.receive("narrow")
            return update(**request)

        def counted(**request: Any) -> Any:
            pk = request["ExpressionAttributeValues"][":pk"]["S"]
            looks.append(pk) if pk.startswith("later#") else None
            return query(**request)

        rig.client.__dict__ |= {"update_item": first_the_other, "query": counted}
        assert rig.queue.receive("narrow") == []
        assert looks == ["later#narrow#0#0"]

    def test_a_long_poll_returns_with_the_first_message(self, rig: QueueRig) -> None:
        rig.send("none", delay=8)
        began = rig.clock.now()
        assert len(rig.queue.receive("none", wait=20)) == 1
        assert 4 <= rig.clock.now() - began <= 7

    def test_a_long_poll_ends_empty(self, rig: QueueRig) -> None:
        began = rig.clock.now()
        assert rig.queue.receive("none", wait=3) == []
        assert 3 <= rig.clock.now() - began <= 3.1

    def test_a_claim_whose_answer_was_lost_is_held(self, rig: QueueRig) -> None:
        rig.send("none", 3, partition_key="k")
        rig.client.next("batch_execute_statement", Fault.APPLIED_THEN_TIMEOUT)
        received = rig.receive("none")
        assert len(received) == 3
        rig.client.next("batch_execute_statement", Fault.APPLIED_THEN_TIMEOUT)
        rig.queue.ack(r.receipt for r in received)
        assert rig.lying() == []


class TestOrdered:
    def test_one_message_of_a_key_is_held_and_the_others_go_on(self, rig: QueueRig) -> None:
        stuck = rig.send("key", 3, partition_key="stuck")
        others = [rig.send("key", 1, partition_key=f"k{n}")[0] for n in range(5)]
        got = rig.receive("key", timeout=1000)
        assert {r.message.id for r in got} == {stuck[0].id, *(o.id for o in others)}
        rig.queue.ack(r.receipt for r in got if r.message.partition_key != "stuck")
        assert rig.receive("key") == []
        rig.queue.ack(r.receipt for r in got if r.message.partition_key == "stuck")
        assert rig.one("key").message.id == stuck[1].id

    def test_the_messages_of_a_key_come_in_order_whatever_fails(self, rig: QueueRig) -> None:
        refs = rig.send("key", 4, partition_key="k")
        seen = []
        for attempt in range(12):
            received = rig.one("key")
            seen.append(received.message.id)
            if attempt % 3 == 2:
                rig.queue.ack(received.receipt)
            else:
                rig.queue.nack(received.receipt)
        assert seen == [ref.id for ref in refs for _ in range(3)]

    def test_a_shard_has_sixty_four_keys_in_flight(self, rig: QueueRig) -> None:
        rig.topic("wide", shards=1, ordering="key")
        rig.send("wide", 80)
        held = [r for _ in range(10) for r in rig.queue.receive("wide", 20)]
        assert len(held) == 64
        rig.queue.ack(r.receipt for r in held)
        assert len([r for _ in range(5) for r in rig.queue.receive("wide", 20)]) == 16

    def test_counts_and_claims_of_one_row_leave_each_other_alone(self, rig: QueueRig) -> None:
        refs = rig.send("key", 4)
        held = rig.receive("key")
        assert rig.queue.stats("key").in_flight == 4
        rig.deliver(*refs)  # counts, by the row's other conditions
        assert rig.queue.stats("key").in_flight == 4
        rig.queue.ack(r.receipt for r in held)
        assert rig.queue.stats("key").in_flight == 0


@TOPICS
class TestOperating:
    def test_an_edited_message_comes_as_it_is_now(self, rig: QueueRig, topic: str) -> None:
        (ref,) = rig.send(topic, partition_key="k", headers={"a": "1"})
        rig.queue.edit(ref, body=b"new", headers={"b": "2"}, content_type="text/new")
        received = rig.one(topic)
        assert received.message.body == b"new"
        assert received.message.headers == {"b": "2"}
        assert (received.message.content_type, received.message.partition_key) == ("text/new", "k")

    def test_what_is_held_is_neither_edited_nor_moved_nor_cancelled(
        self, rig: QueueRig, topic: str
    ) -> None:
        (ref,) = rig.send(topic)
        received = rig.one(topic)
        calls: list[Callable[[], object]] = [
            lambda: rig.queue.edit(ref, body=b"new"),
            lambda: rig.queue.reschedule(ref),
            lambda: rig.queue.cancel([ref]),
        ]
        for call in calls:
            with pytest.raises(MessagesClaimed) as refused:
                call()
            assert refused.value.claimed == (ref,)
        rig.queue.ack(received.receipt)
        for call in calls:
            with pytest.raises(MessagesNotFound):
                call()

    def test_a_cancelled_message_is_not_received(self, rig: QueueRig, topic: str) -> None:
        gone, stays = rig.send(topic, 2)
        rig.queue.cancel([gone], reason="mistake")
        assert [received.message.id for received in rig.receive(topic)] == [stays.id]
        assert rig.lying() == [stays.id]

    def test_a_claim_that_began_before_an_edit_does_not_stand(
        self, rig: QueueRig, topic: str
    ) -> None:
        (ref,) = rig.send(topic)
        name = "batch_execute_statement" if topic == "none" else "update_item"
        call = getattr(rig.engine, name)
        other = Queue.over(rig.another(rig.clock))

        def first_the_operator(**request: Any) -> Any:
            if topic == "none" or request["Key"]["pk"]["S"].startswith("ready#"):
                rig.client.__dict__.pop(name, None)
                other.edit(ref, body=b"edited")
            return call(**request)

        rig.client.__dict__[name] = first_the_operator
        got = [r for _ in range(4) for r in rig.queue.receive(topic)]
        assert [r.message.body for r in got] == [b"edited"]

    def test_purging_empties_the_topic_with_progress(self, rig: QueueRig, topic: str) -> None:
        rig.send(topic, partition_key="k")
        held = rig.receive(topic)
        rig.send(topic, 130)
        if topic == "none":
            rig.send(topic, 7, delay=500)
        held += rig.receive(topic, wanted=3)
        told: list[int] = []
        count = len(rig.lying())
        assert rig.queue.purge(topic, reason="tests", progress=told.append) == count
        assert told[-1] == count
        assert told == sorted(told)
        assert rig.lying() == []
        assert rig.queue.purge(topic) == 0
        (ref,) = rig.send(topic, partition_key="k")  # which nobody holds any more
        assert rig.one(topic).message.id == ref.id
        rig.queue.ack(r.receipt for r in held)  # what is gone counts as acknowledged


@TOPICS
class TestBrokenTwins:
    """Each breaks one rule on purpose; what holds that rule must fail."""

    def test_a_cancel_that_is_only_said_is_found(
        self, rig: QueueRig, topic: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(Outbox, "cancel", lambda *_, **__: None)
        with pytest.raises(AssertionError, match="contains one more item"):
            TestOperating().test_a_cancelled_message_is_not_received(rig, topic)

    def test_changing_what_is_held_is_found(
        self, rig: QueueRig, topic: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        shipped = Edits.find

        def twin(self: Edits, ref: MessageRef, _: int, *, ordered: bool) -> Any:
            return shipped(self, ref, 1 << 60, ordered=ordered)  # when every claim has ended

        monkeypatch.setattr(Edits, "find", twin)
        with pytest.raises(pytest.fail.Exception, match="DID NOT RAISE"):
            TestOperating().test_what_is_held_is_neither_edited_nor_moved_nor_cancelled(rig, topic)

    def test_a_claim_that_asks_for_no_edit_is_found(
        self, rig: QueueRig, topic: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        if topic == "none":
            shipped = claims._fences
            monkeypatch.setattr(
                claims,
                "_fences",
                lambda m: {n: v for n, v in shipped(m).items() if n != names.EDITS},
            )
        else:
            write = Edits._write  # without a new version of the shard's row
            monkeypatch.setattr(Edits, "_write", lambda *given, **_: write(*given))
        with pytest.raises(AssertionError, match="edited"):
            TestOperating().test_a_claim_that_began_before_an_edit_does_not_stand(rig, topic)


class TestRescheduling:
    def test_a_waiting_message_is_made_due_now(self, rig: QueueRig) -> None:
        (ref,) = rig.send("none", delay=5000)
        rig.receive("none")
        moved = rig.queue.reschedule(ref)
        assert (moved.id, moved.due) == (ref.id, None)
        assert rig.one("none").message.id == ref.id
        assert rig.lying() == [ref.id]

    def test_a_waiting_message_is_made_due_later(self, rig: QueueRig) -> None:
        (ref,) = rig.send("none", delay=10)
        moved = rig.queue.reschedule(ref, 100)
        rig.clock.advance(99)
        assert rig.receive("none") == []
        rig.clock.advance(1)
        assert rig.one("none").message.id == ref.id
        assert rig.outbox.find(moved) is not None

    def test_a_ready_message_is_made_due_later_and_now_again(self, rig: QueueRig) -> None:
        (ref,) = rig.send("none")
        assert rig.queue.reschedule(ref, 100) == ref
        assert rig.receive("none") == []
        rig.queue.reschedule(ref)
        received = rig.one("none")
        assert received.receive_count == 1

    def test_the_wait_of_an_ordered_message_is_ended_but_none_is_made(self, rig: QueueRig) -> None:
        (ref,) = rig.send("key")
        rig.queue.nack(rig.one("key").receipt, 500)
        with pytest.raises(InvalidInput):
            rig.queue.reschedule(ref, 5)
        assert rig.receive("key") == []
        rig.queue.reschedule(ref)
        assert rig.one("key").receive_count == 2

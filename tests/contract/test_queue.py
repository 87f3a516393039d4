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
from fairbox.client.reading import NEVER, Receives
from fairbox.model.receipts import Receipt
from fairbox.tables.key_claims import MAX_ENTRIES
from fairbox.tables.stored_messages import CONSUMER
from fairbox.testing.faults import Fault

from tests.support.outbox_fixture import Setup

if TYPE_CHECKING:
    from collections.abc import Callable


class QueueRig(Setup):
    """A setup with a queue over its outbox, and topics `none` and `key` of that ordering."""

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
def setup(client: Any) -> QueueRig:
    return QueueRig(client)


TOPICS = pytest.mark.parametrize("topic", ["none", "key"])


class TestSeeing:
    """Each message shows its holder, the end of its claim, and its number of receives."""

    @staticmethod
    def seen(setup: QueueRig, ref: MessageRef) -> tuple[str, Receives]:
        stored = setup.outbox.find(ref)
        assert stored is not None
        receives = setup.outbox.receives()
        of = receives.of(stored)
        return receives.state(stored, of), of

    @TOPICS
    def test_a_message_is_held_from_its_receive_to_its_time_out(
        self, setup: QueueRig, topic: str
    ) -> None:
        (ref,) = setup.send(topic)
        assert self.seen(setup, ref) == ("outstanding", NEVER)
        held = setup.one(topic, timeout=30)
        assert self.seen(setup, ref) == ("held", Receives(1, held.visible_at))
        setup.queue.extend(held.receipt, 60)
        state, of = self.seen(setup, ref)
        assert (state, of.held_until) == ("held", round(setup.clock.now() * 1000) + 60_000)
        setup.clock.advance(61)
        assert self.seen(setup, ref) == ("outstanding", Receives(1))

    @TOPICS
    def test_a_message_that_was_given_back_has_no_holder(self, setup: QueueRig, topic: str) -> None:
        (ref,) = setup.send(topic)
        setup.queue.nack(setup.one(topic).receipt, delay=100)
        assert self.seen(setup, ref) == ("outstanding", Receives(1))

    def test_a_delayed_message_waits_and_is_held(self, setup: QueueRig) -> None:
        (ref,) = setup.send("none", delay=10)
        assert self.seen(setup, ref) == ("waiting", NEVER)
        setup.clock.advance(70)
        held = setup.one("none")
        assert self.seen(setup, ref) == ("held", Receives(1, held.visible_at))

    def test_a_dead_letter_is_dead(self, setup: QueueRig) -> None:
        (ref,) = setup.send("none")
        setup.queue.bury(setup.one("none").receipt)
        assert self.seen(setup, ref) == ("dead", NEVER)

    def test_the_holder_has_the_name_that_it_gave(self, setup: QueueRig) -> None:
        (ref,) = setup.send("none")
        first = _named(setup, "worker-1")
        assert self.seen(setup, ref)[1].consumer == "worker-1"
        setup.queue.extend(first.receipt, 30)
        assert self.seen(setup, ref)[1].consumer == "worker-1"
        setup.clock.advance(31)
        setup.one("none")  # another consumer, without a name
        assert self.seen(setup, ref)[1] == Receives(2, self.seen(setup, ref)[1].held_until)
        with pytest.raises(StaleReceipt):
            setup.queue.ack(first.receipt)

    @pytest.mark.parametrize("settle", ["nack", "release"])
    def test_a_name_ends_with_its_claim(self, setup: QueueRig, settle: str) -> None:
        (ref,) = setup.send("none")
        getattr(setup.queue, settle)(_named(setup, "worker-1").receipt)
        assert self.seen(setup, ref)[1].consumer == ""
        setup.queue.ack(_named(setup, "worker-2").receipt)
        assert setup.lying() == []

    def test_a_claim_without_a_name_has_no_attribute_for_it(self, setup: QueueRig) -> None:
        setup.send("none")
        setup.one("none")
        assert not any(CONSUMER in item for item in setup.items())

    @pytest.mark.parametrize("name", ["x" * 65, "\u00e4" * 33, "a\nb", None, 7])
    def test_a_name_is_short_and_printable(self, setup: QueueRig, name: Any) -> None:
        with pytest.raises(InvalidInput, match="consumer"):
            setup.queue.receive("none", consumer=name)

    def test_the_messages_in_flight_of_an_unordered_topic_are_counted(
        self, setup: QueueRig
    ) -> None:
        refs = [*setup.send("none", 4), *setup.send("none", delay=1)]
        setup.clock.advance(70)
        held = setup.receive("none", 3)
        assert setup.queue.stats("none").in_flight is None
        assert setup.queue.stats("none", count_in_flight=True).in_flight == 3
        setup.queue.nack(held[0].receipt, delay=50)
        setup.queue.ack(held[1].receipt)
        assert setup.queue.stats("none", count_in_flight=True).in_flight == 1
        setup.receive("none", 5)
        assert setup.queue.stats("none", count_in_flight=True).in_flight == len(refs) - 2
        setup.clock.advance(31)
        assert setup.queue.stats("none", count_in_flight=True).in_flight == 0


def _named(setup: QueueRig, name: str) -> Received:
    (received,) = [r for _ in range(4) for r in setup.queue.receive("none", consumer=name)]
    return received


@TOPICS
class TestHolding:
    def test_a_message_is_received_once_and_gone_when_acknowledged(
        self, setup: QueueRig, topic: str
    ) -> None:
        (sent,) = setup.send(topic, headers={"a": "b"}, content_type="text/plain")
        received = setup.one(topic)
        assert received.message.id == sent.id
        assert (received.message.headers, received.message.content_type) == (
            {"a": "b"},
            "text/plain",
        )
        assert received.receive_count == 1
        assert setup.receive(topic) == []
        setup.queue.ack(received.receipt)
        setup.queue.ack([received.receipt])  # again: it is done
        assert setup.lying() == []
        setup.clock.advance(3600)
        assert setup.receive(topic) == []

    def test_what_is_not_acknowledged_in_time_is_received_again(
        self, setup: QueueRig, topic: str
    ) -> None:
        (sent,) = setup.send(topic)
        setup.one(topic, timeout=30)
        setup.clock.advance(29)
        assert setup.receive(topic) == []
        setup.clock.advance(1)
        second = setup.one(topic)
        assert (second.message.id, second.receive_count) == (sent.id, 2)

    @pytest.mark.guarantee("stale-receipt")
    def test_a_stale_receipt_is_refused_and_changes_nothing(
        self, setup: QueueRig, topic: str
    ) -> None:
        setup.send(topic)
        first = setup.one(topic)
        setup.clock.advance(30)
        second = setup.one(topic)
        before = setup.items()
        queue = setup.queue
        calls: list[Callable[[], object]] = [
            lambda: queue.ack(first.receipt),
            lambda: queue.nack(first.receipt, 5, "late"),
            lambda: queue.extend(first.receipt, 99),
            lambda: queue.extend_many([first.receipt], 99),
            lambda: queue.release(first.receipt),
            lambda: queue.bury(first.receipt),
        ]
        for call in calls:
            with pytest.raises(StaleReceipt) as stale:
                call()
            assert stale.value.receipts == (first.receipt,)
            assert setup.items() == before
        queue.ack(second.receipt)
        assert setup.lying() == []

    def test_an_end_that_others_made_of_it_is_not_told_to_be_an_acknowledgement(
        self, setup: QueueRig, topic: str
    ) -> None:
        setup.send(topic)
        first = setup.one(topic)
        setup.clock.advance(30)
        setup.queue.ack(setup.one(topic).receipt)
        assert setup.lying() == []
        with pytest.raises(StaleReceipt):
            setup.queue.ack(first.receipt)

    def test_of_several_receipts_the_good_ones_are_served(
        self, setup: QueueRig, topic: str
    ) -> None:
        setup.send(topic, 3)
        first, *others = setup.receive(topic)
        setup.queue.nack(first.receipt, 60)
        with pytest.raises(StaleReceipt) as stale:
            setup.queue.ack([first.receipt, *(r.receipt for r in others)])
        assert stale.value.receipts == (first.receipt,)
        assert setup.lying() == [first.message.id]

    def test_a_nack_delays_and_its_reason_is_kept(self, setup: QueueRig, topic: str) -> None:
        (ref,) = setup.send(topic)
        setup.queue.nack(setup.one(topic).receipt, 40, "no database")
        setup.clock.advance(39)
        assert setup.receive(topic) == []
        setup.clock.advance(1)
        assert setup.one(topic).receive_count == 2
        stored = setup.outbox.find(ref)
        assert stored is not None
        assert [(f.attempt, f.error) for f in stored.states["pull"].history] == [(1, "no database")]

    def test_a_nack_without_delay_comes_back_at_once(self, setup: QueueRig, topic: str) -> None:
        setup.send(topic, 8)
        for received in setup.receive(topic):
            setup.queue.nack(received.receipt)
        assert len(setup.receive(topic)) == 8

    def test_extending_holds_longer_even_when_it_comes_late(
        self, setup: QueueRig, topic: str
    ) -> None:
        setup.send(topic)
        received = setup.one(topic, timeout=10)
        setup.clock.advance(12)  # nobody else has it yet
        setup.queue.extend(received.receipt, 20)
        setup.clock.advance(19)
        assert setup.receive(topic) == []
        setup.queue.ack(received.receipt)
        assert setup.lying() == []

    def test_unless_told_otherwise_it_gives_ten_for_thirty_seconds(
        self, setup: QueueRig, topic: str
    ) -> None:
        setup.topic("one", shards=1, ordering=topic)
        setup.receive("one")  # somebody has looked from the head
        setup.send("one", 12)
        received = setup.queue.receive("one")
        assert len(received) == 10
        assert {r.visible_at for r in received} == {round((setup.clock.now() + 30) * 1000)}

    def test_the_topic_s_back_off_grows_with_the_attempts_up_to_its_cap(
        self, setup: QueueRig, topic: str
    ) -> None:
        retry = RetryPolicy(max_attempts=9, base=10, cap=50)
        setup.topic("patient", shards=1, ordering=topic, retry=retry)
        setup.send("patient")
        for attempt, bound in enumerate((20, 40, 50, 50), start=1):
            received = setup.one("patient")
            assert received.receive_count == attempt
            setup.queue.nack(received.receipt, None, "again")
            setup.clock.advance(9.9)
            assert setup.receive("patient") == []
            setup.clock.advance(bound - 9.9)
        assert setup.one("patient").receive_count == 5

    def test_a_release_does_not_count(self, setup: QueueRig, topic: str) -> None:
        setup.send(topic)
        setup.queue.release(setup.one(topic).receipt)
        assert setup.one(topic).receive_count == 1

    def test_after_the_last_attempt_it_is_dead_with_its_history(
        self, setup: QueueRig, topic: str
    ) -> None:
        (ref,) = setup.send(topic)
        setup.queue.nack(setup.one(topic).receipt, 0, "first")
        setup.one(topic, timeout=1)
        setup.clock.advance(1)  # a crash counts as an attempt
        setup.queue.nack(setup.one(topic).receipt, 0, "third")
        assert setup.lying() == []
        (letter,) = setup.outbox.dead(topic)
        assert (letter.id, letter.reason) == (ref.id, "third")
        assert letter.stored is not None
        history = [(f.attempt, f.error) for f in letter.stored.states["pull"].history]
        assert history[0] == (1, "first")
        assert history[-1] == (3, "third")
        assert letter.subscriptions == {"pull"}

    def test_a_consumer_that_always_crashes_fills_the_dead_letters_too(
        self, setup: QueueRig, topic: str
    ) -> None:
        setup.send(topic)
        for _ in range(3):
            setup.one(topic, timeout=1)
            setup.clock.advance(1)
        assert setup.receive(topic) == []
        assert setup.lying() == []
        (letter,) = setup.outbox.dead(topic)
        assert letter.reason == "not acknowledged in time"

    def test_what_is_given_up_is_dead_at_once(self, setup: QueueRig, topic: str) -> None:
        setup.send(topic)
        setup.queue.bury(setup.one(topic).receipt, "hopeless")
        assert setup.lying() == []
        assert [letter.reason for letter in setup.outbox.dead(topic)] == ["hopeless"]

    def test_an_item_that_nobody_can_read_is_dead_and_not_in_the_way(
        self, setup: QueueRig, topic: str
    ) -> None:
        (ref,) = setup.send(topic)
        item = {"pk": {"S": f"ready#{topic}#0#{ref.shard}"}, "sk": {"S": "00-junk"}}
        setup.engine.put_item(TableName=setup.table, Item=item | {"z": {"N": "1"}})
        assert setup.one(topic).message.id == ref.id
        assert [letter.raw != "" for letter in setup.outbox.dead(topic)] == [True]
        assert setup.lying() == [ref.id]

    def test_large_bodies_come_whole(self, setup: QueueRig, topic: str) -> None:
        body = setup.rng.randbytes(400_000)
        message = setup.message(topic, body)
        setup.queue.send(message)
        assert setup.one(topic).message.body == body

    def test_a_body_out_of_reach_is_a_failed_attempt_with_its_reason(
        self, setup: QueueRig, topic: str
    ) -> None:
        (ref,) = setup.send(topic, body=setup.rng.randbytes(400_000))
        fetch = setup.bodies.get

        def out_of_reach(bucket: str, key: str) -> bytes:
            raise Unavailable("get_object", "timed out")

        setup.bodies.get = out_of_reach  # type: ignore[method-assign]  # a broken store
        assert setup.queue.receive(topic) + setup.queue.receive(topic) == []
        stored = setup.outbox.find(ref)
        assert stored is not None
        assert [f.error for f in stored.states["pull"].history] == [
            "its body: get_object failed: timed out"
        ]
        setup.bodies.get = fetch  # type: ignore[method-assign]  # it works again
        setup.clock.advance(60)
        assert len(setup.one(topic).message.body) == 400_000


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
        self, setup: QueueRig, topic: str, field: str, arguments: dict[str, Any]
    ) -> None:
        setup.send(topic)
        with pytest.raises(InvalidInput) as refused:
            setup.queue.receive(topic, **arguments)
        assert refused.value.field == field
        assert len(setup.receive(topic)) == 1  # and holds nothing

    def test_receipts_that_are_none_are_refused_before_anything_is_done(
        self, setup: QueueRig, topic: str
    ) -> None:
        setup.send(topic, 2)
        good, other = (r.receipt for r in setup.receive(topic))
        forged = str(Receipt.parse(good))[:-2] + ("AA" if good[-2:] != "AA" else "BB")
        for bad in (good[:-1], good[1:], good + "=", "", "x", forged, good.swapcase(), other * 9):
            with pytest.raises(InvalidInput):
                setup.queue.ack([good, bad])
            with pytest.raises(InvalidInput):
                setup.queue.extend(bad, 60)
            with pytest.raises(InvalidInput):
                setup.queue.nack(bad)
        assert len(setup.lying()) == 2

    def test_a_receipt_with_the_token_of_another_message_is_stale(
        self, setup: QueueRig, topic: str
    ) -> None:
        setup.send(topic, 2)
        one, two = (Receipt.parse(r.receipt) for r in setup.receive(topic))
        crossed = str(Receipt(one.ref, one.place, two.token, one.until))
        for call in (setup.queue.ack, setup.queue.nack, setup.queue.release):
            with pytest.raises(StaleReceipt):
                call(crossed)
        assert len(setup.lying()) == 2

    def test_many_are_extended_and_a_stale_one_among_them_is_named(
        self, setup: QueueRig, topic: str
    ) -> None:
        setup.send(topic, 30)
        held = setup.receive(topic, wanted=30)
        assert len(held) == 30
        setup.queue.nack(held[7].receipt, delay=3600)
        with pytest.raises(StaleReceipt) as stale:
            setup.queue.extend_many([one.receipt for one in held], 60)
        assert stale.value.receipts == (held[7].receipt,)
        setup.clock.advance(59)
        assert setup.receive(topic) == []
        rest = [one.receipt for one in held if one is not held[7]]
        setup.queue.extend_many(iter(rest), 10)
        setup.queue.extend_many([], 10)
        setup.clock.advance(9)
        assert setup.receive(topic) == []
        setup.clock.advance(1)
        assert len(setup.receive(topic, wanted=30)) == 29

    def test_many_are_extended_only_if_all_are_receipts(self, setup: QueueRig, topic: str) -> None:
        setup.send(topic)
        held = setup.one(topic)
        before = setup.items()
        with pytest.raises(InvalidInput) as refused:
            setup.queue.extend_many([held.receipt, "none"], 60)
        assert refused.value.field == "receipt"
        assert setup.items() == before

    @pytest.mark.parametrize("seconds", [0, -5, 43_201, float("nan"), None])
    def test_extending_by_what_is_no_time_is_refused(
        self, setup: QueueRig, topic: str, seconds: Any
    ) -> None:
        setup.send(topic)
        receipt = setup.one(topic).receipt
        with pytest.raises(InvalidInput) as refused:
            setup.queue.extend(receipt, seconds)
        assert refused.value.field == "seconds"

    def test_a_pushed_topic_is_refused_two_seconds_after_it_became_so(
        self, setup: QueueRig, topic: str
    ) -> None:
        setup.send(topic)
        assert setup.receive(topic, wanted=1)
        setup.outbox.add_subscription(Subscription(topic, "billing", "sqs:http://q/q"))
        with pytest.raises(TopicIsPushed):
            setup.queue.receive(topic)

    def test_a_purge_of_a_pushed_topic_is_refused_and_says_what_to_use(
        self, setup: QueueRig, topic: str
    ) -> None:
        setup.send(topic, 2, partition_key="k")
        setup.outbox.add_subscription(Subscription(topic, "billing", "sqs:http://q/q"))
        with pytest.raises(TopicIsPushed, match=f"topic '{topic}' is pushed.*cancel.*skip.*remove"):
            setup.queue.purge(topic)
        assert len(setup.lying()) == 2

    def test_an_unknown_topic_is_refused(self, setup: QueueRig, topic: str) -> None:
        with pytest.raises(UnknownTopic):
            setup.queue.receive(topic + "x")


@TOPICS
class TestRaces:
    def test_what_another_claims_meanwhile_is_left_to_it(self, setup: QueueRig, topic: str) -> None:
        setup.topic("narrow", shards=1, ordering=topic)
        others = Queue.over(setup.another(setup.clock))
        setup.receive("narrow")  # somebody has looked from the head
        setup.send("narrow", 1)
        setup.queue.ack(setup.one("narrow").receipt)  # and something was held before
        setup.send("narrow", 6)
        name = "batch_execute_statement" if topic == "none" else "update_item"
        write = getattr(setup.engine, name)
        taken: list[Received] = []

        def first_the_other(**request: Any) -> Any:
            setup.client.__dict__.pop(name, None)
            taken.extend(others.receive("narrow", 3))
            return write(**request)

        setup.client.__dict__[name] = first_the_other
        mine = [r for _ in range(3) for r in setup.queue.receive("narrow", 3)]
        assert len(taken) == 3
        assert len(mine) == 3
        assert not {r.message.id for r in mine} & {r.message.id for r in taken}
        setup.queue.ack(r.receipt for r in (*taken, *mine))
        assert setup.lying() == []


class TestUnordered:
    def test_a_delayed_message_is_received_when_it_is_due(self, setup: QueueRig) -> None:
        for delay in (5, 300, 200 * 86_400):
            (ref,) = setup.send("none", delay=delay)
            setup.receive("none")
            setup.clock.advance(delay - 3 - 1)
            assert setup.receive("none") == []
            setup.clock.advance(1)
            received = setup.one("none")
            assert received.message.id == ref.id
            setup.queue.ack(received.receipt)

    def test_a_delayed_send_calls_for_a_look_when_it_is_due(self, setup: QueueRig) -> None:
        setup.receive("none")  # the next look is a minute off
        (ref,) = setup.send("none", delay=5)
        assert setup.receive("none") == []
        setup.clock.advance(2)
        assert setup.one("none").message.id == ref.id

    def test_of_two_consumers_one_looks_from_the_head(self, setup: QueueRig) -> None:
        setup.topic("narrow", shards=1)
        others = Queue.over(setup.another(setup.clock))
        others.receive("narrow")
        setup.clock.advance(60)
        update, query, looks = setup.engine.update_item, setup.engine.query, []

        def first_the_other(**request: Any) -> Any:
            setup.client.__dict__.pop("update_item", None)
            others.receive("narrow")
            return update(**request)

        def counted(**request: Any) -> Any:
            pk = request["ExpressionAttributeValues"][":pk"]["S"]
            looks.append(pk) if pk.startswith("later#") else None
            return query(**request)

        setup.client.__dict__ |= {"update_item": first_the_other, "query": counted}
        assert setup.queue.receive("narrow") == []
        assert looks == ["later#narrow#0#0"]

    def test_a_long_poll_returns_with_the_first_message(self, setup: QueueRig) -> None:
        setup.send("none", delay=8)
        began = setup.clock.now()
        assert len(setup.queue.receive("none", wait=20)) == 1
        assert 4 <= setup.clock.now() - began <= 7

    def test_a_long_poll_ends_empty(self, setup: QueueRig) -> None:
        began = setup.clock.now()
        assert setup.queue.receive("none", wait=3) == []
        assert 3 <= setup.clock.now() - began <= 3.1

    def test_a_claim_whose_answer_was_lost_is_held(self, setup: QueueRig) -> None:
        setup.send("none", 3, partition_key="k")
        setup.client.next("batch_execute_statement", Fault.APPLIED_THEN_TIMEOUT)
        received = setup.receive("none")
        assert len(received) == 3
        setup.client.next("batch_execute_statement", Fault.APPLIED_THEN_TIMEOUT)
        setup.queue.ack(r.receipt for r in received)
        assert setup.lying() == []


class TestOrdered:
    @pytest.mark.guarantee("one-holder-of-a-key")
    def test_one_message_of_a_key_is_held_and_the_others_go_on(self, setup: QueueRig) -> None:
        stuck = setup.send("key", 3, partition_key="stuck")
        others = [setup.send("key", 1, partition_key=f"k{n}")[0] for n in range(5)]
        got = setup.receive("key", timeout=1000)
        assert {r.message.id for r in got} == {stuck[0].id, *(o.id for o in others)}
        setup.queue.ack(r.receipt for r in got if r.message.partition_key != "stuck")
        assert setup.receive("key") == []
        setup.queue.ack(r.receipt for r in got if r.message.partition_key == "stuck")
        assert setup.one("key").message.id == stuck[1].id

    def test_the_messages_of_a_key_come_in_order_whatever_fails(self, setup: QueueRig) -> None:
        refs = setup.send("key", 4, partition_key="k")
        seen = []
        for attempt in range(12):
            received = setup.one("key")
            seen.append(received.message.id)
            if attempt % 3 == 2:
                setup.queue.ack(received.receipt)
            else:
                setup.queue.nack(received.receipt)
        assert seen == [ref.id for ref in refs for _ in range(3)]

    def test_a_shard_has_a_thousand_keys_in_flight_and_says_when_it_is_full(
        self, setup: QueueRig, caplog: pytest.LogCaptureFixture
    ) -> None:
        setup.topic("wide", shards=1, ordering="key")
        setup.send("wide", MAX_ENTRIES + 30)
        held = [r for _ in range(11) for r in setup.queue.receive("wide", 100)]
        assert len(held) == MAX_ENTRIES > 1_000
        assert setup.queue.stats("wide").in_flight == MAX_ENTRIES
        assert [r.name for r in caplog.records if "Shard wide/0/0" in r.message] == [
            "fairbox.queue"
        ]
        setup.queue.ack(r.receipt for r in held)
        assert len([r for _ in range(5) for r in setup.queue.receive("wide", 20)]) == 30

    def test_counts_and_claims_of_one_row_leave_each_other_alone(self, setup: QueueRig) -> None:
        refs = setup.send("key", 4)
        held = setup.receive("key")
        assert setup.queue.stats("key").in_flight == 4
        setup.deliver(*refs)  # counts, by the row's other conditions
        assert setup.queue.stats("key").in_flight == 4
        setup.queue.ack(r.receipt for r in held)
        assert setup.queue.stats("key").in_flight == 0


@TOPICS
class TestOperating:
    def test_an_edited_message_comes_as_it_is_now(self, setup: QueueRig, topic: str) -> None:
        (ref,) = setup.send(topic, partition_key="k", headers={"a": "1"})
        setup.queue.edit(ref, body=b"new", headers={"b": "2"}, content_type="text/new")
        received = setup.one(topic)
        assert received.message.body == b"new"
        assert received.message.headers == {"b": "2"}
        assert (received.message.content_type, received.message.partition_key) == ("text/new", "k")

    @pytest.mark.guarantee("cancelled-not-received")
    def test_what_is_held_is_neither_edited_nor_moved_nor_cancelled(
        self, setup: QueueRig, topic: str
    ) -> None:
        (ref,) = setup.send(topic)
        received = setup.one(topic)
        calls: list[Callable[[], object]] = [
            lambda: setup.queue.edit(ref, body=b"new"),
            lambda: setup.queue.reschedule(ref),
            lambda: setup.queue.cancel([ref]),
        ]
        for call in calls:
            with pytest.raises(MessagesClaimed) as refused:
                call()
            assert refused.value.claimed == (ref,)
        setup.queue.ack(received.receipt)
        for call in calls:
            with pytest.raises(MessagesNotFound):
                call()

    @pytest.mark.guarantee("cancelled-not-received")
    def test_a_cancelled_message_is_not_received(self, setup: QueueRig, topic: str) -> None:
        gone, stays = setup.send(topic, 2)
        setup.queue.cancel([gone], reason="mistake")
        assert [received.message.id for received in setup.receive(topic)] == [stays.id]
        assert setup.lying() == [stays.id]

    @pytest.mark.guarantee("cancelled-not-received")
    def test_a_claim_that_began_before_an_edit_does_not_stand(
        self, setup: QueueRig, topic: str
    ) -> None:
        (ref,) = setup.send(topic)
        name = "batch_execute_statement" if topic == "none" else "update_item"
        call = getattr(setup.engine, name)
        other = Queue.over(setup.another(setup.clock))

        def first_the_operator(**request: Any) -> Any:
            if topic == "none" or request["Key"]["pk"]["S"].startswith("ready#"):
                setup.client.__dict__.pop(name, None)
                other.edit(ref, body=b"edited")
            return call(**request)

        setup.client.__dict__[name] = first_the_operator
        got = [r for _ in range(4) for r in setup.queue.receive(topic)]
        assert [r.message.body for r in got] == [b"edited"]

    def test_purging_empties_the_topic_with_progress(self, setup: QueueRig, topic: str) -> None:
        setup.send(topic, partition_key="k")
        held = setup.receive(topic)
        setup.send(topic, 130)
        if topic == "none":
            setup.send(topic, 7, delay=500)
        held += setup.receive(topic, wanted=3)
        told: list[int] = []
        count = len(setup.lying())
        assert setup.queue.purge(topic, reason="tests", progress=told.append) == count
        assert told[-1] == count
        assert told == sorted(told)
        assert setup.lying() == []
        assert setup.queue.purge(topic) == 0
        (ref,) = setup.send(topic, partition_key="k")  # which nobody holds any more
        assert setup.one(topic).message.id == ref.id
        setup.queue.ack(r.receipt for r in held)  # what is gone counts as acknowledged


class TestRescheduling:
    def test_a_waiting_message_is_made_due_now(self, setup: QueueRig) -> None:
        (ref,) = setup.send("none", delay=5000)
        setup.receive("none")
        moved = setup.queue.reschedule(ref)
        assert (moved.id, moved.due) == (ref.id, None)
        assert setup.one("none").message.id == ref.id
        assert setup.lying() == [ref.id]

    def test_a_waiting_message_is_made_due_later(self, setup: QueueRig) -> None:
        (ref,) = setup.send("none", delay=10)
        moved = setup.queue.reschedule(ref, 100)
        setup.clock.advance(99)
        assert setup.receive("none") == []
        setup.clock.advance(1)
        assert setup.one("none").message.id == ref.id
        assert setup.outbox.find(moved) is not None

    def test_a_ready_message_is_made_due_later_and_now_again(self, setup: QueueRig) -> None:
        (ref,) = setup.send("none")
        assert setup.queue.reschedule(ref, 100) == ref
        assert setup.receive("none") == []
        setup.queue.reschedule(ref)
        received = setup.one("none")
        assert received.receive_count == 1

    def test_the_wait_of_an_ordered_message_is_ended_but_none_is_made(
        self, setup: QueueRig
    ) -> None:
        (ref,) = setup.send("key")
        setup.queue.nack(setup.one("key").receipt, 500)
        with pytest.raises(InvalidInput):
            setup.queue.reschedule(ref, 5)
        assert setup.receive("key") == []
        setup.queue.reschedule(ref)
        assert setup.one("key").receive_count == 2

"""The outbox over both engines: publishing and reading."""

from __future__ import annotations

from typing import Any

import pytest
from fairbox import (
    BodyTooLarge,
    InvalidInput,
    MessageRef,
    MessagesNotFound,
    MessagesNotWritten,
    Outbox,
    RetryPolicy,
    Throttled,
    Topic,
    TopicConflict,
    TransactionCancelled,
    UnknownTopic,
)
from fairbox.model import bodies
from fairbox.testing.faults import Fault

from tests.contract.rig import Rig


@pytest.fixture
def rig(client: Any) -> Rig:
    return Rig(client)


class TestTopics:
    def test_creating_a_topic_again_changes_nothing(self, rig: Rig) -> None:
        first = rig.outbox.create_topic(Topic("orders", shards=3))
        assert rig.outbox.create_topic(Topic("orders", shards=3)) == first
        assert [state.topic.name for state in rig.outbox.topics()] == ["orders"]

    def test_what_may_change_is_brought_up_to_date(self, rig: Rig) -> None:
        rig.topic(dedup_window=60)
        changed = rig.topic(dedup_window=90, retry=RetryPolicy(base=0.5, cap=7.25, max_attempts=3))
        assert rig.outbox.topic("orders").topic == changed

    @pytest.mark.parametrize("other", [{"shards": 5}, {"ordering": "key"}])
    def test_another_width_or_ordering_is_a_conflict_and_changes_nothing(
        self, rig: Rig, other: dict[str, Any]
    ) -> None:
        before = rig.topic()
        with pytest.raises(TopicConflict):
            rig.topic(**other)
        assert rig.outbox.topic("orders").topic == before

    def test_topics_with_like_names_are_told_apart(self, rig: Rig) -> None:
        names = ["a", "a-b", "a.b", "a0", "aa"]
        for name in names:
            rig.topic(name)
        assert [state.topic.name for state in rig.outbox.topics()] == sorted(names)
        assert rig.outbox.topic("a").topic.name == "a"

    def test_an_unknown_topic_is_refused_by_name_and_nothing_is_written(self, rig: Rig) -> None:
        message = rig.message("nowhere")
        for call in (
            lambda: rig.outbox.add(message),
            lambda: rig.outbox.add_many([message]),
            lambda: rig.outbox.transact_items(message),
            lambda: rig.outbox.topic("nowhere"),
            lambda: list(rig.outbox.outstanding("nowhere")),
        ):
            with pytest.raises(UnknownTopic, match="nowhere"):
                call()
        assert rig.items() == []


class TestAdding:
    def test_adding_twice_gives_one_message_and_the_same_ref(self, rig: Rig) -> None:
        rig.topic()
        message = rig.message(partition_key="k", headers={"a": "b"}, content_type="text/plain")
        assert rig.outbox.add(message) == rig.outbox.add(message)
        assert list(rig.outbox.outstanding("orders")) == [message]

    def test_adding_again_keeps_what_is_known_of_the_message(self, rig: Rig) -> None:
        rig.topic()
        message = rig.message()
        ref = rig.outbox.add(message)
        rig.outbox.tables.lanes.mark_gone(ref, "cancelled", "")
        rig.outbox.add(message)
        assert rig.outbox.get(ref) is None

    def test_many_with_duplicates_among_them_are_written_once_each(self, rig: Rig) -> None:
        rig.topic()
        messages = rig.messages(60)
        refs = rig.outbox.add_many([*messages, *messages[:7]])
        assert refs[60:] == refs[:7]
        assert [r.id for r in refs[:60]] == [m.id for m in messages]
        assert list(rig.outbox.outstanding("orders")) == messages

    def test_unprocessed_messages_are_tried_again(self, rig: Rig) -> None:
        rig.topic()
        rig.client.next("batch_write_item", *[Fault.UNPROCESSED] * 5)
        messages = rig.messages(50)
        rig.outbox.add_many(messages)
        assert rig.outbox.outstanding_count("orders") == 50

    def test_what_was_not_written_after_all_tries_is_named(self, rig: Rig) -> None:
        rig.topic()
        messages = rig.messages(30)
        rig.client.next("batch_write_item", None, *[Fault.THROTTLED] * 8)
        with pytest.raises(MessagesNotWritten) as caught:
            rig.outbox.add_many(messages)
        missing = {ref.id for ref in caught.value.missing}
        assert missing == {m.id for m in messages[25:]}
        assert {m.id for m in rig.outbox.outstanding("orders")} == {m.id for m in messages[:25]}

    def test_throttling_to_the_last_try_is_told_as_throttling(self, rig: Rig) -> None:
        rig.topic()
        rig.outbox.topic("orders")
        message = rig.message()
        rig.outbox.add(rig.message())
        rig.client.next("put_item", *[Fault.THROTTLED] * 8)
        with pytest.raises(Throttled):
            rig.outbox.add(message)

    def test_a_lost_answer_leaves_one_message(self, rig: Rig) -> None:
        rig.topic()
        rig.client.next("put_item", Fault.APPLIED_THEN_TIMEOUT)
        ref = rig.outbox.add(rig.message())
        assert [m.id for m in rig.outbox.outstanding("orders")] == [ref.id]

    @pytest.mark.parametrize("size", [0, 1, 511, 513, 399 * 1024, 1_000_000])
    @pytest.mark.parametrize("random", [False, True])
    def test_bodies_of_every_size_come_back_byte_for_byte(
        self, rig: Rig, size: int, random: bool
    ) -> None:
        rig.topic()
        body = rig.rng.randbytes(size) if random else b"a" * size
        ref = rig.outbox.add(rig.message(body=body))
        found = rig.outbox.get(ref)
        assert found is not None
        assert found.body == body
        assert next(rig.outbox.outstanding("orders")).body == body
        packed_too_large = random and size > bodies.OFFLOAD_OVER
        assert bool(rig.bodies.objects) == (packed_too_large or size > bodies.ARCHIVED_UP_TO)

    def test_a_large_body_without_a_bucket_is_refused_and_nothing_is_written(
        self, rig: Rig
    ) -> None:
        rig.topic()
        bare = Outbox(rig.client, table=rig.table, deliveries_table=rig.deliveries, clock=rig.clock)
        with pytest.raises(BodyTooLarge) as caught:
            bare.add(rig.message(body=rig.rng.randbytes(399 * 1024)))
        assert caught.value.field == "body"
        assert rig.items() == []

    def test_a_delay_on_an_ordered_topic_is_refused(self, rig: Rig) -> None:
        rig.topic(ordering="key")
        with pytest.raises(InvalidInput) as caught:
            rig.outbox.add(rig.message(delay=1))
        assert caught.value.field == "delay"
        assert rig.items() == []

    def test_a_plain_message_of_a_kilobyte_costs_one_unit(self, rig: Rig) -> None:
        rig.topic()
        rig.outbox.add(rig.message(body=rig.rng.randbytes(850), partition_key="customer-42"))
        (item,) = rig.items()
        size = sum(
            len(n) + len(next(iter(v.values()))) if "M" not in v else 0 for n, v in item.items()
        )
        assert size <= 1024


class TestTransactions:
    def business(self, rig: Rig, name: str = "row", **more: Any) -> dict[str, Any]:
        key = {"pk": {"S": f"business#{name}"}, "sk": {"S": "row"}}
        return {"Put": {"TableName": rig.deliveries, "Item": key, **more}}

    def has_row(self, rig: Rig) -> bool:
        key = self.business(rig)["Put"]["Item"]
        return "Item" in rig.engine.get_item(TableName=rig.deliveries, Key=key)

    def test_row_and_message_commit_together(self, rig: Rig) -> None:
        rig.topic()
        message = rig.message()
        rig.client.transact_write_items(
            TransactItems=[self.business(rig), *rig.outbox.transact_items(message)]
        )
        assert self.has_row(rig)
        assert list(rig.outbox.outstanding("orders")) == [message]

    def test_neither_commits_when_the_row_is_refused(self, rig: Rig) -> None:
        rig.topic()
        refused = self.business(rig, ConditionExpression="attribute_exists(pk)")
        with pytest.raises(TransactionCancelled) as caught:
            rig.outbox.transact([refused], rig.message())
        assert [code for code, _ in caught.value.reasons] == ["ConditionalCheckFailed", "None"]
        assert not self.has_row(rig)
        assert rig.items() == []

    def test_a_repeated_token_writes_nothing_twice(self, rig: Rig) -> None:
        rig.topic()
        message = rig.message()
        refs = rig.outbox.transact([self.business(rig)], message, token="call-7")
        rig.outbox.mark_delivered(refs)
        assert rig.outbox.transact([self.business(rig)], message, token="call-7") == refs
        assert rig.items() == []

    def test_a_repeated_token_with_a_dedup_key_is_the_same_call_seconds_later(
        self, rig: Rig
    ) -> None:
        rig.topic(dedup_window=300)
        message = rig.message(dedup_key="invoice-7")
        refs = rig.outbox.transact([self.business(rig)], message, token="call-8")
        rig.clock.advance(5)
        assert rig.outbox.transact([self.business(rig)], message, token="call-8") == refs

    def test_conflicts_and_lost_answers_are_repeated_as_one(self, rig: Rig) -> None:
        rig.topic()
        faults = [Fault.CONFLICT, Fault.THROTTLED, Fault.APPLIED_THEN_TIMEOUT]
        rig.client.next("transact_write_items", *faults)
        (ref,) = rig.outbox.transact([self.business(rig)], rig.message())
        assert [m.id for m in rig.outbox.outstanding("orders")] == [ref.id]

    def test_101_actions_are_refused_and_nothing_is_written(self, rig: Rig) -> None:
        rig.topic()
        messages = rig.messages(101)
        with pytest.raises(InvalidInput, match="100"):
            rig.outbox.transact_items(*messages)
        with pytest.raises(InvalidInput, match="100"):
            rig.outbox.transact([self.business(rig)], *messages[:100])
        assert rig.items() == []

    def test_100_messages_fit_one_transaction(self, rig: Rig) -> None:
        rig.topic()
        rig.outbox.transact([], *rig.messages(100))
        assert rig.outbox.outstanding_count("orders") == 100


class TestDeduplication:
    def test_within_the_window_the_first_ref_comes_back(self, rig: Rig) -> None:
        rig.topic(dedup_window=60)
        first = rig.outbox.add(rig.message(dedup_key="invoice-7"))
        rig.clock.advance(59)
        assert rig.outbox.add(rig.message(dedup_key="invoice-7")) == first
        assert rig.outbox.add(rig.message(dedup_key="invoice-8")) != first
        assert rig.outbox.outstanding_count("orders") == 2

    def test_after_the_window_it_is_a_new_message(self, rig: Rig) -> None:
        rig.topic(dedup_window=60)
        first = rig.outbox.add(rig.message(dedup_key="invoice-7"))
        rig.clock.advance(61)
        assert rig.outbox.add(rig.message(dedup_key="invoice-7")) != first

    def test_the_window_outlasts_the_delivery(self, rig: Rig) -> None:
        rig.topic(dedup_window=60)
        first = rig.outbox.add(rig.message(dedup_key="invoice-7"))
        rig.outbox.mark_delivered([first])
        assert rig.outbox.add(rig.message(dedup_key="invoice-7")) == first
        assert rig.items() == []

    def test_many_with_one_key_give_one_ref(self, rig: Rig) -> None:
        rig.topic(dedup_window=60)
        refs = rig.outbox.add_many([rig.message(dedup_key="k") for _ in range(3)])
        assert len(set(refs)) == 1
        assert rig.outbox.outstanding_count("orders") == 1

    def test_a_lost_answer_is_no_duplicate_of_itself(self, rig: Rig) -> None:
        rig.topic(dedup_window=60)
        message = rig.message(dedup_key="k")
        rig.client.next("transact_write_items", Fault.APPLIED_THEN_TIMEOUT)
        ref = rig.outbox.add(message)
        assert ref.id == message.id

    def test_without_a_window_the_key_is_only_kept(self, rig: Rig) -> None:
        rig.topic()
        refs = {rig.outbox.add(rig.message(dedup_key="k")) for _ in range(2)}
        assert len(refs) == 2

    def test_in_the_callers_transaction_a_seen_key_fails_it(self, rig: Rig) -> None:
        rig.topic(dedup_window=60)
        rig.outbox.add(rig.message(dedup_key="k"))
        with pytest.raises(TransactionCancelled) as caught:
            rig.outbox.transact([], rig.message(dedup_key="k"))
        assert caught.value.reasons[1][0] == "ConditionalCheckFailed"


class TestGetting:
    def test_one_by_ref_and_by_its_text(self, rig: Rig) -> None:
        rig.topic()
        message = rig.message(delay=30)
        ref = rig.outbox.add(message)
        assert rig.outbox.get(MessageRef.parse(str(ref))) == message

    def test_what_is_not_there_is_none(self, rig: Rig) -> None:
        rig.topic()
        assert rig.outbox.get(MessageRef("orders", 0, 1, rig.ids.next())) is None

    def test_many_come_in_the_order_asked_with_repetitions(self, rig: Rig) -> None:
        rig.topic()
        messages = rig.messages(120)
        refs = rig.outbox.add_many(messages)
        asked = [*reversed(refs), refs[5]]
        found = rig.outbox.get_many(asked)
        assert [m.id for m in found] == [r.id for r in asked]

    def test_unprocessed_keys_are_read_again(self, rig: Rig) -> None:
        rig.topic()
        refs = rig.outbox.add_many(rig.messages(120))
        rig.client.next("batch_get_item", *[Fault.UNPROCESSED] * 3)
        assert len(rig.outbox.get_many(refs)) == 120

    def test_the_missing_are_named(self, rig: Rig) -> None:
        rig.topic()
        refs = rig.outbox.add_many(rig.messages(3))
        rig.outbox.mark_delivered(refs[:1])
        nobody = MessageRef("orders", 0, 2, rig.ids.next())
        with pytest.raises(MessagesNotFound) as caught:
            rig.outbox.get_many([*refs, nobody, nobody])
        assert set(caught.value.missing) == {refs[0], nobody}

    def test_a_dead_letter_is_found_with_and_without_its_due_time(self, rig: Rig) -> None:
        rig.topic()
        message = rig.message(delay=5)
        ref = rig.outbox.add(message)
        stored = rig.outbox.find(ref)
        assert stored is not None
        rig.outbox.tables.dead.bury(stored, frozenset({"billing"}))
        rig.outbox.mark_delivered([ref])
        bare = MessageRef(ref.topic, ref.epoch, ref.shard, ref.id)
        assert [m.id for m in rig.outbox.get_many([ref, bare])] == [ref.id, ref.id]

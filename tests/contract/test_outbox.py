"""The outbox over both engines: publishing and reading."""

from __future__ import annotations

from dataclasses import replace
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

from tests.support.outbox_fixture import Setup


@pytest.fixture
def setup(client: Any) -> Setup:
    return Setup(client)


class TestTopics:
    def test_creating_a_topic_again_changes_nothing(self, setup: Setup) -> None:
        first = setup.outbox.create_topic(Topic("orders", shards=3))
        assert setup.outbox.create_topic(Topic("orders", shards=3)) == first
        assert [state.topic.name for state in setup.outbox.topics()] == ["orders"]

    def test_what_may_change_is_brought_up_to_date(self, setup: Setup) -> None:
        setup.topic(dedup_window=60)
        changed = setup.topic(
            dedup_window=90, retry=RetryPolicy(base=0.5, cap=7.25, max_attempts=3)
        )
        assert setup.outbox.topic("orders").topic == changed

    def test_what_is_not_given_stays_and_what_differs_is_said(self, setup: Setup) -> None:
        setup.topic(dedup_window=60, retry=RetryPolicy(max_attempts=3))
        there = setup.outbox.topic("orders").topic
        assert setup.outbox.create_topic(Topic("orders")).topic == there
        changed = setup.outbox.create_topic(Topic("orders", weight=2)).topic
        assert changed == replace(there, weight=2)
        gone = setup.outbox.create_topic(replace(changed, dedup_window=None)).topic
        assert gone.dedup_window is None
        with pytest.raises(TopicConflict, match="with shards 4, not 8; `resize` changes shards"):
            setup.outbox.create_topic(Topic("orders", 8))

    @pytest.mark.parametrize("other", [{"shards": 5}, {"ordering": "key"}])
    def test_another_width_or_ordering_is_a_conflict_and_changes_nothing(
        self, setup: Setup, other: dict[str, Any]
    ) -> None:
        before = setup.topic()
        with pytest.raises(TopicConflict):
            setup.topic(**other)
        assert setup.outbox.topic("orders").topic == before

    def test_topics_with_like_names_are_told_apart(self, setup: Setup) -> None:
        names = ["a", "a-b", "a.b", "a0", "aa"]
        for name in names:
            setup.topic(name)
        assert [state.topic.name for state in setup.outbox.topics()] == sorted(names)
        assert setup.outbox.topic("a").topic.name == "a"

    def test_an_unknown_topic_is_refused_by_name_and_nothing_is_written(self, setup: Setup) -> None:
        message = setup.message("nowhere")
        for call in (
            lambda: setup.outbox.add(message),
            lambda: setup.outbox.add_many([message]),
            lambda: setup.outbox.transact_items(message),
            lambda: setup.outbox.topic("nowhere"),
            lambda: list(setup.outbox.outstanding("nowhere")),
        ):
            with pytest.raises(UnknownTopic, match="nowhere"):
                call()
        assert setup.items() == []


class TestAdding:
    def test_adding_twice_gives_one_message_and_the_same_ref(self, setup: Setup) -> None:
        setup.topic()
        message = setup.message(partition_key="k", headers={"a": "b"}, content_type="text/plain")
        assert setup.outbox.add(message) == setup.outbox.add(message)
        assert list(setup.outbox.outstanding("orders")) == [message]

    def test_adding_again_keeps_what_is_known_of_the_message(self, setup: Setup) -> None:
        setup.topic()
        message = setup.message()
        ref = setup.outbox.add(message)
        setup.outbox.tables.lanes.mark_gone(ref, "cancelled", "")
        setup.outbox.add(message)
        assert setup.outbox.get(ref) is None

    def test_many_with_duplicates_among_them_are_written_once_each(self, setup: Setup) -> None:
        setup.topic()
        messages = setup.messages(60)
        refs = setup.outbox.add_many([*messages, *messages[:7]])
        assert refs[60:] == refs[:7]
        assert [r.id for r in refs[:60]] == [m.id for m in messages]
        assert list(setup.outbox.outstanding("orders")) == messages

    def test_unprocessed_messages_are_tried_again(self, setup: Setup) -> None:
        setup.topic()
        setup.client.next("batch_write_item", *[Fault.UNPROCESSED] * 2)
        messages = setup.messages(50)
        setup.outbox.add_many(messages, new=True)
        assert setup.outbox.outstanding_count("orders") == 50

    def test_throttled_statements_are_tried_again_each_for_itself(self, setup: Setup) -> None:
        setup.topic()
        setup.client.next("batch_execute_statement", *[Fault.UNPROCESSED] * 5)
        messages = setup.messages(50)
        setup.outbox.add_many(messages)
        assert setup.outbox.outstanding_count("orders") == 50

    def test_what_was_not_written_after_all_tries_is_named(self, setup: Setup) -> None:
        setup.topic()
        messages = setup.messages(30)
        setup.client.next("batch_execute_statement", None, *[Fault.THROTTLED] * 8)
        with pytest.raises(MessagesNotWritten, match="throttled") as caught:
            setup.outbox.add_many(messages)
        missing = {ref.id for ref in caught.value.missing}
        assert missing == {m.id for m in messages[25:]}
        assert {m.id for m in setup.outbox.outstanding("orders")} == {m.id for m in messages[:25]}

    def test_throttling_to_the_last_try_is_told_as_throttling(self, setup: Setup) -> None:
        setup.topic()
        setup.outbox.topic("orders")
        message = setup.message()
        setup.outbox.add(setup.message())
        setup.client.next("put_item", *[Fault.THROTTLED] * 8)
        with pytest.raises(Throttled):
            setup.outbox.add(message)

    def test_a_lost_answer_leaves_one_message(self, setup: Setup) -> None:
        setup.topic()
        setup.client.next("put_item", Fault.APPLIED_THEN_TIMEOUT)
        ref = setup.outbox.add(setup.message())
        assert [m.id for m in setup.outbox.outstanding("orders")] == [ref.id]

    @pytest.mark.parametrize("size", [0, 1, 511, 513, 399 * 1024, 1_000_000])
    @pytest.mark.parametrize("random", [False, True])
    def test_bodies_of_every_size_come_back_byte_for_byte(
        self, setup: Setup, size: int, random: bool
    ) -> None:
        setup.topic()
        body = setup.rng.randbytes(size) if random else b"a" * size
        ref = setup.outbox.add(setup.message(body=body))
        found = setup.outbox.get(ref)
        assert found is not None
        assert found.body == body
        assert next(setup.outbox.outstanding("orders")).body == body
        packed_too_large = random and size > bodies.OFFLOAD_OVER
        assert bool(setup.bodies.objects) == (packed_too_large or size > bodies.ARCHIVED_UP_TO)

    def test_a_large_body_without_a_bucket_is_refused_and_nothing_is_written(
        self, setup: Setup
    ) -> None:
        setup.topic()
        bare = Outbox(
            setup.client, table=setup.table, deliveries_table=setup.deliveries, clock=setup.clock
        )
        with pytest.raises(BodyTooLarge) as caught:
            bare.add(setup.message(body=setup.rng.randbytes(399 * 1024)))
        assert caught.value.field == "body"
        assert setup.items() == []

    def test_a_delay_on_an_ordered_topic_is_refused(self, setup: Setup) -> None:
        setup.topic(ordering="key")
        with pytest.raises(InvalidInput) as caught:
            setup.outbox.add(setup.message(delay=1))
        assert caught.value.field == "delay"
        assert setup.items() == []

    def test_a_plain_message_of_a_kilobyte_costs_one_unit(self, setup: Setup) -> None:
        setup.topic()
        setup.outbox.add(setup.message(body=setup.rng.randbytes(850), partition_key="customer-42"))
        (item,) = setup.items()
        size = sum(
            len(n) + len(next(iter(v.values()))) if "M" not in v else 0 for n, v in item.items()
        )
        assert size <= 1024


class TestTransactions:
    def business(self, setup: Setup, name: str = "row", **more: Any) -> dict[str, Any]:
        key = {"pk": {"S": f"business#{name}"}, "sk": {"S": "row"}}
        return {"Put": {"TableName": setup.deliveries, "Item": key, **more}}

    def has_row(self, setup: Setup) -> bool:
        key = self.business(setup)["Put"]["Item"]
        return "Item" in setup.engine.get_item(TableName=setup.deliveries, Key=key)

    def test_row_and_message_commit_together(self, setup: Setup) -> None:
        setup.topic()
        message = setup.message()
        setup.client.transact_write_items(
            TransactItems=[self.business(setup), *setup.outbox.transact_items(message)]
        )
        assert self.has_row(setup)
        assert list(setup.outbox.outstanding("orders")) == [message]

    def test_neither_commits_when_the_row_is_refused(self, setup: Setup) -> None:
        setup.topic()
        refused = self.business(setup, ConditionExpression="attribute_exists(pk)")
        with pytest.raises(TransactionCancelled) as caught:
            setup.outbox.transact([refused], setup.message())
        assert [code for code, _ in caught.value.reasons] == ["ConditionalCheckFailed", "None"]
        assert not self.has_row(setup)
        assert setup.items() == []

    def test_a_repeated_token_writes_nothing_twice(self, setup: Setup) -> None:
        setup.topic()
        message = setup.message()
        refs = setup.outbox.transact([self.business(setup)], message, token="call-7")
        setup.outbox.mark_delivered(refs)
        assert setup.outbox.transact([self.business(setup)], message, token="call-7") == refs
        assert setup.items() == []

    def test_a_repeated_token_with_a_dedup_key_is_the_same_call_seconds_later(
        self, setup: Setup
    ) -> None:
        setup.topic(dedup_window=300)
        message = setup.message(dedup_key="invoice-7")
        refs = setup.outbox.transact([self.business(setup)], message, token="call-8")
        setup.clock.advance(5)
        assert setup.outbox.transact([self.business(setup)], message, token="call-8") == refs

    def test_conflicts_and_lost_answers_are_repeated_as_one(self, setup: Setup) -> None:
        setup.topic()
        faults = [Fault.CONFLICT, Fault.THROTTLED, Fault.APPLIED_THEN_TIMEOUT]
        setup.client.next("transact_write_items", *faults)
        (ref,) = setup.outbox.transact([self.business(setup)], setup.message())
        assert [m.id for m in setup.outbox.outstanding("orders")] == [ref.id]

    def test_101_actions_are_refused_and_nothing_is_written(self, setup: Setup) -> None:
        setup.topic()
        messages = setup.messages(101)
        with pytest.raises(InvalidInput, match="100"):
            setup.outbox.transact_items(*messages)
        with pytest.raises(InvalidInput, match="100"):
            setup.outbox.transact([self.business(setup)], *messages[:100])
        assert setup.items() == []

    def test_100_messages_fit_one_transaction(self, setup: Setup) -> None:
        setup.topic()
        setup.outbox.transact([], *setup.messages(100))
        assert setup.outbox.outstanding_count("orders") == 100


class TestDeduplication:
    def test_within_the_window_the_first_ref_comes_back(self, setup: Setup) -> None:
        setup.topic(dedup_window=60)
        first = setup.outbox.add(setup.message(dedup_key="invoice-7"))
        setup.clock.advance(59)
        assert setup.outbox.add(setup.message(dedup_key="invoice-7")) == first
        assert setup.outbox.add(setup.message(dedup_key="invoice-8")) != first
        assert setup.outbox.outstanding_count("orders") == 2

    def test_after_the_window_it_is_a_new_message(self, setup: Setup) -> None:
        setup.topic(dedup_window=60)
        first = setup.outbox.add(setup.message(dedup_key="invoice-7"))
        setup.clock.advance(61)
        assert setup.outbox.add(setup.message(dedup_key="invoice-7")) != first

    def test_the_window_outlasts_the_delivery(self, setup: Setup) -> None:
        setup.topic(dedup_window=60)
        first = setup.outbox.add(setup.message(dedup_key="invoice-7"))
        setup.outbox.mark_delivered([first])
        assert setup.outbox.add(setup.message(dedup_key="invoice-7")) == first
        assert setup.items() == []

    def test_many_with_one_key_give_one_ref(self, setup: Setup) -> None:
        setup.topic(dedup_window=60)
        refs = setup.outbox.add_many([setup.message(dedup_key="k") for _ in range(3)])
        assert len(set(refs)) == 1
        assert setup.outbox.outstanding_count("orders") == 1

    def test_a_lost_answer_is_no_duplicate_of_itself(self, setup: Setup) -> None:
        setup.topic(dedup_window=60)
        message = setup.message(dedup_key="k")
        setup.client.next("transact_write_items", Fault.APPLIED_THEN_TIMEOUT)
        ref = setup.outbox.add(message)
        assert ref.id == message.id

    def test_without_a_window_a_key_is_refused_as_empty_ones_are(self, setup: Setup) -> None:
        setup.topic()
        with pytest.raises(InvalidInput, match="'orders' has no deduplication window"):
            setup.outbox.add(setup.message(dedup_key="k"))
        empty: dict[str, Any]
        for field in ("partition_key", "dedup_key", "fairness_key"):
            empty = {field: ""}
            with pytest.raises(InvalidInput) as caught:
                setup.outbox.transact_items(setup.message(**empty))
            assert caught.value.field == field

    def test_in_the_callers_transaction_a_seen_key_fails_it(self, setup: Setup) -> None:
        setup.topic(dedup_window=60)
        setup.outbox.add(setup.message(dedup_key="k"))
        with pytest.raises(TransactionCancelled) as caught:
            setup.outbox.transact([], setup.message(dedup_key="k"))
        assert caught.value.reasons[1][0] == "ConditionalCheckFailed"


class TestGetting:
    def test_one_by_ref_and_by_its_text(self, setup: Setup) -> None:
        setup.topic()
        message = setup.message(delay=30)
        ref = setup.outbox.add(message)
        assert setup.outbox.get(MessageRef.parse(str(ref))) == message

    def test_what_is_not_there_is_none(self, setup: Setup) -> None:
        setup.topic()
        assert setup.outbox.get(MessageRef("orders", 0, 1, setup.ids.next())) is None

    def test_many_come_in_the_order_asked_with_repetitions(self, setup: Setup) -> None:
        setup.topic()
        messages = setup.messages(120)
        refs = setup.outbox.add_many(messages)
        asked = [*reversed(refs), refs[5]]
        found = setup.outbox.get_many(asked)
        assert [m.id for m in found] == [r.id for r in asked]

    def test_unprocessed_keys_are_read_again(self, setup: Setup) -> None:
        setup.topic()
        refs = setup.outbox.add_many(setup.messages(120))
        setup.client.next("batch_get_item", *[Fault.UNPROCESSED] * 3)
        assert len(setup.outbox.get_many(refs)) == 120

    def test_the_missing_are_named(self, setup: Setup) -> None:
        setup.topic()
        refs = setup.outbox.add_many(setup.messages(3))
        setup.outbox.mark_delivered(refs[:1])
        nobody = MessageRef("orders", 0, 2, setup.ids.next())
        with pytest.raises(MessagesNotFound) as caught:
            setup.outbox.get_many([*refs, nobody, nobody])
        assert set(caught.value.missing) == {refs[0], nobody}

    def test_a_dead_letter_is_found_with_and_without_its_due_time(self, setup: Setup) -> None:
        setup.topic()
        message = setup.message(delay=5)
        ref = setup.outbox.add(message)
        stored = setup.outbox.find(ref)
        assert stored is not None
        setup.outbox.tables.dead.bury(stored, frozenset({"billing"}))
        setup.outbox.mark_delivered([ref])
        bare = MessageRef(ref.topic, ref.epoch, ref.shard, ref.id)
        assert [m.id for m in setup.outbox.get_many([ref, bare])] == [ref.id, ref.id]

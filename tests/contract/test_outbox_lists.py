"""The outbox over both engines: what is outstanding, delivered, cancelled, swept."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from fairbox import (
    InvalidInput,
    MessageRef,
    MessagesNotFound,
    MessagesNotWritten,
    Subscription,
    UnknownTopic,
)
from fairbox.model.clock import milliseconds
from fairbox.tables import ledger as ledger_rows
from fairbox.tables.shard_rows import ShardRow
from fairbox.tables.topic_cache import BusiestTopics
from fairbox.testing.faults import Fault

from tests.support.outbox_fixture import Setup


@pytest.fixture
def setup(client: Any) -> Setup:
    return Setup(client)


class TestOutstanding:
    def test_messages_of_all_shards_come_in_the_order_of_ids(self, setup: Setup) -> None:
        setup.topic(shards=7)
        messages = setup.messages(150)
        refs = setup.outbox.add_many(messages[::-1])
        assert len({ref.shard for ref in refs}) == 7
        assert list(setup.outbox.outstanding("orders")) == messages

    @pytest.mark.parametrize("limit", [0, 1, 7, 30, 31])
    def test_a_limit_cuts_after_the_oldest(self, setup: Setup, limit: int) -> None:
        setup.topic()
        messages = setup.messages(30)
        setup.outbox.add_many(messages)
        assert list(setup.outbox.outstanding("orders", limit=limit)) == messages[:limit]

    def test_only_what_is_older_is_given_in_seconds_or_timedelta(self, setup: Setup) -> None:
        setup.topic()
        messages = setup.messages(30)  # a second apart, the last one second ago
        setup.outbox.add_many(messages)
        assert list(setup.outbox.outstanding("orders", older_than=10)) == messages[:20]
        age = timedelta(seconds=10.5)
        assert list(setup.outbox.outstanding("orders", older_than=age)) == messages[:20]
        assert list(setup.outbox.outstanding("orders", older_than=31)) == []

    @pytest.mark.parametrize(
        "bad", [{"limit": -1}, {"limit": 1.5}, {"older_than": -1}, {"older_than": float("nan")}]
    )
    def test_bad_bounds_are_refused_by_name(self, setup: Setup, bad: dict[str, Any]) -> None:
        setup.topic()
        with pytest.raises(InvalidInput) as caught:
            list(setup.outbox.outstanding("orders", **bad))
        assert caught.value.field in bad

    def test_marked_and_unreadable_items_are_passed_over(self, setup: Setup) -> None:
        setup.topic()
        refs = setup.outbox.add_many(setup.messages(3))
        setup.outbox.tables.lanes.mark_gone(refs[0], "cancelled", "")
        setup.engine.put_item(
            TableName=setup.table,
            Item={"pk": {"S": "ready#orders#0#1"}, "sk": {"S": "junk"}, "z": {"N": "1"}},
        )
        assert [m.id for m in setup.outbox.outstanding("orders")] == [r.id for r in refs[1:]]

    def test_across_topics_the_index_says_where_to_look(self, setup: Setup) -> None:
        for name in ("a", "b"):
            setup.topic(name)
        refs = setup.outbox.add_many([*setup.messages(3, "a"), *setup.messages(3, "b")])
        for ref in refs:
            row = ShardRow(ref.topic, ref.epoch, ref.shard)
            listed = ShardRow(ref.topic, ref.epoch, ref.shard, ready=1, next_check=5)
            setup.outbox.tables.rows.change(listed, row)
        assert [m.id for m in setup.outbox.outstanding()] == [ref.id for ref in refs]

    def test_waiting_are_the_delayed_that_are_not_due_by_due_time(self, setup: Setup) -> None:
        setup.topic()
        late, soon, now = (setup.message(delay=d) for d in (300, 60, 5))
        setup.outbox.add_many([late, soon, now, setup.message()])
        setup.clock.advance(10)
        assert list(setup.outbox.waiting("orders")) == [soon, late]
        assert list(setup.outbox.waiting("orders", limit=1)) == [soon]
        with pytest.raises(InvalidInput):
            list(setup.outbox.waiting("orders", limit=-1))

    @pytest.mark.parametrize("concurrency", [1, 4, 64])
    def test_a_scan_gives_everything_once_at_any_concurrency(
        self, setup: Setup, concurrency: int
    ) -> None:
        setup.topic()
        setup.topic("other")
        messages = [*setup.messages(40), *setup.messages(40, "other"), setup.message(delay=60)]
        setup.outbox.add_many(messages)
        found = [m.id for m in setup.outbox.scan_outstanding(concurrency=concurrency)]
        assert sorted(found) == [m.id for m in messages]

    @pytest.mark.parametrize("concurrency", [0, 65])
    def test_other_concurrencies_are_refused(self, setup: Setup, concurrency: int) -> None:
        with pytest.raises(InvalidInput, match="concurrency"):
            list(setup.outbox.scan_outstanding(concurrency=concurrency))


class TestCounting:
    @pytest.mark.parametrize(
        ("limit", "expected"), [(None, 31), (1, 2), (5, 6), (30, 31), (31, 31), (99, 31)]
    )
    @pytest.mark.parametrize("topic", ["orders", None])
    def test_a_count_is_exact_or_the_limit_and_one(
        self, setup: Setup, topic: str | None, limit: int | None, expected: int
    ) -> None:
        setup.topic()
        setup.outbox.add_many([*setup.messages(30), setup.message(delay=60)])
        assert setup.outbox.outstanding_count(topic, limit=limit) == expected

    @pytest.mark.parametrize("limit", [0, -1, 1.5])
    def test_a_limit_that_is_none_is_refused(self, setup: Setup, limit: Any) -> None:
        setup.topic()
        for topic in ("orders", None):
            with pytest.raises(InvalidInput, match="limit"):
                setup.outbox.outstanding_count(topic, limit=limit)

    @pytest.mark.parametrize("since", [1_760_000_000.0, datetime(2026, 1, 1)])  # noqa: DTZ001
    def test_a_time_without_a_zone_is_refused(self, setup: Setup, since: Any) -> None:
        setup.topic()
        with pytest.raises(InvalidInput, match="since: expected a datetime with a time zone"):
            list(setup.outbox.delivered("orders", since=since))

    def test_shard_rows_are_not_counted(self, setup: Setup) -> None:
        setup.topic()
        rows = setup.outbox.tables.rows
        rows.change(ShardRow("orders", 0, 0, ready=9, next_check=1), ShardRow("orders", 0, 0))
        assert setup.outbox.outstanding_count("orders") == 0
        assert setup.outbox.outstanding_count() == 0


class TestMarking:
    def test_marked_messages_leave_and_marking_again_is_no_error(self, setup: Setup) -> None:
        setup.topic()
        refs = setup.outbox.add_many(setup.messages(60))
        setup.outbox.mark_delivered([*refs[:50], *refs[:5]])
        setup.outbox.mark_delivered(refs[:50])
        assert [m.id for m in setup.outbox.outstanding("orders")] == [r.id for r in refs[50:]]

    def test_what_was_not_deleted_is_named(self, setup: Setup) -> None:
        setup.topic()
        refs = setup.outbox.add_many(setup.messages(30))
        setup.client.next("batch_write_item", None, *[Fault.THROTTLED] * 8)
        with pytest.raises(MessagesNotWritten) as caught:
            setup.outbox.mark_delivered(refs)
        assert set(caught.value.missing) == set(refs[25:])


class TestCancelling:
    def test_the_missing_are_named_and_the_rest_is_cancelled(self, setup: Setup) -> None:
        setup.topic()
        refs = setup.outbox.add_many([*setup.messages(3), setup.message(delay=60)])
        setup.outbox.mark_delivered(refs[:1])
        nobody = MessageRef("orders", 0, 0, setup.ids.next())
        with pytest.raises(MessagesNotFound) as caught:
            setup.outbox.cancel([refs[0], refs[1], nobody, refs[3]])
        assert caught.value.missing == (refs[0], nobody)
        assert [m.id for m in setup.outbox.scan_outstanding()] == [refs[2].id]

    def test_a_lost_answer_does_not_make_it_missing(self, setup: Setup) -> None:
        setup.topic()
        ref = setup.outbox.add(setup.message())
        setup.client.next("update_item", Fault.APPLIED_THEN_TIMEOUT)
        setup.outbox.cancel([ref], reason="changed")
        assert setup.items() == []

    def test_a_reason_that_is_too_long_is_refused_and_nothing_is_cancelled(
        self, setup: Setup
    ) -> None:
        setup.topic()
        ref = setup.outbox.add(setup.message())
        with pytest.raises(InvalidInput, match="reason"):
            setup.outbox.cancel([ref], reason="x" * 257)
        assert setup.outbox.get(ref) is not None

    def test_cancelling_what_is_being_cancelled_elsewhere_is_refused(self, setup: Setup) -> None:
        setup.topic()
        ref = setup.outbox.add(setup.message())
        setup.outbox.tables.lanes.mark_gone(ref, "cancelled", "theirs")
        with pytest.raises(MessagesNotFound):
            setup.outbox.cancel([ref], reason="ours")


class TestDelivered:
    def test_deliveries_of_a_topic_come_by_time_with_bounds(self, setup: Setup) -> None:
        setup.topic()
        setup.topic("other")
        refs = setup.outbox.add_many([*setup.messages(6), *setup.messages(2, "other")])
        start = setup.clock.now()
        for ref in (*refs[:3], refs[6], *refs[3:6], refs[7]):
            setup.deliver(ref)
            setup.clock.advance(60)
        found = list(setup.outbox.delivered("orders"))
        assert [d.ref for d in found] == refs[:6]
        assert {d.subscription for d in found} == {"pull"}
        since, until = (datetime.fromtimestamp(start + m * 60, UTC) for m in (1, 5))
        within = setup.outbox.delivered("orders", since=since, until=until)
        assert [d.ref for d in within] == [*refs[1:3], refs[3]]
        assert [d.ref for d in setup.outbox.delivered("orders", limit=2)] == refs[:2]

    def test_deliveries_across_topics_come_by_time(self, setup: Setup) -> None:
        for name in ("a", "b"):
            setup.topic(name)
        refs = setup.outbox.add_many([*setup.messages(3, "a"), *setup.messages(3, "b")])
        order = [refs[0], refs[3], refs[1], refs[4], refs[5], refs[2]]
        for ref in order:
            setup.deliver(ref)
            setup.clock.advance(7 * 3600)  # over midnight, too
        assert [d.ref for d in setup.outbox.delivered()] == order

    def test_topics_with_many_deliveries_have_rows_of_their_own(self, setup: Setup) -> None:
        for name in ("big", "small"):
            setup.topic(name)
        refs = setup.outbox.add_many([*setup.messages(450, "big"), *setup.messages(3, "small")])
        setup.deliver(*refs)
        assert {d.id for d in setup.outbox.delivered("big")} == {r.id for r in refs[:450]}
        assert {d.id for d in setup.outbox.delivered("small")} == {r.id for r in refs[450:]}
        items = setup.engine.scan(TableName=setup.deliveries)["Items"]
        rows = [i["pk"]["S"] for i in items]
        assert sorted(rows) == ["ledger#*", "ledger#big", "ledger#big"]

    def test_a_time_without_zone_and_an_unknown_topic_are_refused(self, setup: Setup) -> None:
        naive = datetime(2026, 1, 1)  # noqa: DTZ001 - what is refused
        with pytest.raises(InvalidInput, match="since"):
            list(setup.outbox.delivered(since=naive))
        with pytest.raises(UnknownTopic):
            list(setup.outbox.delivered("nowhere"))


class TestSweeping:
    def test_it_rings_for_overdue_shards_of_pushed_topics(self, setup: Setup) -> None:
        setup.topic()
        setup.topic("pulled")
        setup.outbox.add_subscription(Subscription("orders", "billing", "sqs:http://q/billing"))
        old = setup.outbox.add_many([*setup.messages(20), *setup.messages(5, "pulled")])
        setup.clock.advance(60)
        setup.outbox.add_many([*setup.messages(2), setup.message(delay=300)])
        result = setup.outbox.sweep(older_than=30)
        shards = {(r.topic, r.epoch, r.shard) for r in old if r.topic == "orders"}
        assert (result.overdue, result.shards, result.rung) == (20, len(shards), len(shards))
        assert {(d.topic, d.epoch, d.shard) for d in setup.doorbells.now} == shards

    def test_a_limit_bounds_the_messages_looked_for(self, setup: Setup) -> None:
        setup.topic()
        setup.outbox.add_subscription(Subscription("orders", "billing", "sqs:http://q/billing"))
        setup.outbox.add_many(setup.messages(20))
        setup.clock.advance(100)
        assert setup.outbox.sweep(limit=5).overdue == 5
        assert setup.outbox.sweep(older_than=timedelta(hours=1)).overdue == 0


class TestBusiestTopics:
    """The list that the row of the topics' version carries, and the sample that makes it."""

    def test_the_list_is_written_and_read_and_changes_no_version(self, setup: Setup) -> None:
        setup.topic()
        topics = setup.outbox.tables.topics
        tables = setup.outbox.tables
        tables.topic_cache.refresh()
        version = tables.topic_cache.version
        for busiest in (
            BusiestTopics(frozenset({"orders", "a"}), 490_000, version),
            BusiestTopics(frozenset({"orders"}), 490_001, version),
            BusiestTopics(frozenset(), 490_002, version),
        ):
            topics.write_busiest(busiest)
            setup.clock.advance(2)
            tables.topic_cache.refresh()
            assert (tables.topic_cache.busiest, tables.topic_cache.version) == (busiest, version)
        topics.pause("orders", paused=True)
        setup.clock.advance(2)
        tables.topic_cache.refresh()
        assert tables.topic_cache.version == version + 1
        assert tables.topic_cache.busiest.hour == 490_002, "a change of a topic keeps the list"

    def test_a_sample_counts_deliveries_of_the_last_hour_by_topic(self, setup: Setup) -> None:
        for name in ("big", "small"):
            setup.topic(name)
        setup.clock.set(1_795_305_600 - 600)  # ten minutes before midnight, UTC
        early = setup.outbox.add_many(setup.messages(3, "small"))
        setup.deliver(*early)
        setup.clock.advance(1200)
        refs = setup.outbox.add_many([*setup.messages(450, "big"), *setup.messages(2, "small")])
        setup.deliver(*refs)
        ledger = setup.outbox.tables.ledger
        now = milliseconds(setup.clock)
        assert ledger.sample(now - 3_600_000, now + 1) == {"big": 450, "small": 5}
        assert ledger.sample(now - 900_000, now + 1) == {"big": 450, "small": 2}
        assert ledger.sample(now + 60_000, now + 61_000) == {}

    def test_a_sample_reads_so_many_rows_the_newest_first(
        self, setup: Setup, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        setup.topic()
        for _ in range(4):
            setup.deliver(*setup.outbox.add_many(setup.messages(2)))
        now = milliseconds(setup.clock)
        monkeypatch.setattr(ledger_rows, "SAMPLE_ROWS", 3)
        assert setup.outbox.tables.ledger.sample(now - 3_600_000, now + 1) == {"orders": 6}

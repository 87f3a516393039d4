"""The attributes that the pipeline reads are those that the library's codec writes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from fairbox.batches.models import FailedItems, Leaf, Node, Root
from fairbox.codec import attributes as names
from fairbox.codec import batches as batch_names
from fairbox.codec.batches import item_of
from fairbox.codec.messages import message_item, stored_item
from fairbox.codec.topics import subscription_item, topic_item
from fairbox.model.epochs import Epoch
from fairbox.model.topics import Subscription, Topic, TopicState
from fairbox_pipeline import attributes, items
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.pipeline.exporting import lines_of
from tests.support import strategies

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def test_the_names_of_a_message_s_attributes_are_the_codec_s() -> None:
    assert (attributes.PK, attributes.SK, attributes.MARK) == (names.PK, names.SK, names.SIZE)
    assert {column: name for column, (name, _) in attributes.MESSAGE.items()} == {
        "partition_key": names.PARTITION_KEY,
        "content_type": names.CONTENT_TYPE,
        "size": names.SIZE,
        "batch_item": names.BATCH_ITEM,
        "gone": names.GONE,
        "due": names.DUE,
    }


def test_the_names_of_a_batch_s_attributes_are_the_codec_s() -> None:
    assert {column: name for column, (name, _) in attributes.TRACKER.items()} == {
        "bits": batch_names.BITS,
        "count": batch_names.COUNT,
        "size": batch_names.LEAF_SIZE,
        "failed": batch_names.FAILED,
        "settled": batch_names.SETTLED,
        "state": batch_names.STATE,
        "next_group": batch_names.NEXT_GROUP,
        "total": batch_names.TOTAL,
        "opened": batch_names.OPENED,
        "user_key": batch_names.USER_KEY,
    }
    assert attributes.TRACKER_KINDS == {
        batch_names.ROOT_SK: "root",
        batch_names.NODE_SK: "node",
        batch_names.LEAF_SK: "leaf",
        batch_names.FAILED_SK: "failed",
    }


def test_a_topic_row_gives_its_name_and_its_epochs(spark: SparkSession) -> None:
    epochs = (Epoch(0, 8, 5, closed=9), Epoch(1, 12, 70))
    row = topic_item(TopicState(Topic("orders", shards=12), epochs))
    other = subscription_item(Subscription("orders", "billing", "sqs:billing"))
    odd = row | {"sk": {"S": "topic#odd"}, "ep": {"L": []}}
    found = items.topics(lines_of(spark, [row, other, odd])).orderBy("topic").collect()
    assert [(one["topic"], one["fault"]) for one in found] == [
        ("odd", "ep: is no list of epochs"),
        ("orders", None),
    ]
    assert [tuple(epoch) for epoch in found[1]["epochs"]] == [(0, 8, 5), (1, 12, 70)]


def test_every_message_that_the_codec_writes_is_read_back(spark: SparkSession) -> None:
    @settings(max_examples=10)
    @given(st.lists(strategies.stored(), min_size=1, max_size=5))
    def check(stored: list[Any]) -> None:
        by_key = {str(one.ref): one for one in stored}
        written = [
            stored_item(one, message_item(one.message, one.ref, bucket="b")[0])
            for one in by_key.values()
        ]
        found = items.messages(lines_of(spark, written)).collect()
        assert len(found) == len(by_key)
        for row in found:
            due = "" if row["due"] is None else f"/{row['due']}"
            one = by_key[f"{row['topic']}/{row['epoch']}/{row['shard']}/{row['id']}{due}"]
            message = one.message
            assert (row["fault"], row["size"]) == (None, len(message.body))
            assert (row["partition_key"], row["content_type"], row["batch_item"]) == (
                message.partition_key,
                message.content_type,
                message.batch_item,
            )
            assert row["gone"] == one.gone

    check()


def test_every_item_of_a_batch_is_read_back(spark: SparkSession) -> None:
    records: list[Any] = [
        Root("b", "open", 5, "u", bits=3, next_group=2, total=9),
        Node("b", 4, 0b101),
        Leaf("b", 17, 0b11, count=2, size=9),
        FailedItems("b", 18, 0b100, 9),
    ]
    found = items.trackers(lines_of(spark, [item_of(record) for record in records])).collect()
    assert sorted(
        (row["record"], row["batch"], row["number"], int.from_bytes(row["bits"], "little"))
        for row in found
    ) == [
        ("failed", "b", 18, 0b100),
        ("leaf", "b", 17, 0b11),
        ("node", "b", 4, 0b101),
        ("root", "b", None, 3),
    ]
    assert not any(row["fault"] for row in found)


def test_other_items_are_passed_over(spark: SparkSession) -> None:
    shard_row = {"pk": {"S": "ready#t#0#0"}, "sk": {"S": "!"}, "rc": {"N": "1"}}
    meta = {"pk": {"S": "b"}, "sk": {"S": "meta"}}
    lines = lines_of(spark, [shard_row, meta])
    for read in (items.messages, items.topics, items.trackers):
        assert read(lines).isEmpty()

"""The attributes that the pipeline reads are those that the library's codec writes."""

from __future__ import annotations

from typing import Any

import pytest
from fairbox.batches.models import FailedItems, Leaf, Node, Root
from fairbox.codec import attributes as names
from fairbox.codec import batches as batch_names
from fairbox.codec.batches import item_of
from fairbox.codec.messages import message_item, stored_item
from fairbox.codec.topics import subscription_item, topic_item
from fairbox.model.epochs import Epoch
from fairbox.model.topics import Subscription, Topic, TopicState
from fairbox_pipeline import attributes, items
from hypothesis import given

from tests.pipeline.exporting import wire
from tests.support import strategies


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


def test_a_topic_row_gives_its_name_its_shards_and_its_first_time() -> None:
    epochs = (Epoch(0, 8, 5, closed=9), Epoch(1, 12, 70))
    row = topic_item(TopicState(Topic("orders", shards=12), epochs))
    assert items.read_topic(row["pk"]["S"], row["sk"]["S"], row) == {
        "topic": "orders",
        "shards": 12,
        "since": 5,
    }
    other = subscription_item(Subscription("orders", "billing", "sqs:billing"))
    assert items.read_topic(other["pk"]["S"], other["sk"]["S"], other) is None
    with pytest.raises(items.ItemError, match="ep: is no list of epochs"):
        items.read_topic(row["pk"]["S"], row["sk"]["S"], row | {"ep": {"L": []}})


@given(strategies.stored())
def test_every_message_that_the_codec_writes_is_read_back(stored: Any) -> None:
    item, _ = message_item(stored.message, stored.ref, bucket="b")
    written = wire(stored_item(stored, item))
    row = items.read_message(written["pk"]["S"], written["sk"]["S"], written)
    assert row is not None
    ref = stored.ref
    assert [row[name] for name in ("topic", "epoch", "shard", "id")] == [
        ref.topic,
        ref.epoch,
        ref.shard,
        ref.id,
    ]
    assert row["size"] == len(stored.message.body)
    assert row.get("due") == ref.due
    assert row.get("partition_key") == stored.message.partition_key
    assert row.get("batch_item") == stored.message.batch_item
    assert row.get("gone") == stored.gone


@pytest.mark.parametrize(
    ("record", "kind", "number", "bits"),
    [
        (Root("b", "open", 5, "u", bits=3, next_group=2, total=9), "root", None, 3),
        (Node("b", 4, 0b101), "node", 4, 0b101),
        (Leaf("b", 17, 0b11, count=2, size=9), "leaf", 17, 0b11),
        (FailedItems("b", 17, 0b100, 9), "failed", 17, 0b100),
    ],
)
def test_every_item_of_a_batch_is_read_back(
    record: Any, kind: str, number: int | None, bits: int
) -> None:
    item = wire(item_of(record))
    row = items.read_tracker(item["pk"]["S"], item["sk"]["S"], item)
    assert row is not None
    assert (row["record"], row["batch"], row["number"]) == (kind, "b", number)
    assert int.from_bytes(row["bits"], "little") == bits


def test_other_items_are_passed_over() -> None:
    shard_row = {"pk": {"S": "ready#t#0#0"}, "sk": {"S": "!"}, "rc": {"N": "1"}}
    assert items.read_message("ready#t#0#0", "!", shard_row) is None
    assert items.read_tracker("b", "meta", {}) is None

"""The codec: what it writes it reads, and what it did not write it says so, and nothing else."""

from __future__ import annotations

import contextlib
import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from fairbox import Delivery, Unreadable
from fairbox.tables.ledger import LEDGER_PACKED, MAX_PER_ROW, ledger_item, read_ledger
from fairbox.tables.shard_rows import BUCKET, is_shard_row, read_shard, shard_item
from fairbox.tables.stored_messages import (
    BODY,
    CODING,
    GONE,
    SIZE,
    VERSION,
    message_item,
    read_message,
    stored_item,
)
from fairbox.tables.stream_records import image_item, read_record, record_lane
from fairbox.tables.topic_rows import read_topics, subscription_item, topic_item
from fairbox.testing.streams import lambda_item
from fairbox.testing.units import item_size
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tests.support import strategies

if TYPE_CHECKING:
    from fairbox.model.topic_states import TopicState
    from fairbox.tables.shard_rows import ShardRow
    from fairbox.tables.stored_messages import StoredMessage


def item_of(stored: StoredMessage, bucket: str | None = "bodies") -> dict[str, Any]:
    item, _ = message_item(stored.message, stored.ref, bucket=bucket)
    return stored_item(stored, item)


def through_json(item: dict[str, Any]) -> dict[str, Any]:
    """The item as a stream image that went through Lambda's JSON."""
    image: dict[str, Any] = json.loads(json.dumps(lambda_item(item)))
    return image


class TestRoundTrips:
    @given(strategies.stored())
    def test_a_message_with_any_state(self, stored: StoredMessage) -> None:
        assert read_message(item_of(stored)) == stored

    @given(strategies.stored())
    def test_a_message_through_a_stream_image(self, stored: StoredMessage) -> None:
        assert read_message(image_item(through_json(item_of(stored)))) == stored

    @given(strategies.stored())
    def test_a_message_in_lane_dead(self, stored: StoredMessage) -> None:
        dead = replace(stored, lane="dead")
        assert read_message(item_of(dead)) == dead

    @given(strategies.deliveries())
    def test_a_ledger_row(self, deliveries: list[Delivery]) -> None:
        item = ledger_item("orders", deliveries, ("1", "2"), 99)
        assert list(read_ledger(item)) == deliveries

    @given(strategies.rows)
    def test_a_shard_row(self, row: ShardRow) -> None:
        item = shard_item(row)
        assert read_shard(item) == row
        assert is_shard_row(item)
        assert (BUCKET in item) == (row.next_check is not None)

    @given(st.lists(strategies.topics(), max_size=4, unique_by=lambda s: s.topic.name))
    def test_topics_with_their_subscriptions(self, topics: list[TopicState]) -> None:
        items = [topic_item(s) for s in topics]
        items += [subscription_item(sub) for s in topics for sub in s.subscriptions]
        items.sort(key=lambda item: str(item["sk"]["S"]))
        assert sorted(read_topics(items), key=lambda s: s.topic.name) == sorted(
            topics, key=lambda s: s.topic.name
        )


junk: st.SearchStrategy[Any] = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(max_size=6)
    | st.binary(max_size=6)
    | st.sampled_from(["1" * 5000, "1e400", "NaN", "-1", "٣", "1_0", "z", 10**30]),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["S", "N", "B", "M", "L", "SS", "BOOL", "x"]), inner)
    ),
    max_leaves=6,
)


def mutated(draw: st.DrawFn, item: dict[str, Any]) -> dict[str, Any]:
    """The item with one or two places, at any depth, replaced or gone."""
    copy: dict[str, Any] = json.loads(json.dumps(item, default=lambda b: {"bytes": b.hex()}))
    copy = _restored(copy)
    for _ in range(draw(st.integers(1, 2))):
        place: Any = copy
        while True:
            key = draw(
                st.sampled_from(sorted(place) if isinstance(place, dict) else range(len(place)))
            )
            inner = place[key]
            if isinstance(inner, dict | list) and inner and draw(st.booleans()):
                place = inner
                continue
            if isinstance(place, dict) and draw(st.booleans()) and place is not copy:
                del place[key]
            else:
                place[key] = draw(junk)
            break
        if not copy:
            break
    return copy


def _restored(value: Any) -> Any:
    if isinstance(value, dict):
        if set(value) == {"bytes"}:
            return bytes.fromhex(value["bytes"])
        return {k: _restored(v) for k, v in value.items()}
    return [_restored(v) for v in value] if isinstance(value, list) else value


class TestUnreadable:
    @settings(max_examples=25)
    @given(st.data())
    def test_any_change_of_a_message_is_read_or_unreadable(self, data: st.DataObject) -> None:
        item = data.draw(st.composite(mutated)(item_of(data.draw(strategies.stored()))))
        try:
            stored = read_message(item)
        except Unreadable:
            return
        assert len(stored.message.body) == stored.size or stored.offloaded is not None
        assert stored.ref.topic == item["pk"]["S"].split("#")[1]

    @settings(max_examples=25)
    @given(st.data())
    def test_any_change_of_a_stream_image_is_read_or_unreadable(self, data: st.DataObject) -> None:
        image = through_json(item_of(data.draw(strategies.stored())))
        keys = {"pk": image["pk"], "sk": image["sk"]}
        image = data.draw(st.composite(mutated)(image))
        body = {
            "NewImage": image,
            "Keys": keys,
            "SequenceNumber": "1",
            "ApproximateCreationDateTime": 1.7e9,
        }
        with contextlib.suppress(Unreadable):
            read_record({"eventName": "INSERT", "eventID": "1", "dynamodb": body})
        assert record_lane({"dynamodb": body})[0] in ("ready", "later")

    @settings(max_examples=25)
    @given(st.data())
    def test_any_change_of_a_shard_row_is_read_or_unreadable(self, data: st.DataObject) -> None:
        item = data.draw(st.composite(mutated)(shard_item(data.draw(strategies.rows))))
        with contextlib.suppress(Unreadable):
            read_shard(item)

    @settings(max_examples=25)
    @given(st.data())
    def test_any_change_of_a_ledger_row_is_read_or_unreadable(self, data: st.DataObject) -> None:
        row = ledger_item("orders", data.draw(strategies.deliveries()), ("1", "2"), 9)
        packed = bytearray(row[LEDGER_PACKED]["B"])
        packed[data.draw(st.integers(0, len(packed) - 1))] = data.draw(st.integers(0, 255))
        row[LEDGER_PACKED]["B"] = bytes(packed[: data.draw(st.integers(0, len(packed)))])
        for item in (row, data.draw(st.composite(mutated)(row))):
            with contextlib.suppress(Unreadable):
                list(read_ledger(item))

    @settings(max_examples=25)
    @given(st.data())
    def test_any_change_of_a_topic_is_read_or_unreadable(self, data: st.DataObject) -> None:
        state = data.draw(strategies.topics())
        items = [topic_item(state), *map(subscription_item, state.subscriptions)]
        items[-1] = data.draw(st.composite(mutated)(items[-1]))
        with contextlib.suppress(Unreadable):
            read_topics(items)

    @pytest.mark.parametrize(
        ("name", "value"),
        [
            (SIZE, {"N": "3"}),
            (SIZE, {"N": "-1"}),
            (SIZE, {"N": "9" * 30}),
            (CODING, {"S": "z"}),
            (BODY, {"B": 10**6}),
            (BODY, {"S": "text"}),
            (GONE, {"S": "away"}),
            (VERSION, {"N": "2"}),
            ("pk", {"S": "ready#orders#0#03"}),
            ("pk", {"S": "ready#orders#0"}),
            ("sk", {"S": "junk"}),
        ],
    )
    def test_what_could_be_taken_for_something_else_is_unreadable(
        self, name: str, value: dict[str, Any]
    ) -> None:
        stored = _example()
        with pytest.raises(Unreadable) as caught:
            read_message(item_of(stored) | {name: value})
        assert set(caught.value.key) == {"pk", "sk"}
        assert caught.value.reason

    @given(st.binary(max_size=60), st.integers(0, 100))
    @example(b"", 0)
    def test_a_damaged_body_is_unreadable(self, packed: bytes, size: int) -> None:
        item = item_of(_example()) | {
            BODY: {"B": packed},
            SIZE: {"N": str(size)},
            CODING: {"S": "z"},
        }
        with pytest.raises(Unreadable):
            read_message(item)

    def test_a_body_with_a_wrong_checksum_is_unreadable(self) -> None:
        stored = _example(b"x" * 2000)
        item = item_of(stored)
        packed = item[BODY]["B"]
        item[BODY] = {"B": packed[:-1] + bytes([packed[-1] ^ 1])}
        with pytest.raises(Unreadable):
            read_message(item)


def _example(body: bytes = b"{}") -> StoredMessage:
    from fairbox import Message, MessageRef  # noqa: PLC0415 - only the examples need them
    from fairbox.tables.stored_messages import StoredMessage  # noqa: PLC0415 - as above

    message = Message(topic="orders", body=body, id="0198f3c2-7d7e-7abc-8def-0123456789ab")
    return StoredMessage(message, MessageRef("orders", 0, 3, message.id), "ready", len(body))


def test_a_ledger_row_of_400_deliveries_takes_about_24_bytes_each() -> None:
    one = "0198f3c2-7d7e-7abc-8def-{:012x}"
    deliveries = [
        Delivery("orders", 0, n % 8, one.format(n), "billing", 1_760_000_000_000 + n, 1, 900)
        for n in range(MAX_PER_ROW)
    ]
    item = ledger_item("orders", deliveries, ("1" * 21, "2" * 21), 9)
    assert item_size(item) <= 26 * MAX_PER_ROW

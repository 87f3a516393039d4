"""Messages, refs and topics: what they take, and what they refuse by name."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from fairbox import (
    BodyTooLarge,
    InvalidInput,
    Message,
    MessageRef,
    RetryPolicy,
    Subscription,
    Topic,
)
from fairbox.cloudevents import envelope
from fairbox.model.epochs import Epoch
from fairbox.model.messages import MAX_BODY_BYTES
from fairbox.model.topic_states import TopicState
from fairbox.tables.stored_messages import StoredMessage
from hypothesis import given
from hypothesis import strategies as st

ID = "0198f3c2-7d7e-7abc-8def-0123456789ab"
LATER = "0198f3c2-7d7e-7abc-8def-0123456789ac"
HALF = "\ud800"  # half a character: no UTF-8


@pytest.mark.parametrize(
    ("field", "value"),
    [
        *(("topic", v) for v in ("", "a" * 300, "a" * 121, "ä", "a b", "#", "-a", "a\n", None, 5)),
        *(("body", v) for v in ("text", None, bytearray(b"x"))),
        *(("partition_key", v) for v in ("a" * 257, "é" * 129, "a\nb", "\x00", "\t", HALF, 7)),
        *(("dedup_key", v) for v in ("a" * 257, "\x7f")),
        *(("fairness_key", v) for v in ("a" * 257, "\r")),
        *(("batch_item", v) for v in ("", "x", 5, ID, f"{ID}:0", f"{ID}:0:-1", f"{ID}:00:1")),
        *(("batch_item", v) for v in (f"{ID.upper()}:0:1", f"{ID}:0:1\n", f"{ID}:0:1:2")),
        *(("content_type", v) for v in ("", " text", "tëxt", "a" * 256, "text/plain\r\n", None)),
        *(("headers", v) for v in ({"": "x"}, {"a b": "x"}, {"é": "x"}, {5: "x"}, ["a"], "ab")),
        ("headers", {f"h{n}": "x" for n in range(65)}),
        ("headers", {"h": "x" * 16_384}),
        *(("headers.h", {"h": v}) for v in ("a\r\nb", "\n", "\x00", HALF, 5, None)),
        *(("delay", v) for v in (-1, -0.001, float("nan"), float("inf"), 4e7, "5", True, None)),
        *(("id", v) for v in ("x", "7" * 36, ID.upper(), 5)),
        *(("after", v) for v in ("", "x", 5)),
    ],
)
def test_what_a_field_does_not_take_is_refused_by_its_name(field: str, value: Any) -> None:
    name = field.partition(".")[0]
    with pytest.raises(InvalidInput) as caught:
        Message(**{"topic": "orders", "body": b"", name: value})
    assert caught.value.field == field
    assert caught.value.expected


def test_a_batch_item_is_kept_as_it_was_given() -> None:
    assert Message(topic="orders", body=b"", batch_item=f"{ID}:17:4031").batch_item == (
        f"{ID}:17:4031"
    )


def test_a_body_beyond_the_limit_is_refused_with_its_size() -> None:
    with pytest.raises(BodyTooLarge) as caught:
        Message(topic="orders", body=bytes(MAX_BODY_BYTES + 1))
    assert (caught.value.size, caught.value.limit) == (MAX_BODY_BYTES + 1, MAX_BODY_BYTES)


def test_the_limits_themselves_are_taken() -> None:
    message = Message(
        topic="a" * 120,
        body=b"",
        partition_key="é" * 128,
        content_type="a" * 255,
        headers={f"h{n:02}": "x" for n in range(64)},
        delay=366 * 24 * 3600,
    )
    assert Message(topic="a", body=b"", partition_key="").partition_key == ""
    assert message.due is not None


def test_a_message_and_its_headers_cannot_be_changed() -> None:
    given_headers = {"a": "b"}
    message = Message(topic="orders", body=b"", headers=given_headers)
    given_headers["a"] = "c"
    assert message.headers == {"a": "b"}
    with pytest.raises(TypeError):
        message.headers["a"] = "c"  # type: ignore[index]  # what is tested
    with pytest.raises(AttributeError):
        message.topic = "other"  # type: ignore[misc]  # what is tested


def test_after_gives_order_across_hosts() -> None:
    far = "0fffffff-ffff-7abc-8def-0123456789ab"
    assert Message(topic="orders", body=b"", after=ID).id > ID
    with pytest.raises(InvalidInput, match="after"):
        Message(topic="orders", body=b"", id=ID, after=LATER)
    assert far > ID


def test_the_shard_key_of_a_keyless_message_is_its_id() -> None:
    assert Message(topic="orders", body=b"", id=ID).shard_key == ID
    assert Message(topic="orders", body=b"", partition_key="").shard_key == ""


@given(
    topic=st.from_regex(r"\A[A-Za-z0-9][A-Za-z0-9._-]{0,119}\Z"),
    epoch=st.integers(0, 10**6),
    shard=st.integers(0, 999),
    due=st.none() | st.integers(0, 10**15 - 1),
)
def test_a_ref_is_what_its_text_says(topic: str, epoch: int, shard: int, due: int | None) -> None:
    ref = MessageRef(topic, epoch, shard, ID, due)
    assert MessageRef.parse(str(ref)) == ref


@given(st.text(max_size=80) | st.lists(st.text(max_size=9), min_size=3, max_size=6).map("/".join))
def test_any_other_text_is_refused_and_nothing_else_is_raised(text: str) -> None:
    with pytest.raises(InvalidInput):
        MessageRef.parse(text)


@pytest.mark.parametrize(
    "text",
    [
        f"orders/0/3/{ID}/",
        f"orders/00/3/{ID}",
        f"orders/0/-3/{ID}",
        f"orders/+0/3/{ID}",
        f"orders/0/3/{ID}/1e5",
        f"orders/0/3/{ID}/1/1",
        "orders/0/3/",
        f"orders/٣/3/{ID}",
        f"/0/3/{ID}",
    ],
)
def test_refs_have_one_spelling(text: str) -> None:
    with pytest.raises(InvalidInput):
        MessageRef.parse(text)


@pytest.mark.parametrize(
    ("make", "field"),
    [
        (lambda: Topic("orders", shards=0), "shards"),
        (lambda: Topic("orders", shards=1001), "shards"),
        (lambda: Topic("orders", shards=True), "shards"),
        (lambda: Topic("orders", shards=1.5), "shards"),  # type: ignore[arg-type]  # what is tested
        (lambda: Topic("orders", ordering="fifo"), "ordering"),  # type: ignore[arg-type]  # as above
        (lambda: Topic("orders", dedup_window=0), "dedup_window"),
        (lambda: Topic("orders", dedup_window=1.5), "dedup_window"),  # type: ignore[arg-type]  # as above
        (lambda: Topic("orders", retention=3600.5), "retention"),  # type: ignore[arg-type]  # as above
        (lambda: Topic("orders", weight=0), "weight"),
        (lambda: Topic("orders", weight=float("nan")), "weight"),
        (lambda: Topic("orders", mini_batch=101), "mini_batch"),
        (lambda: Topic("orders", message_retention=59), "message_retention"),
        (lambda: Topic("orders", message_retention=3650 * 86_400 + 1), "message_retention"),
        (lambda: Topic("orders", max_outstanding=0), "max_outstanding"),
        (lambda: Topic("orders", message_retention=True), "message_retention"),
        (lambda: Topic("orders", tenant_weights={"acme": 101}), "tenant_weights.acme"),
        (lambda: Topic("orders", tenant_weights={"a\n": 1}), "tenant_weights"),
        (lambda: Topic("orders", tenant_weights={"": 1}), "tenant_weights"),
        (
            lambda: Topic("orders", tenant_weights={str(n): 1 for n in range(101)}),
            "tenant_weights",
        ),
        (lambda: Subscription("orders", "a", "sqs:http://q/x", weight=100.5), "weight"),
        (lambda: RetryPolicy(max_attempts=0), "retry.max_attempts"),
        (lambda: RetryPolicy(max_attempts=2.5), "retry.max_attempts"),  # type: ignore[arg-type]  # as above
        (lambda: RetryPolicy(base=5, cap=1), "retry.cap"),
        (lambda: Subscription("orders", "pull", "sqs:http://q/x"), "subscription"),
        (lambda: Subscription("orders", "a" * 65, "sqs:http://q/x"), "subscription"),
        (lambda: Subscription("orders", "a", "ftp:x"), "destination"),
        (lambda: Subscription("orders", "a", "sqs:"), "destination"),
        (lambda: Subscription("orders", "a", "sqs:http://q/x", max_attempts=0), "max_attempts"),
        (lambda: Subscription("orders", "a", "sqs:http://q/x", timeout=26), "timeout"),
    ],
)
def test_topics_and_subscriptions_name_what_they_refuse(make: Any, field: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        make()
    assert caught.value.field == field


@pytest.mark.parametrize(
    ("destination", "label"),
    [
        ("sqs:https://sqs.eu-west-1.amazonaws.com/123456789012/billing", "sqs:billing"),
        ("sns:arn:aws:sns:eu-west-1:123456789012:news", "sns:news"),
        ("kinesis:arn:aws:kinesis:eu-west-1:123456789012:stream/clicks", "kinesis:clicks"),
        ("https://user:key@hooks.example.com/secret-path?token=1", "https:hooks.example.com"),
        ("https://hooks.example.com?token=1", "https:hooks.example.com"),
        ("topic:jobs", "topic:jobs"),
    ],
)
def test_a_destinations_label_is_short_and_tells_no_secret(destination: str, label: str) -> None:
    assert Subscription("orders", "a", destination).label == label


@pytest.mark.parametrize(
    ("ms", "number"), [(0, 0), (999, 0), (1000, 1), (1999, 1), (2000, 2), (10**13, 2)]
)
def test_the_ids_time_chooses_the_epoch(ms: int, number: int) -> None:
    epochs = (Epoch(0, 4, 0), Epoch(1, 8, 1000), Epoch(2, 2, 2000))
    state = TopicState(Topic("orders", shards=2), epochs)
    assert state.epoch_at(ms).number == number
    assert len(state.shards()) == 14


def test_attributes_of_the_event_are_arguments_and_headers_alike() -> None:
    values: dict[str, Any] = {
        "type": "com.shop.placed",
        "source": "/shop",
        "subject": "7",
        "dataschema": "s:1",
    }
    headers = {f"ce-{name}": value for name, value in values.items()}
    by_argument = Message(topic="orders", body=b"", headers={"CE-Type": "x", "a": "b"}, **values)
    assert dict(by_argument.headers) == {"a": "b"} | headers  # the argument wins
    by_header = Message(topic="orders", body=b"", id=by_argument.id, headers=by_argument.headers)
    assert by_header == by_argument
    assert {name: getattr(by_header, name) for name in values} == values
    assert replace(by_header, type="com.shop.paid").headers["ce-type"] == "com.shop.paid"
    assert by_header.with_content(headers={"ce-type": "other"}).type == "other"
    assert by_header.with_content(headers={}).type is None
    nothing: Any = None  # as a caller without types gives it
    assert Message(topic="orders", body=b"", headers=nothing, **values).headers == headers
    stored = StoredMessage(by_header, MessageRef("orders", 0, 0, by_header.id), "ready", 0)
    assert values.items() <= json.loads(envelope(stored)).items()


@pytest.mark.parametrize(
    ("field", "value"),
    [("type", ""), ("type", 7), ("source", "a b"), ("subject", "a\n"), ("dataschema", "orders")],
)
def test_an_attribute_of_the_event_that_is_none_is_named(field: str, value: Any) -> None:
    with pytest.raises(InvalidInput) as caught:
        Message(topic="orders", body=b"", **{field: value})
    assert caught.value.field == field


def test_headers_keep_their_order_in_a_copy() -> None:
    message = Message(topic="orders", body=b"", headers={"ce-type": "x", "a": "b"})
    assert list(replace(message, topic="copies").headers) == ["ce-type", "a"]


def test_a_stored_header_that_is_no_attribute_stops_nothing() -> None:
    message = Message(topic="orders", body=b"", headers={"ce-source": "a b"})
    assert message.source is None
    assert replace(message, topic="copies").headers == message.headers

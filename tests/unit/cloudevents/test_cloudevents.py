"""CloudEvents: what goes out is legal and keeps its bytes; what comes in is checked strictly."""

from __future__ import annotations

import base64
import json
import random
from contextlib import suppress
from typing import Any

import pytest
from fairbox.cloudevents import (
    CloudEvent,
    binary_headers,
    envelope,
    parse_batch,
    parse_binary,
    parse_structured,
)
from fairbox.errors import InvalidInput
from fairbox.model.messages import Message
from fairbox.tables.stored_messages import Offloaded
from hypothesis import given
from hypothesis import strategies as st

from tests.support.destination_examples import stored

REQUIRED: dict[str, Any] = {"specversion": "1.0", "id": "7", "source": "/shop", "type": "order"}
AWAY = Offloaded("bodies", "bodies/orders/1")


def structured(**members: Any) -> bytes:
    return json.dumps({k: v for k, v in (REQUIRED | members).items() if v != "absent"}).encode()


def test_the_envelope_of_a_plain_message_names_it_by_our_own_attributes() -> None:
    message = stored(b'{"a": 1}', partition_key="customer-42")
    assert json.loads(envelope(message)) == {
        "specversion": "1.0",
        "id": message.message.id,
        "source": "/fairbox/topics/orders",
        "type": "fairbox.message",
        "time": message.message.time.isoformat(timespec="milliseconds")[:-6] + "Z",
        "datacontenttype": "application/json",
        "partitionkey": "customer-42",
        "fairboxref": f"orders/0/3/{message.message.id}",
        "data": {"a": 1},
    }


def test_a_json_body_is_embedded_byte_for_byte_as_the_last_member() -> None:
    body = b'\n{ "b":1.0e2,"a": "\\u00e9\xc3\xa9" ,"n":123456789012345678901234567890 }\r\n'
    assert envelope(stored(body)).endswith(b'"data":' + body + b"}")


@pytest.mark.parametrize(
    ("content_type", "body", "member", "value"),
    [
        ("application/vnd.shop+json; charset=utf-8", b"[1]", "data", [1]),
        ("application/json", b"null", "data", None),
        ("application/json", b"{broken", "data_base64", "e2Jyb2tlbg=="),
        ("application/json", b"NaN", "data_base64", "TmFO"),
        ("application/json", b"\xff", "data_base64", "/w=="),
        ("text/plain", b"it's \xc3\xa9\x00", "data", "it's é\x00"),
        ("text/plain; charset=iso-8859-1", b"abc", "data_base64", "YWJj"),
        ("text/plain", b"\xef\xbf\xbf", "data_base64", "77+/"),
        ("image/png", b"abc", "data_base64", "YWJj"),
        ("no media type", b"abc", "data_base64", "YWJj"),
    ],
)
def test_data_is_embedded_where_it_can_be_and_base64_elsewhere(
    content_type: str, body: bytes, member: str, value: object
) -> None:
    event = json.loads(envelope(stored(body, content_type=content_type)))
    assert event[member] == value
    assert not {"data", "data_base64"} - {member} & event.keys()


def test_json_nested_deeper_than_the_parser_goes_travels_as_base64() -> None:
    body = b"[" * 100_000 + b"]" * 100_000
    assert base64.b64decode(json.loads(envelope(stored(body)))["data_base64"]) == body


def test_an_empty_body_has_no_data_member() -> None:
    event = json.loads(envelope(stored(b"")))
    assert not {"data", "data_base64", "dataref"} & event.keys()


def test_a_body_that_is_not_in_place_goes_out_as_its_address() -> None:
    event = json.loads(envelope(stored(b"", offloaded=AWAY, size=900_000)))
    assert event["dataref"] == "s3://bodies/bodies/orders/1"
    assert "data" not in event


def test_a_given_address_takes_the_place_of_the_data() -> None:
    event = json.loads(envelope(stored(b"{}"), uri="s3://b/k"))
    assert event["dataref"] == "s3://b/k"
    assert "data" not in event


def test_headers_of_the_producer_become_attributes_and_the_others_travel_along() -> None:
    headers = {
        "CE-Id": "i-1",
        "ce-source": "//shop/eu",
        "ce-type": "order.paid",
        "ce-subject": "o 7",
        "ce-time": "2026-11-19T05:00:00.123456789+01:00",
        "ce-tenant": "t1",
        "type": "weaker",
        "traceparent": "00-1-2-01",
        "x-reason": "é",
    }
    event = json.loads(envelope(stored(headers=headers)))
    assert event["id"] == "i-1"
    assert event["source"] == "//shop/eu"
    assert event["type"] == "order.paid"
    assert event["subject"] == "o 7"
    assert event["time"] == "2026-11-19T05:00:00.123456789+01:00"
    assert event["tenant"] == "t1"
    assert event["traceparent"] == "00-1-2-01"
    assert json.loads(event["fairboxheaders"]) == {"type": "weaker", "x-reason": "é"}


def test_a_plain_type_header_is_the_type_where_nothing_stronger_is_said() -> None:
    assert json.loads(envelope(stored(headers={"type": "order.paid"})))["type"] == "order.paid"


@pytest.mark.parametrize(
    ("header", "value"),
    [
        ("ce-id", ""),
        ("ce-source", "not a uri"),
        ("ce-time", "yesterday"),
        ("ce-time", "2026-02-30T00:00:00Z"),
        ("ce-dataschema", "relative"),
        ("ce-type", "\x85"),
        ("ce-specversion", "9.9"),
        ("ce-datacontenttype", "text/html"),
        ("ce-fairboxref", "forged"),
        ("ce-data", "x"),
        ("ce-not_legal", "x"),
    ],
)
def test_a_header_that_its_attribute_does_not_take_changes_no_attribute(
    header: str, value: str
) -> None:
    message = stored(b"1", headers={header: value})
    plain = json.loads(envelope(message))
    assert json.loads(plain.pop("fairboxheaders")) == {header: value}
    without = stored(b"1", id=message.message.id)
    assert plain == json.loads(envelope(without))


def test_an_id_of_a_year_past_9999_has_no_time_and_is_no_error() -> None:
    event = json.loads(envelope(stored(id="ffffffff-ffff-7fff-bfff-ffffffffffff")))
    assert "time" not in event


def test_binary_headers_are_percent_encoded_and_read_back() -> None:
    headers = {"ce-subject": 'Euro € 😀 "x" 50%', "ce-source": "/a?b=c"}
    message = stored(b"\xff", content_type="image/png", headers=headers, partition_key="é")
    sent = binary_headers(message)
    assert sent["ce-subject"] == "Euro%20%E2%82%AC%20%F0%9F%98%80%20%22x%22%2050%25"
    assert sent["ce-source"] == "/a?b=c"
    assert all(v.isascii() for v in sent.values())
    event = parse_binary(sent, b"\xff")
    assert (event.subject, event.partitionkey) == ('Euro € 😀 "x" 50%', "é")
    assert (event.datacontenttype, event.data) == ("image/png", b"\xff")


@pytest.mark.parametrize(
    ("members", "field"),
    [
        ({"id": ""}, "ce.id"),
        ({"id": 7}, "ce.id"),
        ({"id": None}, "ce.id"),
        ({"id": "absent"}, "ce.id"),
        ({"id": "a\nb"}, "ce.id"),
        ({"id": "\ud800"}, "ce.id"),
        ({"id": "\uffff"}, "ce.id"),
        ({"source": "a b"}, "ce.source"),
        ({"source": "%zz"}, "ce.source"),
        ({"type": "absent"}, "ce.type"),
        ({"type": True}, "ce.type"),
        ({"specversion": "0.3"}, "ce.specversion"),
        ({"specversion": 1.0}, "ce.specversion"),
        ({"specversion": "absent"}, "ce.specversion"),
        ({"time": "2026-11-19"}, "ce.time"),
        ({"time": "2026-11-19T24:00:00Z"}, "ce.time"),
        ({"time": "2026-11-19T05:00:00"}, "ce.time"),
        ({"subject": ""}, "ce.subject"),
        ({"datacontenttype": "json"}, "ce.datacontenttype"),
        ({"dataschema": "#x"}, "ce.dataschema"),
        ({"partitionkey": 1}, "ce.partitionkey"),
        ({"Tenant": "x"}, "ce.Tenant"),
        ({"ten_ant": "x"}, "ce.ten_ant"),
        ({"": "x"}, "ce."),
        ({"tenant": 1.5}, "ce.tenant"),
        ({"tenant": 2**31}, "ce.tenant"),
        ({"tenant": {}}, "ce.tenant"),
        ({"data_base64": "%%%"}, "ce.data_base64"),
        ({"data_base64": "YQ"}, "ce.data_base64"),
        ({"data_base64": 5}, "ce.data_base64"),
        ({"data_base64": "YQ==", "data": 1}, "ce.data_base64"),
        ({"datacontenttype": "text/plain", "data": {}}, "ce.data"),
        ({"datacontenttype": "text/plain", "data": "\ud800"}, "ce.data"),
        ({"datacontenttype": "text/plain;charset=utf-16", "data": "a"}, "ce.data"),
    ],
)
def test_an_attribute_that_is_wrong_is_named(members: dict[str, Any], field: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        parse_structured(structured(**members))
    assert caught.value.field == field
    with pytest.raises(InvalidInput) as caught:
        parse_batch(b"[" + structured() + b" , " + structured(**members) + b"]")
    assert caught.value.field == "events[1]" + field.removeprefix("ce")


@pytest.mark.parametrize(
    "text",
    [
        b"", b"[]", b"null", b"{", b"{}x", b'{"id"', b'{"id":}', b'{"id":"1",}', b'{id:"1"}',
        b'{"a":NaN}', b'{"a":1 "b":2}', b"\xef\xbb\xbf{}", b"\xff", b'{"a":"\n"}',
        b'{"a":' + b"[" * 200_000,
    ],
)  # fmt: skip
def test_what_is_no_json_object_is_refused(text: bytes) -> None:
    with pytest.raises(InvalidInput):
        parse_structured(text)


@pytest.mark.parametrize("text", [b"", b"{}", b"[", b"[,]", b"[1]", b"[]x", b"[{}", b"[{} {}]"])
def test_what_is_no_json_array_of_events_is_refused(text: bytes) -> None:
    with pytest.raises(InvalidInput) as caught:
        parse_batch(text)
    assert caught.value.field.startswith("events")


def test_a_trailing_comma_in_a_batch_is_refused() -> None:
    with pytest.raises(InvalidInput):
        parse_batch(b"[" + structured() + b",]")


def test_a_repeated_member_is_refused() -> None:
    with pytest.raises(InvalidInput) as caught:
        parse_structured(structured()[:-1] + b', "id": "8"}')
    assert caught.value.field == "ce.id"


def test_an_empty_batch_has_no_events_and_a_full_one_keeps_its_order() -> None:
    assert parse_batch(b" [ ] ") == []
    events = parse_batch(b"[" + structured(id="1") + b",\n" + structured(id="2") + b"]")
    assert [e.id for e in events] == ["1", "2"]


def test_data_is_read_as_the_producer_wrote_it() -> None:
    text = b'{"data" : {"b": 1.0,  "a":"\\u00e9"} , ' + structured()[1:]
    event = parse_structured(text)
    assert event.data == b'{"b": 1.0,  "a":"\\u00e9"}'
    assert event.datacontenttype == "application/json"
    assert parse_structured(structured(datacontenttype="text/plain", data="é")).data == "é".encode()
    assert parse_structured(structured(data_base64="/w==")).data == b"\xff"


def test_extensions_that_are_no_text_become_their_canonical_text() -> None:
    event = parse_structured(structured(yes=True, count=-5, unset=None))
    assert dict(event.extensions) == {"yes": "true", "count": "-5"}


@pytest.mark.parametrize(
    ("headers", "field"),
    [
        ({"ce-id": "%ff"}, "ce.id"),
        ({"ce-id": "%4"}, "ce.id"),
        ({"ce-datacontenttype": "a/b"}, "ce.datacontenttype"),
        ({"ce-type": None}, "ce.type"),
        ({"CE-ID": "8"}, "ce.id"),
        ({"ce-my-own": "8"}, "ce.my-own"),
        ({"Content-Type": "nonsense"}, "ce.datacontenttype"),
    ],
)
def test_a_wrong_header_of_binary_mode_is_named(headers: dict[str, Any], field: str) -> None:
    good = {f"ce-{k}": v for k, v in REQUIRED.items()}
    with pytest.raises(InvalidInput) as caught:
        parse_binary({k: v for k, v in (good | headers).items() if v is not None}, b"")
    assert caught.value.field == field


def test_quoted_header_values_are_unquoted_before_they_are_decoded() -> None:
    headers = {f"ce-{k}": v for k, v in REQUIRED.items()} | {"ce-subject": r'"a \"b\" %C3%A9"'}
    assert parse_binary(headers, b"").subject == 'a "b" é'


def test_the_same_source_and_id_give_the_same_deduplication_key() -> None:
    one = CloudEvent(id="b", source="/a", type="t")
    other = CloudEvent(id="b", source="/a", type="u", data=b"1")
    assert one.to_message("orders").dedup_key == other.to_message("orders").dedup_key
    assert one.dedup_key == "c0e6dd647daf5fa25920855e208cb6238577ddd538f4b4c48f415f1a7f329fa8"
    assert CloudEvent(id="a", source="/ab", type="t").dedup_key != (
        CloudEvent(id="ba", source="/a", type="t").dedup_key
    )


def test_a_partition_key_or_headers_that_no_message_takes_are_refused() -> None:
    with pytest.raises(InvalidInput) as caught:
        CloudEvent(id="1", source="/a", type="t", partitionkey="x" * 257).to_message("orders")
    assert caught.value.field == "ce.partitionkey"
    many = {f"x{n}": "1" for n in range(70)}
    with pytest.raises(InvalidInput) as caught:
        CloudEvent(id="1", source="/a", type="t", extensions=many).to_message("orders")
    assert caught.value.field == "headers"
    bad = {"fairboxheaders": "[]"}
    with pytest.raises(InvalidInput) as caught:
        CloudEvent(id="1", source="/a", type="t", extensions=bad).to_message("orders")
    assert caught.value.field == "ce.fairboxheaders"


TEXT = st.text(
    st.characters(exclude_categories=("Cc", "Cs", "Cn")), min_size=1, max_size=30
)  # Cn takes the noncharacters along
EVENTS = st.builds(
    CloudEvent,
    id=TEXT,
    source=st.from_regex(r"/[a-z0-9/._~-]{0,20}", fullmatch=True),
    type=TEXT,
    subject=st.none() | TEXT,
    time=st.none() | st.just("1985-04-12T23:20:50.52Z") | st.just("1990-12-31T15:59:60-08:00"),
    dataschema=st.none() | st.just("urn:x"),
    datacontenttype=st.sampled_from(
        ["application/json", "text/plain", "text/csv; charset=UTF-8", "image/png", "a/b+json"]
    ),
    partitionkey=st.none() | TEXT,
    extensions=st.dictionaries(
        st.from_regex(r"x[a-z0-9]{0,18}", fullmatch=True) | st.just("traceparent"), TEXT, max_size=4
    ),
    data=st.binary(max_size=60)
    | st.text(max_size=40).map(lambda t: t.encode(errors="replace"))
    | st.recursive(
        st.none() | st.booleans() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
        lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
        max_leaves=5,
    ).map(lambda v: json.dumps(v, indent=1).encode() + b"\n"),
)


@given(EVENTS)
def test_an_event_survives_the_way_through_message_and_envelope(event: CloudEvent) -> None:
    message = event.to_message("orders")
    sent = stored(
        message.body,
        content_type=message.content_type,
        headers=message.headers,
        partition_key=message.partition_key,
    )
    back = parse_structured(envelope(sent), exact=True)
    binary = parse_binary(binary_headers(sent), message.body)
    for one in (back, binary):
        assert one.data == event.data
        own = {k: v for k, v in one.extensions.items() if k != "fairboxref"}
        assert own == dict(event.extensions)
        for name in ("id", "source", "type", "subject", "dataschema", "partitionkey"):
            assert getattr(one, name) == getattr(event, name)
        assert one.datacontenttype == event.datacontenttype
        assert event.time in (None, one.time)
        assert one.dedup_key == event.dedup_key


ITEM = "0198f7a2-7d7e-7abc-8def-0123456789ab:17:4031"


def test_a_batch_item_travels_as_the_extension_batchitem() -> None:
    event = CloudEvent(id="1", source="/a", type="t", extensions={"batchitem": ITEM})
    message = event.to_message("orders")
    assert message.batch_item == ITEM
    assert "ce-batchitem" not in message.headers
    sent = stored(headers=message.headers, batch_item=message.batch_item)
    assert json.loads(envelope(sent))["batchitem"] == ITEM
    assert binary_headers(sent)["ce-batchitem"] == ITEM


def test_a_fairness_key_travels_as_the_extension_fairnesskey() -> None:
    event = CloudEvent(id="1", source="/a", type="t", extensions={"fairnesskey": "acme"})
    message = event.to_message("orders")
    assert message.fairness_key == "acme"
    assert "ce-fairnesskey" not in message.headers
    assert event.to_message("orders", fairness_key="other").fairness_key == "other"
    sent = stored(headers=message.headers, fairness_key=message.fairness_key)
    assert json.loads(envelope(sent))["fairnesskey"] == "acme"
    assert binary_headers(sent)["ce-fairnesskey"] == "acme"


def test_a_fairness_key_of_an_event_that_is_too_long_is_refused_by_its_name() -> None:
    event = CloudEvent(id="1", source="/a", type="t", extensions={"fairnesskey": "a" * 257})
    with pytest.raises(InvalidInput) as caught:
        event.to_message("orders")
    assert caught.value.field == "ce.fairnesskey"


def test_a_malformed_batch_item_of_an_event_is_refused_by_its_name() -> None:
    event = CloudEvent(id="1", source="/a", type="t", extensions={"batchitem": "no item"})
    with pytest.raises(InvalidInput) as caught:
        event.to_message("orders")
    assert caught.value.field == "ce.batchitem"


def test_no_header_passes_itself_off_as_a_batch_item() -> None:
    event = json.loads(envelope(stored(headers={"ce-batchitem": ITEM})))
    assert "batchitem" not in event


@given(
    st.dictionaries(
        st.from_regex(r"(ce-)?[A-Za-z0-9_-]{1,12}", fullmatch=True),
        st.text(st.characters(exclude_categories=["Cs"], exclude_characters="".join(
            map(chr, [*range(9), *range(10, 32), 127]))), max_size=20),
        max_size=8,
    ),
    st.binary(max_size=50),
    st.sampled_from(["application/json", "text/plain", "x", "application/octet-stream"]),
)  # fmt: skip
def test_whatever_a_message_holds_its_envelope_is_a_legal_event(
    headers: dict[str, str], body: bytes, content_type: str
) -> None:
    message = stored(body, headers=headers, content_type=content_type)
    event = parse_structured(envelope(message), exact=True)
    assert event.data == body
    parse_binary(binary_headers(message), body)
    known = {
        k.lower().removeprefix("ce-") for k in headers if k not in json.loads(
            event.extensions.get("fairboxheaders", "{}"))
    }  # fmt: skip
    assert known <= {*event.extensions, "id", "source", "type", "time", "subject", "dataschema",
                     "partitionkey"}  # fmt: skip


@given(st.binary(max_size=200))
def test_garbage_is_invalid_input_and_nothing_else(garbage: bytes) -> None:
    for parse in (parse_structured, parse_batch):
        with pytest.raises(InvalidInput):
            parse(b"\x01" + garbage)
    with pytest.raises(InvalidInput):
        parse_binary({"ce-id": garbage.decode("latin-1")}, garbage)


@given(st.integers(0, 10**9), EVENTS)
def test_damaged_events_are_read_or_are_invalid_input(seed: int, event: CloudEvent) -> None:
    rng = random.Random(seed)
    text = bytearray(envelope(stored(event.data, headers=event.to_message("t").headers)))
    for _ in range(rng.randint(1, 4)):
        text[rng.randrange(len(text))] = rng.choice(b'{}[]":,\\u0019aNtf\x00\xff ')
    for parse, data in ((parse_structured, bytes(text)), (parse_batch, b"[" + text + b"]")):
        with suppress(InvalidInput):
            parse(data)


@given(EVENTS, st.sampled_from(["delay", "topic"]))
def test_to_message_raises_invalid_input_only(event: CloudEvent, wrong: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        event.to_message("no topic" if wrong == "topic" else "orders", delay=-1)
    assert caught.value.field == wrong


def test_a_message_made_from_an_event_keeps_the_headers_that_fairbox_wrote() -> None:
    first = stored(headers={"x-a": "1", "Ce-Subject": "s"})
    again = parse_structured(envelope(first)).to_message("copies")
    assert again.headers["x-a"] == "1"
    assert again.headers["ce-subject"] == "s"
    assert "ce-fairboxref" not in again.headers
    assert isinstance(again, Message)

"""The fuzzed readers: each reads a stranger's input and returns a value or raises one error.

`test_targets.py` draws for each.
"""

from __future__ import annotations

import json
import tracemalloc
import uuid
from functools import partial
from typing import TYPE_CHECKING, Any, Final, get_args

from fairbox.api.cursors import read_cursor, unpack_cursor, write_cursor
from fairbox.api.models import State
from fairbox.api.request import member_text, parse_json
from fairbox.aws.sqs_queues import decode, encode
from fairbox.batches.ack_messages import parse as parse_acks
from fairbox.client.message_pages import Place
from fairbox.cloudevents.parsing import parse_batch, parse_binary, parse_structured
from fairbox.errors import InvalidInput, Unreadable
from fairbox.model.bodies import compress, decompress
from fairbox.model.ids import check_batch_id, parse_id, parse_item
from fairbox.model.messages import MessageRef
from fairbox.model.receipts import Receipt
from fairbox.problems import Refusal
from fairbox.tables import deferred_keys, key_claims, keys, ledger, stored_messages
from fairbox.tables import hints as hint_rows
from fairbox.tables import shard_rows as shard_rows_
from fairbox.tables.batch_records import emptied, item_of, newly_ended, read_record
from fairbox.tables.batch_values import FailedItems, Leaf, Metadata, Node, Request, Root
from fairbox.tables.circuits import read_spent
from fairbox.tables.dead_letters import read_dead
from fairbox.tables.deferred_keys import HOLDS, deferred_values, read_deferred
from fairbox.tables.hints import hint_values, read_hint
from fairbox.tables.key_claims import HELD, KeyClaims, claim_values, read_claims
from fairbox.tables.keys import key
from fairbox.tables.ledger import ledger_item, read_ledger
from fairbox.tables.shard_rows import ROW_VERSION, read_shard, shard_item
from fairbox.tables.stored_messages import RAW, message_item, read_message, stored_item
from fairbox.tables.stream_records import image_item
from fairbox.tables.topic_rows import read_topics, subscription_item, topic_item
from hypothesis import given
from hypothesis import strategies as st

from tests.fuzz.damage import attributes, damaged, damaged_json, damaged_text, outcome
from tests.support import strategies

if TYPE_CHECKING:
    from collections.abc import Callable

    from fairbox.cloudevents import CloudEvent
    from fairbox.tables.stored_messages import StoredMessage

TARGETS: Final[dict[str, Callable[[], None]]] = {}
"""By name: a property that hypothesis draws for."""

_UUIDS = st.uuids().map(str)
_BITS = st.integers(0, 2**64)
_SMALL = st.integers(0, 10**6)
_JSON: Final = {"$": "", "cursor": ""}
_MAX_BODY: Final = 1 << 20


def target(property_: Callable[..., None]) -> Callable[..., None]:
    """Add a property to what is fuzzed."""
    TARGETS[property_.__name__] = property_
    return property_


def item_of_message(stored: StoredMessage) -> dict[str, Any]:
    """Return the item that a message lies in."""
    item, _ = message_item(stored.message, stored.ref, bucket="bodies")
    return stored_item(stored, item)


batch_records = st.one_of(
    st.builds(
        Root,
        _UUIDS,
        st.sampled_from(["open", "sealed", "complete", "cancelled", "reaped"]),
        _SMALL,
        user_key=st.text(max_size=9),
        bits=_BITS,
        next_group=st.integers(0, 64),
        total=_SMALL,
        failed=_SMALL,
        version=_SMALL,
        told=st.booleans(),
        next_check=st.none() | _SMALL,
        expires=st.none() | _SMALL,
    ),
    st.builds(
        Leaf, _UUIDS, st.integers(0, 999), _BITS, _SMALL, st.just(65), version=_SMALL, hour=_SMALL
    ),
    st.builds(Node, _UUIDS, st.integers(0, 99), _BITS, version=_SMALL, hour=_SMALL),
    st.builds(FailedItems, _UUIDS, st.integers(0, 99), _BITS, st.just(72)),
    st.builds(Request, _UUIDS, st.just("0" * 32), st.booleans(), _SMALL, _SMALL, _SMALL),
    st.builds(Metadata, _UUIDS, st.just({"a": [1, None]})),
).map(item_of)
messages = strategies.stored().map(item_of_message)
shard_rows = strategies.rows.map(shard_item)
_NAMES = sorted(
    value
    for rows in (deferred_keys, hint_rows, key_claims, keys, ledger, shard_rows_, stored_messages)
    for value in vars(rows).values()
    if isinstance(value, str) and len(value) < 4
)
anything = st.dictionaries(
    st.sampled_from(_NAMES),
    attributes,
    max_size=8,
)


@target
@given(damaged(messages) | anything)
def message_items(item: dict[str, Any]) -> None:
    """An item of a lane: a message that is written as it is read, or `Unreadable`."""
    read = outcome(lambda: read_message(item), Unreadable)
    if not isinstance(read, Unreadable):
        assert read_message(stored_item(read, item)) == read


@target
@given(damaged(messages.map(lambda i: i | {RAW: {"S": ""}})) | anything)
def dead_letters(item: dict[str, Any]) -> None:
    """An item of lane `dead`: a dead letter, its message maybe unread, or `Unreadable`."""
    outcome(lambda: read_dead(item), Unreadable)


@target
@given(damaged(batch_records) | anything)
def batch_items(item: dict[str, Any]) -> None:
    """An item of the batches table: a record that is written as it is read, or `Unreadable`."""
    record = outcome(lambda: read_record(item), Unreadable)
    if not isinstance(record, Unreadable | Metadata):
        assert read_record(item_of(record)) == record
    outcome(lambda: emptied(item), Unreadable)
    outcome(lambda: newly_ended(item), Unreadable)


@target
@given(damaged(shard_rows) | anything)
def shard_items(item: dict[str, Any]) -> None:
    """A shard's row, with what is held and held back in it: each read, or `Unreadable`."""
    row = outcome(lambda: read_shard(item), Unreadable)
    if not isinstance(row, Unreadable):
        assert read_shard(shard_item(row)) == row
    outcome(lambda: read_claims(item), Unreadable)
    outcome(lambda: read_deferred(item), Unreadable)
    outcome(lambda: read_spent(item), Unreadable)
    read_hint(item, 3)


@target
@given(
    damaged(st.builds(claim_values, st.builds(KeyClaims, _SMALL)))
    | st.binary(max_size=200).map(lambda b: {ROW_VERSION: {"N": "1"}, HELD: {"B": b}})
    | st.binary(max_size=200).map(lambda b: {ROW_VERSION: {"N": "1"}, HOLDS: {"B": b}})
)
def packed_rows(item: dict[str, Any]) -> None:
    """The packed part of a shard's row: what was packed, or `Unreadable`."""
    held = outcome(lambda: read_claims(item), Unreadable)
    if not isinstance(held, Unreadable):
        assert read_claims(claim_values(held)).entries == held.entries
    holds = outcome(lambda: read_deferred(item), Unreadable)
    if not isinstance(holds, Unreadable):
        assert read_deferred(deferred_values(holds)).entries == holds.entries


@target
@given(
    damaged(strategies.deliveries().map(lambda found: ledger_item("orders", found, ("1", "2"), 99)))
)
def ledger_rows(item: dict[str, Any]) -> None:
    """A ledger row: its deliveries, or `Unreadable`, and none before it is read whole."""
    outcome(lambda: list(read_ledger(item)), Unreadable)


@target
@given(st.data())
def topic_rows(data: st.DataObject) -> None:
    """The rows of a topic and its subscriptions: a topic, or `Unreadable`."""
    state = data.draw(strategies.topics())
    rows = [topic_item(state), *(subscription_item(s) for s in state.subscriptions)]
    number = data.draw(st.integers(0, len(rows) - 1))
    rows[number] = data.draw(damaged(st.just(rows[number])))
    outcome(lambda: read_topics(rows), Unreadable)


@target
@given(st.integers(0, 2000) | st.integers(0, 10**15), st.binary(max_size=300), st.integers(0, 300))
def packed_bodies(size: int, packed: bytes, cut: int) -> None:
    """A packed body: `size` bytes, or `InvalidInput`, and never more memory than `size` and some.

    What expands without end is cut off where the size ends that the item tells.
    """
    bomb, _ = compress(bytes(_MAX_BODY))
    for given_bytes in (packed, bomb[: len(bomb) - cut], bomb + packed):
        tracemalloc.start()
        body = outcome(partial(decompress, given_bytes, size), InvalidInput)
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        assert isinstance(body, InvalidInput) or len(body) == size
        assert peak < 4 * min(size, _MAX_BODY) + 400_000


@target
@given(
    damaged_text(
        strategies.stored().map(lambda s: str(s.ref))
        | st.builds("{}:{}:{}".format, _UUIDS, _SMALL, _SMALL)
    )
)
def names_of_things(text: str) -> None:
    """A text given as a ref, item, message or batch: one that is written the same, or refused."""
    ref = outcome(lambda: MessageRef.parse(text), InvalidInput)
    assert isinstance(ref, InvalidInput) or str(ref) == text
    item = parse_item(text)
    assert item is None or str(item) == text
    for check in (parse_id, check_batch_id):
        found = outcome(partial(check, text), InvalidInput)
        assert isinstance(found, InvalidInput) or str(uuid.UUID(text)) == found == text


@target
@given(
    damaged_text(
        st.builds(
            Receipt,
            strategies.stored().map(lambda s: s.ref),
            st.sampled_from(["ready", "later", "held"]),
            st.binary(min_size=12, max_size=12),
            st.integers(0, 2**45),
        ).map(str)
    )
)
def receipts(text: str) -> None:
    """A text given as a receipt: one that is written the same, or refused."""
    receipt = outcome(lambda: Receipt.parse(text), InvalidInput)
    assert isinstance(receipt, InvalidInput) or str(receipt) == text


@target
@given(
    damaged_text(
        st.builds(Place, strategies.times, strategies.ids(), st.text(max_size=9)).map(
            lambda place: write_cursor("orders", "outstanding", "later", place)
        )
    )
)
def cursors(text: str) -> None:
    """A text given as a cursor: a place in the list that it is given for, or refused."""
    unpack_cursor(text)
    for state in get_args(State):
        read = outcome(partial(read_cursor, text, "orders", state), InvalidInput)
        if not isinstance(read, InvalidInput):
            part, place = read
            again = write_cursor("orders", state, part, place)
            assert read_cursor(again, "orders", state) == read


bells = st.builds(
    lambda topic, epoch, shard, ids, at: {
        "topic": topic,
        "epoch": epoch,
        "shard": shard,
        "ids": ids,
        "not_before": at,
        "before": 1,
    },
    strategies.names,
    _SMALL,
    _SMALL,
    st.lists(strategies.ids(), max_size=3),
    strategies.times,
)


@target
@given(damaged_json(bells))
def doorbells(body: str) -> None:
    """The body of a doorbell: one that is written as it was read, or `InvalidInput`."""
    bell = outcome(lambda: decode(body), InvalidInput)
    if not isinstance(bell, InvalidInput):
        assert decode(encode(bell)) == bell


@target
@given(damaged_json(st.builds(lambda ids: {"acks": ids}, st.lists(st.text(max_size=9)))))
def ack_messages(body: str) -> None:
    """The body of a message of acks: texts, or `Unreadable`."""
    ids = outcome(lambda: parse_acks(body), Unreadable)
    assert isinstance(ids, Unreadable) or all(isinstance(i, str) for i in ids)


events = st.builds(
    lambda i, s, data: {"specversion": "1.0", "id": i, "source": s, "type": "t", "data": data},
    st.text(min_size=1, max_size=9),
    st.just("/a"),
    st.none() | st.text(max_size=9) | st.just({"n": [1]}),
)


@target
@given(damaged_json(events))
def cloud_events(text: str) -> None:
    """A CloudEvent in any mode: one that a message takes, or `InvalidInput`."""
    body = text.encode(errors="surrogatepass")
    given_events: list[CloudEvent | InvalidInput] = [
        outcome(lambda: parse_structured(body), InvalidInput),
        outcome(lambda: parse_binary({"ce-" + text[:9]: text}, body), InvalidInput),
    ]
    batch = outcome(lambda: parse_batch(b"[" + body + b"]"), InvalidInput)
    given_events += batch if isinstance(batch, list) else []
    for event in given_events:
        if not isinstance(event, InvalidInput):
            outcome(partial(event.to_message, "orders"), InvalidInput)


@target
@given(
    st.fixed_dictionaries(
        {"ce-id": st.text(), "ce-source": st.text(), "ce-specversion": st.just("1.0")},
        optional={"ce-type": st.text(), "ce-time": st.text(), "content-type": st.text()},
    ),
    st.binary(max_size=40),
)
def cloud_event_headers(headers: dict[str, str], body: bytes) -> None:
    """A CloudEvent in HTTP headers: one that a message takes, or `InvalidInput`."""
    event = outcome(lambda: parse_binary(headers, body), InvalidInput)
    if not isinstance(event, InvalidInput):
        outcome(lambda: event.to_message("orders"), InvalidInput)


@target
@given(damaged_json(st.just({"body": {"n": [1, "x"]}, "headers": {"a": "b"}})))
def request_bodies(text: str) -> None:
    """The JSON of a request: a value, each member as it was written; or refused (400)."""
    body = text.encode(errors="surrogatepass")
    value = outcome(lambda: parse_json(body), Refusal)
    if isinstance(value, dict):
        for name, member in value.items():
            assert json.loads(member_text(body, name)) == member


@target
@given(damaged(messages))
def stream_images(item: dict[str, Any]) -> None:
    """A stream's image of an item: an item as the client gives it, or `Unreadable`."""
    outcome(lambda: image_item(item), Unreadable)
    outcome(lambda: read_message(image_item(item)), Unreadable)


@target
@given(st.dictionaries(st.text(max_size=4), attributes), st.integers(0, 99))
def hints(item: dict[str, Any], shard: int) -> None:
    """A hint: read, or the empty one; it is a hint, and nothing depends on it."""
    hint = read_hint(item | key("hint#orders#0", "000"), shard)
    assert read_hint(hint_values(hint, shard), shard) == hint

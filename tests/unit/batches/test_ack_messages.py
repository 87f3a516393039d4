"""The ack queue's messages: every id arrives once, whatever its length, and garbage is refused."""

from __future__ import annotations

import json

import pytest
from fairbox.batches.ack_messages import MAX_BYTES, pack, parse
from fairbox.errors import InvalidInput, Unreadable
from hypothesis import given
from hypothesis import strategies as st

BATCH = "0198f7a2-0000-7000-8000-000000000001"


def test_ids_make_one_object_with_a_list_of_them() -> None:
    (body,) = pack([f"{BATCH}:0:1", f"{BATCH}:17:4031"])
    assert json.loads(body) == {"acks": [f"{BATCH}:0:1", f"{BATCH}:17:4031"]}


def test_no_ids_make_no_message() -> None:
    assert pack([]) == []


def test_messages_are_as_full_as_they_may_be_and_no_fuller() -> None:
    ids = [f"{BATCH}:{n}:{n % 7168}" for n in range(10_000)]
    bodies = pack(ids)
    assert [i for body in bodies for i in parse(body)] == ids
    sizes = [len(body.encode()) for body in bodies]
    assert max(sizes) <= MAX_BYTES
    assert all(size > MAX_BYTES - 64 for size in sizes[:-1])


def test_a_message_of_exactly_the_limit_is_made_and_one_more_byte_is_refused() -> None:
    frame = len('{"acks":[""]}')
    (body,) = pack(["x" * (MAX_BYTES - frame)])
    assert len(body) == MAX_BYTES
    with pytest.raises(InvalidInput, match="ids"):
        pack(["x" * (MAX_BYTES - frame + 1)])


@given(st.lists(st.text(max_size=50), max_size=60))
def test_every_text_arrives_once_and_in_order(texts: list[str]) -> None:
    assert [i for body in pack([*texts, *texts]) for i in parse(body)] == list(dict.fromkeys(texts))


@pytest.mark.parametrize(
    "body",
    [
        *("", "garbage", "[]", "7", "null", '{"acks": "x"}', '{"acks": {"a": 1}}', '{"ack": []}'),
        "[" * 100_000,
    ],
)
def test_what_is_no_such_object_is_unreadable(body: str) -> None:
    with pytest.raises(Unreadable):
        parse(body)


def test_an_entry_that_is_no_text_leaves_the_others_readable() -> None:
    assert parse('{"acks": [7, "a", null, {"b": []}]}') == ["7", "a", "null", '{"b": []}']

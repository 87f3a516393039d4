"""Properties of batches: bitfields, items to records and back, any order of any calls."""

from __future__ import annotations

from typing import Any

from fairbox.model.ids import ItemId, parse_item
from fairbox.tables.batch_records import item_of, read_record
from fairbox.tables.batch_values import (
    MAX_GROUPS,
    FailedItems,
    Leaf,
    Node,
    Request,
    Root,
    bit_of,
    bits,
    first_group,
    node_of,
    ones,
    slot_of,
)
from fairbox.testing.application import MemoryApplication
from fairbox_simulation.batches.invariants import broken
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

BATCH = "0199c82c-c000-7611-a29f-6fbed82c07cd"
small = st.integers(0, 7167)
few = settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])


@given(st.sets(small))
def test_a_bitfield_is_its_bits(indexes: set[int]) -> None:
    field = sum(1 << index for index in indexes)
    assert list(bits(field)) == sorted(indexes)
    raw = item_of(Leaf(BATCH, 0, field, len(indexes), 7168))["b"]["B"]
    assert len(raw) == 896
    assert sum(byte.bit_count() for byte in raw) == len(indexes)
    assert all(raw[i >> 3] >> (i & 7) & 1 for i in indexes)


@given(small, small)
def test_ones_is_a_range(low: int, high: int) -> None:
    assert list(bits(ones(low, high))) == list(range(low, high))


@given(st.integers(0, MAX_GROUPS - 1))
def test_every_group_has_one_place_in_the_tree(group: int) -> None:
    node = node_of(group)
    if node is None:
        assert bit_of(group) == group < 64
    else:
        assert first_group(node) + bit_of(group) == group
        assert 0 <= bit_of(group) < 7168
        assert 64 <= slot_of(node) < 7168


@given(st.uuids().map(str), st.integers(0, 10**9 - 1), st.integers(0, 99_999))
def test_an_item_id_is_read_as_it_was_written(batch: str, group: int, index: int) -> None:
    item = ItemId(batch, group, index)
    assert parse_item(str(item)) == item


@given(st.text())
def test_any_other_text_is_no_item_id(text: str) -> None:
    found = parse_item(text)
    assert found is None or str(found) == text


numbers = st.integers(0, 2**40)
leaves = st.builds(
    lambda field, **rest: Leaf(pending=field, count=field.bit_count(), size=7168, **rest),
    st.integers(0, 2**7168 - 1),
    batch=st.just(BATCH),
    group=small,
    failed=small,
    version=numbers,
    hour=numbers,
    request=st.none() | st.just("0" * 32),
)
nodes = st.builds(
    Node, st.just(BATCH), small, st.integers(0, 2**7168 - 1), numbers, numbers, numbers, numbers
)
roots = st.builds(
    Root,
    st.just(BATCH),
    st.sampled_from(["open", "sealed", "complete", "cancelled", "reaped"]),
    numbers,
    user_key=st.text(max_size=20),
    bits=st.integers(0, 2**100),
    next_group=numbers,
    total=numbers,
    failed=numbers,
    settled=numbers,
    version=numbers,
    message=st.none() | st.just(BATCH),
    parent_item=st.none() | st.just(f"{BATCH}:0:0"),
    told=st.booleans(),
    next_check=st.none() | numbers,
    cursor=st.none() | numbers,
    expires=st.none() | numbers,
)
failures = st.builds(
    FailedItems,
    st.just(BATCH),
    small,
    st.integers(0, 2**7168 - 1),
    st.just(7168),
    st.lists(st.tuples(small, st.text(max_size=9)), max_size=8).map(tuple),
    numbers,
)
requests = st.builds(
    Request, st.just(BATCH), st.just("0" * 32), st.booleans(), numbers, numbers, numbers
)


@few
@given(st.one_of(leaves, nodes, roots, failures, requests))
def test_every_record_is_read_as_it_was_written(record: Any) -> None:
    assert read_record(item_of(record)) == record


steps = st.lists(
    st.tuples(
        st.sampled_from(["add", "ack", "ack", "ack", "fail", "retry"]), st.integers(0, 70), small
    ),
    max_size=25,
)


@few
@given(steps, st.integers(1, 3))
def test_any_order_of_calls_keeps_the_sums_and_completes_once(
    plan: list[tuple[str, int, int]], size: int
) -> None:
    app = MemoryApplication()
    batch = app.batches.open().id
    state: dict[str, str] = {}
    for number, (verb, group, index) in enumerate(plan):
        if verb == "add":
            groups = app.batches.add(batch, group + 1, request_id=str(number), group_size=size)
            state |= {item: "pending" for g in groups for item in g.item_ids()}
        elif state:
            item = list(state)[(group * 7 + index) % len(state)]
            getattr(app.batches, verb)([item])
            before, after = {
                "ack": ("pending", "acked"),
                "fail": ("pending", "failed"),
                "retry": ("failed", "pending"),
            }[verb]
            state[item] = after if state[item] == before else state[item]
        assert broken(app.engine.items("batches"), []) == ""
    counts = [list(state.values()).count(s) for s in ("pending", "acked", "failed")]
    found = app.batches.progress(batch)
    assert [found.pending, found.acked, found.failed] == counts
    assert list(app.batches.missing(batch)) == [i for i, s in state.items() if s == "pending"]
    assert [f.id for f in app.batches.failed(batch)] == [
        i for i, s in state.items() if s == "failed"
    ]
    app.batches.seal(batch)
    app.batches.ack([i for i, s in state.items() if s == "pending"])
    assert app.batches.progress(batch).complete
    assert broken(app.engine.items("batches"), [batch]) == ""

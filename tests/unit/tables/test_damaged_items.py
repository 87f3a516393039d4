"""Items that nothing of ours wrote are unreadable, each by itself: no other error, no memory."""

from __future__ import annotations

from typing import Any

import pytest
from fairbox.aws.sqs_queues import decode
from fairbox.errors import InvalidInput, Unreadable
from fairbox.tables.batch_records import item_of, newly_ended, read_record
from fairbox.tables.batch_values import Leaf, Metadata, Root
from fairbox.tables.circuits import SPENT, read_spent
from fairbox.tables.dead_letters import read_dead
from fairbox.tables.keys import PK, SK, key
from fairbox.tables.stored_messages import DIED_AT, RAW, REASON
from fairbox.testing.application import MemoryApplication

BATCH = "0199c82c-c000-4611-a29f-000000000000"
ROOT = item_of(Root(BATCH, "complete", 1))
STATE = next(name for name, value in ROOT.items() if value == {"S": "complete"})


@pytest.mark.parametrize("state", [None, {}, [], {"S": []}, {"N": "1"}])
def test_a_batch_whose_state_is_none_is_unreadable_when_its_end_is_looked_for(state: Any) -> None:
    with pytest.raises(Unreadable):
        newly_ended(ROOT | {STATE: state})


def test_a_record_that_cannot_be_read_keeps_no_other_from_the_cascade() -> None:
    application = MemoryApplication()
    broken = {"dynamodb": {"NewImage": ROOT | {STATE: None}, "SequenceNumber": "1"}}
    report = application.keeper.cascade_records([broken, broken], deadline=application.deadline)
    assert report.unreadable == 2
    assert report.again is None


def test_a_state_that_no_batch_has_is_unreadable() -> None:
    with pytest.raises(Unreadable, match="no state"):
        read_record(ROOT | {STATE: {"S": "lost"}})


def test_bits_that_are_a_number_are_unreadable_and_not_so_many_bytes() -> None:
    leaf = item_of(Leaf(BATCH, 0, 3, 2, 2))
    bits = next(name for name, value in leaf.items() if "B" in value)
    with pytest.raises(Unreadable, match="not binary"):
        read_record(leaf | {bits: {"B": 10**13}})


def test_metadata_that_nest_without_end_are_unreadable() -> None:
    item = item_of(Metadata(BATCH, {"a": 1}))
    text = next(name for name, value in item.items() if value == {"S": '{"a":1}'})
    with pytest.raises(Unreadable, match="RecursionError"):
        read_record(item | {text: {"S": "[" * 100_000}})


@pytest.mark.parametrize(
    "damage",
    [
        {PK: None},
        {PK: {"N": "1"}},
        {SK: {}},
        {DIED_AT: {"N": "soon"}},
        {REASON: None},
        {RAW: {"M": {}}},
    ],
)
def test_a_dead_letter_whose_own_marks_are_damaged_is_unreadable(damage: dict[str, Any]) -> None:
    item = key("dead#orders#0#0", "x") | {
        RAW: {"S": "{}"},
        DIED_AT: {"N": "1"},
    }
    assert read_dead(item).died_at == 1
    with pytest.raises(Unreadable):
        read_dead(item | damage)


@pytest.mark.parametrize("spent", [None, {}, {"N": "x"}, {"S": "1"}])
def test_a_rate_that_is_used_up_until_no_time_is_unreadable(spent: Any) -> None:
    with pytest.raises(Unreadable):
        read_spent({SPENT: spent})


def test_a_doorbell_that_nests_without_end_is_refused_as_any_other() -> None:
    with pytest.raises(InvalidInput, match="doorbell"):
        decode("[" * 100_000)

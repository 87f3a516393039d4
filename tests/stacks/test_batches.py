"""The stack of batches: acks gather, cascades repeat, and neither is lost."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from fairbox.tables.batch_records import item_of, read_image
from fairbox.tables.batch_values import FailedItems, Leaf, Node, Root
from fairbox.testing.streams import lambda_item

from local.triggers.filters import compile_pattern
from tests.stacks.assembly import plain

if TYPE_CHECKING:
    from fairbox.tables.batch_values import Record

    from tests.stacks.assembly import Assembly

BATCH = "0198f7a2-0000-7000-8000-000000000001"
ITEM = f"{BATCH}:0:1"


def mapping(assembly: Assembly, function: str) -> dict[str, Any]:
    (found,) = (
        one
        for one in assembly.of_type("AWS::Lambda::EventSourceMapping").values()
        if plain(one["FunctionName"]) == f"{function}Function"
    )
    return found


def queue(assembly: Assembly, name: str) -> dict[str, Any]:
    return assembly.of_type("AWS::SQS::Queue")[f"FairboxBatches/{name}"]


def test_acks_gather_for_a_window_and_fail_one_by_one(assembly: Assembly) -> None:
    found = mapping(assembly, "AckBatches")
    assert plain(found["EventSourceArn"]) == "AcksQueue"
    assert found["BatchSize"] == 2000
    assert found["MaximumBatchingWindowInSeconds"] == 5
    assert found["FunctionResponseTypes"] == ["ReportBatchItemFailures"]
    assert found["ScalingConfig"] == {"MaximumConcurrency": 5}


def test_an_ack_that_fails_ten_times_is_put_aside_and_kept_as_long_as_can_be(
    assembly: Assembly,
) -> None:
    acks, aside = queue(assembly, "AcksQueue"), queue(assembly, "AcksDeadLetters")
    assert plain(acks["RedrivePolicy"]["deadLetterTargetArn"]) == "AcksDeadLetters"
    assert acks["RedrivePolicy"]["maxReceiveCount"] == 10
    assert acks["MessageRetentionPeriod"] == aside["MessageRetentionPeriod"] == 14 * 86_400


def test_a_window_is_handed_out_again_long_after_its_function_s_time_limit(
    assembly: Assembly,
) -> None:
    limit = assembly.functions()["ack_batches"]["Timeout"]
    window = mapping(assembly, "AckBatches")["MaximumBatchingWindowInSeconds"]
    assert queue(assembly, "AcksQueue")["VisibilityTimeout"] >= 6 * limit + window


def test_cascades_are_bounded_halved_partial_and_kept_with_their_records(
    assembly: Assembly,
) -> None:
    found = mapping(assembly, "CascadeBatches")
    assert plain(found["EventSourceArn"]) == "Batches.StreamArn"
    assert found["MaximumRetryAttempts"] == 10
    assert found["BisectBatchOnFunctionError"] is True
    assert found["FunctionResponseTypes"] == ["ReportBatchItemFailures"]
    assert found["StartingPosition"] == "TRIM_HORIZON"
    assert found["MaximumBatchingWindowInSeconds"] == 1
    assert found["ParallelizationFactor"] == 1
    assert "MaximumRecordAgeInSeconds" not in found
    assert plain(found["DestinationConfig"]["OnFailure"]["Destination"]) == "Failures"


@pytest.mark.parametrize(
    ("what", "record", "wanted"),
    [
        ("a leaf made", Leaf(BATCH, 0, 3, 2, 2), False),
        ("a leaf of ten", Leaf(BATCH, 0, 1023, 10, 10), False),
        ("a leaf emptied", Leaf(BATCH, 0, 0, 0, 2), True),
        ("a node", Node(BATCH, 0, 1), False),
        ("a node emptied", Node(BATCH, 0, 0), True),
        ("an open batch", Root(BATCH, "open", 1), False),
        ("a sealed batch", Root(BATCH, "sealed", 1, parent_item=ITEM), False),
        ("a batch complete", Root(BATCH, "complete", 1), True),
        ("a nested batch complete", Root(BATCH, "complete", 1, parent_item=ITEM), True),
        ("a nested batch told", Root(BATCH, "complete", 1, parent_item=ITEM, told=True), False),
        ("a nested batch cancelled", Root(BATCH, "cancelled", 1, parent_item=ITEM), True),
        ("a batch reaped", Root(BATCH, "reaped", 1), True),
        ("a group's first failed items", FailedItems(BATCH, 0, 1, 8), True),
        ("a group's further failed items", FailedItems(BATCH, 0, 3, 8, version=2), False),
        ("a batch being erased", Root(BATCH, "reaped", 1, cursor=0), False),
    ],
)
def test_the_cascade_is_woken_by(
    assembly: Assembly, what: str, record: Record, wanted: bool
) -> None:
    image = lambda_item(item_of(record))
    filters = mapping(assembly, "CascadeBatches")["FilterCriteria"]["Filters"]
    matchers = [compile_pattern(one["Pattern"]) for one in filters]
    event = {"eventName": "MODIFY", "dynamodb": {"NewImage": image, "SequenceNumber": "1"}}
    assert any(match(event) for match in matchers) is wanted, what
    assert (read_image(image) != (None, None)) is wanted, what


def test_a_removal_wakes_no_cascade(assembly: Assembly) -> None:
    filters = mapping(assembly, "CascadeBatches")["FilterCriteria"]["Filters"]
    event = {"eventName": "REMOVE", "dynamodb": {"Keys": {}, "SequenceNumber": "1"}}
    assert not any(compile_pattern(one["Pattern"])(event) for one in filters)


@pytest.mark.extended  # a synthesis of its own
def test_settings_reach_the_cleanup(local_assembly: Assembly, assembly: Assembly) -> None:
    for found in (assembly, local_assembly):
        cleanup = found.functions()["clean_orphans"]
        assert cleanup["Timeout"] == 900
        assert cleanup["Environment"]["Variables"]["FAIRBOX_SEALED_BATCH_DAYS"] == "14"
    acks = mapping(local_assembly, "AckBatches")
    assert acks["MaximumBatchingWindowInSeconds"] == 1
    assert queue(local_assembly, "AcksQueue")["VisibilityTimeout"] == 91


def test_batches_are_built_before_the_delivery_that_sends_acks(assembly: Assembly) -> None:
    batches, delivery = (assembly.artifacts[f"Fairbox{part}"] for part in ("Batches", "Delivery"))
    assert batches["id"] in delivery["dependencies"]
    assert delivery["id"] not in batches["dependencies"]

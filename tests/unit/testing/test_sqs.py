"""The model of SQS, where the server differs from the service or would be too slow."""

from __future__ import annotations

import random
from typing import Any

import pytest
from botocore.exceptions import ClientError
from fairbox.testing import ManualClock, sqs_queue
from fairbox.testing.memory_sqs import MemorySqs, SqsFaults

FIFO = {"FifoQueue": "true"}


def made(**attributes: str) -> tuple[MemorySqs, str]:
    sqs = MemorySqs(ManualClock(), random.Random(0))
    name = "q.fifo" if attributes.get("FifoQueue") else "q"
    return sqs, sqs.create_queue(QueueName=name, Attributes=attributes)["QueueUrl"]


def entry(number: int, **more: Any) -> dict[str, Any]:
    return {"Id": str(number), "MessageBody": f"b{number}", **more}


def keyed(number: int, group: str = "a", same: str = "") -> dict[str, Any]:
    return entry(number, MessageGroupId=group, MessageDeduplicationId=same or str(number))


def bodies(sqs: MemorySqs, url: str, most: int = 10) -> list[str]:
    found = sqs.receive_message(QueueUrl=url, MaxNumberOfMessages=most)
    return [message["Body"] for message in found.get("Messages", [])]


def test_an_id_is_known_for_five_minutes() -> None:
    sqs, url = made(**FIFO)
    for seconds, found in ((0, 1), (299, 0), (1, 1)):
        sqs.clock.sleep(seconds)
        sqs.send_message_batch(QueueUrl=url, Entries=[keyed(0)])
        taken = sqs.receive_message(QueueUrl=url).get("Messages", [])
        assert len(taken) == found
        for message in taken:
            sqs.delete_message(QueueUrl=url, ReceiptHandle=message["ReceiptHandle"])


def test_a_fifo_queue_refuses_delays_and_what_has_no_group_one_by_one() -> None:
    sqs, url = made(**FIFO)
    entries = [
        keyed(0),
        keyed(1) | {"DelaySeconds": 5},
        entry(2, MessageDeduplicationId="x"),
        entry(3, MessageGroupId="a"),
    ]
    answer = sqs.send_message_batch(QueueUrl=url, Entries=entries)
    assert [e["Id"] for e in answer["Successful"]] == ["0"]
    failed = {e["Id"]: (e["Code"], e["SenderFault"]) for e in answer["Failed"]}
    assert failed == {
        "1": ("InvalidParameterValue", True),
        "2": ("MissingParameter", True),
        "3": ("InvalidParameterValue", True),
    }


def test_a_standard_queue_takes_groups_but_no_ids_and_no_delay_over_15_minutes() -> None:
    sqs, url = made()
    entries = [
        entry(0, MessageGroupId="a"),
        entry(1, MessageDeduplicationId="x"),
        entry(2, DelaySeconds=901),
    ]
    answer = sqs.send_message_batch(QueueUrl=url, Entries=entries)
    assert [e["Id"] for e in answer["Successful"]] == ["0"]
    assert [e["Id"] for e in answer["Failed"]] == ["1", "2"]


def test_entries_fail_by_number_and_by_chance_and_are_not_the_senders_fault() -> None:
    sqs, url = made()
    sqs.failing = 2
    answer = sqs.send_message_batch(QueueUrl=url, Entries=[entry(n) for n in range(4)])
    assert [(e["Id"], e["SenderFault"]) for e in answer["Failed"]] == [("0", False), ("1", False)]
    sqs.faults = SqsFaults(entries=1.0)
    assert "Successful" not in sqs.send_message_batch(QueueUrl=url, Entries=[entry(0)])
    assert bodies(sqs, url) == ["b2", "b3"]


def test_a_standard_queue_repeats_and_disorders_on_request_alone() -> None:
    sqs, url = made()
    sqs.send_message_batch(QueueUrl=url, Entries=[entry(n) for n in range(10)])
    sqs.faults = SqsFaults(duplicates=1.0, disorder=1.0)
    first, second = bodies(sqs, url), bodies(sqs, url)
    assert sorted(first) == sorted(second) == [f"b{n}" for n in range(10)]
    assert first != sorted(first)
    sqs.faults = SqsFaults()
    assert bodies(sqs, url) == sorted(first)
    assert bodies(sqs, url) == []


def test_what_is_too_old_is_gone() -> None:
    sqs, url = made(MessageRetentionPeriod="60")
    sqs.send_message(QueueUrl=url, MessageBody="x")
    sqs.clock.sleep(59)
    assert bodies(sqs, url) == ["x"]
    sqs.clock.sleep(31)
    assert bodies(sqs, url) == []


def test_a_fifo_queue_refuses_a_receipt_whose_visibility_has_ended() -> None:
    sqs, url = made(**FIFO, VisibilityTimeout="10")
    sqs.send_message_batch(QueueUrl=url, Entries=[keyed(0)])
    (message,) = sqs.receive_message(QueueUrl=url)["Messages"]
    receipt = message["ReceiptHandle"]
    sqs.clock.sleep(10)
    answer = sqs.delete_message_batch(QueueUrl=url, Entries=[{"Id": "0", "ReceiptHandle": receipt}])
    assert "expired" in answer["Failed"][0]["Message"]
    with pytest.raises(ClientError, match="not available for"):
        sqs.change_message_visibility(QueueUrl=url, ReceiptHandle=receipt, VisibilityTimeout=5)
    assert bodies(sqs, url) == ["b0"]
    sqs.delete_message(QueueUrl=url, ReceiptHandle=receipt)
    sqs.clock.sleep(10)
    assert bodies(sqs, url) == ["b0"], "an older receipt deletes nothing"


def test_no_more_than_the_limit_is_in_flight(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sqs_queue, "IN_FLIGHT", 2)
    for attributes in ({}, FIFO):
        sqs, url = made(**attributes)
        for number in range(3):
            more = keyed(number, str(number)) if attributes else entry(number)
            sqs.send_message_batch(QueueUrl=url, Entries=[more])
        assert len(bodies(sqs, url, 2)) == 2
        if attributes:
            assert bodies(sqs, url) == []
        else:
            with pytest.raises(ClientError, match="OverLimit"):
                bodies(sqs, url)

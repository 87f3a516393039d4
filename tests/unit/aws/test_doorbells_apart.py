"""Visits apart: their queue, their groups, and doorbells that come to the wrong one."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import pytest
from fairbox import MessageRef, Subscription
from fairbox.aws.sqs_queues import SqsDoorbells, answer_doorbells, decode, encode
from fairbox.dispatch.delivery import VisitReport
from fairbox.dispatch.ports import Doorbell
from fairbox.testing import ManualClock

SHARED = "https://sqs.us-east-1.amazonaws.com/111122223333/Now.fifo"
APART = "https://sqs.us-east-1.amazonaws.com/111122223333/Apart.fifo"
LATER = "https://sqs.us-east-1.amazonaws.com/111122223333/Later"
ID = "0198f3c2-7d7e-7abc-8def-{:012x}"


def bell(shard: int, *numbers: int, subscription: str = "hook", **more: Any) -> Doorbell:
    refs = tuple(MessageRef("orders", 0, shard, ID.format(n)) for n in numbers)
    return Doorbell("orders", 0, shard, refs, subscription=subscription, **more)


@dataclass
class Sqs:
    sent: list[tuple[str, dict[str, Any]]] = field(default_factory=list)

    def send_message_batch(self, *, QueueUrl: str, Entries: list[dict[str, Any]]) -> dict[str, Any]:  # noqa: N803 - the SDK's
        self.sent += [(QueueUrl, entry) for entry in Entries]
        return {"Successful": [{"Id": entry["Id"]} for entry in Entries]}

    def groups(self, url: str) -> list[str]:
        return [entry["MessageGroupId"] for to, entry in self.sent if to == url]


def bells(
    sqs: Sqs, apart: str | None = APART, groups: int = 2, clock: ManualClock | None = None
) -> SqsDoorbells:
    return SqsDoorbells(
        sqs, SHARED, LATER, clock=clock or ManualClock(), apart_url=apart,
        groups_apart=lambda *_: groups,
    )  # fmt: skip


class TestQueues:
    def test_visits_apart_have_a_queue_and_groups_of_their_own(self) -> None:
        sqs = Sqs()
        bells(sqs).ring([bell(5, 1), bell(5, 1, subscription=""), bell(4, 2)])
        assert sqs.groups(APART) == ["orders#1#hook", "orders#0#hook"]
        assert sqs.groups(SHARED) == ["orders#5"]

    def test_without_the_queue_the_shared_one_has_them(self) -> None:
        sqs = Sqs()
        bells(sqs, None).ring([bell(5, 1)])
        assert sqs.groups(SHARED) == ["orders#5"]

    def test_those_for_later_go_to_the_right_queue_when_they_are_due(self) -> None:
        sqs, clock = Sqs(), ManualClock()
        over = bells(sqs, clock=clock)
        due = bell(5, 1, not_before=round(clock.now() * 1000) + 30_000)
        over.ring([due])
        ((queue, entry),) = sqs.sent
        assert queue == LATER
        clock.advance(31)
        over.pass_on(decode(entry["MessageBody"]))
        assert sqs.groups(APART) == ["orders#1#hook"]

    def test_a_group_that_is_too_long_for_sqs_is_still_one_for_each_shard_and_subscription(
        self,
    ) -> None:
        sqs, topic = Sqs(), "t" * 120
        names = ["s" * 64, "s" * 63 + "x"]
        bells(sqs, groups=8).ring(
            [Doorbell(topic, 0, n, subscription=name) for n in range(16) for name in names]
        )
        groups = sqs.groups(APART)
        assert max(map(len, groups)) <= 128
        assert len(set(groups)) == 16

    @pytest.mark.parametrize(
        ("limit", "groups"),
        [(1, 1), (16, 1), (17, 2), (None, 4), (100, 4), (129, 8), (1000, 8)],
    )
    def test_few_messages_in_flight_take_few_workers(self, limit: int | None, groups: int) -> None:
        there = Subscription("orders", "hook", "https://x.example", max_in_flight=limit)
        assert there.groups == groups
        assert (limit or 64) // groups <= 125


class Visits:
    """Keeps the doorbells that it was asked to answer."""

    def __init__(self) -> None:
        self.seen: list[Doorbell] = []

    def handle(self, doorbell: Doorbell, *, deadline: float) -> VisitReport:
        self.seen.append(doorbell)
        return VisitReport()


def answer(
    visits: Visits, sqs: Sqs, doorbells: list[Doorbell], queue: str = APART, **over: Any
) -> list[str]:
    arn = f"arn:aws:sqs:us-east-1:111122223333:{queue.rpartition('/')[2]}"
    records = [
        {"eventSourceARN": arn, "messageId": str(n), "body": encode(d)}
        for n, d in enumerate(doorbells)
    ]
    answered = answer_doorbells(records, visits=visits, doorbells=bells(sqs, **over), deadline=0)  # type: ignore[arg-type]  # a fake
    return [failure["itemIdentifier"] for failure in answered["batchItemFailures"]]


class TestMisplaced:
    """Old functions, and clients, know one queue: visits apart come to it from them."""

    def test_a_doorbell_apart_in_the_shared_queue_is_passed_on(self) -> None:
        visits, sqs = Visits(), Sqs()
        assert answer(visits, sqs, [bell(3, 1)], SHARED) == []
        assert not visits.seen
        assert sqs.groups(APART) == ["orders#1#hook"]
        answer(visits, sqs, [bell(3, 1)])
        assert visits.seen == [bell(3, 1)]

    def test_without_the_queue_it_is_answered_where_it_lies(self) -> None:
        visits, sqs = Visits(), Sqs()
        answer(visits, sqs, [bell(3, 1)], SHARED, apart=None)
        assert visits.seen == [bell(3, 1)]
        assert not sqs.sent

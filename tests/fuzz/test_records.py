"""A damaged stream record keeps no other record of its batch from being served."""

from __future__ import annotations

import copy
from typing import Any

from fairbox.model.messages import Message
from fairbox.model.topics import Subscription, Topic
from fairbox.tables.keys import PK, SK
from fairbox.testing.application import MemoryApplication
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.fuzz.damage import damaged

KEYS = (PK, SK)
DRAWS = settings(
    max_examples=40,
    derandomize=True,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)


@st.composite
def damaged_records(draw: st.DrawFn) -> tuple[MemoryApplication, list[dict[str, Any]], str]:
    """Return an application with three messages, their records, and the id of the damaged one."""
    application = MemoryApplication()
    application.outbox.create_topic(Topic("orders", shards=1))
    application.outbox.add_subscription(Subscription("orders", "billing", "sqs:http://q/billing"))
    for number in range(3):
        message = Message(
            topic="orders",
            body=b"{}" * 400,
            headers={"n": str(number)},
            partition_key="a",
            id=application.ids.next(),
        )
        application.outbox.add(message)
    records = copy.deepcopy(application.records())
    place = draw(st.integers(0, len(records) - 1))
    image = records[place]["dynamodb"]["NewImage"]
    rest = {name: value for name, value in image.items() if name not in KEYS}
    kept = {name: image[name] for name in KEYS}
    records[place]["dynamodb"]["NewImage"] = draw(damaged(st.just(rest))) | kept
    return application, records, image[SK]["S"]


@DRAWS
@given(damaged_records())
def test_a_damaged_record_is_relayed_marked_or_set_aside_and_the_others_go_on(
    given_: tuple[MemoryApplication, list[dict[str, Any]], str],
) -> None:
    application, records, damaged_id = given_
    good = {r["dynamodb"]["Keys"][SK]["S"] for r in records} - {damaged_id}
    marked = application._marking.handle(records)
    relayed = application._relay.handle(records, deadline=application.deadline)
    assert good <= set(application.destinations["sqs:http://q/billing"].ids)
    assert marked.unreadable == relayed.unreadable
    if relayed.unreadable:
        (letter,) = application.outbox.dead("orders")
        assert letter.id == damaged_id
    else:
        assert damaged_id in application.destinations["sqs:http://q/billing"].ids

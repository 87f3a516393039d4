"""A producer's time limit: the call ends within it, however long the database hangs."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import boto3
import pytest
from botocore.exceptions import ReadTimeoutError
from fairbox import InvalidInput, MessagesNotWritten, Outbox, Throttled, Unavailable, client_config
from fairbox.testing import ManualClock, MemoryDynamoDB
from fairbox.testing.faults import Fault

from tests.support.outbox_fixture import Setup


class Hanging:
    """Tables behind a boto3 client: from `hangs` on, each call takes all its time, in vain.

    From `slow` on it takes as long, and is answered.
    """

    def __init__(self, tables: MemoryDynamoDB, clock: ManualClock, deadline: float) -> None:
        self.tables = tables
        self.clock = clock
        self.meta = SimpleNamespace(config=client_config(deadline), region_name="eu-west-1")
        self.hangs = self.slow = False
        self.calls = 0

    def __getattr__(self, name: str) -> Any:
        def call(**request: Any) -> Any:
            self.calls += 1
            config = self.meta.config
            if self.hangs or self.slow:
                self.clock.advance(config.connect_timeout + config.read_timeout)
            if not self.hangs:
                return getattr(self.tables, name)(**request)
            raise ReadTimeoutError(endpoint_url="https://dynamodb")

        return call


def producer(client: Hanging, setup: Setup, deadline: float) -> Outbox:
    return Outbox(
        client,
        table=setup.table,
        deliveries_table=setup.deliveries,
        deadline=deadline,
        clock=setup.clock,
        rng=setup.rng,
    )


@pytest.mark.parametrize("deadline", [0.5, 5.0, 60.0])
def test_a_database_that_hangs_holds_a_producer_no_longer_than_that(deadline: float) -> None:
    clock = ManualClock()
    client = Hanging(MemoryDynamoDB(clock), clock, deadline)
    setup = Setup(client, clock)
    setup.topic()
    outbox = producer(client, setup, deadline)
    outbox.add(setup.message())
    client.hangs = True
    for call in (
        lambda: outbox.add(setup.message()),
        lambda: outbox.transact([], setup.message()),
        lambda: outbox.add_many([setup.message() for _ in range(60)]),
    ):
        began, client.calls = clock.now(), 0
        with pytest.raises((Unavailable, MessagesNotWritten)) as caught:
            call()
        assert caught.value.retry == "same_token"
        assert client.calls >= 2  # one hangs in vain, and there is time for another
        assert clock.now() - began <= deadline


@pytest.mark.parametrize("new", [False, True])
def test_a_bulk_that_is_slow_ends_with_what_is_left(new: bool) -> None:
    clock = ManualClock()
    client = Hanging(MemoryDynamoDB(clock), clock, 5.0)
    setup = Setup(client, clock)
    setup.topic()
    outbox = producer(client, setup, 5.0)
    outbox.add(setup.message())  # which reads the topic
    client.slow, began = True, clock.now()
    with pytest.raises(MessagesNotWritten) as caught:
        outbox.add_many([setup.message() for _ in range(200)], new=new)
    assert clock.now() - began <= 5.0
    assert outbox.outstanding_count("orders") == 201 - len(caught.value.missing)


def test_the_waits_between_tries_end_with_it_too() -> None:
    setup = Setup(MemoryDynamoDB(ManualClock()))
    setup.topic()
    setup.outbox.add(setup.message())
    setup.client.next("put_item", *[Fault.THROTTLED] * 8)
    began = setup.clock.now()
    with pytest.raises(Throttled):
        setup.outbox.add(setup.message(), deadline=0.5)
    assert setup.clock.now() - began <= 0.5


def test_a_resource_is_refused_with_the_way_out() -> None:
    resource = boto3.resource("dynamodb", region_name="eu-west-1")
    for client in (resource, resource.meta.client):
        with pytest.raises(InvalidInput, match=r'boto3.client\("dynamodb"\)'):
            Outbox(client, table="outbox", deliveries_table="deliveries")


def test_a_client_whose_single_call_may_take_too_long_is_refused_with_the_way_out() -> None:
    def outbox(**more: Any) -> Outbox:
        client = boto3.Session(region_name="eu-west-1").client("dynamodb", **more)
        return Outbox(client, table="outbox", deliveries_table="deliveries", deadline=5)

    with pytest.raises(InvalidInput, match=r"config=fairbox.client_config\(5\)") as caught:
        outbox()
    assert caught.value.field == "deadline"
    made = outbox(config=client_config(5))
    for deadline in (0, -1, True, "5", 3.3, float("nan")):
        with pytest.raises(InvalidInput, match="deadline"):
            made.transact_items(deadline=deadline)  # type: ignore[arg-type]  # what is tested

"""Adding again never changes what is outstanding, whichever way a message is added again."""

from __future__ import annotations

import json
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import pytest
from botocore.exceptions import ClientError
from fairbox import (
    Message,
    MessagesClaimed,
    Queue,
    RetryPolicy,
    Subscription,
    TransactionCancelled,
)
from fairbox.api.publish_routes import Publisher
from fairbox.api.request import JSON_TYPE, Request
from fairbox.destinations.topic import PulledTopic, add_to_topic
from fairbox.model.clock import milliseconds
from fairbox.tables.stored_messages import Failure, StoredMessage, SubscriptionState, read_message
from fairbox.testing.faults import Fault
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.support.outbox_fixture import Setup

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence


TOPICS: Final = ("orders", "jobs", "lines", "keyed")
"""Pushed, pulled, pulled and ordered, and pulled with a deduplication window."""


class AddingRig(Setup):
    """A setup with a queue, a topic of each kind, and every way to add a message."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.queue = Queue.over(self.outbox)
        for name in TOPICS:
            more: dict[str, Any] = {"ordering": "key"} if name == "lines" else {}
            more |= {"dedup_window": 3600} if name == "keyed" else {}
            self.topic(name, shards=1, retry=RetryPolicy(max_attempts=5), **more)
        for name in ("billing", "crm"):
            self.outbox.add_subscription(Subscription("orders", name, f"sqs:http://q/{name}"))

    def new(self, topic: str, **more: Any) -> Message:
        """Return a message of a kind that its topic takes, and let three seconds pass."""
        more |= {"dedup_key": self.ids.next()} if topic == "keyed" else {}
        made = self.message(topic, partition_key="k", headers={"h": "1"}, **more)
        self.clock.advance(3)
        return made

    def stored(self, message: Message) -> StoredMessage:
        """Return a message as it lies in its lane."""
        (found,) = (i for i in self.items() if i["sk"]["S"].endswith(message.id))
        return read_message(found)

    # what happens to a message between two adds

    def claim(self, message: Message) -> None:
        self.queue.receive(message.topic, 10, visibility_timeout=600)

    def give_back(self, message: Message) -> None:
        for received in self.queue.receive(message.topic, 10, visibility_timeout=600):
            self.queue.nack(received.receipt, delay=30, reason="not now")

    def edit(self, message: Message) -> None:
        with suppress(MessagesClaimed):
            self.queue.edit(self.stored(message).ref, body=b"edited", headers={"h": "2"})

    def fail(self, message: Message) -> None:
        before = self.stored(message)
        now = milliseconds(self.clock)
        tried = before.state("crm").attempts + 1
        state = SubscriptionState(tried, now + 5000, (Failure(tried, now, "HTTP 500"),))
        self.outbox.tables.lanes.save_state(replace(before, states={"crm": state}), before)

    def take(self, message: Message) -> None:
        before = self.stored(message)
        if before.pending is None:
            after = replace(before, pending=frozenset({"crm"}))
            self.outbox.tables.lanes.save_state(after, before)

    def mark(self, message: Message) -> None:
        self.outbox.tables.lanes.mark_gone(self.stored(message).ref, "cancelled", "")

    def redrive(self, message: Message) -> None:
        before = self.stored(message)
        after = replace(before, redriven=before.redriven + 1)
        self.outbox.tables.lanes.save_state(after, before)

    # the ways to add one

    def add(self, message: Message) -> None:
        self.outbox.add(message)

    def add_many(self, message: Message) -> None:
        self.outbox.add_many([self.new(message.topic), message, self.new(message.topic)])

    def send_many(self, message: Message) -> None:
        self.queue.send_many([message, message])

    def transact(self, message: Message) -> None:
        with pytest.raises(TransactionCancelled):
            self.outbox.transact([], message)

    def transact_items(self, message: Message) -> None:
        items = self.outbox.transact_items(message)
        with pytest.raises(ClientError, match="ConditionalCheckFailed"):
            self.client.transact_write_items(TransactItems=items)

    def replay(self, message: Message) -> None:
        step = self.outbox.replay([message], cursor=self.ids.next(), position=0, to=1)
        assert len(step.outstanding) == 1
        assert not step.added

    def hop(self, message: Message) -> None:
        """As a subscription `topic:` of another topic adds it."""
        stored = StoredMessage(message, self.stored(message).ref, "ready", len(message.body))
        topic = PulledTopic(message.topic, partial(add_to_topic, self.outbox))
        (outcome,) = topic.send([stored], 3)
        assert outcome.taken or message.topic == "orders"  # which is pushed: refused

    def post(self, message: Message) -> None:
        """Over HTTP, with the id that the producer gave it."""
        fields = ("partition_key", "headers", "delay", "dedup_key", "id")
        body = {"body": message.body.decode()} | {f: getattr(message, f) for f in fields}
        request = Request(
            method="POST",
            path="",
            query={},
            headers={"content-type": JSON_TYPE},
            body=json.dumps(body, default=dict).encode(),
            id="r",
            params={"topic": message.topic},
        )
        Publisher(self.outbox, self.ids).publish(request)


CHANGES: Final[dict[str, tuple[Callable[[AddingRig, Message], None], ...]]] = {
    "orders": (AddingRig.fail, AddingRig.take, AddingRig.redrive, AddingRig.mark),
    "jobs": (AddingRig.claim, AddingRig.give_back, AddingRig.edit, AddingRig.mark),
    "lines": (AddingRig.claim, AddingRig.give_back, AddingRig.edit),
    "keyed": (AddingRig.claim, AddingRig.give_back, AddingRig.edit),
}
WAYS: Final[tuple[Callable[[AddingRig, Message], None], ...]] = (
    AddingRig.add,
    AddingRig.add_many,
    AddingRig.send_many,
    AddingRig.transact,
    AddingRig.transact_items,
    AddingRig.replay,
    AddingRig.hop,
    AddingRig.post,
)


@pytest.fixture
def setup(client: Any) -> AddingRig:
    return AddingRig(client)


def lying(setup: AddingRig, message: Message) -> list[dict[str, Any]]:
    """Return the rows of a shard, and the message's item, without messages added beside it."""
    found = [i for i in setup.items() if i["sk"]["S"] == "!" or i["sk"]["S"].endswith(message.id)]
    return [i for i in found if f"#{message.topic}#" in i["pk"]["S"]]


def check(
    setup: AddingRig,
    topic: str,
    changes: Sequence[Callable[[AddingRig, Message], None]],
    way: Callable[[AddingRig, Message], None],
    delay: float = 0,
) -> None:
    message = setup.new(topic, delay=delay)
    setup.outbox.add(message)
    setup.clock.advance(delay)
    for change in changes:
        change(setup, message)
        if change is AddingRig.mark:
            break  # it is on its way out: nothing else happens to it
    before = lying(setup, message)
    assert any(i["sk"]["S"].endswith(message.id) for i in before)
    way(setup, message)
    assert lying(setup, message) == before


@pytest.mark.guarantee("adding-again")
@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.__name__)
@pytest.mark.parametrize("topic", TOPICS)
def test_each_way_to_add_again_leaves_the_message_as_it_is(
    setup: AddingRig, topic: str, way: Callable[[AddingRig, Message], None]
) -> None:
    check(setup, topic, CHANGES[topic][:1], way)
    check(setup, topic, CHANGES[topic][1:], way)


@pytest.mark.guarantee("adding-again")
@settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_whatever_happened_to_a_message_adding_it_again_changes_nothing(
    client: Any, data: st.DataObject
) -> None:
    topic = data.draw(st.sampled_from(TOPICS))
    changes = data.draw(st.lists(st.sampled_from(CHANGES[topic]), max_size=5))
    way = data.draw(st.sampled_from(WAYS))
    # a copy in the topic of a hop has no delay
    delayed = topic in ("jobs", "orders") and way is not AddingRig.hop
    delay = data.draw(st.sampled_from((0, 30, 300))) if delayed else 0
    check(AddingRig(client), topic, changes, way, delay)


@pytest.mark.parametrize("way", [AddingRig.add_many, AddingRig.hop], ids=["add_many", "topic:"])
def test_a_held_message_stays_with_its_consumer(
    setup: AddingRig, way: Callable[[AddingRig, Message], None]
) -> None:
    message = setup.new("jobs")
    setup.outbox.add(message)
    (held,) = setup.queue.receive("jobs", 10, 600)
    way(setup, message)
    again = setup.queue.receive("jobs", 10, 600)
    assert message.id not in [received.message.id for received in again]
    setup.queue.ack(held.receipt)
    assert message.id not in [m.id for m in setup.outbox.outstanding("jobs")]


def test_a_message_that_was_delivered_is_new_when_it_is_added_again(setup: AddingRig) -> None:
    message = setup.new("jobs")
    (ref,) = setup.outbox.add_many([message])
    (held,) = setup.queue.receive("jobs", 10, 600)
    setup.queue.ack(held.receipt)
    assert setup.outbox.add_many([message]) == [ref]
    assert setup.outbox.get(ref) == message


class LateAnswer:
    """A client whose bulk write is applied, and whose answer is lost once a consumer has claimed.

    The answer is that the write failed, or that it left all unprocessed (`unprocessed`).
    """

    def __init__(self, setup: AddingRig, operation: str, *, unprocessed: bool = False) -> None:
        self._client = setup.client
        self._operation = operation
        self._unprocessed = unprocessed
        self._setup = setup
        self._struck = False
        self.held: list[str] = []

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._client, name)
        strikes = name == self._operation and not self._struck
        return partial(self._late, method) if strikes else method

    def _late(self, method: Callable[..., Any], **request: Any) -> Any:
        self._struck = True
        if not self._unprocessed:
            self._client.next(self._operation, Fault.APPLIED_THEN_TIMEOUT)
        try:
            answer = method(**request)
            return answer | {"UnprocessedItems": request["RequestItems"]}
        finally:
            received = self._setup.queue.receive("jobs", 10, 600)
            self.held = [r.receipt for r in received]


@pytest.mark.guarantee("repeated-add-keeps-claims")
@pytest.mark.parametrize(
    ("operation", "new", "unprocessed"),
    [
        ("batch_execute_statement", False, False),
        ("batch_write_item", True, False),
        ("batch_write_item", True, True),
    ],
)
def test_a_retry_of_a_lost_answer_keeps_the_claim_that_came_between(
    setup: AddingRig, operation: str, new: bool, unprocessed: bool
) -> None:
    messages = [setup.new("jobs") for _ in range(3)]
    late = LateAnswer(setup, operation, unprocessed=unprocessed)
    setup.outbox.tables.calls.client = late
    assert len(setup.outbox.add_many(messages, new=new)) == 3
    setup.outbox.tables.calls.client = setup.client
    assert len(late.held) == 3
    assert not setup.queue.receive("jobs", 10, 600)
    setup.queue.ack(late.held)
    assert setup.outbox.outstanding_count("jobs") == 0


@pytest.mark.guarantee("repeated-add-keeps-claims")
def test_a_retry_of_a_single_add_keeps_the_claim_that_came_between(setup: AddingRig) -> None:
    late = LateAnswer(setup, "put_item")
    setup.outbox.tables.calls.client = late
    setup.outbox.add(setup.new("jobs"))
    setup.outbox.tables.calls.client = setup.client
    setup.queue.ack(late.held)
    assert setup.outbox.outstanding_count("jobs") == 0


def test_new_messages_go_25_a_call_either_way(setup: AddingRig) -> None:
    for new, operation in ((False, "batch_execute_statement"), (True, "batch_write_item")):
        before = setup.client.calls[operation]
        messages = [setup.new("jobs") for _ in range(60)]
        setup.outbox.add_many(messages, new=new)
        assert setup.client.calls[operation] - before == 3
    assert setup.outbox.outstanding_count("jobs") == 120


def test_a_client_that_repeats_calls_by_itself_puts_nothing_blindly(setup: AddingRig) -> None:
    class Meta:
        class config:  # noqa: N801 - botocore's name
            retries: Final = {"mode": "standard", "total_max_attempts": 3}

    class Repeating:
        meta = Meta

        def __getattr__(self, name: str) -> Any:
            return getattr(setup.client, name)

    setup.outbox.tables.calls.client = Repeating()
    setup.outbox.add_many([setup.new("jobs")], new=True)
    assert setup.client.calls["batch_write_item"] == 0
    assert setup.outbox.outstanding_count("jobs") == 1

"""The inbox against both engines: a message is processed once by (subscription, id)."""

from __future__ import annotations

import itertools
import random
import re
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import yaml  # type: ignore[import-untyped]
from botocore.exceptions import ClientError, ReadTimeoutError
from fairbox import TransactionCancelled
from fairbox.errors import InvalidInput
from fairbox.inbox import Event, Inbox
from fairbox.inbox.inbox import MIN_RETENTION
from fairbox.tables.calls import Calls
from fairbox.testing import CostMeter, Fault, FaultyDynamoDB, ManualClock, MemoryDynamoDB

from tests.support import lambda_events
from tests.support.destination_examples import stored

if TYPE_CHECKING:
    from collections.abc import Callable

    from fairbox.tables.stored_messages import StoredMessage

_numbers = itertools.count()
DAY = 86_400
START = int(time.time())
GUIDE = Path(__file__).parents[2] / "docs/how-to/idempotent-consumers.md"
_TEMPLATE = re.compile(r"^```yaml\n(.*?)^```$", re.MULTILINE | re.DOTALL)


class Consumer:
    """Adds what messages bring to one balance, in a transaction with its inbox."""

    def __init__(
        self, client: Any, orders: str, inbox: Inbox, items: Callable[[Event], Any] | None = None
    ) -> None:
        self.client = client
        self.inbox = inbox
        self.orders = orders
        self.items = items or inbox.transact_items
        self.condition: dict[str, Any] = {}
        self.crash_after = False

    def __call__(self, event: Event) -> None:
        add = {
            "TableName": self.orders,
            "Key": {"id": {"S": "balance"}},
            "UpdateExpression": "ADD amount :n",
            "ExpressionAttributeValues": {":n": {"N": event.body().decode()}},
            **self.condition,
        }
        self.client.transact_write_items(TransactItems=[{"Update": add}, *self.items(event)])
        if self.crash_after:
            raise RuntimeError("killed after the transaction")

    def handle(self, event: dict[str, Any]) -> list[str]:
        answer = self.inbox.handle(event, self)
        return [failure["itemIdentifier"] for failure in answer["batchItemFailures"]]

    @property
    def balance(self) -> int:
        found = self.client.get_item(
            TableName=self.orders, Key={"id": {"S": "balance"}}, ConsistentRead=True
        )
        return int(found["Item"]["amount"]["N"]) if "Item" in found else 0


def made_table(client: Any) -> str:
    """Make a table as the guide's template has it."""
    template = yaml.safe_load(_TEMPLATE.findall(GUIDE.read_text(encoding="utf-8"))[0])
    properties = template["Inbox"]["Properties"]
    name = f"inbox-{next(_numbers)}"
    expiry = properties.pop("TimeToLiveSpecification")
    client.create_table(TableName=name, **properties)
    client.update_time_to_live(TableName=name, TimeToLiveSpecification=expiry)
    return name


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(float(START))  # the engine's TTL goes by the machine's time


@pytest.fixture
def table(client: Any) -> str:
    return made_table(client)


@pytest.fixture
def orders(client: Any) -> str:
    return made_table(client)


@pytest.fixture
def consumer(client: Any, table: str, orders: str, clock: ManualClock) -> Consumer:
    return Consumer(client, orders, Inbox(table, "orders/billing", clock=clock))


def amount(number: int, **fields: Any) -> StoredMessage:
    return stored(str(number).encode(), **fields)


class TestOnce:
    @pytest.mark.guarantee("inbox-once")
    def test_a_message_that_arrives_again_is_taken_and_changes_nothing(
        self, consumer: Consumer
    ) -> None:
        batch = lambda_events.sqs([amount(5)])
        assert consumer.handle(batch) == []
        assert consumer.handle(batch) == []
        assert consumer.balance == 5

    def test_a_batch_with_a_duplicate_inside_counts_it_once(self, consumer: Consumer) -> None:
        twice = amount(5)
        assert consumer.handle(lambda_events.sqs([twice, amount(7), twice])) == []
        assert consumer.balance == 12

    @pytest.mark.guarantee("inbox-once")
    def test_duplicates_at_the_same_moment_are_processed_once(self, consumer: Consumer) -> None:
        batches = [lambda_events.sqs([amount(n)]) for n in (1, 10, 100)] * 8
        with ThreadPoolExecutor(8) as pool:
            failed = [
                batch
                for batch, f in zip(batches, pool.map(consumer.handle, batches), strict=True)
                if f
            ]
        for batch in failed:  # conflicts: the queue delivers them again
            assert consumer.handle(batch) == []
        assert consumer.balance == 111

    @pytest.mark.guarantee("inbox-once")
    def test_a_consumer_that_dies_after_its_transaction_does_not_repeat_it(
        self, consumer: Consumer
    ) -> None:
        batch = lambda_events.sqs([amount(5)])
        consumer.crash_after = True
        assert consumer.handle(batch) == ["record-0"]
        consumer.crash_after = False
        assert consumer.handle(batch) == []
        assert consumer.balance == 5

    def test_an_answer_that_is_lost_is_no_second_transaction(self, consumer: Consumer) -> None:
        batch = lambda_events.sqs([amount(5)])
        faulty = FaultyDynamoDB(consumer.client, random.Random(1))
        consumer.client = faulty
        faulty.next("transact_write_items", Fault.APPLIED_THEN_TIMEOUT, Fault.TIMEOUT_UNAPPLIED)
        assert consumer.handle(batch) == ["record-0"]
        assert consumer.handle(batch) == ["record-0"]
        assert consumer.handle(batch) == []
        assert consumer.balance == 5

    def test_a_consumer_that_died_before_its_transaction_processes_the_message_later(
        self, consumer: Consumer
    ) -> None:
        batch = lambda_events.sqs([amount(5)])
        faulty = FaultyDynamoDB(consumer.client, random.Random(1))
        consumer.client = faulty
        faulty.next("transact_write_items", Fault.TIMEOUT_UNAPPLIED)
        assert consumer.handle(batch) == ["record-0"]
        assert consumer.handle(batch) == []
        assert consumer.balance == 5

    @pytest.mark.guarantee("inbox-once")
    def test_two_subscriptions_process_a_message_once_each(
        self, client: Any, table: str, clock: ManualClock
    ) -> None:
        batch = lambda_events.sqs([amount(5)])
        for name in ("orders/billing", "orders/audit"):
            one = Consumer(client, made_table(client), Inbox(table, name, clock=clock))
            assert one.handle(batch) == []
            assert one.handle(batch) == []
            assert one.balance == 5

    def test_one_message_by_two_ways_is_processed_once(self, consumer: Consumer) -> None:
        message = amount(5)
        assert consumer.handle(lambda_events.sqs([message])) == []
        assert consumer.inbox.handle(lambda_events.invocation(message), consumer) == {}
        assert consumer.handle(lambda_events.kinesis([message])) == []
        assert consumer.balance == 5

    def test_a_table_of_the_consumers_own_with_other_names_will_do(
        self, client: Any, orders: str, clock: ManualClock
    ) -> None:
        name = f"inbox-{next(_numbers)}"
        client.create_table(
            TableName=name,
            KeySchema=[
                {"AttributeName": "a", "KeyType": "HASH"},
                {"AttributeName": "b", "KeyType": "RANGE"},
            ],
            AttributeDefinitions=[
                {"AttributeName": "a", "AttributeType": "S"},
                {"AttributeName": "b", "AttributeType": "S"},
            ],
            BillingMode="PAY_PER_REQUEST",
        )
        inbox = Inbox(name, "billing", partition_key="a", sort_key="b", expires="ttl", clock=clock)
        own = Consumer(client, orders, inbox)
        message = amount(5)
        for _ in range(2):
            assert own.handle(lambda_events.sqs([message])) == []
        assert own.balance == 5
        [item] = client.scan(TableName=name)["Items"]
        assert item == {
            "a": {"S": f"inbox#billing#{message.message.id}"},
            "b": {"S": "inbox"},
            "ttl": {"N": str(START + 30 * DAY)},
        }


class TestOtherRefusals:
    def test_a_condition_of_the_consumers_own_fails_the_record(self, consumer: Consumer) -> None:
        consumer.condition = {"ConditionExpression": "attribute_exists(id)"}
        batch = lambda_events.sqs([amount(5)])
        assert consumer.handle(batch) == ["record-0"]
        consumer.condition = {}
        assert consumer.handle(batch) == []
        assert consumer.balance == 5

    @pytest.mark.guarantee("inbox-once")
    def test_a_conflict_fails_the_record_and_is_repeated(self, consumer: Consumer) -> None:
        faulty = FaultyDynamoDB(consumer.client, random.Random(1))
        consumer.client = faulty
        faulty.next("transact_write_items", *[Fault.CONFLICT] * 2)
        batch = lambda_events.sqs([amount(5)])
        assert consumer.handle(batch) == ["record-0"]
        assert consumer.handle(batch) == ["record-0"]
        assert consumer.handle(batch) == []
        assert consumer.balance == 5

    def test_the_inbox_item_of_another_message_is_not_mistaken_for_this_ones(
        self, consumer: Consumer, table: str
    ) -> None:
        one, other = amount(1), amount(2)
        consumer.handle(lambda_events.sqs([one]))
        inbox = consumer.inbox
        actions = [*inbox.transact_items(one.message.id), *inbox.transact_items(other.message.id)]
        for order in (actions, actions[::-1]):
            with pytest.raises(ClientError) as caught:
                consumer.client.transact_write_items(TransactItems=order)
            assert inbox.already_processed(caught.value, one.message.id)
            assert not inbox.already_processed(caught.value, other.message.id)
            elsewhere = Inbox(table, "orders/audit")
            assert not elsewhere.already_processed(caught.value, one.message.id)

    def test_the_error_of_fairbox_s_own_transactions_tells_as_much(
        self, consumer: Consumer, clock: ManualClock
    ) -> None:
        message = amount(1)
        calls = Calls(consumer.client, clock, random.Random(1))
        items = consumer.inbox.transact_items(message.message.id)
        calls.call("transact_write_items", TransactItems=items)
        with pytest.raises(TransactionCancelled) as caught:
            calls.call("transact_write_items", TransactItems=items)
        assert consumer.inbox.already_processed(caught.value, message.message.id)

    def test_errors_of_other_kinds_say_nothing(self, consumer: Consumer) -> None:
        message_id = stored().message.id
        for error in (
            ValueError("x"),
            ReadTimeoutError(endpoint_url="x"),
            ClientError({"Error": {"Code": "ThrottlingException", "Message": ""}}, "x"),
        ):
            assert not consumer.inbox.already_processed(error, message_id)


class TestBatches:
    def test_a_record_that_fails_fails_alone(self, consumer: Consumer) -> None:
        batch = lambda_events.sqs([amount(1), stored(b"none"), amount(10)])
        batch["Records"].append({**batch["Records"][0], "messageId": "bad", "body": "hello"})
        assert consumer.handle(batch) == ["record-1", "bad"]
        assert consumer.balance == 11

    def test_behind_a_failure_the_rest_of_its_group_waits(self, consumer: Consumer) -> None:
        messages = [
            amount(1, partition_key="a"),
            stored(b"none", partition_key="b"),
            amount(10, partition_key="a"),
            amount(100, partition_key="b"),
        ]
        assert consumer.handle(lambda_events.sqs(messages, fifo=True)) == ["record-1", "record-3"]
        assert consumer.balance == 11

    def test_behind_a_failure_the_rest_of_a_stream_waits(self, consumer: Consumer) -> None:
        messages = [amount(1), stored(b"none"), amount(10)]
        assert consumer.handle(lambda_events.kinesis(messages)) == ["1", "2"]
        assert consumer.balance == 1

    def test_where_no_record_is_reported_the_error_is_raised(self, consumer: Consumer) -> None:
        for event in (lambda_events.eventbridge(stored(b'"x"')), lambda_events.sns(stored(b"x"))):
            with pytest.raises(ClientError):
                consumer.inbox.handle(event, consumer)
        assert consumer.inbox.handle(lambda_events.eventbridge(amount(5)), consumer) == {}
        assert consumer.balance == 5

    def test_a_request_is_answered(self, consumer: Consumer) -> None:
        unsigned = lambda_events.request({"content-type": "text/plain"}, b"5")
        assert consumer.inbox.handle(unsigned, consumer) == {"statusCode": 401}
        assert consumer.balance == 0


class TestExpiry:
    @pytest.mark.guarantee("inbox-once")
    def test_an_item_counts_until_its_time_and_not_after_deleted_or_not(
        self, consumer: Consumer, clock: ManualClock
    ) -> None:
        batch = lambda_events.sqs([amount(5)])
        consumer.handle(batch)
        clock.advance(30 * DAY - 1)
        assert consumer.handle(batch) == []
        assert consumer.balance == 5
        clock.advance(1)
        assert consumer.handle(batch) == []
        assert consumer.balance == 10
        assert consumer.handle(batch) == []
        assert consumer.balance == 10

    def test_the_table_s_own_expiry_deletes_the_item(self, clock: ManualClock) -> None:
        own = MemoryDynamoDB(clock)  # DynamoDB Local goes by the machine's time
        name = made_table(own)
        [action] = Inbox(name, "orders/billing", clock=clock).transact_items(stored().message.id)
        own.transact_write_items(TransactItems=[action])
        clock.advance(30 * DAY)
        assert own.expire(name) == 0
        clock.advance(1)
        assert own.expire(name) == 1

    @pytest.mark.parametrize(
        "retention", [0, 14 * DAY, MIN_RETENTION - 1, 3651 * DAY, float("nan")]
    )
    def test_a_retention_below_that_of_a_queue_is_refused(self, retention: float) -> None:
        with pytest.raises(InvalidInput, match=r"retention: expected 1296000 \(15 days\) to"):
            Inbox("Inbox", "billing", retention=retention)

    @pytest.mark.parametrize(
        "bad",
        [
            {"subscription": ""},
            {"subscription": "x" * 257},
            {"subscription": "billing", "partition_key": "a", "expires": "a"},
            {"subscription": "billing", "sort_key": ""},
            {"subscription": "billing", "secrets": ["short"]},
        ],
    )
    def test_values_that_do_not_fit_are_refused(self, bad: dict[str, Any]) -> None:
        with pytest.raises(InvalidInput):
            Inbox("Inbox", **bad)


def test_a_message_costs_two_write_units_more(
    client: Any, table: str, orders: str, clock: ManualClock
) -> None:
    meter = CostMeter(client)
    consumer = Consumer(meter, orders, Inbox(table, "x" * 256, clock=clock))
    consumer.handle(lambda_events.sqs([amount(5)]))
    costs = {name: (cost.wru, cost.rru) for (_, name, _), cost in meter.reading().costs.items()}
    assert costs == {orders: (2, 0), table: (2, 0)}

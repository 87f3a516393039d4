"""Items of a caller's that DynamoDB refuses: errors name the part, and say not to repeat."""

from __future__ import annotations

from typing import Any

import pytest
from fairbox import (
    FairboxError,
    InvalidInput,
    ItemTooLarge,
    Message,
    RequestConflict,
    TransactionCancelled,
    UnknownTable,
)

from tests.support.outbox_fixture import Setup


@pytest.fixture
def setup(client: Any) -> Setup:
    setup = Setup(client)
    setup.topic(dedup_window=60)
    return setup


def put(setup: Setup, row: str = "1", **attributes: Any) -> dict[str, Any]:
    item = {"pk": {"S": "customer-42"}, "sk": {"S": row}, **attributes}
    return {"Put": {"TableName": setup.deliveries, "Item": item}}


def refused(setup: Setup, items: Any, *messages: Message, token: str | None = None) -> FairboxError:
    """Return what the transaction raised, once nothing was written, in one call or none."""
    before = setup.client.calls["transact_write_items"]
    with pytest.raises(FairboxError) as caught:
        setup.outbox.transact(items, *messages, token=token)
    assert setup.client.calls["transact_write_items"] - before <= 1
    assert setup.outbox.outstanding_count("orders") == 0
    assert caught.value.retry == "never"
    return caught.value


@pytest.mark.parametrize(
    ("attributes", "field"),
    [
        ({"id": "7"}, "items[1].Put.Item.id"),
        ({"id": {"N": 7}}, "items[1].Put.Item.id.N"),
        ({"id": {"L": [{"N": "7"}, "8"]}}, "items[1].Put.Item.id.L[1]"),
        ({"id": {"T": "7"}}, "items[1].Put.Item.id"),
        ({"id": {"N": "abc"}}, "items[1].Put.Item.id"),
        ({"id": {}}, "items"),
        ({"sk": {"N": "7"}}, "items[1]"),
    ],
)
def test_a_value_that_is_not_typed_is_named_by_its_path(
    setup: Setup, attributes: dict[str, Any], field: str
) -> None:
    items = [put(setup, "1"), put(setup, "2", **attributes)]
    error = refused(setup, items, setup.message())
    assert isinstance(error, InvalidInput)
    assert error.field == field


def test_what_is_no_action_is_named(setup: Setup) -> None:
    item = put(setup)["Put"]
    for action, field in [
        ({"Putt": item}, "items[0]"),
        (setup.message(), "items[0]"),
        ("Put", "items[0]"),
        ({"Put": {"Item": item["Item"]}}, "items[0].Put"),
        ({"Put": item | {"Item": {"pk": {"S": "customer-42"}}}}, "items"),  # a key is missing
        ({}, "items"),
    ]:
        error = refused(setup, [action])
        assert isinstance(error, InvalidInput), action
        assert error.field == field


def test_the_transaction_as_a_whole(setup: Setup) -> None:
    for items in ([put(setup), put(setup)], [], put(setup), None, [put(setup)] * 101):
        error = refused(setup, items)
        assert isinstance(error, InvalidInput)
        assert error.field == "items"
    large = [put(setup, str(n), text={"S": "x" * 390_000}) for n in range(11)]
    error = refused(setup, large)
    assert isinstance(error, InvalidInput)
    assert error.field == "items"


def test_an_item_that_is_too_large_is_named(setup: Setup) -> None:
    error = refused(setup, [put(setup), put(setup, "2", text={"S": "x" * 410_000})])
    assert isinstance(error, ItemTooLarge)
    assert error.operation == "items"


@pytest.mark.parametrize("token", ["", "x" * 37, 7])
def test_a_token_that_dynamodb_does_not_take(setup: Setup, token: Any) -> None:
    error = refused(setup, [put(setup)], token=token)
    assert isinstance(error, InvalidInput)
    assert error.field == "token"


def test_the_token_of_another_transaction(setup: Setup) -> None:
    setup.outbox.transact([put(setup)], token="call-7")
    error = refused(setup, [put(setup, "2")], token="call-7")
    assert isinstance(error, RequestConflict)
    assert error.request_id == "call-7"


def test_a_missing_table_is_named_with_its_region(setup: Setup) -> None:
    items = [put(setup), {"Delete": {"TableName": "absent", "Key": {"id": {"S": "7"}}}}]
    error = refused(setup, items)
    assert isinstance(error, UnknownTable)
    assert error.tables == (setup.deliveries, "absent")


def test_a_cancellation_says_whose_action_was_refused(setup: Setup) -> None:
    there = setup.message()
    setup.outbox.add(there)
    setup.outbox.add(setup.message(dedup_key="seen"))
    guarded = put(setup, "2")
    guarded["Put"] |= {"ConditionExpression": "attribute_exists(pk)"}
    with pytest.raises(TransactionCancelled) as caught:
        setup.outbox.transact(
            (action for action in [put(setup), guarded]),
            setup.message(dedup_key="new"),
            there,
            setup.message(dedup_key="seen"),
        )
    assert caught.value.actions == (
        "items[0]",
        "items[1]",
        "messages[0]",
        "dedup_key of messages[0]",
        "messages[1]",
        "messages[2]",
        "dedup_key of messages[2]",
    )
    assert len(caught.value.reasons) == 7
    assert str(caught.value) == (
        "the transaction was cancelled: items[1]: ConditionalCheckFailed; "
        "messages[1]: ConditionalCheckFailed (it is outstanding already); "
        "dedup_key of messages[2]: ConditionalCheckFailed (it was seen within its window)"
    )

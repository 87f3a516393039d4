"""Keys of webhooks: from either store, read again after five minutes, shown by nothing."""

from __future__ import annotations

import base64
import json
from dataclasses import dataclass, field
from typing import Any

import pytest
from botocore.exceptions import ClientError
from fairbox.destinations.secrets import AGAIN_SECONDS, KEPT_SECONDS, WebhookKeys
from fairbox.errors import InvalidInput, NotConfigured, Unavailable
from fairbox.model.topics import Subscription

from tests.support.destination_examples import FixedClock

SECRET = "arn:aws:secretsmanager:us-east-1:123456789012:secret:hooks-AbCdEf"
PARAMETER = "arn:aws:ssm:us-east-1:123456789012:parameter/fairbox/hooks"
OLD, NEW = b"o" * 24, b"n" * 24
BILLING = Subscription("orders", "billing", "https://billing.test/")


def text(**keys: list[bytes]) -> str:
    shown = {
        name.replace("_", "/"): ["whsec_" + base64.b64encode(key).decode() for key in its]
        for name, its in keys.items()
    }
    return json.dumps(shown)


@dataclass
class Stores:
    """Secrets Manager and the Parameter Store, and what was asked of them."""

    values: dict[str, str]
    asked: list[dict[str, Any]] = field(default_factory=list)
    down: bool = False

    def __call__(self, service: str, /, **_: Any) -> Any:
        assert service in ("secretsmanager", "ssm")
        return self

    def _value(self, name: str, asked: dict[str, Any]) -> str:
        self.asked.append(asked)
        if self.down:
            raise ClientError({"Error": {"Code": "InternalFailure"}}, "read")
        return self.values[name]

    def get_secret_value(self, **asked: Any) -> dict[str, Any]:
        return {"SecretString": self._value(asked["SecretId"], asked)}

    def get_parameter(self, **asked: Any) -> dict[str, Any]:
        return {"Parameter": {"Value": self._value(asked["Name"], asked)}}


@pytest.mark.parametrize(
    ("arn", "asked"),
    [
        (SECRET, {"SecretId": SECRET}),
        (PARAMETER, {"Name": PARAMETER, "WithDecryption": True}),
    ],
)
def test_keys_come_from_either_store(arn: str, asked: dict[str, Any]) -> None:
    stores = Stores({arn: text(orders_billing=[OLD, NEW])})
    keys = WebhookKeys(stores, [arn], FixedClock())
    assert keys(BILLING) == [OLD, NEW]
    assert stores.asked == [asked]


def test_a_subscription_that_no_secret_names_sends_nothing_until_one_does() -> None:
    stores, clock = Stores({SECRET: text(orders_billing=[OLD])}), FixedClock()
    keys = WebhookKeys(stores, [SECRET], clock)
    other = Subscription("orders", "other", "https://other.test/")
    with pytest.raises(NotConfigured, match="orders/other in webhook_secrets"):
        keys(other)
    stores.values[SECRET] = text(orders_billing=[OLD], orders_other=[])
    clock.sleep(AGAIN_SECONDS)
    assert keys(other) == []


def test_without_secrets_nothing_is_signed() -> None:
    assert WebhookKeys(Stores({}), [], FixedClock())(BILLING) == ()


def test_objects_of_several_are_put_together() -> None:
    values = {SECRET: text(orders_billing=[OLD]), PARAMETER: text(orders_other=[NEW])}
    keys = WebhookKeys(Stores(values), [SECRET, PARAMETER], FixedClock())
    assert keys(BILLING) == [OLD]
    assert keys(Subscription("orders", "other", "https://other.test/")) == [NEW]


def test_they_are_read_again_after_five_minutes_and_not_before() -> None:
    stores, clock = Stores({SECRET: text(orders_billing=[OLD])}), FixedClock()
    keys = WebhookKeys(stores, [SECRET], clock)
    assert keys(BILLING) == [OLD]
    stores.values[SECRET] = text(orders_billing=[NEW, OLD])
    clock.sleep(KEPT_SECONDS - 1)
    assert keys(BILLING) == [OLD]
    clock.sleep(1)
    assert keys(BILLING) == [NEW, OLD]
    assert len(stores.asked) == 2


def test_while_a_store_is_down_the_keys_at_hand_are_used_and_without_any_nothing_is() -> None:
    stores, clock = Stores({PARAMETER: text(orders_billing=[OLD])}), FixedClock()
    keys = WebhookKeys(stores, [PARAMETER], clock)
    assert keys(BILLING) == [OLD]
    stores.down = True
    clock.sleep(KEPT_SECONDS)
    assert keys(BILLING) == [OLD]
    with pytest.raises(Unavailable):
        WebhookKeys(stores, [PARAMETER], clock)(BILLING)


@pytest.mark.parametrize("value", ["secret", '["secret"]', '{"orders/billing": ["secret"]}', "{"])
def test_what_is_no_such_object_is_named_by_its_arn_and_not_shown(value: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        WebhookKeys(Stores({PARAMETER: value}), [PARAMETER], FixedClock())(BILLING)
    assert caught.value.field == PARAMETER
    assert "secret" not in str(caught.value)
    assert caught.value.__cause__ is None

"""Small helpers of the contract tests: keys, refusals, units."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from botocore.exceptions import ClientError

if TYPE_CHECKING:
    from collections.abc import Callable


def key(pk: str = "a", sk: str = "1") -> dict[str, Any]:
    return {"pk": {"S": pk}, "sk": {"S": sk}}


def code_of(call: Callable[..., Any], **request: Any) -> str:
    return refusal(call, **request)["Error"]["Code"]  # type: ignore[no-any-return]  # a dict of Any


def refusal(call: Callable[..., Any], **request: Any) -> Any:
    with pytest.raises(ClientError) as caught:
        call(**request)
    return caught.value.response


def units(answer: dict[str, Any]) -> Any:
    consumed = answer["ConsumedCapacity"]
    indexes = consumed.get("GlobalSecondaryIndexes", {})
    return consumed["Table"]["CapacityUnits"], {
        name: cost["CapacityUnits"] for name, cost in indexes.items() if cost["CapacityUnits"]
    }

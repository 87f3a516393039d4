"""A Lambda durable function that waits for a fan-out."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from aws_durable_execution_sdk_python.config import CallbackConfig, Duration
from aws_durable_execution_sdk_python.execution import durable_execution

from examples.waiting.fan_out import start

if TYPE_CHECKING:
    from aws_durable_execution_sdk_python.context import DurableContext


@durable_execution
def handler(event: dict[str, Any], context: DurableContext) -> Any:
    """Start pages, and return what became of them."""
    a_day = CallbackConfig(timeout=Duration.from_days(1))
    callback = context.create_callback(name="batch", config=a_day)
    context.step(lambda _: start(callback.callback_id, "durable", event["count"]), name="start")
    return json.loads(str(callback.result()))

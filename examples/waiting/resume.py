"""A function behind the queue that is told of a batch's end: it lets go on what waits for it."""

from __future__ import annotations

import json
from typing import Any

import boto3

states, functions = boto3.client("stepfunctions"), boto3.client("lambda")


def handler(event: dict[str, Any], context: object) -> None:
    """Give tokens back; a message that comes again finds that nothing waits any more."""
    for record in event["Records"]:
        completion = json.loads(record["body"])["data"]
        token = completion["metadata"]["token"]
        result = json.dumps({"total": completion["total"], "failed": completion["failed"]})
        try:
            if completion["metadata"]["waits"] == "states":
                states.send_task_success(taskToken=token, output=result)
            else:
                functions.send_durable_execution_callback_success(CallbackId=token, Result=result)
        except (
            states.exceptions.TaskDoesNotExist,
            states.exceptions.TaskTimedOut,
            functions.exceptions.CallbackTimeoutException,
        ):
            print(f"nothing waits for batch {completion['id']}")

"""Runs an execution on this machine, and all that it waits for."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import boto3
from aws_durable_execution_sdk_python_testing.runner import DurableFunctionTestRunner
from fairbox import Outbox, Queue, Topic

from examples.waiting import durable, fan_out, resume

if TYPE_CHECKING:
    from collections.abc import Callable

kind, count = sys.argv[1], int(sys.argv[2])
sqs = boto3.client("sqs")
starts = sqs.create_queue(QueueName="starts")["QueueUrl"]
finished = sqs.create_queue(QueueName="finished")["QueueUrl"]
os.environ["FINISHED_QUEUE"] = finished
Outbox.from_env().create_topic(Topic("pages"))


def states() -> Callable[[], str | None]:
    """Start an execution of the state machine; what is returned gives its result."""
    client = boto3.client("stepfunctions")
    machine = client.create_state_machine(
        name="pages",
        definition=Path(__file__).with_name("state_machine.json").read_text(encoding="utf-8"),
        roleArn="arn:aws:iam::123456789012:role/states",
    )
    given = json.dumps({"queue": starts, "count": count})
    execution = client.start_execution(stateMachineArn=machine["stateMachineArn"], input=given)[
        "executionArn"
    ]
    return lambda: client.describe_execution(executionArn=execution).get("output")


def durably() -> Callable[[], str | None]:
    """Start the durable function on the SDK's runner, which takes callbacks in Lambda's place."""
    runner = DurableFunctionTestRunner(durable.handler)
    execution = runner.run_async(json.dumps({"count": count}), execution_timeout=60)

    def succeed(CallbackId: str, Result: str) -> None:  # noqa: N803 - the SDK's names
        runner.send_callback_success(CallbackId, Result.encode())
        results.append(runner.wait_for_result(execution).result)

    results: list[str | None] = []
    resume.functions.send_durable_execution_callback_success = succeed  # in Lambda's place
    return lambda: results[0] if results else None


def invoke(queue: str, handler: Callable[[dict[str, Any], object], None]) -> None:
    """Invoke a function with what its queue holds, as Lambda would."""
    for message in sqs.receive_message(QueueUrl=queue, WaitTimeSeconds=1).get("Messages", ()):
        handler({"Records": [{"body": message["Body"]}]}, None)
        sqs.delete_message(QueueUrl=queue, ReceiptHandle=message["ReceiptHandle"])


result, queue = {"states": states, "durable": durably}[kind](), Queue.from_env()
while not (output := result()):
    invoke(starts, fan_out.handler)
    while pages := queue.receive("pages", max_messages=100):
        for page in pages:
            queue.ack(page.receipt)
    invoke(finished, resume.handler)
print(output)

"""A function for the tests of the local application: does what its event says."""

import json
import os
import sys
import time
from typing import Any

import boto3

STARTED = time.time()


def handler(event: dict[str, Any], context: Any) -> Any:
    """Echo, sleep, fail, exit, or say what the process sees."""
    action = event.get("action", "echo")
    if action == "sleep":
        time.sleep(event["seconds"])
    elif action == "fail":
        raise ValueError("as asked")
    elif action == "exit":
        os._exit(3)
    elif action == "environment":
        return dict(os.environ)
    elif action == "large":
        return "x" * (7 * 1024 * 1024)
    elif action == "print":
        sys.stdout.write(json.dumps(event["line"]) + "\n")
    elif action == "put":
        boto3.client("dynamodb").put_item(TableName=os.environ["TABLE"], Item=event["item"])
    return {
        "event": event,
        "pid": os.getpid(),
        "request_id": context.aws_request_id,
        "remaining": context.get_remaining_time_in_millis(),
    }

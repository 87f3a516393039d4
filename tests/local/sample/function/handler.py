"""A function for the tests of the local application: does what its event says."""

import json
import logging
import os
import sys
import time
from typing import Any


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
    elif action == "log":
        logging.getLogger("sample").warning("constant", extra={"said": event["said"]})
    elif event.get("version") == "2.0":
        return answer(json.loads(event["body"])) if event.get("body") else event
    return {
        "event": event,
        "pid": os.getpid(),
        "request_id": context.aws_request_id,
        "remaining": context.get_remaining_time_in_millis(),
    }


def answer(body: dict[str, Any]) -> dict[str, Any]:
    """Do what a request to the HTTP API says, and answer it."""
    time.sleep(body.get("sleep", 0))
    return {
        "statusCode": 201,
        "headers": {"Location": "/here", "Content-Type": "text/plain"},
        "cookies": ["a=1", "b=2"],
        "body": "w7Y=",
        "isBase64Encoded": True,
    }

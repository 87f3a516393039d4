"""Records, invokers and waiting for the tests of triggers."""

from __future__ import annotations

import json
import threading
import time
from typing import TYPE_CHECKING, Any

from local.functions.invoker import InvokeResult
from local.triggers.records import StreamRecord

if TYPE_CHECKING:
    from collections.abc import Callable

OK = InvokeResult(b"null", None)
ERROR = InvokeResult(b'{"errorType": "Boom", "errorMessage": "no"}', "Unhandled")


def report(*identifiers: Any) -> InvokeResult:
    failures = [{"itemIdentifier": one} for one in identifiers]
    return InvokeResult(json.dumps({"batchItemFailures": failures}).encode(), None)


def stream_record(
    order: int, *, key: str = "k", size: int = 10, created: int = 0, item: str = "i"
) -> StreamRecord:
    return StreamRecord(
        sequence_number=str(order),
        partition_key=key,
        item_key=item,
        created=created,
        body=json.dumps({"order": order, "pad": "x" * size}).encode(),
        order=order,
    )


def wire_record(
    order: int, *, pk: str = "p", name: str = "INSERT", created: float = 1_700_000_001
) -> dict[str, Any]:
    return {
        "eventID": f"id-{order}",
        "eventName": name,
        "eventVersion": "1.0",
        "eventSource": "aws:dynamodb",
        "awsRegion": "ddblocal",
        "dynamodb": {
            "ApproximateCreationDateTime": created,
            "Keys": {"pk": {"S": pk}, "sk": {"S": str(order)}},
            "NewImage": {"pk": {"S": pk}, "sk": {"S": str(order)}, "n": {"N": "1.5"}},
            "SequenceNumber": f"{order:021d}",
            "SizeBytes": 12,
            "StreamViewType": "NEW_AND_OLD_IMAGES",
        },
    }


class FakeInvoker:
    """An invoker that answers by a function of the event and records its calls."""

    def __init__(self, answer: Callable[[dict[str, Any]], InvokeResult] = lambda _: OK) -> None:
        self.answer = answer
        self.calls: list[tuple[str, dict[str, Any]]] = []
        self.flying = 0
        self.most_flying = 0
        self._lock = threading.Lock()

    def invoke(self, function: str, payload: bytes) -> InvokeResult:
        event = json.loads(payload)
        with self._lock:
            self.calls.append((function, event))
            self.flying += 1
            self.most_flying = max(self.most_flying, self.flying)
        try:
            return self.answer(event)
        finally:
            with self._lock:
                self.flying -= 1

    def records(self) -> list[dict[str, Any]]:
        with self._lock:
            return [record for _, event in self.calls for record in event["Records"]]


def wait_for(condition: Callable[[], object], seconds: float = 60.0) -> None:
    until = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < until, "what was waited for did not come"
        time.sleep(0.005)

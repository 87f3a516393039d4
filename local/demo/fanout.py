"""The demo's fan-out: one organisation's payloads as a batch, acked by consumers that crash."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from contextlib import ExitStack
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from fairbox import Batches, Message, Subscription, Topic
from fairbox.client.batches import COMPLETED_TOPIC

from local.accounting.queues import event_of
from local.demo.consumer import ITEM
from local.workspace import REPOSITORY

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from fairbox import Outbox

    from local.application import LocalApplication

TOPIC: Final = "fan-out"
SUBSCRIPTION: Final = "demo"
CRASHING: Final = 2
STEADY: Final = 2
CRASH_AFTER: Final = 5
GROUP_SIZE: Final = 16
VISIBILITY_SECONDS: Final = 5
COMPLETED_SECONDS: Final = 120.0
LINGER_SECONDS: Final = 2.0
_POLL_SECONDS: Final = 0.2


@dataclass(frozen=True, slots=True)
class FanOutResult:
    """The result of the fan-out.

    Attributes:
        organisation: owner of the payloads.
        items: number of items of the batch.
        crashed: number of consumers that died with messages in flight.
        completions: distinct completion messages that arrived.
        completion: the first of them, as JSON.
        pending: number of items pending at the end.
        sent: ids of all messages, completions among them; each goes to one subscription.
    """

    organisation: str
    items: int
    crashed: int
    completions: int
    completion: dict[str, Any]
    pending: int
    sent: frozenset[str]

    def problems(self) -> list[str]:
        """Return the violations in words."""
        found = []
        if self.crashed != CRASHING:
            found.append(f"{self.crashed} of {CRASHING} consumers crashed as planned")
        if self.completions != 1:
            found.append(f"{self.completions} completion messages arrived, and not one")
        told = (self.completion.get("total"), self.completion.get("acked"))
        if self.completions and told != (self.items, self.items):
            found.append(f"the completion message tells of {told[1]} of {told[0]} items acked")
        if self.pending:
            found.append(f"{self.pending} items of the batch are pending")
        return found


def largest_organisation(
    payloads: Sequence[tuple[str, dict[str, Any]]],
) -> tuple[str, list[dict[str, Any]]]:
    """Return the organisation with the most payloads, and these."""
    of: dict[str, list[dict[str, Any]]] = {}
    for _, payload in payloads:
        organisation = payload.get("organization")
        if isinstance(organisation, dict):
            of.setdefault(str(organisation.get("login")), []).append(payload)
    return max(of.items(), key=lambda found: (len(found[1]), found[0]))


class FanOut:
    """Opens the batch, publishes a message for each item, runs the consumers, counts completions.

    Args:
        app: the running application.
        outbox, batches: as a producer has them.
        advance: called with the number of items settled so far and with all.
    """

    def __init__(
        self,
        app: LocalApplication,
        outbox: Outbox,
        batches: Batches,
        advance: Callable[[int, int], None],
    ) -> None:
        self._app = app
        self._outbox = outbox
        self._batches = batches
        self._advance = advance
        self._sqs = app.clients["sqs"]
        self._completions: dict[str, dict[str, Any]] = {}

    def run(self, payloads: Sequence[tuple[str, dict[str, Any]]]) -> FanOutResult:
        """Run it to completion, two minutes at most."""
        organisation, own = largest_organisation(payloads)
        queue = self._queue("demo-fan-out", TOPIC, VisibilityTimeout=str(VISIBILITY_SECONDS))
        completed = self._queue("demo-completed", COMPLETED_TOPIC)
        batch = self._batches.open(user_key=organisation, metadata={"payloads": len(own)})
        groups = self._batches.add(batch.id, len(own), request_id="demo", group_size=GROUP_SIZE)
        items = [item for group in groups for item in group.item_ids()]
        with ExitStack() as stack:
            crashing = [self._consumer(stack, queue, n, CRASH_AFTER) for n in range(CRASHING)]
            refs = self._outbox.add_many([_message(*pair) for pair in zip(items, own, strict=True)])
            self._batches.seal(batch.id)
            crashed = sum(_died(process) for process in crashing)
            for n in range(STEADY):
                self._consumer(stack, queue, CRASHING + n, 0)
            self._wait(batch.id, len(items), completed)
        progress = self._batches.progress(batch.id)
        first = next(iter(self._completions.values()), {})
        return FanOutResult(
            organisation,
            len(items),
            crashed,
            len(self._completions),
            first,
            progress.pending,
            frozenset(ref.id for ref in refs) | frozenset(self._completions),
        )

    def _queue(self, name: str, topic: str, **attributes: str) -> str:
        url = str(self._sqs.create_queue(QueueName=name, Attributes=attributes)["QueueUrl"])
        self._outbox.create_topic(Topic(topic))
        self._outbox.add_subscription(Subscription(topic, SUBSCRIPTION, f"sqs:{url}"))
        return url

    def _consumer(
        self, stack: ExitStack, queue: str, seed: int, crash_after: int
    ) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-m", "local.demo.consumer", queue]
        command += [self._app.env["FAIRBOX_ACK_QUEUE_URL"], "--seed", str(seed)]
        command += ["--crash-after", str(crash_after)]
        process = subprocess.Popen(command, env={**os.environ, **self._app.env}, cwd=REPOSITORY)
        stack.callback(_end, process)
        return process

    def _wait(self, batch: str, total: int, completed: str) -> None:
        """Read completions until one arrives, then a little longer: there must be exactly one."""
        end = time.monotonic() + COMPLETED_SECONDS
        while time.monotonic() < end:
            if not self._completions:
                self._advance(total - self._batches.progress(batch).pending, total)
            self._read(completed)
            if self._completions and end - time.monotonic() > LINGER_SECONDS:
                end = time.monotonic() + LINGER_SECONDS
                self._advance(total, total)
            time.sleep(_POLL_SECONDS)

    def _read(self, queue: str) -> None:
        """Receive completion messages; a repeated delivery counts once."""
        answer = self._sqs.receive_message(QueueUrl=queue, MaxNumberOfMessages=10)
        for message in answer.get("Messages", []):
            event = event_of(message["Body"], from_bus=False)
            self._completions[event.id] = json.loads(event.data)
            self._sqs.delete_message(QueueUrl=queue, ReceiptHandle=message["ReceiptHandle"])


def _message(item: str, payload: dict[str, Any]) -> Message:
    return Message(
        topic=TOPIC,
        body=json.dumps(payload, separators=(",", ":"), ensure_ascii=False).encode(),
        content_type="application/json",
        headers={f"ce-{ITEM}": item},
    )


def _died(process: subprocess.Popen[bytes]) -> bool:
    """Wait for a consumer to crash; return whether it was killed."""
    try:
        return process.wait(COMPLETED_SECONDS) == -signal.SIGKILL
    except subprocess.TimeoutExpired:
        return False


def _end(process: subprocess.Popen[bytes]) -> None:
    process.kill()
    process.wait()

"""Doorbells in SQS: a FIFO queue for now, a standard queue for later."""

from __future__ import annotations

import hashlib
import json
import uuid
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from fairbox.aws.sqs_sender import send_all
from fairbox.dispatch.ports import Doorbell
from fairbox.errors import InvalidInput, NotConfigured
from fairbox.model.clock import SystemClock, milliseconds
from fairbox.model.item_versions import VERSION_KEY, check_number
from fairbox.model.messages import MessageRef, check_topic
from fairbox.model.topics import GROUPS
from fairbox.settings import LATER_QUEUE_URL

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from fairbox.model.clock import Clock

MAX_DELAY_SECONDS: Final = 900
_REFS_A_DOORBELL: Final = 100
_SOON_MS: Final = 1000  # a doorbell that is due so soon is not put back to wait


class SqsDoorbells:
    """Enqueues visits.

    Group `{topic}#{shard mod 8}` of the FIFO queue lets one visit of a shard run at a time, and no
    topic hold more than eight workers; fewer where a subscription may have fewer in flight.

    Args:
        client: boto3's SQS client.
        queue_url: the FIFO queue.
        later_url: the standard queue, whose messages may be delayed one by one; None: nothing can
            be rung for later.
        clock: gives the time.
        new_id: gives deduplication ids: every doorbell is its own but those that say until when,
            of which the queue keeps one for a shard and time.
        groups: gives how many visits of a topic run at a time.
    """

    def __init__(
        self,
        client: Any,
        queue_url: str,
        later_url: str | None,
        *,
        clock: Clock | None = None,
        new_id: Callable[[], str] = lambda: str(uuid.uuid4()),
        groups: Callable[[str], int] = lambda _: GROUPS,
    ) -> None:
        self._client = client
        self._queue_url = queue_url
        self._later_url = later_url
        self._clock = clock or SystemClock()
        self._new_id = new_id
        self._groups = groups

    def ring(self, doorbells: Sequence[Doorbell]) -> None:
        """Put the doorbells into the queues, ten a call.

        Raises:
            Unavailable: some could not be put there.
        """
        self._ring([(part, None) for d in doorbells for part in _parts(d)])

    def pass_on(self, doorbell: Doorbell) -> None:
        """Enqueue visits that have waited in the queue for later, or let them wait on.

        Doorbells of one shard and time that name no message, and come within a second, are one
        visit: the FIFO queue drops all but the first. So visits that each ring for the same time do
        not multiply. One that a visit rings because it came too early comes a second later.

        Raises:
            Unavailable: it could not be put into a queue.
        """
        now = milliseconds(self._clock)
        waits = doorbell.not_before - now > _SOON_MS
        due = doorbell if waits else replace(doorbell, not_before=0)
        text = f"{encode(doorbell)} {now // 1000}"
        own = doorbell.refs or doorbell.repeats
        same = None if own else hashlib.sha256(text.encode()).hexdigest()
        self._ring([(part, same) for part in _parts(due)])

    def _ring(self, doorbells: Sequence[tuple[Doorbell, str | None]]) -> None:
        """Put doorbells into the queues, each with its deduplication id; None: its own."""
        now = milliseconds(self._clock)
        at_once: list[dict[str, Any]] = []
        later: list[dict[str, Any]] = []
        for doorbell, same in doorbells:
            body = encode(doorbell)
            wait = min(MAX_DELAY_SECONDS, -((now - doorbell.not_before) // 1000))
            if wait > 0:
                later.append({"MessageBody": body, "DelaySeconds": wait})
            else:
                group = f"{doorbell.topic}#{doorbell.shard % self._groups(doorbell.topic)}"
                at_once.append(
                    {
                        "MessageBody": body,
                        "MessageGroupId": group,
                        "MessageDeduplicationId": same or self._dedup_id(doorbell, body),
                    }
                )
        send_all(self._client, self._queue_url, at_once)
        if later:
            if self._later_url is None:
                raise NotConfigured(LATER_QUEUE_URL)
            send_all(self._client, self._later_url, later)

    def _dedup_id(self, doorbell: Doorbell, body: str) -> str:
        if doorbell.repeats:
            return hashlib.sha256(body.encode()).hexdigest()
        return self._new_id()


def _parts(doorbell: Doorbell) -> Iterator[Doorbell]:
    """Split a doorbell that names many messages, so that each fits a queue message."""
    if not doorbell.refs:
        yield doorbell
    for start in range(0, len(doorbell.refs), _REFS_A_DOORBELL):
        refs = doorbell.refs[start : start + _REFS_A_DOORBELL]
        yield replace(doorbell, refs=refs)


def encode(doorbell: Doorbell) -> str:
    """Return the doorbell as a queue message's body."""
    return json.dumps(
        {
            "topic": doorbell.topic,
            "epoch": doorbell.epoch,
            "shard": doorbell.shard,
            "ids": [r.id if r.due is None else f"{r.id}/{r.due}" for r in doorbell.refs],
            "not_before": doorbell.not_before,
            **({"before": doorbell.before} if doorbell.before else {}),
        },
        separators=(",", ":"),
    )


def decode(body: str) -> Doorbell:
    """Return the doorbell of a queue message's body.

    Raises:
        InvalidInput: it is none.
        NewerVersion: it asks, under `version`, for a reader of a newer release.
    """
    try:
        data = json.loads(body)
        check_number(int(data.get(VERSION_KEY, 1)), {})
        topic, epoch, shard = check_topic(data["topic"]), int(data["epoch"]), int(data["shard"])
        refs = tuple(MessageRef.parse(f"{topic}/{epoch}/{shard}/{i}") for i in data["ids"])
        before = int(data.get("before", 0))
        return Doorbell(topic, epoch, shard, refs, int(data["not_before"]), before)
    except (
        ValueError,
        KeyError,
        TypeError,
        AttributeError,
        OverflowError,
        RecursionError,
    ) as error:
        raise InvalidInput("doorbell", f"topic, epoch, shard, ids, not_before ({error})") from None

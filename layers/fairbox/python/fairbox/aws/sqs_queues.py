"""Fairbox's own SQS queues: doorbells for now (FIFO) and for later, their records, and acks."""

from __future__ import annotations

import hashlib
import json
import logging
import uuid
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from botocore.exceptions import BotoCoreError, ClientError

from fairbox.dispatch.ports import Doorbell
from fairbox.errors import FairboxError, InvalidInput, NotConfigured, Unavailable
from fairbox.model.chunks import chunks
from fairbox.model.clock import NO_TIME, Clock, SystemClock, milliseconds, out_of_time
from fairbox.model.messages import MessageRef, check_topic
from fairbox.model.topics import GROUPS
from fairbox.model.versions import VERSION_KEY, check_number
from fairbox.sdk.service_errors import service_error
from fairbox.settings import LATER_QUEUE_URL

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from fairbox.dispatch.delivery import VisitReport
    from fairbox.dispatch.visits import Visits

MAX_DELAY_SECONDS: Final = 900
_REFS_A_DOORBELL: Final = 100
_MAX_GROUP: Final = 128  # characters of a queue's group
_SOON_MS: Final = 1000  # a doorbell that is due so soon is not put back to wait
_AHEAD_MS: Final = 1000
Answer = dict[str, list[dict[str, str]]]
"""The answer of a function to an event source mapping: `batchItemFailures`."""

logger = logging.getLogger("fairbox")
_PER_CALL: Final = 10
_CALL_BYTES: Final = 1_000_000
_TRIES: Final = 3


class SqsDoorbells:
    """Enqueues visits.

    By group `{topic}#{shard mod 8}` of the FIFO queue, one visit of a shard runs at a time, and a
    topic holds at most eight workers; fewer where a subscription may have fewer in flight. Visits
    apart have a FIFO queue of their own, whose groups are a subscription's.

    Args:
        queue_url: the FIFO queue.
        later_url: the standard queue, whose messages may be delayed one by one; None: nothing can
            be rung for later.
        new_id: gives deduplication ids. Every doorbell has an id of its own, except doorbells for
            later that name no messages: of these, the queue keeps one for a shard and second.
        groups: gives how many visits of a topic run at a time.
        apart_url: the FIFO queue of visits apart; None: they go to the other one, from where the
            function that knows the queue passes them on.
        groups_apart: gives how many visits apart of a topic's subscription run at a time.
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
        apart_url: str | None = None,
        groups_apart: Callable[[str, str], int] = lambda *_: GROUPS,
    ) -> None:
        self._client = client
        self._queue_url = queue_url
        self._later_url = later_url
        self._clock = clock or SystemClock()
        self._new_id = new_id
        self._groups = groups
        self._apart_url = apart_url
        self._groups_apart = groups_apart

    def ring(self, doorbells: Sequence[Doorbell]) -> None:
        """Put the doorbells into the queues, ten a call.

        One for later that names no messages is for a whole second, one from now at least.

        Raises:
            Unavailable: some could not be put there.
        """
        now = milliseconds(self._clock)
        self._ring([_in_slot(part, now) for d in doorbells for part in _parts(d)])

    def pass_on(self, doorbell: Doorbell) -> None:
        """Enqueue visits that have waited in the queue for later, or put them back to wait.

        Of equal doorbells of one second that name no message, the FIFO queue keeps the first, for
        five minutes. Its visit comes after all of them were rung, because each was rung a second
        ahead. So the visit serves them all: visits that ring for the same time do not multiply,
        and none is lost.

        Raises:
            Unavailable: it could not be put into a queue.
        """
        soon = 0 if doorbell.repeats else _SOON_MS
        if doorbell.not_before - milliseconds(self._clock) > soon:
            self._ring([doorbell])
        else:
            # the visit must not take it for too early, by a clock that is behind, and ring again
            self._enqueue([(replace(doorbell, not_before=0), _dedup_id(doorbell))])

    def _ring(self, doorbells: Sequence[Doorbell]) -> None:
        now = milliseconds(self._clock)
        at_once: list[tuple[Doorbell, str | None]] = []
        later: list[dict[str, Any]] = []
        for doorbell in doorbells:
            # a delay of SQS has at most 15 minutes: a doorbell for later is put there again
            wait = min(MAX_DELAY_SECONDS, -((now - doorbell.not_before) // 1000))
            if wait > 0:
                later.append({"MessageBody": encode(doorbell), "DelaySeconds": wait})
            else:
                at_once.append((doorbell, None))

        self._enqueue(at_once)
        if later:
            if self._later_url is None:
                raise NotConfigured(LATER_QUEUE_URL)
            send_all(self._client, self._later_url, later)

    def misplaced(self, doorbell: Doorbell, queue: str) -> bool:
        """Whether a doorbell lies in the queue of shared visits (by name), but asks for one apart.

        Functions and clients that do not know the queue of visits apart put it there.
        """
        apart = doorbell.subscription and self._apart_url
        return bool(apart) and queue != str(self._apart_url).rpartition("/")[2]

    def _place(self, doorbell: Doorbell) -> tuple[str, str]:
        """Return the queue of a doorbell that is due, and its group."""
        topic, subscription = doorbell.topic, doorbell.subscription
        if not subscription or self._apart_url is None:
            return self._queue_url, f"{topic}#{doorbell.shard % self._groups(topic)}"
        number = doorbell.shard % self._groups_apart(topic, subscription)
        group = f"{topic}#{number}#{subscription}"
        if len(group) > _MAX_GROUP:
            group = hashlib.sha256(group.encode()).hexdigest()
        return self._apart_url, group

    def _enqueue(self, doorbells: Sequence[tuple[Doorbell, str | None]]) -> None:
        """Put doorbells into the FIFO queues, each with its deduplication id; None: its own."""
        entries: dict[str, list[dict[str, Any]]] = {}
        for doorbell, same in doorbells:
            url, group = self._place(doorbell)
            entries.setdefault(url, []).append(
                {
                    "MessageBody": encode(doorbell),
                    "MessageGroupId": group,
                    "MessageDeduplicationId": same or self._new_id(),
                }
            )

        for url, its in entries.items():
            send_all(self._client, url, its)


def _in_slot(doorbell: Doorbell, now: int) -> Doorbell:
    """Return the doorbell for the whole second that equal ones are for, if it is for later.

    The second is ahead by more than clocks differ: its visit has not begun when this one is rung.
    """
    if not doorbell.repeats or doorbell.not_before <= now:
        return doorbell
    slot = -(-max(doorbell.not_before, now + _AHEAD_MS) // 1000) * 1000
    return replace(doorbell, not_before=slot)


def _dedup_id(doorbell: Doorbell) -> str | None:
    """Return the id that equal doorbells share; None: the doorbell is its own.

    Walks of one subscription are equal wherever they go on: one does the work of all.
    """
    if not doorbell.repeats:
        return None
    if doorbell.subscription:
        doorbell = replace(doorbell, after="", before=0, since=0)
    return hashlib.sha256(encode(doorbell).encode()).hexdigest()


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
            **({"subscription": doorbell.subscription} if doorbell.subscription else {}),
            **({"after": doorbell.after} if doorbell.after else {}),
            **({"since": doorbell.since} if doorbell.since else {}),
            **({"kept": True} if doorbell.kept else {}),
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
        subscription, after = str(data.get("subscription", "")), str(data.get("after", ""))
        times, since = (int(data["not_before"]), before), int(data.get("since", 0))
        kept = data.get("kept") is True
        return Doorbell(topic, epoch, shard, refs, *times, subscription, after, since, kept)
    except (
        ValueError,
        KeyError,
        TypeError,
        AttributeError,
        OverflowError,
        RecursionError,
    ) as error:
        raise InvalidInput("doorbell", f"topic, epoch, shard, ids, not_before ({error})") from None


def answer_doorbells(
    records: Iterable[Mapping[str, Any]],
    *,
    visits: Visits,
    doorbells: SqsDoorbells,
    deadline: float,
    report: Callable[[VisitReport], object] = lambda _: None,
) -> Answer:
    """Visit the shards that records of the FIFO queues name; pass on those of the queue for later.

    A doorbell for a visit apart that lies in the queue of shared visits is passed on too.

    Args:
        records: of an event, from one queue.
        visits: makes the visits.
        doorbells: passes doorbells on that have waited.
        deadline: when calls to destinations must no longer begin (seconds since 1970 UTC).
        report: takes the report of each visit.

    Returns:
        The records that failed, which come again; from a FIFO queue with all that follow, so that
        their order is kept.
    """
    failures: list[dict[str, str]] = []
    for record in records:
        queue = record["eventSourceARN"].rpartition(":")[2]
        fifo = queue.endswith(".fifo")
        if failures and fifo:
            # in a FIFO queue, all behind a failure must come again: else their order is lost
            failures.append({"itemIdentifier": record["messageId"]})
            continue

        try:
            doorbell = decode(record["body"])
            if not fifo:
                doorbells.pass_on(doorbell)
            elif doorbells.misplaced(doorbell, queue):
                doorbells.ring([doorbell])
            else:
                report(visits.handle(doorbell, deadline=deadline))
        except FairboxError as error:
            logger.warning("a doorbell failed", extra={"error": str(error)})
            failures.append({"itemIdentifier": record["messageId"]})

    return {"batchItemFailures": failures}


class SqsAcks:
    """The ack queue: implements `fairbox.dispatch.ports.AckQueue`.

    Args:
        queue_url: a standard queue; order and repetition of acks do not matter.
    """

    def __init__(self, client: Any, queue_url: str) -> None:
        self._client = client
        self._queue_url = queue_url

    def put(self, bodies: Sequence[str]) -> None:
        """Put messages of acks into the queue, ten of 64 KB a call.

        Raises:
            Unavailable: some could not be put there; all may be put again.
        """
        send_all(self._client, self._queue_url, [{"MessageBody": body} for body in bodies])


def send_all(client: Any, url: str, entries: Sequence[dict[str, Any]]) -> None:
    """Send messages, up to ten or 1 MB a call; refused messages are sent again.

    Args:
        client: boto3's SQS client.
        url: the queue.
        entries: as of `SendMessageBatch`, without `Id`.

    Raises:
        NotAllowed, Unavailable: some were refused to the last try; those before them are in the
            queue.
    """
    for chunk in chunks(entries, _size, items_most=_PER_CALL, bytes_most=_CALL_BYTES):
        waiting = [{"Id": str(n), **entry} for n, entry in enumerate(chunk)]
        failure = ""
        for _ in range(_TRIES):
            if out_of_time():
                # the caller learns of it before the function is cut off
                failure = failure or NO_TIME
                break

            try:
                answer = client.send_message_batch(QueueUrl=url, Entries=waiting)
            except (ClientError, BotoCoreError) as error:
                failed = service_error("sqs", error, "send_message_batch")
                if failed.retry == "never":
                    raise failed from error
                failure = str(error)
                continue

            refused = {entry["Id"] for entry in answer.get("Failed", [])}
            failure = str(answer.get("Failed", ""))
            waiting = [entry for entry in waiting if entry["Id"] in refused]
            if not waiting:
                break

        if waiting:
            raise Unavailable("send_message_batch", failure)


def _size(entry: dict[str, Any]) -> int:
    return len(entry["MessageBody"].encode())

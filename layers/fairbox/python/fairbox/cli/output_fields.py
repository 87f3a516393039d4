"""The printed fields of the library's models, named as in the HTTP API."""

from __future__ import annotations

import base64
import json
from dataclasses import asdict
from datetime import UTC, datetime
from functools import reduce
from operator import add, or_
from typing import TYPE_CHECKING, Any, Final, TypeVar

from fairbox.model.feed_types import NUMBERS, Feed, FeedTopic
from fairbox.model.redaction import redacted_address
from fairbox.model.topic_states import NEW, SubscriptionStatus, TopicState

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from fairbox.batches.results import Batch, Progress
    from fairbox.cli.session import Session
    from fairbox.client.erasure import ErasureResult
    from fairbox.client.feed_positions import FeedUpdate
    from fairbox.client.misplaced_messages import Misplaced
    from fairbox.client.partition_types import PartitionResults
    from fairbox.client.partitioned_queue import PartitionedQueue
    from fairbox.client.purge import PurgeResult
    from fairbox.client.reading import Receives
    from fairbox.client.redrive import RedriveResult
    from fairbox.client.resize import EpochStatus, ResizeResult, WidthResult
    from fairbox.model.messages import Message
    from fairbox.model.receipts import Received
    from fairbox.model.topics import Subscription
    from fairbox.queue.models import QueueStats
    from fairbox.tables.dead_letters import DeadLetter
    from fairbox.tables.ledger import Delivery
    from fairbox.tables.stored_messages import StoredMessage

Fields = dict[str, object]
T = TypeVar("T")
DELIVERY_COLUMNS: Final = ("ref", "subscription", "attempts", "size", "delivered_at")


def _fields(value: object, *names: str, **others: object) -> Fields:
    """Return a value's attributes, in this order; `others` stand for attributes of their names."""
    return {name: others[name] if name in others else getattr(value, name) for name in names}


def batch_fields(batch: Batch) -> Fields:
    """Return the fields of a batch."""
    callbacks = ("on_complete", "on_success", "on_cancel", "on_death")
    names = ("id", "state", "user_key", "total", "opened_at", "parent_item", *callbacks)
    return _fields(batch, *names, "retry_hours", opened_at=batch.opened)


def progress_fields(progress: Progress) -> Fields:
    """Return the fields of a progress."""
    numbers = ("total", "pending", "acked", "failed", "exact", "error", "limit")
    return _fields(progress, "id", "state", "complete", *numbers)


def feed_fields(feed: Feed) -> Fields:
    """Return the fields of a feed, with the numbers of its kind."""
    numbers = {name: getattr(feed, name) for name in NUMBERS[feed.kind]}
    return {"name": feed.name, "kind": feed.kind, **numbers}


def feed_topic_fields(topic: FeedTopic) -> Fields:
    """Return the fields of a topic of a feed."""
    fields = asdict(topic)
    return {"topic": f"{fields.pop('feed')}/{fields.pop('key')}", **fields}


def feed_update_lines(update: FeedUpdate) -> Iterator[tuple[Fields, str]]:
    """Yield fields and text of each message, and of what else a client learns of a topic."""
    topic = update.topic
    if update.error is not None:
        code, text = update.error
        yield {"topic": topic, "error": code, "detail": text}, f"{topic} {code}: {text}"
    if update.reset:
        yield {"topic": topic, "reset": True}, f"{topic} reset"
    if update.lost:
        word = "conflated" if update.kind == "snapshot" else "lost"
        yield {"topic": topic, word: update.lost}, f"{topic} {word} {update.lost}"

    for message in update.messages:
        fields: Fields = {"topic": topic, "number": message.number, "id": message.id}
        body, encoding = message.body, {}
        if isinstance(body, bytes):
            body, encoding = base64.b64encode(body).decode(), {"body_encoding": "base64"}
        text = json.dumps(body, ensure_ascii=False, separators=(",", ":"), default=str)
        line = f"{topic} {message.number} {message.id} {text}"
        yield fields | {"body": body} | encoding, line


def topic_fields(state: TopicState) -> Fields:
    """Return the fields of a topic with its epochs and subscriptions."""
    topic = state.topic
    part = topic.partition
    # a queue that always had one partition is like any topic
    several = part is not None and (part.count > 1 or state.widths)

    return {
        "name": topic.name,
        "shards": topic.shards,
        "ordering": topic.ordering,
        "on_dead": topic.on_dead,
        "pushed": state.pushed,
        "paused": state.paused,
        "deleting_at": state.deleting,
        "retry": _fields(topic.retry, "max_attempts", "base", "cap"),
        "dedup_window": topic.dedup_window,
        "retention": topic.retention,
        "message_retention": topic.message_retention,
        "max_outstanding": topic.max_outstanding,
        "weight": topic.weight,
        "mini_batch": topic.mini_batch,
        "tenant_weights": dict(topic.tenant_weights),
        "epochs": [_fields(epoch, "number", "shards", "since") for epoch in state.epochs],
        "subscriptions": [
            subscription_fields(s, state.status(s.name)) for s in state.subscriptions
        ],
    } | ({"partition": asdict(part)} if part is not None and several else {})


def status_fields(status: EpochStatus) -> Fields:
    """Return where an epoch stands, and what lies in it."""
    lanes = _fields(status, "phase", "ready", "later", "dead")
    return _fields(status.epoch, "number", "shards", "since") | lanes


def resize_fields(result: ResizeResult) -> Fields:
    """Return what a resize came to."""
    epoch = result.epoch
    names = ("topic", "epoch", "shards", "before", "begins_at", "changed")
    return _fields(result, *names, epoch=epoch.number, shards=epoch.shards, begins_at=epoch.since)


def resize_text(result: ResizeResult) -> str:
    """Return the same as people read it."""
    epoch = result.epoch
    return _resized(result, result.topic, epoch.shards, "shards", epoch.since)


def width_fields(result: WidthResult) -> Fields:
    """Return what another number of partitions came to."""
    names = ("queue", "partitions", "before", "begins_at", "changed")
    return _fields(result, *names, begins_at=result.since)


def width_text(result: WidthResult) -> str:
    """Return the same as people read it."""
    return _resized(result, result.queue, result.partitions, "partitions", result.since)


def _resized(
    result: ResizeResult | WidthResult, name: str, now: int, parts: str, since: int
) -> str:
    if not result.changed:
        return f"{name} has, or will have, {now} {parts}: nothing to do"
    begins = datetime.fromtimestamp(since / 1000, UTC).isoformat(timespec="seconds")
    return f"{name}: {result.before} to {now} {parts}, from {begins} on"


def misplaced_fields(found: Misplaced) -> Fields:
    """Return where a message lies, and where it belongs."""
    return {"ref": str(found.ref), "belongs": str(found.belongs)}


def subscription_fields(subscription: Subscription, status: SubscriptionStatus = NEW) -> Fields:
    """Return the fields of a subscription, and how it stands."""
    limits = ("max_attempts", "timeout", "weight", "max_in_flight", "rate", "since")
    address = redacted_address(subscription.destination)
    own = _fields(subscription, "topic", "name", "destination", *limits, destination=address)
    state = "paused" if status.paused else status.circuit
    return {**own, "state": state, **status.as_dict()}


def seen(fields: Fields) -> Fields:
    """Return the fields of a subscription with its state as people read it."""
    state = {"closed": "ok", "paused": "paused"}.get(str(fields["state"]))
    if state is None:
        probe = datetime.fromtimestamp(int(str(fields["next_probe_at"])) / 1000, UTC)
        state = f"failing (next probe {probe:%H:%M:%S})"
    return fields | {"state": state}


def received_fields(received: Received, ref: str) -> Fields:
    """Return the fields of a message that is held, with its body."""
    message = received.message
    return {
        "ref": ref,
        "topic": message.topic,
        "id": message.id,
        "receive_count": received.receive_count,
        "visible_at": received.visible_at,
        "partition_key": message.partition_key,
        "content_type": message.content_type,
        "headers": dict(message.headers),
        "size": len(message.body),
        "batch_item": message.batch_item,
        "reason": received.reason or None,
        "subscriptions": sorted(received.subscriptions) or None,
        "receipt": received.receipt,
    } | body_fields(message)


def stats_fields(stats: QueueStats) -> Fields:
    """Return the figures of a queue."""
    numbers = ("outstanding", "ready", "later", "dead", "in_flight", "visible")
    return _fields(stats, "topic", *numbers)


def redrive_fields(result: RedriveResult) -> Fields:
    """Return what a redrive did, or would do."""
    return {
        "count": result.count,
        "refs": [str(ref) for ref in result.refs],
        "left": [str(ref) for ref in result.left],
        "missing": [str(name) for name in result.missing],
        "unreadable": list(result.unreadable),
        "more": result.more,
        "dry_run": result.dry_run,
    }


def purge_fields(result: PurgeResult) -> Fields:
    """Return what a purge of dead letters did, or would do."""
    return _fields(result, "count", "names", "left", "more", "dry_run")


def erasure_fields(result: ErasureResult) -> Fields:
    """Return what an erasure of a partition key did, or would do."""
    return {
        "cancelled": [str(ref) for ref in result.cancelled],
        "purged": list(result.purged),
        "held": [str(ref) for ref in result.claimed],
        "left": list(result.left),
        "dry_run": result.dry_run,
    }


def receives_fields(receives: Receives) -> Fields:
    """Return how often a message was received, and who holds it."""
    return {
        "receive_count": receives.count,
        "held_until": receives.held_until,
        "consumer": receives.consumer or None,
    }


def stored_fields(stored: StoredMessage, state: str) -> Fields:
    """Return the fields of a message as it lies in the outbox, without its body."""
    message = stored.message
    return {
        "ref": str(stored.ref),
        "topic": message.topic,
        "id": message.id,
        "state": state,
        "due_at": stored.ref.due,
        "partition_key": message.partition_key,
        "content_type": message.content_type,
        "headers": dict(message.headers),
        "size": stored.size,
        "dedup_key": message.dedup_key,
        "fairness_key": message.fairness_key,
        "direct": message.direct,
        "batch_item": message.batch_item,
        "pending": None if stored.pending is None else sorted(stored.pending),
        "attempts": {name: state.attempts for name, state in sorted(stored.states.items())},
    }


def body_fields(message: Message) -> Fields:
    """Return a body as text, or as base64 where it is none."""
    try:
        return {"body": message.body.decode(), "body_encoding": "utf-8"}
    except UnicodeDecodeError:
        return {"body": base64.b64encode(message.body).decode(), "body_encoding": "base64"}


def dead_fields(letter: DeadLetter) -> Fields:
    """Return the fields of a dead letter; of one that nothing could read, the raw item."""
    why: Fields = {"reason": letter.reason, "died_at": letter.died_at}
    if letter.stored is not None:
        return stored_fields(letter.stored, "dead") | why
    ref = f"{letter.topic}/{letter.epoch}/{letter.shard}/{letter.id}"
    return {"ref": ref, "topic": letter.topic, "id": letter.id, "state": "dead"} | why


def failures_fields(letter: DeadLetter) -> Fields:
    """Return the newest failures of a dead letter by subscription, or its raw item."""
    if letter.stored is None:
        return {"raw": letter.raw or None}
    return {
        "history": {
            name: [_fields(failure, "attempt", "at", "error") for failure in state.history]
            for name, state in sorted(letter.stored.states.items())
        }
    }


def delivery_fields(delivery: Delivery) -> Fields:
    """Return the fields of a delivery."""
    names = ("ref", "topic", "id", "subscription", "delivered_at", "added_at", "attempts", "size")
    return _fields(delivery, *names, ref=str(delivery.ref), delivered_at=delivery.at)


def told(
    session: Session,
    queue: PartitionedQueue,
    found: PartitionResults[T],
    fields: Callable[[T], Fields],
) -> dict[str, Any]:
    """Return the sums of the partitions' fields, and those of each under `partitions`.

    Raises:
        FairboxError: the first partition's error; `session.done` has what the others did.
    """
    parts = [{"topic": topic} | fields(result) for topic, result in found.results.items()]
    sums = {name: _sum([part[name] for part in parts]) for name in (parts[0] if parts else {})}
    # a sum of names means nothing
    sums.pop("topic", None)
    if found.errors and session.json:
        session.done = sums | session.done | {"failed": list(found.errors), "partitions": parts}
    # for people, only numbers: lists of all partitions would hide the error's line
    elif found.errors:
        session.done = session.done or {n: value for n, value in sums.items() if type(value) is int}
        session.done |= {"done": ", ".join(found.results), "failed": ", ".join(found.errors)}
    found.check()
    return {"queue": queue.name, **sums, "partitions": parts}


def _sum(values: list[Any]) -> object:
    """Return a sum; of lists, all entries; of booleans, whether one is true; None: not known."""
    if None in values:
        return None
    return reduce(or_ if isinstance(values[0], bool) else add, values)

"""Fairbox: a sharded transactional outbox on DynamoDB.

The names below are loaded when they are first used, so that a function pays at its cold start for
what it needs and nothing else.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from fairbox.batches.models import AckResult, Batch, FailedItem, Group, Page, Progress
    from fairbox.consuming.consumer import Consumer
    from fairbox.consuming.group import Consumers
    from fairbox.consuming.outcomes import Dead, Retry
    from fairbox.consuming.tally import ConsumerCounts
    from fairbox.errors import (
        BatchBusy,
        BatchEnded,
        BatchSealed,
        BodyTooLarge,
        DeadLettersUnreadable,
        FairboxError,
        InvalidInput,
        MessagesClaimed,
        MessagesNotFound,
        MessagesNotWritten,
        MessagesOutstanding,
        NewerVersion,
        NotConfigured,
        RequestConflict,
        ResizeUnderway,
        StaleReceipt,
        Throttled,
        TopicConflict,
        TopicIsPushed,
        TransactionCancelled,
        Unavailable,
        UnknownBatch,
        UnknownItems,
        UnknownSubscription,
        UnknownTopic,
        Unreadable,
    )
    from fairbox.messages import Message, MessageRef
    from fairbox.misplacing import Misplaced, PlacementResult
    from fairbox.outbox import Outbox, SweepResult
    from fairbox.partition_results import PartitionResults
    from fairbox.partition_widths import WidthResult
    from fairbox.partitions import PartitionedQueue
    from fairbox.purging import PurgeResult
    from fairbox.queue import Queue
    from fairbox.queueing.models import QueueStats, Received
    from fairbox.redriving import RedriveResult
    from fairbox.resizing import ResizeResult
    from fairbox.stored import DeadLetter, Delivery
    from fairbox.topics import Partition, RetryPolicy, Subscription, Topic
    from fairbox.tracking import Batches

__all__ = [
    "AckResult",
    "Batch",
    "BatchBusy",
    "BatchEnded",
    "BatchSealed",
    "Batches",
    "BodyTooLarge",
    "Consumer",
    "ConsumerCounts",
    "Consumers",
    "Dead",
    "DeadLetter",
    "DeadLettersUnreadable",
    "Delivery",
    "FailedItem",
    "FairboxError",
    "Group",
    "InvalidInput",
    "Message",
    "MessageRef",
    "MessagesClaimed",
    "MessagesNotFound",
    "MessagesNotWritten",
    "MessagesOutstanding",
    "Misplaced",
    "NewerVersion",
    "NotConfigured",
    "Outbox",
    "Page",
    "Partition",
    "PartitionResults",
    "PartitionedQueue",
    "PlacementResult",
    "Progress",
    "PurgeResult",
    "Queue",
    "QueueStats",
    "Received",
    "RedriveResult",
    "RequestConflict",
    "ResizeResult",
    "ResizeUnderway",
    "Retry",
    "RetryPolicy",
    "StaleReceipt",
    "Subscription",
    "SweepResult",
    "Throttled",
    "Topic",
    "TopicConflict",
    "TopicIsPushed",
    "TransactionCancelled",
    "Unavailable",
    "UnknownBatch",
    "UnknownItems",
    "UnknownSubscription",
    "UnknownTopic",
    "Unreadable",
    "WidthResult",
]

_HOMES: Final = {
    "AckResult": "batches.models",
    "Batch": "batches.models",
    "Batches": "tracking",
    "Consumer": "consuming.consumer",
    "ConsumerCounts": "consuming.tally",
    "Consumers": "consuming.group",
    "Dead": "consuming.outcomes",
    "DeadLetter": "stored",
    "Delivery": "stored",
    "FailedItem": "batches.models",
    "Group": "batches.models",
    "Message": "messages",
    "MessageRef": "messages",
    "Misplaced": "misplacing",
    "Outbox": "outbox",
    "Page": "batches.models",
    "Partition": "topics",
    "PartitionResults": "partition_results",
    "PartitionedQueue": "partitions",
    "WidthResult": "partition_widths",
    "PlacementResult": "misplacing",
    "Progress": "batches.models",
    "PurgeResult": "purging",
    "Queue": "queue",
    "QueueStats": "queueing.models",
    "Received": "queueing.models",
    "RedriveResult": "redriving",
    "ResizeResult": "resizing",
    "Retry": "consuming.outcomes",
    "RetryPolicy": "topics",
    "Subscription": "topics",
    "SweepResult": "outbox",
    "Topic": "topics",
}


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_HOMES.get(name, 'errors')}"), name)


def __dir__() -> list[str]:
    return [*globals(), *__all__]

"""Fairbox: a sharded transactional outbox on DynamoDB.

The names below are loaded when they are first used, so that a function pays at its cold start for
what it needs and nothing else.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from fairbox.batches.results import AckResult, Batch, FailedItem, Group, Page, Progress
    from fairbox.client.batches import Batches
    from fairbox.client.erasure import ErasureResult, KeyErasure
    from fairbox.client.feed_client import FeedClient
    from fairbox.client.feed_positions import FeedMessage, FeedUpdate
    from fairbox.client.feeds import Feeds
    from fairbox.client.manual_delivery import SkipResult, SweepResult
    from fairbox.client.misplaced_messages import Misplaced, PlacementResult
    from fairbox.client.outbox import Outbox
    from fairbox.client.partition_types import PartitionResults
    from fairbox.client.partitioned_queue import PartitionedQueue
    from fairbox.client.purge import PurgeResult
    from fairbox.client.queue import Queue
    from fairbox.client.redrive import RedriveResult
    from fairbox.client.resize import ResizeResult, WidthResult
    from fairbox.client.row_import import ImportResult, RowImport
    from fairbox.consumer.consumer import Consumer
    from fairbox.consumer.counts import ConsumerCounts
    from fairbox.consumer.group import Consumers
    from fairbox.consumer.handler_outcomes import Dead, Retry
    from fairbox.errors import (
        BatchBusy,
        BatchEnded,
        BatchSealed,
        BodyTooLarge,
        DeadLettersUnreadable,
        FairboxError,
        FeedFull,
        FeedRefused,
        InvalidInput,
        ItemTooLarge,
        MalformedItems,
        MessagesClaimed,
        MessagesNotFound,
        MessagesNotWritten,
        MessagesOutstanding,
        NewerVersion,
        NotAllowed,
        NotConfigured,
        NothingToSkip,
        ParentItemTaken,
        RequestConflict,
        ResizeUnderway,
        StaleReceipt,
        Throttled,
        TopicConflict,
        TopicFull,
        TopicIsPushed,
        TransactionCancelled,
        Unavailable,
        UnknownBatch,
        UnknownFeed,
        UnknownItems,
        UnknownSubscription,
        UnknownTable,
        UnknownTopic,
        Unreadable,
    )
    from fairbox.model.feed_types import Feed, FeedTopic
    from fairbox.model.messages import Message, MessageRef
    from fairbox.model.receipts import Received
    from fairbox.model.topics import Partition, RetryPolicy, Subscription, Topic
    from fairbox.queue.models import QueueStats
    from fairbox.sdk.clients import client_config
    from fairbox.tables.dead_letters import DeadLetter
    from fairbox.tables.ledger import Delivery
    from fairbox.tables.row_layouts import RowLayout

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
    "ErasureResult",
    "FailedItem",
    "FairboxError",
    "Feed",
    "FeedClient",
    "FeedFull",
    "FeedMessage",
    "FeedRefused",
    "FeedTopic",
    "FeedUpdate",
    "Feeds",
    "Group",
    "ImportResult",
    "InvalidInput",
    "ItemTooLarge",
    "KeyErasure",
    "MalformedItems",
    "Message",
    "MessageRef",
    "MessagesClaimed",
    "MessagesNotFound",
    "MessagesNotWritten",
    "MessagesOutstanding",
    "Misplaced",
    "NewerVersion",
    "NotAllowed",
    "NotConfigured",
    "NothingToSkip",
    "Outbox",
    "Page",
    "ParentItemTaken",
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
    "RowImport",
    "RowLayout",
    "SkipResult",
    "StaleReceipt",
    "Subscription",
    "SweepResult",
    "Throttled",
    "Topic",
    "TopicConflict",
    "TopicFull",
    "TopicIsPushed",
    "TransactionCancelled",
    "Unavailable",
    "UnknownBatch",
    "UnknownFeed",
    "UnknownItems",
    "UnknownSubscription",
    "UnknownTable",
    "UnknownTopic",
    "Unreadable",
    "WidthResult",
    "client_config",
]

_HOMES: Final = {
    "AckResult": "batches.results",
    "Batch": "batches.results",
    "Batches": "client.batches",
    "Consumer": "consumer.consumer",
    "ConsumerCounts": "consumer.counts",
    "Consumers": "consumer.group",
    "Dead": "consumer.handler_outcomes",
    "DeadLetter": "tables.dead_letters",
    "Delivery": "tables.ledger",
    "ErasureResult": "client.erasure",
    "FailedItem": "batches.results",
    "Feed": "model.feed_types",
    "FeedClient": "client.feed_client",
    "FeedMessage": "client.feed_positions",
    "FeedTopic": "model.feed_types",
    "FeedUpdate": "client.feed_positions",
    "Feeds": "client.feeds",
    "Group": "batches.results",
    "ImportResult": "client.row_import",
    "KeyErasure": "client.erasure",
    "Message": "model.messages",
    "MessageRef": "model.messages",
    "Misplaced": "client.misplaced_messages",
    "Outbox": "client.outbox",
    "Page": "batches.results",
    "Partition": "model.topics",
    "PartitionResults": "client.partition_types",
    "PartitionedQueue": "client.partitioned_queue",
    "WidthResult": "client.resize",
    "client_config": "sdk.clients",
    "PlacementResult": "client.misplaced_messages",
    "Progress": "batches.results",
    "PurgeResult": "client.purge",
    "Queue": "client.queue",
    "QueueStats": "queue.models",
    "Received": "model.receipts",
    "RedriveResult": "client.redrive",
    "ResizeResult": "client.resize",
    "Retry": "consumer.handler_outcomes",
    "RetryPolicy": "model.topics",
    "RowImport": "client.row_import",
    "RowLayout": "tables.row_layouts",
    "SkipResult": "client.manual_delivery",
    "Subscription": "model.topics",
    "SweepResult": "client.manual_delivery",
    "Topic": "model.topics",
}


__version__ = "0.2.0"


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_HOMES.get(name, 'errors')}"), name)


def __dir__() -> list[str]:
    return [*globals(), *__all__]

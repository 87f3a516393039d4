"""Fairbox: a sharded transactional outbox on DynamoDB.

The names below are loaded when they are first used, so that a function pays at its cold start for
what it needs and nothing else.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from fairbox.errors import (
        BodyTooLarge,
        FairboxError,
        InvalidInput,
        MessagesNotFound,
        MessagesNotWritten,
        NotConfigured,
        Throttled,
        TopicConflict,
        TopicIsPushed,
        TransactionCancelled,
        Unavailable,
        UnknownSubscription,
        UnknownTopic,
        Unreadable,
    )
    from fairbox.messages import Message, MessageRef
    from fairbox.outbox import Outbox, SweepResult
    from fairbox.stored import DeadLetter, Delivery
    from fairbox.topics import RetryPolicy, Subscription, Topic

__all__ = [
    "BodyTooLarge",
    "DeadLetter",
    "Delivery",
    "FairboxError",
    "InvalidInput",
    "Message",
    "MessageRef",
    "MessagesNotFound",
    "MessagesNotWritten",
    "NotConfigured",
    "Outbox",
    "RetryPolicy",
    "Subscription",
    "SweepResult",
    "Throttled",
    "Topic",
    "TopicConflict",
    "TopicIsPushed",
    "TransactionCancelled",
    "Unavailable",
    "UnknownSubscription",
    "UnknownTopic",
    "Unreadable",
]

_HOMES: Final = {
    "DeadLetter": "stored",
    "Delivery": "stored",
    "Message": "messages",
    "MessageRef": "messages",
    "Outbox": "outbox",
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

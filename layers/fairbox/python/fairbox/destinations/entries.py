"""Entries of SQS and SNS: the envelope, message attributes, groups and deduplication ids."""

from __future__ import annotations

import hashlib
import re
from typing import TYPE_CHECKING, Any, Final

from fairbox.cloudevents import STRUCTURED_TYPE
from fairbox.destinations.batching import Prepared, fitting

if TYPE_CHECKING:
    from fairbox.model.messages import Message
    from fairbox.tables.stored_messages import StoredMessage

MAX_ATTRIBUTES: Final = 10
_NAME = re.compile(r"(?!aws\.|amazon\.)[A-Za-z0-9_-]+(\.[A-Za-z0-9_-]+)*", re.IGNORECASE)
_NOT_IN_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
_MAX_NAME: Final = 256
_GROUP = re.compile(r"[!-~]{1,128}")  # letters, digits and punctuation


def group_name(key: str) -> str:
    """Return the key as a message group: itself, or its SHA-256 in hex where it is not legal."""
    return key if _GROUP.fullmatch(key) else hashlib.sha256(key.encode()).hexdigest()


def deduplication_id(message: Message) -> str:
    """Return an id that is the same for every attempt: the message's id and the topic's hash."""
    return f"{message.id}-{hashlib.sha256(message.topic.encode()).hexdigest()[:16]}"


def entry(stored: StoredMessage, member: str, *, limit: int, fifo: bool) -> Prepared:
    """Return a message's entry without its `Id`; `member` names the one that holds the envelope.

    FIFO: the group is the partition key, without one the message id. Standard: the group of a
    fair queue is the fairness key.
    """
    message = stored.message
    attributes, extra = message_attributes(message)
    # attributes count against the limit of the message
    body = fitting(stored, limit - extra)
    result: dict[str, Any] = {member: body.decode(), "MessageAttributes": attributes}
    if fifo:
        result["MessageGroupId"] = group_name(message.shard_key)
        result["MessageDeduplicationId"] = deduplication_id(message)
    elif message.fairness_key is not None:
        result["MessageGroupId"] = group_name(message.fairness_key)
    return Prepared(result, len(body) + extra)


def message_attributes(message: Message) -> tuple[dict[str, dict[str, str]], int]:
    """Return the attributes, and the bytes that they take: names, types and values.

    The first is `content-type`, the envelope's; then come the headers that are no attributes of
    the envelope (`ce-`), in their order, where name and value are legal. The envelope has them all.
    """
    values = {"content-type": STRUCTURED_TYPE}
    seen = {"content-type"}
    # SQS takes ten attributes, and SNS drops a message for SQS that has more
    for name, value in message.headers.items():
        if len(values) == MAX_ATTRIBUTES:
            break
        legal = len(name) <= _MAX_NAME and _NAME.fullmatch(name) and value
        # names are told apart by case at the services, and not in headers
        if name.lower().startswith("ce-") or name.lower() in seen or not legal:
            continue
        if _NOT_IN_XML.search(value) is None:
            values[name] = value
            seen.add(name.lower())

    size = sum(len(n) + len("String") + len(v.encode()) for n, v in values.items())
    return {n: {"DataType": "String", "StringValue": v} for n, v in values.items()}, size

"""Publishing by a chaos producer: single, in bulk, in a transaction, over HTTP."""

from __future__ import annotations

import json
from http.client import HTTPConnection, HTTPException
from typing import TYPE_CHECKING, Any, Final, TypeVar
from urllib.parse import urlsplit

from fairbox import Message, MessageRef, MessagesNotWritten, Outbox, Throttled, Unavailable

from local.accounting.business import BUSINESS_TABLE

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from local.accounting.journal import Journal

Published = TypeVar("Published")
_ACCEPTED: Final = 202
_BAD_REQUEST: Final = 400
_TOO_MANY: Final = 429
_SERVER_ERROR: Final = 500
_HTTP_SECONDS: Final = 35


class RefusedError(Exception):
    """The API refused a valid request."""


class Sender:
    """Publishes messages and repeats each until it is acknowledged.

    Each message is recorded before the attempt and again once it is acknowledged.

    Args:
        outbox: the library.
        api_url: base address of the HTTP API.
        journal: the producer's own journal.
        pause: waits between tries.
    """

    def __init__(
        self, outbox: Outbox, api_url: str, journal: Journal, pause: Callable[[], None]
    ) -> None:
        self._outbox = outbox
        self._api = urlsplit(api_url).netloc
        self._journal = journal
        self._pause = pause

    def add(self, message: Message, **fields: Any) -> MessageRef:
        """Publish one message by itself."""
        self._try(message, "add", fields)
        ref = self._until_known(lambda: self._outbox.add(message))
        self._acknowledged(message, ref)
        return ref

    def transact(self, message: Message) -> MessageRef:
        """Publish one message in a transaction with a business row."""
        self._try(message, "transact", {})
        row = {"id": {"S": name_of(message)}, "topic": {"S": message.topic}}
        put = {"Put": {"TableName": BUSINESS_TABLE, "Item": row}}
        (ref,) = self._until_known(lambda: self._outbox.transact([put], message, token=message.id))
        self._acknowledged(message, ref)
        return ref

    def add_many(self, messages: Sequence[Message]) -> list[MessageRef]:
        """Publish several messages together; repeat those that were not written."""
        for message in messages:
            self._try(message, "many", {})
        refs = self._until_known(lambda: self._all(messages))
        for message, ref in zip(messages, refs, strict=True):
            self._acknowledged(message, ref)
        return refs

    def _all(self, messages: Sequence[Message]) -> list[MessageRef]:
        try:
            return self._outbox.add_many(messages)
        except MessagesNotWritten as error:
            raise Unavailable("add_many", str(error)) from error

    def post(self, message: Message) -> MessageRef:
        """Publish over the HTTP API as a CloudEvent, whose id is its deduplication key."""
        self._try(message, "post", {})
        ref = self._until_known(lambda: self._post(message))
        self._acknowledged(message, ref)
        return ref

    def _post(self, message: Message) -> MessageRef:
        headers = {
            "content-type": message.content_type,
            "ce-specversion": "1.0",
            "ce-id": name_of(message),
            "ce-source": "/chaos",
            "ce-type": "chaos",
        }
        connection = HTTPConnection(self._api, timeout=_HTTP_SECONDS)
        try:
            connection.request("POST", f"/topics/{message.topic}/messages", message.body, headers)
            answer = connection.getresponse()
            status, text = answer.status, answer.read()
        except (OSError, HTTPException) as error:
            raise Unavailable("post", str(error)) from error
        finally:
            connection.close()
        if status == _ACCEPTED:
            return MessageRef.parse(json.loads(text)["refs"][0])
        if _BAD_REQUEST <= status < _SERVER_ERROR and status != _TOO_MANY:
            raise RefusedError(f"the API answered {status}: {text.decode(errors='replace')}")
        raise Unavailable("post", f"status {status}")

    def _try(self, message: Message, how: str, fields: dict[str, Any]) -> None:
        place = {"topic": message.topic, "key": message.partition_key}
        id_ = None if how == "post" else message.id
        self._journal.write(t="try", n=name_of(message), how=how, id=id_, **place, **fields)

    def _acknowledged(self, message: Message, ref: MessageRef) -> None:
        self._journal.write(t="ok", n=name_of(message), topic=message.topic, ref=str(ref))

    def _until_known(self, publish: Callable[[], Published]) -> Published:
        while True:
            try:
                return publish()
            except (Throttled, Unavailable):
                self._pause()


def body_of(name: str, *, edition: int = 0, poison: bool = False, padding: int = 0) -> bytes:
    """Return a body with the message's name, its edition, and whether it is poison."""
    found: dict[str, Any] = {"n": name, "e": edition, "pad": "x" * padding}
    if poison:
        found["poison"] = True
    return json.dumps(found).encode()


def name_of(message: Message) -> str:
    """Return the name in a message's body."""
    return str(json.loads(message.body)["n"])

"""An event as a producer sends it, and the message that it becomes."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING

from fairbox.errors import InvalidInput
from fairbox.model import event_attributes as attributes
from fairbox.model.ids import check_item
from fairbox.model.messages import Message, check_text

if TYPE_CHECKING:
    from collections.abc import Mapping

_OPTIONAL = ("subject", "time", "dataschema", "datacontenttype", "partitionkey")
OWN = frozenset(("id", "source", "type", *_OPTIONAL))


@dataclass(frozen=True, kw_only=True, slots=True)
class CloudEvent:
    """An event of CloudEvents 1.0.

    Attributes:
        id, source: together they name the event.
        type: the kind of event.
        specversion: `1.0`.
        time: RFC 3339 text, as the producer wrote it.
        subject, dataschema: as the producer wrote them.
        datacontenttype: media type of the data; None: not said.
        partitionkey: the standard extension; at most 256 bytes in a message.
        extensions: the other attributes, in their canonical text.
        data: the bytes; those of a JSON value as the producer wrote it.

    Raises:
        InvalidInput: an attribute has an invalid value; the field is `ce.NAME`.
    """

    id: str
    source: str
    type: str
    specversion: str = attributes.SPECVERSION
    time: str | None = None
    subject: str | None = None
    datacontenttype: str | None = None
    dataschema: str | None = None
    partitionkey: str | None = None
    extensions: Mapping[str, str] = field(default_factory=dict)
    data: bytes = b""

    def __post_init__(self) -> None:
        if self.specversion != attributes.SPECVERSION:
            raise InvalidInput("ce.specversion", "'1.0'")

        for name in ("id", "source", "type"):
            _check(name, getattr(self, name))
        for name in _OPTIONAL:
            if (value := getattr(self, name)) is not None:
                _check(name, value)

        for name, value in self.extensions.items():
            known = name in OWN or name in attributes.MEMBERS
            if known or not attributes.is_name(name):
                raise InvalidInput(
                    f"ce.{_shown(name)}", "a name of 1 to 64 lower-case letters and digits"
                )
            _check(name, value)

        # a frozen class would still share a mapping that its caller can change
        object.__setattr__(self, "extensions", MappingProxyType(dict(self.extensions)))

    @property
    def dedup_key(self) -> str:
        """The same for the same source and id: SHA-256, in hex, of source, a NUL, and id."""
        return hashlib.sha256(f"{self.source}\0{self.id}".encode()).hexdigest()

    def to_message(
        self,
        topic: str,
        *,
        delay: float = 0,
        fairness_key: str | None = None,
        message_id: str = "",
    ) -> Message:
        """Return the message that carries the event.

        Its headers `ce-NAME` keep the producer's attributes, from which the envelope is made again;
        the extension `batchitem` is its batch item, `fairnesskey` its fairness key.

        Args:
            topic: where it goes.
            delay: seconds until it is due.
            fairness_key: the tenant that its share is counted for; None: that of the event.
            message_id: a UUIDv7; made by `Message` unless it is given.

        Raises:
            InvalidInput: the message would not be one; the error names the field.
        """
        check_text("ce.partitionkey", self.partitionkey)
        given = check_text("ce.fairnesskey", self.extensions.get(attributes.FAIRNESS_KEY))
        batch_item = check_item(self.extensions.get(attributes.BATCH_ITEM), field="ce.batchitem")

        headers = {"ce-id": self.id, "ce-source": self.source, "ce-type": self.type}
        for name in ("subject", "time", "dataschema"):
            if (value := getattr(self, name)) is not None:
                headers[f"ce-{name}"] = value
        for name, value in self.extensions.items():
            # the message has a field of its own for each of ours
            if name not in attributes.OURS:
                # tracers look for their headers under names without a prefix
                headers[name if name in attributes.TRACING else f"ce-{name}"] = value

        return Message(
            topic=topic,
            body=self.data,
            content_type=self.datacontenttype or "application/octet-stream",
            partition_key=self.partitionkey,
            # an attribute counts more than a transport header of its name
            headers=self._transport_headers() | headers,
            dedup_key=self.dedup_key,
            fairness_key=given if fairness_key is None else fairness_key,
            batch_item=batch_item,
            delay=delay,
            id=message_id,
        )

    def _transport_headers(self) -> dict[str, str]:
        text = self.extensions.get(attributes.HEADERS)
        if text is None:
            return {}
        try:
            headers = json.loads(text)
        except (ValueError, RecursionError):
            headers = None
        if not isinstance(headers, dict) or not all(isinstance(v, str) for v in headers.values()):
            raise InvalidInput(f"ce.{attributes.HEADERS}", "a JSON object of texts, as text")
        return headers


def _check(name: str, value: object) -> None:
    if not isinstance(value, str):
        raise InvalidInput(f"ce.{name}", "text")
    if (words := attributes.expected(name, value)) is not None:
        raise InvalidInput(f"ce.{name}", words)


def _shown(name: str) -> str:
    # anybody may have sent it: an error shows it escaped, and cut
    return ascii(name)[1:-1][:80]

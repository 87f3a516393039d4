"""Messages as the events of Lambda functions bring them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

from fairbox.errors import InvalidInput, NotConfigured

if TYPE_CHECKING:
    from fairbox.cloudevents import CloudEvent
    from fairbox.model.bodies import BodyStore

Source = Literal["sqs", "sns", "kinesis", "eventbridge", "http", "invocation"]


@dataclass(frozen=True, slots=True)
class Content:
    """A message that could be read: its id, its topic, and the CloudEvent."""

    message_id: str
    topic: str
    cloudevent: CloudEvent


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """A message, as one record of a Lambda event brought it.

    A record that is no message is an `Event` too, so that a batch can report it: everything but
    the attributes below raises `InvalidInput` for it.

    Attributes:
        source: `sqs`, `sns`, `kinesis`, `eventbridge`, `http` or `invocation`.
        record_id: the record's name in `batchItemFailures`; None: the source reports no records.
        group: records of one group arrive in order, so after a failure the later ones must wait;
            None: the record has no order.
    """

    source: Source
    record_id: str | None = None
    group: str | None = None
    content: Content | InvalidInput = field(repr=False)

    @property
    def message_id(self) -> str:
        """The message's id in Fairbox, the same in every delivery; of a webhook, the signed one."""
        return self._read().message_id

    @property
    def topic(self) -> str:
        """The message's topic. The signature of a webhook does not cover it."""
        return self._read().topic

    @property
    def cloudevent(self) -> CloudEvent:
        """The envelope. The signature of a webhook covers its data, and no attribute."""
        return self._read().cloudevent

    def body(self, bodies: BodyStore | None = None) -> bytes:
        """Return the message's body.

        Args:
            bodies: the store of offloaded bodies (`fairbox.aws.s3_bodies.S3Bodies`), for messages
                whose body did not fit the destination.

        Raises:
            InvalidInput: the record is no message, or its body lies in another bucket.
            NotConfigured: the body is offloaded, and there are no `bodies`.
            Unavailable: the body could not be read.
        """
        event = self.cloudevent
        uri = event.extensions.get("dataref")
        if uri is None:
            return event.data
        if bodies is None:
            raise NotConfigured(f"bodies: the body lies at {uri}")
        root = f"s3://{bodies.bucket}/"
        # the envelope may name any object: only bodies of this bucket are read
        if not uri.startswith(root):
            raise InvalidInput("ce.dataref", f"an object of bucket {bodies.bucket}")
        return bodies.get(bodies.bucket, uri.removeprefix(root))

    def _read(self) -> Content:
        if isinstance(self.content, InvalidInput):
            raise self.content
        return self.content

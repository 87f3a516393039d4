"""New content of a dead letter: body, headers and media type."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from fairbox.tables.stored_messages import EDITS, OFFLOADED, Offloaded, message_item, number

if TYPE_CHECKING:
    from collections.abc import Mapping
    from random import Random

    from fairbox.model.bodies import BodyStore
    from fairbox.model.messages import Message
    from fairbox.tables.keys import Item
    from fairbox.tables.stored_messages import StoredMessage


@dataclass(frozen=True, slots=True, kw_only=True)
class Content:
    """New content of a message; a field that is None keeps its old value.

    Attributes:
        headers: all of them.
    """

    body: bytes | None = None
    headers: Mapping[str, str] | None = None
    content_type: str | None = None

    @property
    def given(self) -> bool:
        """Whether anything is to change."""
        return (self.body, self.headers, self.content_type) != (None, None, None)

    def applied(self, message: Message) -> Message:
        """Return a message with this content in place of its own.

        Raises:
            InvalidInput: a field is invalid.
        """
        return message.with_content(
            body=self.body, headers=self.headers, content_type=self.content_type
        )

    def edit(
        self, letter: StoredMessage, bodies: BodyStore | None, rng: Random
    ) -> tuple[Item, Offloaded | None]:
        """Return the attributes of the edited dead letter, and the place of its new body.

        A body that does not fit an item is stored beside the old one, which stays valid.

        Raises:
            InvalidInput: a field is invalid.
            BodyTooLarge: there is no bucket for its body.
            Unavailable: the body could not be stored.
        """
        changed = self.applied(letter.message)

        stored: Offloaded | None = None
        if self.body is None:
            # imported here: the command line, which checks content, gives help without the SDK
            from fairbox.tables.stored_messages import published_item  # noqa: PLC0415

            item = published_item(replace(letter, message=changed))
        else:
            bucket = None if bodies is None else bodies.bucket
            item, body = message_item(changed, letter.ref, bucket=bucket)
            if body is not None and bodies is not None:
                # a random key: a concurrent edit must not overwrite the body that this one commits
                key = f"{body[0]}-{letter.edits + 1}-{rng.getrandbits(64):016x}"
                stored = Offloaded(bodies.bucket, key)
                item[OFFLOADED] = {"S": f"{stored.bucket}/{stored.key}"}
                bodies.put(key, body[1], changed.content_type)

        return item | {EDITS: number(letter.edits + 1)}, stored

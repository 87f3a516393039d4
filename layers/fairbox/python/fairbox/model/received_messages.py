"""Messages as their consumers get them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from fairbox.model.messages import Message


@dataclass(frozen=True, slots=True)
class Received:
    """A message that a consumer holds.

    Attributes:
        message: the message, with its body.
        receipt: proof of the claim, for `ack`, `nack` and `extend`.
        receive_count: number of receives, including this one; from 1.
        visible_at: the time from which others may receive it, in milliseconds since 1970 UTC.
        reason, subscriptions: of a dead letter: the last failure, and those for which it died.
    """

    message: Message
    receipt: str
    receive_count: int
    visible_at: int
    reason: str = ""
    subscriptions: frozenset[str] = frozenset()

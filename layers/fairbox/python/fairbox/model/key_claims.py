"""Claims of keys: a consumer holds one message of a key of an ordered shard until it is done."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final, Literal

if TYPE_CHECKING:
    from fairbox.model.stored_messages import StoredMessage

ClaimState = Literal["claimed", "waiting", "acked"]
MAX_ENTRIES: Final = 64
KEY_BYTES: Final = 8
_DOMAIN: Final = b"fairbox/held\0"


@dataclass(frozen=True, slots=True)
class KeyClaim:
    """A key whose first message was received and is not done with.

    Attributes:
        key: digest of the key; keys of one digest wait for each other.
        id: the message.
        state: `claimed` by a consumer, `waiting` to be received again, or `acked`: to be deleted.
        until: when the claim or the wait ends, in milliseconds since 1970 UTC; of what is acked
            when that was.
        count: how often it was received.
        token: the holder's fencing token.
        follower: the first message of the key that lies before where receives begin; empty: none.
    """

    key: bytes
    id: str
    state: ClaimState
    until: int
    count: int
    token: bytes
    follower: str = ""

    def held(self, now: int) -> bool:
        """Whether a consumer holds the message at `now` (ms)."""
        return self.state == "claimed" and self.until > now

    def held_by(self, token: bytes) -> bool:
        """Whether this token holds the message."""
        return self.state == "claimed" and self.token == token


@dataclass(frozen=True, slots=True)
class KeyClaims:
    """The claims of a shard, as its row has them.

    Attributes:
        version: grows with every change; every change is conditional on it.
        entries: one a key, 64 at most.
        after: all up to this id is held, or behind what is held; empty: begin at the head.
        since: when the lane was last read from its head, in milliseconds since 1970 UTC.
        settled: no older shard of the topic lists the shard's keys.
    """

    version: int = 0
    entries: tuple[KeyClaim, ...] = ()
    after: str = ""
    since: int = 0
    settled: bool = field(default=False, compare=False)

    def entry(self, message_id: str) -> KeyClaim | None:
        """Return the entry of a message; None: it has none."""
        return next((e for e in self.entries if e.id == message_id), None)

    def without(self, entry: KeyClaim, now: int) -> KeyClaims:
        """Return the row when a message is buried: its entry stays, because of its follower.

        The entry waits as if the message had never been received. If a redrive puts the message
        back, its attempts begin anew, and no earlier holder's ack can delete it.
        """
        over = replace(entry, state="waiting", until=now, count=0, token=b"")
        return replace(self, entries=tuple(over if e == entry else e for e in self.entries))


def key_digest(stored: StoredMessage) -> bytes:
    """Return the digest of a message's key; without one each message is a key of its own."""
    text = stored.message.shard_key
    return hashlib.sha256(_DOMAIN + text.encode()).digest()[:KEY_BYTES]

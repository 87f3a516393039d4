"""Receives of stored messages: how many there were, who holds them, and until when."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from fairbox.errors import UnknownTopic
from fairbox.tables.stored_messages import key_digest

if TYPE_CHECKING:
    from fairbox.tables.key_claims import KeyClaims
    from fairbox.tables.stored_messages import StoredMessage
    from fairbox.tables.tables import Tables
    from fairbox.tables.topic_cache import ProducerTopics

State = Literal["outstanding", "held", "waiting", "dead"]


@dataclass(frozen=True, slots=True)
class Receives:
    """The receives of a message so far.

    Attributes:
        count: how many there were, as far as it was not put back from the dead letters.
        held_until: when others may receive it, in milliseconds since 1970 UTC; None: nobody holds
            it.
        consumer: the name that its holder gave; empty: none, or an ordered topic.
    """

    count: int = 0
    held_until: int | None = None
    consumer: str = ""


NEVER = Receives()


class MessageReceives:
    """Reads the receives of messages; each row of an ordered topic's shard is read once.

    Args:
        topics: this process's copies of topics.
        now: the time for which it is said, in milliseconds since 1970 UTC.
    """

    def __init__(self, tables: Tables, topics: ProducerTopics, now: int) -> None:
        self._rows = tables.key_claims
        self._aside = tables.keys_aside
        self._topics = topics
        self._now = now
        self._in_row: dict[str, bool] = {}
        self._read: dict[tuple[str, int, int], KeyClaims] = {}

    def of(self, stored: StoredMessage) -> Receives:
        """Return the receives of a message as it was read (on ordered topics 1 RRU a shard)."""
        if stored.lane == "dead":
            return NEVER
        if self._ordered(stored.ref.topic):
            return self._of_row(stored)

        claim = stored.claim
        if claim is None:
            return NEVER
        active = bool(claim.token) and claim.until > self._now
        return Receives(
            claim.count, claim.until if active else None, claim.consumer if active else ""
        )

    def state(self, stored: StoredMessage, receives: Receives) -> State:
        """Return the state of a message: dead, held, waiting until it is due, or outstanding."""
        if stored.lane == "dead":
            return "dead"
        if receives.held_until is not None:
            return "held"
        return "waiting" if (stored.ref.due or 0) > self._now else "outstanding"

    def _of_row(self, stored: StoredMessage) -> Receives:
        shard = stored.ref.topic, stored.ref.epoch, stored.ref.shard
        if shard not in self._read:
            self._read[shard] = self._rows.get(shard)

        row, message_id = self._read[shard], stored.ref.id
        entry = row.of_key(key_digest(stored))
        # of the keys that wait, the row lists only some
        if entry is None and row.aside.count:
            entry = self._aside.read(shard, row.aside.name, [key_digest(stored)]).get(
                key_digest(stored)
            )

        if entry is None:
            return NEVER
        active = entry.active(self._now) and message_id in entry.claimed
        return Receives(entry.receives_of(message_id), entry.until if active else None)

    def _ordered(self, name: str) -> bool:
        """Whether the claims of a topic lie in the rows of its shards."""
        if name not in self._in_row:
            try:
                topic = self._topics.get(name)
            except UnknownTopic:
                self._in_row[name] = False
            else:
                self._in_row[name] = topic.topic.ordering == "key" and not topic.pushed
        return self._in_row[name]

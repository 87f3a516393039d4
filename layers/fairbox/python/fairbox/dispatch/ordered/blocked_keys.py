"""Dead letters that block their keys: whether a blocked key may go on."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fairbox.model.messages import MessageRef
from fairbox.tables.deferred_keys import name_digest

if TYPE_CHECKING:
    from collections.abc import Sequence

    from fairbox.model.topics import TopicState
    from fairbox.tables.deferred_keys import DeferredKey
    from fairbox.tables.stored_messages import StoredMessage
    from fairbox.tables.tables import Tables


class BlockingLetters:
    """Reads the dead letters of one shard.

    Args:
        tables: the tables.
        topic: the shard's; keys wait for their dead letters only if it says `block`.
        shard: topic, epoch and shard.
    """

    def __init__(self, tables: Tables, topic: TopicState, shard: tuple[str, int, int]) -> None:
        self._tables = tables
        self._topic = topic
        self._shard = shard

    def block(self, entry: DeferredKey, *, lying: bool = False) -> bool:
        """Whether a dead letter, or its message if it is `lying`, blocks its key (4 RRU)."""
        if self._topic.topic.on_dead != "block":
            return False
        stored, dead = self._tables.outstanding_or_dead(MessageRef(*self._shard, entry.id))
        if stored is not None and stored.gone == "dead":
            return True
        lacking = frozenset[str]()
        if lying and stored is not None and stored.gone is None:
            lacking = stored.lacking(self._topic.subscription_names)
        pending = frozenset[str]() if dead is None else dead.pending or frozenset()
        return entry.subscription in map(name_digest, lacking | pending)

    def stuck(
        self, entries: Sequence[DeferredKey], found: Sequence[StoredMessage]
    ) -> list[DeferredKey]:
        """Return the blocked entries that must stay although their letters were seen redriven.

        A redriven message may have died again before it was read, or come back after. In its place
        it looks like one that was delivered (4 RRU if it was not found).

        Args:
            entries: the due entries.
            found: their messages that were read, outstanding ones only.
        """
        names = self._topic.subscription_names
        there = {(name_digest(n), m.ref.id) for m in found for n in m.lacking(names)}
        blocked = [e for e in entries if e.state == "blocked"]
        missing = [e for e in blocked if (e.subscription, e.id) not in there]
        return [e for e in missing if self.block(e, lying=True)]

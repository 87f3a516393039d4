"""Replay: messages put back in order, each exactly once, whichever process dies on the way."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Final

from fairbox.client.outbox_context import OutboxPart
from fairbox.client.publishing import place_all
from fairbox.errors import InvalidInput, Unavailable
from fairbox.model.messages import Message, MessageRef, Shard
from fairbox.model.swap import swap
from fairbox.tables.key_claims import KeyClaims, KeyClaimTable
from fairbox.tables.keys import message_key
from fairbox.tables.message_inserts import MAX_TRANSACTION, NewMessage
from fairbox.tables.stored_messages import read_message

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence


MAX_REPLAYED: Final = MAX_TRANSACTION - 1
"""Messages of one step; the cursor is the transaction's hundredth action."""


@dataclass(frozen=True, slots=True)
class ReplayStep:
    """The result of one step.

    Attributes:
        position: the position of the cursor now.
        added: the messages that this step put into the outbox.
        outstanding: the messages that were outstanding already and are unchanged, and those whose
            deduplication key was seen within its window.
    """

    position: int
    added: tuple[MessageRef, ...] = ()
    outstanding: tuple[MessageRef, ...] = ()


class MessageReplay(OutboxPart):
    """Publishes in steps, each of them exactly once."""

    def replay_position(self, cursor: str) -> int:
        """Return the position of a replay's cursor; 0 at first (1 RRU)."""
        return self._context.inserts.cursor_position(cursor)

    def outstanding_among(self, refs: Iterable[MessageRef]) -> frozenset[MessageRef]:
        """Return those of the refs whose messages are outstanding (1 RRU each, consistent).

        A delayed one (2 RRU) is looked for where it waits and where a redrive has put it.
        """
        places = {ref: {ref, replace(ref, due=None)} for ref in refs}
        items = self.tables.lanes.items(list(set().union(*places.values())))
        found = {stored.ref for stored in map(read_message, items) if stored.gone is None}
        return frozenset(ref for ref, there in places.items() if there & found)

    def replay(
        self, messages: Sequence[Message], *, cursor: str, position: int, to: int
    ) -> ReplayStep:
        """Publish messages and advance the cursor, in one transaction.

        A step is written once: a process that repeats it finds the cursor moved, and writes
        nothing. It costs 2 WRU a KB for each message, and 2 for the cursor; on ordered queues 1 RRU
        more for each shard, and 1 WRU a KB of its row if that still lists one as acknowledged.

        Args:
            messages: at most 99, of 4 MB together; of those with one id the first is written.
            cursor: names the replay, and its part if it has several.
            position: the position of the cursor before the step.
            to: its position after the step.

        Returns:
            The messages written; none, and the cursor's real position, if it was not at `position`.

        Raises:
            InvalidInput: too many messages, or the cursor would not advance.
            UnknownTopic: there is no such topic.
            TopicFull: a topic has no room for its messages; nothing was written.
            Throttled, Unavailable: it may or may not be written; repeat it.
        """
        if len(messages) > MAX_REPLAYED:
            raise InvalidInput("messages", f"at most {MAX_REPLAYED} in a step")
        if to <= position:
            raise InvalidInput("to", f"a position behind {position}")

        context = self._context
        left: dict[MessageRef, NewMessage] = {}
        for new in place_all(messages, context):
            left.setdefault(new.ref, new)
        self._unmark(left)

        outstanding: list[MessageRef] = []
        while refused := context.inserts.add_step(left.values(), cursor, position, to):
            # an earlier call has written this step
            if refused.position is not None:
                return ReplayStep(refused.position)
            # the whole step was refused: it is written without these
            outstanding += refused.outstanding
            for ref in refused.outstanding:
                del left[ref]

        return ReplayStep(to, tuple(left), tuple(outstanding))

    def _unmark(self, refs: Iterable[MessageRef]) -> None:
        """Remove messages from the acknowledged ids in the rows of ordered queues.

        A receive would take a replayed message for the leftover of a crash, and delete it. So the
        leftovers are deleted here.
        """
        shards: dict[Shard, set[str]] = defaultdict(set)
        for ref in refs:
            topic = self._context.topics.get(ref.topic)
            if topic.topic.ordering == "key" and not topic.pushed:
                shards[ref.topic, ref.epoch, ref.shard].add(ref.id)

        claims = self.tables.key_claims
        for shard, ids in shards.items():
            row = claims.get(shard)
            marked = row.done & ids
            if not marked:
                continue
            # first: once the row does not name it, nobody would know that a leftover is done
            self.tables.lanes.delete([message_key(MessageRef(*shard, i)) for i in sorted(marked)])

            unmarked = partial(KeyClaims.unmarked, message_ids=marked)
            if swap(row, unmarked, partial(_written, claims, shard)) is None:
                raise Unavailable("update_item", "the shard is being changed by others")


def _written(
    claims: KeyClaimTable, shard: Shard, wanted: KeyClaims, read: KeyClaims
) -> KeyClaims | None:
    return claims.write(shard, wanted, read.version)

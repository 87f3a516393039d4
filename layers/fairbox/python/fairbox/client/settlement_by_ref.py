"""Settlement of messages of pulled topics by their refs, whether or not a consumer holds them."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from fairbox.dispatch.burials import finish_marked
from fairbox.errors import MessagesNotFound, Unavailable
from fairbox.model.messages import MessageRef
from fairbox.queue.claims import dying
from fairbox.tables.key_claims import KeyClaim
from fairbox.tables.stored_messages import Claim, StoredMessage, key_digest

if TYPE_CHECKING:
    from fairbox.client.queue_context import QueueContext
    from fairbox.tables.key_claims import KeyClaims
    from fairbox.tables.stored_messages import Gone

Both = tuple[StoredMessage, KeyClaim]
"""A message, and the entry of its key in the row of its shard."""
Change = Callable[[StoredMessage, KeyClaim, int], Both]
"""Returns both as they shall be, of what they are at a time (ms)."""
_CAS_TRIES: Final = 12
_NO_ENTRY: Final = KeyClaim(b"", "", "waiting", 0, 0, b"")  # of an unordered topic or a free key


class SettlementByRef:
    """Settles messages whether consumers hold them or not; the holders' receipts are stale then."""

    def __init__(self, context: QueueContext) -> None:
        self._context = context

    def settle(self, refs: MessageRef | Iterable[MessageRef], change: Change) -> None:
        """Change messages, each where it, or its shard's row, is as it was read.

        Raises:
            UnknownTopic, TopicIsPushed: nothing was changed.
            MessagesNotFound: some are not outstanding; the others are changed.
        """
        given = [refs] if isinstance(refs, MessageRef) else refs
        ordered = {ref: self._context.pulled(ref.topic).topic.ordering == "key" for ref in given}
        missing = [ref for ref in ordered if not self._settled(ref, change, ordered=ordered[ref])]
        if missing:
            raise MessagesNotFound(missing)

    def _settled(self, ref: MessageRef, change: Change, *, ordered: bool) -> bool:
        """Change one message; return whether it was outstanding."""
        tables = self._context.tables
        for _ in range(_CAS_TRIES):
            # the row first: an ack writes it, then deletes the message
            row = tables.key_claims.get((ref.topic, ref.epoch, ref.shard)) if ordered else None
            stored = next(iter(tables.lanes.read([ref])[0]), None)
            if stored is None:
                return False
            if stored.gone:
                finish_marked(tables, [stored])
                return False

            if row is not None and (row := self._with_key(stored, row)) is None:
                # the row has changed: both are read again
                continue
            entry = (row.of_key(key_digest(stored)) if row else None) or _NO_ENTRY
            if ref.id in entry.done:
                # it is acknowledged: only its delete has not been made yet
                return False

            before, both = (stored, entry), change(stored, entry, self._context.now)
            if both == before or self._write(before, both, row):
                self._finish(both[0])
                return True
        raise Unavailable("update_item", "the message is being changed by others")

    def _finish(self, after: StoredMessage) -> None:
        if after.gone:
            finish_marked(self._context.tables, [after])
        elif after.claim is not None and not after.claim.token:
            # also of one that came back before: the call may repeat one that failed here
            self._context.unordered_settlement.come_back([after.ref], self._context.now)

    def _with_key(self, stored: StoredMessage, row: KeyClaims) -> KeyClaims | None:
        """Return a row with a message's key in it, if that waits; None: the row has changed."""
        shard, key = (stored.ref.topic, stored.ref.epoch, stored.ref.shard), key_digest(stored)
        waiting = self._context.ordered.waiting
        return waiting.recall(shard, row, key) if waiting.among(shard, row, [key]) else row

    def _write(self, before: Both, after: Both, row: KeyClaims | None) -> bool:
        """Write a message, or its shard's row, or both; return whether they were as read."""
        tables, (stored, entry), ref = self._context.tables, before, before[0].ref
        if row is None:
            return tables.claims.save(after[0], stored) == "saved"
        shard, changed = (ref.topic, ref.epoch, ref.shard), row.change(entry, after[1])
        # whatever comes of the write, this process's copy of the row is out of date
        self._context.ordered.rows.forget(shard)
        if after[0] == stored:
            return tables.key_claims.write(shard, changed, row.version) is None
        return tables.key_claims.write_with(
            tables.claims.save_action(after[0], stored), shard, changed, row.version
        )


def given_back(stored: StoredMessage, entry: KeyClaim, now: int, *, reset: bool = False) -> Both:
    """Release a message at a time (ms), or end its wait; with `reset` no receive counts."""
    claim, ref = stored.claim, stored.ref
    if claim is not None and (reset or claim.until > now):
        # the receive of a holder is taken back; one that only waits has failed, which counts
        count = 0 if reset else claim.count - bool(claim.token)
        stored = replace(stored, claim=Claim(count, now))
    return stored, entry.forget(ref.id, now) if reset else entry.release(ref.id, now)


def leaving(stored: StoredMessage, entry: KeyClaim, now: int, gone: Gone, reason: str) -> Both:
    """Mark a message as leaving at a time (ms), and free its key."""
    count = stored.claim.count if stored.claim else entry.receives_of(stored.ref.id)
    if gone == "dead":
        marked = dying(stored, max(1, count), now, reason or "buried without a reason")
    else:
        marked = replace(stored, gone=gone, reason=reason)
    return marked, entry.forget(stored.ref.id, now)

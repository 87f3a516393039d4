"""Purge of dead letters: deleted for good, each with its place in the archive and in the counts."""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import islice
from typing import TYPE_CHECKING, Any, Final, Literal

from fairbox.client.message_pages import MAX_PAGE, chooses, find_dead_letters
from fairbox.client.outbox_context import OutboxPart
from fairbox.client.reading import check_limit
from fairbox.dispatch.burials import Burials
from fairbox.errors import MessagesNotFound, TransactionCancelled
from fairbox.model.chunks import chunks
from fairbox.queue.models import check_reason
from fairbox.tables import message_states
from fairbox.tables.dead_letters import DeadLetter, purged_item
from fairbox.tables.shard_rows import ShardRow
from fairbox.tables.write_expressions import put_new

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from fairbox.model.messages import MessageRef
    from fairbox.tables.stored_messages import StoredMessage
    from fairbox.tables.tables import Tables

Purged = Literal["purged", "gone", "left"]
TOGETHER: Final = 50  # two actions each, of the hundred that a transaction takes
_BYTES: Final = 3_000_000  # of the 4 MB that it takes
_ITEM_BYTES: Final = 400_000
_STATE_BYTES: Final = 3_000  # of one subscription: ten failures of 200 characters
_TRIES: Final = 8
_REFUSED: Final = "ConditionalCheckFailed"


@dataclass(frozen=True, slots=True)
class PurgeResult:
    """The result of a purge of dead letters; of a dry run, the expected result.

    Attributes:
        names: names of the deleted dead letters, `topic/epoch/shard/id`, ascending by id; the name
            of an unreadable one ends with the end of its key.
        left: names of unchanged dead letters: other processes kept changing them, or only a newer
            release can read them; call again.
        missing: the given ids that are no dead letters.
        more: whether the limit stopped the purge before another dead letter.
        dry_run: nothing was changed.
    """

    names: tuple[str, ...] = ()
    left: tuple[str, ...] = ()
    missing: tuple[MessageRef | str, ...] = ()
    more: bool = False
    dry_run: bool = False

    @property
    def count(self) -> int:
        """The number of dead letters that were deleted, or would be."""
        return len(self.names)


class DeadLetterPurge(OutboxPart):
    """Deletes dead letters."""

    def purge_dead(
        self,
        topic: str,
        ids: Iterable[str | MessageRef] | None = None,
        *,
        where: Callable[[DeadLetter], bool] | None = None,
        limit: int | None = None,
        dry_run: bool = False,
        reason: str = "",
        progress: Callable[[int], None] | None = None,
    ) -> PurgeResult:
        """Delete a topic's dead letters for good, including unreadable ones.

        On topics with `on_dead="block"`, their keys are unblocked.

        Each dead letter is deleted in one transaction with its count (5 WRU, and 2 more a KB over
        the first), and the archive records it as `purged`. A message that other subscriptions still
        lack stays outstanding for them. The batch item of a dead letter stays failed: only a
        redrive or `Batches.retry` makes it pending again. The call may be repeated after a crash.

        Args:
            topic: the topic.
            ids: message ids, refs or their texts; None: all. An id without a ref is read from every
                shard of its epoch (1 RRU each), a ref from one.
            where: deletes only dead letters for which it is true; `message` of an unreadable one is
                None.
            limit: maximum number.
            dry_run: change nothing, and return the dead letters that would be deleted.
            reason: the reason; the archive keeps 200 characters of it.
            progress: called after each transaction with the number deleted so far.

        Raises:
            UnknownTopic: there is no such topic.
            InvalidInput: an id is invalid, or a ref is another topic's; nothing has changed.
            MessagesNotFound: some of `ids` are no dead letters; `.missing` names them. The others
                are deleted.
            Throttled, Unavailable: call again; deleted ones stay deleted.
        """
        result = self.purge_found(
            topic,
            ids,
            where=where,
            limit=limit,
            dry_run=dry_run,
            reason=reason,
            progress=progress,
        )

        if result.missing:
            raise MessagesNotFound(result.missing)
        return result

    def purge_found(
        self,
        topic: str,
        ids: Iterable[str | MessageRef] | None = None,
        *,
        where: Callable[[DeadLetter], bool] | None = None,
        limit: int | None = None,
        dry_run: bool = False,
        reason: str = "",
        progress: Callable[[int], None] | None = None,
    ) -> PurgeResult:
        """Do as `purge_dead` does, and return missing ids in the result.

        Raises:
            FairboxError: as `purge_dead`, except for missing ids.
        """
        check_limit(limit)
        kept = check_reason(reason)
        missing: list[MessageRef | str] = []

        page = min(MAX_PAGE, limit or MAX_PAGE)
        letters = find_dead_letters(self._context, topic, ids, missing, page=page)
        chosen = (letter for letter in letters if chooses(where, letter))

        names: list[str] = []
        left: list[str] = []
        wanted = islice(chosen, limit)
        while some := list(islice(wanted, TOGETHER)):
            done = ["purged"] * len(some) if dry_run else Purges(self.tables).purge(some, kept)
            ends = list(zip(some, done, strict=True))
            names += [letter.name for letter, end in ends if end == "purged"]
            left += [letter.name for letter, end in ends if end == "left"]
            # messages of its key that waited for it may go now
            for letter, end in ends:
                if not dry_run and end == "purged" and letter.stored is not None:
                    self._context.visit_blocked(letter.stored.ref)
            if progress is not None and not dry_run:
                progress(len(names))

        more = limit is not None and next(chosen, None) is not None
        return PurgeResult(tuple(names), tuple(left), tuple(missing), more=more, dry_run=dry_run)


class Purges:
    """Deletes dead letters.

    The transaction that deletes one puts a small mark into its lane of the outbox: the mark's
    record lowers the count of the dead, as a redrive's does, and its going tells the archive.
    Any reader of a mark that a crash left behind finishes it. An unreadable item, and a message
    that was added once more after it had died, leave no mark; the shard's row takes their count.

    Args:
        same_holder: each is purged only while it is held by who held it when it was read.
    """

    def __init__(self, tables: Tables, *, same_holder: bool = False) -> None:
        self._lanes = tables.lanes
        self._dead = tables.dead
        self._rows = tables.rows
        self._burials = Burials(tables)
        self._same_holder = same_holder

    def purge(self, letters: Sequence[DeadLetter], reason: str) -> list[Purged]:
        """Purge dead letters, fifty a transaction (5 WRU each and 2 more a KB over the first).

        The batch item of a dead letter stays failed. The call may be repeated.

        Args:
            letters: as read from lane `dead`, each once.
            reason: for the archive.

        Returns:
            For each: `purged`; `gone`: it is no longer a dead letter; `left`: others kept changing
            it, or only a newer release can read it.

        Raises:
            Throttled, Unavailable: some are not known to be purged; call again.
        """
        parts = chunks(letters, _size, items_most=TOGETHER, bytes_most=_BYTES)
        return [end for some in parts for end in self._some(some, reason)]

    def _some(self, letters: Sequence[DeadLetter], reason: str) -> list[Purged]:
        stored = [letter.stored for letter in letters if letter.stored is not None]
        actions = [a for one in stored for a in (self._mark(one, reason), self._removal(one))]
        together = True
        try:
            if actions:
                self._lanes.calls.transact(actions)
        except TransactionCancelled:
            # one of them has changed, and nothing is written: now each by itself
            together = False
        done: list[Purged] = []
        for letter in letters:
            if letter.newer:
                done.append("left")
            elif letter.stored is None:
                done.append(self._unreadable(letter))
            elif together:
                done.append("purged")
            else:
                done.append(self._one(letter.stored, reason))
        marks = [one.stored for one, end in zip(letters, done, strict=True) if end == "purged"]
        # 25 a call; those not deleted are left to their readers
        self._lanes.delete_purged([mark for mark in marks if mark is not None])
        return done

    def _one(self, letter: StoredMessage, reason: str) -> Purged:
        there: StoredMessage | None = None
        for _ in range(_TRIES):
            try:
                self._lanes.calls.transact(
                    [self._end(letter, there, reason), self._removal(letter)]
                )
            except TransactionCancelled as cancelled:
                (code, image), (removal, _) = cancelled.reasons[0], cancelled.reasons[1]
            else:
                return "purged"
            # the place of the mark is taken: others lack the message, or it was added again
            if code == _REFUSED and (there is None or there.any_dead):
                there = self._burials.outstanding(image)
                if there is not None and there.redriven > letter.redriven:
                    self._dead.remove(letter)  # written by who came late: it is back already
                    return "gone"
            # the letter may be another since: died for one more, edited, redriven
            if _REFUSED in (code, removal):
                again = self._dead.find(letter.ref)
                if again is None or (self._same_holder and again.holder != letter.holder):
                    return "gone"
                letter = again
        return "left"

    def _unreadable(self, letter: DeadLetter) -> Purged:
        for _ in range(_TRIES):
            counted = self._counted(letter.topic, letter.epoch, letter.shard)
            try:
                self._lanes.calls.transact([counted, self._dead.removal_action(letter)])
            except TransactionCancelled as cancelled:
                if cancelled.reasons[1][0] == _REFUSED:
                    return "gone"
            else:
                return "purged"
        return "left"

    def _end(
        self, letter: StoredMessage, there: StoredMessage | None, reason: str
    ) -> dict[str, Any]:
        """Return the action that decrements the dead count."""
        if there is None:
            return self._mark(letter, reason)
        if not there.any_dead:  # added again when it had died: it knows of no death
            return self._counted(there.ref.topic, there.ref.epoch, there.ref.shard)
        alive = {name: state for name, state in there.states.items() if not state.dead}
        after = replace(there, states=alive, reason=reason)
        return {"Update": message_states.update(self._lanes.table, after, there)}

    def _mark(self, letter: StoredMessage, reason: str) -> dict[str, Any]:
        put = put_new(self._lanes.table, purged_item(letter, reason))
        return {"Put": put | {"ReturnValuesOnConditionCheckFailure": "ALL_OLD"}}

    def _removal(self, letter: StoredMessage) -> dict[str, Any]:
        return {
            "Delete": message_states.unchanged(
                self._dead.table, letter, same_holder=self._same_holder
            )
        }

    def _counted(self, topic: str, epoch: int, shard: int) -> dict[str, Any]:
        """Return the update that decrements the dead count (reads the row: 1 RRU)."""
        found = self._rows.get_many([(topic, epoch, shard)])
        row = found[0] if found else ShardRow(topic, epoch, shard)
        after = replace(row, purged_dead=row.purged_dead + 1)
        # the index lists a shard only while there is something to look for
        if (after.ready, after.later, after.recount) == (0, 0, None) and after.dead <= 0:
            after = replace(after, next_check=None, backoff=0)
        return {"Update": self._rows.change_action(after, row)}


def _size(letter: DeadLetter) -> int:
    states_bytes = _STATE_BYTES * (1 + len(letter.subscriptions))
    # an offloaded body counts with its size, but lies elsewhere: no more than an item takes
    return min(_ITEM_BYTES, letter.stored.size if letter.stored else 0) + states_bytes

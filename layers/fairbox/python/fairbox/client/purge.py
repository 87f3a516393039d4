"""Purge of dead letters: deleted for good, and recorded in the archive."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING

from fairbox.client.dead_letter_search import chooses, find_dead_letters
from fairbox.client.message_pages import MAX_PAGE
from fairbox.client.outbox_context import OutboxPart
from fairbox.client.purges import TOGETHER, Purges
from fairbox.client.reading import check_limit
from fairbox.errors import MessagesNotFound
from fairbox.queue.models import check_reason

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from fairbox.model.messages import MessageRef
    from fairbox.tables.dead_letters import DeadLetter


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
        for some in _parts(islice(chosen, limit)):
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


def _parts(letters: Iterator[DeadLetter]) -> Iterator[list[DeadLetter]]:
    while part := list(islice(letters, TOGETHER)):
        yield part

"""Purging: dead letters deleted for good, with their place in the archive."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING

from fairbox.client.reading import check_limit
from fairbox.client.redrive import Redriving
from fairbox.dynamodb.purges import TOGETHER
from fairbox.errors import MessagesNotFound
from fairbox.queue.models import check_reason

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from fairbox.model.messages import MessageRef
    from fairbox.model.stored_messages import DeadLetter


@dataclass(frozen=True, slots=True)
class PurgeResult:
    """What a purge of dead letters did or, of a dry run, would do.

    Attributes:
        names: of the dead letters deleted, `topic/epoch/shard/id`, ascending by id; of what nothing
            can read, the last part is what its key ended in.
        left: names of those that others kept changing, or that only a newer release can read; they
            are as they were: call again.
        missing: of the ids asked for, those that are no dead letters.
        more: whether the limit stopped it before another.
        dry_run: nothing was changed.
    """

    names: tuple[str, ...] = ()
    left: tuple[str, ...] = ()
    missing: tuple[MessageRef | str, ...] = ()
    more: bool = False
    dry_run: bool = False

    @property
    def count(self) -> int:
        """How many were deleted, or would be."""
        return len(self.names)


class Purging(Redriving):
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
        """Delete a topic's dead letters for good, those that nothing can read among them.

        Of topics with `on_dead="block"` their keys go on.

        Each goes in one transaction with its count (5 WRU, and 2 more a KB over the first), and
        the archive tells of it as `purged`. A message that others still lack stays theirs. The
        batch item of a dead letter stays failed: only a redrive, or `Batches.retry`, puts it back.
        Repeating the call after a crash is safe.

        Args:
            topic: the topic.
            ids: which ones: message ids, refs or their texts; None: all. An id alone is looked for
                in every shard of its epoch (1 RRU each), a ref in one.
            where: of these, only those for which it is true; `message` is None of what nothing can
                read.
            limit: at most so many.
            dry_run: change nothing, and say what would be deleted.
            reason: why, of which the archive keeps 200 characters.
            progress: is told, transaction by transaction, how many are gone.

        Raises:
            UnknownTopic: there is no such topic.
            InvalidInput: an id is none, or a ref is another topic's; nothing has changed.
            MessagesNotFound: some of `ids` are no dead letters; `.missing` names them. The rest is
                deleted.
            Throttled, Unavailable: call again; what is deleted stays so.
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
        """Do as `purge_dead` does, and say in the result what is missing.

        Raises:
            FairboxError: as `purge_dead`, but for what is missing.
        """
        check_limit(limit)
        kept = check_reason(reason)
        missing: list[MessageRef | str] = []
        letters = self.dead_letters(topic, ids, missing, page=min(100, limit or 100))
        chosen = (letter for letter in letters if where is None or where(letter))
        blocks = self._topics.get(topic).topic.on_dead == "block"
        names: list[str] = []
        left: list[str] = []
        for some in _parts(islice(chosen, limit)):
            done = ["purged"] * len(some) if dry_run else self.tables.purges.purge(some, kept)
            ends = list(zip(some, done, strict=True))
            names += [letter.name for letter, end in ends if end == "purged"]
            left += [letter.name for letter, end in ends if end == "left"]
            if blocks and not dry_run:
                self._ring_for(letter for letter, end in ends if end == "purged")
            if progress is not None and not dry_run:
                progress(len(names))
        more = limit is not None and next(chosen, None) is not None
        return PurgeResult(tuple(names), tuple(left), tuple(missing), more=more, dry_run=dry_run)

    def _ring_for(self, letters: Iterable[DeadLetter]) -> None:
        """Ring for the keys that waited for dead letters."""
        for letter in letters:
            if letter.stored is not None:
                self._ring(letter.stored.ref)


def _parts(letters: Iterator[DeadLetter]) -> Iterator[list[DeadLetter]]:
    while part := list(islice(letters, TOGETHER)):
        yield part

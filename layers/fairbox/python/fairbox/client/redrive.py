"""Redrive of dead letters: back into their own shards."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from fairbox.client.dead_letter_content import Content
from fairbox.client.dead_letter_search import chooses, find_dead_letters
from fairbox.client.message_pages import MAX_PAGE
from fairbox.client.outbox_context import OutboxPart
from fairbox.client.reading import check_limit
from fairbox.client.redrives import Redrives
from fairbox.errors import (
    BatchBusy,
    DeadLettersUnreadable,
    FairboxError,
    InvalidInput,
    MessagesNotFound,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from fairbox.client.redrives import Returned
    from fairbox.model.messages import MessageRef
    from fairbox.tables.dead_letters import DeadLetter
    from fairbox.tables.stored_messages import StoredMessage


@dataclass(frozen=True, slots=True)
class RedriveResult:
    """The result of a redrive; of a dry run, the expected result.

    Attributes:
        refs: the messages put back, oldest first.
        left: unchanged dead letters: other processes kept changing them, or the group of their
            batch item; call again.
        unreadable: names of dead letters that are no messages and were skipped:
            `topic/epoch/shard/` and the end of the key.
        missing: the given ids that are no dead letters.
        more: whether the limit stopped the redrive before a dead letter that could be put back.
        dry_run: nothing was changed.
    """

    refs: tuple[MessageRef, ...] = ()
    left: tuple[MessageRef, ...] = ()
    unreadable: tuple[str, ...] = ()
    missing: tuple[MessageRef | str, ...] = ()
    more: bool = False
    dry_run: bool = False

    @property
    def count(self) -> int:
        """The number of messages that were put back, or would be."""
        return len(self.refs)


class DeadLetterRedrive(OutboxPart):
    """Puts dead letters back."""

    def redrive(
        self,
        topic: str,
        ids: Iterable[str | MessageRef] | None = None,
        *,
        where: Callable[[DeadLetter], bool] | None = None,
        limit: int | None = None,
        dry_run: bool = False,
        body: bytes | None = None,
        headers: Mapping[str, str] | None = None,
        content_type: str | None = None,
    ) -> RedriveResult:
        """Put a topic's dead letters back, oldest first, for the subscriptions that they died for.

        Each message returns in one transaction (4 WRU a KB) to its own shard, under its own key: on
        an ordered topic it has its old place among the messages of its key. The same transaction
        makes its batch item pending again, unless the batch has ended. The call may be repeated
        after a crash: no message is put back twice.

        One dead letter may be edited in the same transaction. It keeps its id, key, place and
        deduplication key, and the archive keeps the content that was published first.

        Args:
            topic: the topic.
            ids: message ids, refs or their texts; None: all. An id without a ref is read from every
                shard of the topic's epochs (1 RRU each), a ref from one.
            where: puts back only dead letters for which it is true, by reason, time, message or
                subscriptions; called with readable ones only.
            limit: maximum number.
            dry_run: change nothing, and return the messages that would be put back.
            body: a new body, if `ids` names one dead letter; None: unchanged.
            headers: new headers, which replace all old ones; None: unchanged.
            content_type: a new media type; None: unchanged.

        Raises:
            UnknownTopic: there is no such topic.
            InvalidInput: an id is invalid, a ref is another topic's, or content is invalid or given
                for several ids; nothing has changed.
            BodyTooLarge: the body does not fit an item, and there is no bucket; nothing has
                changed.
            MessagesOutstanding: other subscriptions still lack the message to be edited; nothing
                has changed.
            MessagesNotFound: some of `ids` are no dead letters; `.missing` names them. The others
                are put back.
            DeadLettersUnreadable: some of `ids` are no messages. The others are put back.
            NotConfigured: a message carries a batch item, and there is no batches table.
            Throttled, Unavailable: call again; messages that were put back stay.
        """
        result = self.redrive_found(
            topic,
            ids,
            where=where,
            limit=limit,
            dry_run=dry_run,
            body=body,
            headers=headers,
            content_type=content_type,
        )

        if result.missing:
            raise MessagesNotFound(result.missing)
        if ids is not None and result.unreadable:
            raise DeadLettersUnreadable(result.unreadable)
        return result

    def redrive_found(
        self,
        topic: str,
        ids: Iterable[str | MessageRef] | None = None,
        *,
        where: Callable[[DeadLetter], bool] | None = None,
        limit: int | None = None,
        dry_run: bool = False,
        body: bytes | None = None,
        headers: Mapping[str, str] | None = None,
        content_type: str | None = None,
    ) -> RedriveResult:
        """Do as `redrive` does, and return missing and unreadable ones in the result.

        Raises:
            FairboxError: as `redrive`, except for missing and unreadable ones.
        """
        check_limit(limit)
        content = Content(body=body, headers=headers, content_type=content_type)
        if content.given:
            ids = list(ids or ())
            if len(ids) != 1:
                raise InvalidInput("ids", "one id, where its content is edited")

        missing: list[MessageRef | str] = []
        unreadable: list[str] = []
        letters = find_dead_letters(
            self._context, topic, ids, missing, page=min(MAX_PAGE, limit or MAX_PAGE)
        )
        chosen = _readable(letters, where, unreadable)
        result = self._put_back(chosen, limit, content, dry_run=dry_run)
        return replace(result, unreadable=tuple(unreadable), missing=tuple(missing))

    def dead_letters(
        self,
        topic: str,
        ids: Iterable[str | MessageRef] | None,
        missing: list[MessageRef | str],
        *,
        page: int,
    ) -> Iterator[DeadLetter]:
        """Yield a topic's dead letters, ascending by id: those with these ids, or all.

        Args:
            topic: the topic.
            ids: as `redrive` takes them; None: all.
            missing: ids that are no dead letters are added here, when the first letter is asked
                for.
            page: dead letters per query, if all are read.

        Raises:
            UnknownTopic: there is no such topic.
            InvalidInput: an id is invalid, or a ref is another topic's.
        """
        return find_dead_letters(self._context, topic, ids, missing, page=page)

    def _put_back(
        self,
        chosen: Iterator[StoredMessage],
        limit: int | None,
        content: Content,
        *,
        dry_run: bool,
    ) -> RedriveResult:
        refs: list[MessageRef] = []
        left: list[MessageRef] = []
        more = False

        for letter in chosen:
            more = limit is not None and len(refs) >= limit
            if more:
                break
            try:
                # new content is checked in a dry run too
                content.applied(letter.message)
                returned = "inserted" if dry_run else self._put(letter, content)
            except BatchBusy:
                left.append(letter.ref)
                continue

            refs += [] if returned == "gone" else [letter.ref]
            if returned == "merged":
                # an update is no insert: it does not wake the relay
                self._context.visit(letter.ref)

        return RedriveResult(tuple(refs), tuple(left), more=more, dry_run=dry_run)

    def _put(self, letter: StoredMessage, content: Content) -> Returned:
        if not content.given:
            return Redrives(self.tables).put_back(letter)

        item, stored = content.edit(letter, self.tables.bodies, self.tables.calls.rng)
        back = False
        try:
            back = Redrives(self.tables).put_back(letter, item) == "inserted"
        finally:
            # of the old and the new body, the one that no item names is to go
            unused = stored if not back else letter.offloaded if content.body is not None else None
            if unused is not None and self.tables.bodies is not None:
                with suppress(FairboxError):  # the body stays unused, and harms nobody
                    self.tables.bodies.expire(unused.bucket, unused.key)

        return "inserted" if back else "gone"


def _readable(
    letters: Iterable[DeadLetter],
    where: Callable[[DeadLetter], bool] | None,
    unreadable: list[str],
) -> Iterator[StoredMessage]:
    """Yield the wanted messages among dead letters; add the names of unreadable ones."""
    for letter in letters:
        if letter.stored is None:
            unreadable.append(letter.name)
        elif chooses(where, letter):
            yield letter.stored

"""Redriving: dead letters back into their own shards."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from fairbox.client import message_pages as listing
from fairbox.client.context import OpenTables
from fairbox.client.dead_letter_content import Content
from fairbox.client.reading import check_limit
from fairbox.codec.dead_letters import read_dead
from fairbox.dispatch.ports import Doorbell
from fairbox.errors import (
    BatchBusy,
    DeadLettersUnreadable,
    FairboxError,
    InvalidInput,
    MessagesNotFound,
)
from fairbox.model.ids import parse_id
from fairbox.model.messages import MessageRef

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from fairbox.dynamodb.redrives import Returned
    from fairbox.model.stored_messages import DeadLetter, StoredMessage
    from fairbox.model.topics import TopicState


@dataclass(frozen=True, slots=True)
class RedriveResult:
    """What a redrive did or, of a dry run, would do.

    Attributes:
        refs: the messages put back, oldest first.
        left: dead letters that others kept changing, or whose batch item's group they did; they
            are as they were: call again.
        unreadable: dead letters that are no messages, passed over: `topic/epoch/shard/` and what
            the key ends in.
        missing: of the ids asked for, those that are no dead letters.
        more: whether the limit stopped it before a dead letter that could be put back.
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
        """How many were put back, or would be."""
        return len(self.refs)


class Redriving(OpenTables):
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

        Each goes in one transaction (4 WRU a KB) into its own shard, under its own key: on an
        ordered topic it has its old place among its key's. A batch item that it carries is pending
        again by the same transaction, unless its batch has ended. Repeating the call after a crash
        is safe: no message is put back twice.

        One dead letter may be edited on its way, in the same transaction: it keeps its id, key and
        place, its deduplication key too, and the archive keeps what was published at first.

        Args:
            topic: the topic.
            ids: which ones: message ids, refs or their texts; None: all. An id alone is looked for
                in every shard of the topic's epochs (1 RRU each), a ref in one.
            where: of these, only those for which it is true, by reason, time, message or
                subscriptions; called with readable ones only.
            limit: at most so many.
            dry_run: change nothing, and say what would be put back.
            body: in place of its own, where `ids` names one dead letter; None: as it is.
            headers: the same of the headers, all of them.
            content_type: the same of the media type.

        Raises:
            UnknownTopic: there is no such topic.
            InvalidInput: an id is none, or a ref is another topic's, or content is given for other
                than one id, or is not what a message takes; nothing has changed.
            BodyTooLarge: the body fits no item, and there is no bucket; nothing has changed.
            MessagesOutstanding: other subscriptions still lack the message that is edited; nothing
                has changed.
            MessagesNotFound: some of `ids` are no dead letters; `.missing` names them. The rest is
                put back.
            DeadLettersUnreadable: some of `ids` are no messages. The rest is put back.
            NotConfigured: a message carries a batch item, and there is no batches table.
            Throttled, Unavailable: call again; what is put back stays so.
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
        """Do as `redrive` does, and say in the result what is missing or unreadable.

        Raises:
            FairboxError: as `redrive`, but for what is missing or unreadable.
        """
        check_limit(limit)
        content = Content(body=body, headers=headers, content_type=content_type)
        if content.given:
            ids = list(ids or ())
            if len(ids) != 1:
                raise InvalidInput("ids", "one id, where its content is edited")
        missing: list[MessageRef | str] = []
        unreadable: list[str] = []
        letters = self.dead_letters(topic, ids, missing, page=min(listing.MAX_PAGE, limit or 100))
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
        """Yield a topic's dead letters, ascending by id: those of these ids, or all.

        Args:
            topic: the topic.
            ids: as `redrive` takes them; None: all.
            missing: ids that are no dead letters are added here, once the first is asked for.
            page: how many to a query, of all.

        Raises:
            UnknownTopic: there is no such topic.
            InvalidInput: an id is none, or a ref is another topic's.
        """
        state = self._topics.get(topic)
        if ids is None:
            return listing.dead(self.tables, state, page=page)
        return self._named(_candidates(state, ids), missing)

    def _named(
        self, wanted: Mapping[MessageRef | str, list[MessageRef]], missing: list[MessageRef | str]
    ) -> Iterator[DeadLetter]:
        """Yield the dead letters that lie at one of the places named, ascending by id."""
        places = [ref for refs in wanted.values() for ref in refs]
        letters = [read_dead(item) for item in self.tables.dead.items(places)]
        found = {(letter.epoch, letter.shard, letter.id) for letter in letters}
        missing += [
            name
            for name, refs in wanted.items()
            if not any((ref.epoch, ref.shard, ref.id) in found for ref in refs)
        ]
        yield from sorted(letters, key=lambda letter: letter.id)

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
                content.applied(letter.message)
                returned = "inserted" if dry_run else self._put(letter, content)
            except BatchBusy:
                left.append(letter.ref)
                continue
            refs += [] if returned == "gone" else [letter.ref]
            if returned == "merged":
                self._ring(letter.ref)
        return RedriveResult(tuple(refs), tuple(left), more=more, dry_run=dry_run)

    def _put(self, letter: StoredMessage, content: Content) -> Returned:
        if not content.given:
            return self.tables.redrives.put_back(letter)
        item, stored = content.edit(letter, self._bodies, self.tables.calls.rng)
        back = False
        try:
            back = self.tables.redrives.put_back(letter, item) == "inserted"
        finally:
            unused = stored if not back else letter.offloaded if content.body is not None else None
            if unused is not None and self._bodies is not None:
                with suppress(FairboxError):  # it lies there for nothing, and harms nobody
                    self._bodies.expire(unused.bucket, unused.key)
        return "inserted" if back else "gone"

    def _ring(self, ref: MessageRef) -> None:
        """Ring for a message, or the key that waited for it, where no insert wakes the relay."""
        if self._doorbells is not None:
            with suppress(FairboxError):  # the sweep finds it
                self._doorbells.ring([Doorbell(ref.topic, ref.epoch, ref.shard, (ref,))])


def _candidates(
    state: TopicState, ids: Iterable[str | MessageRef]
) -> dict[MessageRef | str, list[MessageRef]]:
    """Return the places where each of these may lie, all of them checked."""
    if isinstance(ids, str):
        raise InvalidInput("ids", "a list of ids or refs, not one text")
    found: dict[MessageRef | str, list[MessageRef]] = {}
    for given in ids:
        try:
            named = MessageRef.parse(given) if isinstance(given, str) and "/" in given else given
            if not isinstance(named, MessageRef):
                parse_id(named)
        except InvalidInput as error:
            raise InvalidInput("ids", f"message ids or refs; of {given!r}: {error}") from None
        if isinstance(named, MessageRef):
            if named.topic != state.topic.name:
                raise InvalidInput("ids", f"refs of topic {state.topic.name!r}, got {named}")
            found[named] = [named]
        else:
            # its time tells the epoch, but for what came when that was closed already
            name = state.topic.name
            found[named] = [
                MessageRef(name, epoch, shard, named) for epoch, shard in state.shards()
            ]
    return found


def _readable(
    letters: Iterable[DeadLetter],
    where: Callable[[DeadLetter], bool] | None,
    unreadable: list[str],
) -> Iterator[StoredMessage]:
    """Yield the messages of these dead letters that are wanted; add the others' names."""
    for letter in letters:
        if letter.stored is None:
            unreadable.append(letter.name)
        elif where is None or where(letter):
            yield letter.stored

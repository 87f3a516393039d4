"""Redrive of dead letters: back into their own shards, as they are or with new content."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final, Literal

from fairbox.client.message_pages import MAX_PAGE, chooses, find_dead_letters
from fairbox.client.outbox_context import OutboxPart
from fairbox.client.reading import check_limit
from fairbox.dispatch.burials import Burials
from fairbox.errors import (
    BatchBusy,
    DeadLettersUnreadable,
    FairboxError,
    InvalidInput,
    MessagesNotFound,
    MessagesOutstanding,
    TransactionCancelled,
)
from fairbox.tables import message_states
from fairbox.tables.dead_letters import DeadLetter, returning_item
from fairbox.tables.stored_messages import (
    EDITS,
    OFFLOADED,
    Offloaded,
    message_item,
    number,
    published_item,
    with_content,
)
from fairbox.tables.write_expressions import put_new

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
    from random import Random

    from fairbox.model.bodies import BodyStore
    from fairbox.model.messages import Message, MessageRef
    from fairbox.tables.keys import Item
    from fairbox.tables.stored_messages import StoredMessage
    from fairbox.tables.tables import Tables

Returned = Literal["inserted", "merged", "gone"]
_TRIES: Final = 8
_REFUSED: Final = "ConditionalCheckFailed"


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


@dataclass(frozen=True, slots=True, kw_only=True)
class Content:
    """New content of a message; a field that is None keeps its old value.

    Attributes:
        headers: all of them.
    """

    body: bytes | None = None
    headers: Mapping[str, str] | None = None
    content_type: str | None = None

    @property
    def given(self) -> bool:
        """Whether anything is to change."""
        return (self.body, self.headers, self.content_type) != (None, None, None)

    def applied(self, message: Message) -> Message:
        """Return a message with this content in place of its own; InvalidInput where it cannot."""
        return message.with_content(
            body=self.body, headers=self.headers, content_type=self.content_type
        )

    def edit(
        self, letter: StoredMessage, bodies: BodyStore | None, rng: Random
    ) -> tuple[Item, Offloaded | None]:
        """Return the attributes of the edited dead letter, and the place of its new body.

        A body that does not fit an item is stored beside the old one, which stays valid.

        Raises:
            InvalidInput: a field is invalid.
            BodyTooLarge: there is no bucket for its body.
            Unavailable: the body could not be stored.
        """
        changed = self.applied(letter.message)

        stored: Offloaded | None = None
        if self.body is None:
            item = published_item(replace(letter, message=changed))
        else:
            bucket = None if bodies is None else bodies.bucket
            item, body = message_item(changed, letter.ref, bucket=bucket)
            if body is not None and bodies is not None:
                # a random key: a concurrent edit must not overwrite the body that this one commits
                key = f"{body[0]}-{letter.edits + 1}-{rng.getrandbits(64):016x}"
                stored = Offloaded(bodies.bucket, key)
                item[OFFLOADED] = {"S": f"{stored.bucket}/{stored.key}"}
                bodies.put(key, body[1], changed.content_type)

        return item | {EDITS: number(letter.edits + 1)}, stored


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


class Redrives:
    """Puts dead letters back into their own lanes."""

    def __init__(self, tables: Tables) -> None:
        self._tables = tables
        self._lanes = tables.lanes
        self._dead = tables.dead
        self._burials = Burials(tables)

    def put_back(self, letter: StoredMessage, edited: Item | None = None) -> Returned:
        """Put a dead letter back for the subscriptions that it died for, with a fresh state.

        4 WRU a KB, and with a batch item the cost of `MessageItems.move`. It may be repeated.

        Args:
            letter: as read from lane `dead`.
            edited: attributes of its content, in place of the old ones, and `EDITS`; None: it comes
                back as it is.

        Returns:
            `inserted`; `merged`: into the message, which others still lack; `gone`: it is no
            longer a dead letter: others have put it back or removed it.

        Raises:
            BatchBusy: others kept changing the message, or its item's group; nothing is written.
            MessagesOutstanding: it is edited, and others still lack it as it is; nothing is
                written.
        """
        there: StoredMessage | None = None
        for _ in range(_TRIES):
            if there is not None and edited is not None:
                raise MessagesOutstanding([letter.ref])
            reasons = self._write(letter, there, edited)
            if reasons is None:
                return "inserted" if there is None else "merged"
            (code, image), (removal, _) = reasons[0], reasons[1]
            # its old place is taken: others lack the message, or it was added again
            if code == _REFUSED:
                there = self._burials.outstanding(image)
                if there is not None and there.redriven > letter.redriven:
                    self._dead.remove(letter)  # written by who came late: it is back already
                    return "gone"
            # the letter may be another since: died for one more, edited, redriven
            if _REFUSED in (code, removal):
                again = self._dead.find(letter.ref)
                if again is None:
                    return "gone"
                letter = again
        raise BatchBusy([str(letter.ref)])

    def _write(
        self, letter: StoredMessage, there: StoredMessage | None, edited: Item | None
    ) -> Sequence[tuple[str, Mapping[str, Any]]] | None:
        """Make the transaction; return None, or the reasons of its two actions of ours."""
        removal = {"Delete": message_states.unchanged(self._dead.table, letter)}
        actions = [self._returning(letter, there, edited), removal]
        item = letter.message.batch_item
        if item is not None:
            # imported where it is used: no cold start pays for it
            from fairbox.batches.message_items import MessageItems  # noqa: PLC0415

            return MessageItems(self._tables).move("retry", item, actions).refused or None
        try:
            self._tables.calls.transact(actions)
        except TransactionCancelled as cancelled:
            return cancelled.reasons
        return None

    def _returning(
        self, letter: StoredMessage, there: StoredMessage | None, edited: Item | None
    ) -> dict[str, Any]:
        if there is None:
            item = returning_item(letter)
            put = put_new(self._lanes.table, item if edited is None else with_content(item, edited))
            return {"Put": put | {"ReturnValuesOnConditionCheckFailure": "ALL_OLD"}}
        pending = None if there.pending is None else there.pending | (letter.pending or frozenset())
        alive = {name: state for name, state in there.states.items() if not state.dead}
        # a new life: writers that have read either one before are refused
        times = max(there.redriven, letter.redriven) + 1
        after = replace(there, pending=pending, states=alive, redriven=times)
        return {"Update": message_states.update(self._lanes.table, after, there)}


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

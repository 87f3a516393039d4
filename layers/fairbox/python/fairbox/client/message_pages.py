"""Lists of a topic's messages: resumable ones of its lanes, and the search for dead letters."""

from __future__ import annotations

import heapq
import inspect
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from fairbox.errors import InvalidInput
from fairbox.model.ids import parse_id
from fairbox.model.messages import MessageRef
from fairbox.tables.dead_letters import DeadLetter, read_dead
from fairbox.tables.keys import due_sk, message_sk

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from fairbox.client.outbox_context import OutboxContext
    from fairbox.model.topic_states import TopicState
    from fairbox.tables.stored_messages import StoredMessage
    from fairbox.tables.tables import Tables

MAX_PAGE: Final = 100
_BEHIND: Final = " "  # sorts directly behind a key and before every longer or greater one


@dataclass(frozen=True, slots=True, order=True)
class Place:
    """The place where a list stopped, ordered by time, then id, then tail.

    Attributes:
        time: milliseconds since 1970 UTC: the due time in `later`, else 0.
        id: the id, or the sort key in lane `dead`.
        tail: distinguishes entries of the same time and id.
    """

    time: int
    id: str
    tail: str = ""


def ready(
    tables: Tables, state: TopicState, *, after: Place | None = None, page: int = MAX_PAGE
) -> Iterator[StoredMessage]:
    """Yield the messages of the topic's `ready` lanes, consistent, ascending by id."""
    bounds: dict[str, Any] = {} if after is None else {"lower": after.id + _BEHIND}
    walks = [
        tables.lanes.walk("ready", state.topic.name, epoch, shard, page=page, **bounds)
        for epoch, shard in state.shards()
    ]
    # each walk is in order, and reads its next page only when the merge comes to it
    return heapq.merge(*walks, key=lambda stored: stored.ref.id)


def later(
    tables: Tables,
    state: TopicState,
    *,
    due_from: int = 0,
    due_until: int | None = None,
    after: Place | None = None,
    page: int = MAX_PAGE,
) -> Iterator[StoredMessage]:
    """Yield the messages of the topic's `later` lanes, consistent, ascending by due time and id.

    Only messages that are due from `due_from` on and before `due_until`, in ms since 1970 UTC.
    """
    lower = due_sk(due_from)
    if after is not None:
        lower = max(lower, message_sk(after.id, after.time, "later") + _BEHIND)

    bounds: dict[str, Any] = {"lower": lower}
    if due_until is not None:
        bounds["upper"] = due_sk(due_until)

    walks = [
        tables.lanes.walk("later", state.topic.name, epoch, shard, page=page, **bounds)
        for epoch, shard in state.shards()
    ]
    return heapq.merge(*walks, key=lambda stored: (stored.ref.due or 0, stored.ref.id))


def dead(
    tables: Tables, state: TopicState, *, after: Place | None = None, page: int = MAX_PAGE
) -> Iterator[DeadLetter]:
    """Yield the topic's dead letters, consistent, ascending by id."""
    walks = [
        tables.dead.walk(
            state.topic.name, epoch, shard, page=page, after=None if after is None else after.id
        )
        for epoch, shard in state.shards()
    ]
    return heapq.merge(*walks, key=lambda letter: letter.id)


def find_dead_letters(
    context: OutboxContext,
    topic: str,
    ids: Iterable[str | MessageRef] | None,
    missing: list[MessageRef | str],
    *,
    page: int,
) -> Iterator[DeadLetter]:
    """Yield a topic's dead letters; see `Outbox.dead_letters`."""
    state = context.topics.get(topic)
    if ids is None:
        return dead(context.tables, state, page=page)
    return _named(context.tables, _candidates(state, ids), missing)


def condition_of(
    subscription: str | None,
    reason: str | None,
    partition_key: str | None,
    died_from: int | None,
    died_until: int | None,
) -> Callable[[DeadLetter], bool] | None:
    """Return whether all that is given holds of a dead letter; None: nothing is.

    Times are milliseconds since 1970 UTC; `died_until` itself is excluded.
    """
    if (subscription, reason, partition_key, died_from, died_until) == (None,) * 5:
        return None

    def accepts(letter: DeadLetter) -> bool:
        key = None if letter.message is None else letter.message.partition_key
        return (
            (subscription is None or subscription in letter.subscriptions)
            and (reason is None or reason in letter.reason)
            and (partition_key is None or partition_key == key)
            and (died_from is None or died_from <= letter.died_at)
            and (died_until is None or letter.died_at < died_until)
        )

    return accepts


def chooses(where: Callable[[DeadLetter], bool] | None, letter: DeadLetter) -> bool:
    """Whether a caller's condition holds for a dead letter; None: for each.

    Raises:
        InvalidInput: its answer is a coroutine, a generator or a class, which is always true.
    """
    answer: object = where is None or where(letter)
    # or Python warns that nobody has awaited it
    if inspect.iscoroutine(answer):
        answer.close()
    if inspect.isawaitable(answer) or inspect.isgenerator(answer) or callable(answer):
        raise InvalidInput("where", f"True or False as its answer, not {type(answer).__name__}")
    return bool(answer)


def _named(
    tables: Tables,
    wanted: Mapping[MessageRef | str, list[MessageRef]],
    missing: list[MessageRef | str],
) -> Iterator[DeadLetter]:
    """Yield the dead letters at the places named, ascending by id."""
    places = [ref for refs in wanted.values() for ref in refs]
    letters = [read_dead(item) for item in tables.dead.items(places)]
    found = {(letter.epoch, letter.shard, letter.id) for letter in letters}
    missing += [
        name
        for name, refs in wanted.items()
        if not any((ref.epoch, ref.shard, ref.id) in found for ref in refs)
    ]
    yield from sorted(letters, key=lambda letter: letter.id)


def _candidates(
    state: TopicState, ids: Iterable[str | MessageRef]
) -> dict[MessageRef | str, list[MessageRef]]:
    """Return, for each id or ref, the places where it may lie; refuse invalid ones."""
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
            # every epoch: a message that was added late is not in the epoch of its id's time
            name = state.topic.name
            found[named] = [
                MessageRef(name, epoch, shard, named) for epoch, shard in state.shards()
            ]

    return found

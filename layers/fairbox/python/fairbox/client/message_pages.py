"""Resumable lists of a topic's messages: its lanes, merged across shards from a place on."""

from __future__ import annotations

import heapq
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from fairbox.tables.keys import due_sk, message_sk

if TYPE_CHECKING:
    from collections.abc import Iterator

    from fairbox.model.topic_states import TopicState
    from fairbox.tables.dead_letters import DeadLetter
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

"""The search for dead letters of a topic: all of them, or those of some ids."""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING

from fairbox.client import message_pages
from fairbox.errors import InvalidInput
from fairbox.model.ids import parse_id
from fairbox.model.messages import MessageRef
from fairbox.tables.dead_letters import read_dead

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from fairbox.client.outbox_context import OutboxContext
    from fairbox.model.topic_states import TopicState
    from fairbox.tables.dead_letters import DeadLetter
    from fairbox.tables.tables import Tables


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
        return message_pages.dead(context.tables, state, page=page)
    return _named(context.tables, _candidates(state, ids), missing)


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

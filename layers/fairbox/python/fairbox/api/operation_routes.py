"""The routes of operators: messages edited, topics purged, paused, deleted, dead letters purged."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final
from urllib.parse import unquote

from fairbox.api.operation_models import (
    MAX_NAMED,
    DeleteTopicQuery,
    DeletingOut,
    EditedOut,
    EditIn,
    PurgedDeadOut,
    PurgeDeadQuery,
    PurgedOut,
    PurgeQuery,
    QueueStatsOut,
    QueueStatsQuery,
)
from fairbox.api.redrive_routes import RedriveWhereIn
from fairbox.api.route import Answer, Route
from fairbox.errors import InvalidInput, MessagesNotFound
from fairbox.model.messages import MessageRef, check_topic
from fairbox.problems import malformed

if TYPE_CHECKING:
    from fairbox.api.api_context import Api
    from fairbox.api.request import Request

_FILTERS: Final = ("subscription", "reason", "partition_key", "died_from", "died_until")


def ref_of(request: Request) -> MessageRef:
    """Return the ref that a request's path ends in.

    Raises:
        Refusal: 400, it is none.
    """
    try:
        return MessageRef.parse(unquote(request.params["ref"]))
    except InvalidInput as error:
        raise malformed(error.field, error.expected) from None


def edit_message(api: Api, request: Request) -> Answer:
    """Change the content of a message that waits and that nobody holds, or when it is due."""
    ref = ref_of(request)
    given = request.model(EditIn)
    content = given.content(request)
    # a due time is part of the item's key: a new one moves the message, and new content does not
    if (given.delay is None) != content.given:
        raise InvalidInput("delay", "either it, or content: `body`, `headers`, `content_type`")

    if given.delay is not None:
        ref = api.queue.reschedule(ref, given.delay)
    else:
        api.queue.edit(
            ref, body=content.body, headers=content.headers, content_type=content.content_type
        )

    return Answer(200, EditedOut(ref=str(ref)))


def purge_topic(api: Api, request: Request) -> Answer:
    """Delete the messages of a topic, held ones too; dead letters stay."""
    topic = check_topic(request.params["topic"])
    query = request.parameters(PurgeQuery)
    count = api.queue.purge(topic, reason=query.reason, limit=query.limit)
    # a full call says that there may be more; the next one then finds none
    return Answer(200, PurgedOut(count=count, more=count >= query.limit))


def purge_dead_letters(api: Api, request: Request) -> Answer:
    """Delete dead letters for good; the batch items that they carry stay failed."""
    topic = check_topic(request.params["topic"])
    query = request.parameters(PurgeDeadQuery)
    ids = None if query.ids is None else [one.strip() for one in query.ids.split(",")]
    if ids is not None and len(ids) > MAX_NAMED:
        raise InvalidInput("ids", f"at most {MAX_NAMED}")

    filters = {name: getattr(query, name) for name in _FILTERS}
    given = any(value is not None for value in filters.values())
    where = RedriveWhereIn(**filters).accepts if given else None

    # ids are looked up first: one that is no dead letter refuses the whole request
    for dry_run in (True, False) if ids is not None and not query.dry_run else (query.dry_run,):
        result = api.outbox.purge_found(
            topic, ids, where=where, limit=query.limit, dry_run=dry_run, reason=query.note
        )
        if result.missing and dry_run:
            raise MessagesNotFound(result.missing)

    return Answer(
        200,
        PurgedDeadOut(
            count=result.count,
            names=list(result.names),
            left=list(result.left),
            more=result.more,
            dry_run=query.dry_run,
        ),
    )


def show_queue_stats(api: Api, request: Request) -> Answer:
    """Show a topic's figures; its backlog is not read."""
    topic = check_topic(request.params["topic"])
    query = request.parameters(QueueStatsQuery)
    stats = api.queue.stats(topic, count_in_flight=query.in_flight)

    return Answer(
        200,
        QueueStatsOut(
            topic=stats.topic,
            outstanding=stats.outstanding,
            ready=stats.ready,
            later=stats.later,
            dead=stats.dead,
            in_flight=stats.in_flight,
            visible=stats.visible,
        ),
    )


def pause_topic(api: Api, request: Request) -> Answer:
    """Let receiving from a pulled topic give nothing; in force when this answers, after 2 s."""
    api.outbox.pause_topic(check_topic(request.params["topic"]))
    return Answer(204)


def resume_topic(api: Api, request: Request) -> Answer:
    """Let receiving from a topic give messages again, within 2 s."""
    api.outbox.resume_topic(check_topic(request.params["topic"]))
    return Answer(204)


def delete_topic(api: Api, request: Request) -> Answer:
    """Delete a topic that holds nothing: 202 at first, 204 when it is gone, 60 s later."""
    topic = check_topic(request.params["topic"])
    query = request.parameters(DeleteTopicQuery)
    seconds = api.outbox.delete_topic(topic, whole=query.whole, wait=False)
    if not seconds:
        return Answer(204)
    # rounded up: a caller that comes a moment early would be told to wait again
    again = {"Retry-After": str(-(-int(seconds * 1000) // 1000))}
    return Answer(202, DeletingOut(topic=topic, seconds=seconds), again)


OPERATING_ROUTES: Final = (
    Route("PATCH", "/messages/{ref+}", edit_message),
    Route("DELETE", "/topics/{topic}/messages", purge_topic, PurgeQuery),
    Route("DELETE", "/topics/{topic}/dead", purge_dead_letters, PurgeDeadQuery),
    Route("GET", "/topics/{topic}/stats", show_queue_stats, QueueStatsQuery),
    Route("POST", "/topics/{topic}/pause", pause_topic),
    Route("POST", "/topics/{topic}/resume", resume_topic),
    Route("DELETE", "/topics/{topic}", delete_topic, DeleteTopicQuery),
)

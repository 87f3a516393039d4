"""The routes of operators: messages edited and redriven, topics purged, resized, deleted, stats."""

from __future__ import annotations

from collections import Counter
from itertools import islice
from typing import TYPE_CHECKING, Final
from urllib.parse import unquote

from fairbox.api.models import FiguresOut, Stats, TopicFiguresOut
from fairbox.api.operation_models import (
    MAX_NAMED,
    DeleteTopicQuery,
    DeletingOut,
    EditedOut,
    EditIn,
    Epochs,
    EpochStatusOut,
    PurgedDeadOut,
    PurgeDeadQuery,
    PurgedOut,
    PurgeQuery,
    QueueStatsOut,
    QueueStatsQuery,
    RedriveIn,
    RedriveOut,
    ResizeIn,
    ResizeOut,
)
from fairbox.api.route import Answer, Api, Route
from fairbox.client.message_pages import condition_of
from fairbox.dispatch.maintenance.minute_figures import TopicFigures, count_outstanding
from fairbox.errors import DeadLettersUnreadable, InvalidInput, MessagesNotFound
from fairbox.model.clock import milliseconds
from fairbox.model.messages import MessageRef, check_topic
from fairbox.problems import malformed

if TYPE_CHECKING:
    from fairbox.api.request import Request
    from fairbox.client.outbox import Outbox
    from fairbox.client.redrive import RedriveResult
    from fairbox.client.resize import EpochStatus

RATE_FROM_MS: Final = 90_000
RATE_UNTIL_MS: Final = 30_000  # the stream's readers trail by no more while they keep up
MAX_DELIVERIES: Final = 20_000
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

    where = condition_of(**{name: getattr(query, name) for name in _FILTERS})
    # ids are looked up first: one that is no dead letter refuses the whole request
    for dry_run in (True, False) if ids is not None and not query.dry_run else (query.dry_run,):
        result = api.outbox.purge_found(
            topic, ids, where=where, limit=query.limit, dry_run=dry_run, reason=query.note
        )
        if result.missing and dry_run:
            raise MessagesNotFound(result.missing)

    shown = PurgedDeadOut.of(result, names=list(result.names), left=list(result.left))
    return Answer(200, shown)


def redrive_dead_letters(api: Api, request: Request) -> Answer:
    """Put dead letters back, oldest first, each with its batch item."""
    topic = check_topic(request.params["topic"])
    given = request.model(RedriveIn)
    content = given.content(request)

    def found(*, dry_run: bool) -> RedriveResult:
        return api.outbox.redrive_found(
            topic,
            given.ids,
            where=condition_of(**given.where.model_dump()) if given.where else None,
            limit=given.limit,
            dry_run=dry_run,
            body=content.body,
            headers=content.headers,
            content_type=content.content_type,
        )

    # with ids a dry run comes first: one that is no dead letter refuses all of them
    result = found(dry_run=given.dry_run or given.ids is not None)
    if given.ids is not None:
        if result.missing:
            raise MessagesNotFound(result.missing)
        if result.unreadable:
            raise DeadLettersUnreadable(result.unreadable)
        if not given.dry_run:
            result = found(dry_run=False)

    refs, left = ([str(ref) for ref in some] for some in (result.refs, result.left))
    unreadable = list(result.unreadable)
    return Answer(200, RedriveOut.of(result, refs=refs, left=left, unreadable=unreadable))


def show_queue_stats(api: Api, request: Request) -> Answer:
    """Show a topic's figures; its backlog is not read."""
    topic = check_topic(request.params["topic"])
    query = request.parameters(QueueStatsQuery)
    stats = api.queue.stats(topic, count_in_flight=query.in_flight)
    return Answer(200, QueueStatsOut.of(stats))


def resize_topic(api: Api, request: Request) -> Answer:
    """Give a topic another number of shards, from a minute on, while messages flow."""
    topic = check_topic(request.params["topic"])
    result = api.outbox.resize(topic, request.model(ResizeIn).shards)
    epoch = result.epoch
    number, shards = epoch.number, epoch.shards
    shown = ResizeOut.of(result, epoch=number, shards=shards, begins_at=epoch.since)
    return Answer(202, shown)


def list_epochs(api: Api, request: Request) -> Answer:
    """List a topic's epochs, oldest first, with what lies in each."""
    statuses = api.outbox.epochs(check_topic(request.params["topic"]))
    return Answer(200, Epochs(epochs=[_status(status) for status in statuses]))


def _status(status: EpochStatus) -> EpochStatusOut:
    epoch = status.epoch
    return EpochStatusOut.of(status, number=epoch.number, shards=epoch.shards, since=epoch.since)


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


def _rates(outbox: Outbox, now: int) -> dict[str, float]:
    """Return deliveries a second by topic, over the minute that ended half a minute ago.

    It reads `MAX_DELIVERIES` at most, some 130 read units; above that rate the part of the minute
    that these cover stands for the whole.
    """
    since, until = now - RATE_FROM_MS, now - RATE_UNTIL_MS
    counts: Counter[str] = Counter()
    last = since
    # the ledger gives the oldest first, so the covered part ends at the last one read
    for delivery in islice(outbox.tables.ledger.all(since, until), MAX_DELIVERIES):
        counts[delivery.topic] += 1
        last = delivery.at
    full = counts.total() >= MAX_DELIVERIES
    # a burst may fill the limit within a moment: no rate over less than a second
    seconds = max(1.0, ((last if full else until) - since) / 1000)
    return {topic: round(count / seconds, 3) for topic, count in counts.items()}


def show_stats(api: Api, request: Request) -> Answer:  # noqa: ARG001 - every endpoint gets it
    """Show what is outstanding, waiting and dead, and the oldest age, by topic and in all."""
    outbox, clock = api.outbox, api.clock
    outbox.tables.topic_cache.refresh()
    # topics that hold nothing are shown too
    figures = {state.topic.name: TopicFigures() for state in outbox.topics()}
    figures |= count_outstanding(outbox.tables, outbox.listed(), clock)
    delivered = _rates(outbox, milliseconds(clock))

    # counts of the index, ages of the lanes' heads, rates of the ledger
    shown = Stats(
        as_of=milliseconds(clock),
        total=FiguresOut(
            outstanding=sum(f.outstanding for f in figures.values()),
            waiting=sum(f.later for f in figures.values()),
            dead=sum(f.dead for f in figures.values()),
            oldest_age_seconds=max((f.oldest_age for f in figures.values()), default=0.0),
            delivered_per_second=round(sum(delivered.values()), 3),
        ),
        topics=[
            TopicFiguresOut(
                topic=name,
                outstanding=f.outstanding,
                waiting=f.later,
                dead=f.dead,
                oldest_age_seconds=f.oldest_age,
                delivered_per_second=delivered.get(name, 0.0),
            )
            for name, f in sorted(figures.items())
        ],
    )
    return Answer(200, shown)


OPERATING_ROUTES: Final = (
    Route("PATCH", "/messages/{ref+}", edit_message),
    Route("DELETE", "/topics/{topic}/messages", purge_topic, PurgeQuery),
    Route("DELETE", "/topics/{topic}/dead", purge_dead_letters, PurgeDeadQuery),
    Route("GET", "/topics/{topic}/stats", show_queue_stats, QueueStatsQuery),
    Route("POST", "/topics/{topic}/pause", pause_topic),
    Route("POST", "/topics/{topic}/resume", resume_topic),
    Route("DELETE", "/topics/{topic}", delete_topic, DeleteTopicQuery),
)

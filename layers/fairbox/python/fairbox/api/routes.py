"""The routes: each translates a request, calls one use case and shapes the answer."""

from __future__ import annotations

import json
from functools import cache
from typing import TYPE_CHECKING, Final

from fairbox.api.batch_routes import BATCH_ROUTES
from fairbox.api.feed_routes import FEED_ROUTES
from fairbox.api.message_list_routes import list_all_topics, list_messages
from fairbox.api.models import CancelQuery, ListQuery, PauseIn, SubscriptionIn, TopicIn, TopicsQuery
from fairbox.api.operation_routes import (
    OPERATING_ROUTES,
    list_epochs,
    redrive_dead_letters,
    ref_of,
    resize_topic,
    show_stats,
)
from fairbox.api.queue_routes import QUEUE_ROUTES
from fairbox.api.responses import show_dead, show_message, show_subscription, show_topic
from fairbox.api.route import Answer, Api, Route
from fairbox.errors import (
    InvalidInput,
    MessagesNotFound,
    UnknownSubscription,
    UnknownTopic,
    Unreadable,
)
from fairbox.model.messages import MessageRef, check_text, check_topic
from fairbox.model.topics import RetryPolicy, Subscription, Topic
from fairbox.problems import Refusal
from fairbox.tables.dead_letters import read_dead

if TYPE_CHECKING:
    from fairbox.api.models import MessageOut
    from fairbox.api.request import Request


def publish_messages(api: Api, request: Request) -> Answer:
    """Publish one message, or a batch of CloudEvents."""
    return Answer(202, api.publisher.publish(request))


def list_topic_messages(api: Api, request: Request) -> Answer:
    """List a topic's messages by state, a page at a time."""
    topic = check_topic(request.params["topic"])
    query = request.parameters(ListQuery)
    return Answer(200, list_messages(api.outbox, topic, query, api.clock))


def show_one_message(api: Api, request: Request) -> Answer:
    """Show a message that is outstanding or dead."""
    ref = ref_of(request)
    shown = _find(api, ref)
    if shown is None:
        raise MessagesNotFound([ref])
    return Answer(200, shown)


def cancel_message(api: Api, request: Request) -> Answer:
    """Take an outstanding message out of the outbox undelivered."""
    ref = ref_of(request)
    query = request.parameters(CancelQuery)
    check_text("reason", query.reason)
    # for one subscription: the others still get the message
    if query.subscription is not None:
        api.outbox.skip(ref, subscription=query.subscription, reason=query.reason)
        return Answer(204)

    try:
        api.outbox.cancel([ref], reason=query.reason)
    except MessagesNotFound:
        # a dead letter gets another answer than a message that is not there
        shown = _find(api, ref)
        if shown is None or shown.state != "dead":
            raise
        raise Refusal("conflict", f"{ref} is dead: only what is outstanding is cancelled") from None

    return Answer(204)


def put_topic(api: Api, request: Request) -> Answer:
    """Create a topic, or change what is given of its policy, window, retention and weights."""
    name = check_topic(request.params["topic"])
    given = request.model(TopicIn, required=False)
    # only given fields: a topic that is there keeps its others, and a new one has defaults
    settings = {field: getattr(given, field) for field in given.model_fields_set}
    if "retry" in settings:
        settings["retry"] = RetryPolicy(**given.retry.model_dump())

    topic = Topic(name, **settings)
    # asked before the call: afterwards the topic is there in either case
    status = 200
    try:
        api.outbox.topic(name)
    except UnknownTopic:
        status = 201

    api.outbox.create_topic(topic)
    return Answer(status, show_topic(api.outbox.topic(name)))


def list_topics(api: Api, request: Request) -> Answer:
    """List topics by name, a page at a time."""
    return Answer(200, list_all_topics(api.outbox, request.parameters(TopicsQuery)))


def show_one_topic(api: Api, request: Request) -> Answer:
    """Show a topic with its epochs and subscriptions."""
    return Answer(200, show_topic(api.outbox.topic(check_topic(request.params["topic"]))))


def put_subscription(api: Api, request: Request) -> Answer:
    """Add or replace a subscription; it is in force when this answers, after 2 s."""
    given = request.model(SubscriptionIn)
    subscription = Subscription(
        request.params["topic"],
        request.params["name"],
        given.destination,
        max_attempts=given.max_attempts,
        timeout=given.timeout,
        weight=given.weight,
        max_in_flight=given.max_in_flight,
        rate=given.rate,
    )

    there = api.outbox.topic(subscription.topic).subscription_names
    api.outbox.add_subscription(subscription)

    state = api.outbox.topic(subscription.topic)
    # another call may have removed it meanwhile: then it is shown as this call made it
    now = {s.name: s for s in state.subscriptions}.get(subscription.name, subscription)
    shown = show_subscription(now, state.status(subscription.name))
    return Answer(200 if subscription.name in there else 201, shown)


def pause_subscription(api: Api, request: Request) -> Answer:
    """Send nothing to a subscription until it is resumed; in force when this answers, after 2 s."""
    given = request.model(PauseIn, required=False)
    topic, name = _subscription_name(request)
    api.outbox.pause_subscription(topic, name, reason=given.reason)
    return _shown(api, topic, name)


def resume_subscription(api: Api, request: Request) -> Answer:
    """Send to a subscription again, what waited first; its circuit is closed."""
    topic, name = _subscription_name(request)
    api.outbox.resume_subscription(topic, name)
    return _shown(api, topic, name)


def _shown(api: Api, topic: str, name: str) -> Answer:
    state = api.outbox.topic(topic)
    there = {s.name: s for s in state.subscriptions}
    # a pause of a subscription that is removed meanwhile has nothing to show
    if name not in there:
        raise UnknownSubscription(topic, name)
    return Answer(200, show_subscription(there[name], state.status(name)))


def _subscription_name(request: Request) -> tuple[str, str]:
    topic = check_topic(request.params["topic"])
    try:
        return topic, check_topic(request.params["name"])
    except InvalidInput as error:
        raise InvalidInput("subscription", error.expected) from None


def delete_subscription(api: Api, request: Request) -> Answer:
    """Remove a subscription; it is out of force when this answers, after 2 s."""
    topic, name = _subscription_name(request)
    api.outbox.topic(topic)
    api.outbox.remove_subscription(topic, name)
    return Answer(204)


def show_openapi(api: Api, request: Request) -> Answer:  # noqa: ARG001 - every endpoint gets it
    """Show this document."""
    return Answer(200, _openapi_text())


@cache
def _openapi_text() -> str:
    # imported where it is used: no other request pays for it
    from fairbox.api.openapi import openapi  # noqa: PLC0415

    return json.dumps(openapi(ROUTES), separators=(",", ":"))


def _find(api: Api, ref: MessageRef) -> MessageOut | None:
    """Return a message, outstanding or dead, though nothing can read it."""
    receives = api.outbox.receives()
    try:
        stored = api.outbox.find(ref)
    except Unreadable:
        item = api.outbox.tables.dead.get(ref)
        if item is None:
            raise
        return show_dead(api.outbox, read_dead(item), receives)

    if stored is None:
        return None
    if stored.lane != "dead":
        return show_message(api.outbox, stored, receives)

    item = api.outbox.tables.dead.get(ref)
    return None if item is None else show_dead(api.outbox, read_dead(item), receives)


ROUTES: Final = (
    Route("POST", "/topics/{topic}/messages", publish_messages),
    Route("GET", "/topics/{topic}/messages", list_topic_messages, ListQuery),
    Route("POST", "/topics/{topic}/redrive", redrive_dead_letters),
    Route("GET", "/messages/{ref+}", show_one_message),
    Route("DELETE", "/messages/{ref+}", cancel_message, CancelQuery),
    Route("GET", "/topics", list_topics, TopicsQuery),
    Route("GET", "/topics/{topic}", show_one_topic),
    Route("PUT", "/topics/{topic}", put_topic),
    Route("POST", "/topics/{topic}/resize", resize_topic),
    Route("GET", "/topics/{topic}/epochs", list_epochs),
    Route("PUT", "/topics/{topic}/subscriptions/{name}", put_subscription),
    Route("DELETE", "/topics/{topic}/subscriptions/{name}", delete_subscription),
    Route("PUT", "/topics/{topic}/subscriptions/{name}/pause", pause_subscription),
    Route("DELETE", "/topics/{topic}/subscriptions/{name}/pause", resume_subscription),
    *BATCH_ROUTES,
    *QUEUE_ROUTES,
    *OPERATING_ROUTES,
    *FEED_ROUTES,
    Route("GET", "/stats", show_stats),
    Route("GET", "/openapi.json", show_openapi),
)
"""Every route."""

"""Topic and subscription rows to models and back."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, cast

from fairbox.codec import attributes as attr
from fairbox.codec.item_versions import check_version
from fairbox.codec.keys import Item, key_text, subscription_key, topic_key
from fairbox.codec.messages import number
from fairbox.codec.subscription_status import NOT_OURS, read_status
from fairbox.errors import Unreadable
from fairbox.model.epochs import Epoch
from fairbox.model.topics import Ordering, Partition, RetryPolicy, Subscription, Topic, TopicState

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from fairbox.model.subscription_status import SubscriptionStatus

    _Subscribed = list[tuple[Subscription, SubscriptionStatus]]


OPTIONAL_OF_SUBSCRIPTION: Final = (
    attr.MAX_ATTEMPTS,
    attr.MAX_IN_FLIGHT,
    attr.RATE,
    attr.WEIGHT,
)
"""Attributes that a subscription row has only where its subscription sets them."""
OPTIONAL_OF_TOPIC: Final = (
    attr.DEDUP_WINDOW,
    attr.PARTITION,
    attr.ON_DEAD,
    attr.WEIGHT,
    attr.MINI_BATCH,
    attr.TENANT_WEIGHTS,
    attr.MESSAGE_RETENTION,
    attr.MAX_OUTSTANDING,
    attr.WIDTHS,
    attr.PAUSED,
    attr.DELETING,
)
"""The same of a topic row."""


def topic_item(state: TopicState) -> Item:
    """Return the topic row."""
    topic = state.topic
    item: Item = topic_key(topic.name) | {
        attr.VERSION: number(state.version),
        attr.ORDERING: {"S": topic.ordering},
        attr.EPOCHS: epochs_value(state.epochs),
        attr.RETRY: {
            "L": [
                number(topic.retry.max_attempts),
                number(topic.retry.base),
                number(topic.retry.cap),
            ]
        },
        attr.RETENTION: number(topic.retention),
    }
    numbers = {
        attr.DEDUP_WINDOW: topic.dedup_window,
        attr.MESSAGE_RETENTION: topic.message_retention,
        attr.MAX_OUTSTANDING: topic.max_outstanding,
    }
    item |= {name: number(n) for name, n in numbers.items() if n is not None}
    if topic.partition is not None:
        part = topic.partition
        item[attr.PARTITION] = {"L": [{"S": part.queue}, number(part.number), number(part.count)]}
    if topic.on_dead == "block":
        item[attr.ON_DEAD] = {"BOOL": True}
    if topic.weight != 1:
        item[attr.WEIGHT] = number(topic.weight)
    if topic.mini_batch != 1:
        item[attr.MINI_BATCH] = number(topic.mini_batch)
    if topic.tenant_weights:
        weights = {tenant: number(weight) for tenant, weight in topic.tenant_weights.items()}
        item[attr.TENANT_WEIGHTS] = {"M": weights}
    if state.widths:
        item[attr.WIDTHS] = epochs_value(state.widths)
    if state.paused:
        item[attr.PAUSED] = {"BOOL": True}
    if state.deleting is not None:
        item[attr.DELETING] = number(state.deleting)
    return item


def epochs_value(epochs: Iterable[Epoch]) -> dict[str, Any]:
    """Return epochs as the topic row has them."""
    rows = []
    for epoch in epochs:
        values = [epoch.number, epoch.shards, epoch.since]
        rows.append({"L": [number(n) for n in (*values, *([epoch.closed] * bool(epoch.closed)))]})
    return {"L": rows}


def subscription_item(subscription: Subscription) -> Item:
    """Return the subscription row."""
    item: Item = subscription_key(subscription.topic, subscription.name) | {
        attr.DESTINATION: {"S": subscription.destination},
        attr.TIMEOUT: number(subscription.timeout),
        attr.SINCE: number(subscription.since),
    }
    if subscription.max_attempts is not None:
        item[attr.MAX_ATTEMPTS] = number(subscription.max_attempts)
    if subscription.max_in_flight is not None:
        item[attr.MAX_IN_FLIGHT] = number(subscription.max_in_flight)
    if subscription.rate is not None:
        item[attr.RATE] = number(subscription.rate)
    if subscription.weight is not None:
        item[attr.WEIGHT] = number(subscription.weight)
    return item


def read_topics(items: Iterable[Mapping[str, Any]]) -> list[TopicState]:
    """Return the topics whose rows, with their subscriptions' rows, are given in key order.

    Raises:
        Unreadable: a row is not what the codec writes; NewerVersion: a newer release does.
    """
    topics: dict[str, tuple[Mapping[str, Any], _Subscribed]] = {}
    for item in items:
        check_version(item)
        try:
            parts = item[attr.SK]["S"].split("#")
            if len(parts) == 2:
                topics[parts[1]] = (item, [])
            elif len(parts) == 4 and parts[1] in topics:
                read = _subscription(item, parts[1], parts[3])
                topics[parts[1]][1].append((read, read_status(item)))
        except NOT_OURS as error:
            raise Unreadable(key_text(item), f"{type(error).__name__}: {error}") from error
    return [_topic(name, item, subscriptions) for name, (item, subscriptions) in topics.items()]


def _subscription(item: Mapping[str, Any], topic: str, name: str) -> Subscription:
    attempts, in_flight, rate, weight = (item.get(name) for name in OPTIONAL_OF_SUBSCRIPTION)
    return Subscription(
        topic,
        name,
        item[attr.DESTINATION]["S"],
        max_attempts=None if attempts is None else int(attempts["N"]),
        timeout=float(item[attr.TIMEOUT]["N"]),
        max_in_flight=None if in_flight is None else int(in_flight["N"]),
        rate=None if rate is None else float(rate["N"]),
        weight=None if weight is None else float(weight["N"]),
        since=int(item[attr.SINCE]["N"]),
    )


def _partition(item: Mapping[str, Any]) -> Partition | None:
    if attr.PARTITION not in item:
        return None
    queue, partition, count = item[attr.PARTITION]["L"]
    return Partition(queue["S"], int(partition["N"]), int(count["N"]))


def read_epochs(value: Mapping[str, Any]) -> tuple[Epoch, ...]:
    """Return the epochs that `epochs_value` wrote."""
    return tuple(Epoch(*(int(n["N"]) for n in epoch["L"])) for epoch in value["L"])


def _topic(name: str, item: Mapping[str, Any], subscribed: _Subscribed) -> TopicState:
    try:
        epochs = read_epochs(item[attr.EPOCHS])
        attempts, base, cap = (n["N"] for n in item[attr.RETRY]["L"])
        window = item.get(attr.DEDUP_WINDOW)
        kept = item.get(attr.MESSAGE_RETENTION)
        most = item.get(attr.MAX_OUTSTANDING)
        topic = Topic(
            name,
            shards=epochs[-1].shards,
            ordering=cast("Ordering", item[attr.ORDERING]["S"]),
            retry=RetryPolicy(max_attempts=int(attempts), base=float(base), cap=float(cap)),
            dedup_window=None if window is None else int(window["N"]),
            retention=int(item[attr.RETENTION]["N"]),
            partition=_partition(item),
            on_dead="block" if attr.ON_DEAD in item else "skip",
            weight=float(item.get(attr.WEIGHT, {"N": "1"})["N"]),
            mini_batch=int(item.get(attr.MINI_BATCH, {"N": "1"})["N"]),
            tenant_weights={
                tenant: float(weight["N"])
                for tenant, weight in item.get(attr.TENANT_WEIGHTS, {"M": {}})["M"].items()
            },
            message_retention=None if kept is None else int(kept["N"]),
            max_outstanding=None if most is None else int(most["N"]),
        )
        paused = item.get(attr.PAUSED, {"BOOL": False})["BOOL"] is True
        version = int(item[attr.VERSION]["N"])
        widths = read_epochs(item.get(attr.WIDTHS, {"L": []}))
        deleting = int(item[attr.DELETING]["N"]) if attr.DELETING in item else None
        subscriptions = tuple(one for one, _ in subscribed)
        statuses = {one.name: status for one, status in subscribed}
        return TopicState(topic, epochs, subscriptions, version, paused, deleting, statuses, widths)
    except NOT_OURS as error:
        raise Unreadable(key_text(item), f"{type(error).__name__}: {error}") from error

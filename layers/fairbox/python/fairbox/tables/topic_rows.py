"""Topics and subscriptions: their rows in partition `config` of the outbox table."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final, cast

from fairbox.errors import TopicConflict, UnknownSubscription, UnknownTopic, Unreadable
from fairbox.model.clock import milliseconds
from fairbox.model.epochs import Epoch
from fairbox.model.topic_states import SubscriptionStatus, TopicState
from fairbox.model.topics import (
    MAX_SUBSCRIPTIONS,
    Ordering,
    Partition,
    RetryPolicy,
    Subscription,
    Topic,
)
from fairbox.tables.calls import Calls, Rows, key_condition
from fairbox.tables.circuits import DESTINATION, STANDING, read_status, status_attributes
from fairbox.tables.keys import (
    CONFIG,
    PK,
    SK,
    Item,
    check_version,
    subscription_key,
    topic_key,
    topic_range,
    topics_behind,
    version_key,
)
from fairbox.tables.stored_messages import VERSION, number, numbers, whole
from fairbox.tables.topic_cache import BUSIEST, CONFIG_VERSION, ChangesRow, busiest_attributes
from fairbox.tables.unreadable_items import NOT_OURS, reading
from fairbox.tables.write_expressions import WriteExpressions, put_new

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from fairbox.tables.topic_cache import BusiestTopics

    _Subscribed = list[tuple[Subscription, SubscriptionStatus]]

# of a topic's row, and of a subscription's, in partition `config`
ORDERING: Final = "od"  # S, `none` or `key`
EPOCHS: Final = "ep"  # L of [number, shards, since (ms), closed (ms; absent: open)]
RETRY: Final = "re"  # L: attempts, base (s), cap (s)
DEDUP_WINDOW: Final = "dw"  # N, s
RETENTION: Final = "rt"  # N, s, of the ledger
MESSAGE_RETENTION: Final = "mr"  # N, s, of a pulled topic whose messages expire
MAX_OUTSTANDING: Final = "mo"  # N, messages past which a topic takes no more
PARTITION: Final = "pq"  # L of a partitioned queue's name, the partition, how many there are
ON_DEAD: Final = "bl"  # BOOL, keys of the topic wait for their dead letters
WIDTHS: Final = "wi"  # L, like the epochs, of [number, partitions, since (ms)]
PAUSED: Final = "pa"  # BOOL, receiving from the topic gives nothing
DELETING: Final = "dl"  # N, ms, since when a topic takes no messages: it is being deleted
MAX_ATTEMPTS: Final = "ma"  # N, of a subscription row
TIMEOUT: Final = "to"  # N, s, of a subscription row
WEIGHT: Final = "we"  # N, of a topic or subscription row; only where it is not the default
MINI_BATCH: Final = "mb"  # N, of a topic row; only where it is not 1
TENANT_WEIGHTS: Final = "tw"  # M of N, of a topic row; only where there are any
SINCE: Final = "si"  # N, ms, when a subscription was added
MAX_IN_FLIGHT: Final = "mf"  # N, of a subscription row
RATE: Final = "ra"  # N, messages a second, of a subscription row

OPTIONAL_OF_SUBSCRIPTION: Final = (MAX_ATTEMPTS, MAX_IN_FLIGHT, RATE, WEIGHT)
"""Attributes that a subscription row has only where its subscription sets them."""
OPTIONAL_OF_TOPIC: Final = (
    DEDUP_WINDOW,
    PARTITION,
    ON_DEAD,
    WEIGHT,
    MINI_BATCH,
    TENANT_WEIGHTS,
    MESSAGE_RETENTION,
    MAX_OUTSTANDING,
    WIDTHS,
    PAUSED,
    DELETING,
)
"""The same of a topic row."""
IN_FORCE_SECONDS: Final = 2.0
NEAR_ROWS: Final = 20
"""Rows that are read with a topic: of ordinary topics they are under 4 KB."""
_TRIES: Final = 8
_CHANGED: Final = "it is being changed by others: try again"
_DELETED: Final = "it is being deleted"
_ONLY_PULLED: Final = "message_retention is for pulled topics: "


def topic_item(state: TopicState) -> Item:
    """Return the topic row."""
    topic, retry = state.topic, state.topic.retry
    item: Item = topic_key(topic.name) | {
        VERSION: number(state.version),
        ORDERING: {"S": topic.ordering},
        EPOCHS: epochs_value(state.epochs),
        RETRY: {"L": [number(n) for n in (retry.max_attempts, retry.base, retry.cap)]},
        RETENTION: number(topic.retention),
    }

    item |= numbers(
        {
            DEDUP_WINDOW: topic.dedup_window,
            MESSAGE_RETENTION: topic.message_retention,
            MAX_OUTSTANDING: topic.max_outstanding,
        }
    )

    if topic.partition is not None:
        part = topic.partition
        item[PARTITION] = {"L": [{"S": part.queue}, number(part.number), number(part.count)]}
    if topic.on_dead == "block":
        item[ON_DEAD] = {"BOOL": True}

    if topic.weight != 1:
        item[WEIGHT] = number(topic.weight)
    if topic.mini_batch != 1:
        item[MINI_BATCH] = number(topic.mini_batch)
    if topic.tenant_weights:
        weights = {tenant: number(weight) for tenant, weight in topic.tenant_weights.items()}
        item[TENANT_WEIGHTS] = {"M": weights}

    if state.widths:
        item[WIDTHS] = epochs_value(state.widths)
    if state.paused:
        item[PAUSED] = {"BOOL": True}
    if state.deleting is not None:
        item[DELETING] = number(state.deleting)

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
    item: Item = subscription_key(subscription.topic, subscription.name)
    item[DESTINATION] = {"S": subscription.destination}
    return item | numbers(
        {
            TIMEOUT: subscription.timeout,
            SINCE: subscription.since,
            MAX_ATTEMPTS: subscription.max_attempts,
            MAX_IN_FLIGHT: subscription.max_in_flight,
            RATE: subscription.rate,
            WEIGHT: subscription.weight,
        }
    )


def read_topics(items: Iterable[Mapping[str, Any]]) -> list[TopicState]:
    """Return the topics whose rows, with their subscriptions' rows, are given in key order.

    Raises:
        Unreadable: the codec never writes such a row; NewerVersion: a newer release does.
    """
    topics: dict[str, tuple[Mapping[str, Any], _Subscribed]] = {}
    for item in items:
        check_version(item)
        with reading(item, *NOT_OURS):
            parts = item[SK]["S"].split("#")
            # in the order of keys a topic comes before its subscriptions
            if len(parts) == 2:
                topics[parts[1]] = (item, [])
            elif len(parts) == 4 and parts[1] in topics:
                read = _subscription(item, parts[1], parts[3])
                topics[parts[1]][1].append((read, read_status(item)))

    return [_topic(name, item, subscriptions) for name, (item, subscriptions) in topics.items()]


def _subscription(item: Mapping[str, Any], topic: str, name: str) -> Subscription:
    rate, weight = item.get(RATE), item.get(WEIGHT)
    return Subscription(
        topic,
        name,
        item[DESTINATION]["S"],
        max_attempts=whole(item, MAX_ATTEMPTS),
        timeout=float(item[TIMEOUT]["N"]),
        max_in_flight=whole(item, MAX_IN_FLIGHT),
        rate=None if rate is None else float(rate["N"]),
        weight=None if weight is None else float(weight["N"]),
        since=int(item[SINCE]["N"]),
    )


def _partition(item: Mapping[str, Any]) -> Partition | None:
    if PARTITION not in item:
        return None
    queue, partition, count = item[PARTITION]["L"]
    return Partition(queue["S"], int(partition["N"]), int(count["N"]))


def read_epochs(value: Mapping[str, Any]) -> tuple[Epoch, ...]:
    """Return the epochs that `epochs_value` wrote."""
    return tuple(Epoch(*(int(n["N"]) for n in epoch["L"])) for epoch in value["L"])


def _topic(name: str, item: Mapping[str, Any], subscribed: _Subscribed) -> TopicState:
    with reading(item, *NOT_OURS):
        epochs = read_epochs(item[EPOCHS])
        attempts, base, cap = (n["N"] for n in item[RETRY]["L"])
        topic = Topic(
            name,
            shards=epochs[-1].shards,
            ordering=cast("Ordering", item[ORDERING]["S"]),
            retry=RetryPolicy(max_attempts=int(attempts), base=float(base), cap=float(cap)),
            dedup_window=whole(item, DEDUP_WINDOW),
            retention=int(item[RETENTION]["N"]),
            partition=_partition(item),
            on_dead="block" if ON_DEAD in item else "skip",
            weight=float(item.get(WEIGHT, {"N": "1"})["N"]),
            mini_batch=int(item.get(MINI_BATCH, {"N": "1"})["N"]),
            tenant_weights={
                tenant: float(weight["N"])
                for tenant, weight in item.get(TENANT_WEIGHTS, {"M": {}})["M"].items()
            },
            message_retention=whole(item, MESSAGE_RETENTION),
            max_outstanding=whole(item, MAX_OUTSTANDING),
        )

        paused = item.get(PAUSED, {"BOOL": False})["BOOL"] is True
        version = int(item[VERSION]["N"])
        widths = read_epochs(item.get(WIDTHS, {"L": []}))
        deleting = whole(item, DELETING)
        subscriptions = tuple(one for one, _ in subscribed)
        statuses = {one.name: status for one, status in subscribed}

        return TopicState(topic, epochs, subscriptions, version, paused, deleting, statuses, widths)


class TopicTable(Rows):
    """Reads and changes topics.

    Every change counts one version row up in its own transaction, and names its topic there, so
    that a process with copies compares one row and drops one copy.
    """

    def __init__(self, calls: Calls, table: str) -> None:
        super().__init__(calls, table)
        self.changes = ChangesRow(calls, table)

    def load(self, name: str) -> TopicState | None:
        """Return one topic, read consistently; None when there is none."""
        found = self._query(name)
        return found[0] if found else None

    def near(self, name: str) -> list[TopicState]:
        """Return one topic and topics behind it that cost nothing more, read consistently.

        A read of one topic is billed as 4 KB, which a dozen of them share. The first is absent
        where there is no such topic; of the others, one that cannot be read is left out.
        """
        items: list[dict[str, Any]] = []
        ended = True
        for page in self._rows((topic_range(name)[0], topic_range(None)[1]), limit=NEAR_ROWS):
            items += page
            ended = len(page) < NEAR_ROWS
            if not page or _name_of(page[-1]) != name:
                break  # all rows of the topic were read

        rows: dict[str, list[dict[str, Any]]] = {}
        for item in items:
            rows.setdefault(_name_of(item), []).append(item)
        if not ended:
            # the page may end among the subscriptions of the last topic
            last = _name_of(items[-1])
            rows = {topic: its for topic, its in rows.items() if topic != last}

        found = read_topics(rows.pop(name, []))
        for its in rows.values():
            with suppress(Unreadable):
                found += read_topics(its)

        return found

    def all(self) -> list[TopicState]:
        """Return every topic, ascending by name, read consistently."""
        return self._query(None)

    def names(self) -> list[str]:
        """Return the names of all topics (1 RRU for 4 KB of their rows)."""
        return [state.topic.name for state in self.all()]

    def behind(self, name: str | None, limit: int) -> list[TopicState]:
        """Return at most `limit` topics that sort behind one, ascending by name; None: the first.

        Behind the last of them, at most one page of 1 MB is read.
        """
        items: list[dict[str, Any]] = []
        seen = 0
        for page in self._rows(topics_behind(name)):
            items += page
            # a page may begin among the subscriptions of the last topic, which is not counted again
            seen += len(read_topics(page))
            if seen > limit:  # all rows of the last one that is wanted were read
                break

        return read_topics(items)[:limit]

    def _query(self, name: str | None) -> list[TopicState]:
        return read_topics(item for page in self._rows(topic_range(name)) for item in page)

    def _rows(
        self, between: tuple[str, str], limit: int | None = None
    ) -> Iterator[list[dict[str, Any]]]:
        low, high = between
        for page in self._calls.pages(
            "query",
            TableName=self._table,
            ConsistentRead=True,
            **key_condition(CONFIG, "#sk BETWEEN :low AND :high", low=low, high=high),
            **({} if limit is None else {"Limit": limit}),
        ):
            yield page["Items"]

    def create(self, topic: Topic) -> TopicState:
        """Create the topic, or update the fields that may change: all but shards and ordering.

        Raises:
            TopicConflict: it is there with another shard count or ordering, changes too often, or
                has subscriptions and is to have a `message_retention`.
        """

        def decide(there: TopicState | None) -> TopicState:
            if there is None:
                # from time 0 on: ids may be older than the topic
                return TopicState(topic, (Epoch(0, topic.shards, 0),))

            check_stays(there)
            wanted = _reconciled(topic, there.topic)
            if there.topic != wanted and there.pushed and wanted.message_retention is not None:
                detail = "remove the subscriptions first, or leave it out"
                raise TopicConflict(topic.name, _ONLY_PULLED + detail)
            return replace(there, topic=wanted)

        return self._swap(topic.name, decide)

    def pause(self, name: str, *, paused: bool) -> TopicState:
        """Let receiving from the topic give nothing, or messages again.

        Raises:
            UnknownTopic: there is no such topic.
            TopicConflict: it changes too often.
        """
        return self.change(name, lambda there: replace(there, paused=paused))

    def change(self, name: str, decide: Callable[[TopicState], TopicState]) -> TopicState:
        """Change a topic where it is as it was read; return it as it stands then.

        `decide` may be asked again.

        Raises:
            UnknownTopic: there is no such topic.
            TopicConflict: it changes too often.
        """

        def known(there: TopicState | None) -> TopicState:
            if there is None:
                raise UnknownTopic(name)
            return decide(there)

        return self._swap(name, known)

    def _swap(self, name: str, decide: Callable[[TopicState | None], TopicState]) -> TopicState:
        """As `change`, of a topic that may not be there (None)."""
        for _ in range(_TRIES):
            there = self.load(name)
            wanted = decide(there)
            # a write would count up the version row, and processes would drop their copies
            if wanted == there:
                return wanted

            state = wanted if there is None else replace(wanted, version=there.version + 1)
            if self._change(name, [self._put_topic(state, there)]):
                return state

        raise TopicConflict(name, _CHANGED)

    def mark_deleting(self, name: str) -> int:
        """Close the topic to messages and subscriptions; return since when it is closed (ms).

        Raises:
            UnknownTopic: there is no such topic.
            TopicConflict: it changes too often.
        """
        now = milliseconds(self._calls.clock)
        # one that is marked keeps its time: the wait of an earlier call goes on
        state = self.change(
            name, lambda there: there if there.deleting else replace(there, deleting=now)
        )
        return state.deleting or now

    def unmark_deleting(self, name: str) -> None:
        """Make the topic take messages again, if it exists and takes none.

        Raises:
            TopicConflict: it changes too often.
        """
        with suppress(UnknownTopic):
            self.change(name, lambda there: replace(there, deleting=None))

    def remove(self, state: TopicState) -> bool:
        """Delete the row of a topic that is marked, and as it was read; say if it was."""
        delete = {
            "TableName": self._table,
            "Key": topic_key(state.topic.name),
            "ConditionExpression": "#v = :v AND attribute_exists(#dl)",
            "ExpressionAttributeNames": {"#v": VERSION, "#dl": DELETING},
            "ExpressionAttributeValues": {":v": number(state.version)},
        }
        return self._change(state.topic.name, [{"Delete": delete}])

    def add_subscription(self, subscription: Subscription) -> TopicState:
        """Add or replace a subscription; return the topic as it was before.

        One that is replaced stays paused where it was; its circuit is closed.

        Raises:
            UnknownTopic: there is no such topic.
            TopicConflict: it is being deleted, has 100 subscriptions, or a `message_retention`.
        """
        before = self.load(subscription.topic)
        if before is None:
            raise UnknownTopic(subscription.topic)

        check_stays(before)
        check_subscriptions(before, [subscription.name])

        added = {s.name: s.since for s in before.subscriptions}
        since = added.get(subscription.name, milliseconds(self._calls.clock))
        subscription = replace(subscription, since=since)
        status = before.status(subscription.name)

        item = subscription_item(subscription) | status_attributes(status.reset())
        # the whole row, except how much of its rate was used up
        put = {"Update": self._whole(item, (*OPTIONAL_OF_SUBSCRIPTION, STANDING))}
        actions = [self._topic_stays(subscription.topic), put]
        if not self._change(subscription.topic, actions):
            # the topic has changed since it was read: another read tells how
            there = self.load(subscription.topic)
            if there is None:
                raise UnknownTopic(subscription.topic)
            check_subscriptions(there, [])
            raise TopicConflict(subscription.topic, _DELETED)

        return before

    def write_busiest(self, busiest: BusiestTopics) -> None:
        """Write the list of the busiest topics (1 WRU a KB of the row, 4 at most).

        It counts nothing up: who reads the row has the list, and keeps its copies of topics.
        """
        item = version_key() | busiest_attributes(busiest)
        self._calls.call("update_item", **self._whole(item, (BUSIEST,)))

    def remove_subscription(self, topic: str, name: str) -> None:
        """Remove a subscription.

        Raises:
            UnknownSubscription: there is none of this name.
        """
        action = {
            "Delete": {
                "TableName": self._table,
                "Key": subscription_key(topic, name),
                "ConditionExpression": "attribute_exists(#pk)",
                "ExpressionAttributeNames": {"#pk": PK},
            }
        }
        if not self._change(topic, [action]):
            raise UnknownSubscription(topic, name)

    def _put_topic(self, state: TopicState, before: TopicState | None) -> dict[str, Any]:
        """Return the write of a topic's row; attributes of a newer release stay."""
        item = topic_item(state)
        if before is None:
            return {"Put": put_new(self._table, item)}

        update = self._whole(item, OPTIONAL_OF_TOPIC)
        update["ConditionExpression"] = "#v = :v"
        update["ExpressionAttributeNames"] |= {"#v": VERSION}
        update["ExpressionAttributeValues"] |= {":v": number(before.version)}
        return {"Update": update}

    def _whole(self, item: dict[str, Any], optional: Iterable[str]) -> dict[str, Any]:
        """Return the update that writes a row's attributes, and removes missing optional ones."""
        key = {name: item.pop(name) for name in (PK, SK)}
        absent = [n for n in optional if n not in item]
        write = WriteExpressions()
        for n, name in enumerate([*item, *absent]):
            write.put(f"f{n}", name, item.get(name))
        return {"TableName": self._table, "Key": key, **write.expressions, **write.bound}

    def _topic_stays(self, topic: str) -> dict[str, Any]:
        return {
            # read before, it could go until the write, and leave the new row behind
            "ConditionCheck": {
                "TableName": self._table,
                "Key": topic_key(topic),
                "ConditionExpression": (
                    "attribute_exists(#pk) AND attribute_not_exists(#dl)"
                    " AND attribute_not_exists(#mr)"
                ),
                "ExpressionAttributeNames": {"#pk": PK, "#dl": DELETING, "#mr": MESSAGE_RETENTION},
            }
        }

    def _change(self, topic: str, actions: list[dict[str, Any]]) -> bool:
        """Make changes of a topic and count them; return whether their conditions held.

        The count costs 2 WRU a KB of the version row, and 0.5 RRU to choose a slot.
        """
        bump = self.changes.count(CONFIG_VERSION, topic)
        return self._calls.transacted([*actions, {"Update": bump}])


def _name_of(item: Mapping[str, Any]) -> str:
    """Return the topic's name of a topic or subscription row."""
    return str(item[SK]["S"]).split("#", 2)[1]


def check_stays(there: TopicState) -> None:
    """Refuse to change a topic that is being deleted.

    Raises:
        TopicConflict: it is.
    """
    if there.deleting is not None:
        raise TopicConflict(there.topic.name, _DELETED)


def check_subscriptions(there: TopicState, more: Iterable[str]) -> None:
    """Refuse subscriptions by name that a topic has no place for.

    Raises:
        TopicConflict: it would have more than 100, or its messages expire.
    """
    if there.topic.message_retention is not None:
        detail = "create the topic again without it first"
        raise TopicConflict(there.topic.name, _ONLY_PULLED + detail)
    # one that is replaced takes no further place
    if len(there.subscription_names.union(more)) > MAX_SUBSCRIPTIONS:
        raise TopicConflict(there.topic.name, f"{MAX_SUBSCRIPTIONS} subscriptions at most")


def _reconciled(topic: Topic, there: Topic) -> Topic:
    """Return the wanted topic: the existing one with the given attributes.

    Raises:
        TopicConflict: it differs in an attribute that cannot be changed this way.
    """
    given = {name: getattr(topic, name) for name in topic.given}
    differ = [
        f"{name} {getattr(there, name)!r}, not {given[name]!r}"
        for name in ("shards", "ordering")
        if name in given and given[name] != getattr(there, name)
    ]
    if differ:
        hint = "; `resize` changes shards" if there.ordering == topic.ordering else ""
        raise TopicConflict(topic.name, f"it is there with {' and '.join(differ)}{hint}")

    partition = given.get("partition")
    if partition in (None, there.partition):  # that it is one is never forgotten
        given["partition"] = there.partition
    elif there.partition is not None:
        old = there.partition
        detail = f"it is partition {old.number} of {old.count} of queue {old.queue!r}"
        raise TopicConflict(topic.name, detail)
    elif there.ordering == "key" and partition.count > 1:
        raise TopicConflict(
            topic.name, "it is there as one ordered topic: to partition it would break its order"
        )

    return replace(there, **given)

"""Topics and subscriptions in the outbox table."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from fairbox.codec import attributes as attr
from fairbox.codec.busiest_topics import busiest_attributes
from fairbox.codec.keys import subscription_key, topic_key, topic_range, topics_behind, version_key
from fairbox.codec.messages import number
from fairbox.codec.subscription_status import status_attributes
from fairbox.codec.topic_changes import read_changes
from fairbox.codec.topics import (
    OPTIONAL_OF_SUBSCRIPTION,
    OPTIONAL_OF_TOPIC,
    read_topics,
    subscription_item,
    topic_item,
)
from fairbox.dynamodb.topic_changes import change_update
from fairbox.errors import (
    TopicConflict,
    TransactionCancelled,
    UnknownSubscription,
    UnknownTopic,
    Unreadable,
)
from fairbox.model.clock import milliseconds
from fairbox.model.epochs import Epoch
from fairbox.model.topics import MAX_SUBSCRIPTIONS, Topic, TopicState

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from fairbox.dynamodb.calls import Calls
    from fairbox.model.busiest_topics import BusiestTopics
    from fairbox.model.subscription_status import SubscriptionStatus
    from fairbox.model.topic_changes import TopicChanges
    from fairbox.model.topics import Subscription

PRODUCER_COPY_SECONDS: Final = 30.0
IN_FORCE_SECONDS: Final = 2.0
NEAR_ROWS: Final = 20
"""Rows that are read with a topic: of ordinary topics they are under 4 KB."""
_TRIES: Final = 8
_CHANGED: Final = "it is being changed by others: try again"
_DELETED: Final = "it is being deleted"
_ONLY_PULLED: Final = "message_retention is for pulled topics: "


class TopicTable:
    """Reads and changes topics.

    Every change counts one version row up in its own transaction, and names its topic there, so
    that whoever keeps copies compares one row and drops one copy.
    """

    def __init__(self, calls: Calls, table: str) -> None:
        self._calls = calls
        self._table = table

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
            last = _name_of(items[-1])
            rows = {topic: its for topic, its in rows.items() if topic != last}
        found = read_topics(rows.pop(name, []))
        for its in rows.values():
            with suppress(Unreadable):
                found += read_topics(its)
        return found

    def changes(self, *, consistent: bool = True) -> TopicChanges:
        """Return the counts and the latest changes of topics (1 RRU; 0.5 if not consistent).

        It is a query, because policies of producers allow no other read of topics.
        """
        page = self._calls.call(
            "query",
            TableName=self._table,
            ConsistentRead=consistent,
            KeyConditionExpression="#pk = :pk AND #sk = :sk",
            ExpressionAttributeNames={"#pk": attr.PK, "#sk": attr.SK},
            ExpressionAttributeValues={f":{name}": v for name, v in version_key().items()},
        )
        return read_changes(page["Items"][0] if page["Items"] else {})

    def all(self) -> list[TopicState]:
        """Return every topic, ascending by name, read consistently."""
        return self._query(None)

    def names(self) -> list[str]:
        """Return the names of all topics (1 RRU for 4 KB of their rows)."""
        return [state.topic.name for state in self.all()]

    def version_row(self) -> Mapping[str, Any]:
        """Return the row that counts changes, as it is (consistent, 1 RRU); empty: none yet."""
        answer = self._calls.call(
            "get_item", TableName=self._table, Key=version_key(), ConsistentRead=True
        )
        item: Mapping[str, Any] = answer.get("Item", {})
        return item

    def behind(self, name: str | None, limit: int) -> list[TopicState]:
        """Return at most `limit` topics that sort behind one, ascending by name; None: the first.

        Of what lies behind the last of them, one page of 1 MB is read at most.
        """
        items: list[dict[str, Any]] = []
        seen = 0
        for page in self._rows(topics_behind(name)):
            items += page
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
            KeyConditionExpression="#pk = :pk AND #sk BETWEEN :low AND :high",
            ExpressionAttributeNames={"#pk": attr.PK, "#sk": attr.SK},
            ExpressionAttributeValues={
                ":pk": {"S": attr.CONFIG},
                ":low": {"S": low},
                ":high": {"S": high},
            },
            **({} if limit is None else {"Limit": limit}),
        ):
            yield page["Items"]

    def create(self, topic: Topic) -> TopicState:
        """Create the topic, or bring up to date what may change: all but shards and ordering.

        Raises:
            TopicConflict: it is there with another shard count or ordering, changes too often, or
                has subscriptions and is to have a `message_retention`.
        """

        def decide(there: TopicState | None) -> TopicState:
            if there is None:
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

        Args:
            name: the topic's.
            decide: returns the topic as it is to be; it may be asked again.

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
            if wanted == there:
                return wanted
            state = wanted if there is None else replace(wanted, version=there.version + 1)
            if self._change(name, [self._put_topic(state, there)]):
                return state
        raise TopicConflict(name, _CHANGED)

    def mark_deleting(self, name: str) -> int:
        """Let the topic take no messages and no subscriptions; again: since when it does not (ms).

        Raises:
            UnknownTopic: there is no such topic.
            TopicConflict: it changes too often.
        """
        now = milliseconds(self._calls.clock)
        state = self.change(
            name, lambda there: there if there.deleting else replace(there, deleting=now)
        )
        return state.deleting or now

    def unmark_deleting(self, name: str) -> None:
        """Let the topic take messages again, where it is there and does not.

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
            "ExpressionAttributeNames": {"#v": attr.VERSION, "#dl": attr.DELETING},
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
        put = {"Update": self._put_subscription(subscription, status.reset())}
        actions = [self._topic_stays(subscription.topic), put]
        if not self._change(subscription.topic, actions):
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
        self._calls.call("update_item", **self._whole(item, (attr.BUSIEST,)))

    def _put_subscription(
        self, subscription: Subscription, status: SubscriptionStatus
    ) -> dict[str, Any]:
        """Return the update that writes a row, whole but for how much of its rate was used up."""
        item = subscription_item(subscription) | status_attributes(status)
        return self._whole(item, (*OPTIONAL_OF_SUBSCRIPTION, attr.STANDING))

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
                "ExpressionAttributeNames": {"#pk": attr.PK},
            }
        }
        if not self._change(topic, [action]):
            raise UnknownSubscription(topic, name)

    def _put_topic(self, state: TopicState, before: TopicState | None) -> dict[str, Any]:
        """Return the write of a topic's row; what a newer release keeps there too stays."""
        item = topic_item(state)
        if before is None:
            put: dict[str, Any] = {"TableName": self._table, "Item": item}
            put["ConditionExpression"] = "attribute_not_exists(#pk)"
            put["ExpressionAttributeNames"] = {"#pk": attr.PK}
            return {"Put": put}
        update = self._whole(item, OPTIONAL_OF_TOPIC)
        update["ConditionExpression"] = "#v = :v"
        update["ExpressionAttributeNames"] |= {"#v": attr.VERSION}
        update["ExpressionAttributeValues"] |= {":v": number(before.version)}
        return {"Update": update}

    def _whole(self, item: dict[str, Any], optional: Iterable[str]) -> dict[str, Any]:
        """Return the update that writes a row: its attributes, without those that it lacks."""
        key = {name: item.pop(name) for name in (attr.PK, attr.SK)}
        absent = [n for n in optional if n not in item]
        fields = {f"#f{n}": name for n, name in enumerate([*item, *absent])}
        sets = ", ".join(f"#f{n} = :f{n}" for n in range(len(item)))
        removes = ", ".join(list(fields)[len(item) :])
        return {
            "TableName": self._table,
            "Key": key,
            "UpdateExpression": f"SET {sets}" + (f" REMOVE {removes}" if removes else ""),
            "ExpressionAttributeNames": fields,
            "ExpressionAttributeValues": {f":f{n}": v for n, v in enumerate(item.values())},
        }

    def _topic_stays(self, topic: str) -> dict[str, Any]:
        return {
            "ConditionCheck": {
                "TableName": self._table,
                "Key": topic_key(topic),
                "ConditionExpression": (
                    "attribute_exists(#pk) AND attribute_not_exists(#dl)"
                    " AND attribute_not_exists(#mr)"
                ),
                "ExpressionAttributeNames": {
                    "#pk": attr.PK,
                    "#dl": attr.DELETING,
                    "#mr": attr.MESSAGE_RETENTION,
                },
            }
        }

    def _change(self, topic: str, actions: list[dict[str, Any]]) -> bool:
        """Make changes of a topic and count them; return whether their conditions held.

        The count costs 2 WRU a KB of the version row, and 0.5 RRU to choose a slot.
        """
        before = self.changes(consistent=False)
        bump = change_update(self._table, attr.CONFIG_VERSION, topic, before)
        try:
            self._calls.call("transact_write_items", TransactItems=[*actions, {"Update": bump}])
        except TransactionCancelled:
            return False
        return True


def _name_of(item: Mapping[str, Any]) -> str:
    """Return the topic's name of a topic or subscription row."""
    return str(item[attr.SK]["S"]).split("#", 2)[1]


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
    if len(there.subscription_names.union(more)) > MAX_SUBSCRIPTIONS:
        raise TopicConflict(there.topic.name, f"{MAX_SUBSCRIPTIONS} subscriptions at most")


def _reconciled(topic: Topic, there: Topic) -> Topic:
    """Return the topic as it is to be: as it is there, but for what is given.

    Raises:
        TopicConflict: it differs in what cannot be changed this way.
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

"""Clients of feeds: the rows of their connections, the leases of topics, and the held polls.

A connection's row has its user, its grants, and the topics that it follows. Until the end of a
topic's lease, clients of an audience shard may follow the topic: a message is sent to the audience
shards that have a lease of its topic, or of a private topic to the connections with a lease. A
lease outlives each connection for which it was taken, so no lease is taken back. The held polls
are one set, which bounds how many there are.
"""

from __future__ import annotations

import logging
import zlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from fairbox.errors import Throttled, Unreadable
from fairbox.tables.calls import Calls, ConditionFailed, Rows
from fairbox.tables.feed_topics import topic_pk
from fairbox.tables.keys import EXPIRES_AT, PK, SK, Item, Key, check_version, key
from fairbox.tables.stored_messages import number
from fairbox.tables.unreadable_items import reading

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping


# connection of a client of feeds (table Feeds)
USER: Final = "u"  # S, as its token names it
GRANTS: Final = "g"  # SS, `feed/key` and `feed/*`, of its token
TOPICS: Final = "t"  # SS, topics that it follows; missing where there are none

LIFE_SECONDS: Final = 2 * 3600
"""API Gateway closes a connection after two hours."""
_KEPT_SECONDS: Final = LIFE_SECONDS + 300
LEASE_SECONDS: Final = LIFE_SECONDS + 3600

# held polls (table Feeds)
HELD: Final = "h"  # SS, each poll: until when, in s since 1970 UTC, a space, its id

HELD_KEY: Final = key("polls", "held")

logger = logging.getLogger("fairbox")


@dataclass(frozen=True, slots=True)
class Connection:
    """A client's connection.

    Attributes:
        grants: topics, and `feed/*` for all of a feed except private ones.
        topics: the topics that it follows, `feed/key`.
    """

    user: str
    grants: frozenset[str]
    topics: frozenset[str] = frozenset()


def connection_key(shard: int, id_: str) -> Key:
    """Return the key of a connection of an audience shard."""
    return key(f"c#{shard}", id_)


def lease_sk(shard: int, connection: str | None = None) -> str:
    """Return the sort key of a shard's lease, or of a connection's, for a private topic."""
    return f"s#{shard}" if connection is None else f"s#{shard}#{connection}"


def to_item(at: Key, connection: Connection, expires: int) -> Item:
    """Return the row."""
    item = at | {
        USER: {"S": connection.user},
        GRANTS: {"SS": sorted(connection.grants)},
        EXPIRES_AT: number(expires),
    }
    # DynamoDB knows no empty set
    if connection.topics:
        item[TOPICS] = {"SS": sorted(connection.topics)}
    return item


def of_item(item: Mapping[str, Any]) -> Connection:
    """Return the connection of a row.

    Raises:
        Unreadable: it is none; NewerVersion: a newer release wrote it.
    """
    check_version(item)
    with reading(item, LookupError, TypeError):
        topics = item[TOPICS]["SS"] if TOPICS in item else ()
        return Connection(item[USER]["S"], frozenset(item[GRANTS]["SS"]), frozenset(topics))


def _readable(items: Iterable[Item]) -> dict[str, Connection]:
    """Return connections by id; one that cannot be read keeps no other one waiting."""
    found: dict[str, Connection] = {}
    for item in items:
        try:
            found[item[SK]["S"]] = of_item(item)
        except Unreadable as error:
            logger.warning("the row of a connection cannot be read", extra={"error": str(error)})
    return found


class FeedConnections(Rows):
    """Reads and writes the rows of connections.

    A connection is in one of `shards` partitions, by its id. After a change of their number the
    rows of older connections are not found, and their clients connect anew.
    """

    def __init__(self, calls: Calls, table: str, shards: int) -> None:
        super().__init__(calls, table)
        self._shards = shards

    def shard(self, id_: str) -> int:
        """Return the audience shard of a connection."""
        # not `hash`, whose results differ from process to process
        return zlib.crc32(id_.encode()) % self._shards

    def open(self, id_: str, connection: Connection) -> None:
        """Put the row of a new connection (1 WRU a KB)."""
        expires = int(self._calls.clock.now()) + _KEPT_SECONDS
        item = to_item(self._key(id_), connection, expires)
        self._calls.call("put_item", TableName=self._table, Item=item)

    def find(self, id_: str) -> Connection | None:
        """Return a connection, read consistently (1 RRU for 4 KB); None: it has no row."""
        item = self._calls.get(self._table, self._key(id_))
        return None if item is None else of_item(item)

    def in_shard(self, shard: int) -> dict[str, Connection]:
        """Return the connections of a shard by id, read consistently (1 RRU for 4 KB)."""
        return _readable(self._calls.partition(self._table, f"c#{shard}"))

    def of_shard(self, shard: int, ids: Collection[str]) -> dict[str, Connection]:
        """Return those of these connections of a shard that have a row (1 RRU each)."""
        keys = [connection_key(shard, id_) for id_ in ids]
        return _readable(self._calls.batch_get(self._table, keys))

    def join(self, id_: str, topics: Collection[str], most: int) -> bool:
        """Make a connection follow further topics, which already have their leases (1 WRU a KB).

        Returns:
            False: its row is gone, or another request has added topics, and it has over `most`.
        """
        # an update makes a missing row: a closed connection must not come back
        room = "attribute_not_exists(#t) OR size(#t) <= :room"
        return self._update(id_, "ADD", topics, f"attribute_exists(#pk) AND ({room})", most)

    def leave(self, id_: str, topics: Collection[str]) -> None:
        """Stop a connection from following topics (1 WRU a KB)."""
        # refused where its connection is closed, and follows nothing
        self._update(id_, "DELETE", topics, "attribute_exists(#pk)")

    def close(self, id_: str) -> None:
        """Delete the row (1 WRU a KB)."""
        self._calls.call("delete_item", TableName=self._table, Key=self._key(id_))

    def _key(self, id_: str) -> Key:
        return connection_key(self.shard(id_), id_)

    def _update(
        self, id_: str, verb: str, topics: Collection[str], condition: str, most: int | None = None
    ) -> bool:
        room = {} if most is None else {":room": number(most - len(topics))}
        return self._calls.written(
            "update_item",
            TableName=self._table,
            Key=self._key(id_),
            UpdateExpression=f"{verb} #t :t",
            ConditionExpression=condition,
            ExpressionAttributeNames={"#pk": PK, "#t": TOPICS},
            ExpressionAttributeValues={":t": {"SS": sorted(topics)}} | room,
        )


class FeedLeases(Rows):
    """Reads and writes the leases of topics."""

    def audience(self, topic: str) -> dict[int, list[str] | None]:
        """Return the audience of messages published to a topic from now on (1 RRU for 4 KB).

        Returns:
            By audience shard, the connections, for a private topic; None: all that follow it.
        """
        now = self._calls.clock.now()
        audience: dict[int, list[str] | None] = {}

        leases = self._calls.partition(
            self._table, topic_pk(topic), "begins_with(#sk, :sk)", sk="s#"
        )
        for item in leases:
            if int(item[EXPIRES_AT]["N"]) <= now:
                # DynamoDB deletes expired items late, by up to days
                continue

            _, shard, *connection = item[SK]["S"].split("#", 2)
            if not connection:
                audience[int(shard)] = None
            elif (named := audience.setdefault(int(shard), [])) is not None:
                named += connection

        return audience

    def take(self, leases: Mapping[str, str]) -> None:
        """Give each topic a lease that a connection made now does not outlive.

        A lease that still lasts as long is left alone: 0.5 RRU for it, and 1 WRU for each other.
        `leases` has the sort key of each by topic.

        Raises:
            Throttled: some were not written.
        """
        now = int(self._calls.clock.now())
        keys = [key(topic_pk(topic), sk) for topic, sk in leases.items()]

        lasting = {
            (item[PK]["S"], item[SK]["S"])
            # a stale read costs a write too many, and nothing else
            for item in self._calls.batch_get(self._table, keys, consistent=False)
            if int(item[EXPIRES_AT]["N"]) >= now + LIFE_SECONDS
        }

        expires = {EXPIRES_AT: number(now + LEASE_SECONDS)}

        # without a condition: of two processes that write at once, either's lease lasts long enough
        puts = [
            {"PutRequest": {"Item": one | expires}}
            for one in keys
            if (one[PK]["S"], one[SK]["S"]) not in lasting
        ]

        if self._calls.batch_write(self._table, puts):
            raise Throttled("leasing topics")


class FeedPolls(Rows):
    """Reads and writes the row of held polls."""

    def hold(self, poll: str, most: int) -> bool:
        """Count a poll as held, unless `most` are (1 WRU a KB; 3 where killed ones leave room).

        The poll, `<until> <id>`, counts until then, even if nobody releases it.
        """
        room = "attribute_not_exists(#h) OR size(#h) < :most"
        # with a bound of 0 even the first poll, which finds no row, is refused
        for _ in range(2 if most else 0):
            try:
                self._update("ADD", {poll}, ConditionExpression=room, most=most)
            except ConditionFailed as failed:
                polls = failed.old.get(HELD, {}).get("SS", ())
                # the holders of polls past their time were killed: nobody else releases these
                ended = {one for one in polls if float(one.split()[0]) < self._calls.clock.now()}
                if not ended:
                    return False
                self._update("DELETE", ended)
            else:
                return True

        return False

    def release(self, poll: str) -> None:
        """Let another poll be held (1 WRU a KB)."""
        self._update("DELETE", {poll})

    def _update(self, verb: str, polls: set[str], most: int | None = None, **more: Any) -> None:
        values: dict[str, Any] = {} if most is None else {":most": number(most)}
        self._calls.call(
            "update_item",
            TableName=self._table,
            Key=HELD_KEY,
            UpdateExpression=f"{verb} #h :polls",
            ExpressionAttributeNames={"#h": HELD},
            ExpressionAttributeValues={":polls": {"SS": sorted(polls)}} | values,
            ReturnValuesOnConditionCheckFailure="ALL_OLD",
            **more,
        )

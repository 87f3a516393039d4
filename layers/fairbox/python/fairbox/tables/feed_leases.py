"""The lease of a topic: until its end, clients of an audience shard may follow the topic.

A message is sent to the audience shards that have a lease of its topic, or of a private topic to
the connections with a lease. A lease outlives each connection for which it was taken, so no lease
is taken back.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from fairbox.errors import Throttled
from fairbox.tables.calls import Rows
from fairbox.tables.feed_connections import LIFE_SECONDS
from fairbox.tables.feed_topics import topic_pk
from fairbox.tables.keys import EXPIRES_AT, PK, SK, key
from fairbox.tables.stored_messages import number

if TYPE_CHECKING:
    from collections.abc import Mapping


LEASE_SECONDS: Final = LIFE_SECONDS + 3600


def lease_sk(shard: int, connection: str | None = None) -> str:
    """Return the sort key of a shard's lease, or of a connection's, for a private topic."""
    return f"s#{shard}" if connection is None else f"s#{shard}#{connection}"


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

        Args:
            leases: sort key of the lease by topic.

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

"""Shard rows, at the head of each `ready` lane: exact counts, the next check, and their index."""

from __future__ import annotations

import zlib
from collections import deque
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import islice
from typing import TYPE_CHECKING, Any, Final

from fairbox.errors import Unreadable
from fairbox.tables.calls import Rows
from fairbox.tables.keys import HEAD, NEEDS, PK, SK, Item, check_version, parse_lane_pk, shard_key
from fairbox.tables.partiql import execute, same, statement
from fairbox.tables.stored_messages import number, numbers, texts, whole
from fairbox.tables.unreadable_items import reading
from fairbox.tables.write_expressions import WriteExpressions

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from fairbox.model.messages import Shard

OUTSTANDING_INDEX: Final = "OutstandingAllTopics"

# of the row with sort key `!` of a shard's `ready` lane
BUCKET: Final = "q"  # S, "0" to "7": hash key of OutstandingAllTopics
LOOK_AT: Final = "l"  # N, ms: range key of OutstandingAllTopics
READY_COUNT: Final = "rc"  # N, messages in lane `ready`
LATER_COUNT: Final = "lc"  # N, messages in lane `later`
READY_DEATHS: Final = "rd"  # N, deaths less redrives, of messages from lane `ready`
LATER_DEATHS: Final = "ld"  # N, the same of lane `later`
READY_SEQUENCE: Final = "rs"  # S, stream sequence number that last changed the counts of `ready`
LATER_SEQUENCE: Final = "ls"  # S, the same of lane `later`
BACKOFF: Final = "bo"  # N, seconds by which a visit that could send nothing last moved `look_at` on
RECOUNT: Final = "rq"  # N, absent: the counts are right; 0: a recount is asked for; ms: one began
PURGED_DEAD: Final = "pd"  # N, dead letters purged or cancelled by operators
ROW_VERSION: Final = "ve"  # N, counts every change of what is held (ordered topics)
SETTLED: Final = "oe"  # BOOL, no older shard of an ordered topic lists the shard's keys

# projected into OutstandingAllTopics
PROJECTED_COUNTS: Final = (READY_COUNT, LATER_COUNT, READY_DEATHS, LATER_DEATHS, PURGED_DEAD)

NEVER_MS: Final = 253_402_300_799_000
"""The next check of a shard that holds dead letters only, so that it is listed: 9999-12-31."""
BUCKETS: Final = tuple("01234567")
"""A hash key takes 1,000 WRU/s: 10,000 shards that are counted each 20 s write twice as many."""
# what writers of a row other than the one at work change
_WATCHED: Final = (READY_SEQUENCE, LATER_SEQUENCE, LOOK_AT, PURGED_DEAD, RECOUNT)
_FIRST_BACKOFF_SECONDS: Final = 60
MAX_BACKOFF_SECONDS: Final = 600


@dataclass(frozen=True, slots=True)
class ShardRow:
    """The row at the head of a shard's `ready` lane: exact counts and the next check.

    Attributes:
        ready, later: messages outstanding in each lane.
        ready_deaths, later_deaths: deaths less redrives, counted from each lane's stream.
        ready_sequence, later_sequence: stream sequence number that last changed each lane's count.
        next_check: when the sweep looks, in milliseconds since 1970 UTC; None: nothing is there.
        backoff: seconds by which a visit that could send nothing last moved `next_check` on.
        purged_dead: dead letters purged or cancelled by operators.
        settled: no older shard of an ordered topic lists the shard's keys.
        recount: None: the counts are right as of their sequence numbers; 0: they may be wrong, and
            a recount is asked for; else when one began (ms), and changes are kept for it. An entry
            of the index does not say.
    """

    topic: str
    epoch: int
    shard: int
    ready: int = 0
    later: int = 0
    ready_deaths: int = 0
    later_deaths: int = 0
    ready_sequence: str = ""
    later_sequence: str = ""
    next_check: int | None = None
    backoff: int = 0
    purged_dead: int = 0
    settled: bool = False
    recount: int | None = None

    @property
    def place(self) -> Shard:
        """The shard."""
        return self.topic, self.epoch, self.shard

    @property
    def outstanding(self) -> int:
        """Messages in both lanes."""
        return self.ready + self.later

    @property
    def odd(self) -> bool:
        """Whether its counts cannot be right: a negative one, or none where a check is due."""
        negative = self.ready < 0 or self.later < 0
        return negative or (self.outstanding == 0 and self.next_check not in (None, NEVER_MS))

    @property
    def may_hold(self) -> bool:
        """Whether messages may lie in its lanes, as far as its counts can be believed."""
        return self.outstanding > 0 or self.odd

    def doubted(self, now: int) -> ShardRow:
        """Return the row with its counts in doubt, and listed for the next sweep (`now`: ms)."""
        next_check = now if self.next_check is None else min(self.next_check, now)
        return replace(self, recount=0, next_check=next_check)

    @property
    def dead(self) -> int:
        """Messages in the lane `dead`."""
        return self.ready_deaths + self.later_deaths - self.purged_dead

    @property
    def zero(self) -> bool:
        """Whether it counts nothing at all."""
        return (self.ready, self.later, self.dead) == (0, 0, 0)


def bucket(topic: str, epoch: int, shard: int) -> str:
    """Return the bucket of the index that a shard row lies in while it has a next check."""
    # not `hash`, whose results differ from process to process
    return BUCKETS[zlib.crc32(f"{topic}#{epoch}#{shard}".encode()) % len(BUCKETS)]


def shard_item(row: ShardRow) -> Item:
    """Return the item of a shard row; it is in the index only while it has a next check."""
    counts = {
        READY_COUNT: row.ready,
        LATER_COUNT: row.later,
        READY_DEATHS: row.ready_deaths,
        LATER_DEATHS: row.later_deaths,
        PURGED_DEAD: row.purged_dead,
        BACKOFF: row.backoff,
    }
    sequences = {READY_SEQUENCE: row.ready_sequence, LATER_SEQUENCE: row.later_sequence}

    item: Item = shard_key(row.topic, row.epoch, row.shard)
    # zeroes and empty texts are not written
    item |= numbers({name: value or None for name, value in counts.items()})
    item |= texts({name: text or None for name, text in sequences.items()})
    item |= numbers({RECOUNT: row.recount})
    if row.settled:
        item[SETTLED] = {"BOOL": True}

    # both keys of the index, or neither
    if row.next_check is not None:
        item[LOOK_AT] = number(row.next_check)
        item[BUCKET] = {"S": bucket(row.topic, row.epoch, row.shard)}

    return item


def read_shard(item: Mapping[str, Any]) -> ShardRow:
    """Return the shard row that an item (or an entry of the index) holds.

    Raises:
        Unreadable: it is no shard row; NewerVersion: a newer release wrote it.
    """
    if NEEDS in item:
        check_version(item)
    with reading(item, KeyError, ValueError, TypeError, AttributeError):
        _, topic, epoch, shard = parse_lane_pk(item[PK]["S"])

        def count(name: str) -> int:
            return whole(item, name) or 0

        return ShardRow(
            topic,
            epoch,
            shard,
            ready=count(READY_COUNT),
            later=count(LATER_COUNT),
            ready_deaths=count(READY_DEATHS),
            later_deaths=count(LATER_DEATHS),
            ready_sequence=item.get(READY_SEQUENCE, {"S": ""})["S"],
            later_sequence=item.get(LATER_SEQUENCE, {"S": ""})["S"],
            next_check=whole(item, LOOK_AT),
            backoff=count(BACKOFF),
            purged_dead=count(PURGED_DEAD),
            recount=whole(item, RECOUNT),
            settled=item.get(SETTLED) == {"BOOL": True},
        )


def is_shard_row(item: Mapping[str, Any]) -> bool:
    """Whether an item of the outbox is a shard row."""
    pk = str(item.get(PK, {}).get("S", ""))
    return pk.startswith("ready#") and item.get(SK) == {"S": HEAD}


class ShardRows(Rows):
    """Reads and changes shard rows."""

    def get_many(self, shards: Sequence[tuple[str, int, int]]) -> list[ShardRow]:
        """Return the rows that are there (consistent, 100 a call)."""
        keys = [shard_key(*shard) for shard in shards]
        return [read_shard(item) for item in self._calls.batch_get(self._table, keys)]

    def outstanding(self, shards: Sequence[tuple[str, int, int]]) -> int:
        """Return the messages of shards by their rows (0.5 RRU each, eventually consistent).

        Only the counts are asked for, which is all that policies of producers allow.
        """
        keys = [shard_key(*shard) for shard in shards]
        counts = (READY_COUNT, LATER_COUNT)
        only = (PK, SK, *counts)
        found = self._calls.batch_get(self._table, keys, consistent=False, only=only)
        # a count in doubt may be negative: it must not hide the messages of another shard
        return sum(max(0, int(i[name]["N"])) for i in found for name in counts if name in i)

    def change(self, row: ShardRow, before: ShardRow) -> bool:
        """Write the differences if other writers' attributes are as in `before`; say if so."""
        old = self._calls.refused("update_item", **self.change_action(row, before))
        # ours, when the answer to an earlier try was lost
        return old is None or (bool(old) and read_shard(old) == row)

    def change_action(self, row: ShardRow, before: ShardRow) -> dict[str, Any]:
        """Return the update that `change` makes, for a transaction."""
        new, old = shard_item(row), shard_item(before)
        changed = [n for n, value in new.items() if old.get(n) != value]
        removed = [n for n in old if n not in new]

        # no counts are compared: whoever changes one changes a sequence number or the recount too
        write = WriteExpressions()
        for n, name in enumerate(_WATCHED):
            write.same(f"w{n}", name, old.get(name))
        for n, name in enumerate([*changed, *removed], start=len(_WATCHED)):
            write.put(f"c{n}", name, new.get(name))

        return {
            "TableName": self._table,
            "Key": shard_key(row.topic, row.epoch, row.shard),
            **write.expressions,
            "ReturnValuesOnConditionCheckFailure": "ALL_OLD",
            **write.bound,
        }

    def delete(self, rows: Sequence[ShardRow]) -> int:
        """Delete rows that are as they were read, 25 a call; return how many were."""
        statements = []
        for row in rows:
            old = shard_item(row)
            wheres, values = same({name: old.get(name) for name in _WATCHED})
            place = shard_key(row.topic, row.epoch, row.shard)
            statements.append(
                statement("DELETE FROM", self._table, place, wheres=wheres, parameters=values)
            )

        return sum(answer.done for answer in execute(self._calls, statements))

    def postpone_check(self, row: ShardRow, next_due: int, now: int) -> None:
        """Postpone the sweep's next check: to `next_due`, or twice as far as before (3 WRU)."""
        backoff = min(MAX_BACKOFF_SECONDS, max(_FIRST_BACKOFF_SECONDS, row.backoff * 2))
        next_check_at = now + backoff * 1000
        if now < next_due:
            next_check_at = min(next_check_at, next_due)
        self.postpone(row, next_check_at, backoff)

    def postpone(self, row: ShardRow, next_check: int, backoff: int) -> bool:
        """Postpone the next check where it is as in `row`; return whether it was."""
        if row.next_check is None:
            return False

        return self._calls.written(
            "update_item",
            TableName=self._table,
            Key=shard_key(row.topic, row.epoch, row.shard),
            UpdateExpression="SET #l = :l, #b = :b",
            # a check that somebody called for since must not be put off
            ConditionExpression="#l = :was",
            ExpressionAttributeNames={"#l": LOOK_AT, "#b": BACKOFF},
            ExpressionAttributeValues={
                ":l": number(next_check),
                ":b": number(backoff),
                ":was": number(row.next_check),
            },
        )

    def settle(self, topic: str, epoch: int, shard: int) -> None:
        """Write into a row, made where there is none, that no older shard lists its keys."""
        self._calls.call(
            "update_item",
            TableName=self._table,
            Key=shard_key(topic, epoch, shard),
            UpdateExpression="SET #s = :true",
            ExpressionAttributeNames={"#s": SETTLED},
            ExpressionAttributeValues={":true": {"BOOL": True}},
        )

    def listed(self, until: int | None = None) -> Iterator[ShardRow]:
        """Yield the index's rows, eventually consistent; with `until` (ms): those due by then.

        The buckets take turns, page by page, so that a caller that stops early has rows of each.
        """
        buckets = deque(self._bucket_pages(bucket, until) for bucket in BUCKETS)
        while buckets:
            pages = buckets.popleft()
            for page in islice(pages, 1):
                buckets.append(pages)
                for item in page["Items"]:
                    with suppress(Unreadable):  # repair buries it
                        yield read_shard(item)

    def _bucket_pages(self, bucket: str, until: int | None) -> Iterator[dict[str, Any]]:
        condition, values = "#q = :q", {":q": {"S": bucket}}
        expression_names = {"#q": BUCKET}
        if until is not None:
            condition += " AND #l <= :l"
            values[":l"] = number(until)
            expression_names["#l"] = LOOK_AT

        return self._calls.pages(
            "query",
            TableName=self._table,
            IndexName=OUTSTANDING_INDEX,
            KeyConditionExpression=condition,
            ExpressionAttributeNames=expression_names,
            ExpressionAttributeValues=values,
        )


def versioned_update(
    table: str,
    key: Mapping[str, Any],
    values: Mapping[str, Any],
    attributes: Sequence[str],
    version: int,
) -> dict[str, Any]:
    """Return the update of a shard row where it has this version (0: none yet; 1 WRU a KB).

    The values have the new version among them. `attributes` are the others that belong to the
    caller: those without a value are removed.
    """
    write = WriteExpressions()
    write.put("v", ROW_VERSION, values[ROW_VERSION])
    for n, name in enumerate(attributes):
        # one without a value is removed: an old value would stay as if it were new
        write.put(f"h{n}", name, values.get(name))
    write.same("v", ROW_VERSION, number(version) if version else None, "was")

    return {
        "TableName": table,
        "Key": dict(key),
        **write.expressions,
        **write.bound,
        "ReturnValuesOnConditionCheckFailure": "ALL_OLD",
    }

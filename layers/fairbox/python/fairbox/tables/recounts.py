"""Recounts of shards: asked for by marking and repair, carried out by repair.

An item has the state of a recount; others gather the keys of its shard.
"""

from __future__ import annotations

import hashlib
import json
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any, Final, Literal

from fairbox.errors import Unavailable, Unreadable
from fairbox.model.messages import Message, MessageRef, Shard
from fairbox.model.swap import swap
from fairbox.tables.calls import Calls, ConditionFailed
from fairbox.tables.keys import HEAD, PK, SK, Item, Key, key, key_of, lane_pk, message_sk
from fairbox.tables.shard_rows import ShardRow, ShardRows
from fairbox.tables.stored_messages import GONE, MOVED, STATE_DEAD, STATES, message_item
from fairbox.tables.stream_records import sequence_order
from fairbox.tables.unreadable_items import reading
from fairbox.tables.write_expressions import condition

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping


# of the items of partition `recount`: one a shard; what they gather lies beside it
RECOUNT_STATE: Final = "cu"  # S, how far a recount is, as JSON
RECOUNT_MARKS: Final = "b"  # B, keys that were read, or that changed: a mark of nine bytes each

Part = Literal["ready", "later", "dead"]
PARTS: Final[tuple[Part, ...]] = ("ready", "later", "dead")
RECOUNTS: Final = "recount"
_DIGEST_BYTES: Final = 8
_CELL: Final = 1 + _DIGEST_BYTES
_KINDS: Final = {("present", True): b"+", ("present", False): b"-"} | {
    ("dead", True): b"d",
    ("dead", False): b"a",
}
_MEANINGS: Final = {kind: meaning for meaning, kind in _KINDS.items()}
_PAGE_LIMIT = 5_000


@dataclass(frozen=True, slots=True)
class Recount:
    """A recount of one shard that was asked for.

    Attributes:
        since: when it began, in milliseconds since 1970 UTC; 0: it has not.
        part: the lane that is read; None: all are.
        after: the sort key up to which that lane was read; empty: its reading has not begun.
        pages: pages that were read, of all lanes.
        purged: `purged_dead` of the shard's row when it began.
        fences: lane -> sort key of the item that was put there and deleted after all were read.
    """

    topic: str
    epoch: int
    shard: int
    since: int = 0
    part: Part | None = "ready"
    after: str = ""
    pages: int = 0
    purged: int = 0
    fences: Mapping[str, str] = field(default_factory=dict)

    @property
    def place(self) -> tuple[str, int, int]:
        """The shard."""
        return self.topic, self.epoch, self.shard


@dataclass(frozen=True, slots=True)
class LaneMarks:
    """Keys of a lane, by digest: keys that were read, or the newest state of changed keys.

    Attributes:
        present: digest of a sort key -> whether the item lies in the lane.
        dead: digest of an id -> whether a dead letter of that id counts.
    """

    present: Mapping[bytes, bool] = field(default_factory=dict)
    dead: Mapping[bytes, bool] = field(default_factory=dict)


def digest(text: str) -> bytes:
    """Return the eight bytes that stand for a sort key or an id.

    Two keys of which one changes while a million are read share theirs once in 10^13 times.
    """
    return hashlib.blake2b(text.encode(), digest_size=_DIGEST_BYTES).digest()


def recount_key(topic: str, epoch: int, shard: int) -> Key:
    """Return the key of a shard's recount."""
    return key(RECOUNTS, f"{topic}#{epoch}#{shard}")


def recount_place(item: Mapping[str, Any]) -> tuple[str, int, int]:
    """Return topic, epoch and shard of a recount's item."""
    topic, epoch, shard = item[SK]["S"].split("#")
    return topic, int(epoch), int(shard)


def recount_item(recount: Recount) -> Item:
    """Return the item of a recount."""
    state = asdict(recount)
    place = recount_key(*(state.pop(name) for name in ("topic", "epoch", "shard")))
    return place | {RECOUNT_STATE: {"S": json.dumps(state, separators=(",", ":"))}}


def read_recount(item: Mapping[str, Any]) -> Recount:
    """Return the recount that an item holds; one that was only asked for has no state.

    Raises:
        Unreadable: it is none.
    """
    with reading(item, LookupError, ValueError, TypeError, AttributeError):
        state = json.loads(item.get(RECOUNT_STATE, {"S": "{}"})["S"])
        return Recount(*recount_place(item), **state)


def marks_pk(place: tuple[str, int, int]) -> str:
    """Return the partition key of the marks that the recounts of a shard gather."""
    return f"{RECOUNTS}#{'#'.join(map(str, place))}"


def read_sk(since: int, part: Part, page: int | None = None) -> str:
    """Return the sort key of a page of keys that were read, or the beginning of all of a lane."""
    return f"{since}#read#{part}#" + ("" if page is None else f"{page:08d}")


def changes_sk(since: int, lane: str, last: str = "", first: str = "") -> str:
    """Return the sort key of changes between two sequence numbers, or the beginning of all.

    Keys sort by the last sequence number.
    """
    beginning = f"{since}#changed#{lane}#"
    return f"{beginning}{sequence_order(last)}#{first}" if last else beginning


def marks_value(marks: LaneMarks) -> dict[str, Any]:
    """Return the attribute that holds marks."""
    cells = [_KINDS["present", there] + at for at, there in marks.present.items()]
    cells += [_KINDS["dead", there] + at for at, there in marks.dead.items()]
    return {"B": b"".join(cells)}


def read_marks(items: Iterable[Mapping[str, Any]]) -> LaneMarks:
    """Return the marks of items together; the later item is right about a key."""
    found: dict[str, dict[bytes, bool]] = {"present": {}, "dead": {}}
    for item in items:
        packed = bytes(item[RECOUNT_MARKS]["B"])
        for at in range(0, len(packed), _CELL):
            about, there = _MEANINGS[packed[at : at + 1]]
            found[about][packed[at + 1 : at + _CELL]] = there
    return LaneMarks(found["present"], found["dead"])


def keys_of(part: Part, items: Iterable[Mapping[str, Any]]) -> LaneMarks:
    """Return marks of a lane's items, of which only key and states are needed."""
    present: dict[bytes, bool] = {}
    dead: dict[bytes, bool] = {}
    for item in items:
        sk = item[SK]["S"]
        if sk == HEAD:
            continue
        if part != "dead":
            present[digest(sk)] = True
        # a death counts from its mark on, while the message still lies in its lane
        if part == "dead" or _died(item):
            dead[digest(id_of(sk))] = True
    return LaneMarks(present, dead)


def id_of(sk: str) -> str:
    """Return the id in which the sort key of a lane ends."""
    return sk.rpartition("#")[2]


def _died(item: Mapping[str, Any]) -> bool:
    states = item.get(STATES, {})
    values = states.get("M", {}).values() if isinstance(states, dict) else ()
    return any(STATE_DEAD in value.get("M", {}) for value in values)


def fence_item(place: tuple[str, int, int], lane: Part, message_id: str, now: int) -> Item:
    """Return an item that enters a lane to leave it at once, so that the stream names the place.

    It is the mark of a message that was moved away: any reader deletes it, in any release, and
    neither its insert nor its removal is an event.
    """
    topic, epoch, shard = place
    due = now if lane == "later" else None
    message = Message(topic=topic, body=b"", id=message_id)
    item, _ = message_item(message, MessageRef(topic, epoch, shard, message_id, due), bucket=None)
    return item | {GONE: {"S": "moved"}, MOVED: {"BOOL": True}}


def fence_sk(lane: Part, message_id: str, now: int) -> str:
    """Return the sort key of that item."""
    return message_sk(message_id, now if lane == "later" else None, lane)


class RecountTable:
    """Reads and writes recounts, and the marks that they gather."""

    def __init__(self, calls: Calls, outbox: str, deliveries: str, rows: ShardRows) -> None:
        self._calls = calls
        self._rows = rows
        self._table = outbox
        self._deliveries = deliveries

    def doubt(self, shards: Iterable[Shard], now: int) -> None:
        """Doubt the counts of shards from now (ms) on; ask for a recount of each (1 RRU, 2 WRU).

        Raises:
            FairboxError: some may not be asked for; all may be asked for again.
        """
        for shard in shards:
            with suppress(Unreadable):  # it has no counts to doubt
                self._doubt(shard, now)
            self.ask(shard)

    def _doubt(self, shard: Shard, now: int) -> None:
        def read() -> ShardRow:
            return next(iter(self._rows.get_many([shard])), ShardRow(*shard))

        def write(after: ShardRow, before: ShardRow) -> ShardRow | None:
            return None if self._rows.change(after, before) else read()

        if swap(read(), lambda row: row.doubted(now), write) is None:
            raise Unavailable("update_item", "a shard row is changed by others")

    def ask(self, shard: Shard) -> None:
        """Ask for a recount; one that is underway begins again (1 WRU).

        The shard's row is to be in doubt before: a recount that ends in between keeps the request.
        """
        self._calls.call(
            "update_item",
            TableName=self._table,
            Key=recount_key(*shard),
            UpdateExpression="SET #s = :none",
            ExpressionAttributeNames={"#s": RECOUNT_STATE},
            ExpressionAttributeValues={":none": {"S": "{}"}},
        )

    def asked(self) -> list[Recount]:
        """Return the recounts that were asked for (consistent; 1 RRU when there are none)."""
        found: list[Recount] = []
        for item in self._items(RECOUNTS, ""):
            with suppress(Unreadable):  # the scan finds what is wrong with its shard
                found.append(read_recount(item))
        return found

    def places(self) -> frozenset[Shard]:
        """Return the shards of all recounts, in any state (consistent; 1 RRU for none)."""
        return frozenset(recount_place(item) for item in self._items(RECOUNTS, ""))

    def save(self, recount: Recount) -> None:
        """Keep how far a recount is."""
        self._calls.call("put_item", TableName=self._table, Item=recount_item(recount))

    def read(self, recount: Recount) -> tuple[str, float]:
        """Read on in the lane of a recount (consistent), and keep the keys.

        Returns:
            The sort key to go on after, empty at the end; and the read units used.
        """
        part = recount.part or "ready"
        pk = lane_pk(part, *recount.place)
        dead = part == "dead"

        arguments: dict[str, Any] = {
            "TableName": self._deliveries if dead else self._table,
            "ConsistentRead": True,
            "Limit": _PAGE_LIMIT,
            "ReturnConsumedCapacity": "TOTAL",
            "KeyConditionExpression": "#pk = :pk",
            # it saves bytes on the way, and no units
            "ProjectionExpression": "#sk" if dead else "#sk, #states",
            "ExpressionAttributeNames": {"#pk": PK, "#sk": SK}
            | ({} if dead else {"#states": STATES}),
            "ExpressionAttributeValues": {":pk": {"S": pk}},
        }
        if recount.after:
            arguments["ExclusiveStartKey"] = key(pk, recount.after)
        answer = self._calls.call("query", **arguments)

        marks = keys_of(part, answer["Items"])
        if marks.present or marks.dead:
            # a page read again after a crash has the same number, and overwrites
            self._keep(recount.place, read_sk(recount.since, part, recount.pages), marks)

        units = float(answer.get("ConsumedCapacity", {}).get("CapacityUnits", 0.0))
        return answer.get("LastEvaluatedKey", {}).get(SK, {"S": ""})["S"], units

    def log(self, row: ShardRow, lane: Part, marks: LaneMarks, *, first: str, last: str) -> None:
        """Keep the changes of a lane between two sequence numbers; a repetition overwrites."""
        place = row.topic, row.epoch, row.shard
        self._keep(place, changes_sk(row.recount or 0, lane, last, first), marks)

    def changes(self, recount: Recount, lane: Part, until: str) -> LaneMarks:
        """Return the newest state of the keys that changed in a lane, up to a sequence number."""
        if not until:
            return LaneMarks()
        # keys end in their first sequence number, which sorts below `~`
        bound = changes_sk(recount.since, lane, until) + "~"
        items = self._items(marks_pk(recount.place), changes_sk(recount.since, lane))
        return read_marks(item for item in items if item[SK]["S"] < bound)

    def pages(self, recount: Recount, part: Part) -> Iterator[LaneMarks]:
        """Yield the pages of keys that were read of a lane."""
        items = self._items(marks_pk(recount.place), read_sk(recount.since, part))
        return (read_marks([item]) for item in items)

    def fence(self, recount: Recount, lane: Part, message_id: str, now: int) -> None:
        """Make an item enter a lane and leave it (2 WRU)."""
        item = fence_item(recount.place, lane, message_id, now)
        self._calls.call("put_item", TableName=self._table, Item=item)
        self._calls.call("delete_item", TableName=self._table, Key=key_of(item))

    def forget(self, recount: Recount, *, done: bool) -> None:
        """Delete the marks of a shard's recounts; with `done` the request too, unless it is new.

        Raises:
            Unavailable: some marks are left.
        """
        pk = marks_pk(recount.place)
        requests = [{"DeleteRequest": {"Key": key_of(i)}} for i in self._items(pk, "")]
        left = self._calls.batch_write(self._table, requests)
        if left:
            raise Unavailable("batch_write_item", f"{len(left)} marks were not deleted")

        if not done:
            return

        # last: without the request nobody comes back for marks that a crash left
        with suppress(ConditionFailed):  # it was asked for again
            self._calls.call(
                "delete_item",
                TableName=self._table,
                Key=recount_key(*recount.place),
                **condition("s", RECOUNT_STATE, recount_item(recount)[RECOUNT_STATE]),
            )

    def _keep(self, shard: Shard, sk: str, marks: LaneMarks) -> None:
        self._calls.call(
            "update_item",
            TableName=self._table,
            Key=key(marks_pk(shard), sk),
            UpdateExpression="SET #m = :m",
            ExpressionAttributeNames={"#m": RECOUNT_MARKS},
            ExpressionAttributeValues={":m": marks_value(marks)},
        )

    def _items(self, pk: str, prefix: str) -> Iterator[dict[str, Any]]:
        if not prefix:
            return self._calls.partition(self._table, pk)
        return self._calls.partition(self._table, pk, "begins_with(#sk, :prefix)", prefix=prefix)

"""Tables to lineage: the messages that a question names, and those that they led to.

A message's first event is at most a day earlier than its id, which is a UUIDv7; this prunes days of
`messages`. Ids ascend with time, so the statistics of files prune most of the later days. The
times of the messages prune `events`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import reduce
from operator import or_
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql import functions as F

from fairbox_pipeline.lineage import COMPLETION, COPY, REPLAY, Event, Lineage, Link, Message
from fairbox_pipeline.schemas import DAY_MS, EVENTS_TABLE, KEY, MESSAGES_TABLE, REPLAYS_TABLE

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Sequence

    from pyspark.sql import Column, DataFrame, Row

    from fairbox_pipeline.warehouse import Warehouse

    Key = tuple[str, int, int, str]

MOST_EVENTS: Final = 10_000
_NOTICES: Final = "fairbox.batches."
"""Prefix of the topics that tell of the end of a batch; its id is the message's partition key."""
_TRACING: Final = ("traceparent", "ce-traceparent")
_UUID7: Final = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}")
_CHUNK: Final = 200
"""Values of one `IN` of which Iceberg still compares each with the statistics of a file."""
_PART: Final = 20
"""Messages whose events are read within one span of time."""
_OF_EVENT: Final = Event.__slots__
_COLUMNS: Final = (
    *(*KEY, "state", "partition_key", "content_type", "size", "batch_item", "due"),
    *("first_at", "last_at", "subscriptions"),
)


@dataclass(frozen=True, slots=True)
class Question:
    """A question about messages: one of `ref`, `id`, `traceparent`, `batch`, `key`.

    Attributes:
        by: which of them.
        values: topic, epoch, shard and id; or the id; or the trace id; or the batch's id; or topic
            and partition key.
        since, until: the first event lies in them (ms); None: open. Not for `ref` and `id`.
    """

    by: str
    values: tuple[Any, ...]
    since: int | None = None
    until: int | None = None

    @property
    def texts(self) -> list[str]:
        """The values as the command takes them."""
        texts = [str(value) for value in self.values]
        return ["/".join(texts)] if self.by == "ref" else texts


def is_uuid7(text: str) -> bool:
    """Whether a text is a UUIDv7 in lower case, as ids of messages are."""
    return _UUID7.fullmatch(text) is not None


def lineage_of(warehouse: Warehouse, question: Question, limit: int) -> Lineage | None:
    """Return the answer to a question, of at most `limit` messages; None: no message is meant."""
    reader = _Reader(warehouse, limit)
    asked = reader.ask(question)
    if not asked:
        return None
    reader.follow()
    links = list(reader.links())
    kept = _connected([_ref(reader.rows[key]) for key in asked], links)
    rows = [row for row in reader.rows.values() if _ref(row) in kept]
    copies = {link.target for link in links if link.kind == COPY}
    # a copy has the id and the time of its original
    rows.sort(key=lambda row: (row["first_at"], row["id"], _ref(row) in copies, row["topic"]))
    events = reader.events(rows)
    return Lineage(
        {question.by: question.texts},
        tuple(_message(row, asked, events[_key(row)]) for row in rows),
        tuple(link for link in links if link.source in kept or link.target in kept),
        limit,
        tuple(reader.cut),
    )


class _Reader:
    """Reads rows of messages step by step until none leads to another, or `limit` are there."""

    def __init__(self, warehouse: Warehouse, limit: int) -> None:
        self._messages = warehouse.read(MESSAGES_TABLE).select(*_COLUMNS)
        self._events = warehouse.read(EVENTS_TABLE)
        self._replays = warehouse.read(REPLAYS_TABLE)
        self._limit = limit
        self.rows: dict[Key, Row] = {}
        self._plans: dict[tuple[str, str], Row] = {}
        self._batches: set[str] = set()
        self._whole: set[str] = set()  # ids of which every message has been looked up
        self.cut: list[str] = []

    def ask(self, question: Question) -> set[Key]:
        """Read the messages that a question names; return their keys."""
        first = _between("first_at", question.since, question.until)
        match question.by, question.values:
            case "ref", key:
                self._add(self._with_ids([key[3]]))
                return {key} & self.rows.keys()
            case "id", (id_,):
                self._add(self._with_ids([id_]))
            case "traceparent", (trace,):
                return self._ask_trace(trace, _between("at", question.since, question.until))
            case "batch", (batch,):
                since = _time_of(batch) if is_uuid7(batch) else None
                carried = F.col("batch_item").startswith(f"{batch}:")
                told = F.col("topic").startswith(_NOTICES) & (F.col("partition_key") == batch)
                known = F.lit(True) if since is None else F.col("first_at") >= since - DAY_MS
                self._add(self._messages.where((carried | told) & known & first))
                self._batches.add(batch)
            case "key", (topic, key):
                named = (F.col("topic") == topic) & (F.col("partition_key") == key)
                self._add(self._messages.where(named & first))
        return set(self.rows)

    def _ask_trace(self, trace: str, between: Column) -> set[Key]:
        added = self._events.where((F.col("event") == "added") & between)
        named = F.exists(
            F.map_entries("headers"),
            lambda entry: _is_tracing(entry) & entry["value"].rlike(f"^[0-9a-f]{{2}}-{trace}-"),
        )
        found = added.where(named).select(*KEY, "at").orderBy("at", *KEY).limit(self._limit + 1)
        keys = {_key(row) for row in found.collect()}
        if keys:
            self._add(self._with_ids({key[3] for key in keys}))
        return keys & self.rows.keys()

    def follow(self) -> None:
        """Read what the messages lead to, and what led to them."""
        followed: set[str] = set()
        while not self.cut and (new := {key[3] for key in self.rows} - followed):
            followed |= new
            self._read_notices()
            if wanted := (new | self._replayed(new)) - self._whole:
                self._add(self._with_ids(wanted))

    def _replayed(self, ids: Collection[str]) -> set[str]:
        """Read the plans of replays that name these ids; return the ids at both ends."""
        plans = self._replays.where(_among("id", ids) | _among("new_id", ids))
        found = plans.orderBy("replay", "lane", "position").limit(self._limit + 1).collect()
        if len(found) > self._limit:
            self._tell_cut("replays")
        self._plans |= {(plan["replay"], _ref(plan)): plan for plan in found[: self._limit]}
        return {id_ for plan in found for id_ in (plan["id"], plan["new_id"])}

    def _read_notices(self) -> None:
        """Read the messages that tell of the end of the batches of items."""
        since: dict[str, int] = {}
        for row in self.rows.values():
            if (batch := _batch(row)) is not None and batch not in self._batches:
                since[batch] = min(row["first_at"], since.get(batch, row["first_at"]))
        if since:
            self._batches |= since.keys()
            told = F.col("topic").startswith(_NOTICES) & _among("partition_key", since)
            after = F.col("first_at") >= min(since.values()) - DAY_MS
            self._add(self._messages.where(told & after))

    def _with_ids(self, ids: Collection[str]) -> DataFrame:
        """Return the messages with these ids, of every topic."""
        self._whole |= set(ids)
        found = self._messages.where(_among("id", ids))
        if not all(map(is_uuid7, ids)):
            return found
        return found.where(F.col("first_at") >= min(map(_time_of, ids)) - DAY_MS)

    def _add(self, found: DataFrame) -> None:
        """Take rows up to the limit, the earliest first."""
        rows = found.orderBy("first_at", *KEY).limit(self._limit + 1).collect()
        new = [row for row in rows if _key(row) not in self.rows]
        room = self._limit - len(self.rows)
        self.rows |= {_key(row): row for row in new[:room]}
        if len(new) > room:
            self._tell_cut("messages")

    def _tell_cut(self, what: str) -> None:
        if what not in self.cut:
            self.cut.append(what)

    def links(self) -> Iterator[Link]:
        """Yield the steps between the messages that were read, each once."""
        by_id: dict[str, list[Row]] = {}
        for row in self.rows.values():
            by_id.setdefault(row["id"], []).append(row)
        for row in self.rows.values():
            yield from _copies(row, by_id[row["id"]])
        for plan in self._plans.values():
            targets = [r for r in by_id.get(plan["new_id"], []) if r["topic"] == plan["topic"]]
            for target in targets or (None,):
                yield _link(REPLAY, plan["replay"], plan, target, plan["new_id"])
        notices = [row for row in self.rows.values() if row["topic"].startswith(_NOTICES)]
        for row in self.rows.values():
            for notice in notices:
                if notice["partition_key"] == _batch(row) is not None:
                    yield _link(COMPLETION, notice["partition_key"], row, notice, notice["id"])

    def events(self, rows: Sequence[Row]) -> dict[Key, list[Row]]:
        """Read the events of messages, by time."""
        spans = [
            F.col("at").between(min(r["first_at"] for r in part), max(r["last_at"] for r in part))
            & F.col("id").isin([row["id"] for row in part])
            for part in _chunks(rows, _PART)
        ]
        tracing = F.filter(F.map_entries("headers"), _is_tracing)
        found = (
            self._events.where(reduce(or_, spans))
            .withColumn("traceparent", F.get(tracing, F.lit(0))["value"])
            .select(*KEY, *_OF_EVENT, "traceparent", "event_id")
            .orderBy("at", "event_id")
            .limit(MOST_EVENTS + 1)
            .collect()
        )
        if len(found) > MOST_EVENTS:
            self._tell_cut("events")
        of: dict[Key, list[Row]] = {_key(row): [] for row in rows}
        for event in found[:MOST_EVENTS]:
            of.get(_key(event), []).append(event)
        return of


def _message(row: Row, asked: set[Key], events: Sequence[Row]) -> Message:
    ordered = sorted(events, key=_place)
    told = {name: row[name] for name in Message.__slots__ if name in _COLUMNS}
    return Message(
        **told,
        ref=_ref(row),
        asked=_key(row) in asked,
        traceparent=next((e["traceparent"] for e in ordered if e["event"] == "added"), None),
        events=tuple(Event(*(event[name] for name in _OF_EVENT)) for event in ordered),
    )


def _place(event: Row) -> tuple[Any, ...]:
    """Return the place of an event: by attempt within a second, because deliveries tell no more."""
    attempt = -1 if event["event"] == "added" else event["attempt"]
    last = attempt is None
    return event["at"] // 1000, last, attempt or 0, event["at"], event["event_id"]


def _copies(row: Row, same_id: Iterable[Row]) -> Iterator[Link]:
    """Yield the steps of a message to pulled topics: the copy keeps its id."""
    for taker in row["subscriptions"] or ():
        scheme, _, topic = (taker["destination"] or "").partition(":")
        for other in same_id:
            if scheme == "topic" and other["topic"] == topic and taker["subscription"] is not None:
                yield _link(COPY, taker["subscription"], row, other, other["id"])


def _connected(asked: Iterable[str], links: Sequence[Link]) -> set[str]:
    """Return the refs to which links lead, in whichever direction."""
    neighbours: dict[str, set[str]] = {}
    for link in links:
        if link.target is not None:
            neighbours.setdefault(link.source, set()).add(link.target)
            neighbours.setdefault(link.target, set()).add(link.source)
    found, left = set(asked), list(asked)
    while left:
        new = neighbours.get(left.pop(), set()) - found
        found |= new
        left += new
    return found


def _link(kind: Any, name: str, source: Row, target: Row | None, id_: str) -> Link:
    return Link(kind, name, _ref(source), None if target is None else _ref(target), id_)


def _key(row: Row) -> Key:
    return row["topic"], row["epoch"], row["shard"], row["id"]


def _ref(row: Row) -> str:
    return "/".join(map(str, _key(row)))


def _batch(row: Row) -> str | None:
    item: str | None = row["batch_item"]
    return None if item is None else item.partition(":")[0]


def _is_tracing(entry: Column) -> Column:
    return F.lower(entry["key"]).isin(*_TRACING)


def _time_of(id_: str) -> int:
    return int(id_[:8] + id_[9:13], 16)


def _between(name: str, since: int | None, until: int | None) -> Column:
    found = F.lit(True)
    if since is not None:
        found = found & (F.col(name) >= since)
    return found if until is None else found & (F.col(name) < until)


def _among(name: str, values: Iterable[str]) -> Column:
    parts = _chunks(sorted(values), _CHUNK)
    return reduce(or_, (F.col(name).isin(part) for part in parts))


def _chunks(values: Sequence[Any], size: int) -> list[Sequence[Any]]:
    return [values[n : n + size] for n in range(0, len(values), size)]

"""Explicit schemas: the fields of an archive line, and the columns of every table."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from pyspark.sql.types import (
    ArrayType,
    BooleanType,
    DataType,
    DoubleType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
)

NAMESPACE: Final = "fairbox"
"""Of the tables, unless a deployment has another."""
DAY_MS: Final = 86_400_000
HOUR_MS: Final = 3_600_000
MINUTE_MS: Final = 60_000
PERCENTS: Final = (50, 90, 99)
"""The percentiles of latencies."""

KEY: Final = ("topic", "epoch", "shard", "id")  # what a message is: the same as in a ref
EVENTS: Final = frozenset(
    {"added", "failed", "delivered", "dead", "redriven", "cancelled", "purged", "expired"}
)
STATES: Final = ("cancelled", "purged", "expired", "dead", "delivered", "outstanding")
UNSETTLED: Final = ("dead", "outstanding")
"""The states that somebody still has to do something about."""
FINDING_KINDS: Final = ("lost", "duplicated", "out_of_order", "stuck", "wrong_shard")

_STRING = StringType()
_LONG = LongType()
_HEADERS = MapType(StringType(), StringType())


@dataclass(frozen=True, slots=True)
class Column:
    """One column of a table.

    Attributes:
        name: of the column, and of the field of an archive line where it is one.
        type: Spark's.
        meaning: description for the reference page.
    """

    name: str
    type: DataType
    meaning: str


@dataclass(frozen=True, slots=True)
class Partition:
    """The partitioning of a table's files.

    Attributes:
        column: the column whose values partition.
        width: width of ranges of values; None: one partition per value.
    """

    column: str
    width: int | None = None

    def __str__(self) -> str:
        return self.column if self.width is None else f"truncate({self.width}, {self.column})"


@dataclass(frozen=True, slots=True)
class Table:
    """One Iceberg table of the warehouse.

    Attributes:
        name: in namespace `fairbox`.
        meaning: description of a row.
        columns: in order.
        partition: empty: not partitioned.
        order: the sort order of written files.
    """

    name: str
    meaning: str
    columns: tuple[Column, ...]
    partition: tuple[Partition, ...] = ()
    order: tuple[str, ...] = ()
    properties: dict[str, str] = field(default_factory=dict)

    @property
    def full_name(self) -> str:
        """Name with its namespace, as SQL takes it."""
        return f"{NAMESPACE}.{self.name}"

    @property
    def schema(self) -> StructType:
        """The columns as Spark's schema."""
        return StructType([StructField(c.name, c.type) for c in self.columns])

    @property
    def commented_schema(self) -> StructType:
        """The same, with the meaning of each column."""
        return StructType(
            [
                StructField(c.name, c.type, metadata={"comment": c.meaning} if c.meaning else None)
                for c in self.columns
            ]
        )

    @property
    def names(self) -> list[str]:
        """The names of the columns."""
        return [c.name for c in self.columns]


REQUIRED: Final = (
    Column("event", _STRING, "what happened: one of the eight"),
    Column("at", _LONG, "when, ms since 1970 UTC"),
    Column("topic", _STRING, ""),
    Column("epoch", _LONG, ""),
    Column("shard", _LONG, ""),
    Column("id", _STRING, "of the message, a UUIDv7"),
    Column("event_id", _STRING, "the same for a repetition of the same event"),
)
OPTIONAL: Final = (
    Column("partition_key", _STRING, "on `added`"),
    Column("content_type", _STRING, "on `added`"),
    Column("headers", _HEADERS, "on `added`"),
    Column("body", _STRING, "on `added`; null where it is not archived"),
    Column("body_encoding", _STRING, "on `added`: `utf-8` or `base64`"),
    Column("body_uri", _STRING, "on `added`, of a body that lies in a bucket"),
    Column("size", _LONG, "on `added`: bytes of the body"),
    Column("batch_item", _STRING, "on `added`"),
    Column("ordering", _STRING, "on `added`: `none` or `key`"),
    Column("due", _LONG, "on `added`, of a delayed message: when it is due, ms"),
    Column("subscription", _STRING, "on `failed`, `delivered`, `dead`; on `cancelled`, of a skip"),
    Column("destination", _STRING, "on `failed`, `delivered`, `dead`"),
    Column("attempt", _LONG, "on `failed`, `delivered`, `dead`: from 1"),
    Column("reason", _STRING, "on `failed`, `dead`, `cancelled`, `purged`"),
    Column("precision", _STRING, "`s`: `at` is a whole second, rounded down; null: it is exact"),
)
DRIFT: Final = (
    Column("extra", _STRING, "fields that are not known here, as a JSON object; else null"),
    Column("changed", _STRING, "known fields of another type, as a JSON object; else null"),
)

EVENTS_TABLE: Final = Table(
    "events",
    "One row an `event_id`.",
    (*REQUIRED, *OPTIONAL, *DRIFT),
    partition=(Partition("at", DAY_MS),),
    order=("topic", "id"),
)

_SUBSCRIPTIONS = ArrayType(
    StructType(
        [
            StructField("subscription", _STRING),
            StructField("destination", _STRING),
            StructField("first_delivered_at", _LONG),
            StructField("deliveries", _LONG),
            StructField("failures", _LONG),
            StructField("dead_at", _LONG),
            StructField("skipped", BooleanType()),
            StructField("precision", _STRING),
            StructField("reason", _STRING),
        ]
    )
)
MESSAGES_TABLE: Final = Table(
    "messages",
    "One row a message: a (`topic`, `epoch`, `shard`, `id`).",
    (
        Column("topic", _STRING, ""),
        Column("epoch", _LONG, ""),
        Column("shard", _LONG, ""),
        Column("id", _STRING, ""),
        Column("state", _STRING, ", ".join(f"`{s}`" for s in STATES)),
        Column("partition_key", _STRING, "of its earliest `added`, as the next five"),
        Column("ordering", _STRING, ""),
        Column("content_type", _STRING, ""),
        Column("size", _LONG, "bytes of the body"),
        Column("batch_item", _STRING, ""),
        Column("due", _LONG, "ms, of a delayed message"),
        Column("added_at", _LONG, "earliest `added`, ms; null: none was seen"),
        Column("first_at", _LONG, "earliest event, ms"),
        Column("last_at", _LONG, "latest event, ms"),
        Column(
            "delivered_at", _LONG, "when the last subscription first had it, ms; in `delivered`"
        ),
        Column("dead_at", _LONG, "latest `dead`, ms"),
        Column("redriven_at", _LONG, "latest `redriven`, ms"),
        Column("events", _LONG, "how many events it has"),
        Column("deliveries", _LONG, "how many of them are `delivered`"),
        Column("failures", _LONG, "how many of them are `failed`"),
        Column("attempts", _LONG, "the greatest `attempt` seen"),
        Column(
            "subscriptions",
            _SUBSCRIPTIONS,
            "one entry for each subscription named on any event, by name; attempts without one "
            "stand under null; `skipped`: an operator let it go without the message; `precision`: "
            "of `first_delivered_at`; `reason`: of `dead_at`, the latest death",
        ),
        Column("added_event", _STRING, "`event_id` of its earliest `added`"),
        Column("folded", _LONG, "number of the commit of `events` up to which the row stands"),
    ),
    # so the few that are not settled are found without reading the others
    partition=(Partition("first_at", DAY_MS), Partition("state")),
    order=("topic", "id"),
)
MALFORMED_TABLE: Final = Table(
    "malformed",
    "One row a line that is no event.",
    (
        Column("file", _STRING, "from its `dt=` folder on, or from the archive's root"),
        Column("line", _LONG, "number of the line, from 1"),
        Column("digest", _STRING, "SHA-256 of the line's bytes, hex"),
        Column("reason", _STRING, "what is wrong with it"),
        Column("text", _STRING, "the line; bytes that are not UTF-8 as `\\xNN`"),
        Column("cut", BooleanType(), "null; earlier releases took the readable part of a file"),
    ),
    order=("file", "line"),
)
FILES_TABLE: Final = Table(
    "files",
    "One row a file that was read: what is unchanged is not read again.",
    (
        Column("uri", _STRING, "where it lies"),
        Column("length", _LONG, "bytes"),
        Column("modified", _LONG, "ms since 1970 UTC"),
        Column("since", _LONG, "null; earlier releases took events from then on, ms"),
        Column("until", _LONG, "null; earlier releases took events before then, ms"),
        Column("damaged", _STRING, "null; as `cut` of `malformed`"),
        Column("day", _STRING, "of its folder `dt=`; empty: it lies in none; null: not known"),
    ),
    partition=(Partition("day"),),
)
FINDINGS_TABLE: Final = Table(
    "findings",
    "One row for each that `reconcile` counts as `lost`, `duplicated`, `out_of_order`, `stuck` or "
    "`wrong_shard`; replaced by each run.",
    (
        Column("kind", _STRING, "as counted"),
        Column("topic", _STRING, ""),
        Column("epoch", _LONG, ""),
        Column("shard", _LONG, ""),
        Column("id", _STRING, ""),
        Column("subscription", _STRING, "where it is about one"),
        Column("detail", _STRING, "what was found"),
        Column("as_of", _LONG, "of `lost`, `stuck`: time of the snapshot, ms; null: not known"),
    ),
    partition=(Partition("kind"),),
    order=("topic", "id"),
)
RUNS_TABLE: Final = Table(
    "runs",
    "One row a finished run of a job.",
    (
        Column("run", _STRING, "its id"),
        Column("job", _STRING, ""),
        Column("began", _LONG, "ms since 1970 UTC"),
        Column("ended", _LONG, "ms since 1970 UTC"),
        Column("files", _LONG, "read from the archive"),
        Column("lines", _LONG, "read from the archive"),
        Column("stages", _LONG, "that Spark ran"),
        Column("input_rows", _LONG, "that the stages read"),
        Column("output_rows", _LONG, "that the stages wrote"),
        Column("shuffle_bytes", _LONG, "that the stages wrote for each other"),
        Column("spill_bytes", _LONG, "that did not fit into memory and went to disk"),
        Column("skew", DoubleType(), "null; earlier releases measured it"),
    ),
)
_TRACKER = StructType(
    [
        StructField("state", _STRING),
        *(StructField(name, _LONG) for name in ("total", "acked", "failed", "pending")),
    ]
)
BATCHES_TABLE: Final = Table(
    "batches",
    "One row a batch that a message carried an item of, or that a tracker knows; replaced by each "
    "run of job `batches`.",
    (
        Column("batch", _STRING, "its id"),
        Column("items_seen", _LONG, "distinct items that messages carried"),
        Column("acked", _LONG, "of them, those whose first outcome was a delivery"),
        Column("failed", _LONG, "of them, those whose first outcome was a death"),
        Column("pending", _LONG, "of them, those whose messages are still under way, or cancelled"),
        Column("tracker", _TRACKER, "what the batches table says; null: nothing"),
        Column("differing", _LONG, "items of which history and tracker say different things"),
        Column("agrees", BooleanType(), "whether there are none; null: nothing to compare"),
    ),
    order=("batch",),
)
LATENCY_TABLE: Final = Table(
    "latency_hourly",
    "One row a topic, subscription and UTC hour that had deliveries: the last run of job `latency` "
    "or `daily` that looked at the hour.",
    (
        Column("topic", _STRING, ""),
        Column("subscription", _STRING, "null: deliveries that name none"),
        Column("hour", _LONG, "when it begins, ms since 1970 UTC"),
        Column("count", _LONG, "first deliveries of a message"),
        *(Column(f"p{percent}_ms", DoubleType(), "from due to delivered") for percent in PERCENTS),
        Column("max_ms", _LONG, ""),
        Column("precision", _STRING, "`s`: less than a second is not known, and counts as 1,000"),
    ),
    partition=(Partition("hour", DAY_MS),),
    order=("topic", "subscription", "hour"),
)
REPLAYS_TABLE: Final = Table(
    "replays",
    "One row a message that a replay puts back: its plan, written before it begins.",
    (
        Column("replay", _STRING, "id of the replay"),
        Column("lane", _LONG, "0; earlier releases had several, each with a cursor"),
        Column("position", _LONG, "place in the replay, from 1"),
        Column("topic", _STRING, ""),
        Column("epoch", _LONG, "of the message as it was"),
        Column("shard", _LONG, "of the message as it was"),
        Column("id", _STRING, "of the message as it was"),
        Column("new_id", _STRING, "of the message that is put back"),
        Column("plan", _STRING, "what was asked for, as a JSON object"),
        Column("planned_at", _LONG, "when, ms; null: by an earlier release"),
        Column(
            "finding", _STRING, "`lost` or `stuck`: looked at again before it is sent; else null"
        ),
    ),
    partition=(Partition("replay"),),
    order=("lane", "position"),
)
TABLES: Final = (
    EVENTS_TABLE,
    MESSAGES_TABLE,
    MALFORMED_TABLE,
    FILES_TABLE,
    FINDINGS_TABLE,
    RUNS_TABLE,
    BATCHES_TABLE,
    LATENCY_TABLE,
    REPLAYS_TABLE,
)

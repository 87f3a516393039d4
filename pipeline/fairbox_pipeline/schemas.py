"""Explicit schemas: the fields of an archive line, and the columns of every table."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

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

if TYPE_CHECKING:
    from collections.abc import Mapping

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
class Table:
    """One Iceberg table of the warehouse.

    Attributes:
        name: in namespace `fairbox`.
        meaning: description of a row.
        schema: its columns, each with its meaning as comment.
        partition: by column, the width of ranges of its values; None: one partition a value.
        order: the sort order of written files.
    """

    name: str
    meaning: str
    schema: StructType
    partition: Mapping[str, int | None] = field(default_factory=dict)
    order: tuple[str, ...] = ()

    @property
    def full_name(self) -> str:
        """Name with its namespace, as SQL takes it."""
        return f"{NAMESPACE}.{self.name}"

    @property
    def names(self) -> list[str]:
        """The names of the columns."""
        return self.schema.names


def _column(name: str, kind: DataType, meaning: str = "") -> StructField:
    return StructField(name, kind, metadata={"comment": meaning} if meaning else None)


def _schema(*columns: StructField) -> StructType:
    return StructType(list(columns))


_KEY: Final = (
    _column("topic", _STRING),
    _column("epoch", _LONG),
    _column("shard", _LONG),
    _column("id", _STRING),
)
REQUIRED: Final = (
    _column("event", _STRING, "what happened: one of the eight"),
    _column("at", _LONG, "when, ms since 1970 UTC"),
    _column("topic", _STRING),
    _column("epoch", _LONG),
    _column("shard", _LONG),
    _column("id", _STRING, "of the message, a UUIDv7"),
    _column("event_id", _STRING, "the same for a repetition of the same event"),
)
OPTIONAL: Final = (
    _column("partition_key", _STRING, "on `added`"),
    _column("content_type", _STRING, "on `added`"),
    _column("headers", _HEADERS, "on `added`"),
    _column("body", _STRING, "on `added`; null where it is not archived"),
    _column("body_encoding", _STRING, "on `added`: `utf-8` or `base64`"),
    _column("body_uri", _STRING, "on `added`, of a body that lies in a bucket"),
    _column("size", _LONG, "on `added`: bytes of the body"),
    _column("batch_item", _STRING, "on `added`"),
    _column("ordering", _STRING, "on `added`: `none` or `key`"),
    _column("due", _LONG, "on `added`, of a delayed message: when it is due, ms"),
    _column("subscription", _STRING, "on `failed`, `delivered`, `dead`; on `cancelled`, of a skip"),
    _column("destination", _STRING, "on `failed`, `delivered`, `dead`"),
    _column("attempt", _LONG, "on `failed`, `delivered`, `dead`: from 1"),
    _column("reason", _STRING, "on `failed`, `dead`, `cancelled`, `purged`"),
    _column("precision", _STRING, "`s`: `at` is a whole second, rounded down; null: it is exact"),
)
DRIFT: Final = (
    _column("extra", _STRING, "fields that are not known here, as a JSON object; else null"),
    _column("changed", _STRING, "known fields of another type, as a JSON object; else null"),
)

EVENTS_TABLE: Final = Table(
    "events",
    "One row an `event_id`.",
    _schema(*REQUIRED, *OPTIONAL, *DRIFT),
    partition={"at": DAY_MS},
    order=("topic", "id"),
)

_SUBSCRIPTIONS = ArrayType(
    _schema(
        _column("subscription", _STRING),
        _column("destination", _STRING),
        *(_column(n, _LONG) for n in ("first_delivered_at", "deliveries", "failures", "dead_at")),
        _column("skipped", BooleanType()),
        _column("precision", _STRING),
        _column("reason", _STRING),
    )
)
MESSAGES_TABLE: Final = Table(
    "messages",
    "One row a message: a (`topic`, `epoch`, `shard`, `id`).",
    _schema(
        *_KEY,
        _column("state", _STRING, ", ".join(f"`{s}`" for s in STATES)),
        _column("partition_key", _STRING, "of its earliest `added`, as the next five"),
        _column("ordering", _STRING),
        _column("content_type", _STRING),
        _column("size", _LONG, "bytes of the body"),
        _column("batch_item", _STRING),
        _column("due", _LONG, "ms, of a delayed message"),
        _column("added_at", _LONG, "earliest `added`, ms; null: none was seen"),
        _column("first_at", _LONG, "earliest event, ms"),
        _column("last_at", _LONG, "latest event, ms"),
        _column(
            "delivered_at", _LONG, "when the last subscription first had it, ms; in `delivered`"
        ),
        _column("dead_at", _LONG, "latest `dead`, ms"),
        _column("redriven_at", _LONG, "latest `redriven`, ms"),
        _column("events", _LONG, "how many events it has"),
        _column("deliveries", _LONG, "how many of them are `delivered`"),
        _column("failures", _LONG, "how many of them are `failed`"),
        _column("attempts", _LONG, "the greatest `attempt` seen"),
        _column(
            "subscriptions",
            _SUBSCRIPTIONS,
            "one entry for each subscription named on any event, by name; attempts without one "
            "stand under null; `skipped`: an operator let it go without the message; `precision`: "
            "of `first_delivered_at`; `reason`: of `dead_at`, the latest death",
        ),
        _column("added_event", _STRING, "`event_id` of its earliest `added`"),
        _column("folded", _LONG, "number of the commit of `events` up to which the row stands"),
    ),
    # so the few that are not settled are found without reading the others
    partition={"first_at": DAY_MS, "state": None},
    order=("topic", "id"),
)
MALFORMED_TABLE: Final = Table(
    "malformed",
    "One row a line that is no event.",
    _schema(
        _column("file", _STRING, "from its `dt=` folder on, or from the archive's root"),
        _column("line", _LONG, "number of the line, from 1"),
        _column("digest", _STRING, "SHA-256 of the line's bytes, hex"),
        _column("reason", _STRING, "what is wrong with it"),
        _column("text", _STRING, "the line; bytes that are not UTF-8 as `\\xNN`"),
    ),
    order=("file", "line"),
)
FILES_TABLE: Final = Table(
    "files",
    "One row a file that was read: what is unchanged is not read again.",
    _schema(
        _column("uri", _STRING, "where it lies"),
        _column("length", _LONG, "bytes"),
        _column("modified", _LONG, "ms since 1970 UTC"),
        _column("day", _STRING, "of its folder `dt=`; empty: it lies in none"),
    ),
    partition={"day": None},
)
FINDINGS_TABLE: Final = Table(
    "findings",
    "One row for each that `reconcile` counts as `lost`, `duplicated`, `out_of_order`, `stuck` or "
    "`wrong_shard`; replaced by each run.",
    _schema(
        _column("kind", _STRING, "as counted"),
        *_KEY,
        _column("subscription", _STRING, "where it is about one"),
        _column("detail", _STRING, "what was found"),
        _column("as_of", _LONG, "of `lost`, `stuck`: time of the snapshot, ms; null: not known"),
    ),
    partition={"kind": None},
    order=("topic", "id"),
)
RUNS_TABLE: Final = Table(
    "runs",
    "One row a finished run of a job.",
    _schema(
        _column("run", _STRING, "its id"),
        _column("job", _STRING),
        _column("began", _LONG, "ms since 1970 UTC"),
        _column("ended", _LONG, "ms since 1970 UTC"),
        _column("files", _LONG, "read from the archive"),
        _column("lines", _LONG, "read from the archive"),
        _column("stages", _LONG, "that Spark ran"),
        _column("input_rows", _LONG, "that the stages read"),
        _column("output_rows", _LONG, "that the stages wrote"),
        _column("shuffle_bytes", _LONG, "that the stages wrote for each other"),
        _column("spill_bytes", _LONG, "that did not fit into memory and went to disk"),
    ),
)
_TRACKER = _schema(
    _column("state", _STRING),
    *(_column(name, _LONG) for name in ("total", "acked", "failed", "pending")),
)
BATCHES_TABLE: Final = Table(
    "batches",
    "One row a batch that a message carried an item of, or that a tracker knows; replaced by each "
    "run of job `batches`.",
    _schema(
        _column("batch", _STRING, "its id"),
        _column("items_seen", _LONG, "distinct items that messages carried"),
        _column("acked", _LONG, "of them, those whose first outcome was a delivery"),
        _column("failed", _LONG, "of them, those whose first outcome was a death"),
        _column(
            "pending", _LONG, "of them, those whose messages are still under way, or cancelled"
        ),
        _column("tracker", _TRACKER, "what the batches table says; null: nothing"),
        _column("differing", _LONG, "items of which history and tracker say different things"),
        _column("agrees", BooleanType(), "whether there are none; null: nothing to compare"),
    ),
    order=("batch",),
)
LATENCY_TABLE: Final = Table(
    "latency_hourly",
    "One row a topic, subscription and UTC hour that had deliveries: the last run of job `latency` "
    "or `daily` that looked at the hour.",
    _schema(
        _column("topic", _STRING),
        _column("subscription", _STRING, "null: deliveries that name none"),
        _column("hour", _LONG, "when it begins, ms since 1970 UTC"),
        _column("count", _LONG, "first deliveries of a message"),
        *(_column(f"p{percent}_ms", DoubleType(), "from due to delivered") for percent in PERCENTS),
        _column("max_ms", _LONG),
        _column("precision", _STRING, "`s`: less than a second is not known, and counts as 1,000"),
    ),
    partition={"hour": DAY_MS},
    order=("topic", "subscription", "hour"),
)
REPLAYS_TABLE: Final = Table(
    "replays",
    "One row a message that a replay puts back: its plan, written before it begins.",
    _schema(
        _column("replay", _STRING, "id of the replay"),
        _column("position", _LONG, "place in the replay, from 1"),
        _column("topic", _STRING),
        _column("epoch", _LONG, "of the message as it was"),
        _column("shard", _LONG, "of the message as it was"),
        _column("id", _STRING, "of the message as it was"),
        _column("new_id", _STRING, "of the message that is put back"),
        _column("plan", _STRING, "what was asked for, as a JSON object"),
        _column("planned_at", _LONG, "when, ms"),
        _column(
            "finding", _STRING, "`lost` or `stuck`: looked at again before it is sent; else null"
        ),
    ),
    partition={"replay": None},
    order=("position",),
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

"""The reference page of the pipeline, from its schemas, jobs and exit codes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from fairbox_pipeline.cli import JOBS
from fairbox_pipeline.errors import Exit, PipelineError
from fairbox_pipeline.schemas import TABLES, Table
from fairbox_pipeline.warehouse import VERSION

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    MakeTable = Callable[[Sequence[str], Iterable[Sequence[str]]], str]

_FIGURES: Final = """\
Figures describe the tables as they stand after the run, so a repeated run prints the same. Times
and latencies are milliseconds. With `--json`, standard output is one JSON object and nothing
else; words go to standard error."""
_KEYS: Final = (
    (
        "`history`",
        "`events`, `messages`, `malformed`, `states` {state: n}, `topics` {topic: …}",
    ),
    (
        "`latency`",
        (
            "`rows`: `topic` `subscription` `hour` (`2026-11-19T05:00:00Z`; null: all hours) "
            "`count` `p50_ms` `p90_ms` `p99_ms` `max_ms` `throughput_per_second`; `precision` "
            "(`s`) where a latency under a second is not known, and is given as 1,000"
        ),
    ),
    (
        "`sizing`",
        (
            "`shards`: `topic` `epoch` `shard` `messages` `bytes`; `topics`: `topic` `messages` "
            "`bytes` `skew` `shards_needed` `units_per_second` `last_added_at` `last_at` `shards` "
            "`shards_from` (`topics`, `export` or `seen`) `hot_key` `command` `why`; "
            "`hot_keys`: `topic` `partition_key` `messages`; `without_messages`: `topic` `since`"
        ),
    ),
    (
        "`reconcile`",
        (
            "`added` `outstanding` `delivered` `dead` `cancelled` `purged` `expired` `lost` "
            "`duplicated` `out_of_order` `stuck` `wrong_shard`"
        ),
    ),
    (
        "`batches`",
        (
            "`batches`: `id` `items_seen` `acked` `failed` `pending` `tracker` {`state` `total` "
            "`acked` `failed` `pending`} `differing` `agrees`; `differing_items`: `item` `outcome` "
            "`tracked`, 100 at most; `malformed_items`: `batch_item` `messages`"
        ),
    ),
    (
        "`advise`",
        (
            "`advice`: `severity` (`now`, `soon`, `note`) `kind` (`lost`, `stuck`, `dead`, "
            "`resize`, `hot_key`, `slow`, `unused`) `topic` `subscription` `why` `command` (list "
            "of arguments) `shell` (quoted); with `--apply`, `applied`, and `failed` and `code` if "
            "a command failed"
        ),
    ),
    (
        "`replay`",
        (
            "`replay` (its id) `dry_run` `ids` `chosen` `left_out` `without_body` `bytes` `wru` "
            "`cost_usd` `topics` {topic: n}; unless dry, `outcome` {`added`, `outstanding`, "
            "`done_before`, `left_out`, `without_body`, `refused`: n}"
        ),
    ),
    (
        "`trace`",
        (
            "`messages`, by first event: `ref` `found_by` (`question`, `id`, `replay`, `batch`) "
            "`topic` `epoch` `shard` `id` `state` `partition_key` `content_type` `size` "
            "`batch_item` `due` `first_at` `last_at` `events` (`event` `at` `precision` "
            "`subscription` `destination` `attempt` `reason` `traceparent`); `limit`; `cut`: "
            "whether there are more messages or events"
        ),
    ),
    ("`report`", "`page`: where the HTML file is"),
    ("`all`", "`history`, `reconcile`, `report`: the figures of each"),
    (
        "`daily`",
        (
            "`history`, `latency`, `sizing`, `reconcile`, `batches`, `advise`, `report`: the "
            "figures of each. Here and in `all`, those of a job that fails are `failed` (one line) "
            "and `code`; jobs that do not need it run, and the run ends with the first failure's "
            "code"
        ),
    ),
)
_MEANINGS: Final = """\
- **State** of a message, the first that holds: `cancelled`, `purged`, `expired` (it has that
  event); `dead` (its latest `dead` is later than its latest `redriven`); `delivered` (it has a
  `delivered`, and so has every subscription named on any of its events); else `outstanding`. By
  times, never by order of arrival.
- **Latency**: the earliest `delivered` of a message and subscription less the time when it was
  due: its `added`, or the end of its delay; counted in the UTC hour of that delivery. Less than a
  second of a `delivered` with `precision` `s` is not known: it counts as 1,000. Percentiles are
  exact, interpolated at rank p x (n - 1).
  Throughput: deliveries of the hour / 3600; of all hours, the mean of those that had any.
- **Skew**, of the newest epoch: messages of the fullest shard / mean over its shards, 0 to the
  greatest number seen. **Shards needed**: the busiest UTC minute's 3 x ceil(`size` / 1024) a
  message, a second, / 700, rounded up; at least 1. `command` resizes the topic: to more shards
  whenever more are needed, to fewer if two or more are spare. `shards`: the present number, by
  `shards_from`; `seen` is one more than the greatest shard of the newest epoch. `hot_key`: a key
  whose share of the messages alone is over 700 units a second, which no resize spreads.
- **`lost`**: state `outstanding`, `--outstanding` does not name it, and its last event is at least
  10 s older than the snapshot (an export's own time, or `--as-of`). **`duplicated`**:
  deliveries of a message and subscription, less one. **`out_of_order`**, on topics ordered by
  key: first deliveries whose id is less than one of the key delivered strictly earlier to the
  same subscription; of one that has `precision` `s`, a second earlier. **`stuck`**: named by
  `--outstanding`, and due (added, its delay over, redriven) more than `--stuck-after` before the
  snapshot, or the archive's latest event where that has no time. **`wrong_shard`**: not where the
  hash of its key puts it among the shards that the export or `--topics` states for the (topic,
  epoch); where neither does, one more than the greatest shard seen, if that puts half of the keys
  right. Not judged without its `added`.
- **Relatives** in `trace`: `id`, messages of the same id on other topics; `replay`, the other end
  of a replay; `batch`, messages on topics `fairbox.batches.*` whose partition key is the batch of
  an item. Events of one second are in the order of their attempts.
- **Batches**: a message with a batch item acks it when it is `delivered` and fails it when it is
  `dead`; of several messages for one item the first outcome stands. `agrees`: the tracker says the
  same of every item; what a message still carries may have been settled by a call. Null: there
  is nothing to compare."""

_ARGUMENTS: Final = (
    (
        "`--archive URI`",
        "all",
        "folder of the archive, or of a part of it; files end in `.json.gz`. Not of `trace`",
    ),
    ("`--warehouse URI`", "all", "folder of the tables; made by the first run"),
    (
        "`--since T`, `--until T`",
        "all",
        (
            "the messages whose first event is on or after T, or before T, are what the figures "
            "show: ISO 8601 (UTC unless it says otherwise) or ms. `batches` and `replay` look at "
            "all. The run takes every new line in any case. Of `trace`: when the first event of a "
            "message was"
        ),
    ),
    ("`--json`", "all", "one JSON object on standard output"),
    ("`--hot-keys N`", "`sizing`, `advise`, `report`", "keys listed for each topic; 100"),
    (
        "`--topics FILE`",
        "`sizing`, `advise`, `report`, `reconcile`",
        (
            "output of `fairbox topic list --json`; else topics are those of the export that "
            "`--outstanding` names"
        ),
    ),
    (
        "`--outstanding URI`",
        "`reconcile`, `sizing`, `advise`, `report`",
        (
            "full export of the outbox (the folder of its manifests); or NDJSON of `topic` `epoch` "
            "`shard` `id`, a file or folder"
        ),
    ),
    ("`--as-of T`", "`reconcile`", "when the list was made; an export has its own time"),
    ("`--stuck-after SECONDS`", "`reconcile`", "3600"),
    ("`--apply`", "`advise`", "asks, and runs each command; not in `daily`"),
    ("`--yes`", "`advise`", "with `--apply`: does not ask"),
    ("`--trackers URI`", "`batches`", "full export of the batches table"),
    (
        "`--topic` `--key` `--state` `--added-since` `--added-until` `--findings` `--everything`",
        "`replay`",
        "which messages: [how-to](../how-to/replay-messages.md)",
    ),
    ("`--ids new\\|same`", "`replay`", "of the messages that are put back; `new`"),
    ("`--replay ID`", "`replay`", "goes on with this one; else a new one begins"),
    ("`--rate N`", "`replay`", "messages a second at most; 100"),
    ("`--dry-run`", "`replay`", "counts and cost alone"),
    (
        "`REF` `--id ID` `--traceparent TP` `--batch B` `--key KEY` `--topic T`",
        "`trace`",
        "which messages, by one of these: [how-to](../how-to/analyse-history.md#trace-a-message)",
    ),
    ("`--limit N`", "`trace`", "messages shown at most, 100; up to 1,000"),
    ("`--page URI`", "`report`", "where it goes; `report.html` in the warehouse"),
)
_VARIABLES: Final = (
    ("`FAIRBOX_PIPELINE_MEMORY`", "memory of the local JVM; `3g`"),
    ("`FAIRBOX_ICEBERG_JAR`", "Iceberg's runtime; else what `make engines` fetched, else Maven's"),
    (
        "`FAIRBOX_OUTBOX_TABLE`, `FAIRBOX_DELIVERIES_TABLE`, `FAIRBOX_BODIES_BUCKET`",
        "of the outbox that `replay` writes to; and the AWS SDK's own",
    ),
    ("`JAVA_HOME`", "a Java 17 or 21; else one is looked for"),
)


def parts(note: str, table: MakeTable) -> Iterable[str]:
    """Yield the paragraphs of the page; `table` writes a Markdown table."""
    yield "# Pipeline"
    yield note
    yield (
        "How to use it: [analyse the history](../how-to/analyse-history.md). "
        "Why it is so: [decision 0006](../decisions/0006-pipeline.md)."
    )
    yield "## Jobs"
    yield "`fairbox-pipeline JOB --archive URI --warehouse URI [--since T] [--until T] [--json]`"
    yield table(("job", "does"), [(f"`{name}`", about) for name, about in JOBS.items()])
    yield (
        "Every job but `trace` first takes what is new in the archive into the tables, as "
        "`history` does; `trace` reads the tables and writes none. A job is also a module with "
        "`main(argv)`: `python -m fairbox_pipeline.jobs.history`."
    )
    yield table(("argument", "job", "what it is"), _ARGUMENTS)
    yield table(("variable", "what it is"), _VARIABLES)
    yield "## Figures"
    yield _FIGURES
    yield table(("job", "keys"), _KEYS)
    yield _MEANINGS
    yield "## Exit codes"
    yield table(("code", "when"), _codes())
    yield "## Tables"
    yield (
        f"Iceberg tables of namespace `fairbox`, version {VERSION} (property `fairbox.version`). "
        "Each write is one commit: it is there whole, or not at all."
    )
    for described in TABLES:
        yield from _of_table(described, table)


def _codes() -> list[tuple[str, str]]:
    told = {kind.exit_code: kind.__doc__ or "" for kind in PipelineError.__subclasses__()}
    told |= {Exit.OK: "The figures are printed.", Exit.FAILED: "Spark failed; one line says why."}
    return [(str(int(code)), told[code]) for code in Exit]


def _of_table(described: Table, table: MakeTable) -> Iterable[str]:
    yield f"### {described.full_name}"
    facts = [described.meaning]
    if described.partition:
        facts.append(f"Partitioned by `{', '.join(map(str, described.partition))}`.")
    if described.order:
        facts.append(f"Sorted by `{'`, `'.join(described.order)}`.")
    yield " ".join(facts)
    rows = [(f"`{c.name}`", c.type.simpleString(), c.meaning) for c in described.columns]
    yield table(("column", "type", "what it is"), rows)

"""Checks of the work itself: what is overdue, counts, dead letters, held keys, placement."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Final

from fairbox.doctor.findings import Finding, Reporter, check, each
from fairbox.tables.deferred_keys import read_deferred
from fairbox.tables.keys import PK, parse_lane_pk, shard_key

if TYPE_CHECKING:
    from collections.abc import Iterator

    from fairbox.doctor.examined_deployment import Deployment
    from fairbox.tables.shard_rows import ShardRow

OVERDUE_MS: Final = 300_000
"""Since a shard's check was due: the sweep comes each minute, and a visit postpones the check."""
SAMPLE: Final = 5
SAMPLE_MESSAGES: Final = 200
ROWS: Final = 100
MISPLACED: Final = 100


@check("sweep", "Nothing is overlooked")
def sweep(deployment: Deployment) -> Iterator[Finding]:
    """No shard of a pushed topic has waited five minutes for its look: sweep and visits work."""
    late = Counter[str]()
    oldest = deployment.now
    pushed = {state.topic.name for state in deployment.topics if state.pushed}

    for row in deployment.rows:
        next_check = deployment.now if row.next_check is None else row.next_check
        # shards with only dead letters are in the index too, and wait for nobody's look
        waits = row.topic in pushed and row.outstanding > 0
        if waits and next_check < deployment.now - OVERDUE_MS:
            late[row.topic] += 1
            oldest = min(oldest, next_check)

    report = Reporter("sweep", ", ".join(sorted(late)) or "pushed topics")
    if late:
        yield report.fail(
            f"{late.total()} shards wait for a look that was due "
            f"{(deployment.now - oldest) // 1000} s ago",
            "Sweep or visits do not run: look at functions sweep and deliver_shard, at the "
            "sweep's rule, and at the doorbell queue; then: fairbox outbox sweep.",
        )
    else:
        working = sum(row.outstanding > 0 for row in deployment.rows)
        yield report.ok(f"{working} shards hold work, none is late")


@check("counts", "Counts are those of the table")
def counts(deployment: Deployment) -> Iterator[Finding]:
    """Shards hold what their rows count.

    Up to five with at most 200 messages are counted (consistent reads, 250 RRU at most). The
    marking is behind by its window, 20 s.
    """
    # few messages: each counted one is read
    countable = [row for row in deployment.rows if 0 < row.outstanding <= SAMPLE_MESSAGES]

    def examine(report: Reporter, row: ShardRow) -> Iterator[Finding]:
        lanes = deployment.outbox.tables.lanes
        shard = (row.topic, row.epoch, row.shard)
        # a row whose count is far too low costs no more than this
        limit = 2 * SAMPLE_MESSAGES
        # the shard's row lies outside of what is counted
        lying = (
            lanes.count("ready", *shard, limit=limit),
            lanes.count("later", *shard, limit=limit),
        )

        if lying == (row.ready, row.later):
            yield report.ok(f"{sum(lying)} messages")
        else:
            yield report.warn(
                f"{sum(lying)} messages lie there, its row counts {row.outstanding}",
                "Under load it is behind by seconds: look again. If it stays so, look at "
                "mark_delivered; repair corrects it within two runs.",
            )

    found = list(each("counts", countable[:SAMPLE], examine, _name))
    yield from found or [Reporter("counts", "shards").ok("none holds 1 to 200 messages")]


def _name(row: ShardRow) -> str:
    return f"{row.topic}#{row.epoch}#{row.shard}"


@check("dead-letters", "Nothing died")
def dead_letters(deployment: Deployment) -> Iterator[Finding]:
    """No topic has dead letters, by the counts of its shards."""
    dead = Counter[str]()
    for row in deployment.rows:
        # a purge may be counted before the deaths of what it purged
        dead[row.topic] += max(0, row.dead)

    bad = (
        Reporter("dead-letters", f"topic {topic}").warn(
            f"{count} dead letters",
            f"fairbox dlq list {topic} says why; correct the receiver, then fairbox dlq redrive "
            f"{topic}.",
        )
        for topic, count in sorted(dead.items())
        if count
    )
    yield from Reporter("dead-letters", "topics").bad_or_ok(bad, "none")


@check("held-keys", "No key waits for its dead letter")
def waiting_keys(deployment: Deployment) -> Iterator[Finding]:
    """No key of an ordered topic is blocked by a dead letter (the rows of 100 shards at most)."""
    ordered = {s.topic.name for s in deployment.topics if s.pushed and s.topic.ordering == "key"}
    rows = [row for row in deployment.rows if row.topic in ordered][:ROWS]
    blocked = Counter[str]()
    keys = [shard_key(row.topic, row.epoch, row.shard) for row in rows]
    tables = deployment.outbox.tables

    for item in tables.calls.batch_get(tables.outbox, keys) if keys else ():
        topic = parse_lane_pk(item[PK]["S"])[1]
        blocked[topic] += sum(entry.state == "blocked" for entry in read_deferred(item).entries)

    bad = (
        Reporter("held-keys", f"topic {topic}").warn(
            f"{count} keys wait for a dead letter to be redriven or cancelled",
            f"fairbox dlq list {topic}, then fairbox dlq redrive {topic}, or purge them.",
        )
        for topic, count in sorted(blocked.items())
        if count
    )
    yield from Reporter("held-keys", "ordered topics").bad_or_ok(bad, "none")


@check("placement", "Messages lie where they belong")
def placement(deployment: Deployment) -> Iterator[Finding]:
    """No message lies in a shard where its topic's epochs do not put it.

    It takes a scan of the outbox, and is only made with `--placement`.
    """
    report = Reporter("placement", "outbox")
    if not deployment.placement:
        yield report.unknown("it takes a scan of the outbox", "fairbox doctor --placement")
        return

    found = 0
    for one in deployment.outbox.misplaced():
        found += 1
        if found == 1:
            first = str(one.ref)
        # the scan has a price: so many are enough to tell
        if found >= MISPLACED:
            break

    if found:
        more = " or more" if found >= MISPLACED else ""
        yield report.warn(
            f"{found}{more} lie elsewhere, such as {first}",
            "fairbox outbox misplaced lists them, with --repair it puts them right.",
        )
    else:
        yield report.ok("all do")

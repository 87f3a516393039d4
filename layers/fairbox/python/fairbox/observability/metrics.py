"""The metrics: their names, and writing them in CloudWatch's embedded metric format.

A line of the format is a JSON object on standard output. Writing it here, not through a library,
keeps 70 ms of imports out of every cold start (decision 0003).
"""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, TextIO

from fairbox.model.clock import Clock, SystemClock, milliseconds
from fairbox.settings import METRICS_NAMESPACE, STACK, MetricsLevel, Settings

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

    from fairbox.model.topics import Partition

NAMESPACE: Final = "Fairbox"
SERVICE: Final = "fairbox"

OUTSTANDING_COUNT: Final = "OutstandingCount"
"""Messages in lanes `ready` and `later`; written by `count_outstanding` each minute."""
OLDEST_AGE: Final = "OldestAge"
"""Time since the oldest message read was due; written by `count_outstanding` each minute."""
DEAD_COUNT: Final = "DeadCount"
"""Dead letters; written by `count_outstanding` each minute."""
SENT: Final = "Sent"
"""Messages that a destination took; written by `relay` and `deliver_shard`."""
SENT_BYTES: Final = "SentBytes"
"""Bytes of the bodies that a destination took, by destination and topic: the topics' shares."""
FAILED: Final = "Failed"
"""Attempts that were counted; written by `relay` and `deliver_shard`."""
DEAD: Final = "Dead"
"""Messages that died, once for each subscription; by `relay`, `deliver_shard` and consumers."""
RETRIED: Final = "Retried"
"""Messages that were tried again; written by `relay` and `deliver_shard`."""
DELAY: Final = "Delay"
"""The longest time a message had been due when taken; by `relay` and `deliver_shard`."""
EXPIRED: Final = "Expired"
"""Messages of pulled topics removed after their `message_retention`; written by `sweep`."""
CIRCUITS_OPENED: Final = "CircuitsOpened"
"""Circuits that opened; written by `relay` and `deliver_shard`."""
RECEIVERS_GONE: Final = "ReceiversGone"
"""Subscriptions paused because their receiver wants no more; by `relay` and `deliver_shard`."""
OPEN_CIRCUITS: Final = "OpenCircuits"
"""Circuits that are open or half-open; written by `count_outstanding` each minute."""
PAUSED_SUBSCRIPTIONS: Final = "PausedSubscriptions"
"""Subscriptions that are paused; written by `count_outstanding` each minute."""
UNREADABLE: Final = "Unreadable"
"""Records that the codec could not read; by `relay`, `mark_delivered` and `cascade_batches`."""
NEWER: Final = "NewerItems"
"""Items left for a newer release, which alone reads them; by `relay`, `sweep` and `repair`."""
GIVEN_UP_KEPT: Final = "GivenUpKept"
"""Objects of given-up stream records that `repair` could not replay; written each hour."""
GIVEN_UP_AGE: Final = "GivenUpAge"
"""Hours since the oldest of them was stored; written by `repair` each hour."""
RUNG: Final = "Rung"
"""Visits enqueued: messages by `relay`, shards by `sweep`."""
RECEIVED: Final = "Received"
"""Messages that consumers received; written by `Consumer` each minute, given `metrics`."""
ACKED: Final = "Acked"
"""Messages that were handled and taken out; written as `Received` is."""
GIVEN_BACK: Final = "GivenBack"
"""Messages that failed, are tried again, or were released; written as `Received` is."""
LOST_RECEIPTS: Final = "LostReceipts"
"""Receipts that were stale when consumers settled or extended; written as `Received` is."""
OPEN_BATCHES: Final = "OpenBatches"
"""Batches that are open or sealed; written by `count_outstanding` each minute."""
OLDEST_BATCH_AGE: Final = "OldestBatchAge"
"""Time since the oldest of them was opened; written by `count_outstanding` each minute."""
STALLED_BATCHES: Final = "StalledBatches"
"""Those in which nothing was added or settled for `stalled_batch_hours`; by `clean_orphans`."""
BATCHES_COMPLETED: Final = "BatchesCompleted"
"""Batches that completed, whoever did it; written by `cascade_batches` from the stream."""
BATCHES_ORPHANED: Final = "BatchesOrphaned"
"""Batches that were reaped; written by `cascade_batches` from the stream."""
BATCH_ACKS: Final = "BatchAcks"
"""Items that `ack_batches` acked; one that had been acked before does not count."""
BATCH_ACKS_DROPPED: Final = "BatchAcksDropped"
"""Ids that `ack_batches` could not ack: never issued, no ids, or of a batch cancelled or reaped."""
ARCHIVE_BYPASSED: Final = "ArchiveBypassed"
"""Lines of the archive that Firehose did not take; by `mark_delivered` and `repair`."""
ARCHIVE_WAITING: Final = "ArchiveWaiting"
"""Objects that wait for the archive's bucket; by `mark_delivered`, and by `repair` each hour."""
FEED_FRAMES: Final = "FeedFrames"
"""Frames that clients of feeds took; written by `feeds_visit`."""
FEED_PUT_OUT: Final = "FeedPutOut"
"""Clients of feeds that did not take a frame, and connect anew; written by `feeds_visit`."""
FEED_DELAY: Final = "FeedDelay"
"""Time from the oldest publish that a visit sent, or found late, to its end; by `feeds_visit`."""

UNITS: Final[Mapping[str, str]] = {
    FEED_DELAY: "Seconds",
    DELAY: "Seconds",
    OLDEST_AGE: "Seconds",
    OLDEST_BATCH_AGE: "Seconds",
    SENT_BYTES: "Bytes",
}
LONGEST: Final = frozenset({DELAY})
"""Figures of which the greatest is taken; others are added up."""
# figures that are written over all topics only
OVERALL: Final = frozenset(
    {
        UNREADABLE,
        NEWER,
        GIVEN_UP_KEPT,
        GIVEN_UP_AGE,
        RUNG,
        OPEN_BATCHES,
        OLDEST_BATCH_AGE,
        STALLED_BATCHES,
        BATCHES_COMPLETED,
        BATCHES_ORPHANED,
        BATCH_ACKS,
        BATCH_ACKS_DROPPED,
        ARCHIVE_BYPASSED,
        ARCHIVE_WAITING,
        FEED_FRAMES,
        FEED_PUT_OUT,
        FEED_DELAY,
    }
)


@dataclass(frozen=True, slots=True)
class MetricsDetail:
    """The topics whose figures are metrics; those of others are properties of their lines.

    Attributes:
        level: `totals`: of no topic; `busiest`: of the busiest; `all`: of every topic.
        busiest: returns the names of the busiest topics as they are now.
        subscriptions: returns how many subscriptions a topic has. Figures of a topic's only one are
            those of the topic, and no metrics of their own.
    """

    level: MetricsLevel = "all"
    busiest: Callable[[], Collection[str]] = frozenset
    subscriptions: Callable[[str], int] = lambda _: 2

    def by_topic(self, topic: str) -> bool:
        """Return whether the topic's figures are metrics."""
        return self.level == "all" or (self.level == "busiest" and topic in self.busiest())

    def by_subscription(self, topic: str) -> bool:
        """Return whether those of each of its subscriptions are."""
        return self.by_topic(topic) and self.subscriptions(topic) > 1


class Metrics:
    """Writes figures, in all and by topic.

    Args:
        clock: stamps them; the machine's by default.
        out: where lines go; standard output by default.
        detail: the topics whose figures are metrics; all topics by default.
        settings: name the deployment, whose namespace is written to; the environment's by default.
    """

    def __init__(
        self,
        clock: Clock | None = None,
        out: TextIO | None = None,
        detail: MetricsDetail | None = None,
        settings: Settings | None = None,
    ) -> None:
        self._clock = clock or SystemClock()
        self._out = out
        self._detail = detail or MetricsDetail()
        settings = settings or Settings.from_env()
        self._namespace = (
            settings.optional(METRICS_NAMESPACE) or settings.optional(STACK) or NAMESPACE
        )

    def emit(
        self,
        figures: Mapping[str, float],
        *,
        topic: str | None = None,
        partition: Partition | None = None,
        subscription: str | None = None,
        destination: str | None = None,
        zeros: bool = True,
    ) -> None:
        """Write figures by name, of one topic or of all; nothing if there are none.

        Figures of a topic that are no metrics by the detail are written as a line of properties.

        Args:
            figures: by metric.
            topic: the topic; None: all topics.
            partition: the part of a partitioned queue that the topic is, as it was registered: its
                figures are written under the logical name and the partition too.
            subscription: one of the topic's subscriptions; None: all of them.
            destination: the destination; None: all destinations.
            zeros: write figures of 0 too; a line for each invocation of a busy function costs.
        """
        if not zeros:
            figures = {name: value for name, value in figures.items() if value}
        labels = {"destination": destination, "topic": topic, "subscription": subscription}
        given = {name: label for name, label in labels.items() if label is not None}
        dimensions = [[*given]]
        if partition is not None:
            given |= _labels(partition)
            # the same line, under one more set of dimensions: a metric more, and no line more
            dimensions.append([*_labels(partition)])
        if topic is not None:
            written = (
                self._detail.by_topic if subscription is None else self._detail.by_subscription
            )
            # without dimensions the line has no metric, and the log still has its figures
            dimensions = dimensions if written(topic) else []
        self._write(figures, given, dimensions)

    def emit_by_destination(
        self,
        figures: Mapping[tuple[str, str], Mapping[str, float]],
        total: Mapping[str, float] | None = None,
    ) -> None:
        """Write figures by topic and subscription, by topic, and over all topics.

        The figures of each subscription stand in one line, and sums of several subscriptions or
        topics in one more. A sum of only one adds dimensions to its line, and no second line.

        Args:
            figures: by topic and subscription.
            total: over all topics; None: the sum of `figures`.
        """
        topics: dict[str, dict[str, Mapping[str, float]]] = {}
        for (topic, subscription), values in sorted(figures.items()):
            topics.setdefault(topic, {})[subscription] = values
        sums = {topic: _summed(values.values()) for topic, values in topics.items()}
        total = _summed(sums.values()) if total is None else total
        # the total is that of the one subscription: its line says it too
        alone = len(figures) == 1 and total in sums.values()
        for topic, subscriptions in topics.items():
            by_topic = [["topic"]] if self._detail.by_topic(topic) else []
            of_each = [["topic", "subscription"]] if self._detail.by_subscription(topic) else []
            # sums of one subscription are its own figures: one line with more dimensions
            if len(subscriptions) == 1:
                of_each = [*([[]] if alone else []), *by_topic, *of_each]
            elif by_topic:
                self._write(sums[topic], {"topic": topic}, by_topic)
            for subscription, values in subscriptions.items():
                self._write(values, {"topic": topic, "subscription": subscription}, of_each)
        if not alone:
            self._write(total, {}, [[]])

    def _write(
        self,
        figures: Mapping[str, float],
        labels: Mapping[str, str],
        dimensions: Sequence[Sequence[str]],
    ) -> None:
        """Write a line of figures: a metric each for each of the dimensions' sets, if any."""
        if not figures:
            return
        line: dict[str, Any] = {"service": SERVICE, **labels, **figures}
        if dimensions:
            line["_aws"] = {
                "Timestamp": milliseconds(self._clock),
                "CloudWatchMetrics": [
                    {
                        "Namespace": self._namespace,
                        # `service` alone stands for all topics
                        "Dimensions": [["service", *names] for names in dimensions],
                        "Metrics": [
                            {"Name": name, "Unit": UNITS.get(name, "Count")} for name in figures
                        ],
                    }
                ],
            }
        # looked up at each line: who redirects standard output gets it there
        out = self._out or sys.stdout
        out.write(json.dumps(line, separators=(",", ":")) + "\n")
        # a frozen process would keep the line until its next invocation
        out.flush()


def _summed(figures: Iterable[Mapping[str, float]]) -> dict[str, float]:
    """Add figures up; of the longest, take the greatest."""
    sums: dict[str, float] = {}
    for values in figures:
        for name, value in values.items():
            before = sums.get(name, 0)
            sums[name] = max(before, value) if name in LONGEST else before + value
    return sums


def emit_shares(
    metrics: Metrics,
    sent: Mapping[tuple[str, str], float],
    label: Callable[[str, str], str],
) -> None:
    """Write the bytes that destinations took, by destination and topic.

    Args:
        metrics: the output.
        sent: bytes by topic and subscription.
        label: gives the short name of a subscription's destination.
    """
    shares: dict[tuple[str, str], float] = {}
    for (topic, subscription), size in sent.items():
        key = label(topic, subscription), topic
        shares[key] = shares.get(key, 0) + size
    for (destination, topic), size in sorted(shares.items()):
        if size:
            metrics.emit({SENT_BYTES: size}, topic=topic, destination=destination)


def _labels(partition: Partition) -> dict[str, str]:
    return {"queue": partition.queue, "partition": str(partition.number)}

"""The application's metrics as dashboards and alarms see them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from aws_cdk import Duration
from aws_cdk import aws_cloudwatch as cloudwatch

from fairbox_cdk.components import deployment

if TYPE_CHECKING:
    from aws_cdk import aws_lambda as lambda_

OUTSTANDING_COUNT: Final = "OutstandingCount"
OLDEST_AGE: Final = "OldestAge"
"""Seconds."""
DEAD_COUNT: Final = "DeadCount"
GIVEN_UP_AGE: Final = "GivenUpAge"
"""Hours."""
OPEN_BATCHES: Final = "OpenBatches"
OLDEST_BATCH_AGE: Final = "OldestBatchAge"
"""Seconds."""
STALLED_BATCHES: Final = "StalledBatches"
BATCHES_COMPLETED: Final = "BatchesCompleted"
BATCHES_ORPHANED: Final = "BatchesOrphaned"
BATCH_ACKS: Final = "BatchAcks"
BATCH_ACKS_DROPPED: Final = "BatchAcksDropped"
SENT: Final = "Sent"
SENT_BYTES: Final = "SentBytes"
"""By destination and topic."""
FAILED: Final = "Failed"
RETRIED: Final = "Retried"
DELAY: Final = "Delay"
"""Seconds."""
OPEN_CIRCUITS: Final = "OpenCircuits"
PAUSED_SUBSCRIPTIONS: Final = "PausedSubscriptions"
CIRCUITS_OPENED: Final = "CircuitsOpened"
RECEIVERS_GONE: Final = "ReceiversGone"
DEAD: Final = "Dead"
RECEIVED: Final = "Received"
ACKED: Final = "Acked"
EXPIRED: Final = "Expired"
GIVEN_BACK: Final = "GivenBack"
LOST_RECEIPTS: Final = "LostReceipts"
ARCHIVE_BYPASSED: Final = "ArchiveBypassed"
ARCHIVE_WAITING: Final = "ArchiveWaiting"
FEED_FRAMES: Final = "FeedFrames"
FEED_PUT_OUT: Final = "FeedPutOut"
FEED_DELAY: Final = "FeedDelay"
"""Seconds."""

METRICS_NAMESPACE: Final = deployment.NAME
"""Two deployments in one account and region do not mix their figures."""
SERVICE: Final = "fairbox"
"""Dimension `service` of all metrics, of any function."""
MINUTE: Final = Duration.minutes(1)


def total(name: str) -> cloudwatch.Metric:
    """Return a figure over all topics, written by `count_outstanding` each minute."""
    return cloudwatch.Metric(
        namespace=METRICS_NAMESPACE,
        metric_name=name,
        dimensions_map={"service": SERVICE},
        period=MINUTE,
        statistic="Maximum",
    )


def hourly(name: str) -> cloudwatch.Metric:
    """Return a figure that is written each hour."""
    return total(name).with_(period=Duration.hours(1))


def summed(name: str, period: Duration = MINUTE) -> cloudwatch.Metric:
    """Return a sum over all functions."""
    return total(name).with_(statistic="Sum", period=period)


def by_topic(name: str, statistic: str) -> cloudwatch.MathExpression:
    """Return a figure of each topic, by a search, because topics come and go."""
    return _found("service,topic", name, statistic)


def by_partition(name: str, statistic: str) -> cloudwatch.MathExpression:
    """Return a figure of each partition of the partitioned queues, by logical name."""
    return _found("service,queue,partition", name, statistic)


def _found(dimensions: str, name: str, statistic: str) -> cloudwatch.MathExpression:
    query = f'{{{METRICS_NAMESPACE},{dimensions}}} MetricName="{name}" service="{SERVICE}"'
    return cloudwatch.MathExpression(
        expression=f"SEARCH('{query}', '{statistic}', 60)",
        using_metrics={},
        label="",
        period=MINUTE,
    )


def by_destination(name: str, statistic: str) -> cloudwatch.MathExpression:
    """Return a figure of each destination of each topic, by a search, because they come and go."""
    dimensions = f"{METRICS_NAMESPACE},service,topic,subscription"
    query = f'{{{dimensions}}} MetricName="{name}" service="{SERVICE}"'
    return cloudwatch.MathExpression(
        expression=f"SEARCH('{query}', '{statistic}', 60)",
        using_metrics={},
        label="",
        period=MINUTE,
    )


def while_growing(metric: cloudwatch.Metric) -> cloudwatch.MathExpression:
    """Return the figure in minutes in which it grew, otherwise 0."""
    return cloudwatch.MathExpression(
        expression="IF(DIFF(figure) > 0, figure, 0)",
        using_metrics={"figure": metric},
        period=MINUTE,
    )


def shares(name: str) -> cloudwatch.MathExpression:
    """Return the percentage of a figure for each destination and topic."""
    query = (
        f'{{{METRICS_NAMESPACE},service,destination,topic}} MetricName="{name}" service="{SERVICE}"'
    )
    found = f"SEARCH('{query}', 'Sum', 60)"
    return cloudwatch.MathExpression(
        expression=f"100 * {found} / SUM({found})", using_metrics={}, label="", period=MINUTE
    )


def invocations(function: lambda_.IFunction, period: Duration = MINUTE) -> cloudwatch.Metric:
    """Return how often `function` was invoked; no data where it was not."""
    return function.metric("Invocations", period=period, statistic="Sum")


def iterator_age(function: lambda_.IFunction) -> cloudwatch.Metric:
    """Return the lag of `function` behind the stream, in milliseconds."""
    return function.metric("IteratorAge", period=MINUTE, statistic="Maximum")

"""Stack of what watches: the function that counts, the alarms on what it says, the dashboard."""

from __future__ import annotations

from typing import TYPE_CHECKING

from aws_cdk import Duration, Stack
from aws_cdk import aws_cloudwatch as cloudwatch
from fairbox import codec

from stacks.components import metrics
from stacks.components import permissions as may
from stacks.components.alarms import alarm_above
from stacks.components.dashboard import Dashboard
from stacks.components.function import FairboxFunction
from stacks.components.triggers import ClockTrigger

if TYPE_CHECKING:
    from constructs import Construct

    from stacks.api import ApiStack
    from stacks.components.function import Platform
    from stacks.delivery import DeliveryStack
    from stacks.storage import StorageStack


class MonitoringStack(Stack):
    """What tells that work waits for too long, or is lost sight of.

    Attributes:
        count_outstanding: the function that counts each minute.
    """

    def __init__(
        self,
        scope: Construct,
        id_: str,
        *,
        platform: Platform,
        storage: StorageStack,
        delivery: DeliveryStack,
        api: ApiStack,
    ) -> None:
        super().__init__(scope, id_, description="Fairbox: counts, alarms and dashboard.")
        self._platform = platform
        self.count_outstanding = self._count_outstanding()
        self._alarm_on_counts()
        self._alarm_on_lag(storage, delivery)
        Dashboard(
            self,
            "Dashboard",
            functions=[*delivery.functions, api.api, self.count_outstanding],
            stream_functions=[delivery.relay, delivery.mark_delivered],
            queues=[delivery.doorbells.now, delivery.doorbells.later],
            dead_letters=delivery.doorbells.dead_letters,
            tables=[storage.outbox, storage.deliveries],
            http_api=api.http_api,
        )

    def _count_outstanding(self) -> FairboxFunction:
        outbox = self._platform.outbox
        count_outstanding = FairboxFunction(
            self,
            "CountOutstanding",
            platform=self._platform,
            name="count_outstanding",
            description="Counts what is outstanding, and how old it is, by topic.",
            memory_mb=256,
            timeout_seconds=60,
            one_at_a_time=True,
        )
        count_outstanding.allow(
            [
                may.on_table(outbox, "GetItem", "Query"),
                may.on_index(outbox, codec.OUTSTANDING_INDEX),
            ]
        )
        ClockTrigger(
            self,
            "CountOutstandingClock",
            function=count_outstanding,
            every=Duration.minutes(1),
        )
        return count_outstanding

    def _alarm_on_counts(self) -> None:
        """Alarms on what `count_outstanding` says each minute; its silence is an alarm too."""
        config = self._platform.config
        self._alarm(
            "OutstandingCount",
            metrics.total(metrics.OUTSTANDING_COUNT),
            config.alarm_outstanding_count,
            "Too many messages are outstanding, or nobody has counted them for five minutes.",
            periods=5,
            missing_is_bad=True,
        )
        self._alarm(
            "OldestAge",
            metrics.total(metrics.OLDEST_AGE),
            config.alarm_oldest_age_seconds,
            "The oldest outstanding message is too old.",
            periods=3,
        )
        self._alarm(
            "DeadCount",
            metrics.total(metrics.DEAD_COUNT),
            config.alarm_dead_count,
            "Messages could not be delivered and wait as dead letters.",
        )

    def _alarm_on_lag(self, storage: StorageStack, delivery: DeliveryStack) -> None:
        """Alarms on those who follow the stream, and on the archive."""
        config = self._platform.config
        for function in (delivery.relay, delivery.mark_delivered):
            self._alarm(
                f"{function.node.id}IteratorAge",
                metrics.iterator_age(function.function),
                config.alarm_iterator_age_ms,
                f"Function {function.name} falls behind the stream.",
                periods=3,
            )
        self._alarm(
            "ArchiveAge",
            cloudwatch.Metric(
                namespace="AWS/Firehose",
                metric_name="DeliveryToS3.DataFreshness",
                dimensions_map={"DeliveryStreamName": storage.archive.stream_name},
                period=Duration.minutes(5),
                statistic="Maximum",
            ),
            config.alarm_archive_age_seconds,
            "Events do not reach the archive.",
        )

    def _alarm(
        self,
        id_: str,
        metric: cloudwatch.IMetric,
        threshold: float,
        description: str,
        *,
        periods: int = 1,
        missing_is_bad: bool = False,
    ) -> None:
        alarm_above(
            self,
            id_,
            metric=metric,
            threshold=threshold,
            description=description,
            topic=self._platform.alarm_topic,
            periods=periods,
            missing_is_bad=missing_is_bad,
        )

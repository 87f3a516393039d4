"""Stack of the monitoring: the counting function, the alarms on its figures, the dashboard."""

from __future__ import annotations

from typing import TYPE_CHECKING

from aws_cdk import Duration
from aws_cdk import aws_cloudwatch as cloudwatch
from fairbox.tables import batch_records as batch_codec
from fairbox.tables.ledger import DELIVERED_INDEX
from fairbox.tables.shard_rows import OUTSTANDING_INDEX

from fairbox_cdk.components import metrics
from fairbox_cdk.components import permissions as may
from fairbox_cdk.components.alarms import alarm_above, alarm_on_silence
from fairbox_cdk.components.dashboard import Dashboard
from fairbox_cdk.components.function import FairboxFunction
from fairbox_cdk.components.saved_queries import CIRCUITS, OUTSTANDING, save_queries
from fairbox_cdk.components.stack import DeploymentStack
from fairbox_cdk.components.triggers import ClockTrigger

if TYPE_CHECKING:
    from collections.abc import Sequence

    from constructs import Construct

    from fairbox_cdk.api import ApiStack
    from fairbox_cdk.batches import BatchesStack
    from fairbox_cdk.components.function import Platform
    from fairbox_cdk.delivery import DeliveryStack
    from fairbox_cdk.storage import StorageStack


class MonitoringStack(DeploymentStack):
    """Alarms on work that waits for too long or is forgotten.

    Attributes:
        count_outstanding: the function that counts each minute.
    """

    def __init__(
        self,
        scope: Construct,
        part: str,
        *,
        platform: Platform,
        storage: StorageStack,
        batches: BatchesStack,
        delivery: DeliveryStack,
        api: ApiStack,
    ) -> None:
        super().__init__(scope, part, description="Fairbox: counts, alarms and dashboard.")
        self._platform = platform
        self.count_outstanding = self._count_outstanding(storage)
        save_queries(
            self,
            [self.count_outstanding],
            {"Outstanding by topic": OUTSTANDING, "Circuits by topic": CIRCUITS},
        )
        if platform.config.canary:
            self._canary(storage)
        self._alarm_on_counts()
        self._alarm_on_given_up()
        self._alarm_on_batches()
        stream_functions = [delivery.relay, delivery.mark_delivered, batches.cascade_batches]
        self._alarm_on_lag(storage, stream_functions)
        self._alarm_on_silence(delivery, batches)
        Dashboard(
            self,
            "Dashboard",
            detail=self._platform.config.metrics_detail,
            functions=[
                *delivery.functions,
                *batches.functions,
                api.api,
                self.count_outstanding,
            ],
            stream_functions=stream_functions,
            queues=[delivery.doorbells.now, delivery.doorbells.apart, delivery.doorbells.later],
            dead_letters=delivery.doorbells.dead_letters,
            ack_queues=[batches.acks.queue, batches.acks.dead_letters],
            tables=[storage.outbox, storage.deliveries, storage.batches],
            http_api=api.http_api,
        )

    def _count_outstanding(self, storage: StorageStack) -> FairboxFunction:
        outbox, deliveries = self._platform.outbox, self._platform.deliveries
        detail = self._platform.config.metrics_detail
        count_outstanding = FairboxFunction(
            self,
            "CountOutstanding",
            platform=self._platform,
            name="count_outstanding",
            description="Counts what is outstanding and how old it is; ranks the topics.",
            memory_mb=256,
            timeout_seconds=60,
            environment={
                "FAIRBOX_BATCHES_TABLE": storage.batches.table_name,
                "FAIRBOX_METRICS_DETAIL": detail,
            },
            one_at_a_time=True,
        )
        count_outstanding.allow(
            [
                may.on_table(outbox, "GetItem", "PutItem", "Query"),  # puts heartbeats
                may.on_index(outbox, OUTSTANDING_INDEX),
                may.on_table(storage.batches, "GetItem", "BatchGetItem", "PutItem"),
                may.on_index(storage.batches, batch_codec.OPEN_BATCHES_INDEX),
            ]
        )
        if detail == "busiest":
            count_outstanding.allow(
                [
                    may.on_table(outbox, "UpdateItem"),
                    may.on_table(deliveries, "BatchGetItem"),
                    may.on_index(deliveries, DELIVERED_INDEX),
                ]
            )
        ClockTrigger(
            self,
            "CountOutstandingClock",
            function=count_outstanding,
            every=Duration.minutes(1),
        )
        return count_outstanding

    def _canary(self, storage: StorageStack) -> None:
        """The smoke test as a function; a step that fails is an error, which sets its alarm off."""
        canary = FairboxFunction(
            self,
            "Canary",
            platform=self._platform,
            name="canary",
            description="Sends messages through the deployment, and waits for them.",
            memory_mb=256,
            timeout_seconds=300,
            environment={
                "FAIRBOX_BATCHES_TABLE": storage.batches.table_name,
                "FAIRBOX_SMOKE_PREFIX": self._platform.config.smoke_prefix,
            },
            one_at_a_time=True,
        )
        canary.allow(
            [
                may.on_table(
                    storage.outbox,
                    *may.READ_ITEMS,
                    *("PutItem", "UpdateItem", "BatchWriteItem", "ConditionCheckItem"),
                    *may.CLAIM_ITEMS,
                ),
                may.on_table(storage.deliveries, "GetItem", "DeleteItem", *may.FILE_ITEMS),
                may.on_table(storage.batches, *may.READ_ITEMS, "PutItem", "BatchWriteItem"),
                may.keep_smoke_queues(self._platform.config.smoke_prefix),
            ]
        )
        ClockTrigger(self, "CanaryClock", function=canary, every=Duration.minutes(15))

    def _alarm_on_counts(self) -> None:
        """Alarm on the figures of `count_outstanding` each minute, and on missing figures.

        They cover all topics, so all partitions. Consumers report lost receipts.
        """
        config = self._platform.config
        self._alarm(
            "OutstandingCount",
            metrics.total(metrics.OUTSTANDING_COUNT),
            config.alarm_outstanding_count,
            "Too many messages are outstanding, or nobody has counted them for five minutes.",
            periods=5,
            silence_is_bad=True,
        )
        self._alarm(
            "OldestAge",
            metrics.total(metrics.OLDEST_AGE),
            config.alarm_oldest_age_seconds,
            "The oldest outstanding message is too old.",
            periods=3,
        )
        self._alarm(
            "GrowingDelay",
            metrics.while_growing(metrics.total(metrics.OLDEST_AGE)),
            config.alarm_growing_delay_seconds,
            "The oldest outstanding message has been growing older for 15 minutes.",
            periods=15,
        )
        self._alarm(
            "OpenCircuits",
            metrics.total(metrics.OPEN_CIRCUITS),
            config.alarm_open_circuits,
            "Destinations fail, and nothing but probes is sent to them.",
            periods=5,
        )
        self._alarm(
            "ReceiversGone",
            metrics.summed(metrics.RECEIVERS_GONE, Duration.minutes(5)),
            0,
            "A receiver answered that it wants no more (410): its subscription is paused.",
        )
        self._alarm(
            "DeadCount",
            metrics.total(metrics.DEAD_COUNT),
            config.alarm_dead_count,
            "Messages could not be delivered and wait as dead letters.",
        )
        self._alarm(
            "LostReceipts",
            metrics.summed(metrics.LOST_RECEIPTS, Duration.minutes(5)),
            config.alarm_lost_receipts,
            "Consumers work longer than they hold their messages: others receive them again.",
        )

    def _alarm_on_given_up(self) -> None:
        """Alarm on stream records that repair cannot replay, long before they expire."""
        config = self._platform.config
        self._alarm(
            "GivenUpAge",
            metrics.hourly(metrics.GIVEN_UP_AGE),
            config.alarm_given_up_hours,
            "Given-up stream records cannot be replayed, and expire after "
            f"{config.failures_retention_days} days.",
        )

    def _alarm_on_batches(self) -> None:
        """Alarm on stalled batches and on dropped acks."""
        config = self._platform.config
        self._alarm(
            "StalledBatches",
            metrics.hourly(metrics.STALLED_BATCHES),
            config.alarm_stalled_batches,
            f"Batches have neither progressed nor completed for {config.stalled_batch_hours} h.",
        )
        self._alarm(
            "BatchAcksDropped",
            metrics.summed(metrics.BATCH_ACKS_DROPPED, Duration.minutes(5)),
            config.alarm_acks_dropped,
            "Acks named items that were never issued, or of batches cancelled or reaped.",
        )

    def _alarm_on_lag(
        self, storage: StorageStack, stream_functions: Sequence[FairboxFunction]
    ) -> None:
        """Alarm on the stream's readers and on the archive."""
        config = self._platform.config
        for function in stream_functions:
            self._alarm(
                f"{function.node.id}IteratorAge",
                metrics.iterator_age(function.function),
                config.alarm_iterator_age_ms,
                f"Function {function.name} falls behind the stream.",
                periods=3,
                section="IteratorAge",
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
        five = Duration.minutes(5)
        self._alarm(
            "ArchiveWaiting",
            metrics.summed(metrics.ARCHIVE_WAITING, five),
            0,
            "Neither Firehose nor the archive's bucket takes events: they wait in the failures "
            "bucket, and repair moves them each hour.",
            periods=13,  # repair counts again within
            datapoints=1,
        )
        self._alarm(
            "ArchiveBypassed",
            metrics.summed(metrics.ARCHIVE_BYPASSED, five),
            0,
            "Events have gone past Firehose into the archive for an hour: its quota is too small, "
            "or it fails. Nothing is lost or late; each invocation pays for a request to S3.",
            periods=12,
        )

    def _alarm_on_silence(self, delivery: DeliveryStack, batches: BatchesStack) -> None:
        """Alarm on functions that nothing invokes: a disabled trigger raises no error.

        A heartbeat passes the streams each minute, so their readers always have work.
        """
        config = self._platform.config
        windows = {
            delivery.relay: 0,
            delivery.mark_delivered: config.mark_delivered_window_seconds,
            batches.cascade_batches: config.cascade_batches_window_seconds,
            delivery.sweep: 0,
        }
        for function, window in windows.items():
            periods = 5 + -(-window // 60)
            alarm_on_silence(
                self,
                f"{function.node.id}Silence",
                metric=metrics.invocations(function.function),
                periods=periods,
                description=f"Function {function.name} was not invoked for {periods} minutes.",
                topic=self._platform.alarm_topic,
                at_first=True,
            )
        for function in (delivery.repair, batches.clean_orphans):
            alarm_on_silence(
                self,
                f"{function.node.id}Silence",
                metric=metrics.invocations(function.function, Duration.hours(1)),
                periods=3,
                description=f"Function {function.name} was not invoked for three hours.",
                topic=self._platform.alarm_topic,
            )
        self._alarm(
            "AckQueueAge",
            batches.acks.queue.metric_approximate_age_of_oldest_message(
                period=metrics.MINUTE, statistic="Maximum"
            ),
            batches.acks.late_seconds,
            "Acks of batches' items wait: function ack_batches does not take them.",
            periods=5,
            section="Silence",
        )

    def _alarm(
        self,
        id_: str,
        metric: cloudwatch.IMetric,
        threshold: float,
        description: str,
        *,
        periods: int = 1,
        datapoints: int | None = None,
        section: str = "",
        silence_is_bad: bool = False,
    ) -> None:
        alarm_above(
            self,
            id_,
            metric=metric,
            threshold=threshold,
            description=description,
            topic=self._platform.alarm_topic,
            periods=periods,
            datapoints=datapoints,
            section=section,
            silence_is_bad=silence_is_bad,
        )

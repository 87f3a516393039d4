"""Stack of the delivery: functions, their stream and queue triggers, their schedules."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from aws_cdk import Duration
from fairbox.aws.s3_archive import ARCHIVE, WAITING
from fairbox.tables.shard_rows import OUTSTANDING_INDEX

from fairbox_cdk.components import permissions as may
from fairbox_cdk.components.doorbells import Doorbells
from fairbox_cdk.components.function import FairboxFunction
from fairbox_cdk.components.saved_queries import DELIVERIES, SHARES, save_queries
from fairbox_cdk.components.stack import DeploymentStack
from fairbox_cdk.components.triggers import (
    ClockTrigger,
    QueueTrigger,
    StreamTrigger,
    any_message,
    heartbeat,
    inserted,
)

if TYPE_CHECKING:
    from aws_cdk import aws_sqs as sqs
    from constructs import Construct

    from fairbox_cdk.components.function import Platform
    from fairbox_cdk.feeds import FeedsStack
    from fairbox_cdk.storage import StorageStack

RELAY_RETRIES: Final = 3
RELAY_MAXIMUM_AGE_SECONDS: Final = 3600
"""Age limit of the relay's records: the sweep takes messages that have waited for an hour."""
VISIT_SECONDS: Final = 45
"""18 s in which calls begin, 15 s of the longest call, 4 s to write, 7.5 s for the last write."""
MARK_DELIVERED_RETRIES: Final = -1
"""Until the records expire, for what it gives up is not counted; it sets bad records aside."""


class DeliveryStack(DeploymentStack):
    """The functions that deliver, record deliveries, and repair omissions.

    Attributes:
        doorbells: the queues that ask for visits.
        relay, mark_delivered, sweep, deliver_shard, repair: the functions.
    """

    def __init__(
        self,
        scope: Construct,
        part: str,
        *,
        platform: Platform,
        storage: StorageStack,
        ack_queue: sqs.IQueue,
        feeds: FeedsStack | None,
    ) -> None:
        super().__init__(scope, part, description="Fairbox: functions that deliver and record.")
        self._platform = platform
        self._config = platform.config
        self._storage = storage
        self._ack_queue = ack_queue
        self._feeds = feeds
        self.doorbells = Doorbells(
            self, "Doorbells", alarm_topic=platform.alarm_topic, key=storage.key
        )
        self.relay = self._relay()
        self.mark_delivered = self._mark_delivered()
        self.sweep = self._sweep()
        self.deliver_shard = self._deliver_shard()
        self.repair = self._repair()
        save_queries(
            self,
            [self.relay, self.deliver_shard],
            {"Deliveries by topic": DELIVERIES, "Bytes by destination": SHARES},
        )

    @property
    def functions(self) -> list[FairboxFunction]:
        """All functions of the stack."""
        return [self.relay, self.mark_delivered, self.sweep, self.deliver_shard, self.repair]

    def senders_to(self, service: str) -> list[FairboxFunction]:
        """Return the functions that send to destinations of `service`."""
        return [
            function
            for function, services in (
                (self.relay, may.FAST_SERVICES),
                (self.deliver_shard, may.ALL_SERVICES),
            )
            if service in services
        ]

    def _relay(self) -> FairboxFunction:
        relay = FairboxFunction(
            self,
            "Relay",
            platform=self._platform,
            name="relay",
            description="Sends what was just added, straight from the stream.",
            memory_mb=512,
            timeout_seconds=30,
            environment=self._rings()
            | self._reads_bodies()
            | self._settles()
            | self._measures()
            | self._publishes(),
        )
        relay.allow(self._dispatch(may.FAST_SERVICES))
        StreamTrigger(
            self,
            "RelayStream",
            function=relay,
            table=self._storage.outbox,
            failures=self._storage.failures,
            filters=[inserted("ready"), inserted("later"), heartbeat()],
            batch_size=100,
            window_seconds=0,
            parallelization=self._config.relay_parallelization,
            retries=RELAY_RETRIES,
            maximum_age_seconds=RELAY_MAXIMUM_AGE_SECONDS,
        )
        return relay

    def _mark_delivered(self) -> FairboxFunction:
        storage = self._storage
        mark_delivered = FairboxFunction(
            self,
            "MarkDelivered",
            platform=self._platform,
            name="mark_delivered",
            description="Writes ledger, archive, counts and index from the stream.",
            memory_mb=1024,
            timeout_seconds=60,
            environment=self._archives() | self._reads_bodies() | self._acks(),
        )
        mark_delivered.allow(
            [
                may.on_table(storage.outbox, *may.READ_ITEMS, "UpdateItem"),
                may.on_table(storage.deliveries, "BatchWriteItem"),
                *self._archive(),
                *self._expires_bodies(),
                may.send_to(self._ack_queue),
            ]
        )
        # one batch of a stream shard at a time: counts are kept by sequence number
        StreamTrigger(
            self,
            "MarkDeliveredStream",
            function=mark_delivered,
            table=storage.outbox,
            failures=storage.failures,
            filters=[*any_message(), heartbeat()],
            batch_size=1000,
            window_seconds=self._config.mark_delivered_window_seconds,
            parallelization=1,
            retries=MARK_DELIVERED_RETRIES,
        )
        return mark_delivered

    def _sweep(self) -> FairboxFunction:
        sweep = FairboxFunction(
            self,
            "Sweep",
            platform=self._platform,
            name="sweep",
            description="Rings for shards with overdue messages; removes expired ones.",
            memory_mb=1769,  # one processor: each of many thousand heads is a call
            timeout_seconds=60,
            environment=self._rings() | self._settles() | self._measures(),
            one_at_a_time=True,
        )
        outbox = self._storage.outbox
        sweep.allow(
            [
                may.on_table(outbox, "GetItem", "Query", "UpdateItem", *may.CLAIM_ITEMS),
                may.on_table(self._storage.batches, *may.FAIL_ITEMS),
                may.on_index(outbox, OUTSTANDING_INDEX),
                may.send_to(self.doorbells.now, self.doorbells.later),
            ]
        )
        ClockTrigger(self, "SweepClock", function=sweep, every=Duration.minutes(1))
        return sweep

    def _deliver_shard(self) -> FairboxFunction:
        config = self._config
        webhooks = {"FAIRBOX_WEBHOOK_ALLOW_PRIVATE": str(config.webhook_allow_private).lower()}
        if config.webhook_secrets:
            webhooks["FAIRBOX_WEBHOOK_SECRETS"] = ",".join(config.webhook_secrets)
        deliver_shard = FairboxFunction(
            self,
            "DeliverShard",
            platform=self._platform,
            name="deliver_shard",
            description="Visits the shard that a doorbell names.",
            memory_mb=512,
            timeout_seconds=VISIT_SECONDS,
            environment=self._rings()
            | self._reads_bodies()
            | self._settles()
            | self._measures()
            | self._publishes()
            | {"FAIRBOX_APART_QUEUE_URL": self.doorbells.apart.queue_url}
            | webhooks,
            may_ring_itself=True,
        )
        deliver_shard.allow(self._dispatch(may.ALL_SERVICES))
        deliver_shard.allow(may.read_secrets(config.webhook_secrets))
        # a message of the smoke test: one sweep more does no harm
        deliver_shard.allow([may.invoke(self.sweep.function), may.send_to(self.doorbells.apart)])
        shared, apart = config.deliver_shard_concurrency, config.visits_apart_concurrency
        for id_, queue, batch_size, concurrency in (
            ("Doorbell", self.doorbells.now, 1, shared),
            ("ApartDoorbell", self.doorbells.apart, 1, apart),
            ("LaterDoorbell", self.doorbells.later, 10, shared),
        ):
            QueueTrigger(
                self,
                id_,
                function=deliver_shard,
                queue=queue,
                batch_size=batch_size,
                maximum_concurrency=concurrency,
            )
        return deliver_shard

    def _repair(self) -> FairboxFunction:
        storage = self._storage
        repair = FairboxFunction(
            self,
            "Repair",
            platform=self._platform,
            name="repair",
            description="Finds what no index knows, and replays stream batches given up.",
            memory_mb=512,
            timeout_seconds=900,
            environment={"FAIRBOX_DOORBELL_QUEUE_URL": self.doorbells.now.queue_url}
            | self._archives()
            | self._reads_bodies()
            | self._settles()
            | self._acks(),
            one_at_a_time=True,
        )
        repair.allow(
            [
                may.on_table(storage.outbox, "Scan", *may.READ_ITEMS, *may.WRITE_ITEMS),
                may.on_table(
                    storage.deliveries, "Query", "PutItem", "UpdateItem", "BatchWriteItem"
                ),
                may.on_table(storage.batches, *may.SETTLE_ITEMS, *may.ERASE_ITEMS),
                may.on_objects(
                    storage.failures, "GetObject", "DeleteObject", below=may.FAILURES_PREFIX
                ),
                may.on_objects(storage.failures, "GetObject", "DeleteObject", below=WAITING),
                may.list_bucket(storage.failures),
                *self._archive(),
                *self._expires_bodies(),
                may.send_to(self.doorbells.now, self._ack_queue),
            ]
        )
        ClockTrigger(self, "RepairClock", function=repair, every=Duration.hours(1))
        return repair

    def _dispatch(self, services: tuple[str, ...]) -> list[may.Permission]:
        """Return the permissions of a dispatcher: send, delete, mark, bury, enqueue visits."""
        storage = self._storage
        return [
            # destination `topic:` adds a message, with a body of its own
            may.on_table(storage.outbox, *may.READ_ITEMS, *may.WRITE_ITEMS, *may.ADD_ITEMS),
            may.on_table(storage.deliveries, "PutItem", "UpdateItem"),
            may.on_table(storage.batches, *may.FAIL_ITEMS),
            may.on_objects(storage.bodies, "GetObject", "PutObject"),
            may.list_bucket(storage.bodies),
            may.send_to(self.doorbells.now, self.doorbells.later),
            *may.deliver_to(self._config.destinations, services),
            *may.deliver_to_smoke_test(self._config.smoke_prefix),
            *([may.on_table(self._feeds.table, *may.PUBLISH_ITEMS)] if self._feeds else []),
        ]

    def _expires_bodies(self) -> list[may.Permission]:
        """Return the permissions to mark a body as delivered, or to see that it is gone."""
        bodies = self._storage.bodies
        return [may.on_objects(bodies, "PutObjectTagging"), may.list_bucket(bodies)]

    def _rings(self) -> dict[str, str]:
        return {
            "FAIRBOX_DOORBELL_QUEUE_URL": self.doorbells.now.queue_url,
            "FAIRBOX_LATER_QUEUE_URL": self.doorbells.later.queue_url,
        }

    def _settles(self) -> dict[str, str]:
        """A message that dies fails its item of a batch."""
        return {"FAIRBOX_BATCHES_TABLE": self._storage.batches.table_name}

    def _acks(self) -> dict[str, str]:
        """A delivered message acks its item of a batch."""
        return {"FAIRBOX_ACK_QUEUE_URL": self._ack_queue.queue_url}

    def _publishes(self) -> dict[str, str]:
        """Destination `feed:` publishes to feeds, where there are any."""
        return {"FAIRBOX_FEEDS_TABLE": self._feeds.table.table_name} if self._feeds else {}

    def _measures(self) -> dict[str, str]:
        return {"FAIRBOX_METRICS_DETAIL": self._config.metrics_detail}

    def _archives(self) -> dict[str, str]:
        return {
            "FAIRBOX_ARCHIVE_STREAM": self._storage.archive.stream_name,
            "FAIRBOX_ARCHIVE_BUCKET": self._storage.archive.bucket.bucket_name,
            "FAIRBOX_ARCHIVE_BODIES": str(self._config.archive_bodies).lower(),
            "FAIRBOX_FAILURES_BUCKET": self._storage.failures.bucket_name,
        }

    def _archive(self) -> list[may.Permission]:
        """Return the permissions to put lines into Firehose, or past it, or aside."""
        storage = self._storage
        return [
            may.put_records(storage.archive.stream),
            may.on_objects(storage.archive.bucket, "PutObject", below=ARCHIVE),
            may.on_objects(storage.failures, "PutObject", below=WAITING),
        ]

    def _reads_bodies(self) -> dict[str, str]:
        return {"FAIRBOX_BODIES_BUCKET": self._storage.bodies.bucket_name}

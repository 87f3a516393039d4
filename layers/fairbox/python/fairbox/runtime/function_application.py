"""The application's parts, put together from the environment for the functions."""

from __future__ import annotations

import logging
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, TypeVar, cast

import boto3

from fairbox.aws.s3_bodies import S3Bodies
from fairbox.aws.sqs_queues import SqsAcks, SqsDoorbells
from fairbox.client.outbox import Outbox
from fairbox.destinations import DestinationFactory, make_clients
from fairbox.destinations.secrets import WebhookKeys
from fairbox.dispatch.dispatcher import Dispatcher
from fairbox.model.topics import GROUPS
from fairbox.observability.delivery_metrics import DeliveryMetrics, log_circuits, write_metrics
from fairbox.observability.metrics import Metrics, MetricsDetail, emit_shares
from fairbox.runtime.function_process import ProcessParts
from fairbox.sdk.clients import make_client
from fairbox.settings import (
    ACK_QUEUE_URL,
    APART_QUEUE_URL,
    ARCHIVE_BODIES,
    ARCHIVE_BUCKET,
    ARCHIVE_STREAM,
    BATCHES_TABLE,
    BODIES_BUCKET,
    DELIVERIES_TABLE,
    DOORBELL_QUEUE_URL,
    FAILURES_BUCKET,
    FEEDS_TABLE,
    LATER_QUEUE_URL,
    OUTBOX_TABLE,
    WEBHOOK_ALLOW_PRIVATE,
    WEBHOOK_SECRETS,
    Settings,
)
from fairbox.tables.tables import Tables

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from fairbox.aws.firehose_archive import FirehoseArchive
    from fairbox.aws.s3_archive import S3Archive
    from fairbox.client.batch_maintenance import BatchMaintenance
    from fairbox.client.batches import Batches
    from fairbox.client.feeds import Feeds
    from fairbox.destinations.bounded_clients import Clients
    from fairbox.dispatch.ports import Outcome
    from fairbox.model.messages import Message

T = TypeVar("T")
logger = logging.getLogger("fairbox")


class Application(ProcessParts):
    """The parts of a function that delivers, or looks after messages or batches."""

    def __init__(self, settings: Settings, client: Callable[..., Any] = make_client) -> None:
        super().__init__(settings, client)
        self.metrics_level = settings.metrics_level

    @cached_property
    def tables(self) -> Tables:
        """The tables."""
        return Tables(
            self.client("dynamodb"),
            outbox=self.settings.required(OUTBOX_TABLE),
            deliveries=self.settings.required(DELIVERIES_TABLE),
            batches=self.settings.optional(BATCHES_TABLE),
            bodies=self.bodies,
            clock=self.clock,
            rng=self.rng,
        )

    @cached_property
    def metrics(self) -> Metrics:
        """The metrics."""
        detail = MetricsDetail(
            self.metrics_level, lambda: self.tables.topic_cache.busiest.names, self._subscriptions
        )
        return Metrics(self.clock, detail=detail, settings=self.settings)

    @cached_property
    def s3(self) -> Any:
        """The S3 client."""
        return self.client("s3")

    @cached_property
    def bodies(self) -> S3Bodies | None:
        """The store of offloaded bodies; None without a bucket."""
        bucket = self.settings.optional(BODIES_BUCKET)
        return _lazy(lambda: S3Bodies(self.s3, bucket or ""), bucket=bucket) if bucket else None

    @cached_property
    def doorbells(self) -> SqsDoorbells:
        """The doorbell queues."""
        return SqsDoorbells(
            self.client("sqs"),
            self.settings.required(DOORBELL_QUEUE_URL),
            self.settings.optional(LATER_QUEUE_URL),
            clock=self.clock,
            groups=self._groups,
            apart_url=self.settings.optional(APART_QUEUE_URL),
            groups_apart=self._groups_apart,
        )

    @cached_property
    def acks(self) -> SqsAcks:
        """The ack queue; its setting is read, and its client made, when the first ack comes."""
        return _lazy(lambda: SqsAcks(self.client("sqs"), self.settings.required(ACK_QUEUE_URL)))

    @cached_property
    def dispatcher(self) -> Dispatcher:
        """The dispatcher that relay and visits run."""
        self.settings.required(DOORBELL_QUEUE_URL)  # missing, it fails here, not at a doorbell
        destinations = DestinationFactory(
            clients=self._destination_clients,
            clock=self.clock,
            add_to_topic=self._add_to_topic,
            publish=self._publish,
            secrets=self.webhook_keys,
            allow_private=self.settings.flag(WEBHOOK_ALLOW_PRIVATE),
        )
        doorbells = _lazy(lambda: self.doorbells)
        return Dispatcher(self.tables, destinations, doorbells, clock=self.clock, rng=self.rng)

    @cached_property
    def outbox(self) -> Outbox:
        """The outbox over the same tables."""
        return Outbox.over(self.tables)

    @cached_property
    def batches(self) -> Batches:
        """The batches, whose messages go to the same outbox."""
        # saves 50 ms of a cold start in functions without batches
        from fairbox.client.batches import Batches  # noqa: PLC0415

        return Batches(
            self.tables.calls.client,
            table=self.settings.required(BATCHES_TABLE),
            outbox_table=self.tables.outbox,
            deliveries_table=self.tables.deliveries,
            clock=self.clock,
            rng=self.rng,
        )

    @cached_property
    def feeds(self) -> Feeds:
        """The feeds, for the destination `feed:`."""
        from fairbox.client.feeds import Feeds  # noqa: PLC0415 - as above

        return Feeds(
            self.tables.calls.client,
            table=self.settings.required(FEEDS_TABLE),
            clock=self.clock,
            rng=self.rng,
        )

    @cached_property
    def keeper(self) -> BatchMaintenance:
        """The maintenance of all batches."""
        from fairbox.client.batch_maintenance import BatchMaintenance  # noqa: PLC0415 - as above

        return BatchMaintenance(self.batches)

    @cached_property
    def webhook_keys(self) -> WebhookKeys:
        """The keys that sign webhooks."""
        # an empty setting is no secret, not one with an empty name
        arns = [a for a in (self.settings.optional(WEBHOOK_SECRETS) or "").split(",") if a]
        return WebhookKeys(self._destination_clients, arns, self.clock)

    @cached_property
    def _destination_clients(self) -> Clients:
        """The clients by region, for resources that may be in another one."""
        return make_clients(partial(boto3.session.Session, region_name=self.settings.region))

    @cached_property
    def archive(self) -> FirehoseArchive:
        """The archive of every event."""
        from fairbox.aws.firehose_archive import FirehoseArchive  # noqa: PLC0415 - two need it

        return FirehoseArchive(
            self.client("firehose"),
            self.settings.required(ARCHIVE_STREAM),
            self.clock,
            objects=self.archive_objects,
            emit=self.metrics.emit,
        )

    @cached_property
    def archive_objects(self) -> S3Archive:
        """The archive's objects that do not come from Firehose."""
        from fairbox.aws.s3_archive import S3Archive  # noqa: PLC0415 - as above

        return S3Archive(
            lambda: self.s3,
            self.settings.required(ARCHIVE_BUCKET),
            self.failures_bucket,
            self.clock,
            self.metrics.emit,
        )

    @property
    def archive_bodies(self) -> bool:
        """Whether the archive keeps bodies."""
        return self.settings.flag(ARCHIVE_BODIES, default=True)

    @property
    def failures_bucket(self) -> str:
        """The bucket of unfinished work: given-up batches, waiting archive objects."""
        return self.settings.required(FAILURES_BUCKET)

    def report(self, deliveries: Sequence[DeliveryMetrics]) -> None:
        """Write the metrics of deliveries; log circuits, and errors of the tables."""
        for delivery in deliveries:
            log_circuits(delivery.circuits)
            for error in delivery.errors:
                logger.warning("a message was left to the sweep", extra={"error": error})
        write_metrics(self.metrics, deliveries)
        for delivery in deliveries:
            emit_shares(self.metrics, delivery.bytes, self._label)

    def _groups(self, name: str) -> int:
        """Return the number of visits of a topic at a time."""
        topic = self.tables.topic_cache.get(name)
        # a topic that is not in the copy yet: the number that every new one has
        return GROUPS if topic is None else topic.groups

    def _groups_apart(self, name: str, subscription: str) -> int:
        """Return the number of visits apart of a subscription at a time."""
        topic = self.tables.topic_cache.get(name)
        there = () if topic is None else topic.subscriptions
        return next((s.groups for s in there if s.name == subscription), 1)

    def _subscriptions(self, topic: str) -> int:
        """Return the number of a topic's subscriptions."""
        state = self.tables.topic_cache.get(topic)
        return 0 if state is None else len(state.subscriptions)

    def _label(self, topic: str, subscription: str) -> str:
        """Return the short name of a subscription's destination."""
        state = self.tables.topic_cache.get(topic)
        labels = {} if state is None else {s.name: s.label for s in state.subscriptions}
        return labels.get(subscription, subscription)

    def _add_to_topic(self, messages: Sequence[Message]) -> list[Outcome]:
        """Add messages to a pulled topic, as the destination `topic:` does."""
        from fairbox.destinations.topic import add_to_topic  # noqa: PLC0415 - when first needed

        return add_to_topic(self.outbox, messages)

    def _publish(self, *some: Any) -> object:
        """Publish to a feed, as the destination `feed:` does."""
        return self.feeds.publish_many(*some)


def _lazy(make: Callable[[], T], **known: str) -> T:
    """Return a part that is made, with its client, when it is first used.

    Args:
        make: makes the part.
        known: attributes that are known without it.
    """
    return cast("T", _Lazy(make, known))


class _Lazy:
    def __init__(self, make: Callable[[], object], known: Mapping[str, str]) -> None:
        self._make = make
        vars(self).update(known)

    @cached_property
    def _part(self) -> Any:
        return self._make()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._part, name)

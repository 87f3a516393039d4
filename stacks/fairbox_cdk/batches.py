"""Stack of the batches: the ack queue, and the functions that ack, cascade and clean."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from aws_cdk import Duration
from fairbox.tables import batch_records as codec

from fairbox_cdk.components import permissions as may
from fairbox_cdk.components.acks import AckQueue
from fairbox_cdk.components.function import FairboxFunction
from fairbox_cdk.components.stack import DeploymentStack
from fairbox_cdk.components.triggers import (
    ClockTrigger,
    QueueTrigger,
    StreamTrigger,
    emptied_or_ended,
    heartbeat,
)

if TYPE_CHECKING:
    from constructs import Construct

    from fairbox_cdk.components.function import Platform
    from fairbox_cdk.storage import StorageStack

CASCADE_RETRIES: Final = 10


class BatchesStack(DeploymentStack):
    """The functions that ack from the queue, finish cascades, and clean up idle batches.

    Attributes:
        acks: the queue of items to ack.
        ack_batches, cascade_batches, clean_orphans: the functions.
    """

    def __init__(
        self, scope: Construct, part: str, *, platform: Platform, storage: StorageStack
    ) -> None:
        super().__init__(scope, part, description="Fairbox: functions that keep batches.")
        self._platform = platform
        self._config = platform.config
        self._storage = storage
        self.acks = AckQueue(
            self,
            "Acks",
            timeout_seconds=self._config.ack_batches_timeout_seconds,
            window_seconds=self._config.ack_batches_window_seconds,
            alarm_topic=platform.alarm_topic,
            key=storage.key,
        )
        self.ack_batches = self._ack_batches()
        self.cascade_batches = self._cascade_batches()
        self.clean_orphans = self._clean_orphans()

    @property
    def functions(self) -> list[FairboxFunction]:
        """All functions of the stack."""
        return [self.ack_batches, self.cascade_batches, self.clean_orphans]

    def _ack_batches(self) -> FairboxFunction:
        config = self._config
        ack_batches = FairboxFunction(
            self,
            "AckBatches",
            platform=self._platform,
            name="ack_batches",
            description="Acks items of batches, a window of the queue at a time.",
            memory_mb=1024,
            timeout_seconds=config.ack_batches_timeout_seconds,
            environment=self._table(),
        )
        ack_batches.allow(self._settles())
        QueueTrigger(
            self,
            "AckQueueTrigger",
            function=ack_batches,
            queue=self.acks.queue,
            batch_size=config.ack_batches_messages,
            window_seconds=config.ack_batches_window_seconds,
            maximum_concurrency=config.ack_batches_concurrency,
        )
        return ack_batches

    def _cascade_batches(self) -> FairboxFunction:
        storage = self._storage
        cascade_batches = FairboxFunction(
            self,
            "CascadeBatches",
            platform=self._platform,
            name="cascade_batches",
            description="Clears what was emptied upwards, from the batches' stream.",
            memory_mb=512,
            timeout_seconds=60,
            environment=self._table(),
        )
        cascade_batches.allow(self._settles())
        cascade_batches.allow([may.on_table(storage.batches, *may.ERASE_ITEMS)])
        # one batch of a stream shard at a time: two would meet at the same parents
        StreamTrigger(
            self,
            "CascadeBatchesStream",
            function=cascade_batches,
            table=storage.batches,
            failures=storage.failures,
            filters=[*emptied_or_ended(), heartbeat()],
            batch_size=1000,
            window_seconds=self._config.cascade_batches_window_seconds,
            parallelization=1,
            retries=CASCADE_RETRIES,
        )
        return cascade_batches

    def _clean_orphans(self) -> FairboxFunction:
        config = self._config
        clean_orphans = FairboxFunction(
            self,
            "CleanOrphans",
            platform=self._platform,
            name="clean_orphans",
            description="Reaps batches that nobody goes on with, and erases what has ended.",
            memory_mb=512,
            timeout_seconds=900,
            environment=self._table()
            | {
                "FAIRBOX_OPEN_BATCH_DAYS": str(config.open_batch_days),
                "FAIRBOX_SEALED_BATCH_DAYS": str(config.sealed_batch_days),
                "FAIRBOX_STALLED_BATCH_HOURS": str(config.stalled_batch_hours),
                "FAIRBOX_CLEAN_ORPHANS_DRY_RUN": str(config.clean_orphans_dry_run).lower(),
            },
            one_at_a_time=True,
        )
        clean_orphans.allow(self._settles())
        clean_orphans.allow(
            [
                may.on_table(self._storage.batches, *may.ERASE_ITEMS),
                may.on_index(self._storage.batches, codec.OPEN_BATCHES_INDEX),
            ]
        )
        ClockTrigger(self, "CleanOrphansClock", function=clean_orphans, every=Duration.hours(1))
        return clean_orphans

    def _table(self) -> dict[str, str]:
        return {"FAIRBOX_BATCHES_TABLE": self._storage.batches.table_name}

    def _settles(self) -> list[may.Permission]:
        """Return the permissions of settling: a completing batch puts its message and topic."""
        return [
            may.on_table(self._storage.batches, *may.SETTLE_ITEMS),
            may.on_table(self._storage.outbox, *may.ANNOUNCE_ITEMS),
        ]

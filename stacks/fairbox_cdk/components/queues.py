"""Queues: encrypted, only over TLS, with bounded repetition and an alarm on dead letters."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from aws_cdk import Duration
from aws_cdk import aws_sqs as sqs

from fairbox_cdk.components.alarms import alarm_above

if TYPE_CHECKING:
    from aws_cdk import aws_kms as kms
    from aws_cdk import aws_sns as sns
    from constructs import Construct

DEAD_LETTER_RETENTION: Final = Duration.days(14)
KEY_REUSE: Final = Duration.hours(1)
"""Time for which SQS reuses a data key for each sender: 24 requests a day."""


def private_queue(
    scope: Construct,
    id_: str,
    *,
    visibility_seconds: int,
    retention: Duration,
    fifo: bool = False,
    dead_letters: sqs.Queue | None = None,
    maximum_receives: int = 5,
    key: kms.IKey | None = None,
) -> sqs.Queue:
    """A queue for the application alone; a FIFO queue's limits are per group, not per queue."""
    return sqs.Queue(
        scope,
        id_,
        fifo=fifo or None,
        content_based_deduplication=False if fifo else None,
        deduplication_scope=sqs.DeduplicationScope.MESSAGE_GROUP if fifo else None,
        fifo_throughput_limit=(sqs.FifoThroughputLimit.PER_MESSAGE_GROUP_ID if fifo else None),
        encryption=sqs.QueueEncryption.KMS if key else sqs.QueueEncryption.SQS_MANAGED,
        encryption_master_key=key,
        data_key_reuse=KEY_REUSE if key else None,
        enforce_ssl=True,
        visibility_timeout=Duration.seconds(visibility_seconds),
        retention_period=retention,
        dead_letter_queue=(
            sqs.DeadLetterQueue(queue=dead_letters, max_receive_count=maximum_receives)
            if dead_letters
            else None
        ),
    )


def alarm_when_not_empty(
    queue: sqs.Queue, description: str, topic: sns.ITopic, section: str
) -> None:
    """Alarm when a dead-letter queue holds a message."""
    alarm_above(
        queue,
        "NotEmpty",
        metric=queue.metric_approximate_number_of_messages_visible(
            period=Duration.minutes(1), statistic="Maximum"
        ),
        threshold=0,
        description=description,
        section=section,
        topic=topic,
    )

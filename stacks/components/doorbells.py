"""The doorbell queues: visits to make now (FIFO), visits for later, and what could not be made."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from aws_cdk import Duration
from aws_cdk import aws_sqs as sqs
from constructs import Construct

from stacks.components.alarms import alarm_above

if TYPE_CHECKING:
    from aws_cdk import aws_sns as sns

VISIBILITY_SECONDS: Final = 90
"""Three times the visit's time-out: a crash stalls its group for so long at most."""
MAXIMUM_RECEIVES: Final = 5
RETENTION: Final = Duration.days(1)
"""A doorbell is a hint, and the sweep rings again for what is overdue."""


class Doorbells(Construct):
    """The two queues in front of visits.

    Attributes:
        now: FIFO; message group `{topic}#{shard mod 8}`, so that one shard has one visit at a time.
        later: standard, for FIFO knows no delay of one message; what is due is passed on to `now`.
        dead_letters: the queues of doorbells that failed too often, of `now` and of `later`.
    """

    def __init__(self, scope: Construct, id_: str, *, alarm_topic: sns.ITopic) -> None:
        super().__init__(scope, id_)
        fifo_dead_letters = _queue(self, "NowDeadLetters", fifo=True, retention=Duration.days(14))
        dead_letters = _queue(self, "LaterDeadLetters", retention=Duration.days(14))
        self.dead_letters = [fifo_dead_letters, dead_letters]
        self.now = _queue(self, "Now", fifo=True, dead_letters=fifo_dead_letters)
        self.later = _queue(self, "Later", dead_letters=dead_letters)
        for queue, name in zip(self.dead_letters, ("now", "later"), strict=True):
            alarm_above(
                queue,
                "NotEmpty",
                metric=queue.metric_approximate_number_of_messages_visible(
                    period=Duration.minutes(1), statistic="Maximum"
                ),
                threshold=0,
                description=f"Doorbells of queue {name} failed {MAXIMUM_RECEIVES} times.",
                topic=alarm_topic,
            )


def _queue(
    scope: Construct,
    id_: str,
    *,
    fifo: bool = False,
    dead_letters: sqs.Queue | None = None,
    retention: Duration = RETENTION,
) -> sqs.Queue:
    """An encrypted queue, only over TLS; a FIFO queue's limits are per group, not per queue."""
    return sqs.Queue(
        scope,
        id_,
        fifo=fifo or None,
        content_based_deduplication=False if fifo else None,
        deduplication_scope=sqs.DeduplicationScope.MESSAGE_GROUP if fifo else None,
        fifo_throughput_limit=(sqs.FifoThroughputLimit.PER_MESSAGE_GROUP_ID if fifo else None),
        encryption=sqs.QueueEncryption.SQS_MANAGED,
        enforce_ssl=True,
        visibility_timeout=Duration.seconds(VISIBILITY_SECONDS),
        retention_period=retention,
        dead_letter_queue=(
            sqs.DeadLetterQueue(queue=dead_letters, max_receive_count=MAXIMUM_RECEIVES)
            if dead_letters
            else None
        ),
    )

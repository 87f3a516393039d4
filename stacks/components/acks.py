"""The ack queue: items of batches to ack, gathered for a window, and what could not be acked."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from aws_cdk import Duration
from constructs import Construct

from stacks.components.queues import DEAD_LETTER_RETENTION, alarm_when_not_empty, private_queue

if TYPE_CHECKING:
    from aws_cdk import aws_kms as kms
    from aws_cdk import aws_sns as sns

MAXIMUM_RECEIVES: Final = 10
"""A window that is cut off by its time limit has made progress, so more than for doorbells."""
RETENTION: Final = Duration.days(14)
"""An ack is nobody's to repeat: it stays as long as a queue keeps anything."""
_TIMEOUTS: Final = 6


class AckQueue(Construct):
    """The queue in front of `ack_batches`.

    Attributes:
        queue: standard: acks know no order.
        dead_letters: messages that failed too often; moved back once the cause is gone.
    """

    def __init__(
        self,
        scope: Construct,
        id_: str,
        *,
        timeout_seconds: int,
        window_seconds: int,
        alarm_topic: sns.ITopic,
        key: kms.IKey | None = None,
    ) -> None:
        super().__init__(scope, id_)
        visibility = _TIMEOUTS * timeout_seconds + window_seconds
        self.dead_letters = private_queue(
            self,
            "DeadLetters",
            visibility_seconds=visibility,
            retention=DEAD_LETTER_RETENTION,
            key=key,
        )
        self.queue = private_queue(
            self,
            "Queue",
            visibility_seconds=visibility,
            retention=RETENTION,
            dead_letters=self.dead_letters,
            maximum_receives=MAXIMUM_RECEIVES,
            key=key,
        )
        alarm_when_not_empty(
            self.dead_letters,
            f"Acks of batches' items failed {MAXIMUM_RECEIVES} times.",
            alarm_topic,
        )

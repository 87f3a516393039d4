"""The ack queue: items of batches to ack, gathered for a window, and failed acks."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from aws_cdk import Duration
from constructs import Construct

from fairbox_cdk.components.queues import DEAD_LETTER_RETENTION, alarm_when_not_empty, private_queue

if TYPE_CHECKING:
    from aws_cdk import aws_kms as kms
    from aws_cdk import aws_sns as sns

MAXIMUM_RECEIVES: Final = 10
"""More receives than for doorbells: a window cut off by its time limit has made progress."""
RETENTION: Final = Duration.days(14)
"""No client repeats an ack, so it is kept as long as a queue allows."""
_TIMEOUTS: Final = 6


class AckQueue(Construct):
    """The queue in front of `ack_batches`.

    Attributes:
        queue: standard, because acks have no order.
        dead_letters: messages that failed too often; moved back once the cause is gone.
        late_seconds: age of a message that not even one failure explains.
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
        self.late_seconds = 2 * visibility
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
            "Acks given up",
        )

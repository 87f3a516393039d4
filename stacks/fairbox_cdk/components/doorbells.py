"""The doorbell queues: visits to make now and apart (FIFO), for later, and failed visits."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from aws_cdk import Duration
from constructs import Construct

from fairbox_cdk.components.queues import DEAD_LETTER_RETENTION, alarm_when_not_empty, private_queue

if TYPE_CHECKING:
    from aws_cdk import aws_kms as kms
    from aws_cdk import aws_sns as sns
    from aws_cdk import aws_sqs as sqs

VISIBILITY_SECONDS: Final = 90
"""Twice the visit's timeout: a crash blocks its group for at most this long."""
MAXIMUM_RECEIVES: Final = 5
RETENTION: Final = Duration.days(1)
"""A doorbell is a hint: the sweep enqueues another visit of overdue shards."""


class Doorbells(Construct):
    """The three queues in front of visits.

    Attributes:
        now: FIFO; message group `{topic}#{shard mod 8}`, so that one shard has one visit at a time.
        apart: FIFO; visits of one subscription, group `{topic}#{shard mod groups}#{subscription}`.
        later: standard, because FIFO queues delay no single message; due doorbells go on.
        dead_letters: the queues of doorbells that failed too often, one for each of the three.
    """

    def __init__(
        self, scope: Construct, id_: str, *, alarm_topic: sns.ITopic, key: kms.IKey | None = None
    ) -> None:
        super().__init__(scope, id_)
        self._key = key
        self.dead_letters: list[sqs.Queue] = []
        self.now = self._queue("Now", alarm_topic, fifo=True)
        self.apart = self._queue("Apart", alarm_topic, fifo=True)
        self.later = self._queue("Later", alarm_topic)

    def _queue(self, id_: str, alarm_topic: sns.ITopic, *, fifo: bool = False) -> sqs.Queue:
        dead_letters = private_queue(
            self,
            f"{id_}DeadLetters",
            visibility_seconds=VISIBILITY_SECONDS,
            retention=DEAD_LETTER_RETENTION,
            fifo=fifo,
            key=self._key,
        )
        alarm_when_not_empty(
            dead_letters,
            f"Doorbells of queue {id_.lower()} failed {MAXIMUM_RECEIVES} times.",
            alarm_topic,
            "Doorbells given up",
        )
        self.dead_letters.append(dead_letters)
        return private_queue(
            self,
            id_,
            visibility_seconds=VISIBILITY_SECONDS,
            retention=RETENTION,
            fifo=fifo,
            dead_letters=dead_letters,
            maximum_receives=MAXIMUM_RECEIVES,
            key=self._key,
        )

"""Jobs: one message for one subscription each, and their order."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from fairbox.dispatch.fair import Work

if TYPE_CHECKING:
    from collections.abc import Sequence

    from fairbox.model.topics import Subscription, Topic
    from fairbox.tables.stored_messages import StoredMessage


NOTICES: Final = "fairbox."
"""The prefix of topics of Fairbox's own notices, such as completions: these are direct."""


@dataclass(frozen=True, slots=True)
class Job:
    """One message for one subscription.

    Attributes:
        subscription: the receiver.
        stored: the message.
        in_order: it holds back others of its key in its call.
        topic: the message's topic, whose weights count; None: all count the same.
    """

    subscription: Subscription
    stored: StoredMessage
    in_order: bool = False
    topic: Topic | None = None

    @property
    def order_key(self) -> tuple[str, str]:
        """The subscription and partition key within which jobs stay in order."""
        subscription = f"{self.stored.ref.topic}#{self.subscription.name}"
        return subscription, self.stored.message.shard_key


def rounds(jobs: Sequence[Job]) -> list[Job]:
    """Return the jobs with the first of every key before the second of any; unordered ones first.

    The order within a key stays, and a call can carry many keys.
    """
    seen: dict[tuple[str, str], int] = {}
    ranked = []
    for job in jobs:
        rank = 0
        if job.in_order:
            rank = seen[job.order_key] = seen.get(job.order_key, 0) + 1
        ranked.append((rank, job))
    return [job for _, job in sorted(ranked, key=lambda pair: pair[0])]


def work(job: Job) -> Work[Job]:
    """Return the job as pending work of its destination.

    A call carries at most one message of a key of an ordered topic. There neither tenants nor
    direct messages have turns of their own: a key's messages would overtake one another.
    """
    message, topic = job.stored.message, job.topic
    weight = job.subscription.weight or (1.0 if topic is None else topic.weight)
    tenant = None if job.in_order else message.fairness_key
    weights = {} if topic is None else topic.tenant_weights

    return Work(
        job,
        job.stored.ref.topic,
        size=job.stored.size,
        tenant=tenant,
        weight=weight,
        tenant_weight=1.0 if tenant is None else weights.get(tenant, 1.0),
        batch=1 if topic is None else topic.mini_batch,
        key=job.order_key if job.in_order else None,
        direct=(message.direct or message.topic.startswith(NOTICES)) and not job.in_order,
    )

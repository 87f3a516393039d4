"""The doorbell queues of a simulated world, and the function that they invoke."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from botocore.exceptions import ClientError
from fairbox.aws.sqs_queues import Answer, answer_doorbells
from fairbox.testing.memory_sqs import SqsFaults

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from fairbox.aws.sqs_queues import SqsDoorbells
    from fairbox.dispatch.visits import Visits
    from fairbox.model.clock import Clock
    from fairbox.testing.memory_sqs import MemorySqs, Record

    from fairbox_simulation.chaos import Chaos, Fuse


def queue_faults(chaos: Chaos) -> SqsFaults:
    """Return the faults of the queues under a fault profile."""
    return SqsFaults(entries=chaos.tables, duplicates=chaos.twice, disorder=chaos.twice)


class FusedSqs:
    """SQS as the invocations of a world see it.

    At a call an invocation may end, before it or after; the call may fail, or lose its answer; and
    a doorbell may be accepted and never come.
    """

    def __init__(
        self, sqs: MemorySqs, fuse: Fuse, chaos: Chaos, strikes: Callable[[float], bool]
    ) -> None:
        self._sqs = sqs
        self._fuse = fuse
        self._chaos = chaos
        self._strikes = strikes

    def send_message_batch(
        self,
        *,
        QueueUrl: str,  # noqa: N803 - the SDK's
        Entries: Sequence[dict[str, Any]],  # noqa: N803
    ) -> dict[str, Any]:
        """Send messages, but those that are lost."""
        self._fuse.burn()
        if self._strikes(self._chaos.tables / 2):
            raise _error()
        kept = [e for e in Entries if not self._strikes(self._chaos.lost_doorbells)]
        answer = self._sqs.send_message_batch(QueueUrl=QueueUrl, Entries=kept) if kept else {}
        self._fuse.burn()
        if self._strikes(self._chaos.tables / 2):
            raise _error()
        return answer


def _error() -> ClientError:
    text = "We encountered an internal error."
    return ClientError({"Error": {"Code": "InternalError", "Message": text}}, "SendMessageBatch")


@dataclass(frozen=True)
class DeliverShard:
    """An instance of `deliver_shard`.

    Attributes:
        visits, doorbells: its own.
        clock: its clock.
        seconds: after which it begins no call to a destination.
    """

    visits: Visits
    doorbells: SqsDoorbells
    clock: Clock
    seconds: float

    def __call__(self, records: Sequence[Record]) -> Answer:
        """Answer the doorbells of an event."""
        return answer_doorbells(
            records,
            visits=self.visits,
            doorbells=self.doorbells,
            deadline=self.clock.now() + self.seconds,
        )

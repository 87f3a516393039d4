"""The relay: sends what is young straight from the stream's image, and rings for all else."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from fairbox.clock import milliseconds
from fairbox.codec.records import raw_image, read_record
from fairbox.dispatch.dispatcher import Report
from fairbox.dispatch.ports import Doorbell
from fairbox.errors import FairboxError, Unreadable

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from fairbox.dispatch.dispatcher import Dispatcher
    from fairbox.messages import MessageRef
    from fairbox.stored import StoredMessage

YOUNG_MS: Final = 20_000
CALL_SECONDS: Final = 3.0
RING_AHEAD_MS: Final = 900_000
QUANTUM_MESSAGES: Final = 100
QUANTUM_BYTES: Final = 4 * 1024 * 1024

Shard = tuple[str, int, int]


@dataclass(slots=True)
class RelayReport:
    """What an invocation did: the delivery's report, messages rung for, items buried unread."""

    delivery: Report = field(default_factory=Report)
    rung: int = 0
    unreadable: int = 0


class Relay:
    """Delivers the inserts of a stream.

    Args:
        dispatcher: sends, deletes, retries.
    """

    def __init__(self, dispatcher: Dispatcher) -> None:
        self._dispatcher = dispatcher
        self._store = dispatcher.store
        self._clock = dispatcher.clock

    def handle(self, records: Iterable[Mapping[str, Any]], *, deadline: float) -> RelayReport:
        """Deliver records as Lambda hands them over.

        A destination's failure never fails a record; what stays undelivered is rung for, or the
        sweep finds it.

        Args:
            records: of the outbox table's stream.
            deadline: no call to a destination begins after this time (seconds since 1970).

        Raises:
            FairboxError: topics could not be read, or an unreadable item not buried; nothing was
                sent, and the invocation is to be repeated.
        """
        report = RelayReport()
        self._store.refresh()
        to_send: list[StoredMessage] = []
        rings: dict[tuple[Shard, int], list[MessageRef]] = defaultdict(list)
        quanta: dict[str, list[int]] = defaultdict(lambda: [0, 0])
        for record in records:
            if record["eventName"] != "INSERT":
                continue
            try:
                change = read_record(record)
                stored = change.stored
            except Unreadable as unreadable:
                self._store.bury_raw(raw_image(record), str(unreadable))
                report.unreadable += 1
                continue
            topic = self._store.topic(stored.ref.topic)
            if topic is None or not topic.pushed:
                continue
            ref = stored.ref
            shard = (ref.topic, ref.epoch, ref.shard)
            now = milliseconds(self._clock)
            if ref.due is not None:
                if ref.due - now <= RING_AHEAD_MS:
                    rings[shard, -(-ref.due // 1000)].append(ref)
                continue
            used = quanta[ref.topic]
            used[0] += 1
            used[1] += stored.size
            young = now - change.at <= YOUNG_MS + 999  # the stream stamps whole seconds
            within = used[0] <= QUANTUM_MESSAGES and used[1] <= QUANTUM_BYTES
            unordered = topic.topic.ordering == "none"
            if young and within and unordered and self._dispatcher.quick(topic):
                to_send.append(stored)
            else:
                rings[shard, 0].append(ref)
        if to_send:
            report.delivery = self._dispatcher.deliver(
                to_send, deadline=deadline, timeout=CALL_SECONDS
            )
        self._ring(rings, report)
        return report

    def _ring(
        self, rings: Mapping[tuple[Shard, int], list[MessageRef]], report: RelayReport
    ) -> None:
        """Ring for each shard once for each time: on ordered topics with the smallest id."""
        doorbells = []
        for (shard, second), refs in rings.items():
            topic = self._store.topic(shard[0])
            ordered = topic is not None and topic.topic.ordering == "key"
            named = (min(refs),) if ordered else tuple(refs)
            doorbells.append(Doorbell(*shard, named, second * 1000))
            report.rung += len(refs)
        try:
            if doorbells:
                self._dispatcher.doorbells.ring(doorbells)
        except FairboxError as error:
            # not to be repeated: what was sent would be sent again; the sweep finds the rest
            report.delivery.errors.append(str(error))

"""The batches' stream: what was emptied is cleared upwards, and who ended is counted."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

from fairbox.codec.batches import emptied, newly_ended
from fairbox.codec.stream_records import sequence_order
from fairbox.errors import NewerVersion, Unreadable

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from fairbox.batches.stream_follow_up import Cause, Finished


class Finish(Protocol):
    """Does cascades, and says which are to be done again."""

    def finish(self, causes: Collection[Cause], *, deadline: float) -> Finished:
        """Cascade until the deadline; raises nothing of Fairbox's."""
        ...


@dataclass(slots=True)
class CascadeReport:
    """What became of stream records.

    Attributes:
        again: the lowest sequence number that is to come again; None: all is done.
        ended: how many batches ended, by state; a repeated record counts again.
        completed: ids of the batches that this completed.
        unreadable: records that are none of the codec's.
        errors: why records are to come again.
    """

    again: str | None = None
    ended: Counter[str] = field(default_factory=Counter)
    completed: list[str] = field(default_factory=list)
    unreadable: int = 0
    errors: list[str] = field(default_factory=list)


def cascade_records(
    records: Sequence[Mapping[str, Any]], batches: Finish, *, deadline: float
) -> CascadeReport:
    """Do what these records of the batches' stream ask for, all of one parent at once.

    Args:
        records: as Lambda gives them, with new images.
        batches: does it.
        deadline: in seconds since 1970.
    """
    report = CascadeReport()
    causes: dict[Cause, str] = {}
    newer: list[str] = []
    for record in records:
        body = record["dynamodb"]
        image = body.get("NewImage")
        if image is None:
            continue
        try:
            cause, ended = emptied(image), newly_ended(image)
        except NewerVersion as error:
            newer.append(body["SequenceNumber"])
            report.errors.append(str(error))
            continue
        except Unreadable:
            report.unreadable += 1
            continue
        if ended is not None:
            report.ended[ended] += 1
        if cause is not None:
            causes[cause] = body["SequenceNumber"]  # the latest: it is enough to repeat that
    finished = batches.finish(causes, deadline=deadline)
    left = [*newer, *(causes[cause] for cause in finished.left)]
    report.again = min(left, key=sequence_order, default=None)
    report.completed = finished.completed
    report.errors += finished.errors
    return report

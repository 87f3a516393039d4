"""Verbs over all partitions of a queue: their sums, and what was done where one failed."""

from __future__ import annotations

from functools import reduce
from operator import add, or_
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer

if TYPE_CHECKING:
    from collections.abc import Callable

    from fairbox.cli.output_fields import Fields
    from fairbox.cli.session import Session
    from fairbox.client.partition_types import PartitionResults
    from fairbox.client.partitioned_queue import PartitionedQueue

AllPartitions = Annotated[
    bool, typer.Option("--all-partitions", help="Every partition of the queue of this name.")
]
T = TypeVar("T")


def whole(session: Session, name: str) -> PartitionedQueue:
    """Return the partitioned queue of a logical name."""
    # imported where it is used: `fairbox --help` does without the library
    from fairbox.client.partitioned_queue import PartitionedQueue  # noqa: PLC0415

    return PartitionedQueue.registered(session.outbox, name)


def told(
    session: Session,
    queue: PartitionedQueue,
    found: PartitionResults[T],
    fields: Callable[[T], Fields],
) -> dict[str, Any]:
    """Return the sums of the partitions' fields, and those of each under `partitions`.

    Raises:
        FairboxError: the first partition's error; `session.done` has what the others did.
    """
    parts = [{"topic": topic} | fields(result) for topic, result in found.results.items()]
    sums = {name: _sum([part[name] for part in parts]) for name in (parts[0] if parts else {})}
    # a sum of names means nothing
    sums.pop("topic", None)
    if found.errors and session.json:
        session.done = sums | session.done | {"failed": list(found.errors), "partitions": parts}
    # for people, only numbers: lists of all partitions would hide the error's line
    elif found.errors:
        session.done = session.done or {n: value for n, value in sums.items() if type(value) is int}
        session.done |= {"done": ", ".join(found.results), "failed": ", ".join(found.errors)}
    found.check()
    return {"queue": queue.name, **sums, "partitions": parts}


def _sum(values: list[Any]) -> object:
    """Return a sum; of lists, all entries; of booleans, whether one is true; None: not known."""
    if None in values:
        return None
    return reduce(or_ if isinstance(values[0], bool) else add, values)

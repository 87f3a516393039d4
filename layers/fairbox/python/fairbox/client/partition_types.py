"""Types of partitioned queues: routes, results by partition, and an outbox that redrives."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Generic, Protocol, TypedDict, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from fairbox.errors import FairboxError
    from fairbox.model.messages import MessageRef
    from fairbox.tables.dead_letters import DeadLetter

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)


class Route(TypedDict):
    """The topic of a message, as an argument of `Message`."""

    topic: str


class KeyRoute(Route):
    """The topic and the partition key of a message, as arguments of `Message`."""

    partition_key: str


class Redrives(Protocol[T_co]):
    """The part of `Outbox` that puts dead letters back."""

    def redrive(
        self,
        topic: str,
        ids: Iterable[MessageRef] | None = None,
        *,
        where: Callable[[DeadLetter], bool] | None = None,
        limit: int | None = None,
        dry_run: bool = False,
    ) -> T_co:
        """Put a topic's dead letters back."""
        ...


@dataclass(frozen=True, slots=True)
class PartitionResults(Generic[T]):
    """The results of an operation over a partitioned queue, partition by partition.

    Attributes:
        results: by topic name, for the partitions where it succeeded.
        errors: by topic name, for the partitions where it was refused or failed.
    """

    results: Mapping[str, T]
    errors: Mapping[str, FairboxError]

    def check(self) -> Mapping[str, T]:
        """Return the results if there is no error.

        Raises:
            FairboxError: the first partition's error.
        """
        for error in self.errors.values():
            raise error
        return self.results

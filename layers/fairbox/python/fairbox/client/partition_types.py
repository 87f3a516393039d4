"""Types of partitioned queues: routes, and results by partition."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Generic, TypedDict, TypeVar

if TYPE_CHECKING:
    from collections.abc import Mapping

    from fairbox.errors import FairboxError

T = TypeVar("T")


class Route(TypedDict):
    """The topic of a message, as an argument of `Message`."""

    topic: str


class KeyRoute(Route):
    """The topic and the partition key of a message, as arguments of `Message`."""

    partition_key: str


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

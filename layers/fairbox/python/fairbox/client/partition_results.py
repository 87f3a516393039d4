"""What operations over a partitioned queue give, and what they need of outbox and queue."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Generic, Protocol, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from fairbox.errors import FairboxError
    from fairbox.model.messages import MessageRef
    from fairbox.model.stored_messages import DeadLetter

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)


class Redrives(Protocol[T_co]):
    """What puts dead letters back: `Outbox`."""

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
    """What an operation over a partitioned queue gave, partition by partition.

    Attributes:
        results: by the topic's name, where it was done.
        errors: by the topic's name, where it was refused or failed; the others were done.
    """

    results: Mapping[str, T]
    errors: Mapping[str, FairboxError]

    def check(self) -> Mapping[str, T]:
        """Return the results where there is no error.

        Raises:
            FairboxError: the first partition's that has one.
        """
        for error in self.errors.values():
            raise error
        return self.results

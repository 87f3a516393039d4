"""What batches show of themselves: progress, missing and failed items, lists."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from fairbox.batches.ids import check_batch_id
from fairbox.batches.models import ENDED, Batch
from fairbox.errors import InvalidInput, UnknownBatch

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from fairbox.batches.lifecycle import Ending
    from fairbox.batches.models import FailedItem, Page, Progress, State

STATES: Final = ("open", "sealed", *sorted(ENDED))


class Viewing:
    """Shows batches; every read but that of a list is consistent."""

    _ending: Ending

    def get(self, batch: str) -> Batch:
        """Return a batch: state, user key, total, parent item (1 RRU).

        Raises:
            UnknownBatch: there is none of this id.
        """
        return Batch.of(self._ending.known_root(known_id(batch)))

    def metadata(self, batch: str) -> Mapping[str, object]:
        """Return what was given when the batch was opened (1 RRU); empty once it is erased."""
        return self._ending.store.metadata(known_id(batch))

    def progress(self, batch: str, exact: bool = True, *, at_most: int | None = None) -> Progress:
        """Return how far a batch is: exact (1 RRU an unfinished group), or at most 121 RRU.

        Of more unfinished groups than `at_most` it is estimated, though it was to be exact.

        Raises:
            UnknownBatch: there is none of this id.
        """
        return self._ending.progress(known_id(batch), exact=exact, at_most=at_most)

    def missing(self, batch: str, *, after: str | None = None) -> Iterator[str]:
        """Yield the ids of pending items, by group and index (1 RRU an unfinished group).

        Args:
            batch: its id.
            after: an item of the batch; only those behind it.

        Raises:
            UnknownBatch: there is none of this id.
            InvalidInput: `after` is no item of the batch.
        """
        return self._ending.missing(known_id(batch), after)

    def missing_page(self, batch: str, *, after: str | None = None, limit: int = 1000) -> Page[str]:
        """Return a page of the ids of pending items; at most some 600 RRU, and 1 or 2 as a rule.

        Args:
            batch: its id.
            after: that of the page before.
            limit: at most so many ids.

        Raises:
            As `missing` does.
        """
        return self._ending.missing_page(known_id(batch), after, _whole(limit))

    def failed(self, batch: str, *, after: str | None = None) -> Iterator[FailedItem]:
        """Yield the failed items with their reasons, by group and index.

        Args:
            batch: its id.
            after: an item of the batch; only those behind it.

        Raises:
            As `missing` does.
        """
        return self._ending.failed_items(known_id(batch), after)

    def failed_page(
        self, batch: str, *, after: str | None = None, limit: int = 1000
    ) -> Page[FailedItem]:
        """Return a page of the failed items; at most some 1,200 RRU.

        Args:
            batch: its id.
            after: that of the page before.
            limit: at most so many items.

        Raises:
            As `missing` does.
        """
        return self._ending.failed_page(known_id(batch), after, _whole(limit))

    def list(self, state: State = "open", *, limit: int | None = None) -> Iterator[Batch]:
        """Yield batches in a state, eventually consistent; `reaped` ones are the orphans.

        Raises:
            InvalidInput: there is no such state.
        """
        return self._ending.listed(_state(state), None if limit is None else _whole(limit))

    def list_page(
        self, state: State = "open", *, after: str | None = None, limit: int = 100
    ) -> Page[Batch]:
        """Return a page of the batches in a state (1 RRU each, and 4 at most beside them).

        Args:
            state: which ones; eventually consistent.
            after: that of the page before.
            limit: at most so many; a page is shorter where batches have just left the state.

        Raises:
            InvalidInput: there is no such state, or no such place.
        """
        return self._ending.listed_page(_state(state), after, _whole(limit))


def known_id(batch: str) -> str:
    """Return a batch id when it is one.

    Raises:
        UnknownBatch: it is none, so there is no such batch.
    """
    try:
        return check_batch_id(batch, field="batch")
    except InvalidInput:
        raise UnknownBatch(str(batch)) from None


def _state(state: State) -> State:
    if state not in STATES:
        raise InvalidInput("state", f"one of {', '.join(STATES)}")
    return state


def _whole(limit: int) -> int:
    if isinstance(limit, bool) or not isinstance(limit, int) or limit < 1:
        raise InvalidInput("limit", "a whole number from 1")
    return limit

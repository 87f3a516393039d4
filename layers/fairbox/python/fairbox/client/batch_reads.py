"""Reads of batches: progress, missing and failed items, lists."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from fairbox.batches.batch_parts import known_root
from fairbox.batches.results import Batch, FailedItem, Page, Progress
from fairbox.client.batch_context import BatchPart
from fairbox.errors import InvalidInput, UnknownBatch
from fairbox.model.ids import check_batch_id
from fairbox.tables.batch_values import ENDED, State

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping


STATES: Final = ("open", "sealed", *sorted(ENDED))


class BatchReads(BatchPart):
    """Reads batches; all reads except lists are consistent."""

    def get(self, batch: str) -> Batch:
        """Return a batch: state, user key, total, parent item (1 RRU).

        Raises:
            UnknownBatch: there is none of this id.
        """
        return Batch.of(known_root(self.store, known_id(batch)))

    def metadata(self, batch: str) -> Mapping[str, object]:
        """Return the metadata that the batch was opened with (1 RRU); empty after its erasure."""
        return self.store.metadata(known_id(batch))

    def progress(self, batch: str, exact: bool = True, *, at_most: int | None = None) -> Progress:
        """Return the progress of a batch: exact (1 RRU an unfinished group), or at most 121 RRU.

        With more unfinished groups than `at_most` it is estimated, even if `exact` is set.

        Raises:
            UnknownBatch: there is none of this id.
        """
        return self._context.progress.progress(known_id(batch), exact=exact, at_most=at_most)

    def missing(self, batch: str, *, after: str | None = None) -> Iterator[str]:
        """Yield the ids of pending items, by group and index (1 RRU an unfinished group).

        Args:
            batch: its id.
            after: an item of the batch; the result begins after it.

        Raises:
            UnknownBatch: there is none of this id.
            InvalidInput: `after` is not an item of the batch.
        """
        return self._context.pages.missing(known_id(batch), after)

    def missing_page(self, batch: str, *, after: str | None = None, limit: int = 1000) -> Page[str]:
        """Return a page of the ids of pending items; usually 1 or 2 RRU, at most about 600.

        Args:
            batch: its id.
            after: `after` of the page before.
            limit: maximum number of ids.

        Raises:
            As `missing` does.
        """
        return self._context.pages.missing_page(known_id(batch), after, _whole(limit))

    def failed(self, batch: str, *, after: str | None = None) -> Iterator[FailedItem]:
        """Yield the failed items with their reasons, by group and index.

        Args:
            batch: its id.
            after: an item of the batch; the result begins after it.

        Raises:
            As `missing` does.
        """
        return self._context.pages.failed_items(known_id(batch), after)

    def failed_page(
        self, batch: str, *, after: str | None = None, limit: int = 1000
    ) -> Page[FailedItem]:
        """Return a page of the failed items; at most about 1,200 RRU.

        Args:
            batch: its id.
            after: `after` of the page before.
            limit: maximum number of items.

        Raises:
            As `missing` does.
        """
        return self._context.pages.failed_page(known_id(batch), after, _whole(limit))

    def list(self, state: State = "open", *, limit: int | None = None) -> Iterator[Batch]:
        """Yield batches in a state, eventually consistent; `reaped` ones are the orphans.

        Raises:
            InvalidInput: there is no such state.
        """
        at_most = None if limit is None else _whole(limit)
        return self._context.lists.listed(_state(state), at_most)

    def list_page(
        self, state: State = "open", *, after: str | None = None, limit: int = 100
    ) -> Page[Batch]:
        """Return a page of the batches in a state (1 RRU each, and at most 4 more).

        Args:
            state: the state; eventually consistent.
            after: `after` of the page before.
            limit: maximum number; a page is shorter if batches have just left the state.

        Raises:
            InvalidInput: there is no such state, or `after` is invalid.
        """
        return self._context.lists.listed_page(_state(state), after, _whole(limit))


def known_id(batch: str) -> str:
    """Return a batch id; UnknownBatch where it is none, so that there is no such batch."""
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

"""Lists of batches by their state, whole and by the page; eventually consistent."""

from __future__ import annotations

import re
from itertools import islice
from typing import TYPE_CHECKING, Final

from fairbox.batches.results import Batch, Page
from fairbox.errors import InvalidInput
from fairbox.tables.batch_values import ListPlace

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from fairbox.tables.batch_table import BatchTable
    from fairbox.tables.batch_values import State

_PLACE: Final = re.compile(
    r"([0-7]):(0|[1-9][0-9]{0,8}):([0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12})", re.ASCII
)
_ROOTS: Final = 100


class BatchLists:
    """Lists batches: the index gives ids, the roots behind it are read."""

    def __init__(self, store: BatchTable) -> None:
        self._store = store

    def listed(self, state: State, limit: int | None = None) -> Iterator[Batch]:
        """Yield batches in a state, a hundred roots a call."""
        left = limit
        page: list[str] = []

        for batch in self._store.listed(state):
            page.append(batch)
            if len(page) == _ROOTS:
                yield from self._page(page, state, left)
                left = None if left is None else left - len(page)
                page = []
            if left is not None and len(page) >= left:
                break

        yield from self._page(page, state, left)

    def _page(self, batches: Sequence[str], state: State, limit: int | None) -> Iterator[Batch]:
        roots = sorted(self._store.roots(batches), key=lambda root: (root.opened, root.batch))
        # the index lags behind: a batch may have left the state
        found = [Batch.of(root) for root in roots if root.state == state]
        yield from found[:limit]

    def listed_page(self, state: State, after: str | None, limit: int) -> Page[Batch]:
        """Return at most `limit` batches in a state; fewer where some have just left it."""
        place = None if after is None else parse_place(after)
        # one more than asked for: it tells whether there is a next page
        places = list(islice(self._store.places(state, after=place, page=limit + 1), limit + 1))
        more = len(places) > limit
        places = places[:limit]

        roots = self._store.roots([place.batch for place in places]) if places else []
        found = [Batch.of(root) for root in roots if root.state == state]
        found.sort(key=lambda batch: (batch.opened, batch.id))
        return Page(tuple(found), str(places[-1]) if more else None)


def parse_place(text: str) -> ListPlace:
    """Return the place that its text names.

    Raises:
        InvalidInput: it names none.
    """
    found = _PLACE.fullmatch(text)
    if found is None:
        raise InvalidInput("after", "where a page of a list ended")
    return ListPlace(int(found[1]), int(found[2]), found[3])

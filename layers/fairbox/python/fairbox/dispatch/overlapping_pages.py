"""Pages of a walk that are sent together, so that their calls leave no room in flight empty."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from fairbox.errors import FairboxError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from fairbox.dispatch.delivery import Delivery, DeliveryResult, Job
    from fairbox.dispatch.ports import Outcomes
    from fairbox.model.messages import MessageRef
    from fairbox.tables.stored_messages import StoredMessage

    Done = Callable[[DeliveryResult], None]
    Page = tuple[Sequence[StoredMessage], Done]

PAGES: Final = 8
"""Pages in hand at most: of 100 messages and 1 MB each."""


class PageStream:
    """The pages of one subscription that are sent together.

    Args:
        first: the first page.
        following: the others, which are read when they are taken.
        begin: admits a page's messages.
        finish: writes a page's outcomes.
        flows: whether the next page may be sent beside one.
    """

    def __init__(
        self,
        first: Page,
        following: Iterator[Page],
        begin: Callable[[Sequence[StoredMessage]], Delivery],
        finish: Callable[[Delivery], None],
        flows: Callable[[Delivery], bool],
    ) -> None:
        self._following = following
        self._begin = begin
        self._finish = finish
        self._flows = flows
        self._open: list[_OpenPage] = []
        self._error: FairboxError | None = None
        self.jobs = self._add(first)

    def more(self, outcomes: Outcomes, *, wanted: bool) -> Sequence[Job]:
        """Finish the pages that are answered, take their outcomes out, and return more jobs."""
        jobs: Sequence[Job] = ()
        while wanted and not jobs and len(self._open) < PAGES:
            if not self._flows(self._open[-1].delivery):
                break
            try:
                page = next(self._following, None)
            except FairboxError as error:  # after the outcomes of what is in flight
                self._error = error
                break
            if page is None:
                break
            jobs = self._add(page)

        # the last page stays: it says whether another may follow
        for open_ in [page for page in self._open[:-1] if page.answered(outcomes)]:
            self._close(open_, outcomes)
        return jobs

    def end(self, outcomes: Outcomes) -> None:
        """Finish the open pages: no call is in flight any longer.

        Raises:
            FairboxError: a page could not be read.
        """
        # a copy: each page leaves the list when it is closed
        for page in list(self._open):
            self._close(page, outcomes)
        # behind the outcomes: what was sent is written in any case
        if self._error is not None:
            raise self._error

    def _add(self, page: Page) -> Sequence[Job]:
        messages, done = page
        opened = _OpenPage(self._begin(messages), done)
        self._open.append(opened)
        return opened.delivery.admitted.jobs

    def _close(self, page: _OpenPage, outcomes: Outcomes) -> None:
        self._open.remove(page)
        delivery = page.delivery
        keys = [_key(job) for job in delivery.admitted.jobs]
        delivery.result.outcomes = {key: outcomes.pop(key) for key in keys if key in outcomes}
        self._finish(delivery)
        page.done(delivery.result)


class _OpenPage:
    """A page whose outcomes are not written."""

    def __init__(self, delivery: Delivery, done: Done) -> None:
        self.delivery = delivery
        self.done = done
        self._unanswered = [_key(job) for job in reversed(delivery.admitted.jobs)]

    def answered(self, outcomes: Outcomes) -> bool:
        """Whether all calls have an outcome; asked again and again, it looks once at each."""
        while self._unanswered and self._unanswered[-1] in outcomes:
            self._unanswered.pop()
        return not self._unanswered


def _key(job: Job) -> tuple[MessageRef, str]:
    return job.stored.ref, job.subscription.name

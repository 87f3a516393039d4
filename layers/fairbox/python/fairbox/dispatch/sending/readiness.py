"""Which subscriptions may be sent to now, and how much at once: what circuits and limits say."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Sequence

    from fairbox.dispatch.ports import Outcome
    from fairbox.model.stored_messages import StoredMessage
    from fairbox.model.topics import Subscription


class Readiness(Protocol):
    """Says which subscriptions are ready, and hears what they answered.

    The sender asks before every call, and tells the outcomes of a call before it asks again: an
    answer must come from memory.
    """

    def ready(self, subscription: Subscription) -> bool:
        """Whether messages may go there now; what is not sent stays as it is, unattempted."""
        ...

    def in_flight_limit(self, subscription: Subscription) -> int | None:
        """Return how many messages may be unanswered at once, from 1; None: all that a call takes.

        A call in which several subscriptions share an address keeps to the least of them.
        """
        ...

    def answered(
        self, subscription: Subscription, answers: Sequence[tuple[StoredMessage, Outcome]]
    ) -> None:
        """Hear what one call came to for the subscription's messages in it, in their order."""
        ...


class AlwaysReady:
    """No circuit, no limit, no pause."""

    def ready(self, subscription: Subscription) -> bool:  # noqa: ARG002 - the port's
        """Return True."""
        return True

    def in_flight_limit(self, subscription: Subscription) -> int | None:  # noqa: ARG002 - the port's
        """Return None."""
        return None

    def answered(
        self, subscription: Subscription, answers: Sequence[tuple[StoredMessage, Outcome]]
    ) -> None:
        """Forget it."""

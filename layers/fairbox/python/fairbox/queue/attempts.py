"""Attempts of pulled messages: failures are kept with the message until it is dead."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from fairbox.model.topics import PULL
from fairbox.tables.message_states import fitted
from fairbox.tables.stored_messages import Failure, StoredMessage, SubscriptionState

if TYPE_CHECKING:
    from collections.abc import Mapping

NOT_ACKNOWLEDGED: Final = "not acknowledged in time"


def failed(
    stored: StoredMessage, attempt: int, at: int, error: str, *, dead: bool = False
) -> Mapping[str, SubscriptionState]:
    """Return the message's states after a failed attempt, cut to fit its item.

    Args:
        stored: as it is.
        attempt: which receive it was, from 1.
        at: when, in milliseconds since 1970 UTC.
        error: the consumer's reason.
        dead: it was the last.
    """
    history = (*stored.state(PULL).history, Failure(attempt, at, error))
    states = {**stored.states, PULL: SubscriptionState(attempt, 0, history, dead)}
    return fitted(replace(stored, states=states), whole={PULL} if dead else ()).states


def crashed(stored: StoredMessage) -> Mapping[str, SubscriptionState]:
    """Return the states after the last holder neither acknowledged nor gave back."""
    claim = stored.claim
    if claim is None or not claim.token:
        return stored.states
    return failed(stored, claim.count, claim.until, NOT_ACKNOWLEDGED)


def dying(stored: StoredMessage, attempt: int, at: int, error: str = "") -> StoredMessage:
    """Return the message marked as dead.

    Args:
        stored: as it is.
        attempt: which receive was the last, from 1.
        at: when it failed, in milliseconds since 1970 UTC.
        error: the consumer's error; empty: none since the known failures, if it gave the message
            back, else none at all.
    """
    before = stored.state(PULL)
    gave_back = stored.claim is not None and not stored.claim.token
    if not error and gave_back and before.history:
        states: Mapping[str, SubscriptionState] = {
            **stored.states,
            PULL: replace(before, dead=True),
        }
    else:
        states = failed(stored, attempt, at, error or NOT_ACKNOWLEDGED, dead=True)
    return replace(stored, states=states, gone="dead")

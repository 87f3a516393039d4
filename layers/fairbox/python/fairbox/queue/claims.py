"""Claims of messages in place, and their failed attempts, which stay with the message.

After a lost claim, the next candidate is tried.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final

from fairbox.model.clock import Clock, milliseconds
from fairbox.model.receipts import TOKEN_BYTES
from fairbox.model.topics import PULL
from fairbox.queue.models import Taken
from fairbox.tables.message_states import Claiming, fitted
from fairbox.tables.stored_messages import Claim, Failure, StoredMessage, SubscriptionState

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from random import Random

    from fairbox.model.messages import MessageRef, OpenLane
    from fairbox.tables.hints import HintMove
    from fairbox.tables.tables import Tables

LOST: Final = 2
"""Claims that a receive loses to others, from which on they count as competitors."""
NOT_ACKNOWLEDGED: Final = "not acknowledged in time"


@dataclass(slots=True)
class Claimed:
    """The result of claims.

    Attributes:
        taken: the messages claimed.
        lost: by message, until when another consumer holds it (ms), or -1.
        untried: messages that were left to competitors; they may be free all the same.
    """

    taken: list[Taken] = field(default_factory=list)
    lost: dict[MessageRef, int] = field(default_factory=dict)
    untried: int = 0

    def ends(self) -> dict[MessageRef, int]:
        """Return until when each message is held now (ms), as far as that is known."""
        others = {ref: end for ref, end in self.lost.items() if end > 0}
        return others | {one.stored.ref: one.until for one in self.taken}


class Claimer:
    """Claims messages of unordered topics.

    Args:
        clock, rng: time and tokens.
    """

    def __init__(self, tables: Tables, clock: Clock, rng: Random) -> None:
        self._tables = tables
        self._clock = clock
        self._rng = rng

    def claim(
        self,
        free: Sequence[StoredMessage],
        wanted: int,
        visibility: int,
        move: HintMove | None = None,
        *,
        consumer: str = "",
    ) -> Claimed:
        """Claim up to `wanted` of these for so many milliseconds; the hint's move goes with them.

        When two claims are lost, the rest is left to the faster consumers.

        Raises:
            Throttled, Unavailable: messages claimed without an answer are visible again in time.
        """
        claimed = Claimed()
        rest = list(free)

        while rest and len(claimed.taken) < wanted:
            room = wanted - len(claimed.taken)
            chosen, rest = rest[:room], rest[room:]
            until = milliseconds(self._clock) + visibility
            claims = [self._claiming(stored, until, consumer) for stored in chosen]

            # its success does not matter: the next receive moves the hint
            moves = [] if move is None else self._tables.hints.statements(move)
            ends = self._tables.claims.claim(claims, *moves)
            for claiming, end in zip(claims, ends, strict=True):
                if end:
                    claimed.lost[claiming.stored.ref] = end
                else:
                    claimed.taken.append(_taken(claiming))

            if len(claimed.lost) >= LOST:
                # those who were faster have read the rest too, and claim it now
                claimed.untried = len(rest)
                break
            # the move of the hint went with the first claims
            move = None

        return claimed

    def _claiming(self, stored: StoredMessage, until: int, consumer: str) -> Claiming:
        count = 1 if stored.claim is None else stored.claim.count + 1
        claim = Claim(count, until, new_token(self._rng), consumer)
        return Claiming(stored, claim, crashed(stored))


def new_token(rng: Random) -> bytes:
    """Return a fencing token."""
    return rng.getrandbits(8 * TOKEN_BYTES).to_bytes(TOKEN_BYTES, "big")


def _taken(claiming: Claiming) -> Taken:
    claim = claiming.claim
    lane: OpenLane = "later" if claiming.stored.lane == "later" else "ready"
    return Taken(claiming.stored, lane, claim.token, claim.count, claim.until)


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

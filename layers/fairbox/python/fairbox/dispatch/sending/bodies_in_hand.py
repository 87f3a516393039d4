"""Bodies in hand: each offloaded body once for all calls of a delivery, within a bound of bytes."""

from __future__ import annotations

import threading
from collections import deque
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from fairbox.errors import FairboxError
from fairbox.model.messages import MAX_BODY_BYTES, MessageRef
from fairbox.tables.stored_messages import StoredMessage, fetch_body

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from fairbox.dispatch.ports import Limits
    from fairbox.model.bodies import BodyStore
    from fairbox.model.clock import Clock

BYTES_IN_HAND: Final = 32 * 1024 * 1024
"""Bytes of fetched bodies, and of the copies that calls make; one call may exceed it alone."""
SMALL_BODY: Final = 8 * 1024
"""Bytes of a body: calls whose bodies are all in place and no larger are not counted."""
ENVELOPE_COPIES: Final = 4
"""Copies of a body in a call with an envelope: envelope, text, request, and what is sent of it."""

_LONGEST_WAIT: Final = 60.0  # s, which a lock can wait for where there is no deadline


@dataclass(slots=True)
class _Body:
    """A body that calls share: it counts from the moment that the first of them may fetch it."""

    stored: StoredMessage
    users: int = 0
    fetched: StoredMessage | None = None
    lock: threading.Lock = field(default_factory=threading.Lock)


class BodiesInHand:
    """Fetches offloaded bodies for calls, and makes calls wait while others have too much in hand.

    Calls begin in the order in which they asked, except calls that need nothing more. A body stays
    for the next call until another one needs its place, or the delivery ends.

    Args:
        bodies: their store; None: there is none.
        limit: bytes of all calls together.

    Attributes:
        bodies: the bodies in hand, by ref.
    """

    def __init__(self, bodies: BodyStore | None, clock: Clock, limit: int = BYTES_IN_HAND) -> None:
        self._store = bodies
        self._clock = clock
        self._limit = limit
        self._changed = threading.Condition()
        self.bodies: dict[MessageRef, _Body] = {}
        self._envelopes = 0
        self._waiting: deque[object] = deque()

    @contextmanager
    def hold(
        self, messages: Sequence[StoredMessage], limits: Limits, deadline: float
    ) -> Iterator[Mapping[MessageRef, StoredMessage]]:
        """Give a call its messages by ref, with the bodies that its destination takes in place.

        A message whose body could not be fetched is left out, and so are all if there was no room
        until the deadline (seconds since 1970).
        """
        away = {m.ref: m for m in messages if m.offloaded is not None and m.size <= limits.bytes}
        # a destination that takes every body sends it as it is
        enveloped = limits.bytes < MAX_BODY_BYTES
        envelopes = (
            ENVELOPE_COPIES * sum(min(m.size, limits.bytes) for m in messages) if enveloped else 0
        )

        bodies = self._take(away, envelopes, deadline)
        try:
            yield {} if bodies is None else self._in_place(messages, bodies)
        finally:
            if bodies is not None:
                self._give_back(bodies, envelopes)

    def forget(self) -> None:
        """Drop the bodies that no call holds: the delivery has ended."""
        with self._changed:
            self.bodies = {ref: body for ref, body in self.bodies.items() if body.users}

    def _take(
        self, away: Mapping[MessageRef, StoredMessage], envelopes: int, deadline: float
    ) -> Mapping[MessageRef, _Body] | None:
        turn = object()
        with self._changed:
            self._waiting.append(turn)
            try:
                while not self._room(turn, away, envelopes):
                    left = deadline - self._clock.now()
                    if left <= 0:
                        return None
                    self._changed.wait(min(left, _LONGEST_WAIT))

                self._envelopes += envelopes
                for ref, stored in away.items():
                    self.bodies.setdefault(ref, _Body(stored)).users += 1
                return {ref: self.bodies[ref] for ref in away}
            finally:
                # whether it found room or not: the next in line may begin
                self._waiting.remove(turn)
                self._changed.notify_all()

    def _room(self, turn: object, away: Mapping[MessageRef, StoredMessage], envelopes: int) -> bool:
        """Whether a call may begin; makes room for it among the bodies that no call holds."""
        more = envelopes + sum(m.size for ref, m in away.items() if ref not in self.bodies)
        if not more:
            return True

        in_use = {ref for ref, body in self.bodies.items() if body.users}
        used = self._envelopes + sum(self.bodies[ref].stored.size for ref in in_use)
        # alone a call may exceed the limit: it would wait for ever otherwise
        if self._waiting[0] is not turn or (used and used + more > self._limit):
            return False

        for ref in [ref for ref in self.bodies if ref not in in_use and ref not in away]:
            if (
                more + self._envelopes + sum(b.stored.size for b in self.bodies.values())
                <= self._limit
            ):
                break
            del self.bodies[ref]
        return True

    def _in_place(
        self, messages: Sequence[StoredMessage], bodies: Mapping[MessageRef, _Body]
    ) -> dict[MessageRef, StoredMessage]:
        found = {m.ref: m for m in messages if m.ref not in bodies}
        for ref, body in bodies.items():
            with body.lock:
                if body.fetched is None:
                    try:
                        body.fetched = fetch_body(self._store, body.stored)
                    except FairboxError:
                        continue  # stays, unattempted; the sweep takes it up again
                found[ref] = body.fetched
        return found

    def _give_back(self, bodies: Mapping[MessageRef, _Body], envelopes: int) -> None:
        with self._changed:
            self._envelopes -= envelopes
            for body in bodies.values():
                body.users -= 1
            self._changed.notify_all()

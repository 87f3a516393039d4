"""Actors that take turns at every call to the database: each a greenlet, chosen by the seed."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any

from fairbox.testing.faults import Fault, FaultyDynamoDB
from greenlet import getcurrent, greenlet

if TYPE_CHECKING:
    import random
    from collections.abc import Callable

FAULTS = (
    Fault.THROTTLED,
    Fault.INTERNAL_ERROR,
    Fault.CONFLICT,
    Fault.UNPROCESSED,
    Fault.APPLIED_THEN_TIMEOUT,
    Fault.TIMEOUT_UNAPPLIED,
)
_OPERATIONS = (
    "get_item", "put_item", "query", "batch_get_item", "batch_write_item", "transact_write_items",
)  # fmt: skip


class Killed(BaseException):
    """Ends an actor as SIGKILL would: nothing in it may catch this."""


class Stage:
    """Lets actors act, one call at a time, in an order that chance decides.

    Args:
        client: what the calls go to.
        rng: chooses who is next, who dies, and which calls fail.
        faults: probability that a call meets a fault.
        kills: probability that an actor dies instead of making its next call.

    Attributes:
        calls: what actors see as their DynamoDB client; alone, outside of `run`, there is
            neither a turn nor a fault.
        trace: every turn, as actor and operation.
    """

    def __init__(self, client: Any, rng: random.Random, *, faults: float, kills: float) -> None:
        self._rng = rng
        self._kills = kills
        self._main = getcurrent()
        self._actors: list[greenlet] = []
        self._daemons: set[greenlet] = set()
        self._names: dict[greenlet, str] = {}
        self._deaths: dict[greenlet, Callable[[], None]] = {}
        self._faults = faults
        faulty = FaultyDynamoDB(client, rng, {fault: 1 / len(FAULTS) for fault in FAULTS})
        self.trace: list[tuple[str, str]] = []
        self.calls = _Calls(
            {name: self._paused(name, getattr(faulty, name), getattr(client, name))
             for name in _OPERATIONS}
        )  # fmt: skip

    def _paused(
        self, operation: str, faulty: Callable[..., Any], plain: Callable[..., Any]
    ) -> Callable[..., Any]:
        main, chance = self._main, self._rng.random

        def call(**request: Any) -> Any:
            current = getcurrent()
            if current is main:
                return plain(**request)
            main.switch()
            self.trace.append((self._names[current], operation))
            return (faulty if chance() < self._faults else plain)(**request)

        return call

    def turn(self) -> None:
        """Let others act before this actor goes on."""
        if getcurrent() is not self._main:
            self._main.switch()

    def enter(
        self,
        name: str,
        act: Callable[[], None],
        *,
        died: Callable[[], None] = lambda: None,
        daemon: bool = False,
    ) -> None:
        """Let an actor join; `died` is called when it is killed; a daemon holds nobody up."""
        actor = greenlet(act, self._main)
        self._names[actor] = name
        self._deaths[actor] = died
        self._actors.append(actor)
        if daemon:
            self._daemons.add(actor)

    def run(self) -> None:
        """Give turns until only daemons are left, and end these."""
        try:
            while len(self._actors) > len(self._daemons):
                self._give_turn()
        finally:
            for actor in list(self._actors):
                self._end(actor)

    def _give_turn(self) -> None:
        actor = self._actors[int(self._rng.random() * len(self._actors))]
        if actor and self._rng.random() < self._kills:
            self._end(actor)
            self.trace.append((self._names[actor], "killed"))
            self._deaths[actor]()
        else:
            actor.switch()
            if actor.dead:
                self._leave(actor)

    def _end(self, actor: greenlet) -> None:
        with contextlib.suppress(Killed):
            actor.throw(Killed)
        self._leave(actor)

    def _leave(self, actor: greenlet) -> None:
        self._actors.remove(actor)
        self._daemons.discard(actor)


class _Calls:
    """A DynamoDB client of these methods."""

    def __init__(self, methods: dict[str, Callable[..., Any]]) -> None:
        vars(self).update(methods)

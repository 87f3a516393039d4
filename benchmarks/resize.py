"""A resize under load, 8 shards to 32 of an ordered topic: real code, on a manual clock.

A key's pause is measured on the manual clock: the wait that the protocol causes, on any machine.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from fairbox.dispatch.ports import TAKEN, Outcome

from benchmarks.deployment import DESTINATION, TICK, TOPIC, Deployment, Load
from benchmarks.figures import Figure

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from fairbox import Message
    from fairbox.model.stored_messages import StoredMessage

BEFORE: Final = 8
AFTER: Final = 32
LOAD: Final = Load(rate=100, seconds=20, ordered=True, keys=200)
_AROUND_MS: Final = 10_000  # what is added so long before or after the cut may wait for it
_STUCK: Final = "customer-7"
_BASELINE: Final = "before it is announced"
_REFUSED: Final = Outcome("refused", "stuck")
_SETTLE_SECONDS: Final = 120


@dataclass(frozen=True, slots=True)
class Added:
    """A message that was published: its key, and when, in milliseconds since 1970 UTC."""

    id: str
    key: str
    at: float


@dataclass(frozen=True, slots=True)
class Phase:
    """A part of a run: its messages and their cost."""

    messages: Sequence[Added]
    rru: float
    wru: float


def figures(load: Load = LOAD) -> list[Figure]:
    """Return lost and disordered messages, the longest pause of a key, and the cost.

    Args:
        load: before the announcement, and the same after the cut.
    """
    healthy, stuck = Resize(load), Resize(load, _STUCK)
    healthy.go()
    stuck.go()
    both = (healthy, stuck)
    disorder = sum(out_of_order(run.added, run.taken) for run in both)
    others = [one for one in stuck.cut.messages if one.key != _STUCK]
    usual = healthy.longest(healthy.calm.messages)
    pauses = {
        "longest_pause": healthy.longest(healthy.cut.messages),
        "longest_pause_later": healthy.longest(healthy.later.messages),
        "longest_pause_beside_stuck": stuck.longest(others),
    }
    return [
        Figure("resize.messages", "messages", sum(len(run.added) for run in both)),
        Figure("resize.in_new_shards", "messages", sum(run.moved for run in both)),
        Figure("resize.lost", "messages", sum(run.lost for run in both)),
        Figure("resize.out_of_order", "messages", disorder),
        *(Figure(f"resize.{what}_ms", "ms", ms, usual, _BASELINE) for what, ms in pauses.items()),
        *_costs(healthy),
    ]


def _costs(run: Resize) -> list[Figure]:
    return [
        Figure(
            f"resize.{unit}_per_message.{name}",
            unit.upper(),
            each(phase, unit),
            each(run.calm, unit),
            _BASELINE,
        )
        for unit in ("rru", "wru")
        for name, phase in (("cut", run.cut), ("later", run.later))
    ]


def each(phase: Phase, unit: str) -> float:
    """Return the units of a message in a phase."""
    return (phase.rru if unit == "rru" else phase.wru) / max(1, len(phase.messages))


class Resize(Deployment):
    """One resize under load.

    Args:
        load: see `figures`.
        stuck: a key that the destination refuses from before the cut until long after it.

    Attributes:
        added: published messages.
        taken: time of the first delivery by id (ms).
        calm, cut, later: the parts of the run.
        moved: messages that went to new shards.
    """

    def __init__(self, load: Load, stuck: str | None = None) -> None:
        super().__init__(shards=BEFORE)
        self._load = load
        self._stuck = stuck
        self._refusing = False
        self.added: list[Added] = []
        self.taken: dict[str, float] = {}
        self.moved = 0
        self.calm = self.cut = self.later = Phase((), 0, 0)
        self.app.destinations[DESTINATION].answer = self._answer

    @property
    def lost(self) -> int:
        """Number of messages that the destination has not received."""
        return sum(one.id not in self.taken for one in self.added)

    def go(self) -> None:
        """Run the resize to its end."""
        self.open_topic(self._load)
        self.calm = self._phase(self._load.seconds)
        begins = self.app.outbox.resize(TOPIC, AFTER).epoch.since / 1000
        around = _AROUND_MS / 1000
        self._phase(begins - around - self.app.clock.now())
        self._refusing = True
        self.cut = self._phase(begins + around - self.app.clock.now())
        self._refusing = False
        self.later = self._phase(self._load.seconds)
        end = self.app.clock.now() + _SETTLE_SECONDS
        while self.app.clock.now() < end:
            self._step()

    def longest(self, messages: Sequence[Added]) -> float:
        """Return the longest time from added to taken (ms)."""
        return max((self.taken[m.id] - m.at for m in messages if m.id in self.taken), default=0.0)

    def message(self, load: Load) -> Message:
        """Return a message and record it."""
        made = super().message(load)
        self.added.append(Added(made.id, made.partition_key or "", self.app.clock.now() * 1000))
        return made

    def _phase(self, seconds: float) -> Phase:
        began, rru, wru = len(self.added), self.accounts.rru(), self.accounts.wru()
        for _ in range(round(seconds / TICK)):
            for _ in range(round(self._load.rate * TICK)):
                self.add(self._load)
            self._step()
        return Phase(self.added[began:], self.accounts.rru() - rru, self.accounts.wru() - wru)

    def _step(self) -> None:
        self.app.pass_on()
        super()._step()

    def _answer(self, stored: StoredMessage) -> Outcome:
        if self._refusing and stored.message.partition_key == self._stuck:
            return _REFUSED
        if stored.ref.id not in self.taken:
            self.moved += stored.ref.epoch > 0
            self.taken[stored.ref.id] = self.app.clock.now() * 1000
        return TAKEN


def out_of_order(messages: Sequence[Added], taken: Mapping[str, float]) -> int:
    """Count messages delivered after one of their key with a greater id.

    Args:
        messages: published messages.
        taken: time of the first delivery by id (ms).
    """
    by_key: dict[str, list[str]] = {}
    for one in messages:
        if one.id in taken:
            by_key.setdefault(one.key, []).append(one.id)
    found = 0
    for ids in by_key.values():
        earliest = float("inf")  # of what has a greater id
        for message_id in sorted(ids, reverse=True):
            found += earliest < taken[message_id]
            earliest = min(earliest, taken[message_id])
    return found

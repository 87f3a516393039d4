"""The order of keys on an ordered shard, and the keys to hold back: pure, it makes no call."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final

from fairbox.dispatch.ordered.barriers import NOTHING, Place, Waits
from fairbox.tables.deferred_keys import (
    EVERY_KEY,
    MAX_BLOCKED,
    DeferredKey,
    DeferredKeys,
    audience_of,
    name_digest,
    ordered,
)
from fairbox.tables.stored_messages import StoredMessage, key_digest

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Sequence
    from random import Random

    from fairbox.dispatch.delivery import DeliveryResult
    from fairbox.model.topic_states import TopicState

CHECK_MS: Final = 600_000  # between checks whether a dead letter still blocks its key
_SOON_MS: Final = 1_000
_BODY_MS: Final = 5_000  # until a message is tried again whose body could not be fetched
_NOT_READY_MS: Final = 5_000

_FIRST: Final = ""


@dataclass(slots=True)
class KeyOrder:
    """The keys of a shard that are held back while a visit is at work.

    Args:
        topic: the shard's.
        row: the row when the visit began, before it read any message.
        rng: jitter.
        waits: the keys that older shards of the topic list.

    Attributes:
        heads: entries of which only the first message may be sent yet.
        lifted: entries whose turn has come: the messages that they held may be sent.
        quiet: subscriptions that are not ready: a probe or a resume enqueues visits.
        uncovered: ids that were not tried for lack of time, or whose outcome could not be written:
            the next visit must read them.
    """

    topic: TopicState
    row: DeferredKeys
    rng: Random
    waits: Waits = NOTHING
    heads: list[DeferredKey] = field(default_factory=list)
    lifted: list[DeferredKey] = field(default_factory=list)
    quiet: set[bytes] = field(default_factory=set)
    uncovered: set[str] = field(default_factory=set)
    _deferred: dict[Place, dict[str, DeferredKey]] = field(default_factory=dict)
    _digests: dict[str, bytes] = field(default_factory=dict)
    _put_off: list[DeferredKey] = field(default_factory=list)
    _tried: list[tuple[StoredMessage, str]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._digests = {name: name_digest(name) for name in self.topic.subscription_names}
        known = set(self._digests.values())
        for entry in self.row.entries:
            if entry.subscription in known:
                self._put(entry)

    @property
    def audience(self) -> bytes:
        """The digest of the topic's subscriptions."""
        return audience_of(self.topic.subscription_names)

    @property
    def entries(self) -> tuple[DeferredKey, ...]:
        """The entries, as a row has them."""
        return ordered(self._all())

    def digests(self, names: Iterable[str]) -> set[bytes]:
        """Return the names as entries have them."""
        return {self._digests[name] for name in names}

    def all_wait(self, cursor: str) -> bool:
        """Whether every subscription waits for all messages behind an id."""
        return all(
            any(e.id <= cursor for e in self._deferred.get((name, EVERY_KEY), {}).values())
            for name in self._digests.values()
        )

    def due(self, now: int, named: set[str], woken: Collection[bytes]) -> list[DeferredKey]:
        """Return the entries that are due at `now` (ms), and blocked ones that are named.

        And those of whole subscriptions that may be ready again.
        """
        return [
            e
            for e in self._all()
            if e.due <= now
            or (e.state == "blocked" and e.id in named)
            or (e.whole and e.subscription in woken)
        ]

    def free(self, entries: Sequence[DeferredKey]) -> list[DeferredKey]:
        """Return the entries that no other entry holds back."""
        others = [e for e in self._all() if e not in entries]
        return [
            e
            for e in entries
            if not any(
                o.subscription == e.subscription and o.key in (e.key, EVERY_KEY) and o.id <= e.id
                for o in others
            )
        ]

    def covers(self, entry: DeferredKey, message_id: str) -> bool:
        """Whether the key of an entry is held from this message, or one before it, on."""
        return any(True for _ in self._covering(entry, message_id))

    def _covering(self, entry: DeferredKey, message_id: str) -> Iterator[DeferredKey]:
        for key in (entry.key, EVERY_KEY):
            for deferred in self._deferred.get((entry.subscription, key), {}).values():
                if deferred.id <= message_id:
                    yield deferred

    def lift(self, entry: DeferredKey) -> None:
        """Release the messages that an entry holds."""
        slots = self._deferred.get(entry.place, {})
        if slots.get(_slot(entry)) == entry:  # else others hold the key by now
            del slots[_slot(entry)]
        self.lifted.append(entry)

    def lift_heads(self) -> None:
        """Release the followers of the heads, unless `learn` holds them again."""
        for entry in self.heads:
            self.lift(entry)
        for entry in self._put_off:
            self.hold(entry)
        self.heads, self._put_off = [], []

    def hold(self, entry: DeferredKey) -> None:
        """Hold a key back; if it is held already, from the smaller id on."""
        slots = self._deferred.get(entry.place, {})
        there = slots.get(_FIRST)
        if entry.state == "blocked":
            if there is not None and there.id == entry.id:
                del slots[_FIRST]  # it has died
        # an earlier message of the key is held already: this one follows it
        elif entry.id in slots or (there is not None and there.id <= entry.id):
            return
        self._put(entry)

    def adopt(self, theirs: DeferredKeys) -> None:
        """Go on from the row as others have changed it: the keys that they hold stay held."""
        known = set(self._digests.values())
        for entry in theirs.entries:
            if entry not in self.row.entries and entry.subscription in known:
                self.hold(entry)
        self.row = theirs

    def defer(self, entry: DeferredKey, due: int) -> None:
        """Check an entry again at `due` (ms)."""
        self._put(replace(entry, due=due))

    def _put(self, entry: DeferredKey) -> None:
        self._deferred.setdefault(entry.place, {})[_slot(entry)] = entry

    def _all(self) -> list[DeferredKey]:
        return [e for slots in self._deferred.values() for e in slots.values()]

    def admits(self, stored: StoredMessage, name: str, now: int) -> bool:
        """Return whether a message that a subscription lacks may be sent to it at `now` (ms).

        A message that is not due is held from then on, with all that follow it, and so is one whose
        key an older shard lists.
        """
        message, place = stored.ref.id, (self._digests[name], key_digest(stored))
        entry = DeferredKey(*place, message, max(stored.due(name), self.waits.until(place)))
        # a head is held by its own entry, which does not keep it from being sent
        mine = [h for h in self.heads if (h.subscription, h.id) == (entry.subscription, message)]
        # an earlier message of the key, or of the whole subscription, waits
        if any(e not in mine for e in self._covering(entry, message)):
            return False

        if entry.due > now:
            if mine:
                self._put_off.append(entry)
            else:
                self.hold(entry)
            return False

        # what becomes of it, `learn` takes from the outcomes
        self._tried.append((stored, name))
        return True

    def blocking(
        self, stored: StoredMessage, died: frozenset[str], now: int
    ) -> list[DeferredKey] | None:
        """Return the entries to hold before a message may die; None: no room for more.

        Empty if keys do not wait for their dead letters.
        """
        if self.topic.topic.on_dead != "block":
            return []
        if self.row.blocked + len(died) > MAX_BLOCKED:
            return None
        return [self._blocked(stored, name, now) for name in sorted(died) if name in self._digests]

    def _blocked(self, stored: StoredMessage, name: str, now: int) -> DeferredKey:
        due = now + CHECK_MS
        return DeferredKey(self._digests[name], key_digest(stored), stored.ref.id, due, "blocked")

    def keeps(self, stored: StoredMessage) -> bool:
        """Whether a message is held for any subscription that lacks it."""
        key, first = key_digest(stored), stored.ref.id
        lacking = stored.lacking(self.topic.subscription_names)
        return any(
            self.covers(DeferredKey(self._digests[n], key, first, 0), first) for n in lacking
        )

    def learn(self, result: DeliveryResult, now: int, *, start: str, late: bool) -> None:
        """Hold back the messages that were admitted since the last time and not taken.

        Args:
            result: of the delivery.
            now: milliseconds since 1970 UTC.
            start: messages up to this id are not read by another visit, unless they are held.
            late: the time limit came: a message that was not tried says nothing about its
                destination.
        """
        tried, self._tried = self._tried, []
        not_ready = self._not_ready(tried, result, now)
        self.quiet |= {self._digests[name] for name in result.quiet}

        for stored, name in tried:
            ref = stored.ref
            outcome = result.outcomes.get((ref, name))
            if outcome is None and late and name not in not_ready:
                if ref.id > start:
                    self.uncovered.add(ref.id)
                    continue
                key = key_digest(stored)
                self.hold(DeferredKey(self._digests[name], key, ref.id, now, "open"))
            elif outcome is None or not outcome.taken or ref in result.unsettled:
                entry = self._hold_of(stored, name, result, now, not_ready)
                if entry.state == "blocked" or not self.covers(entry, ref.id):
                    self.hold(entry)  # else it only follows a message that was not taken

        self.uncovered.update(ref.id for ref in result.unsettled if ref.id > start)

    def _not_ready(
        self, tried: Sequence[tuple[StoredMessage, str]], result: DeliveryResult, now: int
    ) -> dict[str, int]:
        """Return when to come back to subscriptions that are not ready."""
        found = dict(result.waits)
        for stored, name in tried:
            outcome = result.outcomes.get((stored.ref, name))
            if outcome is not None and outcome.verdict in ("throttled", "unreachable", "gone"):
                wait = round(_NOT_READY_MS * (1 + self.rng.random()))
                if outcome.retry_after:
                    wait = round(outcome.retry_after * 1000)
                found[name] = max(now + wait, found.get(name, 0))
        return found

    def _hold_of(
        self,
        stored: StoredMessage,
        name: str,
        result: DeliveryResult,
        now: int,
        not_ready: dict[str, int],
    ) -> DeferredKey:
        outcome = result.outcomes.get((stored.ref, name))
        entry = DeferredKey(self._digests[name], key_digest(stored), stored.ref.id, now + _SOON_MS)
        after = result.after.get(stored.ref)
        refused = outcome is not None and outcome.verdict == "refused"

        if after is not None and after.state(name).dead:
            blocks = self.topic.topic.on_dead == "block"
            entry = (
                self._blocked(stored, name, now)
                if blocks
                else replace(entry, due=now, state="open")
            )
        elif stored.ref in result.unsettled:
            # nobody knows what its item says now: soon it is read again
            pass
        elif not refused and name in not_ready:
            entry = replace(entry, key=EVERY_KEY, due=not_ready[name])
        elif not refused:
            entry = replace(entry, due=now + _BODY_MS)
        elif after is None:  # it has left, in whatever way, and its followers were not sent
            dead = self.topic.topic.on_dead == "block"
            entry = replace(entry, due=now, state="blocked" if dead else "open")
        else:
            entry = replace(entry, due=max(after.due(name), entry.due))

        return entry


def _slot(entry: DeferredKey) -> str:
    # each dead letter blocks for itself; other waiting messages of a key share their first one's
    return entry.id if entry.state == "blocked" else _FIRST

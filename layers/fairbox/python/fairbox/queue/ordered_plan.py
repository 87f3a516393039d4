"""The plan of a receive from an ordered shard: a pure function of what was read."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final

from fairbox.dispatch.ordered.resize_barrier import NOTHING
from fairbox.model.ids import before, behind, time_of
from fairbox.model.key_claims import MAX_ENTRIES, KeyClaim, KeyClaims, key_digest

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from fairbox.dispatch.ordered.resize_barrier import Waits
    from fairbox.model.stored_messages import StoredMessage

YOUNG_MS: Final = 2_000  # ids behind which others may still be committed
LEFT_MS: Final = 2_000  # an acknowledged message that is older was left by a crash


@dataclass(slots=True)
class Window:
    """The messages read from lane `ready`, in the order of ids.

    Attributes:
        after: it begins behind this id; empty: at the head.
        cursor: the sort key up to which it was read.
        messages: the messages.
        ended: it was read to its end.
        newer: only a newer release can read the next message: none behind it is handed out.
    """

    after: str = ""
    cursor: str = ""
    messages: list[StoredMessage] = field(default_factory=list)
    ended: bool = False
    newer: bool = False

    def covers(self, message_id: str) -> bool:
        """Whether a message of this id would have been read."""
        return self.after < message_id and (self.ended or message_id <= self.cursor)


@dataclass(frozen=True, slots=True)
class Ask:
    """The request of a receive: messages, end of the claims (ms), and a source of tokens.

    `waits` has the keys that an older shard of the topic lists: they are held until it is looked at
    again.
    """

    wanted: int
    until: int
    token: Callable[[], bytes]
    waits: Waits = NOTHING


def due(row: KeyClaims, now: int) -> list[KeyClaim]:
    """Return the entries whose claim or wait has ended."""
    return [e for e in row.entries if e.state != "acked" and e.until <= now]


def ended(row: KeyClaims, now: int) -> list[KeyClaim]:
    """Return the entries that may end now: their messages and followers must be read."""
    return [e for e in row.entries if e.state == "acked" or e.until <= now]


class Plan:
    """Decides which messages to claim, which entries to drop, where the next receive begins.

    It keeps an invariant: each message up to `after` is held, or its key is. So the first message
    of a key without an entry lies behind `after`.

    Args:
        row: as it was read before any message.
        window: messages read from where the row says, or from the head.
        there: by id, the messages of the window and those that entries name; if an entry that may
            end names another message, that message does not exist.
        now: milliseconds since 1970 UTC.
        ask: the request.
    """

    def __init__(
        self,
        row: KeyClaims,
        window: Window,
        there: Mapping[str, StoredMessage],
        now: int,
        ask: Ask,
    ) -> None:
        self._row = row
        self._window = window
        self._there = there
        self._now = now
        self._waits = ask.waits
        self.taken: list[tuple[StoredMessage, KeyClaim]] = []
        self._kept: dict[bytes, KeyClaim] = {}
        self._freed: list[KeyClaim] = []
        for entry in row.entries:
            if self._stays(entry):
                self._kept[entry.key] = entry
            else:
                self._freed.append(entry)
        self._claim(ask)
        self.passed = 0
        self.row = self._next_row()

    def _stays(self, entry: KeyClaim) -> bool:
        # an acknowledging process deletes its message; leftovers of crashes were deleted before
        live = entry.state != "acked" and entry.until > self._now
        return live or entry.id in self._there

    def _claim(self, ask: Ask) -> None:
        for stored, entry in sorted(self._candidates(), key=lambda found: found[0].ref.id):
            if len(self.taken) >= ask.wanted:
                return
            key = key_digest(stored)
            if entry is None and len(self._kept) >= MAX_ENTRIES:
                continue
            if self._waits.hold(stored):
                self._kept[key] = self._waiting(key, stored, entry)
                continue
            count = 1 if entry is None else entry.count + 1
            follower = self._unknown_follower(stored.ref.id) if entry is None else entry.follower
            claimed = KeyClaim(
                key, stored.ref.id, "claimed", ask.until, count, ask.token(), follower
            )
            self._kept[key] = claimed
            self.taken.append((stored, claimed))

    def _waiting(self, key: bytes, stored: StoredMessage, entry: KeyClaim | None) -> KeyClaim:
        """Return an entry that holds a key until the older shards are checked again."""
        if entry is not None:
            return replace(entry, state="waiting", until=self._waits.again, token=b"")
        follower = self._unknown_follower(stored.ref.id)
        return KeyClaim(key, stored.ref.id, "waiting", self._waits.again, 0, b"", follower)

    def _candidates(self) -> Iterator[tuple[StoredMessage, KeyClaim | None]]:
        """Yield the messages to claim: due ones, and the first message of each key not held."""
        for entry in due(self._row, self._now):
            if entry.id in self._there:
                yield self._there[entry.id], entry
        firsts: dict[bytes, StoredMessage] = {}
        unknown = set()
        for entry in self._freed:
            follower = self._there.get(entry.follower)
            if follower is not None:
                firsts[entry.key] = follower
            elif entry.follower and not self._window.covers(entry.follower):
                unknown.add(entry.key)  # its first message lies before the window
        for stored in self._window.messages:
            key = key_digest(stored)
            if key not in firsts or stored.ref.id < firsts[key].ref.id:
                firsts[key] = stored
        for key, stored in firsts.items():
            if key not in self._kept and key not in unknown:
                yield stored, None

    def _unknown_follower(self, message_id: str) -> str:
        """Return the first possible follower of a message that lies before the window."""
        passed = message_id <= self._row.after and not self._window.covers(message_id)
        return behind(message_id) if passed else ""

    def _next_row(self) -> KeyClaims:
        if not self._kept:
            return KeyClaims(self._row.version)
        after = self._reach()
        for entry in self._freed:
            unseen = entry.follower and not self._window.covers(entry.follower)
            kept = self._kept.get(entry.key)
            if unseen and (kept is None or kept.id > entry.follower):
                after = min(after, before(entry.follower))
        for stored in self._window.messages:
            if stored.ref.id > after:
                break
            self.passed += stored.ref.id > self._row.after
            entry = self._kept[key_digest(stored)]
            first = not entry.follower or stored.ref.id < entry.follower
            if stored.ref.id != entry.id and first:
                self._kept[entry.key] = replace(entry, follower=stored.ref.id)
        entries = tuple(sorted(self._kept.values(), key=lambda e: e.id))
        fresh = not self._window.after or not self._row.after
        since = self._now if fresh else self._row.since
        return KeyClaims(self._row.version, entries, after, since if after else 0)

    def _reach(self) -> str:
        """Return the last id of the window up to which every message's key is held."""
        reach = self._window.after
        for stored in self._window.messages:
            young = time_of(stored.ref.id) > self._now - YOUNG_MS
            if young or key_digest(stored) not in self._kept:
                return reach
            reach = stored.ref.id
        return reach

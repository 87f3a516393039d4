"""Expiry: removes messages that pulled topics have kept beyond their `message_retention`.

The sweep hands over the shards whose check is due. A message is marked if it is unchanged since it
was read, then deleted; the next run deletes messages that a crash left marked. On ordered topics
the mark is one transaction with the shard's row, which holds the claims.
"""

from __future__ import annotations

import logging
import random
from collections import defaultdict, deque
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Literal

from fairbox.dispatch.parallel import Run, one_by_one
from fairbox.errors import FairboxError
from fairbox.model.clock import Clock, milliseconds
from fairbox.model.ids import time_of
from fairbox.model.topics import EXPIRY_MARGIN_MS
from fairbox.tables.message_edits import EXPIRED, Expiries
from fairbox.tables.stored_messages import StoredMessage, key_digest

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from fairbox.model.messages import Shard
    from fairbox.tables.key_claims import KeyClaims
    from fairbox.tables.lanes import ShardPage
    from fairbox.tables.shard_rows import ShardRow
    from fairbox.tables.tables import Tables

MESSAGES_A_SECOND: Final = 1000
"""Messages read a second at most: 2,000 WRU/s, or 3,000 and more on ordered topics."""
PAGE: Final = 100
TOGETHER: Final = 25
"""Messages of one transaction, if their bodies take no more than `_BYTES`."""
_BYTES: Final = 2_000_000  # of 4 MB
_ITEM_BYTES: Final = 400_000
_AT_ONCE: Final = 16
_TRIES: Final = 4
_CHECK_AHEAD_MS: Final = 3_600_000  # bounds how late a check is, whoever wrote its time

logger = logging.getLogger("fairbox")


@dataclass(slots=True)
class _Walk:
    """The part of a shard that a run has read; `kept`: of that, messages that do not expire yet."""

    row: ShardRow
    lane: Literal["ready", "later"] = "ready"
    after: str | None = None
    begun: bool = False
    ended: bool = False
    removed: int = 0
    kept: int = 0


class Expiry:
    """Removes expired messages: a page of a topic's next shard in turn.

    A shard with nothing to remove costs half a unit for each lane that holds something, and the
    write of its next check: when the oldest message expires, an hour ahead at most.

    Args:
        run: makes many independent calls.
    """

    def __init__(self, tables: Tables, clock: Clock, *, run: Run = one_by_one) -> None:
        self._tables = tables
        self._expiries = Expiries(tables)
        self._clock = clock
        self._run = run

    def run(self, rows: Sequence[ShardRow], *, deadline: float) -> tuple[dict[str, int], int]:
        """Remove expired messages of these shards until the deadline (seconds since 1970).

        Returns:
            The messages removed by topic, and the number of shards that are left to the next run.
        """
        lines = _Lines(rows, random.Random(int(self._clock.now())))  # noqa: S311 - no secret

        while lines.waiting:
            began = self._clock.now()
            if began >= deadline:
                break

            # the topic may have been changed, or subscribed to, since the last turn
            self._tables.topic_cache.refresh()
            turn = lines.turn()
            self._run([partial(self._step, walk) for walk in turn])
            lines.back(turn)
            if lines.waiting:
                least = len(turn) * PAGE / MESSAGES_A_SECOND
                self._clock.sleep(max(0.0, least - (self._clock.now() - began)))

        expired: dict[str, int] = defaultdict(int)
        for walk in lines.walks:
            if walk.removed:
                expired[walk.row.topic] += walk.removed
        return dict(expired), lines.waiting

    def _step(self, walk: _Walk) -> None:
        """Do the next page of a shard; one that fails is left to the next run."""
        try:
            self._page(walk)
        except FairboxError as error:
            walk.ended = True
            extra = {"shard": "/".join(map(str, walk.row.place)), "error": str(error)}
            logger.warning("messages of a shard could not expire yet", extra=extra)

    def _page(self, walk: _Walk) -> None:
        topic = self._tables.topic_cache.get(walk.row.topic)
        kept_ms = None if topic is None else topic.kept_ms
        if topic is None or kept_ms is None:
            walk.ended = True
            return

        now = milliseconds(self._clock)
        if not walk.begun and not self._begin(walk, now, kept_ms):
            walk.ended = True
            return

        page = self._expiries.page(
            walk.lane, walk.row.place, until=now - kept_ms, limit=PAGE, after=walk.after
        )

        # a run that was killed may have left some marked, which no receive returns
        left = [m for m in page.messages if m.gone == "expired"]
        there = [m for m in page.messages if m.gone is None]
        may = [m for m in there if not _exempt(m)]
        if topic.topic.ordering == "key":
            marked = self._mark_in_row(walk, may, now)
        else:
            marked = self._mark([m for m in may if not _claimed(m, now)])

        walk.kept += len(there) - len(marked)
        walk.removed += self._expiries.delete([*left, *marked])
        self._go_on(walk, page, now)

    def _begin(self, walk: _Walk, now: int, kept_ms: int) -> bool:
        """Look at the heads of the lanes; if nothing has expired, postpone the next check."""
        walk.begun = True
        heads = [self._tables.lanes.page("ready", *walk.row.place, limit=2, consistent=False)]
        if walk.row.later > 0:
            head = self._tables.lanes.page("later", *walk.row.place, limit=1, consistent=False)
            heads.append(head)
        # the shard's row lies first in lane `ready`, then the oldest message
        refs = [m.ref for head in heads for m in head.messages]
        oldest = min((ref.due or time_of(ref.id) for ref in refs), default=now)
        if oldest <= now - kept_ms or any(h.unreadable or h.newer for h in heads):
            return True
        next_check = min(oldest + kept_ms, now + _CHECK_AHEAD_MS)
        self._tables.rows.postpone(walk.row, next_check, 0)
        return False

    def _go_on(self, walk: _Walk, page: ShardPage, now: int) -> None:
        """Note where the next page begins; at the end, postpone a check that removes nothing."""
        if page.row is not None:
            walk.row = replace(walk.row, backoff=page.row.backoff)
        if page.last is not None:
            walk.after = page.last
        elif walk.lane == "ready" and walk.row.later > 0:
            walk.lane, walk.after = "later", None
        else:
            walk.ended = True
            if walk.kept and not walk.removed:
                self._tables.rows.postpone_check(walk.row, 0, now)

    def _mark(self, messages: Sequence[StoredMessage]) -> list[StoredMessage]:
        """Mark messages of an unordered shard; return the marked."""
        marked = self._expiries.mark([m for m in messages if m.message.batch_item is None])
        return marked + [m for m in messages if m.message.batch_item and self._fail(m)]

    def _mark_with(self, messages: Sequence[StoredMessage], shard: Shard, row: KeyClaims) -> bool:
        """Mark messages and write their shard's row; only a single one may have a batch item."""
        if messages[0].message.batch_item is None:
            return self._expiries.mark_in_row(messages, shard, row)
        hold = {"Update": self._tables.key_claims.action(shard, row, row.version)}
        return self._fail(messages[0], hold)

    def _fail(self, stored: StoredMessage, *others: dict[str, Any]) -> bool:
        """Mark a message and fail its batch item in one transaction; return whether it was.

        It costs 2 WRU a KB, and as `MessageItems.move`.
        """
        # imported where it is used: no cold start pays for it
        from fairbox.batches.message_items import MessageItems  # noqa: PLC0415

        actions = [self._expiries.action(stored), *others]
        item = stored.message.batch_item or ""
        try:
            return not MessageItems(self._tables).move("fail", item, actions, EXPIRED).refused
        except FairboxError as error:
            extra = {"ref": str(stored.ref), "error": str(error)}
            logger.warning("a message could not expire yet", extra=extra)
            return False

    def _mark_in_row(
        self, walk: _Walk, messages: Sequence[StoredMessage], now: int
    ) -> list[StoredMessage]:
        """Mark the messages of an ordered shard whose keys nobody holds, 25 at a time."""
        marked: list[StoredMessage] = []
        for some in _together(messages):
            for _ in range(_TRIES):
                # in each try anew: the mark holds only for the version of the row that was read
                row = self._tables.key_claims.get(walk.row.place)
                busy = {
                    e.key
                    for e in row.entries
                    if e.state == "claimed" and e.until > now - EXPIRY_MARGIN_MS
                }
                # an ack marks the entry, then deletes the message: it is done, and did not expire
                acked = {i for e in row.entries for i in e.done}
                free = [m for m in some if m.ref.id not in acked and key_digest(m) not in busy]
                if not free or self._mark_with(free, walk.row.place, _without(row, free, now)):
                    marked += free
                    break

        return marked


def _without(row: KeyClaims, messages: Sequence[StoredMessage], now: int) -> KeyClaims:
    """Return a row that forgets these messages: the next one of each key may be received."""
    for stored in messages:
        entry = row.entry(stored.ref.id)
        if entry is not None:
            row = row.change(entry, entry.forget(stored.ref.id, now))
    return row


def _claimed(stored: StoredMessage, now: int) -> bool:
    """Whether a consumer holds a message of an unordered topic, by a clock that may be late."""
    return (
        stored.claim is not None
        and bool(stored.claim.token)
        and stored.claim.until > now - EXPIRY_MARGIN_MS
    )


def _exempt(stored: StoredMessage) -> bool:
    """Whether an operator put a message here, who wants it consumed although its id is old."""
    return bool(stored.redriven) or (stored.moved and stored.ref.due is None)


def _together(messages: Sequence[StoredMessage]) -> Iterator[list[StoredMessage]]:
    """Yield messages that one transaction can mark; those with a batch item alone."""
    some: list[StoredMessage] = []
    size = 0
    for stored in messages:
        if stored.message.batch_item is not None:
            yield [stored]
            continue

        more = min(stored.size, _ITEM_BYTES)
        if some and (len(some) >= TOGETHER or size + more > _BYTES):
            yield some
            some, size = [], 0
        some.append(stored)
        size += more

    if some:
        yield some


class _Lines:
    """The shards that wait, in a line for each topic; topics and shards begin anywhere."""

    def __init__(self, rows: Sequence[ShardRow], rng: random.Random) -> None:
        self._lines: dict[str, deque[_Walk]] = {}
        self.walks = [_Walk(row) for row in rng.sample(list(rows), len(rows))]
        self.back(self.walks)

    @property
    def waiting(self) -> int:
        """The number of shards."""
        return sum(map(len, self._lines.values()))

    def turn(self) -> list[_Walk]:
        """Take the next shards, of as many topics as there are."""
        turn: list[_Walk] = []
        while self._lines and len(turn) < _AT_ONCE:
            topic = next(iter(self._lines))
            line = self._lines.pop(topic)
            turn.append(line.popleft())
            if line:
                self._lines[topic] = line  # behind the others
        return turn

    def back(self, walks: Sequence[_Walk]) -> None:
        """Put shards that have not ended behind the others of their topics."""
        for walk in walks:
            if not walk.ended:
                self._lines.setdefault(walk.row.topic, deque()).append(walk)

"""Claims of keys: a consumer holds the first messages of a key of an ordered shard until done.

They are packed into the shard's row and changed by compare-and-set. Counts and the next check in
the same row belong to other writers, who change them under conditions of their own. Entries lie in
groups of one state, end, count and token, and an id leaves out the part that it has in common with
the one before: some 25 bytes an entry.
"""

from __future__ import annotations

import struct
import uuid
from dataclasses import dataclass, field, replace
from itertools import groupby
from typing import TYPE_CHECKING, Any, Final, Literal

from fairbox.model.ids import before
from fairbox.model.receipts import TOKEN_BYTES
from fairbox.model.versions import check_number
from fairbox.tables.calls import Rows
from fairbox.tables.keys import check_version, key_text, shard_key
from fairbox.tables.shard_rows import ROW_VERSION, SETTLED, ShardRow, read_shard, versioned_update
from fairbox.tables.stored_messages import KEY_BYTES, number
from fairbox.tables.unreadable_items import reading

if TYPE_CHECKING:
    from collections.abc import Container, Iterable, Iterator, Mapping, Sequence

    from fairbox.model.messages import MessageRef, Shard

HELD: Final = "hd"  # B, the messages that consumers hold, packed (pulled topics)
HELD_AFTER: Final = "fr"  # B, the UUID behind which messages lie that are not held
HELD_SINCE: Final = "fs"  # N, ms, when the lane was last read from its head

ClaimState = Literal["claimed", "waiting", "acked"]
MAX_ENTRIES: Final = 1_024
MAX_IDS: Final = 2_048  # of messages in flight on a shard
_FORMAT: Final = 2
_ID_BYTES: Final = 16
_STATES: Final[tuple[ClaimState, ...]] = ("claimed", "waiting", "acked")
_MAX_COUNT: Final = 0xFFFF
_ASIDE: Final = struct.Struct(">IQ8sI")
_GROUP: Final = struct.Struct(f">BQHH{TOKEN_BYTES - 1}s")  # state, until, count, entries, token
_MEMBER: Final = struct.Struct(f">{KEY_BYTES}sBB")  # key, last byte of the token, what follows
_FAILURE: Final = struct.Struct(">QH")
_FOLLOWER, _RUN, _ACKED, _FAILED = 1, 2, 4, 8
_ATTRIBUTES = (HELD, HELD_AFTER, HELD_SINCE)


@dataclass(frozen=True, slots=True)
class Failure:
    """A message that failed while older ones of its key are held: its key waits behind these.

    Attributes:
        id: the message.
        until: when it may be received again, in milliseconds since 1970 UTC.
        count: how often it was received.
    """

    id: str
    until: int
    count: int


@dataclass(frozen=True, slots=True)
class KeyClaim:
    """A key whose first message was received and is not done with.

    Attributes:
        key: digest of the key; keys of one digest wait for each other.
        id: the message; of several, the first that is not acknowledged.
        state: `claimed` by a consumer, `waiting` to be received again, or `acked`: to be deleted.
        until: when the claim or the wait ends, in milliseconds since 1970 UTC; of an acked message,
            when it was acked.
        count: how often it was received.
        token: the holder's fencing token.
        follower: no message of the key before the place where receives begin has an id below this
            one, except the messages that the entry names; empty: there is none.
        run: the messages of the key that are claimed behind it, in order.
        acked: the acknowledged messages before it, to be deleted.
        failed: the message behind these that failed, if one did.
    """

    key: bytes
    id: str
    state: ClaimState
    until: int
    count: int
    token: bytes
    follower: str = ""
    run: tuple[str, ...] = ()
    acked: tuple[str, ...] = ()
    failed: Failure | None = None

    @property
    def claimed(self) -> tuple[str, ...]:
        """The messages that a consumer holds, or held until the claim ended."""
        return (self.id, *self.run) if self.state == "claimed" else ()

    @property
    def done(self) -> tuple[str, ...]:
        """The messages that are acknowledged."""
        return (*self.acked, self.id) if self.state == "acked" else self.acked

    @property
    def next(self) -> str:
        """The id from which the key goes on when its first message is gone; empty: `after`."""
        return min((*self.run, *self._behind), default="")

    @property
    def _behind(self) -> tuple[str, ...]:
        """The messages behind the claimed ones: that which failed, and the follower."""
        failed = (self.failed.id,) if self.failed else ()
        return (*failed, self.follower) if self.follower else failed

    @property
    def waits(self) -> tuple[str, ...]:
        """The message that waits to be received again, if one does."""
        if self.state == "waiting":
            return (self.id,)
        return (self.failed.id,) if self.failed else ()

    def due_at(self, now: int) -> KeyClaim:
        """Return the entry when the wait ends then (ms)."""
        if self.state == "waiting":
            return replace(self, until=now)
        return replace(self, failed=self.failed and replace(self.failed, until=now))

    def release(self, message_id: str, now: int) -> KeyClaim:
        """Return the entry when a message is given back at `now` (ms), or no longer waits."""
        if self.active(now) and message_id in self.claimed:
            place = self.claimed.index(message_id)
            # uncounted: a release is no failure
            return self.cut(place, now, 0 if place else self.count - 1)
        return self.due_at(now) if message_id in self.waits else self

    def forget(self, message_id: str, now: int) -> KeyClaim:
        """Return the entry as if a message had never been received, held or not.

        The key goes on at `now` (ms): from the message or, if that is gone, from the next. If a
        redrive puts it back, its attempts begin anew, and no earlier holder's ack can delete it.
        """
        if message_id in self.claimed:
            return self.cut(self.claimed.index(message_id), now, 0)
        if self.state == "waiting" and message_id == self.id:
            return self.cut(0, now, 0)
        if message_id in self.waits:
            return replace(self, failed=None, follower=min(self._behind))
        return self

    def unmarked(self, message_ids: Container[str]) -> KeyClaim:
        """Return the entry when acknowledged ones of these are deleted: it no longer names them.

        If one is put back by a replay, it is received like a new one.
        """
        acked = tuple(i for i in self.acked if i not in message_ids)
        if self.state == "acked" and self.id in message_ids:
            return KeyClaim(
                self.key, self.id, "waiting", self.until, 0, b"", self.follower, acked=acked
            )
        return replace(self, acked=acked)

    def receives_of(self, message_id: str) -> int:
        """Return how often a message was received; 0 if the entry does not name it."""
        if self.failed is not None and self.failed.id == message_id:
            return self.failed.count
        if message_id == self.id:
            return self.count
        return int(self.names(message_id))

    def names(self, message_id: str) -> bool:
        """Whether the entry names a message."""
        failed = self.failed is not None and self.failed.id == message_id
        return failed or message_id == self.id or message_id in (*self.run, *self.acked)

    def active(self, now: int) -> bool:
        """Whether a consumer holds the message at `now` (ms)."""
        return self.state == "claimed" and self.until > now

    def claimed_by(self, message_id: str, token: bytes) -> bool:
        """Whether this token holds the message."""
        ids = self.claimed
        return message_id in ids and token == token_of(self.token, ids.index(message_id))

    def acked_by(self, message_id: str, token: bytes) -> bool:
        """Whether the message was acknowledged with this token."""
        if self.state == "acked" and message_id == self.id:
            return token == self.token
        if message_id not in self.acked:
            return False
        # the entry's token is that of its message: those acknowledged before it count down
        place = self.acked.index(message_id) - len(self.acked)
        # an entry that waits keeps no token, so its receipts cannot be told apart
        return not self.token or token == token_of(self.token, place)

    def ack(self, number: int, now: int) -> KeyClaim:
        """Return the entry when the first so many of its claimed messages are acknowledged."""
        done, rest = (*self.acked, *self.claimed[:number]), self.claimed[number:]

        if rest:
            # tokens count up along a run: the next message has this one already
            token = token_of(self.token, number)
            return replace(self, id=rest[0], run=rest[1:], token=token, count=1, acked=done)

        if self.failed is not None:
            # all that was claimed is done: the key waits for the message that failed behind it
            failed = self.failed
            return KeyClaim(
                self.key, failed.id, "waiting", failed.until, failed.count, b"",
                self.follower, acked=done,
            )  # fmt: skip

        # the mark stays until the messages are deleted: after a crash the next receive does that
        token = token_of(self.token, number - 1)
        return replace(
            self, id=done[-1], state="acked", until=now, token=token, run=(), acked=done[:-1]
        )

    def cut(self, place: int, until: int, count: int) -> KeyClaim:
        """Return the entry when its claimed message of this place goes back, to wait until then.

        Those behind it are no longer held. A count of 0 at a place behind the first says that the
        message did not fail.
        """
        if place == 0:
            return KeyClaim(
                self.key, self.id, "waiting", until, count, b"", self.next, acked=self.acked
            )

        # the messages before it stay claimed: a failed one is named, and waits behind them
        message, rest = self.claimed[place], (*self.claimed[place + 1 :], *self._behind)
        failed = Failure(message, until, count) if count else None
        follower = min(rest if count else (message, *rest), default="")
        return replace(self, run=self.run[: place - 1], failed=failed, follower=follower)


@dataclass(frozen=True, slots=True)
class KeysAside:
    """Keys that wait, and that a shard's row does not list: they lie in items of their own.

    Attributes:
        count: how many there are.
        next_check: when the first of them is due, in milliseconds since 1970 UTC.
        name: names the items of this row; they mean nothing under another name.
        moves: grows when keys are set aside.
    """

    count: int = 0
    next_check: int = 0
    name: bytes = b""
    moves: int = 0


@dataclass(frozen=True, slots=True)
class KeyClaims:
    """The claims of a shard, as its row has them.

    Attributes:
        version: grows with every change; every change is conditional on it.
        entries: one a key, sorted by message, `MAX_ENTRIES` at most.
        after: each message up to this id is held, or lies behind a held one; empty: begin at the
            head.
        since: when the lane was last read from its head, in milliseconds since 1970 UTC.
        settled: no older shard of the topic lists the shard's keys.
        aside: the keys that wait elsewhere.
    """

    version: int = 0
    entries: tuple[KeyClaim, ...] = ()
    after: str = ""
    since: int = 0
    settled: bool = field(default=False, compare=False)
    aside: KeysAside = KeysAside()

    def __post_init__(self) -> None:
        # packed entries come back in groups: sorted, a row that was read equals the one written
        object.__setattr__(self, "entries", tuple(sorted(self.entries, key=lambda e: e.id)))

    @property
    def done(self) -> frozenset[str]:
        """The messages that are acknowledged."""
        return frozenset(i for entry in self.entries for i in entry.done)

    def entry(self, message_id: str) -> KeyClaim | None:
        """Return the entry that names a message; None: none does."""
        return next((e for e in self.entries if e.names(message_id)), None)

    def of_key(self, key: bytes) -> KeyClaim | None:
        """Return the entry of a key; None: it has none."""
        return next((e for e in self.entries if e.key == key), None)

    def unmarked(self, message_ids: Container[str]) -> KeyClaims:
        """Return the row when acknowledged messages of these are deleted."""
        return replace(self, entries=tuple(entry.unmarked(message_ids) for entry in self.entries))

    def aged(self, before: int) -> KeyClaims:
        """Return the row without its marks of messages acknowledged by then (ms)."""
        return replace(
            self,
            entries=tuple(
                entry.unmarked(entry.done)
                if entry.state == "acked" and entry.until <= before
                else entry
                for entry in self.entries
            ),
        )

    def change(self, before: KeyClaim, after: KeyClaim) -> KeyClaims:
        """Return the row with another entry in place of one."""
        return replace(self, entries=tuple(after if e == before else e for e in self.entries))


def token_of(token: bytes, place: int) -> bytes:
    """Return the token of the message that lies so many places behind the token's own."""
    return token[:-1] + bytes(((token[-1] + place) & 0xFF,))


def claim_values(row: KeyClaims) -> dict[str, Any]:
    """Return the attributes of a shard row that hold its claims, without empty ones.

    `settled` is not among them: it is written by itself, once and for good.
    """
    values: dict[str, Any] = {ROW_VERSION: number(row.version)}
    if row.entries or row.aside.count:
        values[HELD] = {"B": _pack(row)}
    if row.after:
        values[HELD_AFTER] = {"B": uuid.UUID(row.after).bytes}
        values[HELD_SINCE] = number(row.since)
    return values


def read_claims(item: Mapping[str, Any]) -> KeyClaims:
    """Return the claims that a shard row holds; none where there is no row.

    Raises:
        Unreadable: `claim_values` never writes such a row; NewerVersion: a newer release does.
    """
    check_version(item)
    if ROW_VERSION not in item:
        return KeyClaims(settled=item.get(SETTLED) == {"BOOL": True})
    with reading(item, LookupError, ValueError, TypeError, AttributeError, struct.error):
        return _read(item)


def _read(item: Mapping[str, Any]) -> KeyClaims:
    aside = KeysAside()
    entries: tuple[KeyClaim, ...] = ()
    if HELD in item:
        packed = bytes(item[HELD]["B"])
        if packed[0] != _FORMAT:
            # raises for the format of a newer release; any other is damage
            check_number(packed[0], key_text(item))
            raise ValueError("no format of claims")
        aside, entries = _unpack(packed)

    after = item.get(HELD_AFTER)
    return KeyClaims(
        int(item[ROW_VERSION]["N"]),
        entries,
        "" if after is None else str(uuid.UUID(bytes=bytes(after["B"]))),
        int(item[HELD_SINCE]["N"]) if after is not None else 0,
        item.get(SETTLED) == {"BOOL": True},
        aside,
    )


def pack_entries(entries: Iterable[KeyClaim]) -> bytes:
    """Return entries in groups."""
    out, last = bytearray(), bytes(_ID_BYTES)
    ordered = sorted(entries, key=lambda e: (_group(e), e.id))
    # entries of one call share these: written once, a key takes some 22 bytes
    for (state, until, count, token), members in groupby(ordered, _group):
        group = list(members)
        out += _GROUP.pack(state, until, count, len(group), token)

        for entry in group:
            parts = (bool(entry.follower), bool(entry.run), bool(entry.acked), bool(entry.failed))
            flags = sum(1 << n for n, there in enumerate(parts) if there)
            # the group has the rest of the token: tokens of one call differ in the last byte
            out += _MEMBER.pack(entry.key, (entry.token or b"\0")[-1], flags)

            ids = [entry.id, *([entry.follower] if entry.follower else [])]
            for several in (entry.run, entry.acked):
                ids += several
            if entry.failed:
                ids.append(entry.failed.id)
            out += bytes(len(several) for several in (entry.run, entry.acked) if several)

            for text in ids:
                message = uuid.UUID(text).bytes
                # ids of about one time begin alike: bytes that the last id has too are left out
                same = next(n for n in range(_ID_BYTES) if n == 15 or message[n] != last[n])
                out += bytes((same,)) + message[same:]
                last = message

            if entry.failed:
                out += _FAILURE.pack(entry.failed.until, min(entry.failed.count, _MAX_COUNT))

    return bytes(out)


def _group(entry: KeyClaim) -> tuple[int, int, int, bytes]:
    token = entry.token[:-1] if entry.token else bytes(TOKEN_BYTES - 1)
    return _STATES.index(entry.state), entry.until, min(entry.count, _MAX_COUNT), token


def _pack(row: KeyClaims) -> bytes:
    aside = row.aside
    head = b"\x00"
    if aside.count:
        head = b"\x01" + _ASIDE.pack(aside.count, aside.next_check, aside.name, aside.moves)
    return bytes((_FORMAT,)) + head + pack_entries(row.entries)


def _unpack(packed: bytes) -> tuple[KeysAside, tuple[KeyClaim, ...]]:
    if packed[1]:
        return KeysAside(*_ASIDE.unpack_from(packed, 2)), unpack_entries(packed[2 + _ASIDE.size :])
    return KeysAside(), unpack_entries(packed[2:])


def unpack_entries(packed: bytes) -> tuple[KeyClaim, ...]:
    """Return the entries that `pack_entries` packed."""
    return tuple(_Reader(packed).entries())


class _Reader:
    """Reads packed entries one after the other."""

    def __init__(self, packed: bytes) -> None:
        self._packed = packed
        self._at = 0
        self._last = bytes(_ID_BYTES)

    def entries(self) -> Iterator[KeyClaim]:
        """Yield the entries, as they were packed."""
        while self._at < len(self._packed):
            state, until, count, several, token = self._take(_GROUP)
            for _ in range(several):
                yield self._entry(_STATES[state], until, count, token)

    def _entry(self, state: ClaimState, until: int, count: int, token: bytes) -> KeyClaim:
        key, end, flags = self._take(_MEMBER)
        run = self._byte() if flags & _RUN else 0
        acked = self._byte() if flags & _ACKED else 0
        # in the order of `pack_entries`: each id is packed against the one before
        message = self._id()
        follower = self._id() if flags & _FOLLOWER else ""
        runs = tuple(self._id() for _ in range(run))
        done = tuple(self._id() for _ in range(acked))
        failed = Failure(self._id(), *self._take(_FAILURE)) if flags & _FAILED else None

        whole = b"" if state == "waiting" else token + bytes((end,))
        return KeyClaim(key, message, state, until, count, whole, follower, runs, done, failed)

    def _take(self, shape: struct.Struct) -> tuple[Any, ...]:
        found = shape.unpack_from(self._packed, self._at)
        self._at += shape.size
        return found

    def _byte(self) -> int:
        self._at += 1
        return self._packed[self._at - 1]

    def _id(self) -> str:
        same = self._byte()
        rest = self._packed[self._at : self._at + _ID_BYTES - same]
        self._at += _ID_BYTES - same
        self._last = self._last[:same] + rest
        return str(uuid.UUID(bytes=self._last))


class KeyClaimTable(Rows):
    """Reads and changes claims."""

    def get(self, shard: Shard) -> KeyClaims:
        """Return the claims of a shard (consistent, 1 RRU for 4 KB)."""
        return read_claims(self._calls.get(self._table, shard_key(*shard)) or {})

    def get_many(self, shards: Sequence[Shard]) -> list[tuple[ShardRow, KeyClaims]]:
        """Return the shard rows that are there, with their claims (consistent, 100 a call)."""
        items = self._calls.batch_get(self._table, [shard_key(*shard) for shard in shards])
        return [(read_shard(item), read_claims(item)) for item in items]

    def write(self, shard: Shard, row: KeyClaims, version: int) -> KeyClaims | None:
        """Write claims where the version is this one (1 WRU a KB).

        Returns:
            None when it was written; the row as it is, when others were faster.
        """
        old = self._calls.refused("update_item", **self.action(shard, row, version))
        there = None if old is None else read_claims(old)
        # ours, when the answer to an earlier try was lost
        return None if there == replace(row, version=version + 1) else there

    def write_with(
        self, update: dict[str, Any], shard: Shard, row: KeyClaims, version: int
    ) -> bool:
        """Write claims and update a message, both or neither; return whether they were written."""
        claims = self.action(shard, row, version)
        return self._calls.transacted([{"Update": update}, {"Update": claims}])

    def action(self, shard: Shard, row: KeyClaims, version: int) -> dict[str, Any]:
        """Return the update that `write` makes."""
        values = claim_values(replace(row, version=version + 1))
        return versioned_update(self._table, shard_key(*shard), values, _ATTRIBUTES, version)

    def wake(self, refs: Sequence[MessageRef]) -> None:
        """Let receives find messages that were committed behind younger ones (1 WRU a shard)."""
        firsts: dict[Shard, str] = {}
        for ref in refs:
            shard = (ref.topic, ref.epoch, ref.shard)
            firsts[shard] = min(ref.id, firsts.get(shard, ref.id))
        for shard, first in firsts.items():
            self.lower_after(shard, first)

    def lower_after(self, shard: Shard, message_id: str) -> bool:
        """Let receives begin no later than at this message; return whether they had passed it."""
        bound = claim_values(KeyClaims(after=before(message_id)))[HELD_AFTER]
        return self._calls.written(
            "update_item",
            TableName=self._table,
            Key=shard_key(*shard),
            # a new version: whoever has read the row must not write the old place over it
            UpdateExpression="SET #a = :a, #v = #v + :one",
            ConditionExpression="#a > :a",
            ExpressionAttributeNames={"#a": HELD_AFTER, "#v": ROW_VERSION},
            ExpressionAttributeValues={":a": bound, ":one": number(1)},
        )

"""Tables and their indexes, and the engine that shares them: keys, rows, entries, records."""

from __future__ import annotations

from collections import OrderedDict, deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, Protocol

from fairbox.testing.units import index_entry, index_write_units, write_units

from .refusals import PARAMETER_VALUES, KeyTypeRefusal, Refusal, invalid, invalid_parameter
from .stores import Position, Row, Store
from .streams import FIRST_SEQUENCE, Change, Stream
from .values import Item, Scalar, Value, kind_of, number, same_item, scalar, take_value

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

MAX_ITEM: Final = 400 * 1024  # bytes
MAX_HASH: Final = 2048  # bytes
MAX_RANGE: Final = 1024  # bytes
_NO_RANGE: Final = 0  # sort position of a row without range key
TOKEN_LIFE: Final = 600.0  # seconds for which a ClientRequestToken is remembered


@dataclass(slots=True)
class Keys:
    """The key attributes of a table or index, with their types."""

    hash_name: str
    hash_kind: str
    range_name: str | None = None
    range_kind: str | None = None
    names: tuple[str, ...] = field(init=False)  # hash first
    kinds: dict[str, str] = field(init=False)  # type letters by name

    def __post_init__(self) -> None:
        self.kinds = {self.hash_name: self.hash_kind}
        if self.range_name is not None:
            self.kinds[self.range_name] = self.range_kind or ""
        self.names = tuple(self.kinds)


class Index:
    """A global secondary index: sparse, projected, visible `lag` seconds late."""

    def __init__(
        self, name: str, keys: Keys, projected: Collection[str] | None, definition: dict[str, Any]
    ) -> None:
        self.name = name
        self.keys = keys
        self.projected = projected
        self.definition = definition
        self.store = Store()
        self._late: deque[tuple[float, Position | None, Position | None, Row | None]] = deque()

    def check(self, item: Item) -> None:
        """Refuse an item whose value for a key of this index is of the wrong type, or empty."""
        for name, kind in self.keys.kinds.items():
            value = item.get(name)
            # an item without a key of the index has no entry there, and is no error
            if value is None:
                continue
            if kind not in value:
                raise KeyTypeRefusal(
                    f"{PARAMETER_VALUES}Type mismatch for Index Key {name} Expected: {kind} "
                    f"Actual: {kind_of(value)} IndexName: {self.name}"
                )
            if kind != "N" and not value[kind]:
                raise invalid(
                    "One or more parameter values are not valid. A value specified for a secondary "
                    "index key is not supported. The AttributeValue for a key attribute cannot "
                    f"contain an empty {'string' if kind == 'S' else 'binary'} value. "
                    f"IndexName: {self.name}, IndexKey: {name}"
                )

    def position(self, item: Item, key: Position) -> Position:
        """The position of the entry of an item with this table key."""
        keys = self.keys
        # keys of an index need not be unique: the table's key behind them tells entries apart
        sort = scalar(item[keys.range_name]) if keys.range_name is not None else _NO_RANGE
        return scalar(item[keys.hash_name]), (sort, *key)

    def write(self, key: Position, old: Row | None, new: Row | None, at: float, lag: float) -> int:
        """Follow one write of the table; the write units that it costs here."""
        names = self.keys.names
        before = None if old is None else index_entry(old.item, names, self.projected)
        after = None if new is None else index_entry(new.item, names, self.projected)
        if before is None and after is None:
            return 0

        # no units: nothing of the entry changed, so there is nothing to make visible later
        units = index_write_units(before, after, names)
        if units == 0:
            return 0

        gone = None if before is None else self.position(dict(before), key)  # type: ignore[arg-type]  # an Item, as stored
        row = None if after is None else Row(dict(after))  # type: ignore[arg-type]  # an Item, as stored
        place = None if row is None else self.position(row.item, key)
        if lag > 0:
            self._late.append((at + lag, gone, place, row))
        else:
            self._apply(gone, place, row)
        return units

    def _apply(self, gone: Position | None, place: Position | None, row: Row | None) -> None:
        if gone is not None and gone != place:
            self.store.remove(gone)
        if place is not None and row is not None:
            self.store.put(place, row)

    def catch_up(self, now: float) -> None:
        """Make changes older than the lag visible."""
        # in the order of writing, also when a clock was set back: else an older change could win
        while self._late and self._late[0][0] <= now:
            _, gone, place, row = self._late.popleft()
            self._apply(gone, place, row)


@dataclass(slots=True)
class Table:
    """A table: rows, indexes, stream, time to live."""

    name: str
    keys: Keys
    description: dict[str, Any]
    indexes: dict[str, Index] = field(default_factory=dict)
    stream: Stream | None = None
    ttl_attribute: str | None = None
    store: Store = field(default_factory=Store)

    def key_of(self, item: Item) -> Position:
        """The position of a whole item; refused where its key is missing, mistyped or empty."""
        for name, kind in self.keys.kinds.items():
            value = item.get(name)
            if value is None:
                raise invalid_parameter(f"Missing the key {name} in the item")
            if kind not in value:
                raise KeyTypeRefusal(
                    f"{PARAMETER_VALUES}Type mismatch for key {name} expected: {kind} "
                    f"actual: {kind_of(value)}"
                )
        return self._position(item)

    def key_from(self, key: Mapping[str, Any]) -> tuple[Position, Item]:
        """The position and the checked copy of a key as given; it has only the key's attributes."""
        keys = self.keys
        # attributes beside the key are refused too
        if key.keys() != set(keys.names):
            raise invalid("The provided key element does not match the schema")
        taken = {name: take_value(key[name]) for name in keys.names}
        for name, kind in keys.kinds.items():
            if kind not in taken[name]:
                raise KeyTypeRefusal("The provided key element does not match the schema")
        return self._position(taken), taken

    def _position(self, item: Item) -> Position:
        keys = self.keys
        hash_value = _checked(keys.hash_name, item[keys.hash_name], MAX_HASH, _HASH_TOO_LONG)
        if keys.range_name is None:
            return hash_value, _NO_RANGE
        value = item[keys.range_name]
        return hash_value, _checked(keys.range_name, value, MAX_RANGE, _RANGE_TOO_LONG)

    def key_item(self, item: Item) -> Item:
        """The key attributes of an item."""
        return {name: item[name] for name in self.keys.names}

    def check(self, row: Row, too_large: str) -> None:
        """Refuse a row that is too large, or whose index keys are of the wrong type."""
        if row.size > MAX_ITEM:
            raise invalid(too_large)
        for index in self.indexes.values():
            index.check(row.item)

    def write(
        self,
        key: Position,
        old: Row | None,
        new: Row | None,
        *,
        at: float,
        sequence: int,
        lag: float = 0.0,
        expired: bool = False,
    ) -> dict[str, int]:
        """Replace `old` by `new`: rows, indexes and stream; index units by name where not 0."""
        if new is not None:
            self.store.put(key, new)
        elif old is not None:
            self.store.remove(key)
        else:
            # a delete of a missing item writes no stream record and touches no index
            return {}

        units = {}
        for index in self.indexes.values():
            cost = index.write(key, old, new, at, lag)
            if cost:
                units[index.name] = cost

        if self.stream is not None:
            before = None if old is None else old.item
            after = None if new is None else new.item
            # as on AWS, a write that changes nothing leaves no record
            if before is None or after is None or not same_item(before, after):
                keys = self.key_item(after if after is not None else before or {})
                self.stream.append(Change(sequence, at, keys, before, after, expired))

        return units


class Clock(Protocol):
    """Anything that tells the time."""

    def now(self) -> float:
        """Seconds since 1970, UTC."""


class Engine:
    """State that all operations share. Not locked: the client holds the lock for each operation."""

    def __init__(self, clock: Clock, index_lag: float, region: str) -> None:
        self.clock = clock
        self.index_lag = index_lag
        self.region = region
        self.tables: dict[str, Table] = {}
        self.retired_streams: dict[str, Stream] = {}
        self.tokens: OrderedDict[str, tuple[float, str, dict[str, Any]]] = OrderedDict()
        self._sequence = FIRST_SEQUENCE

    def table(self, name: str) -> Table:
        """The table of that name; ResourceNotFoundException where there is none."""
        table = self.tables.get(name)
        if table is None:
            raise Refusal("ResourceNotFoundException", "Requested resource not found")
        return table

    def write(
        self,
        table: Table,
        key: Position,
        old: Row | None,
        new: Row | None,
        *,
        expired: bool = False,
    ) -> dict[str, int]:
        """Apply one change now; the units of each index that it touched."""
        # one count for all tables: each stream then has numbers that grow, as on AWS with gaps
        self._sequence += 1
        return table.write(
            key,
            old,
            new,
            at=self.clock.now(),
            sequence=self._sequence,
            lag=self.index_lag,
            expired=expired,
        )

    def remembered(self, token: str) -> tuple[str, dict[str, Any]] | None:
        """The fingerprint and the answer of a transaction that had this token, while it lives."""
        now = self.clock.now()
        while self.tokens:
            # all live equally long, so the order of insertion is the order of ending
            oldest = next(iter(self.tokens))
            if self.tokens[oldest][0] > now:
                break
            del self.tokens[oldest]
        found = self.tokens.get(token)
        return None if found is None else (found[1], found[2])

    def remember(self, token: str, fingerprint: str, answer: dict[str, Any]) -> None:
        """Keep the answer of a transaction for ten minutes."""
        self.tokens[token] = (self.clock.now() + TOKEN_LIFE, fingerprint, answer)


def base_units(old: Row | None, new: Row | None) -> int:
    """Write units of the table's own part of a write: the larger of the two sizes counts."""
    return write_units(max(old.size if old else 0, new.size if new else 0))


_HASH_TOO_LONG: Final = "Size of hashkey has exceeded the maximum size limit of2048 bytes"
_RANGE_TOO_LONG: Final = (
    "Aggregated size of all range keys has exceeded the size limit of 1024 bytes"
)


def _checked(name: str, value: Value, limit: int, too_long: str) -> Scalar:
    for kind, raw in value.items():
        if kind == "N":
            # a number has at most 38 digits, so it is always within the limits of a key
            return number(raw)
        if not raw:
            what = "string" if kind == "S" else "binary"
            raise invalid(
                "One or more parameter values are not valid. The AttributeValue for a key "
                f"attribute cannot contain an empty {what} value. Key: {name}"
            )
        # a character has at most four bytes: short texts are not encoded to be measured
        if len(raw) * 4 > limit and len(raw.encode() if kind == "S" else raw) > limit:
            raise invalid_parameter(too_long)
        return raw  # type: ignore[no-any-return]  # str or bytes, by its kind
    raise ValueError("an attribute value names its type")

"""Walk positions: where the next walk of a shard goes on; one item a shard, beside the hints."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final

from fairbox.tables.calls import Rows
from fairbox.tables.deferred_keys import audience_of
from fairbox.tables.keys import walk_key
from fairbox.tables.write_expressions import WriteExpressions

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from fairbox.model.messages import OpenLane

# of a row for each shard of a pushed topic, beside its hint rows
WALK_SHARED: Final = "ws"  # S, places of the walks that subscriptions share
WALK_APART: Final = "wa#"  # S, with a subscription's name behind: its places

LANES: Final[tuple[OpenLane, ...]] = ("later", "ready")
END: Final = "~"
"""A place behind every sort key: nothing of the lane is wanted."""
_BETWEEN: Final = "|"


@dataclass(frozen=True, slots=True)
class Places:
    """A place in each lane of a shard.

    Attributes:
        ready, later: the sort key behind which messages are wanted; empty: from the head.
        written: when it was written (ms); of a subscription only.
    """

    ready: str = ""
    later: str = ""
    written: int = 0

    def of(self, lane: OpenLane) -> str:
        """Return the place in a lane."""
        return self.later if lane == "later" else self.ready

    def at(self, lane: OpenLane, place: str) -> Places:
        """Return them with another place in a lane."""
        return replace(self, later=place) if lane == "later" else replace(self, ready=place)

    def lowest(self, other: Places) -> Places:
        """Return the lower place of each lane."""
        return replace(self, ready=min(self.ready, other.ready), later=min(self.later, other.later))

    def same(self, other: Places) -> bool:
        """Whether the places are the same, whenever they were written."""
        return (self.ready, self.later) == (other.ready, other.later)


NOWHERE: Final = Places(END, END)


@dataclass(frozen=True, slots=True)
class WalkPosition:
    """A hint: a wrong one costs reads, or time until repair finds hidden messages.

    Attributes:
        shared: each message up to there has been sent to each subscription that was ready, is tried
            again by a doorbell of its own, or lies behind the subscription's own place.
        audience: digest of the subscriptions that `shared` is about.
        apart: by subscription, the place behind which it still lacks passed messages.
        texts: the attributes as they were read, for compare-and-set.
    """

    shared: Places = field(default_factory=Places)
    audience: str = ""
    apart: Mapping[str, Places] = field(default_factory=dict)
    texts: Mapping[str, str] = field(default_factory=dict, compare=False)

    def shared_by(self, subscriptions: Iterable[str]) -> Places:
        """Return the shared places; the head if they are of other subscriptions than these."""
        return self.shared if self.audience == audience_text(subscriptions) else Places()

    def hides(self, lane: OpenLane, key: str, name: str, subscriptions: Iterable[str]) -> bool:
        """Whether walks have passed a message and none will come back to it for a subscription.

        `subscriptions` are all of the topic.
        """
        own = self.apart.get(name, NOWHERE)
        # at or below both places: no walk begins before it
        return own.of(lane) >= key <= self.shared_by(subscriptions).of(lane)


def audience_text(subscriptions: Iterable[str]) -> str:
    """Return the digest of a set of subscriptions' names, as text."""
    return audience_of(subscriptions).hex()


def read_walk_position(item: Mapping[str, Any]) -> WalkPosition:
    """Return a shard's position; from the head where there is none, or none that can be read."""
    texts = {
        name: str(value["S"])
        for name, value in item.items()
        if (name == WALK_SHARED or name.startswith(WALK_APART)) and "S" in value
    }

    shared, audience = _parts(texts.get(WALK_SHARED, ""))
    apart = {}
    for name, text in texts.items():
        if name.startswith(WALK_APART):
            places, written = _parts(text)
            time = int(written) if written.isdecimal() else 0
            apart[name.removeprefix(WALK_APART)] = Places(places.ready, places.later, time)

    return WalkPosition(shared, audience, apart, texts)


def _text(places: Places, rest: str) -> str:
    return _BETWEEN.join((places.ready, places.later, rest))


def _parts(text: str) -> tuple[Places, str]:
    parts = text.split(_BETWEEN)
    return (Places(parts[0], parts[1]), parts[2]) if len(parts) == 3 else (Places(), "")


class WalkPositions(Rows):
    """Reads and moves walk positions."""

    def read(self, shard: tuple[str, int, int]) -> WalkPosition:
        """Return a shard's position, eventually consistent (0.5 RRU)."""
        item = self._calls.get(self._table, walk_key(*shard), consistent=False)
        return read_walk_position(item or {})

    def move(
        self,
        shard: tuple[str, int, int],
        before: WalkPosition,
        *,
        shared: tuple[Places, str] | None = None,
        apart: Mapping[str, Places | None] | None = None,
    ) -> WalkPosition | None:
        """Write places that are as in `before` (1 WRU).

        The shared places go with their audience; None: they stay. None as a subscription's own
        places removes them.

        Returns:
            None if they were written; else the position that others wrote.
        """
        after: dict[str, str | None] = {}
        if shared is not None:
            after[WALK_SHARED] = _text(*shared)
        for name, places in (apart or {}).items():
            text = None if places is None else _text(places, str(places.written))
            after[f"{WALK_APART}{name}"] = text

        # only these are compared: walks of other subscriptions may write theirs at the same time
        write = WriteExpressions()
        for n, (name, new) in enumerate(after.items()):
            old = before.texts.get(name)
            write.same(f"n{n}", name, None if old is None else {"S": old}, f"o{n}")
            write.put(f"n{n}", name, None if new is None else {"S": new})

        item = self._calls.refused(
            "update_item",
            TableName=self._table,
            Key=walk_key(*shard),
            **write.expressions,
            ReturnValuesOnConditionCheckFailure="ALL_OLD",
            **write.bound,
        )
        if item is None:
            return None
        there = read_walk_position(item)
        # ours, when the answer to an earlier try was lost
        return None if all(there.texts.get(n) == text for n, text in after.items()) else there

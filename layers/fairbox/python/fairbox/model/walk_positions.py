"""Walk positions: where the next walk of a shard goes on. Pure."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final

from fairbox.model.deferred_keys import audience_of
from fairbox.model.stored_messages import OpenLane

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

LANES: Final[tuple[OpenLane, ...]] = ("later", "ready")
END: Final = "~"
"""A place behind every sort key: nothing of the lane is wanted."""


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
    """A hint: a wrong one costs reads, or time until repair finds what it hides.

    Attributes:
        shared: what lies up to there has been sent to each subscription that was ready, is tried
            again by a doorbell of its own, or lies behind the subscription's own place.
        audience: digest of the subscriptions that `shared` is about.
        apart: by subscription, where the messages begin that walks passed and that it still lacks.
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

        Args:
            lane: the message's lane.
            key: its sort key.
            name: the subscription.
            subscriptions: all of the topic.
        """
        own = self.apart.get(name, NOWHERE)
        return own.of(lane) >= key <= self.shared_by(subscriptions).of(lane)


def audience_text(subscriptions: Iterable[str]) -> str:
    """Return the digest of a set of subscriptions' names, as text."""
    return audience_of(subscriptions).hex()


__all__ = ["END", "LANES", "NOWHERE", "OpenLane", "Places", "WalkPosition", "audience_text"]

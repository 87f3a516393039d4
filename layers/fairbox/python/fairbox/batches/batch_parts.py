"""Parts that the use cases of batches share: their context and its ports, and reads of the tree."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Protocol

from fairbox.errors import UnknownBatch
from fairbox.model.clock import Clock, milliseconds
from fairbox.tables.batch_values import (
    ROOT_GROUPS,
    Announcement,
    LeafKey,
    Node,
    NodeKey,
    Root,
    bits,
    first_group,
    hour_of,
    node_of,
    ones,
    slot_of,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from random import Random

    from fairbox.model.ids import IdGenerator
    from fairbox.tables.batch_table import BatchTable

TRIES: Final = 8
CASCADE_TRIES: Final = 3
DAY_HOURS: Final = 24
WEEK_HOURS: Final = 7 * DAY_HOURS
_BASE_SECONDS: Final = 0.005


class Announcer(Protocol):
    """Makes messages part of a transaction."""

    def actions(self, announcement: Announcement) -> list[dict[str, Any]]:
        """Return the actions that publish the message; its topic is made where it is missing."""
        ...

    def expire(self, root: Root) -> None:
        """Mark the message of a complete batch as expired where its topic has no subscription."""
        ...


@dataclass(frozen=True, slots=True)
class Context:
    """The parts of a deployment that every use case needs.

    Attributes:
        announcer: makes messages part of a transaction.
        ids: makes ids of batches and messages.
    """

    store: BatchTable
    announcer: Announcer
    clock: Clock
    rng: Random
    ids: IdGenerator

    @property
    def hour(self) -> int:
        """The hour since 1970 UTC."""
        return hour_of(self.clock.now())

    @property
    def now(self) -> int:
        """The time in milliseconds since 1970 UTC."""
        return milliseconds(self.clock)

    def tries(self, count: int = TRIES) -> Iterator[None]:
        """Allow so many tries: full jitter before each but the first, from 5 ms, doubling."""
        for attempt in range(count):
            if attempt:
                self.clock.sleep(self.rng.random() * _BASE_SECONDS * 2.0**attempt)
            yield


def known_root(store: BatchTable, batch: str) -> Root:
    """Return a root; UnknownBatch where there is none of this id."""
    root = store.root(batch)
    if root is None:
        raise UnknownBatch(batch)
    return root


def unfinished_under_root(root: Root) -> int:
    """Return the groups directly under a root that have a bit, as a bitfield."""
    return root.bits & ((1 << ROOT_GROUPS) - 1)


def unfinished_nodes(store: BatchTable, root: Root) -> list[Node]:
    """Return the nodes with a bit in the root."""
    keys = [NodeKey(root.batch, number) for number in bits(root.bits >> ROOT_GROUPS)]
    found = store.nodes(keys) if keys else {}
    return [found[key] for key in keys if key in found]


def unfinished_groups(root: Root, nodes: Sequence[Node]) -> list[int]:
    """Return the groups with a bit, ascending."""
    groups = list(bits(unfinished_under_root(root)))
    for node in nodes:
        base = first_group(node.node)
        groups += [base + bit for bit in bits(node.bits)]
    return groups


def finished_hour(store: BatchTable, root: Root) -> int:
    """Return the newest hour of the finished children of a root; 0 if there are none.

    The last ack of a group leaves its hour there; walks over unfinished children do not read it.
    """
    given = root.next_group
    groups = bits(ones(0, min(given, ROOT_GROUPS)) & ~root.bits)
    last = node_of(given - 1) if given else None
    numbers = range(0 if last is None else last + 1)
    done = [NodeKey(root.batch, n) for n in numbers if not root.bits >> slot_of(n) & 1]
    keys = [LeafKey(root.batch, group) for group in groups]
    hours = [leaf.hour for leaf in store.leaves(keys).values()]
    hours += [node.hour for node in store.nodes(done).values()]
    return max(hours, default=0)

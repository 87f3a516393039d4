"""The version row of topics (row `!` of `config`): their latest changes, and the busiest topics.

The changes lie in a ring of slots. By them, processes drop the copies that are out of date.

The busiest topics are those whose figures are written as metrics by topic. CloudWatch bills a
metric for each hour in which it is written. So the list is made once an hour, and within the hour
it only grows, up to a bound: that bounds the metrics of an hour.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final

from fairbox.tables.calls import Rows, key_condition
from fairbox.tables.keys import CONFIG, HEAD, version_key
from fairbox.tables.stored_messages import number

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

    from fairbox.tables.keys import Item

CONFIG_VERSION: Final = "n"  # N, counts every change of a topic or subscription (row `!`)
ANNOUNCED: Final = "an"  # N, counts circuits that opened and pauses that changed (row `!`)
CHANGED_TOPIC: Final = "t"  # B, with a number behind: digest of a topic that changed (row `!`)
CHANGE_NUMBER: Final = "u"  # N, with the same number: `n` plus `an` before that (row `!`)

SLOTS: Final = 24
"""Changes that are kept: with the longest list of busiest topics their row stays under 4 KB."""
_DIGEST_BYTES: Final = 6

BUSIEST: Final = "bt"  # SS, topics whose figures are metrics by topic (row `!`)
RANKED_HOUR: Final = "bh"  # N, hours since 1970 UTC, when these were ranked (row `!`)
RANKED_VERSION: Final = "bv"  # N, the `n` that was seen then, or when some joined (row `!`)

MAX_BUSIEST: Final = 20
"""Topics that an hour begins with, at most."""
TROUBLED: Final = 10
"""Places of them for topics in trouble; and as many more may join within the hour."""
INCUMBENT: Final = 2
"""Factor for a topic that is listed: another must be more than twice as busy to replace it."""


@lru_cache(maxsize=10_000)
def topic_digest(name: str) -> bytes:
    """Return the six bytes that stand for a topic; two that share them drop one copy too many."""
    return hashlib.blake2b(name.encode(), digest_size=_DIGEST_BYTES).digest()


@dataclass(frozen=True, slots=True)
class TopicChanges:
    """Counts of changes, and which topics the latest concerned.

    Attributes:
        version: changes of topics and subscriptions so far.
        announced: circuits opened and pauses changed so far.
        latest: the digest of a change's topic by the number of the change: `total` before it.
    """

    version: int = 0
    announced: int = 0
    latest: Mapping[int, bytes] = field(default_factory=dict)

    @property
    def total(self) -> int:
        """Changes of either kind so far."""
        return self.version + self.announced

    def since(self, earlier: TopicChanges) -> frozenset[bytes] | None:
        """Return the digests of the topics that changed after `earlier`; None: nobody knows.

        Nobody knows where more changes came than are kept, where two writers took one slot, or
        where a release that keeps none made a change.
        """
        if not 0 <= self.total - earlier.total <= SLOTS:
            return None
        try:
            return frozenset(self.latest[n] for n in range(earlier.total, self.total))
        except KeyError:
            return None


def read_changes(item: Mapping[str, Any]) -> TopicChanges:
    """Return the changes of the version row; none where there is no row."""
    version, announced = (
        int(item.get(name, {"N": "0"})["N"]) for name in (CONFIG_VERSION, ANNOUNCED)
    )
    latest = {
        int(item[count]["N"]): bytes(item[topic]["B"])
        for topic, count in map(slot_attributes, range(SLOTS))
        if count in item
    }
    return TopicChanges(version, announced, latest)


def slot_attributes(place: int) -> tuple[str, str]:
    """Return the attributes of a slot: its topic, and the number of the change."""
    return f"{CHANGED_TOPIC}{place}", f"{CHANGE_NUMBER}{place}"


@dataclass(frozen=True, slots=True)
class BusiestTopics:
    """The list, as one row keeps it for all processes.

    Attributes:
        names: the topics, at most `MAX_BUSIEST` + `TROUBLED`.
        hour: hours since 1970 UTC, when they were ranked; -1: never.
        version: the version of the topics that was seen then, or when some joined.
    """

    names: frozenset[str] = frozenset()
    hour: int = -1
    version: int = -1

    @property
    def has_room(self) -> bool:
        """Whether any topic may join, because there were fewer topics than places."""
        return len(self.names) < MAX_BUSIEST

    def joined(self, names: Iterable[str], *, limit: int) -> BusiestTopics:
        """Return the list with these topics too, the first ones first, up to a limit."""
        new = [name for name in names if name not in self.names]
        return replace(self, names=self.names | set(new[: max(0, limit - len(self.names))]))


def ranked(
    listed: Collection[str],
    topics: Collection[str],
    deliveries: Mapping[str, int],
    troubled: Sequence[str],
) -> frozenset[str]:
    """Return the topics to list: those in trouble (the worst first), then the busiest, then any.

    Those that are listed are replaced only by much busier ones, by a sample of recent deliveries.
    """
    there = set(topics)
    # of those in trouble too, the listed ones stay
    first = sorted((t for t in troubled if t in there), key=lambda t: t not in listed)[:TROUBLED]

    def rank(name: str) -> tuple[float, bool, str]:
        weight = deliveries.get(name, 0) * (INCUMBENT if name in listed else 1)
        return -weight, name not in listed, name

    rest = sorted(there - set(first), key=rank)
    return frozenset([*first, *rest][:MAX_BUSIEST])


def busiest_attributes(busiest: BusiestTopics) -> Item:
    """Return the list as attributes; a set that is empty cannot be written and is left out."""
    named = {BUSIEST: {"SS": sorted(busiest.names)}} if busiest.names else {}
    return named | {RANKED_HOUR: number(busiest.hour), RANKED_VERSION: number(busiest.version)}


def read_busiest(item: Mapping[str, Any]) -> BusiestTopics:
    """Return the list of the row; the empty one if topics were never ranked."""
    if RANKED_HOUR not in item:
        return BusiestTopics()
    return BusiestTopics(
        frozenset(item.get(BUSIEST, {"SS": ()})["SS"]),
        int(item[RANKED_HOUR]["N"]),
        int(item[RANKED_VERSION]["N"]),
    )


class ChangesRow(Rows):
    """Reads the row that counts changes of topics, and counts them."""

    def item(self) -> Mapping[str, Any]:
        """Return the row as it is (consistent, 1 RRU); empty: there is none yet."""
        return self._calls.get(self._table, version_key()) or {}

    def read(self, *, consistent: bool = True) -> TopicChanges:
        """Return the counts and the latest changes of topics (1 RRU; 0.5 if not consistent)."""
        # a query, because policies of producers allow no other read of topics
        page = self._calls.call(
            "query",
            TableName=self._table,
            ConsistentRead=consistent,
            **key_condition(CONFIG, "#sk = :sk", sk=HEAD),
        )
        return read_changes(page["Items"][0] if page["Items"] else {})

    def count(self, counter: str, topic: str) -> dict[str, Any]:
        """Return the update that counts a change of a topic (0.5 RRU to choose its slot)."""
        # an old count only chooses a slot that others take too: readers see that one is missing
        return change_update(self._table, counter, topic, self.read(consistent=False))


def change_update(table: str, counter: str, topic: str, before: TopicChanges) -> dict[str, Any]:
    """Return the update that counts a change of a topic, for the transaction that makes it.

    It has no condition, so that changes never hinder each other. `before` only chooses the slot:
    two writers that saw the same count take the same slot, and readers find the first one missing.
    The counter is `CONFIG_VERSION` or `ANNOUNCED`.
    """
    changed, count = slot_attributes(before.total % SLOTS)

    return {
        "TableName": table,
        "Key": version_key(),
        # operands are values before the update: the number is the total without this change
        "UpdateExpression": "SET #t = :t, "
        "#k = if_not_exists(#n, :none) + if_not_exists(#a, :none) ADD #c :one",
        "ExpressionAttributeNames": {
            "#t": changed,
            "#k": count,
            "#n": CONFIG_VERSION,
            "#a": ANNOUNCED,
            "#c": counter,
        },
        "ExpressionAttributeValues": {
            ":t": {"B": topic_digest(topic)},
            ":none": number(0),
            ":one": number(1),
        },
    }

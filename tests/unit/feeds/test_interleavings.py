"""Publishers, a reader and a client that acknowledges, in every order of their calls."""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pytest
from fairbox import Feed, Feeds
from fairbox.tables.definitions import feeds_definition
from fairbox.tables.feed_topics import EMPTY, MESSAGES, Bundle, of_item, topic_pk
from fairbox.testing import ManualClock, MemoryDynamoDB

from tests.support.interleavings import Interleavings, Local

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from fairbox.model.feed_types import Kind

TABLE = "feeds"
TOPIC = "f/k"
PK = topic_pk(TOPIC)
LIMIT = 1


@dataclass(frozen=True)
class Process:
    """A process: `run` returns ids by number, or nothing."""

    name: str
    run: Callable[[Feeds], Any]


class FeedInterleavings(Interleavings):
    """All orders of processes on one topic.

    Args:
        kind: of the topic.
        processes: what runs.
        lost_answers: of writes.
    """

    def __init__(self, kind: Kind, processes: Sequence[Process], *, lost_answers: int = 1) -> None:
        engine = MemoryDynamoDB(ManualClock())
        engine.create_table(**feeds_definition(TABLE))
        names = [process.name for process in processes]
        super().__init__(engine, names, lost_answers=lost_answers)
        self._processes = processes
        self._feed = Feed("f", kind, **({"limit": LIMIT} if kind == "private" else {}))
        self._feeds(engine, 99).create(self._feed)

    def _feeds(self, client: Any, number: int) -> Feeds:
        feeds = Feeds(client, table=TABLE, clock=ManualClock(), rng=random.Random(number))
        feeds._rows._feeds["f"] = self._feed, 1e12  # no call of a process goes to the feed's row
        return feeds

    def run(self, number: int, client: Any) -> Any:
        """Run a process."""
        return self._processes[number].run(self._feeds(client, number))

    def problem(self, saved: Any, tables: int, locals_: tuple[Local, ...]) -> str:
        """Say what is wrong if all processes are dead."""
        rows = {i["sk"]["S"]: i for i in self._engine.items(TABLE) if i["pk"]["S"] == PK}
        head = of_item(rows["!"]) if "!" in rows else EMPTY
        if any(local.done not in ("", "returned", "FeedFull") for local in locals_):
            return "a publisher has given up"
        returned = [local.result for local in locals_ if local.done == "returned"]
        published = {n: i for r in returned if isinstance(r, dict) for n, i in r.items()}
        if len(published) < sum(len(r) for r in returned if isinstance(r, dict)):
            return "one number for two messages"
        if self._feed.kind == "snapshot":
            wrong = published.get(head.last, "") not in "".join(head.messages)
            return "the newest message is not the last one" if wrong else ""
        acknowledged = int(rows["!a"]["n"]["N"]) if "!a" in rows else 0
        if self._feed.kind == "private" and head.last - acknowledged > LIMIT:
            return "over the limit"

        there = {of_item(row) for row in rows.values() if MESSAGES in row}
        seen = [list(r) for r in returned if isinstance(r, list)]
        if any(s != list(range(1, len(s) + 1)) for s in seen):
            return "a reader saw a hole"
        return _unlike(there, head, published)


def _unlike(there: set[Bundle], head: Bundle, published: dict[int, str]) -> str:
    """Say where the bundles that are there are not what was published."""
    numbers = sorted(n for b in there for n in range(b.first, b.last + 1))
    if numbers != list(range(1, head.last + 1)):
        return f"a hole, or two messages of one number: {numbers}"
    texts = {b.first + place: text for b in there for place, text in enumerate(b.messages)}
    if len(set(texts.values())) < len(texts):
        return "published once, and there twice"
    if any(i not in texts.get(n, "") for n, i in published.items()):
        return "acknowledged to the publisher, and not there"
    return ""


def topics_of(feeds: Feeds) -> Any:
    return feeds._publishing._topics


def publisher(*ids: str) -> Process:
    def run(feeds: Feeds) -> dict[int, str]:
        return {feeds.publish("f", "k", b"1", id=i): i for i in ids}

    return Process(f"publish {' '.join(ids)}", run)


def _read(feeds: Feeds) -> list[int]:
    topics = topics_of(feeds)
    found = topics.after(TOPIC, 0, topics.state(TOPIC).head)
    return [n for bundle in found for n in range(bundle.first, bundle.last + 1)]


reader = Process("read", _read)
client = Process("acknowledge", lambda feeds: topics_of(feeds).acknowledge(TOPIC, 1))
RING = (publisher("a"), publisher("b", "c"), reader)


@pytest.mark.guarantee("feed-published")
@pytest.mark.parametrize(
    ("kind", "processes", "lost_answers"),
    [
        ("ring", RING, 2),
        ("snapshot", (publisher("a", "b"), publisher("c", "d")), 2),
        ("private", (publisher("a", "b"), publisher("c"), client), 1),
    ],
    ids=["ring", "snapshot", "private"],
)
def test_every_order_keeps_what_is_published(
    kind: Kind, processes: Sequence[Process], lost_answers: int
) -> None:
    report = FeedInterleavings(kind, processes, lost_answers=lost_answers).search()
    assert not report.violation, "\n".join([report.violation, *report.trace])
    assert report.states > 100

"""The hourly ranking: made once, free in between, seen by every process with what it reads."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from fairbox import Subscription, Topic
from fairbox.dispatch.maintenance.minute_figures import (
    OVERDUE_SECONDS,
    TopicFigures,
    rank_topics,
)
from fairbox.model.clock import milliseconds
from fairbox.tables.topic_cache import MAX_BUSIEST, TROUBLED

from tests.support.application import App

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

HOUR = 3600


class Ranking:
    """An application whose topics are ranked as `count_outstanding` does it."""

    def __init__(self, topics: int) -> None:
        self.app = App("a")
        for number in range(1, topics):
            self.app.outbox.create_topic(Topic(self.name(number), shards=1))

    @staticmethod
    def name(number: int) -> str:
        return f"topic-{number:03d}"

    def minute(
        self,
        figures: Mapping[str, TopicFigures] | None = None,
        failing: Collection[str] = (),
        seconds: float = 60,
    ) -> frozenset[str]:
        """Rank; return the list as another process sees it within two seconds."""
        self.app.clock.advance(seconds)
        self.app.tables.topic_cache.refresh()
        self.app.meter.reset()
        rank_topics(self.app.tables, self.app.clock, figures or {}, failing)
        self.calls = dict(self.app.meter.reading().calls)
        other = self.app.tables_of(self.app.clock)
        other.topic_cache.refresh()
        return other.topic_cache.busiest.names

    def deliver(self, *topics: str, count: int) -> None:
        for topic in topics:
            refs = self.app.add(count, topic)
            self.app.outbox.mark_delivered(refs)
        self.app.run()


def test_topics_are_ranked_in_the_first_minute_of_an_hour_and_only_then() -> None:
    ranking = Ranking(MAX_BUSIEST + 10)
    first = ranking.minute()
    assert len(first) == MAX_BUSIEST
    for _ in range(5):
        assert ranking.minute() == first
        assert ranking.calls == {}, "nothing is read or written while the hour goes on"
    hour = int(ranking.app.clock.now() // HOUR)
    ranking.minute(seconds=(hour + 1) * HOUR - ranking.app.clock.now() + 1)
    assert ranking.calls["update_item"] == 1


def test_the_busiest_by_their_deliveries_of_the_last_hour_are_listed() -> None:
    ranking = Ranking(MAX_BUSIEST + 10)
    last = ranking.name(MAX_BUSIEST + 9)
    ranking.minute()
    assert last not in ranking.app.tables.topic_cache.busiest.names
    ranking.deliver(last, count=30)
    ranking.deliver(ranking.name(MAX_BUSIEST + 8), count=3)  # in a shared row of the ledger
    listed = ranking.minute(seconds=HOUR - 60)
    assert {last, ranking.name(MAX_BUSIEST + 8)} <= listed
    assert len(listed) == MAX_BUSIEST


def test_a_topic_that_comes_joins_within_a_minute_while_there_is_room() -> None:
    ranking = Ranking(2)
    assert ranking.minute() == {"orders", ranking.name(1)}
    ranking.app.outbox.create_topic(Topic("invoices"))
    assert ranking.minute() == {"invoices", "orders", ranking.name(1)}
    ranking.minute()
    assert ranking.calls == {}
    ranking.app.outbox.add_subscription(Subscription("invoices", "a", "sqs:http://q/a"))
    ranking.minute()
    assert ranking.calls == {"query": 1, "update_item": 1}, "the version was seen"


@pytest.mark.parametrize(
    ("figures", "failing"),
    [
        (TopicFigures(ready=1, dead=1), ()),
        (TopicFigures(ready=1, oldest_age=OVERDUE_SECONDS), ()),
        (TopicFigures(ready=1), ("topic-035",)),
        (None, ("topic-035",)),
    ],
)
def test_a_topic_in_trouble_joins_within_a_minute(
    figures: TopicFigures | None, failing: tuple[str, ...]
) -> None:
    ranking = Ranking(40)
    before = ranking.minute()
    name = ranking.name(35)
    assert name not in before
    counted = {} if figures is None else {name: figures}
    assert ranking.minute(counted, failing) == before | {name}
    assert ranking.calls == {"update_item": 1}
    assert ranking.minute() == before | {name}, "until the hour ends"
    assert ranking.minute(seconds=HOUR) == before


def test_the_topics_of_an_hour_are_bounded_however_many_are_in_trouble() -> None:
    ranking = Ranking(60)
    ranking.minute()
    names = [ranking.name(n) for n in range(1, 60)]
    seen = set[str]()
    for failing in (names[::-1], names, names[::-1]):
        seen |= ranking.minute(failing=failing)
    assert len(seen) == MAX_BUSIEST + TROUBLED


def test_a_topic_that_only_waits_is_in_no_trouble() -> None:
    ranking = Ranking(40)
    before = ranking.minute()
    figures = {ranking.name(35): TopicFigures(ready=9, oldest_age=OVERDUE_SECONDS - 1)}
    assert ranking.minute(figures) == before


def test_the_row_that_every_process_reads_stays_under_4_kb_with_the_longest_names() -> None:
    app = App("a")
    names = [f"{number:03d}".ljust(120, "x") for number in range(MAX_BUSIEST + TROUBLED + 9)]
    for name in names:
        app.outbox.create_topic(Topic(name, shards=1))
    app.tables.topic_cache.refresh()
    rank_topics(app.tables, app.clock, {}, ())
    app.clock.advance(60)
    app.tables.topic_cache.refresh()
    rank_topics(app.tables, app.clock, {}, names)
    app.clock.advance(60)
    app.meter.reset()
    app.tables.topic_cache.refresh()
    assert len(app.tables.topic_cache.busiest.names) == MAX_BUSIEST + TROUBLED
    assert app.meter.reading().rru == 1


def test_a_change_of_the_list_leaves_the_copies_of_topics() -> None:
    ranking = Ranking(3)
    other = ranking.app.tables_of(ranking.app.clock)
    other.topic_cache.refresh()
    assert other.topic_cache.get("orders") is not None
    ranking.minute()
    ranking.app.meter.reset()
    other.topic_cache.refresh()
    assert other.topic_cache.get("orders") is not None
    assert ranking.app.meter.reading().calls == {"get_item": 1}
    assert other.topic_cache.busiest.hour == milliseconds(ranking.app.clock) // 3_600_000

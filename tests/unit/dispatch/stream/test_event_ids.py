"""Events keep their ids under whatever a stream does: repetition, late batches, bisection."""

from __future__ import annotations

import json
import random
from collections import Counter
from functools import cache
from typing import TYPE_CHECKING, Any

from fairbox.dispatch.ports import TAKEN, Outcome
from fairbox.dispatch.stream.marking import Marking
from fairbox.testing.application import MemoryArchive
from hypothesis import given
from hypothesis import strategies as st

from tests.support.application import REFUSED, THROTTLED, App
from tests.support.archive_lines import check_line

if TYPE_CHECKING:
    from fairbox.tables.stored_messages import StoredMessage

Records = list[dict[str, Any]]
Lines = dict[str, dict[str, Any]]


@cache
def history() -> tuple[App, Records, Lines]:
    """An hour of an application where everything happens, its records, its events by id."""
    app = App("a", "b", "c")
    app.add_topic("pulled")
    app.add_topic("later", "a")
    chance = random.Random(5)

    def answer(stored: StoredMessage) -> Outcome:
        body = stored.message.body
        if body in (b"1", b"4"):  # never taken
            return REFUSED
        if body == b"left":
            return THROTTLED
        return chance.choice((TAKEN, TAKEN, REFUSED, THROTTLED))

    app.at("a").answer = lambda stored: REFUSED if stored.message.body == b"1" else TAKEN
    app.at("b").answer = answer
    app.at("c").answer = answer
    app.add(12, partition_key="k")
    cancelled = app.add(2, "later", delay=600)
    app.add(2, "later", delay=5, body=b"\xff")
    app.outbox.mark_delivered(app.add(3, "pulled")[:2])
    app.outbox.cancel(cancelled, reason="not wanted")
    app.run(1800, step=5)
    app.add(1, body=b"left")
    app.run(60)
    for name in ("b", "c"):
        app.outbox.remove_subscription("orders", name)
    app.run(1800, step=10)
    return app, app.records(), marked(app, [app.records()])


def marked(app: App, batches: list[Records]) -> Lines:
    """Return the events by id that marking writes for these batches, in this order."""
    archive = MemoryArchive()
    marking = Marking(app.tables_of(app.clock), archive, app.clock)
    for batch in batches:
        marking.handle(batch)
    lines: Lines = {}
    for line in map(json.loads, archive.lines):
        check_line(line)
        # the same event is told in the same words
        assert lines.setdefault(line["event_id"], line) == line
    return lines


def test_the_history_holds_every_event_that_the_application_makes() -> None:
    _, records, lines = history()
    kinds = Counter(line["event"] for line in lines.values())
    assert {"added", "failed", "delivered", "dead", "cancelled", "purged"} <= set(kinds)
    added = [r for r in records if r["eventName"] == "INSERT"]
    assert kinds["added"] == len(added)
    assert kinds["cancelled"] == 2


def test_an_event_that_happens_again_has_another_id() -> None:
    _, _, lines = history()
    told = Counter(
        tuple(line.get(name) for name in ("event", "topic", "id", "subscription", "attempt"))
        for line in lines.values()
    )
    assert max(told.values()) == 1
    assert len(lines) == sum(told.values())


@given(st.data())
def test_repeated_late_and_bisected_batches_tell_the_same_events(data: st.DataObject) -> None:
    app, records, lines = history()
    batches = []
    start = 0
    while start < len(records):
        size = data.draw(st.integers(1, len(records) - start), label="size")
        whole = records[start : start + size]
        cut = data.draw(st.integers(0, size), label="cut")
        parts = [whole, whole[cut:], whole[:cut]][: data.draw(st.integers(1, 3), label="tries")]
        batches += [part for part in parts if part]
        start += size
    late = data.draw(st.permutations(batches), label="late")
    assert marked(app, late) == lines

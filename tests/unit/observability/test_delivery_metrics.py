"""Metrics and log lines of deliveries, and the circuits' metrics of each minute."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

from fairbox.dispatch.maintenance.minute_figures import CircuitWatch
from fairbox.model.ids import IdGenerator
from fairbox.model.messages import MessageRef
from fairbox.model.topic_states import CircuitEvent
from fairbox.observability import metrics as names
from fairbox.observability.delivery_metrics import DeliveryMetrics, log_circuits, write_metrics
from fairbox.observability.metrics import Metrics
from fairbox.testing.manual_clock import ManualClock

from local.functions.logs import metric_data
from tests.support.application import App

if TYPE_CHECKING:
    import pytest
    from fairbox.model.topic_states import TopicState

A, B, OTHER = ("orders", "a"), ("orders", "b"), ("other", "a")


def event(kind: Any) -> CircuitEvent:
    clock = ManualClock()
    ref = MessageRef("orders", 0, 0, IdGenerator(clock, lambda _: 0).next())
    return CircuitEvent(*A, kind, "HTTP 503", ref)


def written(capsys: pytest.CaptureFixture[str]) -> dict[tuple[str, ...], dict[str, float]]:
    """Return the figures by their dimensions' values, but for the service's."""
    found: dict[tuple[str, ...], dict[str, float]] = {}
    for line in capsys.readouterr().out.splitlines():
        for _, datum in metric_data(line.encode()):
            values = found.setdefault(tuple(d["Value"] for d in datum["Dimensions"][1:]), {})
            assert datum["MetricName"] not in values, "it is written once"
            (values[datum["MetricName"]],) = datum["Values"]
    return found


def test_figures_are_written_by_topic_and_destination_by_topic_and_in_all(
    capsys: pytest.CaptureFixture[str],
) -> None:
    first, second = DeliveryMetrics(), DeliveryMetrics()
    first.sent |= {A: 3, B: 0, OTHER: 2}
    second.sent |= {A: 1}
    second.failed[B] = 2
    second.retried[B] = 4
    second.dead[B] = 1
    first.delay |= {A: 0.5, OTHER: 7.0}
    second.delay |= {A: 2.5}
    write_metrics(Metrics(ManualClock()), [first, second])
    found = written(capsys)
    assert found["orders", "a"] == {names.SENT: 4, names.DELAY: 2.5}
    assert found["orders", "b"] == {names.FAILED: 2, names.RETRIED: 4, names.DEAD: 1}
    assert found["orders",] == {
        names.SENT: 4,
        names.FAILED: 2,
        names.RETRIED: 4,
        names.DEAD: 1,
        names.DELAY: 2.5,
    }
    assert found[()][names.SENT] == 6
    assert found[()][names.DELAY] == 7.0, "the longest of all, not their sum"


def test_circuits_that_open_and_receivers_that_want_no_more_are_counted(
    capsys: pytest.CaptureFixture[str],
) -> None:
    report = DeliveryMetrics(
        circuits=[event("opened"), event("probed"), event("closed"), event("gone")]
    )
    write_metrics(Metrics(ManualClock()), [report])
    found = written(capsys)
    for where in (("orders", "a"), ("orders",), ()):
        assert found[where] == {names.CIRCUITS_OPENED: 1, names.RECEIVERS_GONE: 1}


def test_what_stops_a_destination_is_a_warning_and_says_why(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO)
    log_circuits([event("opened"), event("closed"), event("gone")])
    levels = [(r.levelname, vars(r)["change"], vars(r)["error"]) for r in caplog.records]
    assert levels == [
        ("WARNING", "opened", "HTTP 503"),
        ("INFO", "closed", "HTTP 503"),
        ("WARNING", "gone", "HTTP 503"),
    ]


def test_topics_are_read_for_circuits_only_where_there_is_news_or_one_is_open() -> None:
    app = App("a", "b")
    loads: list[int] = []

    def load() -> list[TopicState]:
        loads.append(1)
        return [app.outbox.topic("orders")]

    watch = CircuitWatch(load)

    def look() -> set[tuple[str, str]]:
        app.clock.advance(60)
        app.tables.topic_cache.refresh()
        return set(watch.not_ready(app.tables.topic_cache.announced))

    assert look() == look() == set()
    assert not loads
    app.outbox.pause_subscription("orders", "b")
    assert look() == look() == {B}
    app.outbox.resume_subscription("orders", "b")
    assert look() == set()
    loads.clear()
    assert look() == look() == set()
    assert not loads

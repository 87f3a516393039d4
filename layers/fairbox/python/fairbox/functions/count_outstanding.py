"""Count outstanding: each minute, outstanding messages by topic, and open batches."""

from __future__ import annotations

from functools import cache
from typing import Any

from fairbox.dispatch.maintenance.minute_figures import CircuitWatch, count_outstanding, rank_topics
from fairbox.observability.metrics import (
    DEAD_COUNT,
    OLDEST_AGE,
    OLDEST_BATCH_AGE,
    OPEN_BATCHES,
    OPEN_CIRCUITS,
    OUTSTANDING_COUNT,
    PAUSED_SUBSCRIPTIONS,
)
from fairbox.runtime.function_application import Application
from fairbox.runtime.function_process import ends_in_time, make_at_start


@cache
def application() -> Application:
    """Return this process's application."""
    return Application.from_env()


@cache
def watch() -> CircuitWatch:
    """Return this process's watch over circuits."""
    return CircuitWatch(application().tables.topics.all)


@ends_in_time(application)
def handler(_event: dict[str, Any], _context: Any) -> dict[str, Any]:
    """Write a heartbeat, the metrics by topic, in total, of circuits and batches; rank topics."""
    app = application()
    # first: whatever fails below, the readers of the streams are seen to run
    app.tables.write_heartbeat()
    app.tables.topic_cache.refresh()

    figures = count_outstanding(app.tables, app.tables.rows.listed(), app.clock)
    for topic, counted in figures.items():
        state = app.tables.topic_cache.get(topic)
        app.metrics.emit(
            {
                OUTSTANDING_COUNT: counted.outstanding,
                OLDEST_AGE: counted.oldest_age,
                DEAD_COUNT: counted.dead,
            },
            topic=topic,
            partition=None if state is None else state.topic.partition,
        )

    values = figures.values()
    total = {
        OUTSTANDING_COUNT: sum(f.outstanding for f in values),
        # 0 where nothing is outstanding: no value would mean that nobody counts
        OLDEST_AGE: max((f.oldest_age for f in values), default=0.0),
        DEAD_COUNT: sum(f.dead for f in values),
    }
    app.metrics.emit(total)

    circuits = watch().not_ready(app.tables.topic_cache.announced)
    stopped = {
        one: {PAUSED_SUBSCRIPTIONS if status.paused else OPEN_CIRCUITS: 1}
        for one, status in circuits.items()
    }
    paused = sum(status.paused for status in circuits.values())
    not_ready = {OPEN_CIRCUITS: len(circuits) - paused, PAUSED_SUBSCRIPTIONS: paused}
    app.metrics.emit_by_destination(stopped, not_ready)

    batches = app.keeper.statistics.open_batches()
    open_ = {OPEN_BATCHES: batches.count, OLDEST_BATCH_AGE: batches.oldest_age}
    app.metrics.emit(open_)

    if app.metrics_level == "busiest":
        # a paused subscription is no trouble: somebody wants it so
        failing = {topic for (topic, _), status in circuits.items() if not status.paused}
        rank_topics(app.tables, app.clock, figures, failing)

    return total | not_ready | open_


make_at_start(lambda: application().keeper, watch)

"""Job `history`: archive to tables `events` and `messages`."""

from __future__ import annotations

from typing import Final

from fairbox_pipeline.job import Context, Figures, Job
from fairbox_pipeline.schemas import EVENTS_TABLE, MALFORMED_TABLE


def figures(context: Context) -> Figures:
    """Count the rows of the tables."""
    tables = context.warehouse
    counted = context.messages.groupBy("topic", "state").count()
    states: dict[str, int] = {}
    topics: dict[str, dict[str, int]] = {}
    for topic, state, count in sorted(counted.collect()):
        topics.setdefault(topic, {})[state] = count
        states[state] = states.get(state, 0) + count
    return {
        "events": context.events.count() if context.window else tables.count(EVENTS_TABLE),
        "messages": sum(states.values()),
        "malformed": tables.count(MALFORMED_TABLE),
        "states": dict(sorted(states.items())),
        "topics": topics,
    }


JOB: Final = Job("history", "Take the archive into tables events and messages.", figures)

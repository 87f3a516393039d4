"""Waiting for a resize: the cut, and old epochs that drain, line by line as they change."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from fairbox.cli.session import Session
    from fairbox.client.topic_resize import EpochStatus

FIRST_SECONDS: Final = 1.0
MOST_SECONDS: Final = 15.0
_SLOWER: Final = 1.5
_COUNTED_MS: Final = 60_000


def watch_resize(session: Session, topic: str, timeout: float | None) -> bool:
    """Show the progress of a resize until old epochs hold at most dead letters; True: they do.

    A look costs 1 RRU a shard.

    Args:
        session: shows each change on standard error.
        topic: the topic.
        timeout: seconds after which to give up; None: never.
    """
    end = None if timeout is None else session.clock.now() + timeout
    pause = FIRST_SECONDS
    shown: dict[int, str] = {}
    while True:
        statuses = session.outbox.epochs(topic)
        # an epoch that is retired is listed no more
        for number in [n for n in shown if n not in {s.epoch.number for s in statuses}]:
            del shown[number]
            session.note(f"epoch {number}: retired")
        for status in statuses:
            text = _text(status)
            if shown.get(status.epoch.number) != text:
                shown[status.epoch.number] = text
                session.note(f"epoch {status.epoch.number} ({status.epoch.shards} shards): {text}")

        # counts trail by half a minute: what came just before the cut may not be in them yet
        past = session.clock.now() * 1000 - statuses[-1].epoch.since >= _COUNTED_MS
        if past and _drained(statuses):
            return True

        left = pause if end is None else end - session.clock.now()
        if left <= 0:
            return False
        session.clock.sleep(min(pause, left))
        pause = min(MOST_SECONDS, pause * _SLOWER)


def _drained(statuses: list[EpochStatus]) -> bool:
    """Whether the newest epoch has begun, and older ones hold at most dead letters."""
    *old, newest = statuses
    return newest.phase == "current" and not any(status.ready or status.later for status in old)


def _text(status: EpochStatus) -> str:
    lanes = {"ready": status.ready, "waiting": status.later, "dead": status.dead}
    parts = ", ".join(f"{count:,} {lane}" for lane, count in lanes.items() if count)
    if status.phase == "draining" and not status.empty and not (status.ready or status.later):
        return f"drained, but for {parts}: it stays until they are redriven or purged"
    if status.phase == "draining" and status.empty:
        return "drained; it is retired within hours"
    if status.phase in ("draining", "closed"):
        return f"{status.phase}{f', {parts}' if parts else ''}"
    return status.phase

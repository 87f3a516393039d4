"""Advice: what to do about a topic, why, and the command that does it."""

from __future__ import annotations

import re
import shlex
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from fairbox_pipeline.times import iso_time

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

SEVERITIES: Final = ("now", "soon", "note")
_FULL_SHARD_UNITS: Final = 1000
_REASON_CHARACTERS: Final = range(4, 81)
_PULL: Final = "pull"

GAP: Final = "*"
"""The place of a number or an id in a reason."""
Row = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Advice:
    """One piece of advice.

    Attributes:
        severity: `now`, `soon` or `note`.
        kind: `lost`, `stuck`, `dead`, `resize` or `hot_key`.
        topic, subscription: what it is about; subscription None: the whole topic.
        why: one sentence with its figures.
        command: its arguments; empty: no command does it.
    """

    severity: str
    kind: str
    topic: str
    why: str
    command: Sequence[str] = ()
    subscription: str | None = None

    def as_row(self) -> Row:
        """Return the printed fields; `shell` is the command as a shell takes it."""
        # a name such as `--yes` would be taken for an option
        named = (self.topic, self.subscription or "")
        command = [] if any(name.startswith("-") for name in named) else list(self.command)
        return {
            "severity": self.severity,
            "kind": self.kind,
            "topic": self.topic,
            "subscription": self.subscription,
            "why": self.why,
            "command": command,
            "shell": shlex.join(command) or None,
        }


def in_order(advice: Iterable[Advice]) -> list[Advice]:
    """Return advice by severity, topic, kind and subscription."""
    return sorted(
        advice,
        key=lambda a: (SEVERITIES.index(a.severity), a.topic, a.kind, a.subscription or "", a.why),
    )


def of_load(loads: Iterable[Row]) -> Iterator[Advice]:
    """Advise about shards, from the topics of job `sizing`."""
    for load in loads:
        topic, why = load["topic"], load["why"]
        if load["command"] is not None:
            more = load["shards_needed"] > load["shards"]
            full = load["units_per_second"] > load["shards"] * _FULL_SHARD_UNITS
            severity = ("now" if full else "soon") if more else "note"
            yield Advice(severity, "resize", topic, why, shlex.split(load["command"]))
        elif load["hot_key"] is not None:
            yield Advice("soon", "hot_key", topic, why)


def of_findings(rows: Iterable[Row], places: Sequence[str], older_than: float) -> Iterator[Advice]:
    """Advise about findings, from rows `kind` `topic` `messages`.

    Args:
        rows: of kinds `lost` and `stuck`.
        places: the arguments that name archive and warehouse.
        older_than: seconds after which a message is stuck.
    """
    sweep = ["fairbox", "outbox", "sweep", "--older-than", f"{older_than:g}"]
    for row in rows:
        topic, kind = row["topic"], row["kind"]
        why = f"the last reconcile found {_messages(row['messages'])} {kind}"
        if kind == "lost":
            chosen = ["--findings", "lost", "--topic", topic, "--ids", "same"]
            yield Advice("now", kind, topic, why, ["fairbox-pipeline", "replay", *places, *chosen])
        else:
            yield Advice("soon", kind, topic, why, sweep)


def _messages(count: int) -> str:
    return f"{count:,} message{'' if count == 1 else 's'}"


def of_causes(causes: Iterable[Row]) -> Iterator[Advice]:
    """Advise about dead letters, from `dead_causes`."""
    for cause in causes:
        topic, subscription, reason = cause["topic"], cause["subscription"], cause["reason"]
        command = ["fairbox", "dlq", "redrive", topic]
        if subscription not in (None, _PULL):
            command += ["--subscription", subscription]
        part = part_of(reason)
        if part:
            command.append(f"--reason={part}")
        why = (
            f"{_messages(cause['messages'])} died from {iso_time(cause['first_at'])} to "
            f"{iso_time(cause['last_at'])} with reason {reason!r}"
        )
        yield Advice("soon", "dead", topic, why, [*command, "--yes"], subscription)


def part_of(reason: str) -> str:
    """Return the longest part of a normalised reason that all its reasons have, or nothing."""
    parts = [
        part.strip(" :;,.-") for part in re.split(rf"[{re.escape(GAP)}\W]*[{GAP}\x00-\x1f]", reason)
    ]
    longest = max(parts, key=len)[: _REASON_CHARACTERS[-1]].strip()
    return longest if len(longest) in _REASON_CHARACTERS and longest.isprintable() else ""

"""The definitions in plain Python, without Spark and without a thought of speed."""

from __future__ import annotations

import json
import math
from collections import Counter, defaultdict
from typing import TYPE_CHECKING, Any

from fairbox.model.epochs import shard_number

if TYPE_CHECKING:
    from collections.abc import Iterable

EVENTS = {"added", "failed", "delivered", "dead", "redriven", "cancelled", "purged", "expired"}
STRINGS = ("event", "topic", "id", "event_id")
INTEGERS = ("at", "epoch", "shard")
Key = tuple[str, int, int, str]


def event_of(line: bytes) -> dict[str, Any] | None:
    """Return the event of a line; None where it is malformed."""
    try:
        told = json.loads(line)
    except ValueError:
        return None
    if not isinstance(told, dict):
        return None
    if any(type(told.get(name)) is not str for name in STRINGS):
        return None
    if any(type(told.get(name)) is not int for name in INTEGERS):
        return None
    return told if told["event"] in EVENTS else None


class Oracle:
    """The figures that the jobs must print for some lines and an outbox."""

    def __init__(self, lines: Iterable[bytes], outstanding: Iterable[dict[str, Any]] = ()) -> None:
        self.malformed = 0
        self.events: dict[str, dict[str, Any]] = {}
        for line in lines:
            event = event_of(line)
            if event is None:
                self.malformed += 1
            else:
                self.events.setdefault(event["event_id"], event)
        self.messages: dict[Key, list[dict[str, Any]]] = defaultdict(list)
        for event in self.events.values():
            self.messages[_key(event)].append(event)
        self.outstanding = {_key(named) for named in outstanding}

    def added(self, key: Key) -> dict[str, Any] | None:
        found = [e for e in self.messages[key] if e["event"] == "added"]
        return min(found, key=lambda e: e["at"]) if found else None

    def state(self, key: Key) -> str:
        events = self.messages[key]
        skips = [e for e in events if e["event"] == "cancelled" and e.get("subscription")]
        skipped = {e["subscription"] for e in skips}
        kinds = {e["event"] for e in events if e not in skips}
        for ended in ("cancelled", "purged", "expired"):
            if ended in kinds:
                return ended
        dead = max((e["at"] for e in events if e["event"] == "dead"), default=None)
        redriven = max((e["at"] for e in events if e["event"] == "redriven"), default=None)
        if dead is not None and (redriven is None or dead > redriven):
            return "dead"
        named = {e.get("subscription") for e in events} - skipped - {None}
        took = {e.get("subscription") for e in events if e["event"] == "delivered"}
        return "delivered" if took and named <= took else "outstanding"

    def deliveries(self) -> dict[tuple[Key, str | None], list[int]]:
        """Times of delivery, in order, of each message and subscription."""
        found: dict[tuple[Key, str | None], list[int]] = defaultdict(list)
        for key, events in self.messages.items():
            for event in events:
                if event["event"] == "delivered":
                    found[key, event.get("subscription")].append(event["at"])
        return {pair: sorted(times) for pair, times in found.items()}

    def history(self) -> dict[str, Any]:
        topics: dict[str, Counter[str]] = defaultdict(Counter)
        for key in self.messages:
            topics[key[0]][self.state(key)] += 1
        return {
            "events": len(self.events),
            "messages": len(self.messages),
            "malformed": self.malformed,
            "states": dict(sum(topics.values(), Counter())),
            "topics": {topic: dict(states) for topic, states in topics.items()},
        }

    def latency(self) -> dict[tuple[str, str | None, float | None], dict[str, float]]:
        """Figures by topic, subscription and hour, in hours since 1970; None: all hours."""
        samples: dict[tuple[str, str | None, Any], list[int]] = defaultdict(list)
        for (key, subscription), times in self.deliveries().items():
            added = self.added(key)
            if added is not None:
                hour = times[0] // 3_600_000
                samples[key[0], subscription, hour].append(times[0] - added["at"])
        hours = Counter((topic, subscription) for topic, subscription, _ in samples)
        figures = {group: _percentiles(found, 1) for group, found in samples.items()}
        for topic, subscription in hours:
            every = [
                s
                for group, found in samples.items()
                if group[:2] == (topic, subscription)
                for s in found
            ]
            figures[topic, subscription, None] = _percentiles(every, hours[topic, subscription])
        return figures

    def sizing(self) -> dict[str, Any]:
        shards: dict[tuple[str, int, int], list[int]] = defaultdict(lambda: [0, 0])
        minutes: Counter[tuple[str, int]] = Counter()
        keys: Counter[tuple[str, str]] = Counter()
        for key in self.messages:
            added = self.added(key) or {}
            size = added.get("size") if type(added.get("size")) is int else 0
            shards[key[:3]][0] += 1
            shards[key[:3]][1] += size or 0
            if added:
                minutes[key[0], added["at"] // 60_000] += 3 * math.ceil((size or 0) / 1024)
            if added.get("partition_key") is not None:
                keys[key[0], added["partition_key"]] += 1
        return {"shards": dict(shards), "topics": self._topics(shards, minutes), "keys": dict(keys)}

    def _topics(
        self, shards: dict[tuple[str, int, int], list[int]], minutes: Counter[tuple[str, int]]
    ) -> dict[str, Any]:
        topics = {}
        for topic in {key[0] for key in self.messages}:
            newest = max(epoch for t, epoch, _ in shards if t == topic)
            loads = {s: load[0] for (t, e, s), load in shards.items() if (t, e) == (topic, newest)}
            busiest = max((units for (t, _), units in minutes.items() if t == topic), default=0)
            topics[topic] = {
                "messages": sum(load[0] for (t, *_), load in shards.items() if t == topic),
                "bytes": sum(load[1] for (t, *_), load in shards.items() if t == topic),
                "skew": max(loads.values()) / (sum(loads.values()) / (max(loads) + 1)),
                "units_per_second": busiest / 60,
                "shards_needed": max(1, math.ceil(busiest / 60 / 700)),
            }
        return topics

    def reconcile(self, stuck_after: float = 3600) -> tuple[dict[str, int], Counter[Any]]:
        """Return the counts, and the findings as (kind, key, subscription)."""
        findings: Counter[Any] = Counter()
        latest = max(event["at"] for event in self.events.values())
        states: Counter[str] = Counter()
        for key in self.messages:
            state = self.state(key)
            states[state] += 1
            added = self.added(key)
            held = key in self.outstanding
            if state == "outstanding" and not held:
                findings["lost", key, None] += 1
            if held and added and latest - added["at"] > stuck_after * 1000:
                findings["stuck", key, None] += 1
            if added and self._is_misplaced(key, added):
                findings["wrong_shard", key, None] += 1
        for (key, subscription), times in self.deliveries().items():
            findings["duplicated", key, subscription] += len(times) - 1
        self._disorder(findings)
        kinds = Counter[str]()
        for (kind, *_), count in findings.items():
            kinds[kind] += count
        counts = {state: states[state] for state in ("delivered", "dead", "cancelled")}
        counts |= {state: states[state] for state in ("purged", "expired")}
        counts["added"] = sum(self.added(key) is not None for key in self.messages)
        counts["outstanding"] = len(self.outstanding)
        for kind in ("lost", "duplicated", "out_of_order", "stuck", "wrong_shard"):
            counts[kind] = kinds[kind]
        return counts, +findings

    def _is_misplaced(self, key: Key, added: dict[str, Any]) -> bool:
        width = 1 + max(shard for *epoch, shard, _ in self.messages if tuple(epoch) == key[:2])
        return shard_number(_hashed(key, added), width) != key[2]

    def _disorder(self, findings: Counter[Any]) -> None:
        lists: dict[Any, list[tuple[int, Key]]] = defaultdict(list)
        for (key, subscription), times in self.deliveries().items():
            added = self.added(key) or {}
            if added.get("ordering") == "key" and added.get("partition_key") is not None:
                lists[key[0], added["partition_key"], subscription].append((times[0], key))
        for (_, _, subscription), found in lists.items():
            for at, key in found:
                if any(other[3] > key[3] and earlier < at for earlier, other in found):
                    findings["out_of_order", key, subscription] += 1


def _key(told: dict[str, Any]) -> Key:
    return told["topic"], told["epoch"], told["shard"], told["id"]


def _hashed(key: Key, added: dict[str, Any]) -> str:
    """Return the text whose hash places a message."""
    named = added.get("partition_key")
    return key[3] if named is None else str(named)


def _percentiles(samples: list[int], hours: int) -> dict[str, float]:
    ordered = sorted(samples)
    figures: dict[str, float] = {"count": len(ordered), "max_ms": ordered[-1]}
    for percent in (50, 90, 99):
        rank = percent / 100 * (len(ordered) - 1)
        low, high = ordered[math.floor(rank)], ordered[math.ceil(rank)]
        figures[f"p{percent}_ms"] = low + (high - low) * (rank - math.floor(rank))
    return figures | {"throughput_per_second": len(ordered) / (3600 * hours)}

"""The plan of the demo: a topic for each kind of event, and three kinds of destinations."""

from __future__ import annotations

import itertools
import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from fairbox.model.topics import Subscription, Topic

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

EVERYWHERE: Final = 7  # every seventh topic goes to all three destinations
ORDERED: Final = 4  # every fourth topic keeps order per repository
THROUGH_API: Final = 5  # every fifth payload is published through the HTTP API


@dataclass(frozen=True, slots=True)
class Sample:
    """One payload to publish: its place in the run, its topic, its key and its bytes."""

    number: int
    topic: str
    key: str
    body: bytes

    @property
    def through_api(self) -> bool:
        """Whether it goes through the HTTP API, rather than the library."""
        return self.number % THROUGH_API == THROUGH_API - 1


def samples(payloads: Sequence[tuple[str, dict[str, Any]]], count: int) -> Iterator[Sample]:
    """Yield `count` samples: the payloads in their order, repeated as needed."""
    encoded = [
        (kind, key_of(payload), json.dumps(payload, separators=(",", ":"), ensure_ascii=False))
        for kind, payload in payloads
    ]
    for number, (kind, key, text) in zip(range(count), itertools.cycle(encoded), strict=False):
        yield Sample(number, kind, key, text.encode())


def key_of(payload: Mapping[str, Any]) -> str:
    """Return the repository of a payload, or the account that it concerns."""
    for name, field in (("repository", "full_name"), ("organization", "login")):
        found = payload.get(name)
        if isinstance(found, dict) and isinstance(found.get(field), str):
            return str(found[field])
    for name in ("installation", "marketplace_purchase", "sponsorship", "sender"):
        found = payload.get(name)
        if isinstance(found, dict):
            account = found.get("account") or found.get("sponsorable") or found
            if isinstance(account, dict) and isinstance(account.get("login"), str):
                return str(account["login"])
    return "github"


def topics(kinds: Sequence[str]) -> list[Topic]:
    """Return a topic for each kind."""
    return [
        Topic(kind, shards=4, ordering="key" if n % ORDERED == 0 else "none")
        for n, kind in enumerate(kinds)
    ]


def subscriptions(
    topics: Sequence[Topic], *, queue: str, events: str, webhook: str
) -> list[Subscription]:
    """Return subscriptions: ordered topics to the webhook, others in rotation, some to all."""
    destinations = {"queue": queue, "events": events, "webhook": webhook}
    found = []
    for n, topic in enumerate(topics):
        names = [("queue", "events", "webhook")[n % 3]]
        if topic.ordering == "key":
            names = ["webhook"]
        elif n % EVERYWHERE == 0:
            names = list(destinations)
        found += [Subscription(topic.name, name, destinations[name]) for name in names]
    return found

"""Cost of attempts: messages that every subscription refuses, by subscriptions and by size.

Real code over a cost meter and a manual clock. Errors have 200 characters and differ from attempt
to attempt, so no figure depends on a destination's short answers.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from fairbox import Message, Subscription, Topic
from fairbox.dispatch.ports import Outcome
from fairbox.testing import CostMeter
from fairbox.testing.application import DELIVERIES, OUTBOX, MemoryApplication

from benchmarks.accounts import Accounts
from benchmarks.figures import Figure

if TYPE_CHECKING:
    from collections.abc import Sequence

    from fairbox.model.stored_messages import DeadLetter, StoredMessage

SUBSCRIPTIONS: Final = (1, 5, 60, 100)
BODIES: Final = {"1_kb": 700, "10_kb": 9_500, "100_kb": 100_000}
"""Bytes of bodies that cannot be compressed; `1_kb`: of an item of 0.8 KB."""
SPREAD: Final = range(0, 880, 20)
"""Bodies of items that are evenly spread up to 1 KB."""
_SECONDS: Final = 3 * 3600
_ONE_WRITE: Final = "a write of the item"


@dataclass(frozen=True)
class Death:
    """The way of a message to its death for all subscriptions.

    Attributes:
        attempts: calls to destinations.
        wru, rru: of the visits, without the move to the dead letters.
        burial: WRU of that move.
        letters: the dead letters.
        size: WRU of the message's own insert.
    """

    attempts: int
    wru: float
    rru: float
    burial: float
    letters: Sequence[DeadLetter]
    size: float


def figures(subscriptions: Sequence[int] = SUBSCRIPTIONS) -> tuple[list[Figure], list[str]]:
    """Return the figures, and the deaths that are not complete."""
    found: list[Figure] = []
    wrong: list[str] = []
    for name, body in BODIES.items():
        for count in subscriptions:
            died = death(count, body)
            at = f"{count}_subscriptions.{name}"
            wrong += [f"{at}: {text}" for text in faults(died, count)]
            each = died.wru / died.attempts
            found += [
                Figure(f"attempts.wru.{at}", "WRU", each, died.size, _ONE_WRITE),
                Figure(f"attempts.rru.{at}", "RRU", died.rru / died.attempts),
                Figure(f"attempts.burial_wru.{at}", "WRU", died.burial),
            ]
    for count in subscriptions:
        died = death(count, BODIES["1_kb"], apart=True)
        wrong += [f"{count} apart: {text}" for text in faults(died, count)]
        name = f"attempts.wru.{count}_subscriptions.1_kb.apart"
        found.append(Figure(name, "WRU", died.wru / died.attempts, died.size, _ONE_WRITE))
    spread = [death(1, body) for body in SPREAD]
    mean = sum(d.wru for d in spread) / sum(d.attempts for d in spread)
    found.append(Figure("attempts.wru.1_subscription.evenly_spread_to_1_kb", "WRU", mean, 1.0))
    return found, wrong


def death(subscriptions: int, body: int, *, apart: bool = False) -> Death:
    """Let so many subscriptions refuse a message with so many bytes until it is dead for all.

    With `apart`, each destination asks for a wait of its own, so that no two attempts are one
    visit.
    """
    app = MemoryApplication(wrap=CostMeter, rng=random.Random(subscriptions))
    app.outbox.create_topic(Topic("orders", shards=1))
    app.outbox.add_subscriptions(
        Subscription("orders", f"hook-{n}", f"sqs:hook-{n}") for n in range(subscriptions)
    )
    calls = 0

    def refuse(_: StoredMessage) -> Outcome:
        nonlocal calls
        calls += 1
        error = f"HTTP 422: {calls} ".ljust(200, "e")
        wait = calls % 997 + 1.0 if apart else None
        return Outcome("refused", error, wait, fault="message")

    for n in range(subscriptions):
        app.destinations[f"sqs:hook-{n}"].answer = refuse
    accounts = Accounts(app.client)
    content = random.Random(body).randbytes(body)
    message = Message(topic="orders", body=content, id=app.ids.next())
    accounts.charge("producer", lambda: app.outbox.add(message))
    began = app.clock.now()
    while app.outbox.outstanding_count("orders") and app.clock.now() - began < _SECONDS:
        accounts.charge("relay", app.relay)
        accounts.charge("visit", app.visit)
        app.clock.advance(1)
    burial = accounts.wru("visit", table=DELIVERIES) + accounts.wru(
        "visit", operation="delete_item", table=OUTBOX
    )
    return Death(
        attempts=calls,
        wru=accounts.wru("visit", "relay") - burial,
        rru=accounts.rru("visit"),
        burial=burial,
        letters=list(app.outbox.dead("orders")),
        size=accounts.wru("producer"),
    )


def faults(died: Death, subscriptions: int) -> list[str]:
    """Return what a dead letter lacks: a subscription, an attempt of the last ten, its error."""
    if len(died.letters) != 1 or died.letters[0].stored is None:
        return [f"{len(died.letters)} dead letters"]
    letter = died.letters[0]
    found = []
    if len(letter.subscriptions) != subscriptions:
        found.append(f"dead for {len(letter.subscriptions)} subscriptions")
    for name in letter.subscriptions:
        history = died.letters[0].stored.state(name).history
        if [f.attempt for f in history] != list(range(1, 11)) or not history[-1].error:
            found.append(f"the history of {name} is not whole")
    return found

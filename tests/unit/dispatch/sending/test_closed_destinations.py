"""Destinations that cannot be opened: what the relay and a visit make of them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fairbox import Message, RetryPolicy, Subscription, Topic
from fairbox.errors import InvalidInput
from fairbox.testing.application import MemoryApplication

if TYPE_CHECKING:
    import pytest
    from fairbox.testing.application import MemoryDestination


def _application(monkeypatch: pytest.MonkeyPatch) -> MemoryApplication:
    """An application whose one destination nothing can open, and a message for it."""
    app = MemoryApplication()

    def closed(_subscription: Subscription) -> MemoryDestination:
        raise InvalidInput("destination", "https, not http")

    app.outbox.create_topic(Topic("orders", retry=RetryPolicy(max_attempts=1)))
    app.outbox.add_subscription(Subscription("orders", "billing", "http://billing.internal/"))
    monkeypatch.setattr(app.destinations, "open", closed)
    app.outbox.add(Message(topic="orders", body=b"{}", id=app.ids.next()))
    return app


def test_the_relay_counts_no_attempt_for_what_it_cannot_open(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    app = _application(monkeypatch)

    app.relay()

    assert app.outbox.outstanding_count("orders") == 1
    assert [len(doorbell.refs) for doorbell in app.doorbells.now] == [1]


def test_a_visit_refuses_for_what_it_cannot_open(monkeypatch: pytest.MonkeyPatch) -> None:
    app = _application(monkeypatch)

    app.run()

    (letter,) = app.outbox.dead("orders")
    assert letter.reason == "destination: expected https, not http"
